// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/device/memory_limits.hpp"
#include "residency/device/memory_node.hpp"
#include "residency/error.hpp"
#include "residency/host/region.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/storage.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// How far a load has come.
struct LoadProgress {
    std::uint64_t loaded_bytes = 0;      ///< read so far
    std::uint64_t total_bytes = 0;       ///< to read
    std::chrono::nanoseconds elapsed{};  ///< since the start
};

/// When memory is pinned. While a driver pins, its other calls wait.
enum class Pinning : std::uint8_t {
    as_loaded,      ///< each block when it is full, while others are read: loading and pinning end soonest
    after_loading,  ///< all blocks when everything is read: for a first pass that runs meanwhile, through transport::Staged
};

/// How the bytes of a catalog are loaded.
struct LoadOptions {
    Tier tier = Tier::automatic;  ///< where the bytes are kept
    unsigned threads = 0;         ///< that read, beside one that pins; 0: as many as the machine has, at most 8
    std::uint64_t read_bytes = std::uint64_t{8} << 20;  ///< of one read
    bool huge_pages = true;                             ///< asks the system for huge pages
    Pinning pinning = Pinning::as_loaded;               ///< when memory is pinned
    std::vector<StorageId> order;                       ///< of the catalog; these are loaded first, in this order
    Schedule schedule;  ///< then the storages that it reads, in the order of their first uses; then the rest
    /// Called now and then, by one thread at a time, which is not the caller's. False cancels. Must not throw.
    std::function<bool(const LoadProgress&)> progress;
    std::optional<MemoryLimits> limits;  ///< none: those of this process
};

/// What was loaded, and how.
struct LoadReport {
    Tier tier = Tier::automatic;     ///< the tier in use, never automatic
    std::string reason;              ///< why that is not the first choice, with the numbers; empty where it is
    MemoryLimits limits;             ///< that were applied
    std::uint64_t weight_bytes = 0;  ///< of the storages that were read from files
    std::uint64_t host_bytes = 0;    ///< of the memory taken for them
    unsigned threads = 0;            ///< that read
    std::optional<unsigned>
        memory_node;  ///< on which it was asked for; none: the device names none, or the system refused
    std::chrono::nanoseconds load_time{};  ///< from the start to the end
    std::chrono::nanoseconds pin_time{};   ///< spent pinning, while others read
};

/// Brings the storages of a catalog that lie in files into host memory. What is packed in a file is unpacked on the way. A storage is usable as soon as its own bytes are there.
/// Several threads read straight into memory that is taken in blocks of whole storages, in the order of loading. One more thread
/// pins each block as soon as it is full: a driver pins one range at a time, and a copy may not cross two ranges. wait(id) waits
/// for one storage; transport::Staged calls it by itself, so that a step of the first pass starts as soon as its own bytes, and
/// those that the schedule reads before, are there. Thread safe. Its end cancels and joins; the bytes live as long as a catalog
/// with them.
class Loading {
    struct Key {};

public:
    /// Made by load().
    explicit Loading(Key) {}
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;
    ~Loading() {
        cancel();
        threads_.join();
    }

    /// Starts, and returns at once. The device pins and unpins: it must outlive every catalog with the bytes. Reads the limits of
    /// the process first. Errors: io and mismatch for files that are not what the catalog says; out_of_memory, with the numbers,
    /// where an explicit tier does not fit; unsupported where a storage has no source; mismatch for a schedule or an order of another
    /// catalog.
    template <Device D>
    [[nodiscard]] static Result<std::shared_ptr<Loading>> try_start(D& device, const Catalog& catalog,
                                                                    LoadOptions options = {}) {
        auto loading = std::make_shared<Loading>(Key{});
        loading->pin_ = [&device](Region& region) { return region.try_pin(device); };
        loading->memory_node_ = residency::detail::memory_node_of(device);
        if (Status started = loading->start(catalog, std::move(options)); !started) { return started.error(); }
        return loading;
    }

