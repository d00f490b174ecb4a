// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "residency/format/executorch.hpp"
#include "residency/format/folder.hpp"
#include "residency/format/gguf.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/manifest.hpp"
#include "residency/format/open.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

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
                         shown(input.path()) + ": byte 0: " +
                             (format == FileFormat::aoti_config
                                  ? "JSON that is not a model's index or a manifest"
                                  : "a ZIP archive that torch.save did not write: it has no data.pkl; unpack it, and "
                                    "give what lies in it: safetensors, GGUF, or a file of PyTorch or ExecuTorch") +
                             "; if AOTInductor saved it, call try_read_model_or_aoti (residency/format/aoti.hpp)",
                         FileLocation{input.path(), 0, start,
                                      "safetensors, GGUF, what PyTorch or ExecuTorch saved, or a manifest"}};
        case FileFormat::unknown: break;
    }
    return Error{ErrorKind::unsupported,
                 shown(input.path()) + ": byte 0: not a model file of a known format: it starts with " +
                     (start.empty() ? "nothing" : shown(start)) +
                     "; known are safetensors, GGUF, what PyTorch, ExecuTorch or AOTInductor saved, packed files and "
                     "manifests",
                 FileLocation{input.path(), 0, start,
                              "safetensors, GGUF, what PyTorch, ExecuTorch or AOTInductor saved, or a manifest"}};
}

/// Reads a model file in the format that its first bytes show.
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

/// try_read_model with any key.
[[nodiscard]] inline Result<ModelFile> read_path(const std::string& path, const ReadOptions& options);

/// try_read_model_parts without prefixes, and with any key.
[[nodiscard]] RESIDENCY_INLINE Result<ModelFile> read_parts(const std::vector<std::string>& paths,
                                                            const ReadOptions& options);

/// Appends a part of a list, at that path. `names`: of the tensors so far.
[[nodiscard]] inline Status append_part(ModelFile& whole, std::unordered_set<std::string>& names, ModelFile part,
                                        const std::string& path) {
    if (whole.format.empty()) { whole.format = part.format; }
    if ((", " + whole.format + ", ").find(", " + part.format + ", ") == std::string::npos) {
        whole.format += ", " + part.format;
    }
    if (part.weights.size() >= UINT32_MAX - whole.storages.size()) { return malformed(path, 0, "too many tensors"); }
    for (const auto& weight : part.weights) {
        if (!names.insert(weight.name).second) {
            return malformed(path, 0,
                             "tensor " + shown(weight.name) +
                                 " is in an earlier file of the list too; leave that file out, give the index that "
                                 "says which one holds it, or give each model a prefix, as target=PATH draft=PATH");
        }
    }
    append_model(whole, std::move(part));
    return {};
}

/// The prefix of a part PREFIX=PATH; empty where it is a path alone.
[[nodiscard]] inline std::string prefix_of(const std::string& part) {
    const std::size_t end = part.find('=');
    if (end == std::string::npos || part.find('/') < end) { return {}; }
    std::error_code ignored;
    return std::filesystem::exists(part, ignored) ? std::string{} : part.substr(0, end);
}

/// Reads models, each with its prefix.
[[nodiscard]] inline Result<ModelFile> read_models(const std::vector<std::string>& parts, const ReadOptions& options) {
    ModelFile whole;
    std::unordered_set<std::string> names;  // of the parts so far
    std::unordered_set<std::string> prefixes;
    for (const std::string& part : parts) {
        const std::string prefix = prefix_of(part);
        if (!prefix.empty() && !prefixes.insert(prefix).second) {
            return Error{ErrorKind::invalid_argument, shown(part) + ": the prefix " + shown(prefix) +
                                                          " is that of an earlier part too; give each "
                                                          "model a prefix of its own"};
        }
        const std::string path = prefix.empty() ? part : part.substr(prefix.size() + 1);
        auto model = read_path(path, options);
        if (!model) { return model.error(); }
        const auto rename = [&](std::string& name) { name = prefix.empty() ? name : prefix + '.' + name; };
        for (auto& weight : model->weights) { rename(weight.name); }
        for (auto& entry : model->metadata) { rename(entry.key); }
        for (auto& entry : model->passed_over) { rename(entry.name); }
        if (Status added = append_part(whole, names, std::move(*model), path); !added) { return added.error(); }
    }
    return whole;
}

