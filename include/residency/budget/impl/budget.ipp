// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "residency/budget/budget.hpp"
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
    const auto is_digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
    const auto found_at = [&](std::size_t i) { return i < text.size() ? detail::quoted(text.substr(i)) : "the end"; };
    std::size_t at = 0;
    std::uint64_t number = 0;
    for (; is_digit(at); ++at) {
        const auto tens = detail::checked_multiply(number, 10);
        const auto sum = tens ? detail::checked_add(*tens, static_cast<std::uint64_t>(text[at] - '0')) : tens;
        if (!sum) { return refused(0, "a number beyond 64 bits", "at most " + std::to_string(UINT64_MAX)); }
        number = *sum;
    }
    if (at == 0) {
        return refused(0, found_at(0),
                       text.starts_with('-') ? "digits, or auto (no budget is negative)"
                                             : "digits, or auto: such as 8589934592, 8GiB, 1.5G, 60%, 12.5%free, auto");
    }
    std::uint32_t millionths = 0;
    const bool has_point = at < text.size() && text[at] == '.';
    if (has_point) {
        const std::size_t first = at + 1;
        std::uint32_t unit = million;
        for (at = first; is_digit(at); ++at) {
            unit /= 10;
            if (unit == 0) { return refused(at, found_at(at), "at most 6 digits after the point"); }
            millionths += unit * static_cast<std::uint32_t>(text[at] - '0');
        }
        if (at == first) { return refused(first, found_at(first), "a digit after the point"); }
    }
    const std::size_t end_of_number = at;
    if (at < text.size() && text[at] == ' ') { ++at; }
    const std::string_view rest = text.substr(at);
    const auto is = [&](std::string_view name) {
        const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
        return std::equal(rest.begin(), rest.end(), name.begin(), name.end(),
                          [&](char a, char b) { return lower(a) == lower(b); });
    };
    if (end_of_number == text.size()) {
        if (!has_point) { return bytes(number); }
        return refused(at, "the end", "a unit after a number with a point: such as 1.5GiB or 12.5%");
    }
    if (is("%")) { return percent_of_weights(number, millionths); }
    if (is("%free")) {
        if (number > 100 || (number == 100 && millionths != 0)) {
            return refused(0, std::string{text}, "at most 100%free");
        }
        return percent_of_free(number, millionths);
    }
    for (const Unit& unit : units) {
        if (!is(unit.name)) { continue; }
        const auto product = detail::checked_multiply(number, unit.bytes);
        const auto sum = product ? detail::checked_add(*product, unit.bytes * millionths / million) : product;
        if (!sum) { return refused(0, "a number of bytes beyond 64 bits", "at most " + std::to_string(UINT64_MAX)); }
        if (*sum == 0 && millionths != 0) {
            return refused(0, "less than one byte", "at least one, or 0 for the floor");
        }
        return bytes(*sum);
    }
    return refused(end_of_number, found_at(end_of_number),
                   "the end, or a unit with nothing behind it, after one blank at most: %, %free, KiB MiB GiB TiB or K "
                   "M G T (powers of 1024), kB MB GB TB (powers of 1000)");
}

RESIDENCY_INLINE std::string Budget::text() const {
    const auto percent = [&](const char* of) {
        std::string number = std::to_string(amount_);
        if (millionths_ != 0) {
            std::string digits = std::to_string(million + millionths_);
            digits.erase(digits.find_last_not_of('0') + 1);
            number += "." + digits.substr(1);
        }
        return number + of;
    };
    switch (kind_) {
        case BudgetKind::bytes: break;
        case BudgetKind::percent_of_weights: return percent("%");
        case BudgetKind::percent_of_free: return percent("%free");
        case BudgetKind::automatic: return "auto";
    }
    for (const Unit& unit : units) {
        if (amount_ != 0 && amount_ % unit.bytes == 0) {
            return std::to_string(amount_ / unit.bytes) + std::string{unit.name};
        }
    }
    return std::to_string(amount_);
}

