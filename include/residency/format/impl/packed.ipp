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

/// Reads the sections of a packed model file's index in order.
class PackedIndexReader {
public:
    PackedIndexReader(const Input& input, const PackedFront& front, const ContainerReader& index)
        : input_{input}, front_{front}, index_{index} {}

    [[nodiscard]] Status read() {
        model_.format = "packed";
        model_.files.push_back(input_.source());
        if (Status read = read_metadata(); !read) { return read; }
        if (Status read = read_storages(); !read) { return read; }
        if (Status read = read_parts(); !read) { return read; }
        if (Status placed = place_storages(); !placed) { return placed; }
        if (Status read = read_weights(); !read) { return read; }
        return refuse_duplicates(model_, input_.path(), front_.index_at);
    }
    /// Complete after read().
    [[nodiscard]] ModelFile& model() noexcept { return model_; }

private:
    static constexpr std::uint64_t most_entries = std::uint64_t{1} << 26;

    [[nodiscard]] Status read_metadata() {
        SectionReader about = index_.section(section_tag("MODL"));
        model_.metadata.push_back({"residency.packed_from", about.text(1024)});
        const std::uint64_t keys = about.count(most_entries, 16);
        for (std::uint64_t i = 0; i < keys && about.ok(); ++i) {
            std::string key = about.text(UINT32_MAX);
            std::string value = about.text(UINT32_MAX);
            model_.metadata.push_back({std::move(key), std::move(value)});
        }
        for (const ModelFile::Metadata& entry : model_.metadata) {
            about.require(is_utf8(entry.key) && is_utf8(entry.value), "metadata that is not UTF-8", "UTF-8");
        }
        return about.finish();
    }
    [[nodiscard]] Status read_storages() {
        SectionReader storages = index_.section(section_tag("STOR"));
        storage_bytes_ = storages.array<std::uint64_t>(most_entries);
        part_counts_ = storages.array<std::uint32_t>(most_entries);
        mutables_ = storages.array<std::uint8_t>(most_entries);
        storages.require(part_counts_.size() == storage_bytes_.size() && mutables_.size() == storage_bytes_.size(),
                         "arrays of different lengths", "one entry a storage in each");
        return storages.finish();
    }
    [[nodiscard]] Status read_parts() {
        std::uint64_t counted = 0;
        for (const std::uint32_t parts : part_counts_) { counted += parts; }
        SectionReader section = index_.section(section_tag("PART"));
        forms_ = section.array<std::uint32_t>(most_entries);
        for (auto& field : fields_) { field = section.array<std::uint64_t>(most_entries); }
        for (const auto& field : fields_) {
            section.require(field.size() == forms_.size(), "arrays of different lengths", "one entry a part in each");
        }
        section.require(counted == forms_.size(), std::to_string(forms_.size()) + " parts",
                        std::to_string(counted) + ", as the storages have");
        return section.finish();
    }
    /// Appends the storages with their parts, which lie one behind the other.
    [[nodiscard]] Status place_storages() {
        std::size_t next = 0;                    // part
        std::uint64_t end = packed_front_bytes;  // of the parts so far
        for (std::size_t i = 0; i < storage_bytes_.size(); ++i) {
            auto parts = std::make_shared<std::vector<PackedPart>>();
            std::uint64_t left = storage_bytes_[i];
            for (std::uint32_t k = 0; k < part_counts_[i]; ++k, ++next) {
                const PackedPart part = part_of(next);
                if (Status good = check_part(part, next, i, left, end); !good) { return good; }
                left -= part.raw_bytes;
                end = part.offset_bytes + part.packed_bytes;
                parts->push_back(part);
            }
            if (left != 0) {
                return broken_part(next, i,
                                   "the parts lack the last " + std::to_string(left) + " bytes of the storage");
            }
            if (mutables_[i] > 1) { return broken_part(next, i, "whether it is mutable is not 0 or 1"); }
            const std::uint64_t offset = parts->empty() ? packed_front_bytes : parts->front().offset_bytes;
            model_.storages.push_back({0, offset, storage_bytes_[i], mutables_[i] != 0, std::move(parts)});
        }
        return {};
    }
    [[nodiscard]] PackedPart part_of(std::size_t number) const {
        return {static_cast<PackedForm>(forms_[number]),
                fields_[0][number],
                fields_[1][number],
                fields_[2][number],
                fields_[3][number],
                fields_[4][number],
                fields_[5][number]};
    }
    /// `left`: bytes of the storage that the parts before leave. `end`: of the parts before in the file.
    [[nodiscard]] Status check_part(const PackedPart& part, std::size_t number, std::size_t storage, std::uint64_t left,
                                    std::uint64_t end) const {
        if (forms_[number] > static_cast<std::uint32_t>(PackedForm::f32_tiers)) {
            return unsupported(input_.path(), front_.index_at,
                               part_name(number, storage) + "it is packed as " + codec::form_name(forms_[number]) +
                                   ", which this library does not know");
        }
        if (part.raw_bytes > left) {
            return broken_part(number, storage, "the parts have more bytes than the storage");
        }
        if (part.offset_bytes < end || part.offset_bytes > front_.index_at ||
            part.packed_bytes > front_.index_at - part.offset_bytes) {
            return broken_part(number, storage, "its bytes do not lie behind the part before it and before the index");
        }
        if (part.packed_bytes > part.raw_bytes) {
            return broken_part(number, storage, "it takes more bytes than it stands for");
        }
        return {};
    }
    [[nodiscard]] static std::string part_name(std::size_t number, std::size_t storage) {
        return "part " + std::to_string(number) + ", of storage " + std::to_string(storage) + ": ";
    }
    [[nodiscard]] Error broken_part(std::size_t number, std::size_t storage, const std::string& what) const {
        return malformed(input_.path(), front_.index_at, part_name(number, storage) + what);
    }

