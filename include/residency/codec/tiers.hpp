// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "residency/codec/codec.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// Packs values of a format (tiers::Bf16, F8E4m3, F32) for the link and for capacity. codec/tiers.cuh unpacks and packs on a GPU;
/// tiers_layout.hpp describes the bytes. Any bytes are taken, and read as values of the format.
template <class F>
class Tiers {
public:
    /// What Codec asks for.
    /// @{
    static constexpr PackedForm form = F::form;
    static constexpr PackingUnit unit = PackingUnit::chunk;

    [[nodiscard]] bool takes(const DType& dtype) const noexcept {
        if constexpr (form == PackedForm::bf16_tiers) {
            return dtype == dtype::bf16;
        } else if constexpr (form == PackedForm::f32_tiers) {
            return dtype == dtype::f32;
        } else {
            return dtype == dtype::f8_e4m3fn || dtype == dtype::f8_e4m3 || dtype == dtype::f8_e4m3fnuz;
        }
    }
    /// 0 too where `raw` has more than 64 MiB.
    [[nodiscard]] std::size_t pack(const Extents& extents, std::span<const std::byte> raw,
                                   std::span<std::byte> packed) const noexcept;
    [[nodiscard]] Status unpack(const Extents& extents, std::span<const std::byte> packed,
                                std::span<std::byte> raw) const;
    [[nodiscard]] Status check(const Extents& extents, std::span<const std::byte> packed,
                               std::uint64_t raw_bytes) const;
    /// @}
};

/// Packs bf16: about two thirds of the bytes of trained weights.
using Bf16Tiers = Tiers<tiers::Bf16>;
/// Packs fp8 of 4 bits of exponent and 3 of mantissa: about five sixths.
using F8E4m3Tiers = Tiers<tiers::F8E4m3>;
/// Packs f32: about five sixths.
using F32Tiers = Tiers<tiers::F32>;
static_assert(Codec<Bf16Tiers> && Codec<F8E4m3Tiers> && Codec<F32Tiers>);

}}}  // namespace residency::RESIDENCY_ABI::codec

#if RESIDENCY_HEADER_ONLY
#include "residency/codec/impl/tiers.ipp"
#endif
