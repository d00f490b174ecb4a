// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

static_assert(std::endian::native == std::endian::little, "packed forms are written as they lie in memory");

/// The name of a form, for people and for command lines.
[[nodiscard]] RESIDENCY_INLINE std::string form_name(std::uint32_t form);

namespace detail {

/// Checks what all packed forms begin with. Errors: malformed where the bytes are cut or hold no header; unsupported for another form
/// or version; mismatch for another number of raw bytes.
[[nodiscard]] RESIDENCY_INLINE Status check_header(std::span<const std::byte> packed, std::uint64_t raw_bytes,
                                                   PackedForm form, std::uint32_t version);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::codec

#if RESIDENCY_HEADER_ONLY
#include "residency/codec/impl/packed_header.ipp"
#endif
