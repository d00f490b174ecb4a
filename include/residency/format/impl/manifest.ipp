// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/format/gguf_type.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/manifest.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/torch_dtype.hpp"
#include "residency/format/view.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// A type by any of the names that the formats here have for it.
[[nodiscard]] inline std::optional<DType> find_any_dtype(std::string_view name) noexcept {
    if (const auto type = find_safetensors_dtype(name)) { return type; }
    if (const auto type = find_torch_dtype(name)) { return type->type; }
    for (const GgmlType& known : ggml_types) {
        if (known.name == name) { return known.type; }
    }
    return dtype::find(name);
}

/// Reads the parts of a manifest in order, and opens the files that it names.
class ManifestReader {
public:
    explicit ManifestReader(const std::string& path) : path_{path}, folder_{folder_of(path)} {}

    [[nodiscard]] Status read(const JsonTree::Value& root) {
        const auto storages = root.find("storages");
        const auto weights = root.find("weights");
        if (!storages || !storages->is_array() || !weights || !weights->is_array()) {
            return malformed(path_, root.place(), "not a manifest: it lacks the arrays \"storages\" and \"weights\"");
        }
        if (Status read = read_settings(root); !read) { return read; }
        for (const auto& entry : storages->children()) {
            if (Status read = read_storage(entry); !read) { return read; }
        }
        if (Status good = refuse_overlaps(storages->place()); !good) { return good; }
        for (const auto& entry : weights->children()) {
            if (Status read = read_weight(entry); !read) { return read; }
        }
        return refuse_duplicates(model_, path_, weights->place());
    }
    /// Complete after read().
    [[nodiscard]] ModelFile& model() noexcept { return model_; }

private:
    /// The format and the alignment.
    [[nodiscard]] Status read_settings(const JsonTree::Value& root) {
        const auto format = root.find("format");
        const auto format_name = format ? format->string() : std::nullopt;
        model_.format = format_name ? std::string{*format_name} : std::string{"manifest"};
        if (const auto given = root.find("alignment")) {
            const auto number = given->number();
            if (!number || *number == 0 || (*number & (*number - 1)) != 0 || *number > (std::uint64_t{1} << 30)) {
                return malformed(path_, given->place(), "\"alignment\" is not a power of two");
            }
            alignment_ = *number;
        }
        return {};
    }

    [[nodiscard]] Error broken_storage(const JsonTree::Value& entry, const std::string& what) const {
        return malformed(path_, entry.place(), "storage " + std::to_string(model_.storages.size()) + ": " + what);
    }
    [[nodiscard]] Status read_storage(const JsonTree::Value& entry) {
        const auto bytes = entry.number("bytes");
        const std::vector<std::string> paths = paths_of(entry);
        if (!bytes || paths.empty()) { return broken_storage(entry, "it lacks \"bytes\" or \"file\""); }
        const auto number = number_of_file(paths);
        if (!number) { return number.error(); }
        const auto offset = offset_of(entry, *number);
        if (!offset) { return offset.error(); }
        const SourceFile& file = model_.files[*number];
        if (!residency::detail::lies_inside(*offset, *bytes, file.bytes)) {
            return broken_storage(entry, residency::detail::in_bytes(*bytes) + " from " + std::to_string(*offset) +
                                             " on do not lie inside the " + residency::detail::in_bytes(file.bytes) +
                                             " of " + shown(file.path));
        }
        ends_[*number] = *offset + *bytes;
        const auto is_mutable = entry.find("mutable") ? entry.find("mutable")->boolean() : std::optional{false};
        if (!is_mutable) { return broken_storage(entry, "\"mutable\" is not a boolean"); }
        model_.storages.push_back({*number, *offset, *bytes, *is_mutable});
        return {};
    }
    /// The paths of a storage's file or of its pieces; none where one of them is missing or no name.
    [[nodiscard]] std::vector<std::string> paths_of(const JsonTree::Value& entry) const {
        const auto given = entry.find("file");
        if (!given) { return {}; }
        std::vector<std::string> paths;
        for (const auto& piece : given->is_array() ? given->children() : std::vector{*given}) {
            const auto name = piece.string();
            if (!name || name->empty()) { return {}; }
            paths.push_back(name->front() == '/' ? std::string{*name} : folder_ + std::string{*name});
        }
        return paths;
    }
    /// The number of the file of those paths, which is opened when it is named first.
    [[nodiscard]] Result<std::uint32_t> number_of_file(const std::vector<std::string>& paths) {
        const auto [known, fresh] = files_.try_emplace(paths, static_cast<std::uint32_t>(model_.files.size()));
        if (fresh) {
            const auto opened = paths.size() == 1 ? Input::try_open(paths[0]) : Input::try_open_pieces(paths);
            if (!opened) { return opened.error().in(shown(path_)); }
            model_.files.push_back(opened->source());
            ends_.push_back(0);
        }
        return known->second;
    }
    /// Where a storage begins in its file: where it says, or behind the storage before it in that file.
    [[nodiscard]] Result<std::uint64_t> offset_of(const JsonTree::Value& entry, std::uint32_t file) const {
        if (const auto given = entry.find("offset")) {
            const auto offset = given->number();
            if (!offset) { return broken_storage(entry, "its offset is not a whole number"); }
            return *offset;
        }
        const auto padded = residency::detail::checked_add(ends_[file], alignment_ - 1);
        if (!padded) { return broken_storage(entry, "its offset does not fit in 64 bits"); }
        return *padded & ~(alignment_ - 1);
    }
    /// Storages of the same bytes may be given more than once, but none may have a part of another. `place`: of all storages.
    [[nodiscard]] Status refuse_overlaps(std::uint64_t place) const {
        std::vector<std::uint32_t> order(model_.storages.size());
        for (std::uint32_t i = 0; i < order.size(); ++i) { order[i] = i; }
        const auto key = [&](std::uint32_t i) {
            const auto& storage = model_.storages[i];
            return std::array<std::uint64_t, 3>{storage.file, storage.offset_bytes, storage.bytes};
        };
        std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
        for (std::size_t i = 1; i < order.size(); ++i) {
            const auto before = key(order[i - 1]);
            const auto after = key(order[i]);
            if (before[0] == after[0] && before[1] + before[2] > after[1] && before != after) {
                return malformed(
                    path_, place,
                    "storages " + std::to_string(order[i - 1]) + " and " + std::to_string(order[i]) + " overlap");
            }
        }
        return {};
    }

