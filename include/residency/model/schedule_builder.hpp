// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Collects the steps of a schedule; every step that was added names weights of the catalog only, each once:
///
///     auto schedule = ScheduleBuilder{catalog}.step({"embed"}).step({"l0.up", "l0.down"}, 120us).try_build();
///
/// A weight that is named twice in a step counts once. The builder keeps its steps: try_build() gives the same again, and more steps may
/// follow. It keeps the first error too: later calls do nothing, and try_build() returns it.
class ScheduleBuilder {
public:
    using Compute = std::optional<std::chrono::nanoseconds>;  ///< duration of a step without its copies; none: unknown

    /// Builds a schedule of the weights of `catalog`.
    explicit ScheduleBuilder(Catalog catalog)
        : catalog_{std::move(catalog)}, seen_in_(catalog_.weights().size(), UINT32_MAX) {}

    /// Adds the next step, by ids or by names. `compute`: its estimated duration on the device, without the copies. A step without
    /// weights needs one: it says how long copies have. Error invalid_argument: neither weights nor a duration.
    ScheduleBuilder& step(std::span<const WeightId> weights, Compute compute = std::nullopt,
                          std::string_view name = {});
    /// As above, with a list, or by name.
    /// @{
    ScheduleBuilder& step(std::initializer_list<WeightId> weights, Compute compute = std::nullopt,
                          std::string_view name = {}) {
        return step(std::span<const WeightId>{weights.begin(), weights.size()}, compute, name);
    }
    ScheduleBuilder& step(std::span<const std::string_view> weights, Compute compute = std::nullopt,
                          std::string_view name = {});
    ScheduleBuilder& step(std::initializer_list<std::string_view> weights, Compute compute = std::nullopt,
                          std::string_view name = {}) {
        return step(std::span<const std::string_view>{weights.begin(), weights.size()}, compute, name);
    }
    /// @}

    /// Keeps a weight of the last step on the device until the end of step `last`: each step from here to `last` has it, whether it names
    /// it or not. A lease on it that is held that long is in the way of no copy of a plan. Errors: mismatch where the catalog lacks the weight; invalid_argument
    /// where the last step does not read it, or `last` lies before it or, in try_build(), behind the end.
    ScheduleBuilder& live_until(WeightId weight, std::uint32_t last);

    /// Success so far, or the first error.
    [[nodiscard]] const Status& status() const noexcept { return status_; }

    /// The schedule, or the first error. Error invalid_argument: no steps.
    [[nodiscard]] Result<Schedule> try_build(Cycle cycle = Cycle::cyclic) const;
#if RESIDENCY_EXCEPTIONS
    /// As try_build(), but throws Exception.
    [[nodiscard]] Schedule build(Cycle cycle = Cycle::cyclic) const { return unwrap(try_build(cycle)); }
#endif

private:
    /// The number of the step that is being added.
    [[nodiscard]] std::uint32_t position() const noexcept {
        return static_cast<std::uint32_t>(content_.compute_ns.size());
    }
    /// A weight that every step up to `last` has.
    struct LiveRange {
        WeightId weight;
        std::uint32_t last;  // position of a step
    };

    void fail(ErrorKind kind, const std::string& what);
    void begin(Compute compute, std::string_view name);
    void append(WeightId id);
    void append(std::string_view name);
    ScheduleBuilder& end();

    Catalog catalog_;
    std::vector<LiveRange> live_;         // that go on
    std::vector<std::uint32_t> seen_in_;  // by weight: position of the last step that named it
    Schedule::Content content_;           // of the steps so far
    std::string_view name_;               // of the step that is being added
    std::int64_t compute_ns_ = -1;        // of the step that is being added; -1: unknown
    Status status_;                       // success, or the first error
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/schedule_builder.ipp"
#endif
