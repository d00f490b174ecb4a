// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<DType> DType::try_block(std::string_view name, std::uint64_t block_bytes,
                                                std::uint64_t block_elements) {
    if (!block_fits(name, block_bytes, block_elements)) {
        return Error{ErrorKind::invalid_argument,
                     "block type " + detail::quoted(name) + " of " + residency::detail::in_bytes(block_bytes) +
                         " and " + std::to_string(block_elements) + " elements: the name takes 1 to " +
                         residency::detail::in_bytes(max_name_bytes) +
                         ", a block 1 to 2^29 - 1 bytes and 1 to 2^32 - 1 elements"};
    }
    return DType{name, static_cast<std::uint32_t>(block_bytes) * 8, static_cast<std::uint32_t>(block_elements), 1};
}

RESIDENCY_INLINE Result<std::uint64_t> DType::bytes_of(std::uint64_t elements) const {
    if (block_bits_ == 0) { return refused(elements, "the type has no size"); }
    if (elements % block_elements_ != 0) {
        return refused(elements, "they do not fill blocks of " + std::to_string(block_elements_));
    }
    const std::uint64_t blocks = elements / block_elements_;
    if (block_bits_ % 8 == 0) {
        const auto bytes = detail::checked_multiply(blocks, block_bits_ / 8);
        return bytes ? Result<std::uint64_t>{*bytes} : refused(elements, "their bytes do not fit in 64 bits");
    }
    // Whole groups of eight blocks have block_bits bytes; the rest must end on a byte.
    const std::uint64_t rest_bits = blocks % 8 * block_bits_;
    if (rest_bits % 8 != 0) { return refused(elements, "they do not fill whole bytes"); }
    const auto groups = detail::checked_multiply(blocks / 8, block_bits_);
    const auto bytes = groups ? detail::checked_add(*groups, rest_bits / 8) : groups;
    return bytes ? Result<std::uint64_t>{*bytes} : refused(elements, "their bytes do not fit in 64 bits");
}

RESIDENCY_INLINE Error DType::refused(std::uint64_t elements, const std::string& why) const {
    return {ErrorKind::invalid_argument, std::to_string(elements) + " elements of " + std::string{name()} + ": " + why};
}

}}  // namespace residency::RESIDENCY_ABI
