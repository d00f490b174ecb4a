// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <variant>

#include "residency/codec/packed_part.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/host/share.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host { namespace detail {

/// What one thread brings at a time: raw bytes, or a packed part.
struct SharedRead {
    const Storage* storage;
    std::uint64_t offset = 0;          ///< in the raw bytes of the storage
    std::uint64_t bytes = 0;           ///< raw
    std::uint64_t at = 0;              ///< in the shared bytes
    const PackedPart* part = nullptr;  ///< null: the bytes are raw
    std::uint64_t packed_offset = 0;   ///< of the part from the first part of the storage, in host memory
};

/// The packed parts of a storage, wherever they lie; null: it is raw.
[[nodiscard]] inline const std::vector<PackedPart>* parts_of(const Storage& storage) noexcept {
    const auto* packed = std::get_if<PackedHostSource>(&storage.source);
    return packed != nullptr ? packed->parts.get() : in_file(storage).parts;
}

/// Adds the identity of a file. False: it is not known. The device does not count, since containers number devices apart.
[[nodiscard]] inline bool add_identity(StableHash& hash, const SourceFile& file) noexcept {
    if (!file.pieces.empty()) {
        return std::all_of(file.pieces.begin(), file.pieces.end(),
                           [&](const SourceFile& piece) { return add_identity(hash, piece); });
    }
    if (!file.identity) { return false; }
    hash.u64(file.identity->inode);
    hash.u64(file.identity->bytes);
    hash.u64(static_cast<std::uint64_t>(file.identity->seconds));
    hash.u64(static_cast<std::uint64_t>(file.identity->nanoseconds));
    return true;
}

RESIDENCY_INLINE SharedLayout lay_out(const Catalog& catalog) {
    SharedLayout layout;
    StableHash sources;
    bool are_known = true;
    std::uint64_t end = 0;
    for (const Storage& storage : catalog.storages()) {
        const std::uint64_t alignment = (std::max)(storage.alignment_bytes, Storage::default_alignment_bytes);
        end = (end + alignment - 1) / alignment * alignment;
        layout.offsets.push_back(end);
        end += storage.bytes;
        if (storage.bytes == 0) { continue; }
        const InFile from = in_file(storage);
        are_known = are_known && from.file != nullptr && add_identity(sources, *from.file);
        if (are_known) { sources.u64(from.offset); }
    }
    layout.contents = {.bytes = end, .model = catalog.hash(), .sources = are_known ? sources.value() : 0};
    return layout;
}

/// Cuts all storages into what threads bring. Error unsupported: a storage without a source.
[[nodiscard]] inline Result<std::vector<SharedRead>> cut_reads(const Catalog& catalog, const SharedLayout& layout) {
    constexpr std::uint64_t read_bytes = std::uint64_t{8} << 20;
    std::vector<SharedRead> reads;
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        const Storage& storage = catalog.storages()[i];
        if (storage.bytes == 0) { continue; }
        if (std::holds_alternative<std::monostate>(storage.source)) {
            return Error{ErrorKind::unsupported,
                         catalog.describe(StorageId{i}) + " has no source: there is nothing to share"};
        }
        SharedRead next{.storage = &storage, .at = layout.offsets[i]};
        const auto add = [&](std::uint64_t bytes) {
            next.bytes = bytes;
            reads.push_back(next);
            next.offset += bytes;
            next.at += bytes;
        };
        if (const auto* const parts = parts_of(storage)) {
            for (const PackedPart& part : *parts) {
                next.part = &part;
                add(part.raw_bytes);
                next.packed_offset += part.packed_bytes;
            }
        } else {
            while (next.offset < storage.bytes) { add((std::min)(read_bytes, storage.bytes - next.offset)); }
        }
    }
    return reads;
}

/// Brings the bytes of one read. `packed`: memory that the thread reuses.
[[nodiscard]] inline Status bring(const SharedRead& read, const WeightFile* file, std::span<std::byte> to,
                                  std::vector<std::byte>& packed) {
    const StorageSource& source = read.storage->source;
    if (const auto* const host = std::get_if<HostSource>(&source)) {
        std::memcpy(to.data(), host->host->data() + host->offset_bytes + read.offset, to.size());
        return {};
    }
    if (const auto* const host = std::get_if<PackedHostSource>(&source)) {
        const auto at = static_cast<std::size_t>(host->offset_bytes + read.packed_offset);
        return codec::unpack_part(
            *read.part, host->host->span().subspan(at, static_cast<std::size_t>(read.part->packed_bytes)), to);
    }
    const std::uint64_t offset =
        read.part != nullptr ? read.part->offset_bytes : std::get<FileSource>(source).offset_bytes + read.offset;
    return read_raw(*file, offset, read.part, to, packed);
}

RESIDENCY_INLINE Status fill_shared(const Catalog& catalog, const SharedLayout& layout, unsigned threads,
                                    std::span<std::byte> to) {
    const auto reads = cut_reads(catalog, layout);
    if (!reads) { return reads.error(); }
    std::unordered_map<const SourceFile*, WeightFile> files;
    for (const Storage& storage : catalog.storages()) {
        const SourceFile* const source = in_file(storage).file;
        if (source == nullptr || storage.bytes == 0 || files.contains(source)) { continue; }
        auto file = WeightFile::try_open(*source, FileAccess::cached);
        if (!file) { return file.error(); }
        files.emplace(source, std::move(*file));
    }
    std::mutex mutex;
    std::optional<Error> error;  // the first
    auto work = [&](std::uint64_t first, std::uint64_t last) {
        std::vector<std::byte> packed;
        for (std::uint64_t i = first; i < last; ++i) {
            {
                const std::lock_guard lock{mutex};
                if (error) { return; }
            }
            const SharedRead& read = (*reads)[i];
            const auto file = files.find(in_file(*read.storage).file);
            const Status brought =
                bring(read, file != files.end() ? &file->second : nullptr,
                      to.subspan(static_cast<std::size_t>(read.at), static_cast<std::size_t>(read.bytes)), packed);
            if (brought) { continue; }
            const std::lock_guard lock{mutex};
            if (!error) {
                error = brought.error().in("sharing " + catalog.describe(StorageId{static_cast<std::uint32_t>(
                                                            read.storage - catalog.storages().data())}));
            }
        }
    };
    residency::detail::for_blocks_in_parallel(reads->size(), 1, threads_of(threads), work);
    return error ? Status{*error} : Status{};
}

RESIDENCY_INLINE Catalog with_shared(const Catalog& catalog, const SharedLayout& layout, const SharedHostBytes& bytes) {
    const auto host = bytes.bytes();
    std::vector<StorageSource> sources;
    sources.reserve(layout.offsets.size());
    for (const std::uint64_t offset : layout.offsets) { sources.emplace_back(HostSource{host, offset}); }
    auto placed = catalog.try_with_sources(std::move(sources));
    RESIDENCY_ASSERT(placed.has_value(), "every storage lies inside the shared bytes");
    return std::move(*placed);
}

}}}}  // namespace residency::RESIDENCY_ABI::host::detail
