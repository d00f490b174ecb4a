// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/schedule_builder.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE ScheduleBuilder& ScheduleBuilder::step(std::span<const WeightId> weights, Compute compute,
                                                        std::string_view name) {
    begin(compute, name);
    for (const WeightId id : weights) { append(id); }
    return end();
}

RESIDENCY_INLINE ScheduleBuilder& ScheduleBuilder::step(std::span<const std::string_view> weights, Compute compute,
                                                        std::string_view name) {
    begin(compute, name);
    for (const std::string_view each : weights) { append(each); }
    return end();
}

RESIDENCY_INLINE ScheduleBuilder& ScheduleBuilder::live_until(WeightId weight, std::uint32_t last) {
    if (!status_) { return *this; }
    const auto refuse = [&](ErrorKind kind, const std::string& what) -> ScheduleBuilder& {
        status_ = Error{kind, "live_until: " + what};
        return *this;
    };
    if (!catalog_.contains(weight)) {
        return refuse(ErrorKind::mismatch, "the catalog of " + std::to_string(catalog_.weights().size()) +
                                               " weights has no weight " + std::to_string(index(weight)));
    }
    const auto name = [&] { return detail::quoted(catalog_.weight(weight).name); };
    if (position() == 0 || seen_in_[index(weight)] != position() - 1) {
        return refuse(ErrorKind::invalid_argument, "the last step added does not read " + name());
    }
    if (last + 1 < position()) {
        return refuse(ErrorKind::invalid_argument, name() + " of step " + std::to_string(position() - 1) +
                                                       " cannot be live until step " + std::to_string(last));
    }
    live_.push_back({weight, last});
    return *this;
}

RESIDENCY_INLINE Result<Schedule> ScheduleBuilder::try_build(Cycle cycle) const {
    if (!status_) { return status_.error(); }
    if (content_.compute_ns.empty()) {
        return Error{ErrorKind::invalid_argument, "a schedule takes at least one step"};
    }
    for (const LiveRange& range : live_) {
        if (range.last < content_.compute_ns.size()) { continue; }
        return Error{ErrorKind::invalid_argument, "live_until: " + detail::quoted(catalog_.weight(range.weight).name) +
                                                      " is live until step " + std::to_string(range.last) +
                                                      " of a schedule of " +
                                                      std::to_string(content_.compute_ns.size()) +
                                                      " steps, which are counted from 0: name a step before its end"};
    }
    Schedule::Content content = content_;
    content.cycle = cycle;
    return Schedule::make(catalog_, std::move(content));
}

RESIDENCY_INLINE void ScheduleBuilder::fail(ErrorKind kind, const std::string& what) {
    if (!status_) { return; }
    std::string where = "step " + std::to_string(position());
    if (!name_.empty()) { where += " (" + detail::quoted(name_) + ")"; }
    status_ = Error{kind, where + ": " + what};
}

RESIDENCY_INLINE void ScheduleBuilder::begin(Compute compute, std::string_view name) {
    if (!status_) { return; }
    name_ = name;
    compute_ns_ = compute ? compute->count() : -1;
    if (position() >= Schedule::max_steps) {
        fail(ErrorKind::invalid_argument, "a schedule has at most " + std::to_string(Schedule::max_steps) + " steps");
    } else if (compute && compute->count() < 0) {
        fail(ErrorKind::invalid_argument, "a negative duration");
    }
}

RESIDENCY_INLINE void ScheduleBuilder::append(WeightId id) {
    if (!status_) { return; }
    if (!catalog_.contains(id)) {
        return fail(ErrorKind::mismatch, "the catalog of " + std::to_string(catalog_.weights().size()) +
                                             " weights has no weight " + std::to_string(index(id)));
    }
    if (std::exchange(seen_in_[index(id)], position()) != position()) { content_.weights.push_back(id); }
}

RESIDENCY_INLINE void ScheduleBuilder::append(std::string_view name) {
    if (!status_) { return; }
    const auto id = catalog_.try_find(name);
    if (!id) { return fail(ErrorKind::mismatch, id.error().message()); }
    append(*id);
}

RESIDENCY_INLINE ScheduleBuilder& ScheduleBuilder::end() {
    if (!status_) { return *this; }
    std::erase_if(live_, [&](const LiveRange& range) { return range.last < position(); });
    for (const LiveRange& range : live_) { append(range.weight); }
    if (compute_ns_ < 0 && content_.weights.size() == content_.weight_offsets.back()) {
        fail(ErrorKind::invalid_argument,
             "it has no weights and no time; leave it out, or give what it reads or takes");
        return *this;
    }
    content_.weight_offsets.push_back(content_.weights.size());
    content_.names.insert(content_.names.end(), name_.begin(), name_.end());
    content_.name_offsets.push_back(content_.names.size());
    content_.compute_ns.push_back(compute_ns_);
    return *this;
}

RESIDENCY_INLINE Result<Schedule> Schedule::try_recorded(const Catalog& catalog, std::span<const StepRecord> records,
                                                         Cycle cycle) {
    ScheduleBuilder builder{catalog};
    for (const StepRecord& record : records) {
        if (record.weights.empty() && !record.compute) { continue; }
        builder.step(std::span<const WeightId>{record.weights}, record.compute, record.name);
    }
    return builder.try_build(cycle);
}

}}  // namespace residency::RESIDENCY_ABI
