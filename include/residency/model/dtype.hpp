// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "residency/error.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The type of a weight's elements: a name, and how many bits a block of so many elements takes. A regular value
/// without dynamic storage; two are equal if all of that is. Plain types have blocks of one element.
class DType {
public:
    static constexpr std::size_t max_name_bytes = 23;

    /// The type "none", zero bits: what a default-constructed Weight has. No catalog accepts it.
    constexpr DType() noexcept = default;

    /// A type whose elements have `bits` bits each. Preconditions: as for block; the alignment a power of two, up to
    /// 128.
    [[nodiscard]] static constexpr DType plain(std::string_view name, std::uint32_t bits,
                                               std::uint32_t alignment_bytes) noexcept {
        RESIDENCY_ASSERT(!name.empty() && name.size() <= max_name_bytes && bits != 0, "give a short name and a size");
        return {name, bits, 1, alignment_bytes};
    }
    /// A block-quantised type, such as {"Q4_0", 18, 32}. Preconditions: a name of 1 … max_name_bytes bytes,
    /// `block_bytes` of 1 … 2^29 − 1, at least one element; from outside, use try_block.
    [[nodiscard]] static constexpr DType block(std::string_view name, std::uint32_t block_bytes,
                                               std::uint32_t block_elements) noexcept {
        RESIDENCY_ASSERT(block_fits(name, block_bytes, block_elements),
                         "give a short name, bytes and elements; see try_block");
        return {name, block_bytes * 8, block_elements, 1};
    }
    /// The same for values from a file: an error where a precondition does not hold.
    [[nodiscard]] static Result<DType> try_block(std::string_view name, std::uint64_t block_bytes,
                                                 std::uint64_t block_elements) {
        if (!block_fits(name, block_bytes, block_elements)) {
            return Error{ErrorKind::invalid_argument,
                         "block type " + detail::quoted(name) + " of " + std::to_string(block_bytes) + " bytes and " +
                             std::to_string(block_elements) + " elements: the name takes 1 to " +
                             std::to_string(max_name_bytes) +
                             " bytes, a block 1 to 2^29 - 1 bytes and 1 to 2^32 - 1 elements"};
        }
        return DType{name, static_cast<std::uint32_t>(block_bytes) * 8, static_cast<std::uint32_t>(block_elements), 1};
    }

    [[nodiscard]] constexpr std::string_view name() const noexcept { return {name_.data(), name_length_}; }
    /// Bits of one block; of one element where block_elements() is 1.
    [[nodiscard]] constexpr std::uint32_t block_bits() const noexcept { return block_bits_; }
    [[nodiscard]] constexpr std::uint32_t block_elements() const noexcept { return block_elements_; }
    /// Bytes to which an element's offset must be aligned: 1 for types below a byte and for blocks.
    [[nodiscard]] constexpr std::uint32_t alignment_bytes() const noexcept { return alignment_bytes_; }
    /// Whether elements can be addressed one by one in whole bytes.
    [[nodiscard]] constexpr bool is_byte_addressable() const noexcept {
        return block_elements_ == 1 && block_bits_ != 0 && block_bits_ % 8 == 0;
    }

    /// Bytes of `elements` elements. An error where they do not fill whole blocks and whole bytes, or 64 bits do not
    /// hold it.
    [[nodiscard]] Result<std::uint64_t> bytes_of(std::uint64_t elements) const {
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

    friend constexpr bool operator==(const DType&, const DType&) noexcept = default;

private:
    constexpr DType(std::string_view name, std::uint32_t block_bits, std::uint32_t block_elements,
                    std::uint32_t alignment_bytes) noexcept
        : block_bits_{block_bits},
          block_elements_{block_elements},
          alignment_bytes_{static_cast<std::uint8_t>(alignment_bytes)},
          name_length_{static_cast<std::uint8_t>((std::min)(name.size(), max_name_bytes))} {
        std::copy_n(name.begin(), name_length_, name_.begin());
    }
    [[nodiscard]] static constexpr bool block_fits(std::string_view name, std::uint64_t bytes,
                                                   std::uint64_t elements) noexcept {
        return !name.empty() && name.size() <= max_name_bytes && bytes != 0 && bytes < (1U << 29) && elements != 0 &&
               elements <= UINT32_MAX;
    }
    [[nodiscard]] Error refused(std::uint64_t elements, const std::string& why) const {
        return {ErrorKind::invalid_argument,
                std::to_string(elements) + " elements of " + std::string{name()} + ": " + why};
    }

    std::uint32_t block_bits_ = 0;
    std::uint32_t block_elements_ = 1;
    std::uint8_t alignment_bytes_ = 1;
    std::uint8_t name_length_ = 4;
    std::array<char, max_name_bytes> name_{'n', 'o', 'n', 'e'};
};

namespace dtype {

inline constexpr DType f64 = DType::plain("f64", 64, 8);
inline constexpr DType f32 = DType::plain("f32", 32, 4);
inline constexpr DType f16 = DType::plain("f16", 16, 2);
inline constexpr DType bf16 = DType::plain("bf16", 16, 2);
inline constexpr DType f8_e4m3 = DType::plain("f8_e4m3", 8, 1);          ///< with infinities (IEEE style)
inline constexpr DType f8_e4m3fn = DType::plain("f8_e4m3fn", 8, 1);      ///< finite: no infinities (OCP)
inline constexpr DType f8_e4m3fnuz = DType::plain("f8_e4m3fnuz", 8, 1);  ///< finite, one zero
inline constexpr DType f8_e5m2 = DType::plain("f8_e5m2", 8, 1);          ///< with infinities (IEEE style, OCP)
inline constexpr DType f8_e5m2fnuz = DType::plain("f8_e5m2fnuz", 8, 1);  ///< finite, one zero
inline constexpr DType f8_e8m0 = DType::plain("f8_e8m0", 8, 1);          ///< a scale: exponent only
inline constexpr DType f6_e2m3 = DType::plain("f6_e2m3", 6, 1);
inline constexpr DType f6_e3m2 = DType::plain("f6_e3m2", 6, 1);
inline constexpr DType f4 = DType::plain("f4", 4, 1);  ///< e2m1
inline constexpr DType i64 = DType::plain("i64", 64, 8);
inline constexpr DType i32 = DType::plain("i32", 32, 4);
inline constexpr DType i16 = DType::plain("i16", 16, 2);
inline constexpr DType i8 = DType::plain("i8", 8, 1);
inline constexpr DType i4 = DType::plain("i4", 4, 1);
inline constexpr DType u64 = DType::plain("u64", 64, 8);
inline constexpr DType u32 = DType::plain("u32", 32, 4);
inline constexpr DType u16 = DType::plain("u16", 16, 2);
inline constexpr DType u8 = DType::plain("u8", 8, 1);
inline constexpr DType u4 = DType::plain("u4", 4, 1);
inline constexpr DType boolean = DType::plain("bool", 8, 1);
inline constexpr DType complex64 = DType::plain("complex64", 64, 4);  ///< two f32

/// Every named type above.
inline constexpr std::array all{f64,     f32,     f16,     bf16, f8_e4m3, f8_e4m3fn, f8_e4m3fnuz, f8_e5m2, f8_e5m2fnuz,
                                f8_e8m0, f6_e2m3, f6_e3m2, f4,   i64,     i32,       i16,         i8,      i4,
                                u64,     u32,     u16,     u8,   u4,      boolean,   complex64};

}  // namespace dtype

}}  // namespace residency::RESIDENCY_ABI
