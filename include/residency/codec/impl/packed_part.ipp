// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/codec/bf16_tiles.hpp"
#include "residency/codec/checksum.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/codec/tiers.hpp"
#include "residency/codec/tiers_layout.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

namespace detail {

/// Calls use(codec) for the codec of a form.
template <class Use>
[[nodiscard]] Status with_codec(PackedForm form, Use&& use) {
    switch (form) {
        case PackedForm::raw: return use(Identity{});
        case PackedForm::bf16_tiers: return use(Bf16Tiers{});
        case PackedForm::bf16_tiles: return use(Bf16Tiles{});
        case PackedForm::f8_e4m3_tiers: return use(F8E4m3Tiers{});
        case PackedForm::f32_tiers: return use(F32Tiers{});
    }
    return Error{ErrorKind::unsupported, form_name(static_cast<std::uint32_t>(form)) +
                                             " is no packed form that this program knows; a later version may"};
}

RESIDENCY_INLINE void append_jobs(std::uint32_t storage, std::uint64_t bytes, PackedForm form, const Shape& shape,
                                  std::vector<PartJob>& jobs) {
    if (bytes == 0) { return; }
    if (form == PackedForm::bf16_tiles) {
        const std::uint64_t columns = shape.empty() ? 1 : shape.back();
        jobs.push_back({storage, 0, bytes, form, {bytes / 2 / columns, columns}});
        return;
    }
    for (std::uint64_t at = 0; at < bytes; at += part_bytes) {
        const std::uint64_t some = (std::min)(part_bytes, bytes - at);
        jobs.push_back({storage, at, some, form, {1, some}});
    }
}

}  // namespace detail

RESIDENCY_INLINE Result<bool> takes(PackedForm form, const DType& dtype) {
    bool takes = false;
    const Status known = detail::with_codec(form, [&](const auto& codec) {
        takes = codec.takes(dtype);
        return Status{};
    });
    if (!known) { return known.error(); }
    return takes;
}
RESIDENCY_INLINE PackedForm chunk_form(const DType& dtype) {
    PackedForm form = PackedForm::raw;
    tiers::for_each_format([&](auto format) {
        if (Tiers<decltype(format)>{}.takes(dtype)) { form = format.form; }
    });
    return form;
}

RESIDENCY_INLINE Result<PackedPart> try_pack_part(PackedForm form, const Extents& extents,
                                                  std::span<const std::byte> raw, std::vector<std::byte>& packed,
                                                  std::vector<std::byte>& scratch) {
    PackedPart part;
    part.raw_bytes = raw.size();
    std::size_t bytes = 0;
    if (form != PackedForm::raw) {
        packed.resize(static_cast<std::size_t>(packed_room_bytes(raw.size())));
        Status done = detail::with_codec(form, [&](const auto& codec) {
            bytes = codec.pack(extents, raw, packed);
            if (bytes == 0) { return Status{}; }
            part.form = form;
            if (codec.unit == PackingUnit::weight) {
                part.rows = extents.rows;
                part.columns = extents.columns;
            }
            scratch.resize(raw.size());
            if (Status unpacked = codec.unpack(extents, std::span{packed}.first(bytes), scratch); !unpacked) {
                return unpacked;
            }
            if (!std::equal(scratch.begin(), scratch.end(), raw.begin(), raw.end())) {
                return Status{Error{ErrorKind::mismatch, form_name(static_cast<std::uint32_t>(form)) +
                                                             ": what was unpacked is not what was packed: this is a "
                                                             "fault of the program or of the machine"}};
            }
            return Status{};
        });
        if (!done) { return done.error(); }
    }
    if (bytes == 0) {
        packed.assign(raw.begin(), raw.end());
    } else {
        packed.resize(bytes);
    }
    part.packed_bytes = packed.size();
    part.checksum = checksum(packed);
    return part;
}

namespace detail {

/// Calls use(codec) for the packed bytes of a part, if they are what the part says.
template <class Use>
[[nodiscard]] Status with_part(const PackedPart& part, std::span<const std::byte> packed, std::uint64_t raw_bytes,
                               Use&& use) {
    if (packed.size() != part.packed_bytes || raw_bytes != part.raw_bytes) {
        return Error{ErrorKind::mismatch, "a packed part of " + residency::detail::in_bytes(part.packed_bytes) +
                                              " for " + residency::detail::in_bytes(part.raw_bytes) + ": " +
                                              residency::detail::in_bytes(packed.size()) + " and " +
                                              residency::detail::in_bytes(raw_bytes) + " are given"};
    }
    return with_codec(part.form, [&](const auto& codec) {
        if (checksum(packed) != part.checksum) {
            return Status{Error{ErrorKind::malformed, "the packed bytes were changed: their checksum is another"}};
        }
        return use(codec);
    });
}

}  // namespace detail

RESIDENCY_INLINE Status check_part(const PackedPart& part, std::span<const std::byte> packed) {
    return detail::with_part(part, packed, part.raw_bytes, [&](const auto& codec) {
        return codec.check({part.rows, part.columns}, packed, part.raw_bytes);
    });
}

RESIDENCY_INLINE Status unpack_part(const PackedPart& part, std::span<const std::byte> packed,
                                    std::span<std::byte> raw) {
    return detail::with_part(part, packed, raw.size(),
                             [&](const auto& codec) { return codec.unpack({part.rows, part.columns}, packed, raw); });
}

}}}  // namespace residency::RESIDENCY_ABI::codec
