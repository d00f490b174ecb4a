// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/gguf.hpp"
#include "residency/format/input.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/manifest.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/open.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/torch_archive.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

RESIDENCY_INLINE Result<FileFormat> format_of(const Input& input, std::string& start) {
    const std::string& path = input.path();
    start.resize(static_cast<std::size_t>(std::min<std::uint64_t>(torch_magic_end, input.bytes())));
    if (Status read = input.try_read(0, std::as_writable_bytes(std::span{start})); !read) { return read.error(); }
    if (start.starts_with(std::string_view{packed_magic, sizeof packed_magic})) { return FileFormat::packed; }
    if (start.starts_with("GGUF") || path.ends_with(".gguf")) { return FileFormat::gguf; }
    if (path.ends_with(".json") && path.find(".bin.index.", path.rfind('/') + 1) != std::string::npos) {
        return FileFormat::torch_index;
    }
    if (path.ends_with(".index.json")) { return FileFormat::safetensors_index; }
    const bool has_header = start.size() > 8 && start[8] == '{' && start[0] != '{' && !start.starts_with("PK");
    if (path.ends_with(".safetensors") || has_header) { return FileFormat::safetensors; }
    if (start.starts_with("PK\3\4") || path.ends_with(".pt2")) {
        const auto zip = ZipDirectory::try_read(input, 0, input.bytes());
        if (!zip) { return zip.error(); }
        return TorchArchive::find_pickle(*zip) != nullptr ? FileFormat::torch_archive : FileFormat::aoti_package;
    }
    if (is_torch_before_archives(start)) { return FileFormat::torch; }
    if (!path.ends_with(".json")) { return FileFormat::unknown; }
    const auto tree = JsonTree::try_read(input, 0, input.bytes());
    if (!tree) { return tree.error(); }
    if (tree->root().find("weight_map")) { return FileFormat::safetensors_index; }
    const bool is_manifest = tree->root().find("weights") && tree->root().find("storages");
    return is_manifest ? FileFormat::manifest : FileFormat::aoti_config;
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    std::string start;
    const auto format = detail::format_of(*input, start);
    if (!format) { return format.error(); }
    switch (*format) {
        case detail::FileFormat::gguf: {
            auto file = try_read_gguf(path);
            if (!file) { return file.error(); }
            return std::move(file->model);
        }
        case detail::FileFormat::packed: return try_read_packed(*input);
        case detail::FileFormat::safetensors: return try_read_safetensors(*input);
        case detail::FileFormat::safetensors_index: return try_read_safetensors_index(*input);
        case detail::FileFormat::torch:
        case detail::FileFormat::torch_archive: return try_read_torch(*input);
        case detail::FileFormat::torch_index: return try_read_torch_index(*input);
        case detail::FileFormat::manifest: return try_read_manifest(*input);
        case detail::FileFormat::aoti_package:
        case detail::FileFormat::aoti_config:
            return Error{ErrorKind::unsupported,
                         detail::shown(path) +
                             ": byte 0: none of the formats that this reads; it may be what AOTInductor saved: call "
                             "try_read_model_or_aoti (residency/format/aoti.hpp)",
                         FileLocation{path, 0, start, "safetensors, GGUF, what PyTorch saved, or a manifest"}};
        case detail::FileFormat::unknown: break;
    }
    return Error{ErrorKind::unsupported,
                 detail::shown(path) + ": byte 0: not a model file of a known format: it starts with " +
                     (start.empty() ? "nothing" : detail::shown(start)),
                 FileLocation{path, 0, start, "safetensors, GGUF, what PyTorch or AOTInductor saved, or a manifest"}};
}

}}}  // namespace residency::RESIDENCY_ABI::format
