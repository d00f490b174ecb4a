// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/interop/memory_resource.hpp"
#include "tests/core/compositions.hpp"

namespace threads_test {

using namespace streaming;
using residency::BudgetBroker;
using residency::ErrorKind;
using residency::MemoryResource;

TEST_SUITE_BEGIN("broker threads");

TEST_CASE("C22: models and allocations of several threads share a total") {
    CheckedDevice device;
    constexpr std::uint64_t total = 64 * 4096;
    constexpr unsigned seed = 7;
    MESSAGE("seed " << seed);
    {
        BudgetBroker broker{{.total_bytes = total, .hysteresis = 0.05, .most_moved_bytes = 16 * 4096}};
        const Model shared = uniform_model(device, 24, 4096);
        auto cache = must(MemoryResource<Device>::try_create(
            device, must(broker.try_add_memory({.name = "cache", .priority = 1, .limit_bytes = 40 * 4096}))));
        // doctest's assertions stay on this thread: the others count what went wrong.
        std::array<std::string, 5> failure;  // the first of each thread
        std::array<std::uint64_t, 5> done{}, deferred{}, exceeded{};
        const auto note = [&](std::size_t t, const residency::Error& error) {
            if (failure[t].empty()) { failure[t] = error.message(); }
        };
        std::array<Stream, 5> streams;
        for (Stream& stream : streams) { stream = must(device.create_stream()); }
        std::vector<Model> models(3, Model{shared.catalog});
        for (Model& model : models) {
            model.wrong = std::make_shared<std::uint64_t>(0);
            model.verified = std::make_shared<std::uint64_t>(0);
        }
        const auto serve = [&]<class Weights>(std::size_t t, Weights*) {
            const Stream stream = streams[t];
            // Others may hold all but its floor when it comes: the pool's own floor, not the size of a storage.
            const auto sizes =
                Weights::try_resolve_budget(device, models[t].catalog, options<Weights>(0, in_order(models[t])));
            if (!sizes) {
                note(t, sizes.error());
                return;
            }
            auto client = broker.try_add_model({.name = "model " + std::to_string(t),
                                                .floor_bytes = sizes->floor_bytes,
                                                .wanted_bytes = sizes->total_bytes});
            if (!client) {
                note(t, client.error());
                return;
            }
            auto budget = client->try_budget();
            while (!budget) {
                if (budget.error().kind() != ErrorKind::budget) { note(t, budget.error()); }
                std::this_thread::yield();
                budget = client->try_budget();
            }
            auto weights =
                Weights::try_create(device, models[t].catalog, options<Weights>(budget->amount(), in_order(models[t])));
            if (!weights) {
                note(t, weights.error());
                return;
            }
            for (int p = 0; p < 60; ++p) {
                {
                    auto pass = weights->try_begin(stream);
                    if (!pass) {
                        note(t, pass.error());
                        return;
                    }
                    for (std::uint32_t w = 0; w < 24; ++w) {
                        auto lease = pass->try_acquire(weight(w));
                        if (!lease) {
                            note(t, lease.error());
                            continue;
                        }
                        const auto bytes = lease->bytes(weight(w));
                        const std::byte* host = models[t].catalog.host_bytes(residency::StorageId{w});
                        const auto launched =
                            device.launch(stream, {.name = "verify",
                                                   .reads = {{bytes.data(), bytes.size()}},
                                                   .writes = {},
                                                   .body = [at = bytes.data(), host, wrong = models[t].wrong.get()] {
                                                       *wrong += std::memcmp(at, host, 4096) == 0 ? 0U : 1U;
                                                   }});
                        if (!launched) { note(t, launched.error()); }
                    }
                }
                const auto end = client->try_at_pass_end(*weights);
                if (!end) { note(t, end.error()); }
                deferred[t] += end && end->deferred ? 1U : 0U;
                ++done[t];
            }
        };
        const auto allocate = [&](std::size_t t) {
            std::mt19937_64 random{seed + t};
            const Stream stream = streams[t];
            std::vector<std::pair<void*, std::uint64_t>> pages;
            for (int i = 0; i < 400 || done[t] < 20; ++i) {
                if (random() % 5 < 3 || pages.empty()) {
                    const std::uint64_t bytes = 1 + random() % (3 * 4096);
                    auto at = cache.try_allocate(bytes, 256, stream);
                    if (at) {
                        pages.emplace_back(*at, bytes);
                        ++done[t];
                    } else if (at.error().kind() != ErrorKind::budget &&
                               at.error().kind() != ErrorKind::out_of_memory) {
                        note(t, at.error());
                    } else {
                        std::this_thread::yield();
                    }
                } else {
                    const auto& [at, bytes] = pages.back();
                    if (auto gone = cache.try_deallocate(at, bytes, stream); !gone) { note(t, gone.error()); }
                    pages.pop_back();
                }
                if (random() % 16 == 0) {
                    if (auto trimmed = cache.try_trim(); !trimmed) { note(t, trimmed.error()); }
                }
                exceeded[t] += broker.statistics().granted_bytes <= total ? 0U : 1U;
            }
            for (const auto& [at, bytes] : pages) {
                if (auto gone = cache.try_deallocate(at, bytes, stream); !gone) { note(t, gone.error()); }
            }
        };
        std::vector<std::thread> threads;
        threads.emplace_back([&] { serve(0, static_cast<OnDemand*>(nullptr)); });
        threads.emplace_back([&] { serve(1, static_cast<Ahead*>(nullptr)); });
        threads.emplace_back([&] { serve(2, static_cast<OnDemand*>(nullptr)); });
        threads.emplace_back([&] { allocate(3); });
        threads.emplace_back([&] { allocate(4); });
        for (auto& thread : threads) { thread.join(); }
        for (std::size_t t = 0; t < 5; ++t) {
            CAPTURE(t);
            CHECK(failure[t] == "");
            CHECK(deferred[t] == 0);
            CHECK(exceeded[t] == 0);
            CHECK(done[t] > 0);
        }
        for (const Model& model : models) { CHECK(*model.wrong == 0); }
        CHECK(device.peak_used_bytes() <= total);
        CHECK(cache.requested_bytes() == 0);
        must(device.synchronize());
        must(cache.try_trim());
        CHECK(cache.held_bytes() == 0);
        CHECK(broker.accounts().size() == 1);
        for (const Stream stream : streams) { must(device.destroy_stream(stream)); }
    }
}

TEST_SUITE_END();

}  // namespace threads_test
