// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "residency/budget/budget.hpp"
#include "residency/core/engine/session.hpp"
#include "residency/core/measure/event.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The free device memory that an automatic budget leaves to others.
inline constexpr std::uint64_t default_reserve_bytes = std::uint64_t{512} << 20;

/// What a Residency with an evictor and a prefetcher is made with.
template <class Policies, class Transport>
struct OnlineOptions {
    std::optional<Budget> budget{};         ///< set by whoever runs the model; takes precedence over stored_budget
    std::optional<Budget> stored_budget{};  ///< set by whoever made the model; without either: automatic
    std::uint64_t reserve_bytes = default_reserve_bytes;
    Schedule schedule{};      ///< without steps: the policies know nothing of the future
    bool strict = false;      ///< a divergence from the schedule is an error, not a statistic
    bool record = false;      ///< keep what each pass acquired: recorded_schedule()
    bool poison = false;      ///< overwrite evicted bytes with 0xDB, so that a stray read is seen
    EventHandler on_event{};  ///< told what happens; what it may do is said at EventHandler
    /// Time what streams wait for bytes, and find out why: Statistics::stalls, Residency::step_stalls, EventKind::stalled. Costs two events for
    /// each wait, and two for each call of copies.
    bool time_stalls = false;
    Policies policies{};  ///< the evictor, the prefetcher and the pool, with their knobs
    Transport transport{};
};

/// What a Residency that replays a plan is made with. There is no `poison`: a plan overwrites the bytes of one weight with the next.
template <class Policies, class Transport>
struct PlannedOptions {
    std::optional<Budget> budget{};         ///< set by whoever runs the model; takes precedence over stored_budget
    std::optional<Budget> stored_budget{};  ///< set by whoever made the model; without either: automatic
    std::uint64_t reserve_bytes = default_reserve_bytes;
    /// Without steps: the storages are assumed to be read in the natural order of their names, until `learn` finds the order of a pass.
    /// A step without a compute time is assumed to take its bytes over the rate at which kernels read device memory.
    Schedule schedule{};
    bool strict = false;  ///< a divergence from the schedule is an error, not a statistic
    bool record = false;  ///< keep what each pass acquired: recorded_schedule()
    /// Time the steps of the first passes that stream, and plan again if the measured times differ by more than learn_threshold (the sum of
    /// the differences over the sum of the times). Without a schedule, also take over the order of the first pass. The pass that plans
    /// again begins with a wait for the device. Nothing is learned while a captured pass is valid, so that it stays so.
    bool learn = true;
    double learn_threshold = 0.05;
    EventHandler on_event{};  ///< told what happens; what it may do is said at EventHandler
    /// Time what streams wait for bytes, and find out why: Statistics::stalls, Residency::step_stalls, EventKind::stalled. Costs two events for
    /// each wait, and two for each call of copies.
    bool time_stalls = false;
    Policies policies{};  ///< the planner and the pool, with their knobs
    Transport transport{};
};

/// The part of the options that the session itself reads.
template <class Options>
[[nodiscard]] Settings settings_of(Options& options) {
    Settings settings;
    settings.budget = {options.budget, options.stored_budget, Budget::automatic()};
    settings.reserve_bytes = options.reserve_bytes;
    settings.schedule = std::move(options.schedule);
    settings.strict = options.strict;
    settings.record = options.record;
    settings.on_event = std::move(options.on_event);
    settings.time_stalls = options.time_stalls;
    if constexpr (requires { options.poison; }) { settings.poison = options.poison; }
    if constexpr (requires { options.learn; }) {
        settings.learn = options.learn;
        settings.learn_threshold = options.learn_threshold;
    }
    return settings;
}

}}}  // namespace residency::RESIDENCY_ABI::core
