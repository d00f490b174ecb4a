// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "residency/budget/budget.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<Budget> Budget::try_parse(std::string_view text) {
    if (text == "auto") { return automatic(); }
    const auto refused = [&](std::size_t at, const std::string& found, const std::string& expected) {
        return Error{ErrorKind::malformed,
                     "budget " + detail::quoted(text) + " at byte " + std::to_string(at) + ": found " + found +
                         ", expected " + expected,
                     FileLocation{"budget " + detail::quoted(text), at, found, expected}};
    };
    std::size_t at = 0;
    std::uint64_t number = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
        const auto tens = detail::checked_multiply(number, 10);
        const auto sum = tens ? detail::checked_add(*tens, static_cast<std::uint64_t>(text[at] - '0')) : tens;
        if (!sum) { return refused(0, "a number beyond 64 bits", "at most " + std::to_string(UINT64_MAX)); }
        number = *sum;
    }
    const std::string_view rest = text.substr(at);
    const std::string found = rest.empty() ? "the end" : detail::quoted(rest);
    if (at == 0) {
        return refused(0, found,
                       text.starts_with('-') ? "digits, or auto (no budget is negative)"
                                             : "digits, or auto: such as 8589934592, 8GiB, 60%, 60%free, auto");
    }
    if (rest.empty()) { return bytes(number); }
    if (rest == "%") { return percent_of_weights(number); }
    if (rest == "%free") {
        if (number > 100) { return refused(0, std::to_string(number) + "%free", "at most 100%free"); }
        return percent_of_free(number);
    }
    for (const Unit& unit : units) {
        if (rest != unit.name) { continue; }
        const auto product = detail::checked_multiply(number, unit.bytes);
        if (!product) {
            return refused(0, "a number of bytes beyond 64 bits", "at most " + std::to_string(UINT64_MAX));
        }
        return bytes(*product);
    }
    return refused(at, found,
                   "the end, %, %free, or one of kB MB GB TB KiB MiB GiB TiB, without spaces and in this case");
}

RESIDENCY_INLINE std::string Budget::text() const {
    switch (kind_) {
        case BudgetKind::bytes: break;
        case BudgetKind::percent_of_weights: return std::to_string(amount_) + "%";
        case BudgetKind::percent_of_free: return std::to_string(amount_) + "%free";
        case BudgetKind::automatic: return "auto";
    }
    for (const Unit& unit : units) {
        if (amount_ != 0 && amount_ % unit.bytes == 0) {
            return std::to_string(amount_ / unit.bytes) + std::string{unit.name};
        }
    }
    return std::to_string(amount_);
}

