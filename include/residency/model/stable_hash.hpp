// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): the same value on every platform. Integers enter as little-endian bytes. Any change of one
/// byte changes the value. An adversary can make collisions.
class StableHash {
public:
    /// Adds a value, its lowest byte first.
    /// @{
    constexpr void byte(std::uint8_t value) noexcept { state_ = (state_ ^ value) * 0x100000001b3U; }
    constexpr void u32(std::uint32_t value) noexcept {
        for (int shift = 0; shift < 32; shift += 8) { byte(static_cast<std::uint8_t>(value >> shift)); }
    }
    constexpr void u64(std::uint64_t value) noexcept {
        for (int shift = 0; shift < 64; shift += 8) { byte(static_cast<std::uint8_t>(value >> shift)); }
    }
    /// @}
    /// Adds the length, then the characters.
    constexpr void text(std::string_view value) noexcept {
        u64(value.size());
        for (const char c : value) { byte(static_cast<std::uint8_t>(c)); }
    }
    /// Adds bytes in their order.
    constexpr void bytes(std::span<const std::byte> values) noexcept {
        for (const std::byte value : values) { byte(std::to_integer<std::uint8_t>(value)); }
    }
    /// The hash of all that was added.
    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return state_; }

private:
    std::uint64_t state_ = 0xcbf29ce484222325U;
};

}}  // namespace residency::RESIDENCY_ABI
