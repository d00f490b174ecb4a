// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <utility>

#include "residency/core/session_state.hpp"
#include "residency/core/transport_interface.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Replaces the bytes of storages at their sources by `write()`, which returns a Status, and, if `is_on_device`, brings what lies of them
/// on the device again, where it lies. Nothing reads the sources while `write()` runs. Blocks. Precondition: drained, and no pass or lease
/// is open. Whatever fails, no lease begins before the device has what the sources have: what is missing is brought by the next pass.
/// Errors: of what is loading; of `write()`; of files that were replaced; those of drain().
template <Device D, class Write>
[[nodiscard]] Status replace_sources(SessionState<D>& shared, std::span<const StorageId> storages, bool is_on_device,
                                     Write&& write) {
    TransportInterface<D>& transport = shared.copy_scheduler.transport();
    shared.decider->forget_ahead();
    if (auto paused = transport.pause(storages); !paused) { return paused; }
    Status written = write();
    auto known = transport.sources_changed(storages);
    if (is_on_device) {
        shared.unread.insert(shared.unread.end(), storages.begin(), storages.end());
        shared.sort_unread();
    }
    auto brought = shared.drain();
    if (!written) { return written; }
    return known ? std::move(brought) : std::move(known);
}

}}}  // namespace residency::RESIDENCY_ABI::core
