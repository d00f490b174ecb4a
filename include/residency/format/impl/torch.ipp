// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/format/read_options.hpp"
#include "residency/format/shard_index.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/torch_archive.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/torch_stream.hpp"
#include "residency/format/torch_tree.hpp"
#include "residency/format/view.hpp"
#include "residency/format/zip.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// Appends the tensors of a pickle, which starts at byte `place`. `locate` finds the range of a storage in the input.
template <class Locate>
[[nodiscard]] Status append_torch(ModelFile& model, const Input& input, const TorchPickle& pickle, std::uint64_t place,
                                  const ReadOptions& options, const Locate& locate) {
    auto tensors = TorchTree::try_read(pickle, options.key);
    if (!tensors) { return tensors.error(); }
    for (auto& entry : tensors->passed_over) {
        if (options.strict) {
            return unsupported(input.path(), place, shown(entry.name) + " would be left out: " + entry.why);
        }
        model.passed_over.push_back(std::move(entry));
    }
    const auto file = static_cast<std::uint32_t>(model.files.size());
    model.files.push_back(input.source());
    model.weights.reserve(model.weights.size() + tensors->tensors.size());
    std::unordered_map<std::string_view, std::uint32_t> storages;  // by key
    for (auto& [name, tensor] : tensors->tensors) {
        const std::string what = "tensor " + shown(name);
        const auto [known, fresh] =
            storages.try_emplace(tensor.storage.key, static_cast<std::uint32_t>(model.storages.size()));
        if (fresh) {
            const Result<ZipDirectory::Range> data = locate(tensor.storage);
            if (!data) { return data.error().in(what); }
            model.storages.push_back({file, data->offset, data->bytes, false});
        }
        // An empty view may begin anywhere.
        const bool is_empty = std::find(tensor.shape.begin(), tensor.shape.end(), 0U) != tensor.shape.end();
        const auto from = residency::detail::checked_multiply(is_empty ? 0 : tensor.offset_elements,
                                                              tensor.dtype.type.block_bits() / 8);
        if (!from) { return malformed(input.path(), place, what + ": its offset does not fit in 64 bits"); }
        if (Status added =
                append_view(model, {std::move(name), std::string{tensor.dtype.name}, tensor.dtype.type,
                                    std::move(tensor.shape), std::move(tensor.strides), known->second, *from, 0});
            !added) {
            return malformed(input.path(), place, what + ": " + added.error().message());
        }
    }
    return {};
}

/// Appends the tensors of one file.
[[nodiscard]] inline Status append_torch_file(ModelFile& model, const Input& input, const ReadOptions& options) {
    constexpr std::uint64_t longest_pickle = 100'000'000;
    const auto start = input.try_text(0, (std::min)(input.bytes(), std::uint64_t{torch_magic_end}));
    if (!start) { return start.error(); }
    if (is_torch_before_archives(*start)) {
        const auto stream = TorchStream::try_read(input, longest_pickle);
        if (!stream) { return stream.error(); }
        return append_torch(model, input, stream->pickle(), 0, options,
                            [&](const PickledStorage& storage) { return stream->try_locate(storage); });
    }
    if (Status known = refuse_other_kinds(input); !known) { return known; }
    const auto zip = ZipDirectory::try_read(input, 0, input.bytes());
    if (!zip) { return zip.error(); }
    const auto archive = TorchArchive::try_read(input, *zip, 0, longest_pickle);
    if (!archive) { return archive.error(); }
    const auto pickle = TorchPickle::try_read(archive->pickle(), input.path(), archive->pickle_offset());
    if (!pickle) { return pickle.error(); }
    return append_torch(model, input, *pickle, archive->pickle_offset(), options,
                        [&](const PickledStorage& storage) { return archive->try_locate(storage); });
}

}  // namespace detail

RESIDENCY_INLINE Result<ModelFile> try_read_torch(const Input& input, const ReadOptions& options) {
    ModelFile model;
    model.format = "torch";
    if (Status appended = detail::append_torch_file(model, input, options); !appended) { return appended.error(); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_torch_index(const Input& input, const ReadOptions& options) {
    ModelFile model;
    model.format = "torch";
    const auto append = [&](const Input& shard) { return detail::append_torch_file(model, shard, options); };
    if (Status appended = detail::append_shards(model, input, options, append); !appended) { return appended.error(); }
    return model;
}

RESIDENCY_INLINE Result<ModelFile> try_read_torch(const std::string& path, const ReadOptions& options) {
    const auto input = Input::try_open(path);
    if (!input) { return input.error(); }
    if (path.ends_with(".json")) { return try_read_torch_index(*input, options); }
    auto model = try_read_torch(*input, options);
    if (model) { detail::note_index_beside(*model, path); }
    return model;
}

}}}  // namespace residency::RESIDENCY_ABI::format