    /// The catalog with its bytes in host memory, or the one given where the tier is file. Before wait() returns, bytes may be
    /// missing and the kind of memory is not final: call it again then.
    [[nodiscard]] Catalog catalog() const {
        const std::lock_guard lock{mutex_};
        return catalog_;
    }
    /// Blocks until everything is loaded and pinned. Errors: the first of the load, cancelled included.
    [[nodiscard]] Status wait();
    /// Blocks until a storage is loaded. Errors: as wait(). Precondition: an id of the catalog.
    [[nodiscard]] Status wait(StorageId id) { return wait(reads_of(id)); }
    /// Blocks until bytes [offset, offset + bytes) of a storage are loaded. Errors: as wait(). Precondition: they lie in it.
    [[nodiscard]] Status wait(StorageId id, std::uint64_t offset, std::uint64_t bytes);
    /// Whether a storage is loaded. Precondition: an id of the catalog.
    [[nodiscard]] bool is_loaded(StorageId id) const noexcept { return are_loaded(reads_of(id)); }
    /// Whether a storage is loaded and pinned. Precondition: an id of the catalog.
    [[nodiscard]] bool is_pinned(StorageId id) const noexcept {
        if (range_of_.empty()) { return false; }
        assert_known(id);
        const std::uint32_t range = range_of_[index(id)].range;
        return range != no_range && blocks_[ranges_[range].block].pinned.load(std::memory_order_acquire);
    }
    /// Stops soon. wait() then returns ErrorKind::cancelled, unless everything was loaded before.
    void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

    /// Now.
    [[nodiscard]] LoadProgress progress() const noexcept {
        return {loaded_bytes_.load(std::memory_order_relaxed), total_bytes_, std::chrono::steady_clock::now() - start_};
    }
    /// Complete once wait() has returned.
    [[nodiscard]] LoadReport report() const {
        const std::lock_guard lock{mutex_};
        return report_;
    }

private:
    static constexpr std::uint32_t no_range = UINT32_MAX;

    /// A range of a file that is contiguous in memory too.
    struct FileRange {
        std::uint32_t file = 0;               ///< index in files_
        std::uint32_t block = 0;              ///< index in blocks_
        std::uint64_t offset = 0, bytes = 0;  ///< in the file
        std::uint64_t at = 0;                 ///< offset in the block
        /// The parts of a packed storage, whose raw bytes are the range; null: the bytes lie in the file as they are.
        const std::vector<PackedPart>* parts = nullptr;
    };
    /// Where a storage is.
    struct RangePosition {
        std::uint32_t range = no_range;  ///< index in ranges_; no_range: it is not loaded from a file
        std::uint64_t offset = 0;        ///< in the range
    };
    /// What one thread reads at a time.
    struct ReadUnit {
        std::uint32_t file = 0;               ///< index in files_
        std::uint32_t block = 0;              ///< index in blocks_
        std::uint64_t offset = 0, bytes = 0;  ///< in the file; raw bytes where it is packed
        std::uint64_t at = 0;                 ///< offset in the block
        const PackedPart* part = nullptr;     ///< to be unpacked; null: to be read as it is
    };
    /// Memory that is pinned in one call.
    struct Block {
        std::uint64_t bytes = 0;
        std::shared_ptr<Region> region;
        std::atomic<std::size_t> reads_left = 0;  ///< read units of it that are not yet read
        std::atomic<bool> pinned = false;
    };

    using ReadSpan = std::pair<std::size_t, std::size_t>;  // indices in reads_: the first, and one past the last

    [[nodiscard]] bool are_loaded(ReadSpan reads) const noexcept {
        for (std::size_t unit = reads.first; unit < reads.second; ++unit) {
            if (loaded_[unit].load(std::memory_order_acquire) == 0) { return false; }
        }
        return true;
    }
    [[nodiscard]] Status wait(ReadSpan reads);
    [[nodiscard]] Status start(const Catalog& catalog, LoadOptions options);
    /// By storage: its place in the order of loading; equal for storages of one step.
    [[nodiscard]] std::vector<std::uint64_t> ranks() const;
    /// Opens the files. Joins the ranges of storages that are neighbours in a file, so that small storages do not cost one read
    /// each. Lays the ranges out in blocks, in the order of loading.
    [[nodiscard]] Status plan();
    /// Decides the tier, before any memory is taken.
    [[nodiscard]] Status choose(std::uint64_t needed);

