// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/stable_hash.hpp"

namespace residency::inline RESIDENCY_ABI {

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

/// Reads one section in order. The first failure is kept: from then on every read gives zero or nothing, so that a
/// caller may read a whole section and ask once, with finish(). Nothing is allocated for a count that the bytes left
/// cannot hold.
class SectionReader {
public:
    /// `offset`: of the section in `source`. The bytes must outlive the reader.
    SectionReader(std::span<const std::byte> bytes, std::uint64_t offset, std::string source)
        : bytes_{bytes}, offset_{offset}, source_{std::move(source)} {}
    /// A reader that has failed.
    explicit SectionReader(Error error) : error_{std::move(error)} {}

    [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }

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

    /// A count of at most `max` things of at least `min_bytes_each` bytes each, which the section must still hold.
    [[nodiscard]] std::uint64_t count(std::uint64_t max, std::uint64_t min_bytes_each) {
        const std::uint64_t found = u64();
        if (!ok()) { return 0; }
        if (found > max) {
            fail_at(position_ - 8, "a count of " + std::to_string(found), "at most " + std::to_string(max));
            return 0;
        }
        const auto needed = detail::checked_multiply(found, min_bytes_each);
        if (!needed || *needed > bytes_.size() - position_) {
            fail_at(position_ - 8, "a count of " + std::to_string(found),
                    "no more than the " + std::to_string(bytes_.size() - position_) + " bytes left can hold");
            return 0;
        }
        return found;
    }
    [[nodiscard]] std::string text(std::uint64_t max_bytes) {
        const auto chars = array<char>(max_bytes);
        return {chars.begin(), chars.end()};
    }
    template <ContainerElement T>
    [[nodiscard]] std::vector<T> array(std::uint64_t max_elements) {
        const std::uint64_t elements = count(max_elements, sizeof(T));
        std::vector<T> values(static_cast<std::size_t>(elements));
        if (!take(elements * sizeof(T))) { return {}; }
        const std::byte* data = bytes_.data() + position_ - values.size() * sizeof(T);
        for (std::size_t i = 0; i < values.size(); ++i) { values[i] = detail::load_element<T>(data + i * sizeof(T)); }
        return values;
    }

    /// Where the next read starts, from the start of the source.
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_ + position_; }
    /// Fails with that found where that was expected, unless `condition` holds or something failed before. Returns
    /// ok().
    bool require(bool condition, std::string_view found, std::string_view expected) {
        if (!condition) { fail_at(position_, std::string{found}, std::string{expected}); }
        return ok();
    }
    /// The first failure, or one if bytes are left.
    [[nodiscard]] Status finish() {
        if (ok() && position_ != bytes_.size()) {
            fail_at(position_, std::to_string(bytes_.size() - position_) + " more bytes", "the end of the section");
        }
        return error_ ? Status{*error_} : Status{};
    }

private:
    bool take(std::uint64_t bytes) {
        if (!ok()) { return false; }
        if (bytes > bytes_.size() - position_) {
            fail_at(position_, std::to_string(bytes_.size() - position_) + " bytes", std::to_string(bytes) + " bytes");
            return false;
        }
        position_ += static_cast<std::size_t>(bytes);
        return true;
    }
    void fail_at(std::size_t position, std::string found, std::string expected) {
        if (!ok()) { return; }
        const std::uint64_t offset = offset_ + position;
        std::string message =
            source_ + " at byte " + std::to_string(offset) + ": found " + found + ", expected " + expected;
        error_ = Error{ErrorKind::malformed, std::move(message),
                       Place{source_, offset, std::move(found), std::move(expected)}};
    }

    std::span<const std::byte> bytes_;
    std::uint64_t offset_ = 0;
    std::size_t position_ = 0;
    std::string source_;
    std::optional<Error> error_;
};

/// Reads a container whose frame (header, section table, padding, checksum) has been checked:
///
///     auto reader = ContainerReader::try_open(bytes, "moves.plan");
///     if (Status fits = reader->expect(ContainerKind::plan, 1, catalog.hash()); !fits) { return fits.error(); }
///     SectionReader moves = reader->section(section_tag("MOVE"));
///     const auto offsets = moves.array<std::uint64_t>(max_moves);
///     if (Status read = moves.finish(); !read) { return read.error(); }
class ContainerReader {
public:
    /// `source`: the file's name, or what the bytes are, for messages. The bytes must outlive the reader.
    [[nodiscard]] static Result<ContainerReader> try_open(std::span<const std::byte> bytes, std::string source);

    [[nodiscard]] std::uint32_t kind() const noexcept { return kind_; }
    [[nodiscard]] std::uint32_t kind_version() const noexcept { return kind_version_; }
    [[nodiscard]] std::uint64_t catalog_hash() const noexcept { return catalog_hash_; }
    [[nodiscard]] const std::string& source() const noexcept { return source_; }

    /// An error if the contents are of another kind (malformed), of a later version or none (unsupported), or for
    /// another catalog (mismatch).
    [[nodiscard]] Status expect(ContainerKind kind, std::uint32_t latest_version, std::uint64_t catalog_hash) const {
        const auto wanted = static_cast<std::uint32_t>(kind);
        if (kind_ != wanted) {
            return failed(12, "a " + detail::container_kind_name(kind_), "a " + detail::container_kind_name(wanted));
        }
        if (kind_version_ == 0 || kind_version_ > latest_version) {
            return Error{ErrorKind::unsupported,
                         source_ + " at byte 16: found version " + std::to_string(kind_version_) + " of a " +
                             detail::container_kind_name(kind_) + ", this library reads 1 to " +
                             std::to_string(latest_version),
                         Place{source_, 16, std::to_string(kind_version_), "1 to " + std::to_string(latest_version)}};
        }
        if (catalog_hash_ != catalog_hash) {
            return Error{ErrorKind::mismatch,
                         source_ + ": this " + detail::container_kind_name(kind_) +
                             " was made for the catalog with hash " + std::to_string(catalog_hash_) +
                             ", not for the one with hash " + std::to_string(catalog_hash),
                         Place{source_, 32, std::to_string(catalog_hash_), std::to_string(catalog_hash)}};
        }
        return {};
    }

