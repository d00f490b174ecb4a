// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/gguf_type.hpp"
#include "residency/format/input.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/manifest.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/safetensors_dtype.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_dtype.hpp"
#include "residency/format/view.hpp"
#include "residency/model/checked.hpp"

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

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_manifest(const Input& input) {
    const auto tree = detail::JsonTree::try_read(input, 0, input.bytes());
    if (!tree) { return tree.error(); }
    const auto root = tree->root();
    const std::string& path = input.path();
    const auto storages = root.find("storages");
    const auto weights = root.find("weights");
    if (!storages || !storages->is_array() || !weights || !weights->is_array()) {
        return detail::malformed(path, root.place(),
                                 "not a manifest: it lacks the arrays \"storages\" and \"weights\"");
    }
    ModelFile model;
    const auto format = root.find("format");
    const auto format_name = format ? format->string() : std::nullopt;
    model.format = format_name ? std::string{*format_name} : std::string{"manifest"};
    std::uint64_t alignment = 1;
    if (const auto given = root.find("alignment")) {
        const auto number = given->number();
        if (!number || *number == 0 || (*number & (*number - 1)) != 0 || *number > (std::uint64_t{1} << 30)) {
            return detail::malformed(path, given->place(), "\"alignment\" is not a power of two");
        }
        alignment = *number;
    }

    std::map<std::vector<std::string>, std::uint32_t> files;
    std::vector<std::uint64_t> ends;
    const std::string folder = detail::folder_of(path);
    for (const auto& entry : storages->children()) {
        const auto broken = [&](const std::string& what) {
            return detail::malformed(path, entry.place(),
                                     "storage " + std::to_string(model.storages.size()) + ": " + what);
        };
        const auto bytes = entry.number("bytes");
        const auto given_file = entry.find("file");
        std::vector<std::string> paths;
        const auto add_path = [&](const detail::JsonTree::Value& value) {
            const auto name = value.string();
            if (!name || name->empty()) { return false; }
            paths.push_back(name->front() == '/' ? std::string{*name} : folder + std::string{*name});
            return true;
        };
        bool has_file = given_file.has_value();
        if (has_file && given_file->is_array()) {
            for (const auto& piece : given_file->children()) { has_file = has_file && add_path(piece); }
        } else {
            has_file = has_file && add_path(*given_file);
        }
        if (!bytes || !has_file || paths.empty()) { return broken("it lacks \"bytes\" or \"file\""); }
        const auto [known, fresh] = files.try_emplace(paths, static_cast<std::uint32_t>(model.files.size()));
        if (fresh) {
            const auto opened = paths.size() == 1 ? Input::try_open(paths[0]) : Input::try_open_pieces(paths);
            if (!opened) { return opened.error().in(detail::shown(path)); }
            model.files.push_back(opened->source());
            ends.push_back(0);
        }
        std::uint64_t& end = ends[known->second];
        std::optional<std::uint64_t> offset;
        if (const auto given = entry.find("offset")) {
            offset = given->number();
            if (!offset) { return broken("its offset is not a whole number"); }
        } else {
            offset = residency::detail::checked_add(end, alignment - 1);
            if (!offset) { return broken("its offset does not fit in 64 bits"); }
            *offset &= ~(alignment - 1);
        }
        const SourceFile& file = model.files[known->second];
        if (!residency::detail::lies_inside(*offset, *bytes, file.bytes)) {
            return broken(std::to_string(*bytes) + " bytes from " + std::to_string(*offset) +
                          " on do not lie inside the " + std::to_string(file.bytes) + " bytes of " +
                          detail::shown(file.path));
        }
        end = *offset + *bytes;
        const auto is_mutable = entry.find("mutable") ? entry.find("mutable")->boolean() : std::optional{false};
        if (!is_mutable) { return broken("\"mutable\" is not a boolean"); }
        model.storages.push_back({known->second, *offset, *bytes, *is_mutable});
    }
    std::vector<std::uint32_t> order(model.storages.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) { order[i] = i; }
    const auto key = [&](std::uint32_t i) {
        const auto& storage = model.storages[i];
        return std::array<std::uint64_t, 3>{storage.file, storage.offset_bytes, storage.bytes};
    };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    for (std::size_t i = 1; i < order.size(); ++i) {
        const auto before = key(order[i - 1]);
        const auto after = key(order[i]);
        if (before[0] == after[0] && before[1] + before[2] > after[1] && before != after) {
            return detail::malformed(
                path, storages->place(),
                "storages " + std::to_string(order[i - 1]) + " and " + std::to_string(order[i]) + " overlap");
        }
    }

    for (const auto& entry : weights->children()) {
        const auto name = entry.string("name");
        if (!name) { return detail::malformed(path, entry.place(), "a weight has no name"); }
        const auto broken = [&](const std::string& what) {
            return detail::malformed(path, entry.place(), "weight " + detail::shown(*name) + ": " + what);
        };
        ModelFile::WeightEntry weight;
        weight.name = *name;
        const auto dtype = entry.string("dtype");
        const auto type = dtype ? detail::find_any_dtype(*dtype) : std::nullopt;
        if (!type) { return broken(dtype ? "an unknown type " + detail::shown(*dtype) : "it lacks \"dtype\""); }
        weight.dtype = *dtype;
        weight.type = *type;
        const auto shape = entry.find("shape");
        const auto strides = entry.find("strides");
        const auto numbers = [](const detail::JsonTree::Value& list, std::vector<std::uint64_t>& out) {
            if (!list.is_array()) { return false; }
            for (const auto& item : list.children()) {
                const auto number = item.number();
                if (!number) { return false; }
                out.push_back(*number);
            }
            return true;
        };
        if (!shape || !numbers(*shape, weight.shape)) { return broken("it lacks a valid \"shape\""); }
        if (strides && (!numbers(*strides, weight.strides) || weight.strides.size() != weight.shape.size())) {
            return broken("its \"strides\" do not match its shape");
        }
        const auto storage = entry.number("storage");
        if (!storage || *storage >= model.storages.size()) { return broken("it lies in no storage of this manifest"); }
        weight.storage = static_cast<std::uint32_t>(*storage);
        const auto offset =
            entry.find("offset_bytes") ? entry.find("offset_bytes")->number() : std::optional<std::uint64_t>{0};
        if (!offset) { return broken("\"offset_bytes\" is not a whole number"); }
        weight.offset_bytes = *offset;
        if (Status added = detail::append_view(model, std::move(weight)); !added) {
            return broken(added.error().message());
        }
        if (const auto given = entry.find("bytes")) {
            if (given->number() != model.weights.back().bytes) {
                return broken("it takes " + std::to_string(model.weights.back().bytes) +
                              " bytes, not what \"bytes\" says");
            }
        }
    }
    if (Status unique = detail::refuse_duplicates(model, path, weights->place()); !unique) { return unique.error(); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_manifest(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    return try_read_manifest(*input);
}

}}}  // namespace residency::RESIDENCY_ABI::format
