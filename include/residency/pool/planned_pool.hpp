// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// What a plan needs of a pool: one address range for the image, and physical chunks, called slots, that lie under its parts.
///
/// Required expressions, with `p` a pool. None is thread safe.
///  1. `P::Device`, `P::Config`        the device, with virtual memory; an aggregate of its options
///  2. `P::maps_image`                 constexpr bool: true
///  3. `p.chunk_bytes(device)`         bytes of one chunk of the image, and of one slot
///  4. `p.open(device, image_bytes)`   reserves the range; holds no memory yet
///  5. `p.arrange(slots, table)`, `p.arrange(slots, table, keeping)`    holds that many slots, chunk c of the image on slot table[c];
///                                     the chunks in `keeping` may be read all the while
///  6. `p.remap(chunk, slot)`          puts one chunk on another slot, or on none
///  7. `p.add_slot()`                  one slot more, on which no chunk lies; it has the next number
///  8. `p.give_back(slot)`             one slot less, on which no chunk lies; the last slot takes its number
///  9. `p.slot_of(chunk)`              its slot
///  10. `p.base()`, `p.held_bytes()`    the address of the image; bytes of all slots
///  11. `p.try_close()`, `p.close()`, `p.abandon()`    gives everything back; the same without a report; forgets everything without a
///                                     device call
template <class P>
concept PlannedPool = VirtualMemoryDevice<typename P::Device> && std::default_initializable<typename P::Config> &&
                      std::constructible_from<P, typename P::Config> &&
                      requires(P p, const P c, typename P::Device& device, const typename P::Device& const_device,
                               std::uint64_t bytes, std::uint32_t slots, std::span<const std::uint32_t> table) {
                          requires P::maps_image;
                          { c.chunk_bytes(const_device) } -> std::same_as<std::uint64_t>;
                          { p.open(device, bytes) } -> std::same_as<Status>;
                          { p.arrange(slots, table) } -> std::same_as<Status>;
                          { p.arrange(slots, table, table) } -> std::same_as<Status>;
                          { p.add_slot() } -> std::same_as<Status>;
                          { p.give_back(slots) } -> std::same_as<Status>;
                          { p.remap(slots, slots) } -> std::same_as<Status>;
                          { c.slot_of(slots) } -> std::same_as<std::uint32_t>;
                          { c.base() } -> std::same_as<std::byte*>;
                          { c.held_bytes() } -> std::same_as<std::uint64_t>;
                          { p.try_close() } -> std::same_as<Status>;
                          { p.close() } noexcept;
                          { p.abandon() } noexcept;
                      };

}}}  // namespace residency::RESIDENCY_ABI::pool
