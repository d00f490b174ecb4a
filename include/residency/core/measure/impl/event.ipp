// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/measure/event.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::string_view to_string(EventKind kind) noexcept {
    switch (kind) {
        case EventKind::pass_began: return "pass_began";
        case EventKind::pass_ended: return "pass_ended";
        case EventKind::graph_launched: return "graph_launched";
        case EventKind::lease_began: return "lease_began";
        case EventKind::lease_ended: return "lease_ended";
        case EventKind::wait_began: return "wait_began";
        case EventKind::wait_ended: return "wait_ended";
        case EventKind::copy_began: return "copy_began";
        case EventKind::copy_ended: return "copy_ended";
        case EventKind::arrived: return "arrived";
        case EventKind::evicted: return "evicted";
        case EventKind::stalled: return "stalled";
        case EventKind::diverged: return "diverged";
        case EventKind::budget_changed: return "budget_changed";
        case EventKind::failed: return "failed";
    }
    return "";
}

}}  // namespace residency::RESIDENCY_ABI
