// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <variant>

#include "residency/config.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/model/stat_identity.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE void CatalogBuilder::reserve(std::size_t weights, std::size_t storages) {
    weights_.reserve(weights);
    names_.reserve(weights, weights_);
    storages_.reserve(storages);
    users_.reserve(storages);
}

RESIDENCY_INLINE StorageId CatalogBuilder::add_storage(std::uint64_t bytes, StorageOptions options) {
    if (!status_) { return no_storage; }
    if (options.alignment_bytes == 0 || (options.alignment_bytes & (options.alignment_bytes - 1)) != 0 ||
        options.alignment_bytes > max_alignment_bytes) {
        return fail_storage("an alignment of " + residency::detail::in_bytes(options.alignment_bytes) +
                            " is not a power of two up to " + residency::detail::in_bytes(max_alignment_bytes));
    }
    if (Status inside = detail::check_source(options.source, bytes); !inside) {
        status_ = inside.error().in(next_storage());
        return no_storage;
    }
    const auto total = detail::checked_add(total_bytes_, bytes);
    if (!total) { return fail_storage("the sum of all storages does not fit in 64 bits"); }
    if (storages_.size() >= index(no_storage)) { return fail_storage("a catalog has at most 2^32 - 1 storages"); }
    total_bytes_ = *total;
    const StorageId id{static_cast<std::uint32_t>(storages_.size())};
    storages_.push_back({bytes, options.alignment_bytes, options.is_mutable ? Placement::resident : options.placement,
                         options.is_mutable, std::move(options.source)});
    users_.push_back(0);
    return id;
}

RESIDENCY_INLINE WeightId CatalogBuilder::add(std::string_view name, DType dtype, Shape shape,
                                              std::span<const std::byte> bytes, HostMemory kind) {
    if (!status_) { return no_weight; }
    const auto expected = dense_bytes(dtype, shape);
    if (!expected) { return fail_weight(name, expected.error().message()); }
    if (*expected != bytes.size()) {
        return fail_weight(name, describe(dtype, shape) + " takes " + residency::detail::in_bytes(*expected) + ", " +
                                     residency::detail::in_bytes(bytes.size()) + " were given");
    }
    return add(name, dtype, std::move(shape), HostSource{HostBytes::borrow(bytes, kind), 0});
}

RESIDENCY_INLINE WeightId CatalogBuilder::add(std::string_view name, DType dtype, Shape shape, StorageSource source,
                                              bool is_mutable) {
    if (!status_) { return no_weight; }
    const auto bytes = dense_bytes(dtype, shape);
    if (!bytes) { return fail_weight(name, bytes.error().message()); }
    StorageOptions options;
    options.is_mutable = is_mutable;
    options.source = std::move(source);
    const StorageId storage = add_storage(*bytes, std::move(options));
    if (!status_) { return fail_weight(name, status_.error().message(), true); }
    return add_weight(name, dtype, std::move(shape), storage);
}

RESIDENCY_INLINE WeightId CatalogBuilder::add(std::string_view name, DType dtype, Shape shape, const std::string& path,
                                              std::uint64_t offset_bytes) {
    if (!status_) { return no_weight; }
    const auto bytes = dense_bytes(dtype, shape);
    if (!bytes) { return fail_weight(name, bytes.error().message()); }
    auto file = source_file(path);
    if (!file) {
        status_ = file.error().in("weight " + detail::quoted(name));
        return no_weight;
    }
    const std::uint64_t file_bytes = (*file)->bytes;
    if (!detail::lies_inside(offset_bytes, *bytes, file_bytes)) {
        status_ = Error{ErrorKind::malformed,
                        "weight " + detail::quoted(name) + ": " + detail::quoted(path) + " has " +
                            residency::detail::in_bytes(file_bytes) + ", too few for the " +
                            residency::detail::in_bytes(*bytes) + " of " + describe(dtype, shape) + " at offset " +
                            std::to_string(offset_bytes),
                        FileLocation{path, file_bytes, "the end", residency::detail::in_bytes(*bytes)}};
        return no_weight;
    }
    return add(name, dtype, std::move(shape), FileSource{std::move(*file), offset_bytes});
}

