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
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What add_storage may be told.
struct StorageOptions {
    Placement placement = Placement::streamed;
    bool is_mutable = false;  ///< implies resident, whatever `placement` says
    std::uint64_t alignment_bytes = Storage::default_alignment_bytes;
    StorageSource source{};
};

/// Collects storages and weights, checks each as it comes, and makes the Catalog. Ids are dense, in the order of the
/// calls. The first error is kept: later calls do nothing, and try_build returns it.
class CatalogBuilder {
public:
    static constexpr std::size_t max_name_bytes = 65535;
    static constexpr std::uint64_t max_parts = std::uint64_t{1} << 20;  ///< of one split
    static constexpr std::uint64_t max_alignment_bytes = std::uint64_t{2} << 20;

    /// Makes room for so many weights and storages in all; there may be more, or fewer.
    void reserve(std::size_t weights, std::size_t storages);

    /// A storage of `bytes` bytes; 0 is allowed. Returns no_storage after an error.
    StorageId add_storage(std::uint64_t bytes, StorageOptions options = {});

    /// A view on a storage. `strides` in elements; without them it is dense. A type of blocks or below a byte must be
    /// dense. Returns no_weight after an error.
    WeightId add_weight(std::string_view name, DType dtype, Shape shape, StorageId storage,
                        std::uint64_t offset_bytes = 0, std::optional<Strides> strides = std::nullopt);

    /// A dense weight on a storage of its own that borrows `bytes` (see HostBytes::borrow for how long they must stay). Small weights
    /// that are neighbours in one buffer travel faster as HostSources of it: nobody knows here what was allocated together.
    WeightId add(std::string_view name, DType dtype, Shape shape, std::span<const std::byte> bytes,
                 HostMemory kind = HostMemory::pageable);
    /// A dense weight on a storage of its own, with that source (none is enough to plan).
    WeightId add(std::string_view name, DType dtype, Shape shape, StorageSource source = {}, bool is_mutable = false);

    /// Another name for all of an existing weight: the same storage.
    WeightId tie(std::string_view name, WeightId existing);
    WeightId tie(std::string_view name, std::string_view existing);

    /// Splits a dense tensor along its first axis: it becomes name[0], name[1], …, one extent shorter, each a storage
    /// of its own over the same source. name[0] keeps the ids of the weight and its storage, the others get new ones at
    /// the end. Returns all of them in order; empty after an error. Refused: a scalar, an empty axis, strides, tied
    /// storages, parts that do not end on a byte.
    std::vector<WeightId> split(std::string_view name);

    /// The weight of that name among those added so far.
    [[nodiscard]] std::optional<WeightId> find(std::string_view name) const;
    /// Success so far, or the first error.
    [[nodiscard]] const Status& status() const noexcept { return status_; }

    /// The catalog, or the first error. The builder is left empty.
    [[nodiscard]] Result<Catalog> try_build();
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] Catalog build() { return unwrap(try_build()); }
#endif

private:
    [[nodiscard]] static std::string describe(const DType& dtype, const Shape& shape);
    [[nodiscard]] static std::optional<std::uint64_t> count(const Shape& shape) noexcept;
    [[nodiscard]] static Result<std::uint64_t> dense_bytes(const DType& dtype, const Shape& shape);
    [[nodiscard]] static Strides dense_strides(const Shape& shape);
    /// Bytes from the first to the last element of a strided view.
    [[nodiscard]] static Result<std::uint64_t> strided_bytes(const DType& dtype, const Shape& shape,
                                                             const Strides& strides);

    [[nodiscard]] std::string next_storage() const;
    StorageId fail_storage(const std::string& what);
    WeightId fail_weight(std::string_view name, const std::string& what, bool replace = false);

    std::vector<Weight> weights_;
    std::vector<Storage> storages_;
    std::vector<std::uint32_t> users_;  // weights of each storage
    std::unordered_map<std::string, WeightId> by_name_;
    std::uint64_t total_bytes_ = 0;
    Status status_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/catalog_builder.ipp"
#endif
