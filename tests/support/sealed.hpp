// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "residency/model/stable_hash.hpp"

namespace test {

/// Puts the right checksum at the end of a container (model/container.hpp) again.
inline void seal(std::vector<std::byte>& bytes) {
    const std::size_t end = bytes.size() - 8;
    residency::StableHash hash;
    hash.bytes(std::span{bytes}.first(end));
    for (std::size_t i = 0; i < 8; ++i) { bytes[end + i] = static_cast<std::byte>(hash.value() >> (8 * i) & 0xff); }
}

}  // namespace test
