// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/transport/read_coalescer.hpp"
#include "residency/transport/staged_config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// The sources of a catalog's bytes. Once opened, every storage that has bytes has exactly one: memory, or an open file. Holds the
/// catalog, and so its host bytes. try_read() is thread safe, and so is everything const.
class WeightSources {
public:
    WeightSources() = default;
    WeightSources(const WeightSources&) = delete;
    WeightSources& operator=(const WeightSources&) = delete;

    /// Opens the files. Blocks. Errors: io and mismatch for files; mismatch: what is loading is another catalog; unsupported: a
    /// storage has no source.
    [[nodiscard]] Status open(const Catalog& catalog, const StagedConfig& config);

    /// Blocks until these storages are loaded, where their catalog is still loading. Errors: those of the load.
    [[nodiscard]] Status await_loaded(std::span<const StorageId> storages) const;
    /// Blocks. The files of these storages were written to or replaced: opens them anew, by their paths, whatever their identity. Nothing
    /// reads meanwhile. Errors: io; mismatch: another size. Files after the one that failed are those from before.
    [[nodiscard]] Status open_again(std::span<const StorageId> storages);

    [[nodiscard]] const WeightSource& of(StorageId id) const noexcept { return sources_[index(id)]; }
    /// Whether a storage lies in pinned memory, by now, so that the device can copy from there.
    [[nodiscard]] bool is_pinned(StorageId id) const noexcept;
    /// The tier of the slowest source.
    [[nodiscard]] host::Tier tier() const noexcept;
    [[nodiscard]] bool has_direct_files() const noexcept { return has_direct_files_; }

    /// Writes what a read brings to `to`, which has room for its window. `parts`: those of the read. Blocks, also until they are
    /// loaded.
    [[nodiscard]] Status try_read(const SlotRead& read, std::span<const StoragePart> parts, std::byte* to);
    /// Bytes of the parts read from files.
    [[nodiscard]] std::uint64_t file_bytes() const noexcept { return file_bytes_.load(std::memory_order_relaxed); }
    /// Calls that read them.
    [[nodiscard]] std::uint64_t file_reads() const noexcept { return file_reads_.load(std::memory_order_relaxed); }

private:
    Catalog catalog_;
    std::shared_ptr<host::Loading> loading_;  // null: nothing is loading
    std::function<Status(StorageId, std::uint64_t offset, std::uint64_t bytes)> before_read_;  // may be empty
    std::vector<WeightSource> sources_;                                                        // by storage
    std::vector<host::WeightFile> files_;                                                      // by number
    host::FileAccess access_ = host::FileAccess::cached;
    bool has_direct_files_ = false;
    std::atomic<std::uint64_t> file_bytes_ = 0, file_reads_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::transport

#if RESIDENCY_HEADER_ONLY
#include "residency/transport/impl/weight_sources.ipp"
#endif
