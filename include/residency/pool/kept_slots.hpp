// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// In a table of slots by chunk: the chunk lies on no slot.
inline constexpr std::uint32_t no_slot = UINT32_MAX;

/// Which old slots are used again when the chunks of an image are mapped in another way: for each new slot, the old slot whose physical
/// chunk it takes over, or no_slot. The old mapping has `slots_now` slots, the new one `slots`; `table_now` and `table` give the slot of
/// each chunk. Each old slot is taken over once at most. The chunks in `keeping` have the first choice, because their bytes must stay;
/// then chunks that have a slot of their own in both mappings, so that their bytes can stay; then every chunk whose mapping can stay.
[[nodiscard]] std::vector<std::uint32_t> kept_slots(std::size_t slots_now, std::span<const std::uint32_t> table_now,
                                                    std::uint32_t slots, std::span<const std::uint32_t> table,
                                                    std::span<const std::uint32_t> keeping);

}}}  // namespace residency::RESIDENCY_ABI::pool

#if RESIDENCY_HEADER_ONLY
#include "residency/pool/impl/kept_slots.ipp"
#endif
