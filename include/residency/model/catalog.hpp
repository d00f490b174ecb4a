// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/name_index.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What tells the weights of two catalogs apart: a hash of each name, and of each type, shape, place and storage. In their order.
struct CatalogOutline {
    std::vector<std::uint64_t> names;  ///< of each weight's name
    std::vector<std::uint64_t> rest;   ///< of the other things, by weight
    /// Whether all are the same.
    friend bool operator==(const CatalogOutline&, const CatalogOutline&) = default;
};

/// The weights and storages of one model, every weight inside its storage and every name once, and the owner of their host bytes.
/// Immutable; copies are cheap and share the tables. Any number of threads may read one. CatalogBuilder makes it; a
/// default-constructed catalog is empty. Two catalogs are equal if they share their tables.
class Catalog {
public:
    Catalog() noexcept = default;

    /// By WeightId.
    [[nodiscard]] std::span<const Weight> weights() const noexcept {
        return data_ ? std::span<const Weight>{data_->table->weights} : std::span<const Weight>{};
    }
    /// By StorageId.
    [[nodiscard]] std::span<const Storage> storages() const noexcept {
        return data_ ? std::span<const Storage>{data_->storages} : std::span<const Storage>{};
    }
    /// Whether the id is one of this catalog.
    /// @{
    [[nodiscard]] bool contains(WeightId id) const noexcept { return index(id) < weights().size(); }
    [[nodiscard]] bool contains(StorageId id) const noexcept { return index(id) < storages().size(); }
    /// @}

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

    /// The weight of that name. O(1). Allocates nothing.
    [[nodiscard]] std::optional<WeightId> find(std::string_view name) const noexcept {
        return data_ ? data_->table->names.find(name, data_->table->weights) : std::nullopt;
    }
    /// The weight of that name. Error mismatch: there is none; the message says which name is nearest in spelling.
    [[nodiscard]] Result<WeightId> try_find(std::string_view name) const;

    /// A storage in words, for messages: the name of its first weight, quoted, or else its number. Precondition: contains(id).
    [[nodiscard]] std::string describe(StorageId id) const;

    /// Hash of the names, dtypes, shapes, strides and offsets of the weights, and of the sizes, alignments and mutability of the
    /// storages, in their order. Contents, sources and placements do not count. The same on every platform; 0 where empty.
    [[nodiscard]] std::uint64_t hash() const noexcept { return data_ ? data_->table->hash : 0; }

    /// The outline of its weights; null if the catalog is default-constructed.
    [[nodiscard]] std::shared_ptr<const CatalogOutline> outline() const noexcept {
        return data_ ? std::shared_ptr<const CatalogOutline>{data_->table, &data_->table->outline} : nullptr;
    }
    /// In words, what differs in another catalog with that outline; null: one without weights. Precondition: the hashes differ.
    [[nodiscard]] std::string difference(const CatalogOutline* other) const;

    /// Sum of the bytes of all storages.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept { return data_ ? data_->total_bytes : 0; }
    /// Sum of the bytes of the storages with that placement.
    [[nodiscard]] std::uint64_t bytes_placed(Placement placement) const noexcept {
        return data_ ? data_->bytes_placed[static_cast<std::size_t>(placement)] : 0;
    }
    /// The bytes of the storages that stream.
    [[nodiscard]] std::uint64_t streamed_bytes() const noexcept { return bytes_placed(Placement::streamed); }
    /// The bytes of the storages that stay.
    [[nodiscard]] std::uint64_t resident_bytes() const noexcept { return bytes_placed(Placement::resident); }

    /// The storage's bytes in host memory, or null if its source is no host memory. Precondition: contains(id).
    [[nodiscard]] const std::byte* host_bytes(StorageId id) const noexcept {
        const auto* source = std::get_if<HostSource>(&storage(id).source);
        return source != nullptr ? source->host->data() + source->offset_bytes : nullptr;
    }

    /// A copy of this catalog, with the same hash, and one source for each storage. Error invalid_argument, naming the storage: its
    /// source is too small, or there are more or fewer sources than storages.
    [[nodiscard]] Result<Catalog> try_with_sources(std::vector<StorageSource> sources) const;
    /// A copy of this catalog, with the same hash, and another placement for the storages of those weights. Errors, naming the weight:
    /// mismatch where the catalog lacks it; invalid_argument where a mutable storage would not be resident.
    [[nodiscard]] Result<Catalog> try_with_placement(std::span<const WeightId> ids, Placement placement) const;
    /// As above, by name, or with a list.
    /// @{
    [[nodiscard]] Result<Catalog> try_with_placement(std::span<const std::string_view> names,
                                                     Placement placement) const;
    [[nodiscard]] Result<Catalog> try_with_placement(std::initializer_list<WeightId> ids, Placement placement) const {
        return try_with_placement(std::span{ids.begin(), ids.size()}, placement);
    }
    [[nodiscard]] Result<Catalog> try_with_placement(std::initializer_list<std::string_view> names,
                                                     Placement placement) const {
        return try_with_placement(std::span{names.begin(), names.size()}, placement);
    }
    /// @}

#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] Catalog with_sources(std::vector<StorageSource> sources) const {
        return unwrap(try_with_sources(std::move(sources)));
    }
    [[nodiscard]] Catalog with_placement(std::span<const WeightId> ids, Placement placement) const {
        return unwrap(try_with_placement(ids, placement));
    }
    [[nodiscard]] Catalog with_placement(std::span<const std::string_view> names, Placement placement) const {
        return unwrap(try_with_placement(names, placement));
    }
    [[nodiscard]] Catalog with_placement(std::initializer_list<WeightId> ids, Placement placement) const {
        return unwrap(try_with_placement(ids, placement));
    }
    [[nodiscard]] Catalog with_placement(std::initializer_list<std::string_view> names, Placement placement) const {
        return unwrap(try_with_placement(names, placement));
    }
    /// @}
#endif

    friend bool operator==(const Catalog&, const Catalog&) noexcept = default;  ///< compares all members

private:
    friend class CatalogBuilder;

    /// What does not change with placements and sources; shared by the catalogs that differ in those only.
    struct Table {
        std::vector<Weight> weights;
        detail::NameIndex names;                     // of `weights`
        std::vector<std::uint32_t> storage_offsets;  // storages + 1, into weights_by_storage
        std::vector<WeightId> weights_by_storage;
        std::uint64_t hash = 0;
        CatalogOutline outline;
    };
    struct Data {
        std::shared_ptr<const Table> table;
        std::vector<Storage> storages;
        std::uint64_t total_bytes = 0;       // of all storages
        std::uint64_t bytes_placed[3] = {};  // of the storages, by placement
    };

    /// Precondition: 64 bits hold the sum of the sizes.
    Catalog(std::shared_ptr<const Table> table, std::vector<Storage> storages);

    std::shared_ptr<const Data> data_;
};

namespace detail {

/// Error invalid_argument: the source has no bytes [offset, offset + bytes). The message does not name the storage.
[[nodiscard]] RESIDENCY_INLINE Status check_source(const StorageSource& source, std::uint64_t bytes);
/// Error invalid_argument: the parts are not those of `bytes` bytes, or do not lie in the `whole` bytes of `where`.
[[nodiscard]] RESIDENCY_INLINE Status check_packed(std::span<const PackedPart> parts, std::uint64_t bytes,
                                                   std::uint64_t whole, const std::string& where);

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/catalog.ipp"
#endif
