// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "residency/config.hpp"
#include "residency/core/stalls.hpp"

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

}}  // namespace residency::RESIDENCY_ABI
