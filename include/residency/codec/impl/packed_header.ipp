// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "residency/codec/packed_header.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

RESIDENCY_INLINE std::string form_name(std::uint32_t form) {
    switch (static_cast<PackedForm>(form)) {
        case PackedForm::raw: return "raw";
        case PackedForm::bf16_tiers: return "bf16_tiers";
        case PackedForm::bf16_tiles: return "bf16_tiles";
        case PackedForm::f8_e4m3_tiers: return "f8_e4m3_tiers";
        case PackedForm::f32_tiers: return "f32_tiers";
    }
    return "form " + std::to_string(form);
}

namespace detail {

RESIDENCY_INLINE Status check_header(std::span<const std::byte> packed, std::uint64_t raw_bytes, PackedForm form,
                                     std::uint32_t version) {
    const auto name = [&] { return form_name(static_cast<std::uint32_t>(form)); };
    if (packed.size() < packed_header_bytes) {
        return Error{ErrorKind::malformed, name() + ": " + residency::detail::in_bytes(packed.size()) +
                                               " are fewer than a header: they are cut"};
    }
    PackedHeader header;
    std::memcpy(&header, packed.data(), sizeof header);
    if (header.form != static_cast<std::uint32_t>(form)) {
        return Error{ErrorKind::unsupported, name() + ": these bytes are packed as " + form_name(header.form)};
    }
    if (header.version != version) {
        return Error{ErrorKind::unsupported, name() + ": these bytes are of version " + std::to_string(header.version) +
                                                 " of the form; this program knows version " + std::to_string(version) +
                                                 ": pack the weights again"};
    }
    if (header.packed_bytes != packed.size()) {
        return Error{ErrorKind::malformed, name() + ": " + residency::detail::in_bytes(packed.size()) +
                                               " are there of the " + residency::detail::in_bytes(header.packed_bytes) +
                                               " that the header says"};
    }
    if (header.raw_bytes != raw_bytes) {
        return Error{ErrorKind::mismatch, name() + ": " + residency::detail::in_bytes(header.raw_bytes) +
                                              " of raw bytes were packed, " + residency::detail::in_bytes(raw_bytes) +
                                              " are asked for"};
    }
    return {};
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::codec
