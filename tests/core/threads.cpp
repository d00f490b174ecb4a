// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "tests/core/compositions.hpp"

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

TEST_SUITE_END();
