// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/packed/unpack_layout.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// What a launch of an unpacker takes: a latency, and its raw bytes over a rate.
struct UnpackRate {
    double bytes_per_second = 1.3e12;  ///< of raw bytes
    double launch_seconds = 3e-6;      ///< in addition
};

/// Checks the rate that a person gives as `name`, as plan::check_given() does a link.
[[nodiscard]] RESIDENCY_INLINE Status check_given(const UnpackRate& rate, const std::string& name);

/// What unpacking asks of a model, as plain data. Storages have the numbers of the problem.
struct UnpackProblem {
    /// The storages with the bytes in which they travel; the steps with the times of their kernels alone. Its budget is not read.
    plan::Problem travels;
    std::vector<std::uint64_t> unpacked_bytes;  ///< by storage; 0: kernels read it as it travels
    /// Kernels write some storage: the image keeps the order that it has, or gets the one of the smallest floor, as PlanFactory makes it.
    bool keeps_image = false;
    std::vector<bool> must_stay;  ///< by storage: it has to be unpacked once and kept
    /// The storages that each step reads by itself: step i reads step_storages[step_offsets[i]] up to, not including,
    /// step_storages[step_offsets[i + 1]].
    std::vector<std::uint32_t> step_offsets;
    std::vector<std::uint32_t> step_storages;   ///< numbers of storages
    std::uint32_t leases_at_once = 1;           ///< consecutive steps whose unpacked weights are there together
    std::uint32_t storages_at_once = 0;         ///< see plan::chunk_floor
    double unpacked_bytes_per_second = 1.3e12;  ///< the rate of unpacking
    double launch_seconds = 3e-6;               ///< in addition, of each step that unpacks: the latency of a launch
    std::uint64_t table_bytes = 0;              ///< that the memory holds beside the weights
    std::uint64_t granule_bytes = 1;            ///< of which the memory is a multiple

    /// The storages of a step.
    [[nodiscard]] std::span<const std::uint32_t> reads(std::uint32_t step) const noexcept {
        return {step_storages.data() + step_offsets[step], step_storages.data() + step_offsets[step + 1]};
    }
    /// How many there are.
    [[nodiscard]] std::uint32_t steps() const noexcept {
        return step_offsets.empty() ? 0 : static_cast<std::uint32_t>(step_offsets.size() - 1);
    }
    friend bool operator==(const UnpackProblem&, const UnpackProblem&) = default;  ///< compares all members
};

/// A step of each pass unpacks a storage, in front of its kernels; it stays unpacked until the step live_until has ended.
struct Unpacking {
    std::uint32_t storage = 0, step = 0, live_until = 0;
    friend bool operator==(const Unpacking&, const Unpacking&) = default;  ///< compares all members
};

/// A layout, and what is left to plan beside it.
struct UnpackChoice {
    UnpackLayout layout;
    plan::Problem rest;                 ///< without the bytes of what stays, with the time of unpacking, its budget set
    std::uint64_t floor_bytes = 0;      ///< of the rest
    double seconds = 0;                 ///< of a pass, as a quick plan predicts
    std::vector<Unpacking> unpackings;  ///< of a pass, in the order of its steps
};

/// The layout where these storages stay. What no step reads has a place where it fits among the shared ones.
[[nodiscard]] RESIDENCY_INLINE UnpackLayout lay_out(const UnpackProblem& problem, std::vector<bool> stays);

/// The smallest budget for which there surely is a choice. Errors: of a malformed problem.
[[nodiscard]] RESIDENCY_INLINE Result<std::uint64_t> unpack_floor(const UnpackProblem& problem);

/// The smallest budget with which nothing travels and nothing is unpacked in a pass. Errors: of a malformed problem.
[[nodiscard]] RESIDENCY_INLINE Result<std::uint64_t> unpack_everything(const UnpackProblem& problem);

/// Chooses, for a budget, what stays unpacked. What stays costs its raw bytes and no time; what does not costs its packed bytes where it is
/// resident, or the link, and the time to unpack it. Takes tens of milliseconds for hundreds of steps. Error budget: no layout fits, never from
/// the floor on.
[[nodiscard]] RESIDENCY_INLINE Result<UnpackChoice> choose_unpacked(const UnpackProblem& problem,
                                                                    std::uint64_t budget_bytes,
                                                                    const plan::Options& options);

/// The layout in which exactly those storages stay unpacked. `stays`: by storage. Makes no plan. Error budget: below the floor of that
/// layout.
[[nodiscard]] RESIDENCY_INLINE Result<UnpackChoice> keep_unpacked(const UnpackProblem& problem, std::vector<bool> stays,
                                                                  std::uint64_t budget_bytes);

}}}  // namespace residency::RESIDENCY_ABI::packed

#if RESIDENCY_HEADER_ONLY
#include "residency/packed/impl/layout.ipp"
#endif
