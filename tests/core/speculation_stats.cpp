// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What is learned of speculative copies: which leave first, when pieces of them are sent, and how large ones.

#include "residency/core/online/speculation.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "tests/core/compositions.hpp"

namespace speculation_stats_test {

namespace {

using namespace streaming;
using compositions::Hinted;
using residency::StorageId;
using residency::core::SpeculationStats;
using std::chrono::microseconds;

constexpr std::uint64_t KiB = 1024;
constexpr std::uint64_t MiB = 1024 * KiB;
constexpr auto any = [](StorageId) { return true; };

/// Sends what is worth sending, at most so many bytes, then misses; pieces that end within `in_time` bytes have arrived.
std::uint64_t send_and_miss(SpeculationStats& stats, std::uint64_t at_most, std::uint64_t in_time) {
    std::uint64_t sent = 0;
    while (sent < at_most && stats.next_is_worth_it()) {
        const std::uint64_t bytes = stats.next_bytes();
        sent += bytes;
        stats.sent(bytes, sent);
    }
    stats.missed([&](std::uint64_t end) { return end <= in_time; });
    return sent;
}
void predict(SpeculationStats& stats, bool is_right) {
    stats.opened(StorageId{0});
    if (is_right) { stats.used(StorageId{0}, true); }
    stats.expire(any);
    stats.removed(StorageId{0});
}

}  // namespace

TEST_CASE("the oldest mispredicted storage that may leave is the victim") {
    SpeculationStats stats;
    stats.attach(6);
    for (const std::uint32_t i : {4U, 2U, 5U, 1U}) { stats.opened(StorageId{i}); }
    CHECK_FALSE(stats.victim(any));  // none is known to be mispredicted
    stats.expire([](StorageId id) { return index(id) != 1; });
    CHECK(stats.victim(any) == StorageId{4});
    CHECK(stats.victim([](StorageId id) { return index(id) != 4; }) == StorageId{2});
    CHECK_FALSE(stats.victim([](StorageId) { return false; }));
    stats.removed(StorageId{4});
    stats.used(StorageId{2}, false);
    CHECK(stats.victim(any) == StorageId{5});
    stats.removed(StorageId{5});
    stats.removed(StorageId{5});
    stats.used(StorageId{0}, true);  // has no copy
    CHECK_FALSE(stats.victim(any));
    stats.opened(StorageId{4});  // again
    stats.expire(any);
    CHECK(stats.victim(any) == StorageId{1});
}

TEST_CASE("what arrives in time is sent whole, what does not stops, unless predictions are right") {
    SpeculationStats stats;
    stats.attach(1);
    CHECK(send_and_miss(stats, 64 * MiB, 64 * MiB) == 64 * MiB);
    CHECK(stats.next_bytes() == MiB);
    for (int i = 0; i < 40; ++i) { predict(stats, false); }
    for (int i = 0; i < 200; ++i) { send_and_miss(stats, 64 * MiB, 64 * MiB); }
    CHECK(send_and_miss(stats, 64 * MiB, 64 * MiB) == 64 * MiB);  // in time: they cost nothing

    // 700 KiB come in time: from now on little more than that is sent.
    for (int i = 0; i < 2000; ++i) { send_and_miss(stats, 64 * MiB, 700 * KiB); }
    std::uint64_t sent = 0;
    for (int i = 0; i < 320; ++i) { sent += send_and_miss(stats, 64 * MiB, 700 * KiB); }
    CHECK(sent >= 320 * 512 * KiB);
    CHECK(sent <= 320 * 600 * KiB);
    CHECK(stats.next_bytes() == 512 * KiB);

    // Nothing does, and nothing is right: one try in 32 misses.
    for (int i = 0; i < 2000; ++i) { send_and_miss(stats, 64 * MiB, 0); }
    sent = 0;
    for (int i = 0; i < 320; ++i) { sent += send_and_miss(stats, 64 * MiB, 0); }
    CHECK(sent == 10 * 256 * KiB);

    // The tries find out when it changes.
    for (int i = 0; i < 40; ++i) { predict(stats, true); }
    for (int i = 0; i < 2000; ++i) { send_and_miss(stats, 4 * MiB, 64 * MiB); }
    CHECK(send_and_miss(stats, 4 * MiB, 64 * MiB) >= 4 * MiB);
}

TEST_CASE("mispredicted storages leave before what was used, and stop where they make misses wait") {
    CheckedDevice device;
    constexpr std::uint32_t storages = 40;
    const Model model = uniform_model(device, storages, 2 * MiB);
    auto weights = make<Hinted>(device, model, 20 * MiB);
    const Stream stream{};
    std::uint64_t first_bytes = 0;
    std::uint64_t last_bytes = 0;
    for (std::uint32_t round = 0; round < 200; ++round) {
        auto pass = must(weights.try_begin(stream));
        const residency::Counters before = weights.statistics().total;
        // Four storages come round and stay, two are missed each time; the predicted one is never used.
        for (const std::uint32_t i : {0U, 1U, 2U, 3U, 4 + 2 * round % 16, 5 + 2 * round % 16}) {
            const auto lease = must(pass.try_acquire(weight(i), stream));
            verify(device, model, lease, weight(i), stream, microseconds{2});
            const residency::prefetch::Hint wrong{.storage = StorageId{20 + (7 * round + i) % 20}};
            must(weights.prefetcher().hint({&wrong, 1}));
        }
        must(pass.try_wait());
        must(pass.try_end());
        const std::uint64_t fetched = (weights.statistics().total - before).fetched_bytes;
        if (round < 4) { first_bytes += fetched; }
        if (round >= 196) { last_bytes += fetched; }
        if (round > 8) { CHECK((weights.statistics().total - before).demand_misses <= 2); }
    }
    must(device.synchronize(stream));
    CHECK(*model.wrong == 0);
    CHECK(last_bytes < first_bytes);
}

}  // namespace speculation_stats_test
