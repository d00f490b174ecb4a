// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/container.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What an array of a container may hold: integers, enumerations and floating-point numbers of 1, 2, 4 or 8 bytes.
template <class T>
concept ContainerElement =
    !std::same_as<T, bool> && (std::integral<T> || std::is_enum_v<T> || std::floating_point<T>) && sizeof(T) <= 8;

namespace detail {

/// The unsigned integer with the same bits.
template <ContainerElement T>
[[nodiscard]] constexpr auto container_bits(T value) noexcept {
    if constexpr (std::is_enum_v<T>) {
        return container_bits(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::same_as<T, float>) {
        return std::bit_cast<std::uint32_t>(value);
    } else if constexpr (std::same_as<T, double>) {
        return std::bit_cast<std::uint64_t>(value);
    } else {
        return static_cast<std::make_unsigned_t<T>>(value);
    }
}

template <std::unsigned_integral T>
void append_little_endian(std::vector<std::byte>& out, T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) { out.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff)); }
}

}  // namespace detail

/// Collects the bytes of one section in order.
class SectionWriter {
public:
    /// An empty section.
    explicit SectionWriter(std::uint32_t tag) noexcept : tag_{tag} {}

    /// Appends one element, little-endian.
    /// @{
    template <ContainerElement T>
    void value(T value) {
        detail::append_little_endian(bytes_, detail::container_bits(value));
    }
    void u8(std::uint8_t v) { value(v); }
    void u32(std::uint32_t v) { value(v); }
    void u64(std::uint64_t v) { value(v); }
    void i64(std::int64_t v) { value(v); }
    void f64(double v) { value(v); }
    /// @}

    /// Appends the number of elements, and the elements.
    /// @{
    void text(std::string_view text) { array(std::span<const char>{text}); }
    /// Appends the count, then the elements.
    template <class T, std::size_t extent>
        requires ContainerElement<std::remove_const_t<T>>
    void array(std::span<T, extent> values) {
        bytes_.reserve(bytes_.size() + sizeof(std::uint64_t) + values.size_bytes());
        u64(values.size());
        for (const auto each : values) { value(each); }
    }
    template <ContainerElement T>
    void array(const std::vector<T>& values) {
        array(std::span<const T>{values});
    }
    /// @}

    /// The tag of the section.
    [[nodiscard]] std::uint32_t tag() const noexcept { return tag_; }
    /// Written so far.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

private:
    std::uint32_t tag_;
    std::vector<std::byte> bytes_;
};

/// Writes a container (container.hpp describes its bytes):
///
///     ContainerWriter writer{ContainerKind::plan, 1, catalog.hash()};
///     SectionWriter& moves = writer.section(section_tag("MOVE"));
///     moves.array(offsets);
///     std::vector<std::byte> bytes = writer.finish();
class ContainerWriter {
public:
    /// A container without sections.
    ContainerWriter(ContainerKind kind, std::uint32_t kind_version, std::uint64_t catalog_hash) noexcept
        : kind_{kind}, kind_version_{kind_version}, catalog_hash_{catalog_hash} {}

    /// Begins a section. The reference stays valid. Preconditions: a tag that was not used before; at most 64 sections.
    SectionWriter& section(std::uint32_t tag);

    /// The bytes of the container.
    [[nodiscard]] std::vector<std::byte> finish() const;

private:
    ContainerKind kind_;
    std::uint32_t kind_version_;
    std::uint64_t catalog_hash_;
    std::deque<SectionWriter> sections_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/container_writer.ipp"
#endif
