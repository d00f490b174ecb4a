// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Compares the checker with a naive one that builds the whole graph of orderings, and the bytes with the order of the calls.
#include <doctest/doctest.h>

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "residency/simulation/simulated_device.hpp"
#include "tests/support/simulated_harness.hpp"

namespace random_order_test {

using residency::SimulatedDevice;
using residency::Timing;
using residency::simulation::ReportKind;

namespace {

constexpr std::size_t most = 160;
using Before = std::bitset<most>;

struct Touch {
    std::size_t operation;
    std::uint64_t begin, end;
    bool write;
};

/// The naive checker: for each operation, the set of all operations before it.
struct Naive {
    std::vector<Before> stream, event;
    Before host;
    std::vector<Touch> touches;
    std::vector<Before> before;  // of each operation

    /// The earliest operation on these bytes that is not ordered before this one.
    std::optional<std::size_t> race(const Touch& touch) const {
        for (const Touch& earlier : touches) {
            const bool overlap = earlier.begin < touch.end && touch.begin < earlier.end;
            if (overlap && (earlier.write || touch.write) && earlier.operation != touch.operation &&
                !before[touch.operation][earlier.operation]) {
                return earlier.operation;
            }
        }
        return std::nullopt;
    }
};

struct Outcome {
    bool raced = false;
};

Outcome run(std::uint64_t seed, double carefulness) {
    std::mt19937_64 random{seed};
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const auto chance = [&](double p) { return static_cast<double>(random() >> 11U) * 0x1p-53 < p; };
    auto config = support::small_device();
    config.jitter = 8;
    config.seed = seed;
    SimulatedDevice device{config};
    constexpr std::size_t streams = 3, events = 4;
    constexpr std::uint64_t bytes = 64;
    auto* const chunk = static_cast<std::byte*>(*device.reserve(2 * 4096));
    const auto physical = *device.create_chunk(4096);
    const residency::Mapping<SimulatedDevice::Chunk> maps[] = {{chunk, physical}, {chunk + 4096, physical}};
    REQUIRE(device.map(maps, 4096));
    REQUIRE(device.fill(chunk, std::byte{1}, 4096, {}));
    REQUIRE(device.synchronize());
    std::vector<std::uint64_t> expected(bytes, 1);
    std::vector<std::uint64_t> actual(bytes, 1);  // one word for each byte of the chunk

    Naive naive;
    naive.stream.resize(streams);
    naive.event.resize(events);
    std::vector<SimulatedDevice::Stream> stream;
    std::vector<SimulatedDevice::Event> event;
    for (std::size_t i = 0; i < streams; ++i) { stream.push_back(*device.create_stream()); }
    for (std::size_t i = 0; i < events; ++i) { event.push_back(*device.create_event(Timing::off)); }

    for (std::size_t step = 0; step < 400 && naive.before.size() < most; ++step) {
        const std::size_t s = below(streams), e = below(events);
        switch (below(8)) {
            case 0:
            case 1:
                REQUIRE(device.record(event[e], stream[s]));
                naive.event[e] = naive.stream[s] | naive.host;
                break;
            case 2:
            case 3:
                REQUIRE(device.wait(stream[s], event[e]));
                naive.stream[s] |= naive.event[e];
                break;
            case 4:
                if (below(6) == 0) {
                    REQUIRE(device.synchronize(event[e]));
                    naive.host |= naive.event[e];
                } else if (below(6) == 0) {
                    REQUIRE(device.synchronize(stream[s]));
                    naive.host |= naive.stream[s];
                } else if (*device.is_complete(event[e])) {
                    naive.host |= naive.event[e];
                }
                break;
            default: {
                const std::size_t operation = naive.before.size();
                Touch read{operation, below(bytes), 0, false}, write{operation, below(bytes), 0, true};
                read.end = read.begin + 1 + below(bytes - read.begin);
                write.end = write.begin + 1 + below(std::min<std::uint64_t>(12, bytes - write.begin));
                naive.before.push_back(naive.stream[s] | naive.host);
                auto race = naive.race(read);
                if (!race) { race = naive.race(write); }
                if (race && chance(carefulness)) {  // a careful program synchronises first
                    REQUIRE(device.synchronize());
                    for (const Before& known : naive.stream) { naive.host |= known; }
                    naive.before.back() |= naive.host;
                    race.reset();
                }
                std::byte* const reads = chunk + 4096 * below(2);
                std::byte* const writes = chunk + 4096 * below(2);
                const auto effect = [operation, read, write](std::vector<std::uint64_t>& words) {
                    std::uint64_t hash = operation;
                    for (std::uint64_t i = read.begin; i < read.end; ++i) { hash = hash * 31 + words[i]; }
                    for (std::uint64_t i = write.begin; i < write.end; ++i) { words[i] = hash + i; }
                };
                REQUIRE(device.launch(stream[s], {.name = "k",
                                                  .duration = std::chrono::nanoseconds{1 + below(20000)},
                                                  .reads = {{reads + read.begin, read.end - read.begin}},
                                                  .writes = {{writes + write.begin, write.end - write.begin}},
                                                  .body = [effect, &actual] { effect(actual); }}));
                effect(expected);
                naive.stream[s] |= naive.before.back();
                naive.stream[s].set(operation);
                naive.touches.push_back(read);
                naive.touches.push_back(write);
                const auto reports = device.reports();
                REQUIRE(race.has_value() == !reports.empty());
                if (race) {
                    CHECK(reports[0].kind == ReportKind::unordered);
                    CHECK(reports[0].second.stream == "stream " + std::to_string(s + 1));
                    return {true};
                }
            }
        }
    }
    REQUIRE(device.synchronize());
    CHECK(device.report_count() == 0);
    CHECK(actual == expected);
    return {false};
}

}  // namespace

TEST_CASE("the first race is found where a naive checker finds it, and there is none where it finds none") {
    const std::uint64_t first_seed = 20260301;
    int raced = 0, clean = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 300; ++seed) {
        INFO("seed " << seed);
        const auto outcome = run(seed, seed % 3 == 0 ? 1.0 : 0.97);
        (outcome.raced ? raced : clean) += 1;
    }
    MESSAGE("seeds from " << first_seed << ": " << raced << " with a race, " << clean << " without");
    CHECK(raced > 30);
    CHECK(clean > 30);
}

}  // namespace random_order_test
