// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "residency/codec/codec.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/packed_form.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace codec {

/// Keeps the bytes as they are: the packed form is the raw bytes, without a header.
class Identity {
public:
    /// What Codec asks for.
    /// @{
    static constexpr PackedForm form = PackedForm::raw;
    static constexpr PackingUnit unit = PackingUnit::chunk;

    [[nodiscard]] bool takes(const DType&) const noexcept { return true; }
    [[nodiscard]] std::size_t pack(const Extents&, std::span<const std::byte> raw,
                                   std::span<std::byte> packed) const noexcept {
        if (packed.size() < raw.size()) { return 0; }
        std::copy(raw.begin(), raw.end(), packed.begin());
        return raw.size();
    }
    [[nodiscard]] Status unpack(const Extents& extents, std::span<const std::byte> packed,
                                std::span<std::byte> raw) const {
        if (Status checked = check(extents, packed, raw.size()); !checked) { return checked; }
        std::copy(packed.begin(), packed.end(), raw.begin());
        return {};
    }
    [[nodiscard]] Status check(const Extents&, std::span<const std::byte> packed, std::uint64_t raw_bytes) const {
        if (packed.size() == raw_bytes) { return {}; }
        return Error{ErrorKind::mismatch,
                     "raw bytes: " + std::to_string(packed.size()) + " are given for " + std::to_string(raw_bytes)};
    }
    /// @}
};
static_assert(Codec<Identity>);

}}}  // namespace residency::RESIDENCY_ABI::codec
