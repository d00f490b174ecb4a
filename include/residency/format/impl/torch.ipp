// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "residency/format/folder.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/format/torch.hpp"
#include "residency/format/torch_tree.hpp"
#include "residency/format/view.hpp"
#include "residency/model/number.hpp"

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
    const std::size_t first_storage = model.storages.size();
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
    separate_storages(model, first_storage);
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

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE const ZipDirectory::Entry* TorchArchive::find_pickle(const ZipDirectory& zip) noexcept {
    for (const auto& entry : zip.entries()) {
        if (entry.name.ends_with(pickle_tail) && entry.name.find('/') == entry.name.size() - pickle_tail.size()) {
            return &entry;
        }
    }
    return nullptr;
}

RESIDENCY_INLINE Result<TorchArchive> TorchArchive::try_read(const Input& input, const ZipDirectory& zip,
                                                             std::uint64_t begin, std::uint64_t longest_pickle) {
    const ZipDirectory::Entry* entry = find_pickle(zip);
    if (entry == nullptr) {
        return unsupported(
            input.path(), begin,
            "a ZIP archive that torch.save did not write: it has no data.pkl: unpack it, and give what lies in it");
    }
    TorchArchive archive{input, zip, entry->name.substr(0, entry->name.size() - pickle_tail.size() + 1)};
    if (const auto* order = zip.find(archive.folder_ + "byteorder")) {
        const auto range = zip.try_locate(input, *order);
        if (!range) { return range.error(); }
        const auto text = input.try_text(range->offset, (std::min)(range->bytes, std::uint64_t{16}));
        if (!text) { return text.error(); }
        if (*text != "little") {
            return unsupported(input.path(), range->offset,
                               "tensors of another byte order; load them with PyTorch and save them on this machine",
                               shown(*text), "\"little\"");
        }
    }
    const auto range = zip.try_locate(input, *entry);
    if (!range) { return range.error(); }
    if (range->bytes > longest_pickle) {
        return malformed(input.path(), range->offset, "the pickle is too long",
                         residency::detail::in_bytes(range->bytes),
                         "at most " + residency::detail::in_bytes(longest_pickle));
    }
    auto text = input.try_text(range->offset, range->bytes);
    if (!text) { return text.error(); }
    archive.pickle_ = std::move(*text);
    archive.pickle_offset_ = range->offset;
    return archive;
}

RESIDENCY_INLINE Result<ZipDirectory::Range> TorchArchive::try_locate(const PickledStorage& storage) const {
    const auto* record = zip_->find(folder_ + "data/" + storage.key);
    if (record == nullptr) {
        return malformed(input_->path(), pickle_offset_, "a tensor without its data", shown(storage.key));
    }
    auto data = zip_->try_locate(*input_, *record);
    if (data && data->bytes != storage.bytes) {
        return malformed(input_->path(), data->offset, "the data of a tensor have another size",
                         residency::detail::in_bytes(data->bytes), residency::detail::in_bytes(storage.bytes));
    }
    return data;
}

/// The pickles that begin a text, one after another: fewer than `count` where it ends before.
[[nodiscard]] inline Result<std::vector<TorchPickle>> read_pickles(std::string_view text, const std::string& source,
                                                                   std::size_t count) {
    std::vector<TorchPickle> pickles;
    std::size_t at = 0;
    while (pickles.size() < count) {
        auto pickle = TorchPickle::try_read_first(text.substr(at), source, at);
        if (!pickle) { return pickle.error(); }
        if (!*pickle) { break; }
        at += (*pickle)->bytes();
        pickles.push_back(*std::move(*pickle));
    }
    return pickles;
}

