// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/codec/codec.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// Raw bytes that are packed at once where the form allows it: those of a chunk of an image.
inline constexpr std::uint64_t part_bytes = std::uint64_t{2} << 20;

namespace detail {

/// A part of a storage, before it is packed.
struct PartJob {
    std::uint32_t storage = 0;
    std::uint64_t offset = 0, bytes = 0;  ///< in the storage
    PackedForm form = PackedForm::raw;
    Extents extents;  ///< of chunks: one row of bytes
};

/// Appends the parts of a storage: of part_bytes, or one where the form packs whole weights. `shape`: then of the weight that fills the
/// storage.
RESIDENCY_INLINE void append_jobs(std::uint32_t storage, std::uint64_t bytes, PackedForm form, const Shape& shape,
                                  std::vector<PartJob>& jobs);

}  // namespace detail

/// The bytes that a packed part may have at most: a form that saves less than three in a hundred does not pay.
[[nodiscard]] constexpr std::uint64_t packed_room_bytes(std::uint64_t raw_bytes) noexcept {
    return raw_bytes - raw_bytes / 100 * 3;
}

/// Whether weights of a type are worth an attempt with a form. Error unsupported: a form that this library does not know.
[[nodiscard]] RESIDENCY_INLINE Result<bool> takes(PackedForm form, const DType& dtype);
/// The form of chunks that takes weights of a type; raw where there is none.
[[nodiscard]] RESIDENCY_INLINE PackedForm chunk_form(const DType& dtype);

/// Packs a part, and unpacks it again to see that it is lossless. Stays raw, in the part's form too, where it is larger than
/// packed_room_bytes(). The part's offset is not set. `extents`: of the part. `packed` and `scratch` are reused from part to part.
[[nodiscard]] RESIDENCY_INLINE Result<PackedPart> try_pack_part(PackedForm form, const Extents& extents,
                                                                std::span<const std::byte> raw,
                                                                std::vector<std::byte>& packed,
                                                                std::vector<std::byte>& scratch);

/// Whether these are the packed bytes of a part, and whether kernels can be given them: their number, their checksum, and what the codec's
/// check() says. Errors: as unpack_part().
[[nodiscard]] RESIDENCY_INLINE Status check_part(const PackedPart& part, std::span<const std::byte> packed);

/// Unpacks a part into its raw bytes, after its checksum. Errors: malformed for bytes that were changed; mismatch for sizes that are not
/// the part's; unsupported for a form that this library does not know.
[[nodiscard]] RESIDENCY_INLINE Status unpack_part(const PackedPart& part, std::span<const std::byte> packed,
                                                  std::span<std::byte> raw);

}}}  // namespace residency::RESIDENCY_ABI::codec

#if RESIDENCY_HEADER_ONLY
#include "residency/codec/impl/packed_part.ipp"
#endif
