// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The immutable table of the weights and storages of one model, and the owner of their host bytes: a handle that is
/// cheap to copy; copies share the table. Any number of threads may read it. Made by CatalogBuilder; a
/// default-constructed one is empty. Two are equal if they share one table.
class Catalog {
public:
    Catalog() noexcept = default;

    [[nodiscard]] std::span<const Weight> weights() const noexcept {
        return data_ ? std::span<const Weight>{data_->table->weights} : std::span<const Weight>{};
    }
    [[nodiscard]] std::span<const Storage> storages() const noexcept {
        return data_ ? std::span<const Storage>{data_->storages} : std::span<const Storage>{};
    }
    [[nodiscard]] bool contains(WeightId id) const noexcept { return index(id) < weights().size(); }
    [[nodiscard]] bool contains(StorageId id) const noexcept { return index(id) < storages().size(); }

    /// Precondition: contains(id).
    [[nodiscard]] const Weight& weight(WeightId id) const noexcept {
        RESIDENCY_ASSERT(contains(id), "pass an id of this catalog");
        return data_->table->weights[index(id)];
    }
    /// Precondition: contains(id).
    [[nodiscard]] const Storage& storage(StorageId id) const noexcept {
        RESIDENCY_ASSERT(contains(id), "pass an id of this catalog");
        return data_->storages[index(id)];
    }
    /// Precondition: contains(id).
    [[nodiscard]] StorageId storage_of(WeightId id) const noexcept { return weight(id).storage; }
    /// The weights on one storage, in the order in which they were added. Precondition: contains(id).
    [[nodiscard]] std::span<const WeightId> weights_of(StorageId id) const noexcept {
        RESIDENCY_ASSERT(contains(id), "pass an id of this catalog");
        const Table& table = *data_->table;
        const std::size_t first = table.storage_offsets[index(id)];
        return std::span{table.weights_by_storage}.subspan(first, table.storage_offsets[index(id) + 1] - first);
    }

    /// The weight of that name. O(1); allocates nothing.
    [[nodiscard]] std::optional<WeightId> find(std::string_view name) const noexcept {
        if (!data_) { return std::nullopt; }
        const auto found = data_->table->by_name.find(name);
        if (found == data_->table->by_name.end()) { return std::nullopt; }
        return found->second;
    }
    /// The same; an error that names what is missing.
    [[nodiscard]] Result<WeightId> try_find(std::string_view name) const;

    /// What stands for a storage in messages: its first weight's name, quoted, or its number. Precondition:
    /// contains(id).
    [[nodiscard]] std::string describe(StorageId id) const;

    /// Of names, dtypes, shapes, strides, offsets, and the sizes, alignments and mutability of storages, in their
    /// order; not of contents, sources or placements. The same on every platform; 0 for an empty handle.
    [[nodiscard]] std::uint64_t hash() const noexcept { return data_ ? data_->table->hash : 0; }

    /// Bytes of all storages, each counted once.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept { return data_ ? data_->total_bytes : 0; }
    /// Bytes of the storages with that placement.
    [[nodiscard]] std::uint64_t bytes_placed(Placement placement) const noexcept {
        return data_ ? data_->bytes_placed[static_cast<std::size_t>(placement)] : 0;
    }
    [[nodiscard]] std::uint64_t streamed_bytes() const noexcept { return bytes_placed(Placement::streamed); }
    [[nodiscard]] std::uint64_t resident_bytes() const noexcept { return bytes_placed(Placement::resident); }

    /// Where a storage's bytes are in host memory, or null if its source is not host memory. Precondition:
    /// contains(id).
    [[nodiscard]] const std::byte* host_bytes(StorageId id) const noexcept {
        const auto* source = std::get_if<HostSource>(&storage(id).source);
        return source != nullptr ? source->host->data() + source->offset_bytes : nullptr;
    }

    /// The same catalog, hash included, with one source for each storage. An error, naming the storage, where a source
    /// is too small or the count is not that of the storages.
    [[nodiscard]] Result<Catalog> try_with_sources(std::vector<StorageSource> sources) const;
    /// The same catalog, hash included, with the storages of those weights placed so. An error, naming the weight,
    /// where the catalog lacks it or a mutable storage would not be resident.
    [[nodiscard]] Result<Catalog> try_with_placement(std::span<const WeightId> ids, Placement placement) const;
    [[nodiscard]] Result<Catalog> try_with_placement(std::span<const std::string_view> names,
                                                     Placement placement) const;

#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] Catalog with_sources(std::vector<StorageSource> sources) const {
        return unwrap(try_with_sources(std::move(sources)));
    }
    [[nodiscard]] Catalog with_placement(std::span<const WeightId> ids, Placement placement) const {
        return unwrap(try_with_placement(ids, placement));
    }
    [[nodiscard]] Catalog with_placement(std::span<const std::string_view> names, Placement placement) const {
        return unwrap(try_with_placement(names, placement));
    }
#endif

    friend bool operator==(const Catalog&, const Catalog&) noexcept = default;

private:
    friend class CatalogBuilder;

    /// What every placement and source of one model shares.
    struct Table {
        std::vector<Weight> weights;
        std::unordered_map<std::string_view, WeightId> by_name;  // views of the names in `weights`
        std::vector<std::uint32_t> storage_offsets;              // storages + 1, into weights_by_storage
        std::vector<WeightId> weights_by_storage;
        std::uint64_t hash = 0;
    };
    struct Data {
        std::shared_ptr<const Table> table;
        std::vector<Storage> storages;
        std::uint64_t total_bytes = 0;
        std::uint64_t bytes_placed[3] = {};
    };

    /// Precondition: the sizes have been summed without overflow.
    Catalog(std::shared_ptr<const Table> table, std::vector<Storage> storages);

    std::shared_ptr<const Data> data_;
};

namespace detail {

/// An error without context where [offset, offset + bytes) does not lie inside the source.
[[nodiscard]] RESIDENCY_INLINE Status check_source(const StorageSource& source, std::uint64_t bytes);

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/catalog.ipp"
#endif
