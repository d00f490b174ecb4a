// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <system_error>

#include "residency/device/memory_limits.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

namespace detail {

RESIDENCY_INLINE std::string read_system_file(const std::string& path) {
    std::string text;
    if (std::FILE* file = std::fopen(path.c_str(), "r")) {
        char block[4096];
        while (const std::size_t got = std::fread(block, 1, sizeof block, file)) {
            text.append(block, got);
            if (text.size() > (1U << 20)) { break; }
        }
        std::fclose(file);
    }
    return text;
}
/// The number at the start of a text, after blanks.
[[nodiscard]] inline std::optional<std::uint64_t> leading_number(std::string_view text) noexcept {
    text.remove_prefix((std::min)(text.find_first_not_of(" \t"), text.size()));
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    return code == std::errc{} ? std::optional{value} : std::nullopt;
}
RESIDENCY_INLINE std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key) noexcept {
    for (std::size_t line = 0; line < text.size();) {
        const std::size_t end = (std::min)(text.find('\n', line), text.size());
        if (text.substr(line, key.size()) == key) {
            return leading_number(text.substr(line + key.size(), end - line - key.size()));
        }
        line = end + 1;
    }
    return std::nullopt;
}

/// Takes the control group at `folder` over where it leaves less room.
inline void consider_group(MemoryLimits& limits, const std::string& folder, bool is_second) {
    const auto number_in = [&](const char* name) { return leading_number(read_system_file(folder + name)); };
    auto limit = number_in(is_second ? "/memory.max" : "/memory.limit_in_bytes");
    if (is_second) {
        // Above memory.high every allocation is slowed down; where memory is pinned that does not end.
        if (const auto high = number_in("/memory.high")) { limit = (std::min)(limit.value_or(UINT64_MAX), *high); }
    }
    constexpr std::uint64_t no_limit = std::uint64_t{1} << 62;  // version 1 says so with a large number
    if (!limit || *limit >= no_limit) { return; }
    const std::uint64_t used = number_in(is_second ? "/memory.current" : "/memory.usage_in_bytes").value_or(0);
    // Pages of files are active once they are read twice; the kernel drops both kinds before a limit is reached.
    const std::string stat = read_system_file(folder + "/memory.stat");
    std::uint64_t kept = used;
    for (const char* kind : {"active_file", "inactive_file"}) {
        const auto cache = number_after(stat, (is_second ? "" : "total_") + std::string{kind} + ' ');
        kept -= (std::min)(kept, cache.value_or(0));
    }
    const auto room = [](std::uint64_t whole, std::uint64_t taken) { return whole - (std::min)(whole, taken); };
    if (limits.group_limit_bytes && room(*limits.group_limit_bytes, limits.group_used_bytes) <= room(*limit, kept)) {
        return;
    }
    limits.group_limit_bytes = limit;
    limits.group_used_bytes = kept;
    limits.group = folder;
}

}  // namespace detail

RESIDENCY_INLINE std::string MemoryLimits::text() const {
    std::string out = available_bytes == UINT64_MAX
                          ? "available memory unknown"
                          : residency::detail::in_bytes(available_bytes) + " of memory available";
    if (group_limit_bytes) {
        out += ", the control group " + group + " has used " + residency::detail::in_bytes(group_used_bytes) +
               " of its limit of " + residency::detail::in_bytes(*group_limit_bytes);
    }
    return out + ", RLIMIT_MEMLOCK is " + (locked_bytes ? residency::detail::in_bytes(*locked_bytes) : "unlimited");
}

RESIDENCY_INLINE Status MemoryLimits::check_room(std::uint64_t bytes, std::string_view what,
                                                 std::string_view otherwise) const {
    if (bytes <= room_bytes()) { return {}; }
    const bool is_group = room_bytes() < available_bytes;
    return Error{ErrorKind::out_of_memory,
                 "the host has no room for " + std::string{what} + ": " + residency::detail::in_bytes(bytes) +
                     " needed, " + text() + ": " +
                     (is_group ? "raise the limit of that group (memory.max or memory.high; of a container: --memory)"
                               : "end what else uses memory") +
                     std::string{otherwise},
                 DeviceFailure{0, "host memory", bytes}};
}

RESIDENCY_INLINE std::string MemoryLimits::not_pinned(const Error& error) const {
    return "the memory cannot be pinned: " + error.message() + "; " + text() +
           (locked_bytes ? ": raise that limit (ulimit -l unlimited; of a container: --ulimit memlock=-1)" : "");
}

RESIDENCY_INLINE MemoryLimits read_memory_limits(const std::string& root) {
    MemoryLimits limits;
    if (const auto kib = detail::number_after(detail::read_system_file(root + "/proc/meminfo"), "MemAvailable:")) {
        limits.available_bytes = residency::detail::checked_multiply(*kib, 1024).value_or(UINT64_MAX);
    }
    const std::string groups = detail::read_system_file(root + "/proc/self/cgroup");
    for (std::size_t line = 0; line < groups.size();) {
        const std::size_t end = (std::min)(groups.find('\n', line), groups.size());
        const std::string_view entry = std::string_view{groups}.substr(line, end - line);
        line = end + 1;
        // "number:controllers:/path", version 2: "0::/path"
        const std::size_t first = entry.find(':');
        const std::size_t second = first == std::string_view::npos ? first : entry.find(':', first + 1);
        if (second == std::string_view::npos) { continue; }
        const std::string controllers = ',' + std::string{entry.substr(first + 1, second - first - 1)} + ',';
        const bool is_second = controllers == ",,";
        if (!is_second && controllers.find(",memory,") == std::string::npos) { continue; }
        const std::string top = root + (is_second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
        // Every group above binds too. In a container the path may be one of the host: its folder is missing, the top is there.
        for (std::string path{entry.substr(second + 1)};;) {
            while (!path.empty() && path.back() == '/') { path.pop_back(); }
            detail::consider_group(limits, top + path, is_second);
            if (path.empty()) { break; }
            path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
        }
    }
    struct rlimit locked = {};
    if (::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY) {
        limits.locked_bytes = static_cast<std::uint64_t>(locked.rlim_cur);
    }
    return limits;
}

}}}  // namespace residency::RESIDENCY_ABI::host
