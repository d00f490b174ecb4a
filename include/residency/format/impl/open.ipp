// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/executorch.hpp"
#include "residency/format/folder.hpp"
#include "residency/format/gguf.hpp"
#include "residency/format/gguf_value.hpp"
#include "residency/format/input.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/manifest.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/open.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/read_options.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/shard_index.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/torch_archive.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Whether a safetensors file may begin so: a length of 8 bytes that a header may have, and its first character.
[[nodiscard]] inline bool has_safetensors_header(std::string_view start) noexcept {
    constexpr std::size_t zeros_from = 4;
    return start.size() > 8 && start[8] == '{' &&
           start.substr(zeros_from, 8 - zeros_from).find_first_not_of('\0') == std::string_view::npos;
}

RESIDENCY_INLINE Result<FileFormat> format_of(const Input& input, std::string& start) {
    const std::string& path = input.path();
    if (Status known = refuse_other_kinds(input, path.ends_with(".json")); !known) { return known.error(); }
    start.resize(static_cast<std::size_t>(std::min<std::uint64_t>(torch_magic_end, input.bytes())));
    if (Status read = input.try_read(0, std::as_writable_bytes(std::span{start})); !read) { return read.error(); }
    if (start.starts_with(std::string_view{packed_magic, sizeof packed_magic})) { return FileFormat::packed; }
    if (start.starts_with("GGUF")) { return FileFormat::gguf; }
    if (is_executorch_program(start) || is_executorch_data(start)) { return FileFormat::executorch; }
    if (path.ends_with(".json") && path.find(".bin.index.", path.rfind('/') + 1) != std::string::npos) {
        return FileFormat::torch_index;
    }
    if (path.ends_with(".index.json")) { return FileFormat::safetensors_index; }
    if (has_safetensors_header(start)) { return FileFormat::safetensors; }
    if (start.starts_with("PK\3\4") || path.ends_with(".pt2")) {
        const auto zip = ZipDirectory::try_read(input, 0, input.bytes());
        if (!zip) { return zip.error(); }
        return TorchArchive::find_pickle(*zip) != nullptr ? FileFormat::torch_archive : FileFormat::aoti_package;
    }
    if (is_torch_before_archives(start)) { return FileFormat::torch; }
    if (path.ends_with(".gguf")) { return FileFormat::gguf; }
    if (path.ends_with(".safetensors")) { return FileFormat::safetensors; }
    if (!path.ends_with(".json")) { return FileFormat::unknown; }
    const auto tree = JsonTree::try_read(input, 0, input.bytes());
    if (!tree) { return tree.error(); }
    if (tree->root().find("weight_map")) { return FileFormat::safetensors_index; }
    if (tree->root().find("model_type") || tree->root().find("architectures") || tree->root().find("_class_name")) {
        return unsupported(path, 0,
                           "a model's configuration, which holds no weights; give its folder, or the file of weights "
                           "beside it");
    }
    const auto members = tree->root().children();
    const auto config = tree->root().find("config");
    const bool may_be_aoti = members.empty() || members.front().is_array() || (config && config->is_object());
    const bool is_manifest = tree->root().find("weights") && tree->root().find("storages");
    if (is_manifest) { return FileFormat::manifest; }
    if (may_be_aoti) { return FileFormat::aoti_config; }
    return unsupported(path, 0, "JSON that describes no weights; give a file of weights, or the folder of the model");
}

/// The model in an input of that format, whose path stands for it alone. `start`: its first bytes.
[[nodiscard]] inline Result<ModelFile> read_as(FileFormat format, const Input& input, const std::string& start,
                                               const ReadOptions& options) {
    switch (format) {
        case FileFormat::gguf: {
            auto file = try_read_gguf(input, options);
            if (!file) { return file.error(); }
            return std::move(file->model);
        }
        case FileFormat::packed: return try_read_packed(input);
        case FileFormat::safetensors: return try_read_safetensors(input, options);
        case FileFormat::safetensors_index: return try_read_safetensors_index(input, options);
        case FileFormat::torch:
        case FileFormat::torch_archive: return try_read_torch(input, options);
        case FileFormat::torch_index: return try_read_torch_index(input, options);
        case FileFormat::manifest: return try_read_manifest(input);
        case FileFormat::executorch: return try_read_executorch({&input, 1});
        case FileFormat::aoti_package:
        case FileFormat::aoti_config:
            return Error{ErrorKind::unsupported,
                         shown(input.path()) +
                             ": byte 0: none of the formats that this reads; it may be what AOTInductor saved: call "
                             "try_read_model_or_aoti (residency/format/aoti.hpp)",
                         FileLocation{input.path(), 0, start,
                                      "safetensors, GGUF, what PyTorch or ExecuTorch saved, or a manifest"}};
        case FileFormat::unknown: break;
    }
    return Error{ErrorKind::unsupported,
                 shown(input.path()) + ": byte 0: not a model file of a known format: it starts with " +
                     (start.empty() ? "nothing" : shown(start)),
                 FileLocation{input.path(), 0, start,
                              "safetensors, GGUF, what PyTorch, ExecuTorch or AOTInductor saved, or a manifest"}};
}

/// The same, of the format that it looks like.
[[nodiscard]] inline Result<ModelFile> read_input(const Input& input, const ReadOptions& options) {
    std::string start;
    const auto format = format_of(input, start);
    if (!format) { return format.error(); }
    return read_as(*format, input, start, options);
}

