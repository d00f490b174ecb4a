// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/broker/split.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/in_bytes.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

namespace detail {

RESIDENCY_INLINE bool split(std::uint64_t total_bytes, std::span<const Claim> claims, std::span<std::uint64_t> given,
                            std::span<std::uint32_t> order) noexcept {
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

RESIDENCY_INLINE Result<std::vector<std::uint64_t>> split(std::uint64_t total_bytes, std::span<const Claim> claims) {
    std::vector<std::uint64_t> given(claims.size());
    std::vector<std::uint32_t> order(claims.size());
    if (detail::split(total_bytes, claims, given, order)) { return given; }
    std::uint64_t floors = 0;
    for (const Claim& claim : claims) { floors = residency::detail::saturating_add(floors, claim.floor_bytes); }
    return Error{ErrorKind::budget,
                 "the total of " + residency::detail::in_bytes(total_bytes) + " is below the sum of the floors, " +
                     residency::detail::in_bytes(floors),
                 BudgetNumbers{floors, total_bytes, 0, floors, UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::broker