    [[nodiscard]] bool has(std::uint32_t tag) const noexcept { return find(tag) != nullptr; }
    /// The section with that tag; a reader that has failed where there is none.
    [[nodiscard]] SectionReader section(std::uint32_t tag) const {
        const Section* found = find(tag);
        if (found == nullptr) {
            return SectionReader{
                failed(detail::container_header_bytes, "no section " + detail::section_name(tag), "one").error()};
        }
        return {bytes_.subspan(static_cast<std::size_t>(found->offset), static_cast<std::size_t>(found->bytes)),
                found->offset, source_};
    }

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
    [[nodiscard]] Status failed(std::uint64_t offset, std::string found, std::string expected) const {
        std::string message =
            source_ + " at byte " + std::to_string(offset) + ": found " + found + ", expected " + expected;
        return Error{ErrorKind::malformed, std::move(message),
                     Place{source_, offset, std::move(found), std::move(expected)}};
    }
    [[nodiscard]] Status check_frame();

    std::span<const std::byte> bytes_;
    std::string source_;
    std::uint32_t kind_ = 0;
    std::uint32_t kind_version_ = 0;
    std::uint64_t catalog_hash_ = 0;
    std::vector<Section> sections_;
};

inline Result<ContainerReader> ContainerReader::try_open(std::span<const std::byte> bytes, std::string source) {
    ContainerReader reader{bytes, std::move(source)};
    if (const Status frame = reader.check_frame(); !frame) { return frame.error(); }
    return reader;
}

inline Status ContainerReader::check_frame() {
    const std::uint64_t size = bytes_.size();
    const std::byte* data = bytes_.data();
    const auto u32 = [&](std::uint64_t offset) { return detail::load_little_endian<std::uint32_t>(data + offset); };
    const auto u64 = [&](std::uint64_t offset) { return detail::load_little_endian<std::uint64_t>(data + offset); };

    constexpr std::uint64_t smallest = detail::container_header_bytes + detail::container_checksum_bytes;
    if (size < smallest) { return failed(size, "the end", "at least " + std::to_string(smallest) + " bytes"); }
    for (std::size_t i = 0; i < sizeof detail::container_magic; ++i) {
        if (data[i] != std::byte{detail::container_magic[i]}) {
            return failed(i, "other bytes", "the magic of a container");
        }
    }
    if (u32(8) != detail::container_version) {
        return Error{
            ErrorKind::unsupported,
            source_ + " at byte 8: found version " + std::to_string(u32(8)) + " of the container, this library reads 1",
            Place{source_, 8, std::to_string(u32(8)), "1"}};
    }
    if (u64(24) != size) { return failed(24, "a length of " + std::to_string(u64(24)), std::to_string(size)); }
    StableHash checksum;
    checksum.bytes(bytes_.first(static_cast<std::size_t>(size - detail::container_checksum_bytes)));
    if (u64(size - detail::container_checksum_bytes) != checksum.value()) {
        return failed(size - detail::container_checksum_bytes, "another checksum", "that of the bytes before it");
    }
    kind_ = u32(12);
    kind_version_ = u32(16);
    catalog_hash_ = u64(32);

    const std::uint32_t count = u32(20);
    if (count > detail::container_max_sections) {
        return failed(20, std::to_string(count) + " sections",
                      "at most " + std::to_string(detail::container_max_sections));
    }
    const std::uint64_t end = size - detail::container_checksum_bytes;
    std::uint64_t offset = detail::container_header_bytes + count * detail::container_entry_bytes;
    if (offset > end) { return failed(20, std::to_string(count) + " sections", "no more than the bytes can hold"); }
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint64_t entry = detail::container_header_bytes + i * detail::container_entry_bytes;
        const Section section{u32(entry), u64(entry + 8), u64(entry + 16)};
        if (find(section.tag) != nullptr) {
            return failed(entry, "section " + detail::section_name(section.tag) + " again", "each tag once");
        }
        if (u32(entry + 4) != 0) { return failed(entry + 4, "other bytes", "zero"); }
        if (section.offset != offset) {
            return failed(entry + 8, "an offset of " + std::to_string(section.offset), std::to_string(offset));
        }
        if (section.bytes > end - offset) {
            return failed(entry + 16, std::to_string(section.bytes) + " bytes",
                          "at most " + std::to_string(end - offset));
        }
        const std::uint64_t next = detail::container_padded(offset + section.bytes);
        if (next > end) { return failed(entry + 16, std::to_string(section.bytes) + " bytes", "room for the padding"); }
        for (std::uint64_t at = offset + section.bytes; at < next; ++at) {
            if (data[at] != std::byte{0}) { return failed(at, "other bytes", "zeros as padding"); }
        }
        sections_.push_back(section);
        offset = next;
    }
    if (offset != end) { return failed(offset, std::to_string(end - offset) + " more bytes", "the checksum"); }
    return {};
}

}  // namespace residency::inline RESIDENCY_ABI
