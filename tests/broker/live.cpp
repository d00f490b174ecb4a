// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Several models and the user's own memory under one total, on a device whose own peak says what was held.
#include <doctest/doctest.h>

#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/interop/memory_resource.hpp"
#include "tests/core/compositions.hpp"

namespace live_test {

using namespace streaming;
using residency::Budget;
using residency::BudgetBroker;
using residency::ErrorKind;
using residency::MemoryResource;
using residency::Placement;

TEST_SUITE_BEGIN("broker live");

namespace {

using compositions::Planned;

template <class Weights>
typename Weights::Options chosen(std::uint64_t budget, const Model& model) {
    auto result = options<Weights>(budget, in_order(model));
    if constexpr (requires { result.policies.pool.chunk_bytes; }) {
        result.policies.pool.chunk_bytes = 4096;
        result.policies.link = residency::plan::Link{};  // nothing is measured on a virtual clock
    }
    return result;
}

/// A model that joined: the client outlives the Residency.
template <class Weights>
struct Tenant {
    Model model;
    Stream stream;
    residency::broker::ModelClient client;
    std::optional<Weights> weights;
    std::vector<std::pair<typename Weights::Lease, residency::WeightId>> kept;  // over pass ends and changes

    Tenant(Device& device, BudgetBroker& broker, Model of, std::int32_t priority, std::string name)
        : model{std::move(of)}, stream{must(device.create_stream())} {
        const auto sizes = must(Weights::try_resolve_budget(device, model.catalog, chosen<Weights>(0, model)));
        client = must(broker.try_add_model({.name = std::move(name),
                                            .priority = priority,
                                            .floor_bytes = sizes.floor_bytes,
                                            .wanted_bytes = sizes.resident_from_bytes}));
    }
    /// False where others have not yet made room.
    bool start(Device& device) {
        if (weights) { return true; }
        const auto budget = client.try_budget();
        if (!budget) {
            CHECK(budget.error().kind() == ErrorKind::budget);
            return false;
        }
        weights.emplace(must(Weights::try_create(device, model.catalog, chosen<Weights>(budget->amount(), model))));
        return true;
    }
};

}  // namespace

TEST_CASE_TEMPLATE("the budget can be resolved before anything is held", Weights, OnDemand, Ahead, Planned) {
    CheckedDevice device;
    const Model model = make_model(device, {{8192}, {4096}, {4096}, {300, Placement::resident}});
    const std::uint64_t free = must(device.memory()).free_bytes;
    const auto sizes = must(Weights::try_resolve_budget(device, model.catalog, chosen<Weights>(0, model)));
    CHECK(sizes.adjustment == residency::BudgetAdjustment::zero_to_floor);
    CHECK_FALSE(Weights::try_resolve_budget(device, model.catalog, chosen<Weights>(sizes.floor_bytes - 1, model)));
    CHECK(device.peak_used_bytes() == 0);
    CHECK(must(device.memory()).free_bytes == free);
    const auto weights = must(Weights::try_create(device, model.catalog, chosen<Weights>(0, model)));
    CHECK(weights.budget().bytes == sizes.bytes);
    CHECK(weights.budget().floor_bytes == sizes.floor_bytes);
    CHECK(weights.budget().total_bytes == sizes.total_bytes);
    const Model other = uniform_model(device, 2, 4096);
    CHECK(Weights::try_resolve_budget(device, model.catalog, chosen<Weights>(0, other)).error().kind() ==
          ErrorKind::mismatch);
}

TEST_CASE_TEMPLATE("a growing cache squeezes weights out between passes, and lets them back", Weights, OnDemand, Ahead,
                   Planned) {
    CheckedDevice device;
    constexpr std::uint64_t total = 40 * 4096;
    {
        BudgetBroker broker{{.total_bytes = total, .hysteresis = 0.1}};
        Tenant<Weights> tenant{device, broker, uniform_model(device, 32, 4096), 0, "model"};
        auto cache = must(
            MemoryResource<Device>::try_create(device, must(broker.try_add_memory({.name = "cache", .priority = 1}))));
        REQUIRE(tenant.start(device));
        auto& weights = *tenant.weights;
        CHECK_FALSE(weights.statistics().streaming);
        std::vector<void*> pages;
        int passes = 0, refused = 0;
        std::uint64_t given_back = 0;
        for (; pages.size() < 24; ++passes) {
            REQUIRE(passes < 60);
            run_pass(weights, tenant.model, tenant.stream);
            auto page = cache.try_allocate(4096, 256, tenant.stream);
            if (page) {
                pages.push_back(*page);
            } else {
                CHECK(page.error().kind() == ErrorKind::budget);
                ++refused;
            }
            const auto end = must(tenant.client.try_at_pass_end(weights));
            given_back += end.change.given_back_bytes();
        }
        CHECK(refused > 0);
        CHECK(refused < 24);
        CHECK(given_back >= 16 * 4096);
        CHECK(weights.statistics().streaming);
        CHECK(device.peak_used_bytes() <= total);
        for (void* page : pages) { must(cache.try_deallocate(page, 4096, tenant.stream)); }
        must(cache.try_trim());
        for (int i = 0; i < 3; ++i) {
            must(tenant.client.try_at_pass_end(weights));
            run_pass(weights, tenant.model, tenant.stream);
        }
        CHECK_FALSE(weights.statistics().streaming);
        must(weights.try_drain());
        CHECK(*tenant.model.wrong == 0);
        CHECK(device.peak_used_bytes() <= total);
        tenant.weights.reset();
        must(device.destroy_stream(tenant.stream));
    }
}

TEST_CASE_TEMPLATE("running leases are honoured: what they keep stays granted until it comes back", Weights, OnDemand,
                   Ahead, Planned) {
    CheckedDevice device;
    {
        BudgetBroker broker{{.total_bytes = 16 * 4096}};
        Tenant<Weights> tenant{device, broker, uniform_model(device, 16, 4096), 0, "model"};
        auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
        REQUIRE(tenant.start(device));
        auto& weights = *tenant.weights;
        run_pass(weights, tenant.model, tenant.stream);
        cache.ask(4 * 4096);
        {
            auto pass = must(weights.try_begin(tenant.stream));
            auto lease = must(pass.try_acquire(weight(3)));
            const auto in_pass = must(tenant.client.try_at_pass_end(weights));
            CHECK(in_pass.deferred);
            CHECK(in_pass.change.given_back_bytes() == 0);
            must(pass.try_end());
            // One lease: the rest is given back at once.
            const auto leased = must(tenant.client.try_at_pass_end(weights));
            CHECK_FALSE(leased.deferred);
            CHECK(leased.change.budget_bytes <= 12 * 4096);
            CHECK(leased.change.given_back_bytes() >= 4 * 4096);
            CHECK(leased.change.pending_bytes == 0);
            must(cache.try_take(4 * 4096));
            verify(device, tenant.model, lease, weight(3), tenant.stream);
        }
        CHECK(must(tenant.client.try_at_pass_end(weights)).change.budget_bytes <= 12 * 4096);
        run_pass(weights, tenant.model, tenant.stream);
        {
            // Eight leases, and a budget for less: what they keep counts, and comes when they have ended.
            std::vector<typename Weights::Lease> leases;
            auto pass = must(weights.try_begin(tenant.stream));
            for (std::uint32_t w = 0; w < 8; ++w) { leases.push_back(must(pass.try_acquire(weight(w)))); }
            must(pass.try_end());
            CHECK_FALSE(cache.try_take(10 * 4096));  // beside the 4 that it has
            const auto leased = must(tenant.client.try_at_pass_end(weights));
            CHECK_FALSE(leased.deferred);
            CHECK(leased.more_is_coming);
            CHECK(leased.change.budget_bytes <= 2 * 4096);
            CHECK(leased.change.pending_bytes == 8 * 4096 - leased.change.budget_bytes);
            CHECK(tenant.client.account().granted_bytes == 8 * 4096);
            CHECK_FALSE(cache.try_take(10 * 4096));
            for (std::uint32_t w = 0; w < 8; ++w) {
                verify(device, tenant.model, leases[w], weight(w), tenant.stream, std::chrono::milliseconds{1});
            }
            leases.clear();
            const auto running = must(tenant.client.try_at_pass_end(weights));  // the kernels are not complete
            CHECK(running.change.pending_bytes == leased.change.pending_bytes);
            CHECK(running.given_back_later_bytes == 0);
            CHECK_FALSE(cache.try_take(10 * 4096));
            must(device.synchronize(tenant.stream));
            must(weights.try_reclaim_pending());
            must(device.synchronize());
            const auto end = must(tenant.client.try_at_pass_end(weights));
            CHECK(end.given_back_later_bytes == leased.change.pending_bytes);
            CHECK(end.change.pending_bytes == 0);
            CHECK(weights.budget_change().complete_at.has_value());
            must(cache.try_take(10 * 4096));
        }
        run_pass(weights, tenant.model, tenant.stream);
        must(weights.try_drain());
        CHECK(*tenant.model.wrong == 0);
        tenant.weights.reset();
        must(device.destroy_stream(tenant.stream));
    }
}

TEST_CASE("random models and allocations, changes in flight: the device's own peak never exceeds the total") {
    std::uint64_t pending = 0, given_back_later = 0;
    for (unsigned seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const auto below = [&](std::uint64_t n) { return random() % n; };
        CheckedDevice device;
        {
            const std::uint64_t total = (48 + below(48)) * 4096;
            BudgetBroker broker{{.total_bytes = total,
                                 .hysteresis = static_cast<double>(below(3)) / 16,
                                 .most_moved_bytes = (4 + below(60)) * 4096}};
            const auto random_model = [&] {
                std::vector<Spec> specs(4 + below(24));
                for (Spec& spec : specs) {
                    spec.bytes = 1 + below(2 * 4096);
                    if (below(8) == 0) { spec.placement = Placement::resident; }
                }
                return make_model(device, specs);
            };
            Tenant<Planned> a{device, broker, random_model(), static_cast<std::int32_t>(below(2)), "planned"};
            std::optional<Tenant<OnDemand>> b;
            b.emplace(device, broker, random_model(), static_cast<std::int32_t>(below(2)), "on demand");
            Tenant<Ahead> c{device, broker, uniform_model(device, 5 + below(12), 4096), 0, "ahead"};
            auto cache = must(MemoryResource<Device>::try_create(
                device,
                must(broker.try_add_memory(
                    {.name = "cache", .priority = 1, .headroom_bytes = below(3) * 4096, .limit_bytes = total / 3}))));
            std::vector<std::pair<void*, std::uint64_t>> pages;
            std::uint64_t allocated = 0, passes = 0;
            const auto act = [&](auto& tenant) {
                if (!tenant.start(device)) { return; }
                auto& weights = *tenant.weights;
                {
                    auto pass = must(weights.try_begin(tenant.stream));
                    for (const auto& step : weights.schedule()) {
                        auto lease = pass.try_acquire(step);
                        if (!lease) {  // for leases that are kept
                            REQUIRE(lease.error().kind() == ErrorKind::budget);
                            REQUIRE_FALSE(tenant.kept.empty());
                            continue;
                        }
                        verify(device, tenant.model, *lease, step.weights[0], tenant.stream);
                        if (below(5) == 0) { tenant.kept.emplace_back(std::move(*lease), step.weights[0]); }
                    }
                }
                ++passes;
                const auto end = must(tenant.client.try_at_pass_end(weights));
                pending += end.change.pending_bytes;
                given_back_later += end.given_back_later_bytes;
                for (const auto& [lease, id] : tenant.kept) { verify(device, tenant.model, lease, id, tenant.stream); }
                if (below(4) == 0) { tenant.kept.clear(); }
                REQUIRE(tenant.weights->statistics().held_bytes <= tenant.client.account().granted_bytes);
            };
            for (int i = 0; i < 160; ++i) {
                switch (below(8)) {
                    case 0:
                    case 1: act(a); break;
                    case 2:
                    case 3: act(*b); break;
                    case 4: act(c); break;
                    case 5:
                    case 6: {
                        const std::uint64_t bytes = 1 + below(4 * 4096);
                        if (auto page = cache.try_allocate(bytes, 256, a.stream)) {
                            pages.emplace_back(*page, bytes);
                            ++allocated;
                        }
                        break;
                    }
                    default:
                        if (!pages.empty()) {
                            const std::size_t at = below(pages.size());
                            must(cache.try_deallocate(pages[at].first, pages[at].second, a.stream));
                            pages.erase(pages.begin() + static_cast<std::ptrdiff_t>(at));
                        }
                        if (below(10) == 0) { must(cache.try_trim()); }
                        if (below(20) == 0) {  // one leaves, another comes
                            b->kept.clear();
                            b->weights.reset();
                            must(device.destroy_stream(b->stream));
                            CHECK(*b->model.wrong == 0);
                            b.reset();
                            b.emplace(device, broker, random_model(), 0, "another");
                        }
                }
                REQUIRE(broker.statistics().granted_bytes <= total);
                REQUIRE(device.peak_used_bytes() <= total);
            }
            // Nobody starves.
            a.kept.clear();
            b->kept.clear();
            c.kept.clear();
            for (int i = 0; i < 200 && !(a.weights && b->weights && c.weights); ++i) {
                act(a);
                act(*b);
                act(c);
            }
            CHECK(a.weights);
            CHECK(b->weights);
            CHECK(c.weights);
            CHECK(allocated > 0);
            CHECK(passes > 0);
            CHECK(device.peak_used_bytes() <= total);
            for (const auto& [at, bytes] : pages) { must(cache.try_deallocate(at, bytes, a.stream)); }
            const auto close = [&](auto& tenant) {
                tenant.kept.clear();
                if (tenant.weights) { must(tenant.weights->try_drain()); }
                CHECK(*tenant.model.wrong == 0);
                tenant.weights.reset();
            };
            close(a);
            close(*b);
            close(c);
            must(device.destroy_stream(b->stream));
            must(device.destroy_stream(c.stream));
            must(cache.try_trim());
            must(device.destroy_stream(a.stream));
        }
    }
    CHECK(pending > 0);
    CHECK(given_back_later > 0);
}

TEST_SUITE_END();

}  // namespace live_test