/// Whether a model file, and not a later piece of one, begins with these bytes or has this name.
[[nodiscard]] inline bool begins_model(std::string_view start, const std::string& path) noexcept {
    return start.starts_with("GGUF") || start.starts_with(std::string_view{packed_magic, sizeof packed_magic}) ||
           start.starts_with("PK\3\4") || is_executorch_program(start) || is_executorch_data(start) ||
           has_safetensors_header(start) || is_torch_before_archives(start) || path.ends_with(".json");
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path, const ReadOptions& options) {
    if (detail::is_folder(path)) {
        const auto are_parts = [&](const std::vector<std::string>& paths) {
            if (!paths.front().ends_with(".gguf")) { return false; }
            const auto file = detail::read_gguf_parts(paths, options, false);
            const GgufValue* count = file ? file->headers[0].find("split.count") : nullptr;
            return count != nullptr && count->as_count() == paths.size();
        };
        const auto found = detail::try_find_model_in(path, are_parts);
        if (!found) { return found.error(); }
        return try_read_model_parts(*found, options);
    }
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    std::string start;
    const auto format = detail::format_of(*input, start);
    if (!format) { return format.error(); }
    if (*format == detail::FileFormat::gguf) {  // the path of one of several files stands for all
        auto file = try_read_gguf(path, options);
        if (!file) { return file.error(); }
        return std::move(file->model);
    }
    if (*format == detail::FileFormat::executorch) { return try_read_executorch(path); }  // with its data beside it
    auto model = detail::read_as(*format, *input, start, options);
    const bool is_index =
        *format == detail::FileFormat::safetensors_index || *format == detail::FileFormat::torch_index;
    if (model && !is_index) { detail::note_index_beside(*model, path); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_model_parts(const std::vector<std::string>& paths,
                                                        const ReadOptions& options) {
    if (paths.size() == 1) { return try_read_model(paths.front(), options); }
    std::size_t models = 0;
    std::size_t ggufs = 0;
    std::size_t executorchs = 0;
    bool has_folder = false;
    const std::string* first_model = nullptr;
    const std::string* no_model = nullptr;
    for (const std::string& path : paths) {
        if (detail::is_folder(path)) {
            ++models;
            has_folder = true;
            continue;
        }
        const auto input = Input::try_open(path);
        if (!input) { return input.error(); }
        const auto start = input->try_text(0, (std::min)(input->bytes(), std::uint64_t{detail::torch_magic_end}));
        if (!start) { return start.error(); }
        if (detail::begins_model(*start, path)) {
            ++models;
            first_model = first_model == nullptr ? &path : first_model;
        } else if (no_model == nullptr) {
            no_model = &path;
        }
        if (start->starts_with("GGUF")) { ++ggufs; }
        if (detail::is_executorch_program(*start) || detail::is_executorch_data(*start)) { ++executorchs; }
    }
    if ((models > 1 || has_folder) && no_model != nullptr) {
        const auto input = Input::try_open(*no_model);
        if (!input) { return input.error(); }
        if (Status known = detail::refuse_other_kinds(*input); !known) { return known.error(); }
        return detail::malformed(
            *no_model, 0,
            "neither a part of a model, as others of the list are, nor a piece of one file; give the "
            "parts alone, or join the pieces of this one first");
    }
    if (models == 1 && first_model != &paths.front()) {
        return detail::malformed(paths.front(), 0, "the first of several pieces does not begin a model file",
                                 detail::shown(*first_model) + " that begins one, further on in the list",
                                 "the pieces in the order of their bytes");
    }
    if (models <= 1) {
        const auto whole = Input::try_open_pieces(paths);
        if (!whole) { return whole.error(); }
        return detail::read_input(*whole, options);
    }
    if (ggufs == paths.size()) {
        auto file = detail::read_gguf_parts(paths, options, false);
        if (!file) { return file.error(); }
        return std::move(file->model);
    }
    if (executorchs == paths.size()) {
        std::vector<Input> inputs;
        for (const std::string& path : paths) {
            auto input = Input::try_open(path);
            if (!input) { return input.error(); }
            inputs.push_back(std::move(*input));
        }
        return try_read_executorch(inputs);
    }
    ModelFile whole;
    std::unordered_set<std::string> names;  // of the parts so far
    ReadOptions untied = options;
    untied.ties_from_metadata = false;  // what one part ties another may hold
    for (const std::string& path : paths) {
        Result<ModelFile> part = Error{ErrorKind::io, path};
        if (detail::is_folder(path)) {
            part = try_read_model(path, untied);
        } else {
            const auto input = Input::try_open(path);
            if (!input) { return input.error(); }
            part = detail::read_input(*input, untied);
        }
        if (!part) { return part.error(); }
        if (whole.format.empty()) { whole.format = part->format; }
        if ((", " + whole.format + ", ").find(", " + part->format + ", ") == std::string::npos) {
            whole.format += ", " + part->format;
        }
        if (part->weights.size() >= UINT32_MAX - whole.storages.size()) {
            return detail::malformed(path, 0, "too many tensors");
        }
        for (const auto& weight : part->weights) {
            if (!names.insert(weight.name).second) {
                return detail::malformed(path, 0,
                                         "tensor " + detail::shown(weight.name) +
                                             " is in an earlier file of the list too; leave that file out, or give "
                                             "the index that says which one holds it");
            }
        }
        detail::append_model(whole, std::move(*part));
    }
    if (options.ties_from_metadata) { detail::tie_by_metadata(whole); }
    return whole;
}

}}}  // namespace residency::RESIDENCY_ABI::format
