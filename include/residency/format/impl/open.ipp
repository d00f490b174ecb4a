// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/gguf.hpp"
#include "residency/format/input.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/manifest.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/open.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/torch_archive.hpp"
#include "residency/format/zip.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

RESIDENCY_INLINE Result<ModelFile> try_read_model(const std::string& path) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    std::array<char, detail::torch_magic_end> head{};
    const auto have = static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), input->bytes()));
    if (Status read = input->try_read(0, std::as_writable_bytes(std::span{head}).first(have)); !read) {
        return read.error();
    }
    const std::string_view start{head.data(), have};
    if (start.starts_with("GGUF") || path.ends_with(".gguf")) {
        auto file = try_read_gguf(path);
        if (!file) { return file.error(); }
        return std::move(file->model);
    }
    if (path.ends_with(".json") && path.find(".bin.index.", path.rfind('/') + 1) != std::string::npos) {
        return try_read_torch_index(*input);
    }
    if (path.ends_with(".index.json")) { return try_read_safetensors_index(*input); }
    if (path.ends_with(".safetensors") ||
        (have > 8 && start[8] == '{' && start[0] != '{' && !start.starts_with("PK"))) {
        return try_read_safetensors(*input);
    }
    if (start.starts_with("PK\3\4") || path.ends_with(".pt2")) {
        const auto zip = detail::ZipDirectory::try_read(*input, 0, input->bytes());
        if (!zip) { return zip.error(); }
        return detail::TorchArchive::find_pickle(*zip) != nullptr ? detail::read_torch(*input, *zip)
                                                                  : detail::read_aoti_package(*input, *zip);
    }
    if (detail::is_torch_before_archives(start)) { return try_read_torch(*input); }
    if (path.ends_with(".json")) {
        const auto tree = detail::JsonTree::try_read(*input, 0, input->bytes());
        if (!tree) { return tree.error(); }
        if (tree->root().find("weight_map")) { return try_read_safetensors_index(*input); }
        const auto weights = tree->root().find("weights");
        return weights && tree->root().find("storages") ? try_read_manifest(*input) : try_read_aoti_config(*input);
    }
    return Error{
        ErrorKind::unsupported,
        detail::shown(path) + ": byte 0: not a model file of a known format: it starts with " +
            (have == 0 ? "nothing" : detail::shown(start)),
        Place{path, 0, std::string{start}, "safetensors, GGUF, what PyTorch or AOTInductor saved, or a manifest"}};
}

}}}  // namespace residency::RESIDENCY_ABI::format