    [[nodiscard]] Status done_at_once() {
        finished_ = true;
        return {};
    }
    /// The catalog with its bytes in the blocks, by the kind of memory that each block is now.
    [[nodiscard]] Catalog with_host_bytes() const;
    /// Cuts the ranges into read units.
    void make_reads();
    /// The read unit that holds a byte of a range.
    [[nodiscard]] std::size_t read_at(std::uint32_t range, std::uint64_t byte) const;
    /// Reads one unit into its block, and unpacks it where it is packed. `packed`: memory that the thread reuses.
    [[nodiscard]] Status read(const ReadUnit& unit, std::vector<std::byte>& packed);
    /// The body of a thread that reads.
    void work();
    /// The body of the thread that pins each block when it is full.
    void pin_as_loaded();
    /// Called last by every thread.
    void leave();

    /// Precondition: mutex_ is held.
    [[nodiscard]] Status status() const { return error_ ? Status{*error_} : Status{}; }
    void fail(const Error& error);
    /// A debug build stops where the catalog has no such storage.
    void assert_known([[maybe_unused]] StorageId id) const noexcept {
        RESIDENCY_ASSERT(index(id) < reads_of_.size(), "pass the id of a storage of the catalog that is loaded");
    }
    /// The read units that hold a storage.
    [[nodiscard]] const ReadSpan& reads_of(StorageId id) const noexcept {
        assert_known(id);
        return reads_of_[index(id)];
    }
    /// Pins a full block. On failure the rest of the memory stays pageable.
    void pin(Block& block);
    /// Runs once, in the thread that leaves last.
    void finish();

    LoadOptions options_;
    std::function<Status(Region&)> pin_;   // on the device
    std::optional<unsigned> memory_node_;  // of the device
    std::chrono::steady_clock::time_point start_;
    std::vector<WeightFile> files_;
    std::deque<Block> blocks_;
    std::vector<ReadUnit> reads_;                          // in the order of reading
    std::vector<std::size_t> first_read_;                  // by range: index of its first read unit
    std::vector<ReadSpan> reads_of_;                       // by storage: the read units that hold it
    std::unique_ptr<std::atomic<std::uint8_t>[]> loaded_;  // by read unit: 1 once it is read
    std::vector<FileRange> ranges_;
    std::vector<RangePosition> range_of_;  // by storage
    Catalog sources_;                      // the catalog that was given
    std::uint64_t total_bytes_ = 0;        // of all ranges
    std::atomic<std::size_t> next_ = 0;    // index of the next read unit
    std::atomic<std::uint64_t> loaded_bytes_ = 0;
    std::atomic<bool> cancelled_ = false;
    std::atomic<bool> failed_ = false;
    std::mutex progress_mutex_;  // held during options_.progress

    mutable std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    Catalog catalog_;
    LoadReport report_;
    std::optional<Error> error_;
    unsigned working_ = 0;
    bool finished_ = false;

    ThreadGroup threads_;
};

/// A model in host memory.
struct Loaded {
    Catalog catalog;    ///< whose storages have their bytes
    LoadReport report;  ///< what became of it
};

/// Blocks. Loads a model into host memory. Errors: those of Loading::try_start and Loading::wait.
template <Device D>
[[nodiscard]] Result<Loaded> try_load(D& device, const Catalog& catalog, LoadOptions options = {}) {
    auto loading = Loading::try_start(device, catalog, std::move(options));
    if (!loading) { return loading.error(); }
    if (Status waited = (*loading)->wait(); !waited) { return waited.error(); }
    return Loaded{(*loading)->catalog(), (*loading)->report()};
}
#if RESIDENCY_EXCEPTIONS
template <Device D>
[[nodiscard]] Loaded load(D& device, const Catalog& catalog, LoadOptions options = {}) {
    return unwrap(try_load(device, catalog, std::move(options)));
}
#endif

}}}  // namespace residency::RESIDENCY_ABI::host

#if RESIDENCY_HEADER_ONLY
#include "residency/host/impl/loading.ipp"
#endif
