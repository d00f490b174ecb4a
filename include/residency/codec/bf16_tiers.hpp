// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// Packs bf16 for the link and for capacity: about two thirds of the bytes of trained weights. codec/bf16_tiers.cuh unpacks and packs
/// on a GPU; bf16_tiers_layout.hpp describes the bytes. Any bytes are taken, and read as values of 16 bits.
class Bf16Tiers {
public:
    /// What Codec asks for.
    /// @{
    static constexpr PackedForm form = PackedForm::bf16_tiers;
    static constexpr PackingUnit unit = PackingUnit::chunk;

    [[nodiscard]] bool takes(const DType& dtype) const noexcept { return dtype == dtype::bf16; }
    /// 0 too where `raw` has more than 64 MiB.
    [[nodiscard]] std::size_t pack(const Extents& extents, std::span<const std::byte> raw,
                                   std::span<std::byte> packed) const noexcept;
    [[nodiscard]] Status unpack(const Extents& extents, std::span<const std::byte> packed,
                                std::span<std::byte> raw) const;
    [[nodiscard]] Status check(const Extents& extents, std::span<const std::byte> packed,
                               std::uint64_t raw_bytes) const;
    /// @}
};
static_assert(Codec<Bf16Tiers>);

}}}  // namespace residency::RESIDENCY_ABI::codec

#if RESIDENCY_HEADER_ONLY
#include "residency/codec/impl/bf16_tiers.ipp"
#endif
