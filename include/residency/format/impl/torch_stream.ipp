// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/text.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/torch_stream.hpp"
#include "residency/format/zip.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

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
                return malformed(path, bytes, cut_off, std::to_string(bytes) + " bytes",
                                 "at least " + std::to_string(bytes + 1));
            }
            if (bytes == longest_pickle) {
                return malformed(path, 0, "the pickle is too long", "more than " + std::to_string(bytes) + " bytes");
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
        return malformed(input_->path(), input_->bytes(), cut_off, std::to_string(input_->bytes()) + " bytes",
                         end ? std::to_string(*end) : "more than 64 bits can count");
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
