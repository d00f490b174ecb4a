// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/packed_header_layout.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/packer.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// Where packed bytes lie on a device.
enum class StoredIn : std::uint8_t {
    image,  ///< the image of a plan, residents too; storages begin at multiples of codec::packed_alignment_bytes
    pool,   ///< a pool of storages; residents that are unpacked do not travel, and have no bytes there
};

/// How a catalog with packed weights travels.
struct StoredCatalog {
    Catalog catalog;  ///< of each storage one weight of its name, with the bytes in which it lies in host memory
    std::vector<Form> forms;   ///< by storage
    bool unpacks = false;      ///< some storage is unpacked
    bool has_written = false;  ///< kernels write some storage

    /// Error unsupported: one of these storages is packed. `given`: the catalog that was stored.
    [[nodiscard]] Status check_refresh(const Catalog& given, std::span<const StorageId> storages) const {
        for (const StorageId id : storages) {
            if (forms[index(id)].parts == nullptr) { continue; }
            return Error{ErrorKind::unsupported,
                         given.describe(id) +
                             " is packed in host memory, where its bytes do not change: pack the "
                             "new weights, and make another Residency"};
        }
        return {};
    }
};

namespace detail {

/// Error unsupported: a packed part, or its raw bytes, do not lie where kernels can read and write them.
[[nodiscard]] inline Status check_alignment(const Catalog& catalog, StorageId id, const PackedHostSource& source) {
    std::uint64_t raw_at = 0;
    for (const PackedPart& part : *source.parts) {
        const bool fits =
            raw_at % 16 == 0 && (source.offset_bytes | part.offset_bytes) % codec::packed_alignment_bytes == 0;
        if (part.form != PackedForm::raw && !fits) {
            return Error{ErrorKind::unsupported, catalog.describe(id) + " has a packed part at byte " +
                                                     std::to_string(part.offset_bytes) + " for its bytes from " +
                                                     std::to_string(raw_at) +
                                                     " on; kernels need multiples of 512 and of 16: pack it again"};
        }
        raw_at += part.raw_bytes;
    }
    return {};
}

/// Error mismatch: the packed matrix is not the one that its weights are.
[[nodiscard]] inline Status check_matrix(const Catalog& catalog, StorageId id, const PackedPart& part) {
    for (const WeightId weight : catalog.weights_of(id)) {
        const Weight& whole = catalog.weight(weight);
        const std::uint64_t columns = whole.shape.empty() ? 1 : whole.shape.back();
        if (whole.offset_bytes == 0 && whole.bytes == part.raw_bytes && whole.is_dense() && columns == part.columns) {
            continue;
        }
        return Error{ErrorKind::mismatch, catalog.describe(id) + " is packed as a matrix of " +
                                              std::to_string(part.rows) + " × " + std::to_string(part.columns) +
                                              ", which is not the whole of weight " +
                                              residency::detail::quoted(whole.name) + ": pack it again"};
    }
    return {};
}

}  // namespace detail

/// How a catalog travels to a place. `unpacker`: null where nothing unpacks. Errors: invalid_argument, unsupported and mismatch for what
/// cannot travel packed.
template <Device D>
[[nodiscard]] Result<StoredCatalog> try_store(const Catalog& catalog, const Unpacker<D>* unpacker, StoredIn place) {
    StoredCatalog stored;
    stored.forms.assign(catalog.storages().size(), {});
    CatalogBuilder builder;
    builder.reserve(catalog.storages().size(), catalog.storages().size());
    for (std::uint32_t s = 0; s < catalog.storages().size(); ++s) {
        const Storage& storage = catalog.storages()[s];
        StorageOptions options{storage.placement, storage.is_mutable, storage.alignment_bytes, storage.source};
        std::uint64_t bytes = storage.bytes;
        stored.has_written = stored.has_written || (storage.is_mutable && bytes > 0);
        if (const auto* source = std::get_if<PackedHostSource>(&storage.source)) {
            Form& form = stored.forms[s];
            form.parts = source->parts;
            form.raw_bytes = storage.bytes;
            form.host = source->host->data() + source->offset_bytes;
            form.unpacks = false;
            bool is_read_packed = false;
            for (const PackedPart& part : *source->parts) {
                if (part.form == PackedForm::raw) { continue; }
                const bool takes = unpacker != nullptr && unpacker->takes(part.form);
                if (takes) { form.unpacks = true; }
                if (!takes && part.form == PackedForm::bf16_tiles) { is_read_packed = true; }
                if (takes || part.form == PackedForm::bf16_tiles) { continue; }
                return Error{
                    ErrorKind::invalid_argument,
                    catalog.describe(StorageId{s}) +
                        " is packed, and there is nothing that unpacks it: set policies.unpacker (a CudaUnpacker "
                        "of residency/packed/cuda_unpacker.cuh, from a file that nvcc compiles)"};
            }
            if (form.unpacks && is_read_packed) {
                return Error{ErrorKind::unsupported,
                             catalog.describe(StorageId{s}) +
                                 " has parts that are unpacked and parts that are read packed: pack "
                                 "it in one form"};
            }
            if (!form.unpacks && (!is_read_packed || form.parts->size() != 1)) {
                return Error{ErrorKind::invalid_argument,
                             catalog.describe(StorageId{s}) +
                                 " is to be read packed, and is not one packed part: pack a whole weight in "
                                 "one part, or keep it raw"};
            }
            if (storage.is_mutable || storage.placement == Placement::host) {
                return Error{ErrorKind::invalid_argument,
                             catalog.describe(StorageId{s}) + " is packed, and " +
                                 (storage.is_mutable ? "kernels write it" : "kernels read it from host memory") +
                                 ": keep it raw"};
            }
            if (auto fits = detail::check_alignment(catalog, StorageId{s}, *source); !fits) { return fits.error(); }
            if (!form.unpacks) {
                if (auto fits = detail::check_matrix(catalog, StorageId{s}, form.parts->front()); !fits) {
                    return fits.error();
                }
            }
            if (form.unpacks && source->host->kind() != HostMemory::pinned) {
                return Error{ErrorKind::unsupported,
                             catalog.describe(StorageId{s}) +
                                 " is packed in memory that is not pinned: pack it into pinned memory"};
            }
            stored.unpacks = stored.unpacks || form.unpacks;
            bytes = source->bytes;
            if (place == StoredIn::image || !form.unpacks) {
                options.alignment_bytes = (std::max)(options.alignment_bytes, codec::packed_alignment_bytes);
            } else if (storage.placement == Placement::resident) {
                bytes = 0;
            }
            options.source = HostSource{source->host, source->offset_bytes};
        }
        const StorageId id = builder.add_storage(bytes, std::move(options));
        const auto weights = catalog.weights_of(StorageId{s});
        builder.add_weight(weights.empty() ? "storage " + std::to_string(s) : catalog.weight(weights.front()).name,
                           dtype::u8, {bytes}, id);
    }
    auto built = builder.try_build();
    if (!built) { return built.error(); }
    stored.catalog = std::move(*built);
    return stored;
}

}}}  // namespace residency::RESIDENCY_ABI::packed