namespace detail {

/// The sizes that a budget is compared with, in whole granules.
inline void round_budget_sizes(ResolvedBudget& resolved, const BudgetContext& context, std::uint64_t weights) {
    const auto round_up = [&](std::uint64_t value) {
        const std::uint64_t over = value % context.granularity_bytes;
        return over == 0 ? value : saturating_add(value, context.granularity_bytes - over);
    };
    resolved.floor_bytes = round_up(context.floor_bytes);
    resolved.total_bytes =
        (std::max)(round_up(context.everything_bytes != 0 ? context.everything_bytes : weights), resolved.floor_bytes);
    resolved.resident_from_bytes = resolved.total_bytes;
    if (context.resident_from_bytes != 0) {
        resolved.resident_from_bytes = (std::min)(round_up(context.resident_from_bytes), resolved.total_bytes);
    }
}

/// The bytes that a budget asks for, before they are rounded and adjusted. Precondition: a budget of free memory knows what is free.
[[nodiscard]] inline std::uint64_t asked_budget_bytes(const Budget& budget, const BudgetContext& context,
                                                      std::uint64_t weights, std::uint64_t total_bytes) {
    switch (budget.kind()) {
        case BudgetKind::bytes: break;
        case BudgetKind::percent_of_weights:
            // All of the weights, with what they are rounded up to.
            return budget.amount() >= 100 ? (std::max)(budget.share_of(weights), total_bytes)
                                          : budget.share_of(weights);
        case BudgetKind::percent_of_free: return budget.share_of(*context.free_device_bytes);
        case BudgetKind::automatic: {
            const std::uint64_t free = *context.free_device_bytes;
            return free > context.reserve_bytes ? free - context.reserve_bytes : 0;
        }
    }
    return budget.amount();
}

RESIDENCY_INLINE std::string device_too_small(std::uint64_t device_bytes) {
    return ": the device is too small, it has " + in_bytes(device_bytes) +
           " in all; steps that read less at once, fewer residents, or a lower policies.leases_at_once or "
           "policies.storages_at_once need less";
}

RESIDENCY_INLINE std::string room_in_stock() {
    return ": ModelGroup::make_room() puts other models to sleep before one is made; a larger total of the broker, or "
           "limit of the stock, makes more";
}

RESIDENCY_INLINE std::string leases_in_words(std::uint32_t leases_at_once) {
    return leases_at_once <= 1
               ? ""
               : ", with room for " + std::to_string(leases_at_once) + " leases together (policies.leases_at_once)";
}

/// What sets the floor, and what it needs at once.
[[nodiscard]] inline std::string what_sets_floor(const BudgetContext& context) {
    std::string text;
    if (context.floor_step != UINT32_MAX) {
        text = "step " + std::to_string(context.floor_step);
    } else if (!context.floor_weight.empty()) {
        text = "the largest weight, " + residency::detail::quoted(context.floor_weight) + ",";
    } else if (context.floor_storages > 0) {
        text = "a request of the " + std::to_string(context.floor_storages) +
               " largest storages (policies.storages_at_once)";
    } else {
        text = "the largest request";
    }
    if (!context.floor_step_name.empty()) { text += " (" + residency::detail::quoted(context.floor_step_name) + ")"; }
    const std::uint64_t step_bytes = context.floor_bytes - (std::min)(context.floor_bytes, context.resident_bytes);
    const bool is_rounded = context.floor_step_bytes != 0 && context.floor_step_bytes != step_bytes;
    text += " needs " + in_bytes(is_rounded ? context.floor_step_bytes : step_bytes) + " at once";
    if (is_rounded) {
        text += ", " + in_bytes(step_bytes) + (context.has_packed_bytes ? " with its packed bytes and" : "") +
                " as the pool rounds,";
    }
    return text + " beside " + in_bytes(context.resident_bytes) + " of residents" +
           leases_in_words(context.leases_at_once);
}

/// The error of a budget below the floor. `resolved.text` says so far who asked for what.
[[nodiscard]] inline Error budget_below_floor(const ResolvedBudget& resolved, const BudgetContext& context) {
    const std::string why = context.streamed_bytes == 0
                                ? "no weight can be streamed, the residents take " + in_bytes(context.resident_bytes)
                                : what_sets_floor(context);
    return {ErrorKind::budget,
            resolved.text + " is below the smallest that works, " + in_bytes(resolved.floor_bytes) + ": " + why +
                (context.pool_advice.empty() ? "" : "; " + context.pool_advice) + "; give " +
                std::to_string(resolved.floor_bytes) + " or more, or 0 for the smallest",
            BudgetNumbers{resolved.asked_bytes, resolved.bytes, context.resident_bytes, resolved.floor_bytes,
                          context.floor_step}};
}

/// Makes what was asked for fit between the floor and the total, and says so. Error budget: it does not.
[[nodiscard]] inline Status adjust_budget(ResolvedBudget& resolved, const BudgetContext& context, bool is_zero,
                                          bool may_fall_back) {
    if (is_zero) {
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
        if (context.free_device_bytes && resolved.bytes > *context.free_device_bytes) {
            return Error{ErrorKind::budget,
                         resolved.text + ", and the " + (context.is_free_in_stock ? "stock of chunks" : "device") +
                             " has " + in_bytes(*context.free_device_bytes) + " free" +
                             (context.is_free_in_stock ? room_in_stock()
                              : resolved.bytes > context.device_bytes
                                  ? device_too_small(context.device_bytes)
                                  : ": others hold the rest, and have to give memory back first"),
                         BudgetNumbers{resolved.asked_bytes, resolved.bytes, context.resident_bytes,
                                       resolved.floor_bytes, context.floor_step, *context.free_device_bytes}};
        }
    } else if (resolved.bytes < resolved.floor_bytes) {
        return budget_below_floor(resolved, context);
    } else if (resolved.bytes != resolved.asked_bytes) {
        resolved.text += " is rounded down to " + in_bytes(resolved.bytes);
    }
    return {};
}

}  // namespace detail

