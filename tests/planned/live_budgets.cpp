// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/live_budgets.hpp"
#include "tests/planned/support.hpp"
#include "tests/support/sanitized.hpp"

namespace live_budgets_test {

using namespace live_budgets;
using Planned = planned::Weights;

TEST_SUITE_BEGIN("planned live budgets");

TEST_CASE("a plan for a smaller budget keeps what stays at its place") {
    CheckedDevice device;
    const Model model = uniform_model(device, 24, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = open<Planned>(device, model, 20);
        for (int p = 0; p < 3; ++p) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        const auto old = planned::held_between_passes(weights.plan());
        const std::uint64_t before = weights.statistics().total.fetched_bytes;
        const auto change = must(weights.try_set_budget(pages(16)));
        CHECK(change.given_back_bytes() == 4 * page);
        CHECK(change.moved_bytes == 0);
        run_pass(weights, model, stream);
        must(weights.try_drain());
        // Nothing is brought that both plans keep or hold as a pass begins.
        const std::uint64_t stays = page * planned::in_both(old, planned::first_of_slots(weights.plan()));
        CHECK(stays >= 12 * page);
        CHECK(change.evicted_bytes == 20 * page - stays);
        CHECK(weights.statistics().total.fetched_bytes - before <= 16 * page - stays + weights.plan().bytes_per_pass());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("budgets that come again are planned once") {
    CheckedDevice device;
    const Model model = uniform_model(device, 24, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = open<Planned>(device, model, 20);
        const auto round = [&] {
            for (const std::uint64_t budget : {10U, 16U, 6U, 20U}) {
                must(weights.try_set_budget(pages(budget)));
                run_pass(weights, model, stream);
            }
        };
        round();  // lays the image out
        round();
        const std::uint64_t plans = weights.statistics().total.plans_made;
        CHECK(plans >= 4);
        for (int i = 0; i < 3; ++i) { round(); }
        CHECK(weights.statistics().total.plans_made == plans);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a plan: leases over a change stay where they are and count, and what they keep comes later") {
    change_under_leases<Planned>();
}
TEST_CASE("a plan: leases over many passes and changes; they end in any order") { change_over_many_passes<Planned>(); }

TEST_CASE(
    "a plan: a lease from when everything was resident keeps its bytes where others are streamed over their slots") {
    int shared = 0;
    for (std::uint32_t leased = 0; leased < 24; ++leased) {
        CAPTURE(leased);
        CheckedDevice device;
        const Model model = uniform_model(device, 24, page);
        const Stream stream = must(device.create_stream());
        {
            auto weights = open<Planned>(device, model, 24);
            for (int p = 0; p < 2; ++p) { run_pass(weights, model, stream); }
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weight(leased)));
            must(pass.try_end());
            must(weights.try_set_budget(pages(12)));
            for (int p = 0; p < 3; ++p) {
                run_pass(weights, model, stream);
                verify(device, model, lease, weight(leased), stream);
            }
            lease.end();
            run_pass(weights, model, stream);
            must(weights.try_drain());
            shared += planned::held_between_passes(weights.plan())[leased] ? 0 : 1;
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
    CHECK(shared > 0);
}

TEST_CASE(
    "an image that would have to be laid out anew under a lease: an error that names it, and the old budget stays") {
    int refused = 0, accepted = 0;
    for (std::uint64_t seed = 1; seed <= support::random_cases(150); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        CheckedDevice device;
        const auto drawn = planned::random_model(random);
        const Model model = make_model(device, drawn.specs);
        const Stream stream = must(device.create_stream());
        {
            const auto schedule = planned::schedule_of(model, drawn.steps);
            auto weights = planned::make(device, model, std::uint64_t{1} << 30, schedule);
            const auto id = schedule[0].weights[0];
            std::optional<Planned::Lease> lease;
            {
                auto pass = must(weights.try_begin(stream));
                lease = must(pass.try_acquire(id));
            }
            const std::byte* const at = lease->data(id);
            const std::uint64_t before = weights.budget().bytes;
            const auto change = weights.try_set_budget(Budget::bytes(0));
            CHECK(lease->data(id) == at);
            verify(device, model, *lease, id, stream);
            if (change) {
                ++accepted;
            } else {
                ++refused;
                CHECK(change.error().kind() == ErrorKind::wrong_state);
                CHECK(change.error().message().find(
                          "a lease of " + model.catalog.describe(model.catalog.storage_of(id))) != std::string::npos);
                const auto* numbers = change.error().detail<residency::BudgetNumbers>();
                REQUIRE(numbers != nullptr);
                CHECK(change.error().message().find(residency::detail::in_bytes(numbers->floor_bytes)) !=
                      std::string::npos);
                CHECK(weights.budget().bytes == before);
                // What it says is enough is enough, and without the lease so is the floor.
                must(weights.try_set_budget(Budget::bytes(numbers->floor_bytes)));
                CHECK(lease->data(id) == at);
                verify(device, model, *lease, id, stream);
            }
            lease.reset();
            must(weights.try_set_budget(Budget::bytes(0)));
            CHECK(weights.budget().bytes == weights.statistics().floor_bytes);
            for (int p = 0; p < 2; ++p) { run_pass(weights, model, stream); }
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
    CHECK(refused > 0);
    CHECK(accepted > 0);
}

TEST_CASE(
    "C6: what kernels have written stays through a change of the budget under leases, and can be leased meanwhile") {
    for (const std::uint32_t leased : {1U, 2U, 3U, 4U, 5U, 6U}) {
        for (const std::uint64_t to : {2U, 3U, 4U}) {
            CAPTURE(leased);
            CAPTURE(to);
            using planned::chunk;
            CheckedDevice device;
            std::vector<Spec> specs(7, Spec{chunk});
            specs[0].is_mutable = true;
            const Model model = make_model(device, specs);
            const Stream stream = must(device.create_stream());
            {
                auto weights = planned::make(device, model, 7 * chunk, in_order(model));
                const auto launch = [&](bool is_write) {
                    std::uint64_t right = 0;
                    auto pass = must(weights.try_begin(stream));
                    auto lease = must(pass.try_acquire(weight(0)));
                    auto* const at = lease.writable<unsigned char>(weight(0));
                    Device::Kernel kernel;
                    kernel.name = is_write ? "write" : "read";
                    (is_write ? kernel.writes : kernel.reads) = {{at, chunk}};
                    kernel.body = [at, is_write, &right] {
                        if (is_write) { std::memset(at, 7, chunk); }
                        right = static_cast<std::uint64_t>(std::count(at, at + chunk, 7));
                    };
                    must(device.launch(stream, std::move(kernel)));
                    must(device.synchronize(stream));
                    return right;
                };
                CHECK(launch(true) == chunk);
                std::vector<Planned::Lease> kept;
                {
                    auto pass = must(weights.try_begin(stream));
                    for (std::uint32_t i = 1; i <= leased; ++i) { kept.push_back(must(pass.try_acquire(weight(i)))); }
                }
                must(weights.try_set_budget(Budget::bytes(to * chunk)));
                CHECK(launch(false) == chunk);
                kept.clear();
                CHECK(launch(false) == chunk);
                must(weights.try_drain());
                CHECK(weights.statistics().held_bytes <= to * chunk);
            }
            must(device.destroy_stream(stream));
        }
    }
}

TEST_CASE(
    "raised until everything fits, a budget ends the streaming, though steps that cover their copies lose nothing to "
    "it") {
    using planned::chunk;
    // A little over half a chunk each: near the floor each begins one, and without gaps they take 9/16 of that.
    for (const std::uint32_t steps : {20U, 40U}) {
        CAPTURE(steps);
        const std::vector<Spec> specs(steps, Spec{2304});
        CheckedDevice device;
        const Model model = make_model(device, specs);
        const Stream stream = must(device.create_stream());
        {
            planned::Steps each;
            for (std::uint32_t i = 0; i < steps; ++i) { each.push_back({i}); }
            const auto schedule =
                planned::schedule_of(model, each, residency::Cycle::cyclic, std::chrono::microseconds{1});
            const std::uint64_t everything = (steps * std::uint64_t{2304} + chunk - 1) / chunk;
            auto weights = planned::make(device, model, chunk, schedule);
            run_pass(weights, model, stream);
            CHECK(weights.plan().bytes_per_pass() > 0);
            must(weights.try_set_budget(residency::Budget::bytes(everything * chunk)));
            run_pass(weights, model, stream);
            CHECK(weights.plan().bytes_per_pass() == 0);
            must(weights.try_set_budget(residency::Budget::bytes(everything * chunk * 3 / 4 / chunk * chunk)));
            run_pass(weights, model, stream);
            const auto fresh = planned::make(device, model, weights.statistics().budget_bytes, schedule);
            CHECK(weights.plan().bytes_per_pass() * 100 <= fresh.plan().bytes_per_pass() * 102);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_SUITE_END();

}  // namespace live_budgets_test
