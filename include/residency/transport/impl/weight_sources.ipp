// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <unordered_map>
#include <utility>
#include <variant>

#include "residency/transport/transport_policy.hpp"
#include "residency/transport/weight_sources.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

static_assert(ReadCoalescer::page_bytes == host::WeightFile::direct_alignment_bytes);

RESIDENCY_INLINE Status WeightSources::open(const Catalog& catalog, const StagedConfig& config) {
    if (config.loading && config.loading->catalog().hash() != catalog.hash()) {
        return Error{ErrorKind::mismatch, "what is loading is another catalog than the one to be streamed"};
    }
    catalog_ = catalog;
    loading_ = config.loading;
    before_read_ = config.before_read;
    std::unordered_map<const SourceFile*, std::uint32_t> numbers;
    std::uint64_t file_bytes = 0;
    const auto storages = catalog_.storages();
    for (const Storage& storage : storages) {
        const auto* source = std::get_if<FileSource>(&storage.source);
        if (source != nullptr && storage.bytes != 0) { file_bytes += storage.bytes; }
    }
    if (config.file_access) {
        access_ = *config.file_access;
    } else if (file_bytes > (config.limits ? *config.limits : host::read_memory_limits()).room_bytes()) {
        access_ = host::FileAccess::direct;
    }
    sources_.resize(storages.size());
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
        const Storage& storage = storages[i];
        WeightSource& source = sources_[i];
        if (storage.bytes == 0) {
            source.is_pinned = true;
        } else if (const auto* memory = std::get_if<HostSource>(&storage.source)) {
            source.memory = memory->host->data() + memory->offset_bytes;
            source.host = memory->host.get();
            source.is_pinned = memory->host->kind() == HostMemory::pinned;
        } else if (const auto* file = std::get_if<FileSource>(&storage.source)) {
            const auto [known, fresh] =
                numbers.try_emplace(file->file.get(), static_cast<std::uint32_t>(files_.size()));
            if (fresh) {
                auto opened = host::WeightFile::try_open(*file->file, access_);
                if (!opened) { return opened.error(); }
                has_direct_files_ = has_direct_files_ || opened->is_direct();
                files_.push_back(std::move(*opened));
            }
            source.file = known->second;
            source.file_offset = file->offset_bytes;
            source.is_direct = files_[source.file].is_direct();
        } else if (std::holds_alternative<PackedSource>(storage.source)) {
            return Error{ErrorKind::unsupported,
                         catalog_.describe(StorageId{i}) + " is packed in a file: load the catalog first (host::load)"};
        } else if (std::holds_alternative<PackedHostSource>(storage.source)) {
            return detail::is_packed(catalog_, StorageId{i});
        } else {
            return Error{ErrorKind::unsupported,
                         catalog_.describe(StorageId{i}) + " has no source: there is nothing to stream"};
        }
    }
    return {};
}

RESIDENCY_INLINE Status WeightSources::await_loaded(std::span<const StorageId> storages) const {
    for (const StorageId id : storages) {
        if (of(id).memory == nullptr || loading_ == nullptr) { continue; }
        if (Status loaded = loading_->wait(id); !loaded) { return loaded; }
    }
    return {};
}

RESIDENCY_INLINE Status WeightSources::open_again(std::span<const StorageId> storages) {
    std::vector<bool> is_done(files_.size(), false);
    for (const StorageId id : storages) {
        const std::uint32_t number = of(id).file;
        if (number == WeightSource::no_file || is_done[number]) { continue; }
        is_done[number] = true;
        SourceFile file = *std::get<FileSource>(catalog_.storage(id).source).file;
        file.identity.reset();
        for (SourceFile& piece : file.pieces) { piece.identity.reset(); }
        auto opened = host::WeightFile::try_open(file, access_);
        if (!opened) { return opened.error(); }
        files_[number] = std::move(*opened);
        for (WeightSource& source : sources_) {
            if (source.file == number) { source.is_direct = files_[number].is_direct(); }
        }
    }
    return {};
}

RESIDENCY_INLINE bool WeightSources::is_pinned(StorageId id) const noexcept {
    const WeightSource& source = of(id);
    return source.is_pinned || (source.memory != nullptr && loading_ != nullptr && loading_->is_pinned(id));
}

RESIDENCY_INLINE host::Tier WeightSources::tier() const noexcept {
    host::Tier slowest = host::Tier::pinned;
    for (std::uint32_t i = 0; i < sources_.size(); ++i) {
        if (sources_[i].file != WeightSource::no_file) { return host::Tier::file; }
        if (!is_pinned(StorageId{i})) { slowest = host::Tier::pageable; }
    }
    return slowest;
}

RESIDENCY_INLINE Status WeightSources::try_read(const SlotRead& read, std::span<const StoragePart> parts,
                                                std::byte* to) {
    for (const StoragePart& part : parts) {
        if (before_read_) {
            if (Status may = before_read_(part.storage, part.offset_bytes, part.bytes); !may) { return may; }
        }
        if (read.memory != nullptr && loading_) {
            if (Status loaded = loading_->wait(part.storage, part.offset_bytes, part.bytes); !loaded) { return loaded; }
        }
    }
    if (read.memory != nullptr) {
        std::memcpy(to, read.memory + read.from_bytes, static_cast<std::size_t>(read.bytes));
        return {};
    }
    file_reads_.fetch_add(1, std::memory_order_relaxed);
    for (const StoragePart& part : parts) { file_bytes_.fetch_add(part.bytes, std::memory_order_relaxed); }
    return files_[read.file].try_read(read.from_bytes, {to, static_cast<std::size_t>(read.window_bytes)},
                                      static_cast<std::size_t>(read.bytes));
}

}}}  // namespace residency::RESIDENCY_ABI::transport
