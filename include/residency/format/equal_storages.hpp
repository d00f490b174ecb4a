// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/format/model_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

// Finds weights that a file holds twice: a component of its own, which no other header includes.

/// How equal storages are looked for.
struct EqualStoragesOptions {
    unsigned threads = 0;  ///< that read; 0: as many as the machine has, at most 8
    /// Called now and then with the bytes read so far and the bytes to read, by one thread at a time. False cancels.
    std::function<bool(std::uint64_t, std::uint64_t)> progress;
};

/// Blocks. The storages of a model that have the same bytes: groups of two or more, each in ascending order. Reads only storages
/// that have the size of another one; leaves out mutable and empty ones. Errors: io; mismatch where a file is no longer the one
/// that the model was read from; cancelled.
[[nodiscard]] RESIDENCY_INLINE Result<std::vector<std::vector<std::uint32_t>>> try_find_equal_storages(
    const ModelFile& model, const EqualStoragesOptions& options = {});

/// A copy of the model in which each group has one storage, its first; the weights of the others lie on it.
[[nodiscard]] RESIDENCY_INLINE ModelFile merge_storages(const ModelFile& model,
                                                        std::span<const std::vector<std::uint32_t>> groups);

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/equal_storages.ipp"
#endif
