// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

namespace detail {

template <std::unsigned_integral T>
[[nodiscard]] inline T load_little_endian(const std::byte* data) noexcept {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(data[i]) << (8 * i)));
    }
    return value;
}

template <ContainerElement T>
[[nodiscard]] inline T load_element(const std::byte* data) noexcept {
    using Bits = decltype(container_bits(T{}));
    const Bits bits = load_little_endian<Bits>(data);
    if constexpr (std::floating_point<T>) {
        return std::bit_cast<T>(bits);
    } else {
        return static_cast<T>(bits);
    }
}

}  // namespace detail

/// Reads one section in order, and keeps the first failure: from then on every read gives zero or nothing, so that a caller may
/// read a whole section and call finish() once. Allocates nothing for a count that the remaining bytes cannot hold.
class SectionReader {
public:
    /// `offset`: that of the section in `source`. The bytes must outlive the reader.
    SectionReader(std::span<const std::byte> bytes, std::uint64_t offset, std::string source)
        : bytes_{bytes}, offset_{offset}, source_{std::move(source)} {}
    /// A reader that has failed.
    explicit SectionReader(Error error) : error_{std::move(error)} {}

    /// Nothing has failed yet.
    [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }

    /// Reads one element; 0 where the section is too short, which ok() then says.
    /// @{
    template <ContainerElement T>
    [[nodiscard]] T value() {
        if (!take(sizeof(T))) { return T{}; }
        return detail::load_element<T>(bytes_.data() + position_ - sizeof(T));
    }
    [[nodiscard]] std::uint8_t u8() { return value<std::uint8_t>(); }
    [[nodiscard]] std::uint32_t u32() { return value<std::uint32_t>(); }
    [[nodiscard]] std::uint64_t u64() { return value<std::uint64_t>(); }
    [[nodiscard]] std::int64_t i64() { return value<std::int64_t>(); }
    [[nodiscard]] double f64() { return value<double>(); }
    /// @}

    /// Reads a count of at most `max` elements of at least `min_bytes_each` bytes each, which the section must still hold.
    [[nodiscard]] std::uint64_t count(std::uint64_t max, std::uint64_t min_bytes_each);
    /// Reads a text of at most `max_bytes` bytes.
    [[nodiscard]] std::string text(std::uint64_t max_bytes) {
        const auto chars = array<char>(max_bytes);
        return {chars.begin(), chars.end()};
    }
    /// Reads a number of elements, and as many elements.
    template <ContainerElement T>
    [[nodiscard]] std::vector<T> array(std::uint64_t max_elements) {
        const std::uint64_t elements = count(max_elements, sizeof(T));
        std::vector<T> values(static_cast<std::size_t>(elements));
        if (!take(elements * sizeof(T))) { return {}; }
        const std::byte* data = bytes_.data() + position_ - values.size() * sizeof(T);
        for (std::size_t i = 0; i < values.size(); ++i) { values[i] = detail::load_element<T>(data + i * sizeof(T)); }
        return values;
    }

    /// Offset of the next read, from the start of the source.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_ + position_; }
    /// Fails with what was found and expected, unless `condition` holds or an earlier read failed. Returns ok().
    bool require(bool condition, std::string_view found, std::string_view expected) {
        if (!condition) { fail_at(position_, std::string{found}, std::string{expected}); }
        return ok();
    }
    /// The first failure, or a failure if bytes are left.
    [[nodiscard]] Status finish();

private:
    bool take(std::uint64_t bytes) {
        if (!ok()) { return false; }
        if (bytes > bytes_.size() - position_) {
            fail_at(position_, residency::detail::in_bytes(bytes_.size() - position_),
                    residency::detail::in_bytes(bytes));
            return false;
        }
        position_ += static_cast<std::size_t>(bytes);
        return true;
    }
    void fail_at(std::size_t position, std::string found, std::string expected);

    std::span<const std::byte> bytes_;
    std::uint64_t offset_ = 0;
    std::size_t position_ = 0;
    std::string source_;
    std::optional<Error> error_;
};

/// Reads a container; its frame (header, section table, padding, checksum) has been checked:
///
///     auto reader = ContainerReader::try_open(bytes, "moves.plan");
///     if (Status fits = reader->expect(ContainerKind::plan, 1, catalog.hash()); !fits) { return fits.error(); }
///     SectionReader moves = reader->section(section_tag("MOVE"));
///     const auto offsets = moves.array<std::uint64_t>(max_moves);
///     if (Status read = moves.finish(); !read) { return read.error(); }
class ContainerReader {
public:
    /// Checks the frame. `source`: the file's name, or what the bytes are, for messages. The bytes must outlive the reader. Error
    /// malformed.
    [[nodiscard]] static Result<ContainerReader> try_open(std::span<const std::byte> bytes, std::string source);

    /// What the container holds: a ContainerKind.
    [[nodiscard]] std::uint32_t kind() const noexcept { return kind_; }
    /// The version of that kind.
    [[nodiscard]] std::uint32_t kind_version() const noexcept { return kind_version_; }
    /// The hash of the catalog that the container belongs to.
    [[nodiscard]] std::uint64_t catalog_hash() const noexcept { return catalog_hash_; }
    /// For messages.
    [[nodiscard]] const std::string& source() const noexcept { return source_; }

    /// Errors: malformed where the contents are of another kind; unsupported where they are of a later version or none; mismatch
    /// where they belong to another catalog.
    [[nodiscard]] Status expect(ContainerKind kind, std::uint32_t latest_version, std::uint64_t catalog_hash) const;

    /// Whether it has a section of that tag.
    [[nodiscard]] bool has(std::uint32_t tag) const noexcept { return find(tag) != nullptr; }
    /// The section with that tag, or a reader that has failed.
    [[nodiscard]] SectionReader section(std::uint32_t tag) const;

private:
    struct Section {
        std::uint32_t tag;
        std::uint64_t offset, bytes;
    };

    ContainerReader(std::span<const std::byte> bytes, std::string source) : bytes_{bytes}, source_{std::move(source)} {}

    [[nodiscard]] const Section* find(std::uint32_t tag) const noexcept {
        for (const Section& section : sections_) {
            if (section.tag == tag) { return &section; }
        }
        return nullptr;
    }
    /// The error of fewer bytes than the frame needs.
    [[nodiscard]] Status cut_off(std::string expected) const;
    [[nodiscard]] Status failed(std::uint64_t offset, std::string found, std::string expected) const;
    [[nodiscard]] Status check_frame();

    std::span<const std::byte> bytes_;
    std::string source_;
    std::uint32_t kind_ = 0;
    std::uint32_t kind_version_ = 0;
    std::uint64_t catalog_hash_ = 0;
    std::vector<Section> sections_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/container_reader.ipp"
#endif