RESIDENCY_INLINE Result<std::shared_ptr<const SourceFile>> CatalogBuilder::source_file(const std::string& path) {
    for (auto known = files_.rbegin(); known != files_.rend(); ++known) {
        if ((*known)->path == path) { return *known; }
    }
    const auto refused = [&](const std::string& what) {
        return Error{ErrorKind::io, detail::quoted(path) + " " + what, FileLocation{path, 0, {}, {}}};
    };
    struct stat status{};
    if (path.find('\0') != std::string::npos) { return refused("is no path: it holds a zero byte"); }
    if (::stat(path.c_str(), &status) != 0) {
        return refused("cannot be examined: " + std::generic_category().message(errno));
    }
    if (S_ISDIR(status.st_mode)) { return refused("is a folder: give the file in it"); }
    if (!S_ISREG(status.st_mode)) { return refused("is no regular file"); }
    const FileIdentity identity = detail::identity_of(status);
    files_.push_back(std::make_shared<const SourceFile>(SourceFile{path, identity.bytes, identity}));
    return files_.back();
}

RESIDENCY_INLINE WeightId CatalogBuilder::tie(std::string_view name, WeightId existing) {
    if (!status_) { return no_weight; }
    if (index(existing) >= weights_.size()) {
        return fail_weight(name, "tied to weight " + std::to_string(index(existing)) + ", which does not exist");
    }
    const Weight other = weights_[index(existing)];
    return add_weight(name, other.dtype, other.shape, other.storage, other.offset_bytes, other.strides);
}

RESIDENCY_INLINE WeightId CatalogBuilder::tie(std::string_view name, std::string_view existing) {
    if (!status_) { return no_weight; }
    const auto id = find(existing);
    return id ? tie(name, *id)
              : fail_weight(name, "tied to " + detail::quoted(existing) + ", which does not exist" +
                                      detail::nearest_name_hint(existing, weights_));
}

RESIDENCY_INLINE std::optional<WeightId> CatalogBuilder::find(std::string_view name) const noexcept {
    return names_.find(name, weights_);
}

RESIDENCY_INLINE std::string CatalogBuilder::describe(const DType& dtype, const Shape& shape) {
    std::string text{dtype.name()};
    text += '[';
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
        if (axis != 0) { text += ", "; }
        text += std::to_string(shape[axis]);
    }
    return text + ']';
}

RESIDENCY_INLINE std::optional<std::uint64_t> CatalogBuilder::count(const Shape& shape) noexcept {
    std::uint64_t elements = 1;
    std::uint64_t nonzero = 1;  // bounds the strides too: checked even if another extent is 0
    for (const std::uint64_t extent : shape) {
        const auto product = detail::checked_multiply(nonzero, extent == 0 ? 1 : extent);
        if (!product) { return std::nullopt; }
        nonzero = *product;
        elements = extent == 0 ? 0 : elements;
    }
    return elements == 0 ? 0 : nonzero;
}

RESIDENCY_INLINE Result<std::uint64_t> CatalogBuilder::dense_bytes(const DType& dtype, const Shape& shape) {
    const auto elements = count(shape);
    if (!elements) {
        return Error{ErrorKind::invalid_argument, describe(dtype, shape) + ": the elements do not fit in 64 bits"};
    }
    const std::uint64_t row = shape.empty() ? 1 : shape.back();
    if (row % dtype.block_elements() != 0) {
        return Error{ErrorKind::invalid_argument, describe(dtype, shape) +
                                                      ": the last extent does not fill blocks of " +
                                                      std::to_string(dtype.block_elements()) + " elements"};
    }
    const auto bytes = dtype.bytes_of(*elements);
    return bytes ? bytes : Result<std::uint64_t>{bytes.error().in(describe(dtype, shape))};
}

RESIDENCY_INLINE Strides CatalogBuilder::dense_strides(const Shape& shape) {
    Strides strides(shape.size());
    std::uint64_t stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        strides[axis] = stride;
        stride *= shape[axis] == 0 ? 1 : shape[axis];
    }
    return strides;
}

RESIDENCY_INLINE Result<std::uint64_t> CatalogBuilder::strided_bytes(const DType& dtype, const Shape& shape,
                                                                     const Strides& strides) {
    std::optional<std::uint64_t> last = 0;  // element index
    for (std::size_t axis = 0; axis < shape.size() && last; ++axis) {
        if (shape[axis] == 0) { return std::uint64_t{0}; }
        const auto reach = detail::checked_multiply(shape[axis] - 1, strides[axis]);
        last = reach ? detail::checked_add(*last, *reach) : reach;
    }
    last = last ? detail::checked_add(*last, 1) : last;
    if (!last) {
        return Error{ErrorKind::invalid_argument, describe(dtype, shape) + ": the strides reach beyond 64 bits"};
    }
    const auto bytes = dtype.bytes_of(*last);
    return bytes ? bytes : Result<std::uint64_t>{bytes.error().in(describe(dtype, shape))};
}

RESIDENCY_INLINE std::string CatalogBuilder::next_storage() const {
    return "storage " + std::to_string(storages_.size());
}

RESIDENCY_INLINE StorageId CatalogBuilder::fail_storage(const std::string& what) {
    status_ = Error{ErrorKind::invalid_argument, next_storage() + ": " + what};
    return no_storage;
}

RESIDENCY_INLINE WeightId CatalogBuilder::fail_weight(std::string_view name, const std::string& what, bool replace) {
    if (status_ || replace) {
        status_ = Error{ErrorKind::invalid_argument, "weight " + detail::quoted(name) + ": " + what};
    }
    return no_weight;
}

RESIDENCY_INLINE WeightId CatalogBuilder::add_weight(std::string_view name, DType dtype, Shape shape, StorageId storage,
                                                     std::uint64_t offset_bytes, std::optional<Strides> strides) {
    if (!status_) { return no_weight; }
    if (name.empty() || name.size() > max_name_bytes) {
        return fail_weight(name, "a name takes 1 to " + residency::detail::in_bytes(max_name_bytes) +
                                     ", this one has " + residency::detail::in_bytes(name.size()));
    }
    if (index(storage) >= storages_.size()) {
        return fail_weight(name, "it lies in storage " + std::to_string(index(storage)) + ", but there are only " +
                                     std::to_string(storages_.size()));
    }
    const auto dense = dense_bytes(dtype, shape);
    if (!dense) { return fail_weight(name, dense.error().message()); }
    std::uint64_t bytes = *dense;
    Strides usual = dense_strides(shape);
    if (strides && *strides != usual) {
        if (strides->size() != shape.size()) {
            return fail_weight(
                name, std::to_string(strides->size()) + " strides for " + std::to_string(shape.size()) + " extents");
        }
        if (!dtype.is_byte_addressable()) {
            return fail_weight(name, "elements of " + std::string{dtype.name()} + " cannot be strided");
        }
        const auto reach = strided_bytes(dtype, shape, *strides);
        if (!reach) { return fail_weight(name, reach.error().message()); }
        bytes = *reach;
    }
    const Storage& whole = storages_[index(storage)];
    if (!detail::lies_inside(offset_bytes, bytes, whole.bytes)) {
        return fail_weight(name, describe(dtype, shape) + ", " + residency::detail::in_bytes(bytes) + " at offset " +
                                     std::to_string(offset_bytes) + ", does not lie inside storage " +
                                     std::to_string(index(storage)) + " of " +
                                     residency::detail::in_bytes(whole.bytes));
    }
    if (offset_bytes % dtype.alignment_bytes() != 0 || whole.alignment_bytes < dtype.alignment_bytes()) {
        return fail_weight(name, "offset " + std::to_string(offset_bytes) + " in a storage aligned to " +
                                     residency::detail::in_bytes(whole.alignment_bytes) + " is not a multiple of the " +
                                     residency::detail::in_bytes(dtype.alignment_bytes()) + " that " +
                                     std::string{dtype.name()} + " needs");
    }
    if (weights_.size() >= index(no_weight)) { return fail_weight(name, "a catalog has at most 2^32 - 1 weights"); }
    const WeightId id{static_cast<std::uint32_t>(weights_.size())};
    if (const auto other = find(name)) {
        const Weight& first = weights_[index(*other)];
        return fail_weight(name, "given twice: as weight " + std::to_string(index(*other)) + ", " +
                                     describe(first.dtype, first.shape) + " in storage " +
                                     std::to_string(index(first.storage)) + ", and as weight " +
                                     std::to_string(index(id)) + ", " + describe(dtype, shape) + " in storage " +
                                     std::to_string(index(storage)));
    }
    weights_.push_back({std::string{name}, dtype, std::move(shape), strides ? std::move(*strides) : std::move(usual),
                        storage, offset_bytes, bytes});
    names_.insert(id, weights_);
    ++users_[index(storage)];
    return id;
}

RESIDENCY_INLINE std::vector<WeightId> CatalogBuilder::split(std::string_view name) {
    if (!status_) { return {}; }
    const auto fail = [&](const std::string& what) {
        fail_weight(name, what);
        return std::vector<WeightId>{};
    };
    const auto id = find(name);
    if (!id) { return fail("to be split, but it does not exist" + detail::nearest_name_hint(name, weights_)); }
    const Weight fused = weights_[index(*id)];
    const Storage whole = storages_[index(fused.storage)];
    if (fused.shape.empty() || fused.shape[0] == 0) {
        return fail(describe(fused.dtype, fused.shape) + " has no first axis to split");
    }
    if (!fused.is_dense()) { return fail("only a dense tensor can be split along its first axis"); }
    if (users_[index(fused.storage)] != 1) {
        for (std::size_t i = 0; i < weights_.size(); ++i) {
            if (i != index(*id) && weights_[i].storage == fused.storage) {
                return fail("cannot be split: " + detail::quoted(weights_[i].name) + " lies in the same storage");
            }
        }
    }
    if (std::holds_alternative<PackedSource>(whole.source) || std::holds_alternative<PackedHostSource>(whole.source)) {
        return fail("split, but its bytes are packed: split it before it is packed");
    }
    const Shape shape(fused.shape.begin() + 1, fused.shape.end());
    const auto part_bytes = dense_bytes(fused.dtype, shape);
    if (!part_bytes) { return fail(part_bytes.error().message()); }
    const std::uint64_t parts = fused.shape[0];
    if (parts > max_parts) {
        return fail("split into " + std::to_string(parts) + " parts; at most " + std::to_string(max_parts) +
                    " are supported");
    }

    std::vector<WeightId> ids;
    ids.reserve(static_cast<std::size_t>(parts));
    const std::string base{name};
    for (std::uint64_t part = 0; part < parts; ++part) {
        Storage storage = whole;
        storage.bytes = *part_bytes;
        const std::uint64_t offset = fused.offset_bytes + part * *part_bytes;
        if (auto* host = std::get_if<HostSource>(&storage.source)) { host->offset_bytes += offset; }
        if (auto* file = std::get_if<FileSource>(&storage.source)) { file->offset_bytes += offset; }
        const std::string part_name = base + '[' + std::to_string(part) + ']';
        if (part == 0) {
            total_bytes_ -= whole.bytes;
            if (const auto other = find(part_name)) {
                return fail("split into " + detail::quoted(part_name) + ", which is weight " +
                            std::to_string(index(*other)));
            }
            total_bytes_ += storage.bytes;
            storages_[index(fused.storage)] = std::move(storage);
            weights_[index(*id)] = {part_name, fused.dtype, shape, dense_strides(shape), fused.storage, 0, *part_bytes};
            names_.insert(*id, weights_);
            ids.push_back(*id);
            continue;
        }
        const StorageId own{static_cast<std::uint32_t>(storages_.size())};
        total_bytes_ += storage.bytes;
        storages_.push_back(std::move(storage));
        users_.push_back(0);
        ids.push_back(add_weight(part_name, fused.dtype, shape, own));
        if (!status_) { return {}; }
    }
    return ids;
}

RESIDENCY_INLINE Result<Catalog> CatalogBuilder::try_build() const {
    if (!status_) { return status_.error(); }
    auto table = std::make_shared<Catalog::Table>();
    table->weights = weights_;
    table->names = names_;
    table->storage_offsets.assign(storages_.size() + 1, 0);
    const auto add_layout = [](StableHash& hash, const Weight& weight) {
        hash.text(weight.dtype.name());
        hash.u32(weight.dtype.block_bits());
        hash.u32(weight.dtype.block_elements());
        hash.u64(weight.shape.size());
        for (const std::uint64_t extent : weight.shape) { hash.u64(extent); }
        for (const std::uint64_t stride : weight.strides) { hash.u64(stride); }
        hash.u32(index(weight.storage));
        hash.u64(weight.offset_bytes);
    };
    const auto add_storage = [](StableHash& hash, const Storage& storage) {
        hash.u64(storage.bytes);
        hash.u64(storage.alignment_bytes);
        hash.byte(storage.is_mutable ? 1 : 0);
    };
    StableHash hash;
    hash.u64(table->weights.size());
    for (std::size_t i = 0; i < table->weights.size(); ++i) {
        const Weight& weight = table->weights[i];
        ++table->storage_offsets[index(weight.storage) + 1];
        hash.text(weight.name);
        add_layout(hash, weight);
        StableHash name, rest;
        name.text(weight.name);
        add_layout(rest, weight);
        add_storage(rest, storages_[index(weight.storage)]);
        table->outline.names.push_back(name.value());
        table->outline.rest.push_back(rest.value());
    }
    hash.u64(storages_.size());
    for (const Storage& storage : storages_) { add_storage(hash, storage); }
    table->hash = hash.value();
    for (std::size_t i = 1; i < table->storage_offsets.size(); ++i) {
        table->storage_offsets[i] += table->storage_offsets[i - 1];
    }
    table->weights_by_storage.resize(table->weights.size());
    std::vector<std::uint32_t> next{table->storage_offsets.begin(), table->storage_offsets.end() - 1};
    for (std::size_t i = 0; i < table->weights.size(); ++i) {
        table->weights_by_storage[next[index(table->weights[i].storage)]++] = WeightId{static_cast<std::uint32_t>(i)};
    }
    return Catalog{std::move(table), storages_};
}

}}  // namespace residency::RESIDENCY_ABI
