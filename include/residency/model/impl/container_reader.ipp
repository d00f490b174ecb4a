// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/model/container_reader.hpp"
#include "residency/model/stable_hash.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::uint64_t SectionReader::count(std::uint64_t max, std::uint64_t min_bytes_each) {
    const std::uint64_t found = u64();
    if (!ok()) { return 0; }
    if (found > max) {
        fail_at(position_ - 8, "a count of " + std::to_string(found), "at most " + std::to_string(max));
        return 0;
    }
    const auto needed = detail::checked_multiply(found, min_bytes_each);
    if (!needed || *needed > bytes_.size() - position_) {
        fail_at(position_ - 8, "a count of " + std::to_string(found),
                "no more than the " + residency::detail::in_bytes(bytes_.size() - position_) + " left can hold");
        return 0;
    }
    return found;
}

RESIDENCY_INLINE Status SectionReader::finish() {
    if (ok() && position_ != bytes_.size()) {
        fail_at(position_, residency::detail::in_bytes(bytes_.size() - position_) + " too many",
                "the end of the section");
    }
    return error_ ? Status{*error_} : Status{};
}

RESIDENCY_INLINE void SectionReader::fail_at(std::size_t position, std::string found, std::string expected) {
    if (!ok()) { return; }
    const std::uint64_t offset = offset_ + position;
    std::string message =
        source_ + " at byte " + std::to_string(offset) + ": found " + found + ", expected " + expected;
    error_ = Error{ErrorKind::malformed, std::move(message),
                   FileLocation{source_, offset, std::move(found), std::move(expected)}};
}

RESIDENCY_INLINE Status ContainerReader::expect(ContainerKind kind, std::uint32_t latest_version,
                                                std::uint64_t catalog_hash) const {
    const auto wanted = static_cast<std::uint32_t>(kind);
    if (kind_ != wanted) {
        return failed(12, "a " + detail::container_kind_name(kind_), "a " + detail::container_kind_name(wanted));
    }
    if (kind_version_ == 0 || kind_version_ > latest_version) {
        return Error{
            ErrorKind::unsupported,
            source_ + " at byte 16: found version " + std::to_string(kind_version_) + " of a " +
                detail::container_kind_name(kind_) + ", this library reads 1 to " + std::to_string(latest_version),
            FileLocation{source_, 16, std::to_string(kind_version_), "1 to " + std::to_string(latest_version)}};
    }
    if (catalog_hash_ != catalog_hash) {
        return Error{ErrorKind::mismatch,
                     source_ + ": this " + detail::container_kind_name(kind_) + " was made for the catalog with hash " +
                         std::to_string(catalog_hash_) + ", not for the one with hash " + std::to_string(catalog_hash),
                     FileLocation{source_, 32, std::to_string(catalog_hash_), std::to_string(catalog_hash)}};
    }
    return {};
}

RESIDENCY_INLINE SectionReader ContainerReader::section(std::uint32_t tag) const {
    const Section* found = find(tag);
    if (found == nullptr) {
        return SectionReader{
            failed(detail::container_header_bytes, "no section " + detail::section_name(tag), "one").error()};
    }
    return {bytes_.subspan(static_cast<std::size_t>(found->offset), static_cast<std::size_t>(found->bytes)),
            found->offset, source_};
}

RESIDENCY_INLINE Status ContainerReader::failed(std::uint64_t offset, std::string found, std::string expected) const {
    std::string message =
        source_ + " at byte " + std::to_string(offset) + ": found " + found + ", expected " + expected;
    return Error{ErrorKind::malformed, std::move(message),
                 FileLocation{source_, offset, std::move(found), std::move(expected)}};
}

RESIDENCY_INLINE Status ContainerReader::cut_off(std::string expected) const {
    std::string found = residency::detail::in_bytes(bytes_.size());
    std::string message = source_ + ": it is cut off: copy or make it again: found " + found + ", expected " + expected;
    return Error{ErrorKind::malformed, std::move(message),
                 FileLocation{source_, bytes_.size(), std::move(found), std::move(expected)}};
}

RESIDENCY_INLINE Result<ContainerReader> ContainerReader::try_open(std::span<const std::byte> bytes,
                                                                   std::string source) {
    ContainerReader reader{bytes, std::move(source)};
    if (const Status frame = reader.check_frame(); !frame) { return frame.error(); }
    return reader;
}

RESIDENCY_INLINE Status ContainerReader::check_frame() {
    const std::uint64_t size = bytes_.size();
    const std::byte* data = bytes_.data();
    const auto u32 = [&](std::uint64_t offset) { return detail::load_little_endian<std::uint32_t>(data + offset); };
    const auto u64 = [&](std::uint64_t offset) { return detail::load_little_endian<std::uint64_t>(data + offset); };

    constexpr std::uint64_t smallest = detail::container_header_bytes + detail::container_checksum_bytes;
    if (size < smallest) { return cut_off("at least " + residency::detail::in_bytes(smallest)); }
    for (std::size_t i = 0; i < sizeof detail::container_magic; ++i) {
        if (data[i] != std::byte{detail::container_magic[i]}) {
            return failed(i, "other bytes",
                          "a file that Residency saved (schedule, plan, trace, program): this is none");
        }
    }
    if (u32(8) != detail::container_version) {
        return Error{
            ErrorKind::unsupported,
            source_ + " at byte 8: found version " + std::to_string(u32(8)) + " of the container, this library reads 1",
            FileLocation{source_, 8, std::to_string(u32(8)), "1"}};
    }
    if (u64(24) > size) { return cut_off(residency::detail::in_bytes(u64(24))); }
    if (u64(24) != size) {
        return failed(24, "a length of " + residency::detail::in_bytes(u64(24)), residency::detail::in_bytes(size));
    }
    StableHash checksum;
    checksum.bytes(bytes_.first(static_cast<std::size_t>(size - detail::container_checksum_bytes)));
    if (u64(size - detail::container_checksum_bytes) != checksum.value()) {
        return failed(size - detail::container_checksum_bytes, "another checksum",
                      "that of the bytes before it: the file was changed: copy or make it again");
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
            return failed(entry + 16, residency::detail::in_bytes(section.bytes),
                          "at most " + residency::detail::in_bytes(end - offset));
        }
        const std::uint64_t next = detail::container_padded(offset + section.bytes);
        if (next > end) {
            return failed(entry + 16, residency::detail::in_bytes(section.bytes), "room for the padding");
        }
        for (std::uint64_t at = offset + section.bytes; at < next; ++at) {
            if (data[at] != std::byte{0}) { return failed(at, "other bytes", "zeros as padding"); }
        }
        sections_.push_back(section);
        offset = next;
    }
    if (offset != end) {
        return failed(offset, residency::detail::in_bytes(end - offset) + " too many", "the checksum");
    }
    return {};
}

}}  // namespace residency::RESIDENCY_ABI
