// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The type of a weight's elements: a name of 1 … max_name_bytes bytes, the elements of a block, and the bits of a block. Plain types
/// have blocks of one element. A regular value without dynamic memory; two are equal if their names and numbers are.
class DType {
public:
    static constexpr std::size_t max_name_bytes = 23;  ///< of a name

    /// The type "none" of zero bits, which no catalog accepts.
    constexpr DType() noexcept = default;

    /// A type of elements of `bits` bits each. Preconditions: a name of 1 … max_name_bytes bytes; bits > 0; the alignment is a
    /// power of two, up to 128.
    [[nodiscard]] static constexpr DType plain(std::string_view name, std::uint32_t bits,
                                               std::uint32_t alignment_bytes) noexcept {
        RESIDENCY_ASSERT(!name.empty() && name.size() <= max_name_bytes && bits != 0, "give a short name and a size");
        return {name, bits, 1, alignment_bytes};
    }
    /// A block-quantised type, such as {"Q4_0", 18, 32}. Preconditions: a name of 1 … max_name_bytes bytes; `block_bytes` of
    /// 1 … 2^29 − 1; at least one element. For values from outside use try_block.
    [[nodiscard]] static constexpr DType block(std::string_view name, std::uint32_t block_bytes,
                                               std::uint32_t block_elements) noexcept {
        RESIDENCY_ASSERT(block_fits(name, block_bytes, block_elements),
                         "give a short name, bytes and elements; see try_block");
        return {name, block_bytes * 8, block_elements, 1};
    }
    /// A block-quantised type from a file. Error invalid_argument: a precondition of block() does not hold.
    [[nodiscard]] static Result<DType> try_block(std::string_view name, std::uint64_t block_bytes,
                                                 std::uint64_t block_elements);

    /// Such as "bf16".
    [[nodiscard]] constexpr std::string_view name() const noexcept { return {name_.data(), name_length_}; }
    /// Bits of one block; of one element where block_elements() is 1.
    [[nodiscard]] constexpr std::uint32_t block_bits() const noexcept { return block_bits_; }
    /// Elements of one block: 1 where each stands alone.
    [[nodiscard]] constexpr std::uint32_t block_elements() const noexcept { return block_elements_; }
    /// Bytes to which an element's offset must be aligned. 1 for types below a byte and for blocks.
    [[nodiscard]] constexpr std::uint32_t alignment_bytes() const noexcept { return alignment_bytes_; }
    /// Whether each element takes whole bytes of its own.
    [[nodiscard]] constexpr bool is_byte_addressable() const noexcept {
        return block_elements_ == 1 && block_bits_ != 0 && block_bits_ % 8 == 0;
    }

    /// Bytes of `elements` elements. Error invalid_argument: they do not fill whole blocks and whole bytes, or 64 bits do not hold
    /// the number.
    [[nodiscard]] Result<std::uint64_t> bytes_of(std::uint64_t elements) const;

    friend constexpr bool operator==(const DType&, const DType&) noexcept = default;  ///< compares all members

private:
    constexpr DType(std::string_view name, std::uint32_t block_bits, std::uint32_t block_elements,
                    std::uint32_t alignment_bytes) noexcept
        : block_bits_{block_bits},
          block_elements_{block_elements},
          alignment_bytes_{static_cast<std::uint8_t>(alignment_bytes)},
          name_length_{static_cast<std::uint8_t>(name.size() < max_name_bytes ? name.size() : max_name_bytes)} {
        for (std::size_t i = 0; i < name_.size(); ++i) { name_[i] = i < name_length_ ? name[i] : '\0'; }
    }
    [[nodiscard]] static constexpr bool block_fits(std::string_view name, std::uint64_t bytes,
                                                   std::uint64_t elements) noexcept {
        return !name.empty() && name.size() <= max_name_bytes && bytes != 0 && bytes < (1U << 29) && elements != 0 &&
               elements <= UINT32_MAX;
    }
    [[nodiscard]] Error refused(std::uint64_t elements, const std::string& why) const;

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

/// The type above of that name.
[[nodiscard]] constexpr std::optional<DType> find(std::string_view name) noexcept {
    for (const DType& each : all) {
        if (each.name() == name) { return each; }
    }
    return std::nullopt;
}

}  // namespace dtype

namespace detail {

template <class T>
[[nodiscard]] constexpr DType usual_element_dtype() noexcept {
    if constexpr (std::is_same_v<T, bool>) {
        return dtype::boolean;
    } else if constexpr (std::is_same_v<T, float>) {
        return dtype::f32;
    } else if constexpr (std::is_same_v<T, double>) {
        return dtype::f64;
    } else if constexpr (std::is_integral_v<T>) {
        constexpr DType of_size[2][4] = {{dtype::u8, dtype::u16, dtype::u32, dtype::u64},
                                         {dtype::i8, dtype::i16, dtype::i32, dtype::i64}};
        return sizeof(T) <= 8 ? of_size[std::is_signed_v<T>][sizeof(T) == 8 ? 3 : sizeof(T) / 2] : DType{};
    } else {
        return {};
    }
}

}  // namespace detail

/// The type of weights whose elements are read as T; DType{} where the library does not know T. Specialise it for types of your
/// own:
///
///     template <> inline constexpr residency::DType residency::element_dtype<__half> = residency::dtype::f16;
template <class T>
inline constexpr DType element_dtype = detail::usual_element_dtype<T>();

/// Whether elements of `dtype` may be read as T:
///  1. as std::byte and unsigned char always: these are the bytes themselves;
///  2. as unsigned integers of the same size: these are the bits of an element;
///  3. as a T with an element_dtype, where that is `dtype`;
///  4. as any other T, where one T takes the bytes of one block.
template <class T>
[[nodiscard]] constexpr bool matches(const DType& dtype) noexcept {
    using Element = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<Element, std::byte> || std::is_same_v<Element, unsigned char>) {
        return true;
    } else if constexpr (std::is_unsigned_v<Element> && !std::is_same_v<Element, bool>) {
        return dtype.is_byte_addressable() && dtype.block_bits() == sizeof(Element) * 8;
    } else if constexpr (element_dtype<Element> != DType{}) {
        return dtype == element_dtype<Element>;
    } else {
        return dtype.block_bits() == sizeof(Element) * 8;
    }
}

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/dtype.ipp"
#endif