RESIDENCY_INLINE Result<ResolvedBudget> Budget::try_resolve(const BudgetContext& context, BudgetOrigin origin) const {
    RESIDENCY_ASSERT(context.granularity_bytes != 0, "give a granularity of at least 1 byte");
    using residency::detail::in_bytes;
    const std::uint64_t weights = detail::saturating_add(context.streamed_bytes, context.resident_bytes);

    ResolvedBudget resolved;
    resolved.origin = origin;
    detail::round_budget_sizes(resolved, context, weights);
    const std::string who = "the " + std::string{name_of(origin)} + " budget " + text();
    const bool needs_free = kind_ == BudgetKind::automatic || kind_ == BudgetKind::percent_of_free;
    if (needs_free && !context.free_device_bytes) {
        return Error{ErrorKind::budget,
                     who + " is a part of the free device memory, and there is no device; give bytes (at least " +
                         std::to_string(resolved.floor_bytes) + ") or a percentage of the weights",
                     BudgetNumbers{0, 0, context.resident_bytes, resolved.floor_bytes, context.floor_step}};
    }
    resolved.asked_bytes = detail::asked_budget_bytes(*this, context, weights, resolved.total_bytes);
    resolved.bytes = resolved.asked_bytes - resolved.asked_bytes % context.granularity_bytes;
    resolved.text = who;
    if (kind_ == BudgetKind::automatic) {
        resolved.text += ", the " + in_bytes(*context.free_device_bytes) + " that are free less a reserve of " +
                         in_bytes(context.reserve_bytes);
    }
    if (kind_ != BudgetKind::bytes || text() != std::to_string(amount_)) {
        resolved.text += " = " + in_bytes(resolved.asked_bytes);
    }
    const bool may_fall_back = kind_ == BudgetKind::automatic || origin == BudgetOrigin::automatic;
    if (Status fits = detail::adjust_budget(resolved, context, is_zero(), may_fall_back); !fits) {
        return fits.error();
    }
    if (!resolved.is_streaming()) {
        resolved.text += "; everything is resident, nothing is streamed";
        if (resolved.total_bytes > weights + weights / 8) {
            resolved.text += " (the weights have " + in_bytes(weights) + ": the pool may leave the rest unused" +
                             (context.pool_advice.empty() ? "" : "; " + context.pool_advice) + ")";
        }
    }
    return resolved;
}

}}  // namespace residency::RESIDENCY_ABI