inline Result<ModelFile> read_path(const std::string& path, const ReadOptions& options) {
    if (is_folder(path)) {
        const auto are_parts = [&](const std::vector<std::string>& paths) {
            if (!paths.front().ends_with(".gguf")) { return false; }
            const auto file = read_gguf_parts(paths, options, false);
            const GgufValue* count = file ? file->headers[0].find("split.count") : nullptr;
            return count != nullptr && count->as_count() == paths.size();
        };
        const auto folder = try_folder_of_model(path);
        if (!folder) { return folder.error(); }
        const auto found = try_find_model_in(*folder, are_parts);
        if (!found) { return found.error(); }
        const std::string whole = found->size() == 1 ? whole_file_beside(found->front()) : std::string{};
        if (whole.empty()) { return read_parts(*found, options); }
        auto model = read_path(whole, options);
        if (model) {
            model->notes.push_back(shown(found->front()) + ": passed over, since " + shown(whole) +
                                   " is whole and not in that index; give the index to open what it lists");
        }
        return model;
    }
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    std::string start;
    const auto format = format_of(*input, start);
    if (!format) { return format.error(); }
    if (*format == FileFormat::gguf) {  // the path of one of several files stands for all
        auto file = try_read_gguf(path, options);
        if (!file) { return file.error(); }
        return std::move(file->model);
    }
    if (*format == FileFormat::executorch) { return try_read_executorch(path); }  // with its data beside it
    auto model = read_as(*format, *input, start, options);
    const bool is_index = *format == FileFormat::safetensors_index || *format == FileFormat::torch_index;
    if (model && !is_index) { note_index_beside(*model, path); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> read_parts(const std::vector<std::string>& paths, const ReadOptions& options) {
    if (paths.size() == 1) { return read_path(paths.front(), options); }
    std::size_t models = 0;
    std::size_t ggufs = 0;
    std::size_t executorchs = 0;
    bool has_folder = false;
    const std::string* first_model = nullptr;
    const std::string* no_model = nullptr;
    for (const std::string& path : paths) {
        if (is_folder(path)) {
            ++models;
            has_folder = true;
            continue;
        }
        const auto input = Input::try_open(path);
        if (!input) { return input.error(); }
        const auto start = input->try_text(0, (std::min)(input->bytes(), std::uint64_t{torch_magic_end}));
        if (!start) { return start.error(); }
        if (begins_model(*start, path)) {
            ++models;
            first_model = first_model == nullptr ? &path : first_model;
        } else if (no_model == nullptr) {
            no_model = &path;
        }
        if (start->starts_with("GGUF")) { ++ggufs; }
        if (is_executorch_program(*start) || is_executorch_data(*start)) { ++executorchs; }
    }
    if ((models > 1 || has_folder) && no_model != nullptr) {
        const auto input = Input::try_open(*no_model);
        if (!input) { return input.error(); }
        if (Status known = refuse_other_kinds(*input); !known) { return known.error(); }
        return malformed(*no_model, 0,
                         "neither a part of a model, as others of the list are, nor a piece of one file; give the "
                         "parts alone, or join the pieces of this one first");
    }
    if (models == 1 && first_model != &paths.front()) {
        return malformed(paths.front(), 0, "the first of several pieces does not begin a model file",
                         shown(*first_model) + " that begins one, further on in the list",
                         "the pieces in the order of their bytes");
    }
    if (models <= 1) {
        const auto whole = Input::try_open_pieces(paths);
        if (!whole) { return whole.error(); }
        return read_input(*whole, options);
    }
    if (ggufs == paths.size()) {
        auto file = read_gguf_parts(paths, options, false);
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
        if (is_folder(path)) {
            part = read_path(path, untied);
        } else {
            const auto input = Input::try_open(path);
            if (!input) { return input.error(); }
            part = read_input(*input, untied);
        }
        if (!part) { return part.error(); }
        if (Status added = append_part(whole, names, std::move(*part), path); !added) { return added.error(); }
    }
    if (options.ties_from_metadata) { tie_by_metadata(whole); }
    return whole;
}

RESIDENCY_INLINE Result<ModelFile> with_key_used(Result<ModelFile> model, const std::string& path,
                                                 const ReadOptions& options) {
    if (!model || options.key.empty() || (", " + model->format + ",").find(", torch,") != std::string::npos) {
        return model;
    }
    return Error{ErrorKind::invalid_argument,
                 shown(path) + ": the key " + shown(options.key) +
                     " chooses a part of what PyTorch saved, and this is " + model->format + ": leave the key out",
                 FileLocation{path, 0, model->format, "torch"}};
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path, const ReadOptions& options) {
    return detail::with_key_used(detail::read_path(path, options), path, options);
}

RESIDENCY_INLINE Result<ModelFile> try_read_model_parts(const std::vector<std::string>& paths,
                                                        const ReadOptions& options) {
    const auto has_prefix = [](const std::string& path) { return !detail::prefix_of(path).empty(); };
    auto model = std::any_of(paths.begin(), paths.end(), has_prefix) ? detail::read_models(paths, options)
                                                                     : detail::read_parts(paths, options);
    return detail::with_key_used(std::move(model), paths.empty() ? std::string{} : paths.front(), options);
}

}}}  // namespace residency::RESIDENCY_ABI::format
