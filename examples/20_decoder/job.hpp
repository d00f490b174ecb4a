// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "pass_times.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"

namespace decoder {

/// A first token from nothing but a file.
struct ColdJob {
    std::string folder;
    std::vector<std::uint64_t> prompt;
    std::uint32_t positions = 0;
    residency::Budget budget;
    bool load_first = false;  ///< begin when everything is loaded
    bool packed = false;      ///< read the packed file first, if there is one
};
struct ColdStart {
    Checkpoint model;  ///< in pinned memory, which ends before the device
    std::uint64_t token = 0;
    std::vector<float> logits;
    double token_seconds = 0;  ///< from opening the file to the token
    double load_seconds = 0;   ///< to the end of loading and pinning
};

/// What to do, whatever the device.
struct Job {
    std::string folder;  ///< of the model
    std::vector<std::uint64_t> prompt;
    std::uint32_t prompt_passes = 1;  ///< how often the prompt is read, to measure that
    std::uint32_t new_tokens = 16;
    std::vector<residency::Budget> budgets;
    bool with_resident = true;               ///< run everything resident too, to compare with
    std::uint32_t kept_logits = UINT32_MAX;  ///< of so many passes, which takes time
    std::uint32_t link_every = 0;            ///< passes, after which the link of a real device is measured; 0: never
    bool graphs = true;
    bool also_eager = false;  ///< run each budget without graphs too
    bool load_first = false;  ///< the first token of all comes while the weights load otherwise
    bool packed = false;      ///< weights are packed for the budgets; the resident run has them raw
    bool direct = false;  ///< products of few tokens by the kernels that read packed weights, whatever the weights are
    std::uint32_t gpus = 1;     ///< that have a part of the model each
    bool without_sums = false;  ///< run each budget without what GPUs tell each other too, to see what it takes
    std::string timeline;       ///< the file to write
    std::string report;         ///< the same; empty: none
};

/// Passes of one kind.
struct Timing {
    std::chrono::nanoseconds time{};   ///< the median
    std::size_t passes = 0;            ///< that it is the median of
    double link_bytes = 0;             ///< that bare copies would have moved in that time, if the link was measured
    std::chrono::nanoseconds bound{};  ///< that no plan of copies beats
    std::chrono::nanoseconds latency_floor{};  ///< that, with the latency of copies counted
    std::chrono::nanoseconds predicted{};      ///< by the plan

    Timing() = default;
    template <class Engine>
    Timing(const Engine& engine, const PassTimes& times)
        : time{times.median_time()}, passes{times.passes()}, link_bytes{times.median_link_bytes()} {
        bound = engine.statistics().bound.value_or(bound);
        latency_floor = std::chrono::nanoseconds{std::int64_t(engine.latency_floor_seconds() * 1e9)};
        predicted = std::chrono::nanoseconds{std::int64_t(engine.predicted_seconds() * 1e9)};
    }
    [[nodiscard]] double over_floor() const { return double(time.count()) / double(latency_floor.count()); }
};

/// What one budget came to.
struct Outcome {
    std::string asked;
    std::uint32_t gpus = 1;            ///< that ran it; their budgets are one each. What follows is of the first
    bool is_comparable = true;         ///< nothing was left out
    bool gpus_agree = true;            ///< on every token and every bit of the logits
    residency::ResolvedBudget budget;  ///< of weights and cache together
    residency::Statistics statistics;  ///< of the weights
    std::uint64_t cache_bytes = 0, peak_bytes = 0, budget_changes = 0;
    bool is_within_budget = true;
    Timing prompt, step;
    std::uint32_t graph_steps = 0;
    std::vector<std::uint64_t> tokens;
    std::vector<std::vector<float>> logits;  ///< after each pass, of the last position
    std::vector<double> link_rates;          ///< of a real device, in bytes a second: planned with, then each measured
};

/// What packing came to.
struct PackedSizes {
    std::uint64_t raw_bytes = 0;     ///< of what was packed
    std::uint64_t packed_bytes = 0;  ///< that it takes
    std::size_t kept_raw = 0;        ///< weights that were not
    double seconds = 0;              ///< to pack, or to load a packed file
    bool is_file = false;            ///< it was packed ahead of time
};

struct Results {
    std::string device;
    ColdStart cold;
    std::optional<PackedSizes> packed;
    std::uint64_t workspace_bytes = 0;  ///< of each GPU
    double split_seconds = 0;           ///< to read the model as several GPUs have it
    std::uint64_t share_bytes = 0;      ///< of it, for each of them
    std::vector<Outcome> outcomes;      ///< the resident one first, where there is one
    std::vector<std::string> reports;   ///< of the simulated device's checker
    std::string timeline;               ///< what is in the file
};

/// The same job on either device. Throws residency::Exception.
[[nodiscard]] Results run_simulated(const Job& job, const Checkpoint& model);
[[nodiscard]] Results run_cuda(const Job& job, const Checkpoint& model);
/// The same on several GPUs, a part of the model each.
[[nodiscard]] Results run_split_simulated(const Job& job, const Checkpoint& model);
[[nodiscard]] Results run_split_cuda(const Job& job, const Checkpoint& model);

}  // namespace decoder
