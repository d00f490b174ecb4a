// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Replicas of a model, each in a thread of its own.
#include "tests/transport/replicas.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace replicas_test {

TEST_CASE("replicas in threads of their own, one of which throws in the middle: the others go on") {
    Host host{3};
    std::vector<std::thread> threads;
    std::uint64_t wrong[3] = {0, 0, 0};
    bool threw = false;
    for (std::size_t i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
            try {
                auto weights = host.member(i, i == 1 ? 0.4 : 0.5);
                for (int turn = 0; turn < 6; ++turn) {
                    auto pass = must(weights.try_begin(host.streams[i]));
                    for (std::uint32_t s = 0; s < layers; ++s) {
                        const auto lease = must(pass.try_acquire(weights.schedule()[s]));
                        host.verify(i, weights.schedule()[s], lease, wrong[i]);
                        if (i == 2 && turn == 3 && s == layers / 2) { throw 5; }
                    }
                    must(pass.try_end());
                }
                must(weights.try_drain());
            } catch (int) { threw = true; }
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
    CHECK(threw);
    for (const std::uint64_t count : wrong) { CHECK(count == 0); }
    CHECK(host.group->members().empty());
    host.expect_no_reports();
}

}  // namespace replicas_test
