// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The evictors against naive references on random traces.

#include "references.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmarks/lab/trace/replay.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/model/use_order.hpp"

namespace references_test {

using namespace residency;

namespace {

struct RandomTrace {
    std::vector<std::uint64_t> bytes;
    std::vector<StorageId> accesses;
    std::vector<reference::Request> requests;
    UseOrder order;
    std::uint64_t capacity = 0;

    explicit RandomTrace(std::uint32_t seed) {
        std::mt19937 random{seed};
        const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
        const std::uint32_t storages = 2 + below(80);
        const std::uint32_t kinds = 1 + below(3);
        std::uint64_t total = 0;
        for (std::uint32_t i = 0; i < storages; ++i) {
            bytes.push_back(kinds == 1 ? 100 : kinds == 2 ? 1 + below(1000) : 1 + below(10) * below(10) * below(200));
            total += bytes.back();
        }
        capacity = 1 + total * (2 + below(98)) / 100;
        const double skew = 0.5 + below(30) / 10.0;
        std::uint32_t at = 0;
        for (std::uint32_t i = 0; i < 1500; ++i) {
            const double u = (below(1u << 20) + 1) / static_cast<double>(1u << 20);
            switch (below(4)) {
                case 0: at = (at + 1) % storages; break;  // a scan
                case 1: at = below(storages); break;
                default: at = static_cast<std::uint32_t>((storages - 1) * std::pow(u, skew));
            }
            accesses.push_back(StorageId{at});
            requests.push_back({at, bytes[at]});
        }
        std::vector<std::uint64_t> offsets(accesses.size() + 1);
        for (std::size_t i = 0; i < offsets.size(); ++i) { offsets[i] = i; }
        order = *UseOrder::try_from(offsets, accesses, storages, Cycle::one_shot);
    }
    template <class E>
    reference::Counts run(E evictor) const {
        const auto counts = lab::trace::replay_cache(accesses, {bytes, capacity, &order}, evictor);
        REQUIRE(counts);
        CHECK(counts->requests == accesses.size());
        return {counts->misses, counts->missed_bytes};
    }
};

constexpr std::uint32_t traces = 60;

template <class E, class Reference>
void check_against(Reference reference) {
    for (std::uint32_t seed = 1; seed <= traces; ++seed) {
        CAPTURE(seed);
        const RandomTrace trace{seed};
        const auto expected = reference(trace.requests, trace.capacity);
        const auto found = trace.run(E{});
        CHECK(found.misses == expected.misses);
        CHECK(found.missed_bytes == expected.missed_bytes);
    }
}

}  // namespace

TEST_CASE("LRU is its reference") { check_against<evict::Lru>(reference::lru); }
TEST_CASE("FIFO is its reference") { check_against<evict::Fifo>(reference::fifo); }
TEST_CASE("LFU is its reference") { check_against<evict::Lfu>(reference::lfu); }
TEST_CASE("SIEVE is its reference") { check_against<evict::Sieve>(reference::sieve); }
TEST_CASE("S3-FIFO is its reference") { check_against<evict::S3Fifo>(reference::s3_fifo); }
TEST_CASE("GDSF is its reference") { check_against<evict::Gdsf>(reference::gdsf); }
TEST_CASE("Belady is its reference") { check_against<evict::Belady>(reference::belady); }
TEST_CASE("Scheduled with the trace as its schedule is Belady") { check_against<evict::Scheduled>(reference::belady); }

TEST_CASE("with equal sizes nothing misses less than Belady") {
    for (std::uint32_t seed = 1; seed <= traces; ++seed) {
        CAPTURE(seed);
        RandomTrace trace{seed};
        for (auto& each : trace.bytes) { each = 100; }
        const std::uint64_t least = trace.run(evict::Belady{}).misses;
        for (const auto& other : {trace.run(evict::Lru{}), trace.run(evict::Fifo{}), trace.run(evict::Lfu{}),
                                  trace.run(evict::Sieve{}), trace.run(evict::S3Fifo{}), trace.run(evict::Gdsf{})}) {
            CHECK(other.misses >= least);
        }
    }
}

}  // namespace references_test
