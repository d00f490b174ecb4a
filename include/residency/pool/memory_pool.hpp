// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// What the streamed storages ask of a pool, bytes as the storages have them.
struct Needs {
    std::span<const std::uint64_t> storages;  ///< bytes of each, none of them 0
    std::span<const std::uint64_t> step;      ///< of each that one step needs at once; the largest where none is known
    std::uint64_t largest_storage_bytes = 0;
    std::uint64_t largest_alignment_bytes = 1;  ///< of their addresses
};

/// Something that is allocated.
struct Place {
    void* at = nullptr;
    std::uint64_t bytes = 0;  ///< as asked for
    bool is_pinned = false;   ///< it is being read, and cannot move
};

/// Where it lives: gives addresses inside a cap that holds at every instant, counted as the driver counts.
///
/// Required expressions, with `p` a pool, `s` the copy stream. None is thread safe.
///  1. `P::Device`, `P::Config`                 the device it allocates from; an aggregate of its knobs
///  2. `P::one_range`                           constexpr bool: all addresses are of one range, in which a copy may go from one
///                                              storage into the next
///  3. `p.occupied(bytes)`                      noexcept; what one allocation of `bytes` takes of the cap
///  4. `p.floor_bytes(device, needs)`           the smallest cap under which that step fits, whatever the order of its storages
///  5. `p.ceiling_bytes(device, needs)`         the smallest cap under which everything fits at once, whatever the order
///  6. `p.open(device, needs, cap_bytes)`       holds at most cap_bytes from here on; the caller checked the floor
///  7. `p.allocate(bytes, s)`                   an address, or null where nothing is free now; in the order of s; bytes > 0
///  8. `p.deallocate(at, bytes, s)`             in the order of s, which has waited for the last use
///  9. `p.recover()`                            called when nothing that may leave is left and all streams are idle: gives back what
///                                              is held without use, so that the next allocation has its best chance
/// 10. `p.held_bytes()`, `p.requested_bytes()`  what the driver counts, what is handed out, as occupied() counts it
/// 11. `p.close()`                              noexcept; gives everything back; all has been deallocated, the streams were drained
/// 12. `p.abandon()`                            noexcept; forgets everything without a device call (the device is broken)
///
/// A change of the cap, while open, goes from 13 to 16. What is pinned is so throughout.
/// 13. `p.resize(cap_bytes, allocated)`         another cap; `allocated` is all that is, and stays where it is. From here on allocate()
///                                              gives what may stay, and until settle() the larger of the two caps holds. May block
/// 14. `p.is_over()`                            noexcept; more is allocated, beside what is pinned, than has a place: deallocate first
/// 15. `p.must_move(at)`                        noexcept; whether it lies in memory that has to be given back: allocate elsewhere, copy,
///                                              deallocate; where allocate() gives null, the same after reclaim(), which gives back what
///                                              is free of that memory
/// 16. `p.settle()`                             gives back what is free and has to go, takes what the cap allows. Called again when what
///                                              was pinned has moved: until then held_bytes() may be above the cap by what pins keep
/// Before reclaim() and settle() everything that was deallocated from memory that has to go is complete.
///
/// Semantic rules; the conformance suite cites them.
///  P1 held_bytes() ≤ cap_bytes at every instant, changes of the cap apart.
///  P2 Calls 7 and 8 allocate no host memory and do not block.
///  P3 Exhaustion is a null address, never an error; an error means that the device failed.
///  P4 A failed call changes nothing; 9, reclaim() and 16 may have done a part, and go on from there when called again.
template <class P>
concept MemoryPool = Device<typename P::Device> && std::default_initializable<typename P::Config> &&
                     std::constructible_from<P, typename P::Config> && std::is_nothrow_move_constructible_v<P> &&
                     requires(P p, const P c, typename P::Device& device, const typename P::Device& const_device,
                              typename P::Device::Stream s, const Needs& needs, std::uint64_t bytes, void* at,
                              std::span<const Place> allocated) {
                         { std::bool_constant<P::one_range>{} };
                         { c.occupied(bytes) } noexcept -> std::same_as<std::uint64_t>;
                         { c.floor_bytes(const_device, needs) } -> std::same_as<std::uint64_t>;
                         { c.ceiling_bytes(const_device, needs) } -> std::same_as<std::uint64_t>;
                         { p.open(device, needs, bytes) } -> std::same_as<Status>;
                         { p.allocate(bytes, s) } -> std::same_as<Result<void*>>;
                         { p.deallocate(at, bytes, s) } -> std::same_as<Status>;
                         { p.recover() } -> std::same_as<Status>;
                         { c.held_bytes() } -> std::same_as<std::uint64_t>;
                         { c.requested_bytes() } -> std::same_as<std::uint64_t>;
                         { p.close() } noexcept;
                         { p.abandon() } noexcept;
                         { p.resize(bytes, allocated) } -> std::same_as<Status>;
                         { c.is_over() } noexcept -> std::same_as<bool>;
                         { c.must_move(at) } noexcept -> std::same_as<bool>;
                         { p.reclaim() } -> std::same_as<Status>;
                         { p.settle() } -> std::same_as<Status>;
                     };

[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) noexcept {
    return (bytes + multiple - 1) / multiple * multiple;
}
[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t bytes, std::uint64_t multiple) noexcept {
    return bytes / multiple * multiple;
}

}}}  // namespace residency::RESIDENCY_ABI::pool
