// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "residency/core/measure/stalls.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::string_view to_string(StallCause cause) noexcept {
    switch (cause) {
        case StallCause::link: return "link";
        case StallCause::room: return "room";
        case StallCause::issued_late: return "issued_late";
        case StallCause::declared_time: return "declared_time";
        case StallCause::evicted: return "evicted";
        case StallCause::unpredicted: return "unpredicted";
    }
    return "";
}

RESIDENCY_INLINE StallCause cause_of_stall(std::chrono::nanoseconds time, std::chrono::nanoseconds sooner,
                                           std::chrono::nanoseconds idle_room,
                                           std::chrono::nanoseconds idle_late) noexcept {
    sooner = (std::min)(sooner, time);
    const auto room = (std::min)(time - sooner, idle_room);
    const auto late = (std::min)(time - sooner - room, idle_late);
    const std::array<std::pair<std::chrono::nanoseconds, StallCause>, 4> shares{
        std::pair{time - sooner - room - late, StallCause::link}, std::pair{room, StallCause::room},
        std::pair{late, StallCause::issued_late}, std::pair{sooner, StallCause::declared_time}};
    auto largest = shares.front();
    for (const auto& share : shares) {
        if (share.first > largest.first) { largest = share; }
    }
    return largest.second;
}

}}  // namespace residency::RESIDENCY_ABI
