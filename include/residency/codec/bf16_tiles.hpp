// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "residency/codec/bf16_tiles_layout.hpp"
#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// Packs bf16 matrices for kernels that read the packed form itself: about three quarters of the bytes of trained weights, and no
/// unpacking. codec/bf16_tiles.cuh has the device code that such kernels include; bf16_tiles_layout.hpp describes the bytes. Where
/// too many values are escaped, the values are stored as they are in the same tiles, if `packed` has room for that: kernels then still
/// find one layout.
class Bf16Tiles {
public:
    /// What Codec asks for.
    /// @{
    static constexpr PackedForm form = PackedForm::bf16_tiles;
    static constexpr PackingUnit unit = PackingUnit::weight;

    [[nodiscard]] bool takes(const DType& dtype) const noexcept { return dtype == dtype::bf16; }
    /// 0 too where `raw` is not rows × columns values.
    [[nodiscard]] std::size_t pack(const Extents& extents, std::span<const std::byte> raw,
                                   std::span<std::byte> packed) const noexcept;
    [[nodiscard]] Status unpack(const Extents& extents, std::span<const std::byte> packed,
                                std::span<std::byte> raw) const;
    [[nodiscard]] Status check(const Extents& extents, std::span<const std::byte> packed,
                               std::uint64_t raw_bytes) const;
    /// @}

    /// The bytes that always suffice for pack(): those of tiles whose values are stored as they are. None: there are too many values.
    [[nodiscard]] static std::optional<std::uint64_t> plain_bytes(const Extents& extents) noexcept;
};
static_assert(Codec<Bf16Tiles>);

}}}  // namespace residency::RESIDENCY_ABI::codec

#if RESIDENCY_HEADER_ONLY
#include "residency/codec/impl/bf16_tiles.ipp"
#endif