    [[nodiscard]] Status read_weight(const JsonTree::Value& entry) {
        const auto name = entry.string("name");
        if (!name) { return malformed(path_, entry.place(), "a weight has no name"); }
        const auto broken = [&](const std::string& what) {
            return malformed(path_, entry.place(), "weight " + shown(*name) + ": " + what);
        };
        ModelFile::WeightEntry weight;
        weight.name = *name;
        const auto dtype = entry.string("dtype");
        const auto type = dtype ? find_any_dtype(*dtype) : std::nullopt;
        if (!type) { return broken(dtype ? unknown_type + (": found " + shown(*dtype)) : "it lacks \"dtype\""); }
        weight.dtype = *dtype;
        weight.type = *type;
        const auto shape = entry.find("shape");
        const auto strides = entry.find("strides");
        if (!shape || !read_numbers(*shape, weight.shape)) { return broken("it lacks a valid \"shape\""); }
        if (strides && (!read_numbers(*strides, weight.strides) || weight.strides.size() != weight.shape.size())) {
            return broken("its \"strides\" do not match its shape");
        }
        const auto storage = entry.number("storage");
        if (!storage || *storage >= model_.storages.size()) { return broken("it lies in no storage of this manifest"); }
        weight.storage = static_cast<std::uint32_t>(*storage);
        const auto offset =
            entry.find("offset_bytes") ? entry.find("offset_bytes")->number() : std::optional<std::uint64_t>{0};
        if (!offset) { return broken("\"offset_bytes\" is not a whole number"); }
        weight.offset_bytes = *offset;
        if (Status added = append_view(model_, std::move(weight)); !added) { return broken(added.error().message()); }
        if (const auto given = entry.find("bytes")) {
            if (given->number() != model_.weights.back().bytes) {
                return broken("it takes " + residency::detail::in_bytes(model_.weights.back().bytes) +
                              ", not what \"bytes\" says");
            }
        }
        return {};
    }
    /// False where it is no array of whole numbers.
    [[nodiscard]] static bool read_numbers(const JsonTree::Value& list, std::vector<std::uint64_t>& out) {
        if (!list.is_array()) { return false; }
        for (const auto& item : list.children()) {
            const auto number = item.number();
            if (!number) { return false; }
            out.push_back(*number);
        }
        return true;
    }

    const std::string& path_;
    std::string folder_;  // of the manifest
    std::uint64_t alignment_ = 1;
    std::map<std::vector<std::string>, std::uint32_t> files_;  // number of each, by its paths
    std::vector<std::uint64_t> ends_;                          // of the last storage in each file
    ModelFile model_;
};

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_manifest(const Input& input) {
    const auto tree = detail::JsonTree::try_read(input, 0, input.bytes());
    if (!tree) { return tree.error(); }
    detail::ManifestReader reader{input.path()};
    if (Status read = reader.read(tree->root()); !read) { return read.error(); }
    return std::move(reader.model());
}

RESIDENCY_INLINE Result<ModelFile> try_read_manifest(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    return try_read_manifest(*input);
}

}}}  // namespace residency::RESIDENCY_ABI::format
