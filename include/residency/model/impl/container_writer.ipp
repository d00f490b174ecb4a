// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/model/container_writer.hpp"
#include "residency/model/stable_hash.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE SectionWriter& ContainerWriter::section(std::uint32_t tag) {
    RESIDENCY_ASSERT(sections_.size() < detail::container_max_sections, "use at most 64 sections");
    for ([[maybe_unused]] const SectionWriter& other : sections_) {
        RESIDENCY_ASSERT(other.tag() != tag, "give each section a tag of its own");
    }
    return sections_.emplace_back(tag);
}

RESIDENCY_INLINE std::vector<std::byte> ContainerWriter::finish() const {
    std::uint64_t offset = detail::container_header_bytes + sections_.size() * detail::container_entry_bytes;
    std::uint64_t total = offset + detail::container_checksum_bytes;
    for (const SectionWriter& section : sections_) { total += detail::container_padded(section.bytes().size()); }

    std::vector<std::byte> out;
    out.reserve(static_cast<std::size_t>(total));
    for (const std::uint8_t byte : detail::container_magic) { out.push_back(std::byte{byte}); }
    detail::append_little_endian(out, detail::container_version);
    detail::append_little_endian(out, static_cast<std::uint32_t>(kind_));
    detail::append_little_endian(out, kind_version_);
    detail::append_little_endian(out, static_cast<std::uint32_t>(sections_.size()));
    detail::append_little_endian(out, total);
    detail::append_little_endian(out, catalog_hash_);
    for (const SectionWriter& section : sections_) {
        detail::append_little_endian(out, section.tag());
        detail::append_little_endian(out, std::uint32_t{0});
        detail::append_little_endian(out, offset);
        detail::append_little_endian(out, static_cast<std::uint64_t>(section.bytes().size()));
        offset += detail::container_padded(section.bytes().size());
    }
    for (const SectionWriter& section : sections_) {
        const auto bytes = section.bytes();
        out.insert(out.end(), bytes.begin(), bytes.end());
        out.resize(static_cast<std::size_t>(detail::container_padded(out.size())));
    }
    StableHash checksum;
    checksum.bytes(out);
    detail::append_little_endian(out, checksum.value());
    return out;
}

}}  // namespace residency::RESIDENCY_ABI
