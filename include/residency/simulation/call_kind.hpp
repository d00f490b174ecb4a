// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Names every call of the simulated device that can fail, for counts and for fault injection.
enum class CallKind : std::uint8_t {
    create_stream,
    destroy_stream,
    create_event,
    destroy_event,
    record,
    wait,
    is_complete,
    synchronize_event,
    synchronize_stream,
    synchronize_device,
    elapsed,
    copy,
    fill,
    launch_kernel,
    allocate,
    deallocate,
    create_pool,
    destroy_pool,
    pool_allocate,
    pool_deallocate,
    held_bytes,
    trim,
    memory,
    allocate_host,
    deallocate_host,
    pin,
    unpin,
    device_view,
    is_capturing,
    reserve,
    release,
    create_chunk,
    destroy_chunk,
    map,
    unmap,
    begin_capture,
    end_capture,
    launch_graph,
    destroy_graph,
    create_flag,
    destroy_flag,
    wait_flag,
    raise_flag,
    enable_peer,
    host_access,
    any,  ///< for fault injection only: the next call, whichever it is
};

inline constexpr std::size_t call_kinds = static_cast<std::size_t>(CallKind::any);

[[nodiscard]] constexpr std::string_view name(CallKind kind) noexcept {
    constexpr std::array<std::string_view, call_kinds + 1> names{"create_stream",
                                                                 "destroy_stream",
                                                                 "create_event",
                                                                 "destroy_event",
                                                                 "record",
                                                                 "wait",
                                                                 "is_complete",
                                                                 "synchronize(event)",
                                                                 "synchronize(stream)",
                                                                 "synchronize()",
                                                                 "elapsed",
                                                                 "copy",
                                                                 "fill",
                                                                 "launch(kernel)",
                                                                 "allocate",
                                                                 "deallocate",
                                                                 "create_pool",
                                                                 "destroy_pool",
                                                                 "allocate(pool)",
                                                                 "deallocate(pool)",
                                                                 "held_bytes",
                                                                 "trim",
                                                                 "memory",
                                                                 "allocate_host",
                                                                 "deallocate_host",
                                                                 "pin",
                                                                 "unpin",
                                                                 "device_view",
                                                                 "is_capturing",
                                                                 "reserve",
                                                                 "release",
                                                                 "create_chunk",
                                                                 "destroy_chunk",
                                                                 "map",
                                                                 "unmap",
                                                                 "begin_capture",
                                                                 "end_capture",
                                                                 "launch(graph)",
                                                                 "destroy_graph",
                                                                 "create_flag",
                                                                 "destroy_flag",
                                                                 "wait_flag",
                                                                 "raise_flag",
                                                                 "enable_peer",
                                                                 "host access",
                                                                 "any"};
    return names[static_cast<std::size_t>(kind)];
}

}}}  // namespace residency::RESIDENCY_ABI::simulation
