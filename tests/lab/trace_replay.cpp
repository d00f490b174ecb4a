// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Replaying by steps: what misses is what misses in a cache that is written as simply as it can be said.

#include "benchmarks/lab/trace/replay.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"

namespace trace_replay_test {

namespace {

using namespace residency;

/// Distinct storages in each step, of uneven size.
lab::trace::Trace random_trace(std::mt19937& random) {
    lab::trace::Trace trace;
    const auto storages = static_cast<std::uint32_t>(4 + random() % 12);
    for (std::uint32_t i = 0; i < storages; ++i) { trace.bytes.push_back(1 + random() % 4); }
    for (int i = 0; i < 60; ++i) {
        std::vector<StorageId> step;
        for (std::uint32_t id = 0; id < storages; ++id) {
            if (random() % 4 == 0) { step.push_back(StorageId{id}); }
        }
        std::shuffle(step.begin(), step.end(), random);
        trace.add_step(step);
    }
    return trace;
}

enum class Leaves { least_recent, furthest };

lab::trace::CacheCounts naive(const lab::trace::Trace& trace, std::uint64_t capacity, Leaves leaves,
                              std::size_t first_counted) {
    lab::trace::CacheCounts counts;
    std::map<std::uint32_t, std::size_t> last;  // of what is here: the place of its last access in the trace
    const auto held = [&] {
        std::uint64_t sum = 0;
        for (const auto& [id, at] : last) { sum += trace.bytes[id]; }
        return sum;
    };
    const auto next = [&](std::uint32_t id, std::size_t step) {
        for (std::size_t i = step + 1; i < trace.steps(); ++i) {
            const auto other = trace.step(i);
            if (std::find(other.begin(), other.end(), StorageId{id}) != other.end()) { return i; }
        }
        return trace.steps();
    };
    for (std::size_t now = 0; now < trace.steps(); ++now) {
        const auto step = trace.step(now);
        for (const StorageId id : step) {
            const std::uint64_t own = trace.bytes[index(id)];
            const bool is_missed = !last.contains(index(id));
            if (now >= first_counted) {
                ++counts.requests;
                counts.requested_bytes += own;
                counts.misses += is_missed ? 1 : 0;
                counts.missed_bytes += is_missed ? own : 0;
            }
            if (!is_missed || own > capacity) { continue; }
            bool has_room = true;
            while (held() + own > capacity) {
                std::vector<std::uint32_t> others;
                for (const auto& [other, at] : last) {
                    if (std::find(step.begin(), step.end(), StorageId{other}) == step.end()) {
                        others.push_back(other);
                    }
                }
                if (others.empty()) {
                    has_room = false;
                    break;
                }
                last.erase(*std::min_element(others.begin(), others.end(), [&](std::uint32_t a, std::uint32_t b) {
                    const std::size_t next_a = next(a, now);
                    const std::size_t next_b = next(b, now);
                    return leaves == Leaves::least_recent || next_a == next_b ? last[a] < last[b] : next_a > next_b;
                }));
            }
            if (has_room) { last[index(id)] = 0; }
        }
        for (std::size_t i = 0; i < step.size(); ++i) {
            if (last.contains(index(step[i]))) { last[index(step[i])] = trace.step_offsets[now] + i; }
        }
    }
    return counts;
}

}  // namespace

TEST_CASE("by steps: what a step names stays for it, what finds no room is a miss, the first steps are not counted") {
    lab::trace::Trace trace;
    trace.bytes = {1, 1, 1, 5};
    const auto step = [&](std::vector<StorageId> storages) { trace.add_step(storages); };
    step({StorageId{0}, StorageId{1}});
    step({StorageId{2}, StorageId{0}});  // 1 leaves, since 0 is named
    step({StorageId{0}, StorageId{1}, StorageId{2}});
    step({StorageId{3}});
    evict::Lru lru;
    const auto all = lab::trace::replay_steps(trace, {trace.bytes, 2}, lru);
    REQUIRE(all);
    CHECK(*all == lab::trace::CacheCounts{8, 12, 5, 9});
    const auto later = lab::trace::replay_steps(trace, {trace.bytes, 2}, lru, 1);
    REQUIRE(later);
    CHECK(*later == lab::trace::CacheCounts{6, 10, 3, 7});
}

TEST_CASE("by steps: LRU misses what the naive cache misses") {
    const std::uint32_t seed = 7;
    CAPTURE(seed);
    std::mt19937 random{seed};
    for (int i = 0; i < 300; ++i) {
        const lab::trace::Trace trace = random_trace(random);
        const std::uint64_t capacity = random() % 24;
        const std::size_t first_counted = random() % 20;
        CAPTURE(i);
        evict::Lru lru;
        const auto counts = lab::trace::replay_steps(trace, {trace.bytes, capacity}, lru, first_counted);
        REQUIRE(counts);
        CHECK(*counts == naive(trace, capacity, Leaves::least_recent, first_counted));
    }
}

TEST_CASE("by steps: Belady misses what the naive cache misses where sizes are even") {
    const std::uint32_t seed = 11;
    CAPTURE(seed);
    std::mt19937 random{seed};
    for (int i = 0; i < 200; ++i) {
        lab::trace::Trace trace = random_trace(random);
        std::fill(trace.bytes.begin(), trace.bytes.end(), 1);
        const std::uint64_t capacity = random() % 12;
        CAPTURE(i);
        const auto order = trace.try_order();
        REQUIRE(order);
        evict::Belady belady;
        const auto counts = lab::trace::replay_steps(trace, {trace.bytes, capacity, &*order}, belady);
        REQUIRE(counts);
        const lab::trace::CacheCounts expected = naive(trace, capacity, Leaves::furthest, 0);
        CHECK(counts->requests == expected.requests);
        CHECK(counts->misses == expected.misses);
        evict::Lru lru;
        const auto recent = lab::trace::replay_steps(trace, {trace.bytes, capacity}, lru);
        REQUIRE(recent);
        CHECK(counts->misses <= recent->misses);
    }
}

}  // namespace trace_replay_test
