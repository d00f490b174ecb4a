// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// How much host memory this process may take, and lock.
struct MemoryLimits {
    std::uint64_t available_bytes = UINT64_MAX;      ///< of the machine, without swapping: MemAvailable
    std::optional<std::uint64_t> group_limit_bytes;  ///< of the control group that binds soonest, version 1 or 2
    std::uint64_t group_used_bytes = 0;              ///< in that group, without page cache that can be dropped
    std::string group;                               ///< its folder
    std::optional<std::uint64_t> locked_bytes;  ///< RLIMIT_MEMLOCK; drivers need not count what they pin against it

    /// What can still be taken before something binds.
    [[nodiscard]] std::uint64_t room_bytes() const noexcept {
        if (!group_limit_bytes) { return available_bytes; }
        return (std::min)(available_bytes, *group_limit_bytes - (std::min)(*group_limit_bytes, group_used_bytes));
    }
    /// One line with the numbers.
    [[nodiscard]] std::string text() const;
};

namespace detail {

/// A small text file of the system; empty where it cannot be read.
[[nodiscard]] RESIDENCY_INLINE std::string read_system_file(const std::string& path);
/// The number after `key` at the start of a line.
[[nodiscard]] RESIDENCY_INLINE std::optional<std::uint64_t> number_after(std::string_view text,
                                                                         std::string_view key) noexcept;

}  // namespace detail

/// Reads the limits of this process. `root` stands before /proc and /sys. What cannot be read does not bind.
[[nodiscard]] RESIDENCY_INLINE MemoryLimits read_memory_limits(const std::string& root = "");

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/host/impl/memory_limits.ipp"
#endif
