// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/format/text.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// What a model file says, in the words of its format: the result of every reader. Every storage lies inside its file, and every
/// weight inside its storage.
struct ModelFile {
    /// The bytes behind one or more weights.
    struct StorageEntry {
        std::uint32_t file = 0;          ///< index in files
        std::uint64_t offset_bytes = 0;  ///< from the start of that file
        std::uint64_t bytes = 0;
        bool is_mutable = false;
    };
    struct WeightEntry {
        std::string name;   ///< UTF-8
        std::string dtype;  ///< as the format spells it
        DType type;
        Shape shape;      ///< outermost extent first
        Strides strides;  ///< elements; empty where dense
        std::uint32_t storage = 0;
        std::uint64_t offset_bytes = 0;  ///< in the storage
        std::uint64_t bytes = 0;         ///< from its first byte to its last
    };
    struct Metadata {
        std::string key, value;  ///< UTF-8; a value that is no string is JSON text
    };

    std::string format;
    std::vector<SourceFile> files;
    std::vector<StorageEntry> storages;
    std::vector<WeightEntry> weights;
    std::vector<Metadata> metadata;

    /// Sum of the bytes of all storages.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept {
        return std::accumulate(storages.begin(), storages.end(), std::uint64_t{0},
                               [](std::uint64_t sum, const StorageEntry& s) { return sum + s.bytes; });
    }
    /// Bytes of the largest storage, which a step needs at least.
    [[nodiscard]] std::uint64_t floor_bytes() const noexcept {
        std::uint64_t largest = 0;
        for (const StorageEntry& storage : storages) { largest = (std::max)(largest, storage.bytes); }
        return largest;
    }

    /// The catalog of it: weights and storages in this order, each storage with its file as source. Error: CatalogBuilder's.
    [[nodiscard]] Result<Catalog> try_catalog() const {
        std::vector<std::shared_ptr<const SourceFile>> sources;
        sources.reserve(files.size());
        for (const SourceFile& file : files) { sources.push_back(std::make_shared<const SourceFile>(file)); }
        CatalogBuilder builder;
        builder.reserve(weights.size(), storages.size());
        for (const StorageEntry& storage : storages) {
            StorageOptions options;
            options.is_mutable = storage.is_mutable;
            options.source = FileSource{sources[storage.file], storage.offset_bytes};
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
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] Catalog catalog() const { return unwrap(try_catalog()); }
#endif
};

namespace detail {

/// Two weights of the same name, as ascending indices; none where all names differ.
[[nodiscard]] inline std::optional<std::pair<std::size_t, std::size_t>> find_duplicate(
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

/// Error malformed, at that byte of the source: two weights have the same name.
[[nodiscard]] inline Status refuse_duplicates(const ModelFile& model, const std::string& source,
                                              std::uint64_t offset = 0) {
    if (const auto twice = find_duplicate(model.weights)) {
        return malformed(source, offset, "weight " + shown(model.weights[twice->second].name) + " is given twice");
    }
    return {};
}

/// The product of the extents; none where 64 bits do not hold it, or the product of the extents above zero.
[[nodiscard]] inline std::optional<std::uint64_t> count_elements(const Shape& shape) noexcept {
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

[[nodiscard]] inline std::string shape_text(const Shape& shape) {
    std::string text = "[";
    constexpr std::size_t longest = 8;
    for (std::size_t axis = 0; axis < (std::min)(shape.size(), longest); ++axis) {
        text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
    }
    return text + (shape.size() > longest ? ", …]" : "]");
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format
