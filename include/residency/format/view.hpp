// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/error.hpp"
#include "residency/format/model_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Whether the strides are those of a row-major tensor without gaps, or there are no elements.
[[nodiscard]] RESIDENCY_INLINE bool is_dense(const Shape& shape, const Strides& strides) noexcept;

/// Bytes from the first to the last element of a view. `strides` has one entry per extent, or none where dense. Error without a
/// location: there is no such view.
[[nodiscard]] RESIDENCY_INLINE Result<std::uint64_t> view_bytes(const DType& type, const Shape& shape,
                                                                const Strides& strides);

/// Appends a weight on an existing storage. Error without a location: it does not lie inside the storage.
[[nodiscard]] RESIDENCY_INLINE Status append_view(ModelFile& model, ModelFile::WeightEntry weight);

/// Weights of one storage that share no byte get storages of their own, without what none of them reads: parameters in one flat buffer,
/// slices of a large tensor. Each keeps its place within a storage's
/// alignment, as far as no byte is in two of them. The weights at the lowest offsets keep the storage;
/// others get new ones at the end. Of the storages from `first_storage` on, which are not packed.
RESIDENCY_INLINE void separate_storages(ModelFile& model, std::size_t first_storage);

}}}}  // namespace residency::RESIDENCY_ABI::format::detail

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/view.ipp"
#endif
