// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/codec/codec.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/text.hpp"
#include "residency/format/view.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Where the index of a packed model file is.
struct PackedFront {
    std::uint64_t index_at = 0, index_bytes = 0;
};

[[nodiscard]] inline Result<PackedFront> read_packed_front(const Input& input) {
    const std::string& path = input.path();
    std::byte front[packed_front_bytes];
    if (input.bytes() < packed_front_bytes) {
        return malformed(path, input.bytes(), std::string{"the file ends inside its front: "} + cut_off,
                         std::to_string(input.bytes()) + " bytes", "at least " + std::to_string(packed_front_bytes));
    }
    if (Status read = input.try_read(0, front); !read) { return read.error(); }
    const auto u32 = [&](std::size_t at) { return residency::detail::load_little_endian<std::uint32_t>(front + at); };
    const auto u64 = [&](std::size_t at) { return residency::detail::load_little_endian<std::uint64_t>(front + at); };
    if (std::memcmp(front, packed_magic, sizeof packed_magic) != 0) {
        return malformed(path, 0, "not a packed model file", "other bytes", "the magic of one");
    }
    if (u32(8) != packed_version) {
        return unsupported(path, 8,
                           "a packed model file of version " + std::to_string(u32(8)) +
                               "; this library reads version " + std::to_string(packed_version) +
                               ": pack the model again",
                           std::to_string(u32(8)), std::to_string(packed_version));
    }
    StableHash hash;
    hash.bytes(std::span{front}.first(40));
    if (u64(40) != hash.value()) { return malformed(path, 40, "the front was changed: its checksum is another"); }
    if (u64(32) != input.bytes()) {
        return malformed(path, 32, input.bytes() < u64(32) ? cut_off : "the file is longer than it says",
                         std::to_string(input.bytes()) + " bytes", std::to_string(u64(32)));
    }
    const PackedFront found{u64(16), u64(24)};
    if (found.index_bytes > packed_most_index_bytes || found.index_at < packed_front_bytes ||
        !residency::detail::lies_inside(found.index_at, found.index_bytes, input.bytes()) ||
        found.index_at + found.index_bytes != input.bytes()) {
        return malformed(path, 16, "the index does not lie at the end of the file");
    }
    return found;
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_packed(const Input& input) {
    constexpr std::uint64_t most_entries = std::uint64_t{1} << 26;
    const auto front = detail::read_packed_front(input);
    if (!front) { return front.error(); }
    std::vector<std::byte> index(static_cast<std::size_t>(front->index_bytes));
    if (Status read = input.try_read(front->index_at, index); !read) { return read.error(); }
    const std::string source = detail::shown(input.path()) + ", index at byte " + std::to_string(front->index_at);
    const auto reader = ContainerReader::try_open(index, source);
    if (!reader) { return reader.error(); }
    if (Status fits = reader->expect(ContainerKind::packed, detail::packed_index_version, 0); !fits) {
        return fits.error();
    }
    ModelFile model;
    model.format = "packed";
    model.files.push_back(input.source());

    SectionReader about = reader->section(section_tag("MODL"));
    model.metadata.push_back({"residency.packed_from", about.text(1024)});
    const std::uint64_t keys = about.count(most_entries, 16);
    for (std::uint64_t i = 0; i < keys && about.ok(); ++i) {
        std::string key = about.text(UINT32_MAX);
        std::string value = about.text(UINT32_MAX);
        model.metadata.push_back({std::move(key), std::move(value)});
    }
    for (const ModelFile::Metadata& entry : model.metadata) {
        about.require(detail::is_utf8(entry.key) && detail::is_utf8(entry.value), "metadata that is not UTF-8",
                      "UTF-8");
    }
    if (Status read = about.finish(); !read) { return read.error(); }

    SectionReader storages = reader->section(section_tag("STOR"));
    const auto storage_bytes = storages.array<std::uint64_t>(most_entries);
    const auto part_counts = storages.array<std::uint32_t>(most_entries);
    const auto mutables = storages.array<std::uint8_t>(most_entries);
    storages.require(part_counts.size() == storage_bytes.size() && mutables.size() == storage_bytes.size(),
                     "arrays of different lengths", "one entry a storage in each");
    std::uint64_t counted = 0;
    for (const std::uint32_t parts : part_counts) { counted += parts; }
    if (Status read = storages.finish(); !read) { return read.error(); }

    SectionReader section = reader->section(section_tag("PART"));
    const auto forms = section.array<std::uint32_t>(most_entries);
    std::vector<std::uint64_t> fields[6];
    for (auto& field : fields) { field = section.array<std::uint64_t>(most_entries); }
    for (const auto& field : fields) {
        section.require(field.size() == forms.size(), "arrays of different lengths", "one entry a part in each");
    }
    section.require(counted == forms.size(), std::to_string(forms.size()) + " parts",
                    std::to_string(counted) + ", as the storages have");
    if (Status read = section.finish(); !read) { return read.error(); }
    std::size_t next = 0;
    std::uint64_t end = detail::packed_front_bytes;  // of the parts so far
    for (std::size_t i = 0; i < storage_bytes.size(); ++i) {
        auto parts = std::make_shared<std::vector<PackedPart>>();
        std::uint64_t left = storage_bytes[i];
        const auto broken = [&](const std::string& what) {
            return detail::malformed(
                input.path(), front->index_at,
                "part " + std::to_string(next) + ", of storage " + std::to_string(i) + ": " + what);
        };
        for (std::uint32_t k = 0; k < part_counts[i]; ++k, ++next) {
            PackedPart part{static_cast<PackedForm>(forms[next]),
                            fields[0][next],
                            fields[1][next],
                            fields[2][next],
                            fields[3][next],
                            fields[4][next],
                            fields[5][next]};
            if (forms[next] > static_cast<std::uint32_t>(PackedForm::f32_tiers)) {
                return detail::unsupported(input.path(), front->index_at,
                                           "part " + std::to_string(next) + ", of storage " + std::to_string(i) +
                                               ": it is packed as " + codec::form_name(forms[next]) +
                                               ", which this library does not know");
            }
            if (part.raw_bytes > left) { return broken("the parts have more bytes than the storage"); }
            if (part.offset_bytes < end || part.offset_bytes > front->index_at ||
                part.packed_bytes > front->index_at - part.offset_bytes) {
                return broken("its bytes do not lie behind the part before it and before the index");
            }
            if (part.packed_bytes > part.raw_bytes) { return broken("it takes more bytes than it stands for"); }
            left -= part.raw_bytes;
            end = part.offset_bytes + part.packed_bytes;
            parts->push_back(part);
        }
        if (left != 0) { return broken("the parts lack the last " + std::to_string(left) + " bytes of the storage"); }
        if (mutables[i] > 1) { return broken("whether it is mutable is not 0 or 1"); }
        const std::uint64_t offset = parts->empty() ? detail::packed_front_bytes : parts->front().offset_bytes;
        model.storages.push_back({0, offset, storage_bytes[i], mutables[i] != 0, std::move(parts)});
    }

    SectionReader weights = reader->section(section_tag("WGHT"));
    const std::uint64_t count = weights.count(most_entries, 8);
    for (std::uint64_t i = 0; i < count && weights.ok(); ++i) {
        ModelFile::WeightEntry weight;
        weight.name = weights.text(65535);
        weight.dtype = weights.text(255);
        const std::string type = weights.text(DType::max_name_bytes);
        const std::uint32_t bits = weights.u32();
        const std::uint32_t elements = weights.u32();
        weight.storage = weights.u32();
        weight.offset_bytes = weights.u64();
        weight.shape = weights.array<std::uint64_t>(64);
        weight.strides = weights.array<std::uint64_t>(64);
        if (!weights.ok()) { break; }
        const auto broken = [&](const std::string& what) {
            return detail::malformed(input.path(), front->index_at + weights.offset(),
                                     "weight " + detail::shown(weight.name) + ": " + what);
        };
        if (!detail::is_utf8(weight.name) || !detail::is_utf8(weight.dtype)) { return broken("a text is not UTF-8"); }
        if (const auto known = dtype::find(type); known && known->block_bits() == bits && elements == 1) {
            weight.type = *known;
        }
        if (weight.type == DType{}) {
            if (bits % 8 != 0) { return broken("an unknown type " + detail::shown(type)); }
            const auto block = DType::try_block(type, bits / 8, elements);
            if (!block) { return broken(block.error().message()); }
            weight.type = *block;
        }
        if (weight.storage >= model.storages.size()) { return broken("it lies in no storage of this file"); }
        if (!weight.strides.empty() && weight.strides.size() != weight.shape.size()) {
            return broken("its strides do not match its shape");
        }
        if (Status added = detail::append_view(model, weight); !added) { return broken(added.error().message()); }
    }
    if (Status read = weights.finish(); !read) { return read.error(); }
    if (Status unique = detail::refuse_duplicates(model, input.path(), front->index_at); !unique) {
        return unique.error();
    }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_packed(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    return try_read_packed(*input);
}

}}}  // namespace residency::RESIDENCY_ABI::format
