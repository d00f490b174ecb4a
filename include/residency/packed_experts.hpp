// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What programs with the preset PackedExperts include: residency.hpp, and what unpacks weights on the device.

#include "residency/packed/load.hpp"
#include "residency/packed/pack.hpp"
#include "residency/packed/packed_online_decider.hpp"
#include "residency/residency.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Experts, for weights that are packed in host memory (packed::try_pack): they travel and are cached packed, and a lease gives the weights
/// themselves. Needs `policies.unpacker`. The budget counts what is held, the memory that leases unpack to included.
/// Other online compositions do the same with pool::PackedStorages around their pool.
template <VirtualMemoryDevice D>
using PackedExperts =
    Residency<evict::ExpectedUse, prefetch::Hinted, pool::PackedStorages<pool::Slab<D>>, transport::Pinned<D>>;

}}  // namespace residency::RESIDENCY_ABI
