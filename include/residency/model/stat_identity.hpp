// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/file_identity.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// The identity of an open file, from what fstat() returned.
[[nodiscard]] inline FileIdentity identity_of(const struct stat& status) noexcept {
    return {static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino),
            static_cast<std::uint64_t>(status.st_size), std::int64_t{status.st_mtim.tv_sec},
            std::int64_t{status.st_mtim.tv_nsec}};
}

}}}  // namespace residency::RESIDENCY_ABI::detail
