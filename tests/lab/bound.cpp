// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The bounds that the laboratory compares with: no policy goes below them, and they can be reached.

#include "benchmarks/lab/bound.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/lab/on_slab.hpp"

namespace bound_test {

using namespace residency;

namespace {

lab::Workload random_workload(std::uint32_t seed) {
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
    lab::Workload work;
    work.is_known = seed % 2 == 0;
    const std::uint32_t storages = 4 + below(12);
    for (std::uint32_t i = 0; i < storages; ++i) {
        const std::uint64_t bytes = work.is_known ? (1 + below(16)) * std::uint64_t{100000} : 1000000;
        work.add("w" + std::to_string(i), bytes, i * 4 / storages);
    }
    const std::uint32_t passes = work.is_known ? 1 : 9;
    for (std::uint32_t pass = 0; pass < passes; ++pass) {
        for (std::uint32_t i = 0; i < storages; ++i) {
            const std::uint32_t own = work.is_known && below(5) != 0 ? i : below(storages);
            // The card below computes a step in flops / 1e12 + 2 µs: up to the time of two copies.
            work.steps.push_back({{StorageId{own}}, 1e6 * below(40)});
        }
        work.pass_ends.push_back(work.steps.size());
    }
    return work;
}

}  // namespace

TEST_CASE("no policy is faster than the bound") {
    lab::Card card{"test", 1e15, 1e12, links::pcie5};
    card.link.call_latency = {};
    std::uint32_t ran = 0;
    for (std::uint32_t seed = 1; seed <= 24; ++seed) {
        const lab::Workload work = random_workload(seed);
        std::uint64_t largest = 0;
        for (const std::uint64_t bytes : work.bytes) { largest = std::max(largest, bytes); }
        const std::uint64_t budget = (std::uint64_t{4} << 20) + seed % 5 * (std::uint64_t{2} << 20);
        const double bound = lab::bound_of(work, card, budget);
        const lab::RunJob job{.work = work, .card = card, .budget_bytes = budget, .passes = 12};
        const std::vector<std::pair<std::string, lab::MakeEvictor>> evictors{
            {"lru", [](const lab::Setting&) { return lab::AnyEvictor{evict::Lru{}}; }},
            {"lfu", [](const lab::Setting&) { return lab::AnyEvictor{evict::Lfu{}}; }},
            {"s3fifo", [](const lab::Setting&) { return lab::AnyEvictor{evict::S3Fifo{}}; }},
            {"expecteduse", [](const lab::Setting&) { return lab::AnyEvictor{evict::ExpectedUse{}}; }},
            {"staticsplit", [](const lab::Setting&) { return lab::AnyEvictor{evict::StaticSplit{}}; }},
            {"scheduled", [](const lab::Setting&) { return lab::AnyEvictor{evict::Scheduled{}}; }},
            {"belady", [](const lab::Setting& setting) {
                 return lab::AnyEvictor{evict::Belady{{.recorded = *setting.future}}};
             }}};
        for (const auto& [name, make] : evictors) {
            CAPTURE(seed);
            CAPTURE(name);
            const auto counts = run_on_slab(job, make, [&] {
                return seed % 3 == 0 ? lab::AnyPrefetcher{prefetch::Lookahead<3>{}}
                                     : lab::AnyPrefetcher{prefetch::Scheduled{}};
            });
            if (!counts) {
                CHECK(counts.error().kind() == ErrorKind::budget);
                continue;
            }
            ++ran;
            // What is on the device when the measured passes begin may be more than at their end.
            const double passes = work.is_known ? 12 : 6;
            const double slack =
                work.is_known ? static_cast<double>(budget) / card.link.to_device_bytes_per_second / passes : 0;
            CHECK(counts->pass_seconds >= bound - slack);
            CHECK(counts->pass_seconds >= counts->compute_seconds);
            CHECK(counts->held_bytes <= budget);
        }
    }
    CHECK(ran > 50);
}

}  // namespace bound_test