RESIDENCY_INLINE Result<TorchStream> TorchStream::try_read(const Input& input, std::uint64_t longest_pickle) {
    constexpr std::size_t magic_version_order_model_keys = 5;
    const std::string& path = input.path();
    // Nothing says how long the pickles are.
    for (std::uint64_t window = std::uint64_t{1} << 16;; window *= 8) {
        const std::uint64_t bytes = (std::min)({window, input.bytes(), longest_pickle});
        const auto text = input.try_text(0, bytes);
        if (!text) { return text.error(); }
        auto pickles = read_pickles(*text, path, magic_version_order_model_keys);
        if (!pickles) { return pickles.error(); }
        if (pickles->size() < magic_version_order_model_keys) {
            if (bytes == input.bytes()) {
                return malformed(path, bytes, cut_off, residency::detail::in_bytes(bytes), at_least(bytes + 1));
            }
            if (bytes == longest_pickle) {
                return malformed(path, 0, "the pickle is too long", "more than " + residency::detail::in_bytes(bytes));
            }
            continue;
        }
        constexpr std::uint64_t known_version = 1001;
        const auto version = (*pickles)[1].count((*pickles)[1].top());
        if (version != known_version) {
            return unsupported(path, (*pickles)[0].bytes(), "an unknown version of the format before ZIP archives",
                               version ? std::to_string(*version) : std::string{}, std::to_string(known_version));
        }
        for (const auto& [key, value] : (*pickles)[2].children((*pickles)[2].top())) {
            const std::string* name = (*pickles)[2].text(key);
            if (name != nullptr && *name == "little_endian" && (*pickles)[2].count(value) == 0U) {
                return unsupported(
                    path, (*pickles)[0].bytes() + (*pickles)[1].bytes(),
                    "tensors of another byte order; load them with PyTorch and save them on this machine");
            }
        }
        std::uint64_t at = 0;
        for (const TorchPickle& each : *pickles) { at += each.bytes(); }
        TorchStream stream{input, std::move((*pickles)[3])};
        if (Status located = stream.locate_all((*pickles)[4], at); !located) { return located.error(); }
        return stream;
    }
}

RESIDENCY_INLINE Status TorchStream::locate_all(const TorchPickle& keys, std::uint64_t at) {
    constexpr std::uint64_t count_bytes = 8;
    const auto storages = pickle_.storages();
    if (!storages) { return storages.error(); }
    std::vector<const PickledStorage*> in_order;
    std::optional<std::uint64_t> end = at;
    for (const auto& child : keys.children(keys.top())) {
        const std::string* key = keys.text(child.value);
        const auto found = key != nullptr ? storages->find(*key) : storages->end();
        if (found == storages->end()) { return keys.broken("a key of a storage that no tensor has"); }
        in_order.push_back(&found->second);
        end = end ? residency::detail::checked_add(*end, count_bytes) : end;
        end = end ? residency::detail::checked_add(*end, found->second.bytes) : end;
    }
    if (!end || *end > input_->bytes()) {
        return malformed(input_->path(), input_->bytes(), cut_off, residency::detail::in_bytes(input_->bytes()),
                         at_least(end));
    }
    for (const PickledStorage* each : in_order) {
        std::array<std::byte, count_bytes> raw{};
        if (Status read = input_->try_read(at, raw); !read) { return read; }
        std::uint64_t elements = 0;
        for (std::size_t i = raw.size(); i-- > 0;) {
            elements = elements << 8 | std::to_integer<std::uint64_t>(raw[i]);
        }
        if (elements != each->elements) {
            return malformed(input_->path(), at, "the storage " + shown(each->key) + " has another size",
                             std::to_string(elements) + " elements", std::to_string(each->elements));
        }
        if (!storages_.try_emplace(each->key, ZipDirectory::Range{at + count_bytes, each->bytes}).second) {
            return malformed(input_->path(), at, "the storage " + shown(each->key) + " is given twice");
        }
        at += count_bytes + each->bytes;
    }
    return {};
}

RESIDENCY_INLINE Result<ZipDirectory::Range> TorchStream::try_locate(const PickledStorage& storage) const {
    const auto found = storages_.find(storage.key);
    if (found == storages_.end()) {
        return malformed(input_->path(), 0, "a tensor without its data", shown(storage.key));
    }
    return found->second;
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
