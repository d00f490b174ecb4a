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
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/name_index.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Options of CatalogBuilder::add_storage.
struct StorageOptions {
    Placement placement = Placement::streamed;  ///< where the storage is kept
    bool is_mutable = false;                    ///< kernels write it; implies resident, whatever `placement` says
    std::uint64_t alignment_bytes = Storage::default_alignment_bytes;  ///< of its address on the device
    StorageSource source{};                                            ///< of its bytes; none is enough to plan
};

/// Collects storages and weights; each that was added has been checked. Ids are dense, in the order of the calls. The builder keeps
/// what was added: try_build() gives the same again, and more may follow. It keeps the first error too: later calls do nothing, and
/// try_build() returns it.
class CatalogBuilder {
public:
    static constexpr std::size_t max_name_bytes = 65535;                          ///< of a weight's name
    static constexpr std::uint64_t max_parts = std::uint64_t{1} << 20;            ///< of one split()
    static constexpr std::uint64_t max_alignment_bytes = std::uint64_t{2} << 20;  ///< of a storage

    /// Makes room for these numbers of weights and storages in all. More or fewer may follow.
    void reserve(std::size_t weights, std::size_t storages);

    /// Adds a storage of `bytes` bytes, 0 included. Returns no_storage after an error.
    StorageId add_storage(std::uint64_t bytes, StorageOptions options = {});

    /// Adds a weight on a storage. `strides` in elements; without them it is dense. A type of blocks or below a byte must be dense.
    /// Returns no_weight after an error.
    WeightId add_weight(std::string_view name, DType dtype, Shape shape, StorageId storage,
                        std::uint64_t offset_bytes = 0, std::optional<Strides> strides = std::nullopt);

    /// Adds a dense weight on a storage of its own that borrows `bytes`; HostBytes::borrow says how long they must stay. Give small
    /// weights that are neighbours in one buffer as HostSources of it, so that one copy brings several: the builder does not know
    /// what was allocated together.
    WeightId add(std::string_view name, DType dtype, Shape shape, std::span<const std::byte> bytes,
                 HostMemory kind = HostMemory::pageable);
    /// Adds a dense weight on a storage of its own with that source. No source is enough to plan.
    WeightId add(std::string_view name, DType dtype, Shape shape, StorageSource source = {}, bool is_mutable = false);

    /// Adds a dense weight on a storage of its own whose bytes begin at `offset_bytes` of a file: for file formats that the library does
    /// not know. Asks once per path for the file's size and identity; a file that is changed afterwards is refused when it is read.
    /// Errors: io (the file is not there, or is no regular file); malformed (it ends before the bytes do).
    WeightId add(std::string_view name, DType dtype, Shape shape, const std::string& path, std::uint64_t offset_bytes);
    /// Adds bytes [offset_bytes, offset_bytes + bytes) of a file, as u8[bytes]: the same, where type and shape are of no interest.
    WeightId add(std::string_view name, const std::string& path, std::uint64_t offset_bytes, std::uint64_t bytes) {
        return add(name, dtype::u8, {bytes}, path, offset_bytes);
    }

    /// Adds another name for the whole of an existing weight, on the same storage.
    WeightId tie(std::string_view name, WeightId existing);
    WeightId tie(std::string_view name, std::string_view existing);  ///< the same, of a weight by name

    /// Splits a dense weight along its first axis into name[0], name[1], …, each one extent shorter and on a storage of its own,
    /// over the same source. name[0] keeps the ids of the weight and its storage; the others get new ids at the end. Returns all of
    /// them in order, or nothing after an error. Refused: a scalar, an empty axis, strides, tied storages, parts that do not end on
    /// a byte.
    std::vector<WeightId> split(std::string_view name);

    /// The weight of that name among those added so far. O(1).
    [[nodiscard]] std::optional<WeightId> find(std::string_view name) const noexcept;
    /// Success so far, or the first error.
    [[nodiscard]] const Status& status() const noexcept { return status_; }

    /// The catalog, or the first error.
    [[nodiscard]] Result<Catalog> try_build() const;
#if RESIDENCY_EXCEPTIONS
    /// As try_build(), but throws Exception.
    [[nodiscard]] Catalog build() const { return unwrap(try_build()); }
#endif

private:
    [[nodiscard]] static std::string describe(const DType& dtype, const Shape& shape);
    /// Elements of a shape; none where 64 bits do not hold them, or the strides of them.
    [[nodiscard]] static std::optional<std::uint64_t> count(const Shape& shape) noexcept;
    [[nodiscard]] static Result<std::uint64_t> dense_bytes(const DType& dtype, const Shape& shape);
    [[nodiscard]] static Strides dense_strides(const Shape& shape);
    /// Bytes from the first to the last element of a strided view.
    [[nodiscard]] static Result<std::uint64_t> strided_bytes(const DType& dtype, const Shape& shape,
                                                             const Strides& strides);

    [[nodiscard]] std::string next_storage() const;
    StorageId fail_storage(const std::string& what);
    WeightId fail_weight(std::string_view name, const std::string& what, bool replace = false);
    /// The file at a path, asked for its size and identity when it is named first.
    [[nodiscard]] Result<std::shared_ptr<const SourceFile>> source_file(const std::string& path);

    std::vector<Weight> weights_;
    std::vector<Storage> storages_;
    std::vector<std::uint32_t> users_;                      // by storage: number of weights on it
    detail::NameIndex names_;                               // of weights_
    std::uint64_t total_bytes_ = 0;                         // of all storages
    std::vector<std::shared_ptr<const SourceFile>> files_;  // that were named by their paths
    Status status_;                                         // success, or the first error
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/catalog_builder.ipp"
#endif
