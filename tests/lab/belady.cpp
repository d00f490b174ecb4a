// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What knows the future is the best that there is.

#include "residency/evict/known_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/replay.hpp"
#include "residency/model/use_order.hpp"

namespace belady_test {

using namespace residency;

TEST_CASE("with equal sizes Belady reaches the fewest misses that there are") {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        std::mt19937 random{seed};
        const std::uint32_t storages = 2 + static_cast<std::uint32_t>(random() % 5);
        const std::uint32_t capacity = 1 + static_cast<std::uint32_t>(random() % 4);
        std::vector<StorageId> accesses;
        std::vector<std::uint64_t> offsets{0};
        for (std::uint32_t i = 0; i < 14; ++i) {
            accesses.push_back(StorageId{static_cast<std::uint32_t>(random() % storages)});
            offsets.push_back(accesses.size());
        }
        const UseOrder order = *UseOrder::try_from(offsets, accesses, storages, Cycle::one_shot);
        const std::vector<std::uint64_t> bytes(storages, 10);
        evict::Belady belady;
        const auto counts = lab::trace::replay_cache(accesses, {bytes, std::uint64_t{10} * capacity, &order}, belady);
        REQUIRE(counts);

        // Every set of storages that can be there, with the fewest misses that lead to it.
        std::map<std::uint32_t, std::uint64_t> reached{{0, 0}};
        for (const StorageId id : accesses) {
            std::map<std::uint32_t, std::uint64_t> next;
            const auto reach = [&](std::uint32_t set, std::uint64_t misses) {
                const auto [found, is_new] = next.try_emplace(set, misses);
                if (!is_new) { found->second = std::min(found->second, misses); }
            };
            const std::uint32_t bit = 1U << index(id);
            for (const auto& [set, misses] : reached) {
                if ((set & bit) != 0) {
                    reach(set, misses);
                } else if (static_cast<std::uint32_t>(std::popcount(set)) < capacity) {
                    reach(set | bit, misses + 1);
                } else {
                    for (std::uint32_t i = 0; i < storages; ++i) {
                        if ((set >> i & 1U) != 0) { reach((set & ~(1U << i)) | bit, misses + 1); }
                    }
                }
            }
            reached = std::move(next);
        }
        std::uint64_t fewest = UINT64_MAX;
        for (const auto& [set, misses] : reached) { fewest = std::min(fewest, misses); }
        CHECK(counts->misses == fewest);
    }
}

}  // namespace belady_test
