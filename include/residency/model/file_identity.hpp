// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What tells a file, and a state of it, from any other: that of an open file, taken before its first byte is read. A writer
/// that sets the time of the last change back, or writes twice within one tick of the file system's clock, goes unnoticed.
struct FileIdentity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t bytes = 0;
    std::int64_t seconds = 0;      ///< of the last change
    std::int64_t nanoseconds = 0;  ///< beside the seconds
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

namespace detail {

[[nodiscard]] inline FileIdentity identity_of(const struct stat& status) noexcept {
    return {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino),
            static_cast<std::uint64_t>(status.st_size), std::int64_t{status.st_mtim.tv_sec},
            std::int64_t{status.st_mtim.tv_nsec}};
}
/// What is no longer as it was. Precondition: they differ.
[[nodiscard]] inline std::string difference(const FileIdentity& before, const FileIdentity& now) {
    if (before.bytes != now.bytes) { return "its size is now " + std::to_string(now.bytes) + " bytes"; }
    if (before.device != now.device || before.inode != now.inode) { return "another file has taken its place"; }
    return "it was written to";
}

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI
