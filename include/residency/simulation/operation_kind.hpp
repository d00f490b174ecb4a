// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// Names what a stream executes, and what the host does to memory.
enum class OperationKind : std::uint8_t {
    kernel,
    copy_to_device,
    copy_to_host,
    copy_on_device,
    copy_on_host,
    fill,
    allocate,
    deallocate,
    record,
    wait,
    wait_flag,
    host_read,
    host_write,
    host_memory,  ///< allocated, freed, pinned or unpinned
    mapping,      ///< created or destroyed, mapped or unmapped
};

[[nodiscard]] constexpr std::string_view name(OperationKind kind) noexcept {
    constexpr std::array<std::string_view, 15> names{
        "kernel",    "copy to device", "copy to host",  "copy on device", "copy on host",
        "fill",      "allocation",     "deallocation",  "record",         "wait",
        "flag wait", "read by host",   "write by host", "host memory",    "mapping"};
    return names[static_cast<std::size_t>(kind)];
}

}}}  // namespace residency::RESIDENCY_ABI::simulation
