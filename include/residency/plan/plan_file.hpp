// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// The bytes of a plan, a container of kind plan, version 1 (model/container.hpp). The same plan gives the same bytes.
///
///     HEAD  u8 cyclic, u8 captured, u64 budget, chunk, image and held bytes, u32 steps, u32 cut,
///           f64 predicted, compute, bound, usual bound and latency floor seconds, u64 floor bytes, u64 bytes per pass
///     STOR  u64 offsets, u64 bytes
///     RESI  COPY  u64 begins, u64 ends, u32 needed_by
///     CALL  u32 ends in the copies, u32 steps waited for, u32 1: of the pass before, u32 needed_by
///     SLOT  u32 slot of each chunk
///     STEP  u32 calls before each step
[[nodiscard]] RESIDENCY_INLINE std::vector<std::byte> save(const Plan& plan);

/// The hash of a plan's bytes.
[[nodiscard]] RESIDENCY_INLINE std::uint64_t hash(const Plan& plan);

/// What a plan that is loaded must have been made for.
struct Expected {
    std::uint64_t catalog_hash = 0;  ///< of the catalog
    std::uint64_t budget_bytes = 0;  ///< device bytes
    std::uint64_t chunk_bytes = 0;   ///< of a slot
};

/// Reads what save() wrote. Errors: malformed, with the place, for what is no plan or not consistent in itself (check_shape);
/// unsupported for a later version; mismatch for a plan made for another catalog, budget or chunk size. Allocates no more than
/// a small multiple of the bytes given. `source`: the file's name, for messages.
[[nodiscard]] RESIDENCY_INLINE Result<Plan> load(std::span<const std::byte> bytes, const Expected& expected,
                                                 std::string source);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/plan_file.ipp"
#endif
