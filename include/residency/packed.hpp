// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What programs with the preset Packed include: planned.hpp, and what unpacks weights on the device. For PackedExperts alone,
// packed_experts.hpp compiles faster.

#include "residency/packed/packed_decider.hpp"
#include "residency/packed_experts.hpp"
#include "residency/planned.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Planned, for weights that are packed in host memory (packed::try_pack): they travel packed, are held packed or unpacked as the budget
/// allows, and a lease gives the weights themselves. Needs `policies.unpacker`. The budget counts what is held.
template <VirtualMemoryDevice D>
using Packed = Residency<evict::Planned, prefetch::Planned, pool::Packed<D>, transport::Pinned<D>>;

}}  // namespace residency::RESIDENCY_ABI