    [[nodiscard]] Status read_weights() {
        SectionReader weights = index_.section(section_tag("WGHT"));
        const std::uint64_t count = weights.count(most_entries, 8);
        for (std::uint64_t i = 0; i < count && weights.ok(); ++i) {
            if (Status read = read_weight(weights); !read) { return read; }
        }
        return weights.finish();
    }
    /// Leaves the weight out where the section ends before it does, which finish() says.
    [[nodiscard]] Status read_weight(SectionReader& weights) {
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
        if (!weights.ok()) { return {}; }
        const auto broken = [&](const std::string& what) {
            return malformed(input_.path(), front_.index_at + weights.offset(),
                             "weight " + shown(weight.name) + ": " + what);
        };
        if (!is_utf8(weight.name) || !is_utf8(weight.dtype)) { return broken("a text is not UTF-8"); }
        if (const auto known = dtype::find(type); known && known->block_bits() == bits && elements == 1) {
            weight.type = *known;
        }
        if (weight.type == DType{}) {
            if (bits % 8 != 0) { return broken("an unknown type " + shown(type)); }
            const auto block = DType::try_block(type, bits / 8, elements);
            if (!block) { return broken(block.error().message()); }
            weight.type = *block;
        }
        if (weight.storage >= model_.storages.size()) { return broken("it lies in no storage of this file"); }
        if (!weight.strides.empty() && weight.strides.size() != weight.shape.size()) {
            return broken("its strides do not match its shape");
        }
        if (Status added = append_view(model_, weight); !added) { return broken(added.error().message()); }
        return {};
    }

    const Input& input_;
    PackedFront front_;
    const ContainerReader& index_;
    std::vector<std::uint64_t> storage_bytes_;  // by storage, as the next two
    std::vector<std::uint32_t> part_counts_;
    std::vector<std::uint8_t> mutables_;
    std::vector<std::uint32_t> forms_;      // by part, as the next one
    std::vector<std::uint64_t> fields_[6];  // of PackedPart, from raw_bytes on
    ModelFile model_;
};

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_packed(const Input& input) {
    const auto front = detail::read_packed_front(input);
    if (!front) { return front.error(); }
    std::vector<std::byte> index(static_cast<std::size_t>(front->index_bytes));
    if (Status read = input.try_read(front->index_at, index); !read) { return read.error(); }
    const std::string source = detail::shown(input.path()) + ", index at byte " + std::to_string(front->index_at);
    const auto container = ContainerReader::try_open(index, source);
    if (!container) { return container.error(); }
    if (Status fits = container->expect(ContainerKind::packed, detail::packed_index_version, 0); !fits) {
        return fits.error();
    }
    detail::PackedIndexReader reader{input, *front, *container};
    if (Status read = reader.read(); !read) { return read.error(); }
    return std::move(reader.model());
}

RESIDENCY_INLINE Result<ModelFile> try_read_packed(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    return try_read_packed(*input);
}

}}}  // namespace residency::RESIDENCY_ABI::format
