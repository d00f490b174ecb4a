// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where Staged reads from, and its options.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "residency/device/memory_limits.hpp"
#include "residency/error.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/transport/read_coalescer.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// The knobs of transport::Staged.
struct StagedConfig {
    std::uint64_t ring_bytes = std::uint64_t{128} << 20;  ///< pinned, beside the weights; at least two slots
    std::uint64_t slot_bytes = std::uint64_t{4} << 20;    ///< of one copy, at most
    unsigned threads = 0;                                 ///< that fill slots; 0: as many as the machine has, at most 8
    /// How files are read. None: through the page cache if all of them fit into free memory, past it otherwise.
    std::optional<host::FileAccess> file_access{};
    /// What is still loading the catalog. Bytes that are not loaded yet are waited for; storages that it has pinned go straight.
    std::shared_ptr<host::Loading> loading{};
    /// Called before bytes [offset, offset + bytes) of a storage are brought into the ring, from any thread, from several at once.
    /// An error counts as the error of the read, and a read may bring neighbours too. Must not throw.
    std::function<Status(StorageId, std::uint64_t offset, std::uint64_t bytes)> before_read{};
    std::optional<host::MemoryLimits> limits{};  ///< instead of the limits of this process
};

/// What a transport::Staged has done since it was opened.
struct StagedStatistics {
    host::Tier tier = host::Tier::pinned;  ///< of the slowest source of the catalog
    bool direct_io = false;                ///< files are read past the page cache
    std::uint64_t straight_bytes = 0;      ///< copied from where they were pinned
    std::uint64_t staged_bytes = 0;        ///< copied through the ring
    std::uint64_t file_bytes = 0;          ///< of the staged bytes, those read from files
    std::uint64_t file_reads = 0;          ///< calls that read them; one call reads near neighbours of a slot
    std::uint64_t slots_filled = 0;        ///< by its threads
    std::uint64_t ahead_bytes =
        0;  ///< of the staged bytes, those handed to the threads before their copies were enqueued
    std::uint64_t withdrawn_bytes = 0;  ///< of the bytes ahead, those whose copies were never enqueued
};

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
