// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

namespace detail {

/// whole · part / parts, rounded down, without a product that overflows. Precondition: part < parts.
[[nodiscard]] constexpr std::uint64_t share(std::uint64_t whole, std::uint64_t part, std::uint64_t parts) noexcept {
    std::uint64_t quotient = 0, remainder = 0;
    const auto add = [&](std::uint64_t more) {
        const bool carries = remainder >= parts - more;
        remainder = carries ? remainder - (parts - more) : remainder + more;
        quotient += carries ? 1U : 0U;
    };
    for (int bit = 63; bit >= 0; --bit) {
        quotient <<= 1U;
        add(remainder);
        if ((whole >> static_cast<unsigned>(bit) & 1U) != 0) { add(part); }
    }
    return quotient;
}

}  // namespace detail

/// What one of several asks of a total. Bytes as the driver counts them.
struct Claim {
    std::int32_t priority = 0;       ///< the higher one is served first
    std::uint64_t floor_bytes = 0;   ///< never less
    std::uint64_t wanted_bytes = 0;  ///< never more, unless the floor is: what everything takes
};

namespace detail {

/// See split. `given` and `order` have one entry a claim; `order` is scratch. False, and nothing given, where the total is below
/// the floors. Allocates nothing.
[[nodiscard]] inline bool split(std::uint64_t total_bytes, std::span<const Claim> claims,
                                std::span<std::uint64_t> given, std::span<std::uint32_t> order) noexcept {
    std::uint64_t floors = 0;
    for (const Claim& claim : claims) {
        if (claim.floor_bytes > total_bytes - floors) { return false; }
        floors += claim.floor_bytes;
    }
    for (std::size_t i = 0; i < claims.size(); ++i) {
        given[i] = claims[i].floor_bytes;
        order[i] = static_cast<std::uint32_t>(i);
    }
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return claims[a].priority != claims[b].priority ? claims[a].priority > claims[b].priority : a < b;
    });
    const auto streamed = [&](std::uint32_t i) {
        return (std::max)(claims[i].wanted_bytes, claims[i].floor_bytes) - claims[i].floor_bytes;
    };
    std::uint64_t rest = total_bytes - floors;
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin;
        std::uint64_t sum = 0;
        for (; end < order.size() && claims[order[end]].priority == claims[order[begin]].priority; ++end) {
            sum = residency::detail::saturating_add(sum, streamed(order[end]));
        }
        const std::uint64_t all = rest;
        for (; begin < end; ++begin) {
            const std::uint32_t i = order[begin];
            const std::uint64_t part = sum <= all ? streamed(i) : share(streamed(i), all, sum);
            given[i] += (std::min)(part, rest);
            rest -= (std::min)(part, rest);
        }
    }
    return true;
}

}  // namespace detail

/// The rule by which a total is shared, a pure function of the claims:
///  1. Everybody has the floor. Error budget, with the sum of the floors, where the total is below it.
///  2. The rest serves the priorities, the highest first. Whoever is served whole has what is wanted.
///  3. Where the rest does not serve a priority whole, each of its claims gets the same share of what it streams at its floor,
///     wanted_bytes − floor_bytes, rounded down.
/// The sum never exceeds the total; what rounding leaves of a priority, less than a byte a claim, goes to the next. So the budgets of
/// several engines of one program follow the bytes that each streams. O(n log n).
[[nodiscard]] inline Result<std::vector<std::uint64_t>> split(std::uint64_t total_bytes,
                                                              std::span<const Claim> claims) {
    std::vector<std::uint64_t> given(claims.size());
    std::vector<std::uint32_t> order(claims.size());
    if (detail::split(total_bytes, claims, given, order)) { return given; }
    std::uint64_t floors = 0;
    for (const Claim& claim : claims) { floors = residency::detail::saturating_add(floors, claim.floor_bytes); }
    return Error{ErrorKind::budget,
                 "the total of " + std::to_string(total_bytes) + " bytes is below the sum of the floors, " +
                     std::to_string(floors) + " bytes",
                 BudgetNumbers{floors, total_bytes, 0, floors, UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::broker
