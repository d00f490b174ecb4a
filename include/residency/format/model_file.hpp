// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

/// What a model file says, in the words of its format: the result of every reader. Every storage, or its packed parts, lies inside its file, and every
/// weight inside its storage.
struct ModelFile {
    /// The bytes behind one or more weights.
    struct StorageEntry {
        std::uint32_t file = 0;          ///< index in files
        std::uint64_t offset_bytes = 0;  ///< from the start of that file
        std::uint64_t bytes = 0;         ///< how many
        bool is_mutable = false;         ///< kernels write it
        /// Where the bytes are packed: their parts in the file; offset_bytes is that of the first. Null: they lie there as they are.
        std::shared_ptr<const std::vector<PackedPart>> parts{};
    };
    /// A named tensor.
    struct WeightEntry {
        std::string name;                ///< UTF-8
        std::string dtype;               ///< as the format spells it
        DType type;                      ///< what the name stands for
        Shape shape;                     ///< outermost extent first
        Strides strides;                 ///< elements; empty where dense
        std::uint32_t storage = 0;       ///< index in storages
        std::uint64_t offset_bytes = 0;  ///< in the storage
        std::uint64_t bytes = 0;         ///< from its first byte to its last
    };
    /// An entry that is no tensor.
    struct Metadata {
        std::string key;    ///< UTF-8
        std::string value;  ///< UTF-8; a value that is no string is JSON text
    };

    /// A tensor or an entry that the files hold and the model does not.
    struct PassedOver {
        std::string name;  ///< UTF-8
        std::string why;   ///< such as "the index does not list it"
    };

    std::string format;                   ///< such as "safetensors"
    std::vector<SourceFile> files;        ///< that hold the bytes
    std::vector<StorageEntry> storages;   ///< in the order of the file
    std::vector<WeightEntry> weights;     ///< in the order of the file
    std::vector<Metadata> metadata;       ///< in the order of the file
    std::vector<PassedOver> passed_over;  ///< what the files hold beside the model
    std::vector<std::string> notes;       ///< one line each of what who opens these files should know; UTF-8

    /// Sum of the bytes of all storages.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept;
    /// Bytes of the largest storage, which a step needs at least.
    [[nodiscard]] std::uint64_t floor_bytes() const noexcept;

    /// The catalog of it: weights and storages in this order, each storage with its file as source. Error: CatalogBuilder's.
    [[nodiscard]] Result<Catalog> try_catalog() const;
#if RESIDENCY_EXCEPTIONS
    /// As try_catalog(), but throws Exception.
    [[nodiscard]] Catalog catalog() const { return unwrap(try_catalog()); }
#endif

    /// Adds another name for a weight, on the same storage. Errors invalid_argument: there is no such weight, or the name is
    /// taken.
    [[nodiscard]] Status try_tie(std::string name, std::string_view existing);
#if RESIDENCY_EXCEPTIONS
    /// As try_tie(), but throws Exception.
    void tie(std::string name, std::string_view existing) { unwrap(try_tie(std::move(name), existing)); }
#endif
};

namespace detail {

/// Appends the files, storages, weights and the rest of another model. Metadata that are there already are not repeated.
RESIDENCY_INLINE void append_model(ModelFile& whole, ModelFile part);

/// Appends metadata that are not there yet.
RESIDENCY_INLINE void append_metadata(ModelFile& model, std::vector<ModelFile::Metadata> more);

/// Two weights of the same name, as ascending indices; none where all names differ.
[[nodiscard]] RESIDENCY_INLINE std::optional<std::pair<std::size_t, std::size_t>> find_duplicate(
    const std::vector<ModelFile::WeightEntry>& weights);

/// Error malformed, at that byte of the source: two weights have the same name.
[[nodiscard]] RESIDENCY_INLINE Status refuse_duplicates(const ModelFile& model, const std::string& source,
                                                        std::uint64_t offset = 0);

/// The product of the extents; none where 64 bits do not hold it, or the product of the extents above zero.
[[nodiscard]] RESIDENCY_INLINE std::optional<std::uint64_t> count_elements(const Shape& shape) noexcept;

/// A shape in words, for messages: its first extents.
[[nodiscard]] RESIDENCY_INLINE std::string shape_text(const Shape& shape);

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::format

#if RESIDENCY_HEADER_ONLY
#include "residency/format/impl/model_file.ipp"
#endif
