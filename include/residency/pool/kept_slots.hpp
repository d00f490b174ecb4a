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

/// Which physical chunk each slot of the next arrangement goes on with: by next slot, the number of the slot now, or no_slot. Now, the
/// chunks of an image lie on `slots_now` slots by `table_now`; next, on `slots` slots by `table`. The slots of the chunks in `keeping` go
/// first; then those of chunks that are alone on their slot now and next; then any that some chunk need not be mapped anew for.
[[nodiscard]] std::vector<std::uint32_t> kept_slots(std::size_t slots_now, std::span<const std::uint32_t> table_now,
                                                    std::uint32_t slots, std::span<const std::uint32_t> table,
                                                    std::span<const std::uint32_t> keeping);

}}}  // namespace residency::RESIDENCY_ABI::pool

#if RESIDENCY_HEADER_ONLY
#include "residency/pool/impl/kept_slots.ipp"
#endif
