// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much host memory the process may take.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "residency/config.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// How much host memory this process may take and lock.
struct MemoryLimits {
    std::uint64_t available_bytes = UINT64_MAX;  ///< of the machine, without swapping (MemAvailable)
    std::optional<std::uint64_t>
        group_limit_bytes;                      ///< of the control group that is reached first; memory.high counts too
    std::uint64_t group_used_bytes = 0;         ///< in that group, without pages of files, which can be dropped
    std::string group;                          ///< the folder of that group
    std::optional<std::uint64_t> locked_bytes;  ///< RLIMIT_MEMLOCK; a driver need not count pinned memory against it

    /// Bytes that can still be taken before a limit is reached.
    [[nodiscard]] std::uint64_t room_bytes() const noexcept {
        if (!group_limit_bytes) { return available_bytes; }
        return (std::min)(available_bytes, *group_limit_bytes - (std::min)(*group_limit_bytes, group_used_bytes));
    }
    /// All of them in one line.
    [[nodiscard]] std::string text() const;
    /// Error out_of_memory: there is no room for so many bytes. It says for what, which limit binds, and what to do; `otherwise`: besides
    /// raising the limit, such as ", or load less".
    [[nodiscard]] Status check_room(std::uint64_t bytes, std::string_view what, std::string_view otherwise = {}) const;
    /// That a device does not pin memory, with its reason, these limits and what to do.
    [[nodiscard]] std::string not_pinned(const Error& error) const;
};

namespace detail {

/// The text of a small file of the system; empty where it cannot be read.
[[nodiscard]] RESIDENCY_INLINE std::string read_system_file(const std::string& path);
/// The number after `key` at the start of a line; none where there is no such line.
[[nodiscard]] RESIDENCY_INLINE std::optional<std::uint64_t> number_after(std::string_view text,
                                                                         std::string_view key) noexcept;

}  // namespace detail

/// Reads the limits of this process. `root` is put before /proc and /sys. A limit that cannot be read does not apply.
[[nodiscard]] RESIDENCY_INLINE MemoryLimits read_memory_limits(const std::string& root = "");

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/device/impl/memory_limits.ipp"
#endif
