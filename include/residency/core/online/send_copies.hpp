// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "residency/core/engine/decider.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Enqueues copies of streamed storages as one transfer, and notes it in their states: the arrival, and whether bytes after those of the
/// copy are still missing. Gives the arrival. On failure no state has changed. Does not block.
template <Device D>
[[nodiscard]] Result<EventPoint> send_copies(const DeciderContext<D>& context,
                                             std::span<const transport::Fetch> copies) {
    auto arrival = context.copy_scheduler->transfer(copies);
    if (!arrival) { return arrival; }
    for (const transport::Fetch& copy : copies) {
        StorageState& state = context.states[index(copy.storage)];
        state.arrival = *arrival;
        state.partially_resident = copy.offset_bytes + copy.bytes < context.catalog.storage(copy.storage).bytes;
        context.counters->fetched_bytes += copy.bytes;
    }
    ++context.counters->calls;
    return arrival;
}

}}}  // namespace residency::RESIDENCY_ABI::core
