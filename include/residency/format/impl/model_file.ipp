// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "residency/config.hpp"
#include "residency/format/input.hpp"
#include "residency/format/model_file.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

RESIDENCY_INLINE std::uint64_t ModelFile::total_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const StorageEntry& storage : storages) { sum += storage.bytes; }
    return sum;
}

RESIDENCY_INLINE std::uint64_t ModelFile::floor_bytes() const noexcept {
    std::uint64_t largest = 0;
    for (const StorageEntry& storage : storages) { largest = (std::max)(largest, storage.bytes); }
    return largest;
}

RESIDENCY_INLINE Result<Catalog> ModelFile::try_catalog() const {
    std::vector<std::shared_ptr<const SourceFile>> sources;
    sources.reserve(files.size());
    for (const SourceFile& file : files) { sources.push_back(std::make_shared<const SourceFile>(file)); }
    CatalogBuilder builder;
    builder.reserve(weights.size(), storages.size());
    for (const StorageEntry& storage : storages) {
        StorageOptions options;
        options.is_mutable = storage.is_mutable;
        if (storage.parts != nullptr) {
            options.source = PackedSource{sources[storage.file], storage.parts};
        } else {
            options.source = FileSource{sources[storage.file], storage.offset_bytes};
        }
        builder.add_storage(storage.bytes, std::move(options));
    }
    for (const WeightEntry& weight : weights) {
        builder.add_weight(weight.name, weight.type, weight.shape, StorageId{weight.storage}, weight.offset_bytes,
                           weight.strides.empty() ? std::nullopt : std::optional{weight.strides});
    }
    auto catalog = builder.try_build();
    if (!catalog && !files.empty()) { return catalog.error().in(detail::shown(files.front().path)); }
    return catalog;
}

RESIDENCY_INLINE Status ModelFile::try_tie(std::string name, std::string_view existing) {
    const auto find = [&](std::string_view wanted) {
        return std::find_if(weights.begin(), weights.end(), [&](const auto& weight) { return weight.name == wanted; });
    };
    const auto kept = find(existing);
    const auto refused = [&](const std::string& why) {
        return Error{ErrorKind::invalid_argument,
                     "tie " + detail::shown(name) + " to " + detail::shown(existing) + ": " + why};
    };
    if (name.empty()) { return refused("a weight needs a name"); }
    if (kept == weights.end()) { return refused("the model has no weight " + detail::shown(existing)); }
    if (find(name) != weights.end()) {
        return refused("the model has a weight " + detail::shown(name) +
                       " already; where both have the same bytes, merge_storages makes them one storage");
    }
    WeightEntry tied = *kept;
    tied.name = std::move(name);
    weights.push_back(std::move(tied));
    return {};
}

namespace detail {

RESIDENCY_INLINE void append_metadata(ModelFile& model, std::vector<ModelFile::Metadata> more) {
    // The files of one model mostly say the same.
    std::unordered_multimap<std::string_view, std::size_t> known;
    for (std::size_t i = 0; i < model.metadata.size() && !more.empty(); ++i) {
        known.emplace(model.metadata[i].key, i);
    }
    std::vector<ModelFile::Metadata> fresh;
    for (auto& entry : more) {
        const auto [begin, end] = known.equal_range(entry.key);
        const bool repeated = std::any_of(
            begin, end, [&](const auto& other) { return model.metadata[other.second].value == entry.value; });
        if (!repeated) { fresh.push_back(std::move(entry)); }
    }
    model.metadata.insert(model.metadata.end(), std::make_move_iterator(fresh.begin()),
                          std::make_move_iterator(fresh.end()));
}

RESIDENCY_INLINE void append_model(ModelFile& whole, ModelFile part) {
    const auto file = static_cast<std::uint32_t>(whole.files.size());
    const auto storage = static_cast<std::uint32_t>(whole.storages.size());
    const auto append = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    for (auto& entry : part.storages) { entry.file += file; }
    for (auto& weight : part.weights) { weight.storage += storage; }
    append(whole.files, part.files);
    append(whole.storages, part.storages);
    append(whole.weights, part.weights);
    append(whole.passed_over, part.passed_over);
    append(whole.notes, part.notes);
    append_metadata(whole, std::move(part.metadata));
}

RESIDENCY_INLINE std::optional<std::pair<std::size_t, std::size_t>> find_duplicate(
    const std::vector<ModelFile::WeightEntry>& weights) {
    std::unordered_map<std::string_view, std::size_t> seen;
    seen.reserve(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (const auto [first, fresh] = seen.try_emplace(weights[i].name, i); !fresh) {
            return std::pair{first->second, i};
        }
    }
    return std::nullopt;
}

RESIDENCY_INLINE Status refuse_duplicates(const ModelFile& model, const std::string& source, std::uint64_t offset) {
    if (const auto twice = find_duplicate(model.weights)) {
        return malformed(source, offset, "weight " + shown(model.weights[twice->second].name) + " is given twice");
    }
    return {};
}

RESIDENCY_INLINE std::optional<std::uint64_t> count_elements(const Shape& shape) noexcept {
    std::uint64_t nonzero = 1;
    bool empty = false;
    for (const std::uint64_t extent : shape) {
        const auto product = residency::detail::checked_multiply(nonzero, extent == 0 ? 1 : extent);
        if (!product) { return std::nullopt; }
        nonzero = *product;
        empty = empty || extent == 0;
    }
    return empty ? 0 : nonzero;
}

RESIDENCY_INLINE std::string shape_text(const Shape& shape) {
    std::string text = "[";
    constexpr std::size_t longest = 8;
    for (std::size_t axis = 0; axis < (std::min)(shape.size(), longest); ++axis) {
        text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
    }
    return text + (shape.size() > longest ? ", …]" : "]");
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format
