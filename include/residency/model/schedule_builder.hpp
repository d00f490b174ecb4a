// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
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
#include "residency/model/quoted.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Declares a schedule step by step:
///
///     auto schedule = ScheduleBuilder{catalog}.step({"embed"}).step({"l0.up", "l0.down"}, 120us).try_build();
///
/// A weight named twice in a step counts once. The first error is kept: later calls do nothing, and try_build returns
/// it.
class ScheduleBuilder {
public:
    using Compute = std::optional<std::chrono::nanoseconds>;

    explicit ScheduleBuilder(Catalog catalog)
        : catalog_{std::move(catalog)}, seen_in_(catalog_.weights().size(), UINT32_MAX) {}

    /// The next step, by ids or by names; `compute`: its estimated duration on the device.
    ScheduleBuilder& step(std::span<const WeightId> weights, Compute compute = std::nullopt,
                          std::string_view name = {}) {
        begin(compute, name);
        for (const WeightId id : weights) { append(id); }
        return end();
    }
    ScheduleBuilder& step(std::initializer_list<WeightId> weights, Compute compute = std::nullopt,
                          std::string_view name = {}) {
        return step(std::span<const WeightId>{weights.begin(), weights.size()}, compute, name);
    }
    ScheduleBuilder& step(std::span<const std::string_view> weights, Compute compute = std::nullopt,
                          std::string_view name = {}) {
        begin(compute, name);
        for (const std::string_view each : weights) { append(each); }
        return end();
    }
    ScheduleBuilder& step(std::initializer_list<std::string_view> weights, Compute compute = std::nullopt,
                          std::string_view name = {}) {
        return step(std::span<const std::string_view>{weights.begin(), weights.size()}, compute, name);
    }

    /// Success so far, or the first error.
    [[nodiscard]] const Status& status() const noexcept { return status_; }

    /// The schedule, or the first error; one without steps is an error. The builder is left without steps.
    [[nodiscard]] Result<Schedule> try_build(Cycle cycle = Cycle::cyclic) {
        if (status_ && content_.compute_ns.empty()) {
            status_ = Error{ErrorKind::invalid_argument, "a schedule takes at least one step"};
        }
        Schedule::Content content = std::exchange(content_, {});
        const Status status = std::exchange(status_, {});
        seen_in_.assign(seen_in_.size(), UINT32_MAX);
        if (!status) { return status.error(); }
        content.cycle = cycle;
        return Schedule::make(catalog_, std::move(content));
    }
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] Schedule build(Cycle cycle = Cycle::cyclic) { return unwrap(try_build(cycle)); }
#endif

private:
    [[nodiscard]] std::uint32_t position() const noexcept {
        return static_cast<std::uint32_t>(content_.compute_ns.size());
    }

    void fail(ErrorKind kind, const std::string& what) {
        if (!status_) { return; }
        std::string where = "step " + std::to_string(position());
        if (!name_.empty()) { where += " (" + detail::quoted(name_) + ")"; }
        status_ = Error{kind, where + ": " + what};
    }
    void begin(Compute compute, std::string_view name) {
        if (!status_) { return; }
        name_ = name;
        compute_ns_ = compute ? compute->count() : -1;
        if (position() >= Schedule::max_steps) {
            fail(ErrorKind::invalid_argument,
                 "a schedule has at most " + std::to_string(Schedule::max_steps) + " steps");
        } else if (compute && compute->count() < 0) {
            fail(ErrorKind::invalid_argument, "a negative duration");
        }
    }
    void append(WeightId id) {
        if (!status_) { return; }
        if (!catalog_.contains(id)) {
            return fail(ErrorKind::mismatch, "the catalog of " + std::to_string(catalog_.weights().size()) +
                                                 " weights has no weight " + std::to_string(index(id)));
        }
        if (std::exchange(seen_in_[index(id)], position()) != position()) { content_.weights.push_back(id); }
    }
    void append(std::string_view name) {
        if (!status_) { return; }
        const auto id = catalog_.try_find(name);
        if (!id) { return fail(ErrorKind::mismatch, id.error().message()); }
        append(*id);
    }
    ScheduleBuilder& end() {
        if (!status_) { return *this; }
        content_.weight_offsets.push_back(content_.weights.size());
        content_.names.insert(content_.names.end(), name_.begin(), name_.end());
        content_.name_offsets.push_back(content_.names.size());
        content_.compute_ns.push_back(compute_ns_);
        return *this;
    }

    Catalog catalog_;
    std::vector<std::uint32_t> seen_in_;  // for each weight, the last step that named it
    Schedule::Content content_;
    std::string_view name_;  // of the step that is being added
    std::int64_t compute_ns_ = -1;
    Status status_;
};

inline Result<Schedule> Schedule::try_recorded(const Catalog& catalog, std::span<const StepRecord> records,
                                               Cycle cycle) {
    ScheduleBuilder builder{catalog};
    for (const StepRecord& record : records) {
        builder.step(std::span<const WeightId>{record.weights}, record.compute, record.name);
    }
    return builder.try_build(cycle);
}

}}  // namespace residency::RESIDENCY_ABI
