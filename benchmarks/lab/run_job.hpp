// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "benchmarks/lab/any_policy.hpp"
#include "benchmarks/lab/packing.hpp"
#include "benchmarks/lab/workload.hpp"
#include "residency/error.hpp"
#include "residency/model/use_order.hpp"
#include "residency/timeline/perfetto.hpp"

namespace lab {

/// What a policy may be told when it is made.
struct Setting {
    std::span<const std::uint32_t> layers;  ///< of each storage; may be empty
    const residency::UseOrder* future;      ///< the whole run by moments, for oracles
};

class Gpu;

/// One composition on one workload.
struct RunJob {
    const Workload& work;
    const Card& card;
    std::uint64_t budget_bytes = 0;
    std::uint32_t passes = 4;  ///< measured, of a known order; after as many
    double recall = 1;         ///< of a router's guess a layer ahead, for those that take hints; 0: no hints
    residency::PerfettoTrace* timeline = nullptr;  ///< gets the last pass
    Gpu* gpu = nullptr;                            ///< where it runs; null: on the simulated device
    Packing packing{};                             ///< of those that pack, on the simulated device
};

/// What was measured, of one pass in the steady state.
struct RunCounts {
    double pass_seconds = 0;
    double compute_seconds = 0;
    double fetched_bytes = 0;
    double requested_bytes = 0;      ///< of streamed storages, step by step
    double missed_bytes = 0;         ///< brought on demand
    double ahead_bytes = 0;          ///< used, and brought ahead
    std::uint64_t budget_bytes = 0;  ///< the cap in force
    bool is_streaming = true;        ///< false: the budget holds everything
    std::uint64_t held_bytes = 0;    ///< device memory, at the end
    std::uint64_t host_waits = 0;    ///< of the host for the device, in all measured passes
    /// Seconds of a pass that no choice of packed weights with any plan of copies beats; none: they are raw.
    std::optional<double> packed_bound_seconds{};
};

/// Of a plan, the core counts accesses of whole storages, of which it brings parts: what was there is what was not moved.
inline void count_moved(RunCounts& counts) {
    const double moved = std::min(counts.fetched_bytes, counts.requested_bytes);
    counts.missed_bytes = std::min(counts.missed_bytes, moved);
    counts.ahead_bytes = moved - counts.missed_bytes;
}

using MakeEvictor = std::function<AnyEvictor(const Setting&)>;

/// Through the real core on the simulated device, or with real copies on a GPU: decisions as accesses come, in a stream-ordered
/// pool.
residency::Result<RunCounts> run_online(const RunJob& job, const MakeEvictor& evictor,
                                        std::function<AnyPrefetcher()> prefetcher);
/// The same with a router's guesses a layer ahead, in equal slots.
residency::Result<RunCounts> run_hinted(const RunJob& job, const MakeEvictor& evictor);
/// Moves planned beforehand, in one address range.
residency::Result<RunCounts> run_planned(const RunJob& job);
/// The same of packed weights: on a GPU generated ones, packed by the library's codec.
residency::Result<RunCounts> run_packed(const RunJob& job);

}  // namespace lab
