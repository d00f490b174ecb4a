// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// What a pool has to hold: sizes of streamed storages in bytes, before the pool rounds them.
struct Requirements {
    std::span<const std::uint64_t> storages;  ///< the size of each storage; none is 0
    std::span<const std::uint64_t>
        step;  ///< the sizes of the storages that one step needs at once; where no step is known, of the largest storage alone
    std::uint64_t largest_storage_bytes = 0;    ///< of all storages that the pool may have to hold
    std::uint64_t largest_alignment_bytes = 1;  ///< every address is a multiple of it
    std::uint64_t largest_scheduled_bytes = 0;  ///< the largest storage that a step reads; 0: no steps are known
};

/// One allocation of a pool.
struct Place {
    void* at = nullptr;       ///< its first byte
    std::uint64_t bytes = 0;  ///< as asked for
    bool is_fixed = false;    ///< it is being read, and cannot move
};

/// Where weights live: gives addresses inside a cap that holds at every instant, counted as the driver counts.
///
/// Required: two types, a constant and nine calls, with `p` a pool, `s` the copy stream, `r` Requirements. None is thread safe.
///  1. `P::Device`, `P::Config`             the device it allocates from; an aggregate of its options
///  2. `P::one_range`                       constexpr bool: all addresses belong to one range, in which one copy may go from one storage
///                                          into the next
///  3. `p.occupied(bytes)`                  noexcept; what one allocation of `bytes` takes of the cap
///  4. `p.floor_bytes(device, r)`           the smallest cap under which the storages of r.step fit into an empty pool, whatever the
///                                          order in which they are allocated. If r.step has all storages, this is the ceiling: the
///                                          cap from which on nothing has to leave
///  5. `p.open(device, r, cap_bytes)`       holds at most cap_bytes from here on; the caller checked the floor. May follow close()
///  6. `p.allocate(bytes, s)`               an address, or null if nothing is free now; valid in the order of s; bytes > 0
///  7. `p.deallocate(at, bytes, s)`         in the order of s, which has waited for the last use
///  8. `p.held_bytes()`, `p.requested_bytes()`    what the driver counts; what is allocated, as occupied() counts
///  9. `p.close()`                          noexcept; gives everything back. Everything was deallocated, and the streams are drained
///  10. `p.abandon()`                       noexcept; forgets everything without a device call (the device is broken)
///
/// Optional, RecoverablePool:
///  11. `p.recover()`                       called if nothing that may leave is left and all streams are idle. Gives back what is held
///                                          without use, so that the next allocation has its best chance
///
/// Optional, ResizablePool: calls 12 to 16.
///
/// Optional, StepwisePool: `P::is_laid_out_for_steps`    constexpr bool: what open() makes depends on r.largest_scheduled_bytes, so
///                                          that the pool is emptied, closed and opened anew where another schedule changes that
///
/// Optional:
/// 17. `p.try_close()`                      call 9 that says what the device refused; after a failure only calls 9, 10 and 17 follow. One
///                                          of them follows a call 5 that failed, which may hold what the device refused to take back.
///                                          Without it, what the device refuses while a Residency is suspended is left behind
/// 18. `p.slot_bytes(r)`                    of equal slots, the size that open() would give them: messages name what makes them large
///
/// Semantic rules; the conformance suite cites them.
///  P1 held_bytes() ≤ cap_bytes at every instant, apart from a change of the cap.
///  P2 Calls 6 and 7 allocate no host memory and do not block.
///  P3 Exhaustion is a null address, never an error. An error means that the device failed.
///  P4 A failed call changes nothing. Calls 11 and 15 to 17 may have done a part; called again, they do the rest.
template <class P>
concept MemoryPool =
    Device<typename P::Device> && std::default_initializable<typename P::Config> &&
    std::constructible_from<P, typename P::Config> &&
    requires(P p, const P c, typename P::Device& device, const typename P::Device& const_device,
             typename P::Device::Stream s, const Requirements& requirements, std::uint64_t bytes, void* at) {
        { std::bool_constant<P::one_range>{} };
        { c.occupied(bytes) } noexcept -> std::same_as<std::uint64_t>;
        { c.floor_bytes(const_device, requirements) } -> std::same_as<std::uint64_t>;
        { p.open(device, requirements, bytes) } -> std::same_as<Status>;
        { p.allocate(bytes, s) } -> std::same_as<Result<void*>>;
        { p.deallocate(at, bytes, s) } -> std::same_as<Status>;
        { c.held_bytes() } -> std::same_as<std::uint64_t>;
        { c.requested_bytes() } -> std::same_as<std::uint64_t>;
        { p.close() } noexcept;
        { p.abandon() } noexcept;
    };

/// A pool that can hold memory without use, or fragment: MemoryPool gives the rules.
template <class P>
concept RecoverablePool = MemoryPool<P> && requires(P p) {
    { p.recover() } -> std::same_as<Status>;
};

/// A pool that a change of the schedule may have to open anew: MemoryPool gives the rule.
template <class P>
concept StepwisePool = MemoryPool<P> && requires { requires P::is_laid_out_for_steps; };

/// A pool whose cap can change while storages stay allocated. Any other pool is emptied, closed and opened anew for another budget,
/// which open leases prevent.
///
/// A change begins with call 12 and ends with call 16. What is fixed is so throughout.
///  12. `p.resize(cap_bytes, allocated)`    another cap. `allocated` lists every allocation; all stay where they are. From here on
///                                          allocate() gives what may stay, and until commit_resize() the larger of the two caps holds.
///                                          May block
///  13. `p.is_over()`                       noexcept; more is allocated, apart from what is fixed, than has a place: deallocate first
///  14. `p.must_move(at)`                   noexcept; whether `at` lies in memory that has to be given back: allocate elsewhere, copy,
///                                          deallocate
///  15. `p.reclaim()`                       gives back what is free of the memory that has to be given back. Called if allocate() gives
///                                          null in a move; allocate() then has a place for it
///  16. `p.commit_resize()`                 gives back what is free and has to go, takes what the cap allows. Called again when what was
///                                          fixed has moved; until then held_bytes() exceeds the cap by what fixed storages keep
/// Before calls 15 and 16, everything that was deallocated from memory that has to be given back is complete.
template <class P>
concept ResizablePool =
    MemoryPool<P> && requires(P p, const P c, void* at, std::uint64_t bytes, std::span<const Place> allocated) {
        { p.resize(bytes, allocated) } -> std::same_as<Status>;
        { c.is_over() } noexcept -> std::same_as<bool>;
        { c.must_move(at) } noexcept -> std::same_as<bool>;
        { p.reclaim() } -> std::same_as<Status>;
        { p.commit_resize() } -> std::same_as<Status>;
    };

/// The smallest cap under which all storages fit at once, in any order: the floor of a step that reads them all.
template <MemoryPool P>
[[nodiscard]] std::uint64_t ceiling_bytes(const P& pool, const typename P::Device& device, Requirements requirements) {
    requirements.step = requirements.storages;
    return pool.floor_bytes(device, requirements);
}

/// `bytes` rounded up to a multiple of `multiple`, which is above 0.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) noexcept {
    return (bytes + multiple - 1) / multiple * multiple;
}
/// `bytes` rounded down to a multiple of `multiple`, which is above 0.
[[nodiscard]] constexpr std::uint64_t round_down(std::uint64_t bytes, std::uint64_t multiple) noexcept {
    return bytes / multiple * multiple;
}

}}}  // namespace residency::RESIDENCY_ABI::pool
