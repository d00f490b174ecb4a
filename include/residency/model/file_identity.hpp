// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "residency/config.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Tells a file and a state of it from any other: taken of the open file before its first byte is read. It does not notice a writer
/// that sets the time of the last change back, or that writes twice within one tick of the file system's clock.
struct FileIdentity {
    std::uint64_t device = 0;      ///< st_dev
    std::uint64_t inode = 0;       ///< st_ino
    std::uint64_t bytes = 0;       ///< size of the file
    std::int64_t seconds = 0;      ///< time of the last change, since the epoch
    std::int64_t nanoseconds = 0;  ///< of that time, beside the seconds
    friend bool operator==(const FileIdentity&, const FileIdentity&) = default;  ///< compares all members
};

namespace detail {

/// Says in words what changed. Precondition: the two differ.
[[nodiscard]] inline std::string difference(const FileIdentity& before, const FileIdentity& now) {
    if (before.bytes != now.bytes) { return "its size is now " + residency::detail::in_bytes(now.bytes); }
    if (before.device != now.device || before.inode != now.inode) { return "another file has taken its place"; }
    return "it was written to";
}

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI
