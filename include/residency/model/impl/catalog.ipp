// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/config.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/number.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

namespace detail {

RESIDENCY_INLINE Status check_packed(std::span<const PackedPart> parts, std::uint64_t bytes, std::uint64_t whole,
                                     const std::string& where) {
    std::uint64_t left = bytes;
    for (const PackedPart& part : parts) {
        if (part.raw_bytes > left || !lies_inside(part.offset_bytes, part.packed_bytes, whole)) {
            return Error{ErrorKind::invalid_argument,
                         "a packed part of " + residency::detail::in_bytes(part.packed_bytes) + " at offset " +
                             std::to_string(part.offset_bytes) + ", for " +
                             residency::detail::in_bytes(part.raw_bytes) + " of the " +
                             residency::detail::in_bytes(bytes) + ", does not lie inside the storage and the " +
                             residency::detail::in_bytes(whole) + " of " + where,
                         FileLocation{where, part.offset_bytes, {}, {}}};
        }
        if (part.form == PackedForm::raw && part.packed_bytes != part.raw_bytes) {
            return Error{ErrorKind::invalid_argument,
                         "a raw part of " + residency::detail::in_bytes(part.packed_bytes) + " at offset " +
                             std::to_string(part.offset_bytes) + " stands for " +
                             residency::detail::in_bytes(part.raw_bytes),
                         FileLocation{where, part.offset_bytes, {}, {}}};
        }
        left -= part.raw_bytes;
    }
    if (left == 0) { return {}; }
    return Error{ErrorKind::invalid_argument,
                 "its packed parts lack the last " + residency::detail::in_bytes(left) + " of its " +
                     residency::detail::in_bytes(bytes),
                 FileLocation{where, 0, {}, {}}};
}

RESIDENCY_INLINE Status check_source(const StorageSource& source, std::uint64_t bytes) {
    std::uint64_t offset = 0;
    std::uint64_t whole = bytes;
    std::string where;
    if (const auto* host = std::get_if<HostSource>(&source)) {
        if (host->host == nullptr) { return Error{ErrorKind::invalid_argument, "its host bytes are null"}; }
        offset = host->offset_bytes;
        whole = host->host->bytes();
        where = "host bytes";
    } else if (const auto* file = std::get_if<FileSource>(&source)) {
        if (file->file == nullptr) { return Error{ErrorKind::invalid_argument, "its file is null"}; }
        offset = file->offset_bytes;
        whole = file->file->bytes;
        where = detail::quoted(file->file->path);
    } else if (const auto* packed = std::get_if<PackedSource>(&source)) {
        if (packed->file == nullptr || packed->parts == nullptr) {
            return Error{ErrorKind::invalid_argument, "its file or its packed parts are null"};
        }
        return check_packed(*packed->parts, bytes, packed->file->bytes, detail::quoted(packed->file->path));
    } else if (const auto* held = std::get_if<PackedHostSource>(&source)) {
        if (held->host == nullptr || held->parts == nullptr) {
            return Error{ErrorKind::invalid_argument, "its host bytes or its packed parts are null"};
        }
        if (auto lies = check_packed(*held->parts, bytes, held->bytes, "host bytes"); !lies) { return lies; }
        offset = held->offset_bytes;
        bytes = held->bytes;
        whole = held->host->bytes();
        where = "host bytes";
    }
    if (lies_inside(offset, bytes, whole)) { return {}; }
    return Error{ErrorKind::invalid_argument,
                 residency::detail::in_bytes(bytes) + " at offset " + std::to_string(offset) +
                     " do not lie inside the " + residency::detail::in_bytes(whole) + " of " + where,
                 FileLocation{where, offset, residency::detail::in_bytes(whole),
                              "at least " + residency::detail::in_bytes(bytes) + " from there"}};
}

}  // namespace detail

RESIDENCY_INLINE Result<WeightId> Catalog::try_find(std::string_view name) const {
    if (const auto id = find(name)) { return *id; }
    return Error{ErrorKind::mismatch,
                 "the catalog has no weight " + detail::quoted(name) + detail::nearest_name_hint(name, weights())};
}

RESIDENCY_INLINE std::string Catalog::describe(StorageId id) const {
    const auto users = weights_of(id);
    return users.empty() ? "storage " + std::to_string(index(id)) : detail::quoted(weight(users.front()).name);
}

RESIDENCY_INLINE std::string Catalog::difference(const CatalogOutline* other) const {
    const CatalogOutline none;
    const CatalogOutline& own = data_ ? data_->table->outline : none;
    const CatalogOutline& there = other != nullptr ? *other : none;
    std::string text =
        "that one has " + std::to_string(there.names.size()) + " weights, this one " + std::to_string(own.names.size());
    for (std::size_t i = 0; i < own.names.size(); ++i) {
        const bool is_same = i < there.names.size() && there.names[i] == own.names[i];
        if (is_same && there.rest[i] == own.rest[i]) { continue; }
        const std::string name = detail::quoted(weights()[i].name);
        if (is_same) { return text + "; " + name + " has another type, shape or storage there"; }
        const auto found = std::find(there.names.begin(), there.names.end(), own.names[i]);
        if (found == there.names.end()) { return text + "; that one lacks " + name; }
        return text + "; " + name + ", weight " + std::to_string(i) + " of this one, is weight " +
               std::to_string(found - there.names.begin()) + " of that one";
    }
    return text +
           (there.names.size() > own.names.size() ? "; those of this one are its first" : "; their storages differ");
}

RESIDENCY_INLINE Catalog::Catalog(std::shared_ptr<const Table> table, std::vector<Storage> storages) {
    Data data{std::move(table), std::move(storages), 0, {}};
    for (const Storage& storage : data.storages) {
        data.total_bytes += storage.bytes;
        data.bytes_placed[static_cast<std::size_t>(storage.placement)] += storage.bytes;
    }
    data_ = std::make_shared<const Data>(std::move(data));
}

RESIDENCY_INLINE Result<Catalog> Catalog::try_with_sources(std::vector<StorageSource> sources) const {
    if (sources.size() != storages().size()) {
        return Error{ErrorKind::invalid_argument, std::to_string(sources.size()) + " sources for a catalog of " +
                                                      std::to_string(storages().size()) + " storages"};
    }
    if (!data_) { return Catalog{}; }
    std::vector<Storage> placed = data_->storages;
    for (std::size_t i = 0; i < placed.size(); ++i) {
        if (const Status status = detail::check_source(sources[i], placed[i].bytes); !status) {
            return status.error().in(describe(StorageId{static_cast<std::uint32_t>(i)}));
        }
        placed[i].source = std::move(sources[i]);
    }
    return Catalog{data_->table, std::move(placed)};
}

RESIDENCY_INLINE Result<Catalog> Catalog::try_with_placement(std::span<const WeightId> ids, Placement placement) const {
    for (const WeightId id : ids) {
        if (!contains(id)) {
            return Error{ErrorKind::mismatch, "the catalog of " + std::to_string(weights().size()) +
                                                  " weights has no weight " + std::to_string(index(id))};
        }
        if (placement != Placement::resident && storage(storage_of(id)).is_mutable) {
            return Error{
                ErrorKind::invalid_argument,
                detail::quoted(weight(id).name) + " is mutable, so it is resident and cannot be placed otherwise"};
        }
    }
    if (!data_) { return Catalog{}; }
    std::vector<Storage> placed = data_->storages;
    for (const WeightId id : ids) { placed[index(storage_of(id))].placement = placement; }
    return Catalog{data_->table, std::move(placed)};
}

RESIDENCY_INLINE Result<Catalog> Catalog::try_with_placement(std::span<const std::string_view> names,
                                                             Placement placement) const {
    std::vector<WeightId> ids;
    ids.reserve(names.size());
    for (const std::string_view name : names) {
        const auto id = try_find(name);
        if (!id) { return id.error(); }
        ids.push_back(*id);
    }
    return try_with_placement(std::span<const WeightId>{ids}, placement);
}

}}  // namespace residency::RESIDENCY_ABI
