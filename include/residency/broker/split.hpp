// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// What one client asks of a total. Bytes as the driver counts them.
struct Claim {
    std::int32_t priority = 0;       ///< the higher one is served first
    std::uint64_t floor_bytes = 0;   ///< given at least
    std::uint64_t wanted_bytes = 0;  ///< given at most, unless the floor is larger: what everything of the client takes
};

/// The rule by which claims share a total, as a pure function:
///  1. Every claim has its floor. Error budget, with the sum of the floors, where the total is below that sum.
///  2. The rest serves the priorities, the highest first. A priority that is served whole has all that it wants.
///  3. Where the rest does not serve a priority whole, each of its claims gets the same share of wanted_bytes − floor_bytes, the
///     bytes that it streams at its floor, rounded down.
/// The sum never exceeds the total. What rounding leaves of a priority, less than a byte per claim, goes to the next one. O(n log
/// n).
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::uint64_t>> split(std::uint64_t total_bytes,
                                                                        std::span<const Claim> claims);

namespace detail {

/// whole · part / parts, rounded down, without a product that overflows. Precondition: part < parts.
[[nodiscard]] constexpr std::uint64_t share(std::uint64_t whole, std::uint64_t part, std::uint64_t parts) noexcept {
    std::uint64_t quotient = 0, remainder = 0;
    const auto add = [&](std::uint64_t more) {
        const bool carries = remainder >= parts - more;
        remainder = carries ? remainder - (parts - more) : remainder + more;
        quotient += carries ? 1U : 0U;
    };
    for (int bit = 63; bit >= 0; --bit) {
        quotient <<= 1U;
        add(remainder);
        if ((whole >> static_cast<unsigned>(bit) & 1U) != 0) { add(part); }
    }
    return quotient;
}

/// split() without allocations. `given` and `order` have one entry per claim; `order` is scratch. False: the total is below the
/// floors, and nothing was given.
[[nodiscard]] RESIDENCY_INLINE bool split(std::uint64_t total_bytes, std::span<const Claim> claims,
                                          std::span<std::uint64_t> given, std::span<std::uint32_t> order) noexcept;

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::broker

#if RESIDENCY_HEADER_ONLY
#include "residency/broker/impl/split.ipp"
#endif
