// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/compositions.hpp"

namespace threads_test {

using namespace streaming;

TEST_SUITE_BEGIN("core threads");

TEST_CASE("C22: several Residencies in several threads share host bytes and a device") {
    CheckedDevice device;
    const Model shared = uniform_model(device, 8, 4096);
    constexpr int passes = 12;
    std::vector<Model> models;
    std::vector<std::uint64_t> failed(4, 0);
    for (int t = 0; t < 4; ++t) { models.push_back({shared.catalog}); }
    // doctest's assertions stay on this thread: the others count what went wrong.
    const auto work = [&]<class Weights>(std::size_t t, Weights*) {
        const auto stream = device.create_stream();
        if (!stream) {
            ++failed[t];
            return;
        }
        {
            const Model& model = models[t];
            auto made = Weights::try_create(device, model.catalog, options<Weights>(4 * 4096, in_order(model)));
            if (!made) {
                ++failed[t];
                return;
            }
            for (int p = 0; p < passes; ++p) {
                auto pass = made->try_begin(*stream);
                if (!pass) {
                    ++failed[t];
                    return;
                }
                for (std::uint32_t w = 0; w < 8; ++w) {
                    auto lease = pass->try_acquire(weight(w));
                    if (!lease) {
                        ++failed[t];
                        continue;
                    }
                    const auto bytes = lease->bytes(weight(w));
                    const std::byte* host = model.catalog.host_bytes(residency::StorageId{w});
                    const auto launched = device.launch(
                        *stream,
                        {.name = "verify",
                         .reads = {{bytes.data(), bytes.size()}},
                         .writes = {},
                         .body = [at = bytes.data(), host, wrong = model.wrong.get(), seen = model.verified.get()] {
                             *wrong += std::memcmp(at, host, 4096) == 0 ? 0U : 1U;
                             ++*seen;
                         }});
                    failed[t] += launched ? 0U : 1U;
                }
                failed[t] += pass->try_end() ? 0U : 1U;
            }
        }
        failed[t] += device.destroy_stream(*stream) ? 0U : 1U;
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            if (t % 2 == 0) {
                work(t, static_cast<OnDemand*>(nullptr));
            } else {
                work(t, static_cast<Ahead*>(nullptr));
            }
        });
    }
    for (auto& thread : threads) { thread.join(); }
    for (std::size_t t = 0; t < 4; ++t) {
        CHECK(failed[t] == 0);
        CHECK(*models[t].wrong == 0);
        CHECK(*models[t].verified == passes * 8);
    }
}

TEST_CASE_TEMPLATE("C19 C22: one that ends, begins or changes while another thread captures waits, and harms nothing",
                   Weights, OnDemand, compositions::OnSlab, Ahead, compositions::Planned) {
    constexpr std::uint64_t page = 4096;
    for (const std::uint64_t pages : {4U, 8U}) {
        CAPTURE(pages);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page), other = uniform_model(device, 8, page);
        const auto stream = must(device.create_stream()), second = must(device.create_stream());
        const auto small = [&]<class W>(std::uint64_t budget, W*) {
            auto chosen = options<W>(budget, in_order(model));
            if constexpr (requires { chosen.policies.pool.chunk_bytes; }) {
                chosen.policies.pool.chunk_bytes = page;
                chosen.policies.link = residency::plan::Link{};
            }
            return chosen;
        };
        const auto free_before = must(device.memory()).free_bytes;
        {
            auto captured = must(compositions::Planned::try_create(
                device, model.catalog, small(4 * page, static_cast<compositions::Planned*>(nullptr))));
            auto chosen = small(pages * page, static_cast<Weights*>(nullptr));
            chosen.schedule = in_order(other);
            std::optional<Weights> another = must(Weights::try_create(device, other.catalog, std::move(chosen)));
            for (int pass = 0; pass < 2; ++pass) { run_pass(*another, other, second); }
            std::atomic<bool> has_begun{false};
            bool changed = false, created = false;
            std::thread thread;
            auto graph = must(captured.try_capture(stream, [&](auto& pass) -> residency::Status {
                for (const auto& step : captured.schedule()) {
                    auto lease = pass.try_acquire(step);
                    if (!lease) { return lease.error(); }
                    for (const auto id : step.weights) { verify(device, model, *lease, id, stream); }
                    if (step.position != 3) { continue; }
                    thread = std::thread{[&] {
                        has_begun = true;
                        changed = another->try_set_budget(residency::Budget::bytes(6 * page)).has_value();
                        another.reset();
                        auto made =
                            Weights::try_create(device, model.catalog, small(4 * page, static_cast<Weights*>(nullptr)));
                        created = made.has_value();
                    }};
                    while (!has_begun) { std::this_thread::yield(); }
                }
                return {};
            }));
            thread.join();
            CHECK(changed);
            CHECK(created);
            must(graph.try_launch(stream));
            must(captured.try_drain());
        }
        CHECK(must(device.memory()).free_bytes == free_before);
        CHECK(*model.wrong == 0);
        CHECK(*other.wrong == 0);
        must(device.destroy_stream(stream));
        must(device.destroy_stream(second));
    }
}

TEST_SUITE_END();

}  // namespace threads_test
