// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The way from the host to the device. Calls occupy it one after the other; one of b bytes takes latency + b / rate.
struct Link {
    double bytes_per_second = 55.5e9;      ///< to the device
    double latency_seconds = 2.4e-6;       ///< per call: copies that start together after one wait
    double node_latency_seconds = 2.7e-6;  ///< per copy node of a captured graph, which has no calls of several copies

    friend bool operator==(const Link&, const Link&) = default;  ///< compares all members
};

/// The rate at which kernels read device memory, where it is not measured (H200: 4.2 TB/s).
inline constexpr double default_memory_bytes_per_second = 4.2e12;

/// What memory holds of a chunk when a plan replaces another one.
enum class Presence : std::uint8_t {
    absent,
    streamed,  ///< it is there; the plan before streams it
    resident,  ///< it is there; the plan before keeps it
};

/// Everything that a planner needs to know: plain data, no device, no catalog. Storages are numbers 0 … storage_bytes.size() − 1.
struct Problem {
    Link link;                                 ///< the way to the device
    std::uint64_t budget_bytes = 0;            ///< device bytes; 0: the floor
    std::uint64_t chunk_bytes = 2ULL << 20;    ///< a power of two
    bool cyclic = true;                        ///< true: the pass repeats for ever; false: it runs once
    std::vector<std::uint64_t> storage_bytes;  ///< one for each storage; 0 is allowed
    /// Steps + 1 values, ascending: step i reads step_storages[step_offsets[i]] up to, not including, step_offsets[i + 1].
    std::vector<std::uint32_t> step_offsets;
    std::vector<std::uint32_t> step_storages;  ///< numbers of storages
    std::vector<double> compute_seconds;  ///< one for each step; empty: unknown, the plan is made from the bytes alone
    std::vector<std::uint32_t> kept;      ///< storages that must stay resident, ascending
    std::vector<std::uint64_t>
        image_offsets;  ///< bytes, one for each storage, without overlaps; empty: the planner lays out the image
    std::uint64_t alignment_bytes = 256;  ///< of each storage in an image that the planner lays out; a power of two

    /// How many there are.
    [[nodiscard]] std::uint32_t storages() const noexcept { return static_cast<std::uint32_t>(storage_bytes.size()); }
    /// How many there are.
    [[nodiscard]] std::uint32_t steps() const noexcept {
        return step_offsets.empty() ? 0 : static_cast<std::uint32_t>(step_offsets.size() - 1);
    }
    /// The storages of a step, in the caller's order.
    [[nodiscard]] std::span<const std::uint32_t> reads(std::uint32_t step) const noexcept {
        return {step_storages.data() + step_offsets[step], step_storages.data() + step_offsets[step + 1]};
    }
    /// Seconds of that step; 0 where they are unknown.
    [[nodiscard]] double compute(std::uint32_t step) const noexcept {
        return compute_seconds.empty() ? 0.0 : compute_seconds[step];
    }
    /// Appends a step.
    void add_step(std::span<const std::uint32_t> storages) {
        if (step_offsets.empty()) { step_offsets.push_back(0); }
        step_storages.insert(step_storages.end(), storages.begin(), storages.end());
        step_offsets.push_back(static_cast<std::uint32_t>(step_storages.size()));
    }
    friend bool operator==(const Problem&, const Problem&) = default;  ///< compares all members
};

namespace detail {
/// Error: `value`, which a person gives as `name`, is none of `least` … `most`. `range`: these in words, with the unit and an example.
[[nodiscard]] RESIDENCY_INLINE Status check_plausible(const std::string& name, const double& value, double least,
                                                      double most, const char* range);
}  // namespace detail

/// Checks the link that a person gives as `name`: numbers that no machine has are of another unit. A problem may have any link.
[[nodiscard]] RESIDENCY_INLINE Status check_given(const Link& link, const std::string& name);
/// Checks the rate of device memory that a person gives as `name`, like the link.
[[nodiscard]] RESIDENCY_INLINE Status check_given_memory_rate(const double& bytes_per_second, const std::string& name);

/// Checks that a problem is well formed. The error names what is not.
RESIDENCY_INLINE Status validate(const Problem& problem);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/problem.ipp"
#endif