RESIDENCY_INLINE Result<ResolvedBudget> Budget::try_resolve(const BudgetContext& context, BudgetOrigin origin) const {
    RESIDENCY_ASSERT(context.granularity_bytes != 0, "give a granularity of at least 1 byte");
    const auto round_up = [&](std::uint64_t value) {
        const std::uint64_t over = value % context.granularity_bytes;
        return over == 0 ? value : detail::saturating_add(value, context.granularity_bytes - over);
    };
    const auto in_bytes = [](std::uint64_t value) { return std::to_string(value) + " bytes"; };
    const std::uint64_t weights = detail::saturating_add(context.streamed_bytes, context.resident_bytes);

    ResolvedBudget resolved;
    resolved.origin = origin;
    resolved.floor_bytes = round_up(context.floor_bytes);
    resolved.total_bytes =
        (std::max)(round_up(context.everything_bytes != 0 ? context.everything_bytes : weights), resolved.floor_bytes);
    const std::string who = "the " + std::string{name_of(origin)} + " budget " + text();
    const bool may_fall_back = kind_ == BudgetKind::automatic || origin == BudgetOrigin::automatic;

    const bool needs_free = kind_ == BudgetKind::automatic || kind_ == BudgetKind::percent_of_free;
    if (needs_free && !context.free_device_bytes) {
        return Error{ErrorKind::budget,
                     who + " is a part of the free device memory, and there is no device; give bytes (at least " +
                         std::to_string(resolved.floor_bytes) + ") or a percentage of the weights",
                     BudgetNumbers{0, 0, context.resident_bytes, resolved.floor_bytes, context.floor_step}};
    }
    switch (kind_) {
        case BudgetKind::bytes: resolved.asked_bytes = amount_; break;
        case BudgetKind::percent_of_weights:
            resolved.asked_bytes = share(weights, amount_);
            // All of the weights, with what they are rounded up to.
            if (amount_ >= 100) { resolved.asked_bytes = (std::max)(resolved.asked_bytes, resolved.total_bytes); }
            break;
        case BudgetKind::percent_of_free: resolved.asked_bytes = share(*context.free_device_bytes, amount_); break;
        case BudgetKind::automatic: {
            const std::uint64_t free = *context.free_device_bytes;
            resolved.asked_bytes = free > context.reserve_bytes ? free - context.reserve_bytes : 0;
            break;
        }
    }
    resolved.bytes = resolved.asked_bytes - resolved.asked_bytes % context.granularity_bytes;
    resolved.text = who;
    if (kind_ != BudgetKind::bytes || text() != std::to_string(amount_)) {
        resolved.text += " (" + in_bytes(resolved.asked_bytes) + ")";
    }

    if (kind_ != BudgetKind::automatic && amount_ == 0) {
        resolved.adjustment = BudgetAdjustment::zero_to_floor;
        resolved.bytes = resolved.floor_bytes;
        resolved.text += " means the smallest that works, " + in_bytes(resolved.bytes);
    } else if (resolved.asked_bytes > resolved.total_bytes) {
        resolved.adjustment = BudgetAdjustment::clamped_to_total;
        resolved.bytes = resolved.total_bytes;
        resolved.text += " is clamped to the " + in_bytes(resolved.bytes) + " that everything takes";
    } else if (resolved.bytes < resolved.floor_bytes && may_fall_back) {
        resolved.adjustment = BudgetAdjustment::raised_to_floor;
        resolved.bytes = resolved.floor_bytes;
        resolved.text += " is raised to the smallest that works, " + in_bytes(resolved.bytes);
    } else if (resolved.bytes < resolved.floor_bytes) {
        std::string message =
            resolved.text + " is below the smallest that works, " + in_bytes(resolved.floor_bytes) + ": ";
        if (context.streamed_bytes == 0) {
            message += "no weight can be streamed, the residents take " + in_bytes(context.resident_bytes);
        } else {
            const std::uint64_t step_bytes =
                context.floor_bytes - (std::min)(context.floor_bytes, context.resident_bytes);
            if (context.floor_step != UINT32_MAX) {
                message += "step " + std::to_string(context.floor_step);
            } else if (!context.floor_weight.empty()) {
                message += "the largest weight, " + detail::quoted(context.floor_weight) + ",";
            } else {
                message += "the largest request";
            }
            if (!context.floor_step_name.empty()) { message += " (" + detail::quoted(context.floor_step_name) + ")"; }
            const bool is_rounded = context.floor_step_bytes != 0 && context.floor_step_bytes != step_bytes;
            message += " needs " + in_bytes(is_rounded ? context.floor_step_bytes : step_bytes) + " at once";
            if (is_rounded) { message += ", " + in_bytes(step_bytes) + " as the pool rounds,"; }
            message += " beside " + in_bytes(context.resident_bytes) + " of residents";
        }
        message += "; give " + std::to_string(resolved.floor_bytes) + " or more, or 0 for the smallest";
        return Error{ErrorKind::budget, std::move(message),
                     BudgetNumbers{resolved.asked_bytes, resolved.bytes, context.resident_bytes, resolved.floor_bytes,
                                   context.floor_step}};
    } else if (resolved.bytes != resolved.asked_bytes) {
        resolved.text += " is rounded down to " + in_bytes(resolved.bytes);
    }
    if (!resolved.is_streaming()) { resolved.text += "; everything is resident, nothing is streamed"; }
    return resolved;
}

}}  // namespace residency::RESIDENCY_ABI
