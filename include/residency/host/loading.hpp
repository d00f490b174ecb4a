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
#include "residency/error.hpp"
#include "residency/host/memory_limits.hpp"
#include "residency/host/region.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// How far a load is.
struct LoadProgress {
    std::uint64_t loaded_bytes = 0;
    std::uint64_t total_bytes = 0;
    std::chrono::nanoseconds elapsed{};
};

/// When memory is pinned. A driver lets nobody else in while it pins.
enum class Pinning : std::uint8_t {
    as_loaded,      ///< each block when it is full, while others are read: the whole is loaded and pinned soonest
    after_loading,  ///< when all is read: for a first pass that runs meanwhile, through transport::Staged
};

/// How the bytes of a catalog are loaded.
struct LoadOptions {
    Tier tier = Tier::automatic;
    unsigned threads = 0;  ///< that read, beside one that pins; 0: as many as the machine has, at most 8
    std::uint64_t piece_bytes = std::uint64_t{8} << 20;  ///< of one read
    bool huge_pages = true;
    Pinning pinning = Pinning::as_loaded;
    std::vector<StorageId> order;  ///< loaded first, in this order
    Schedule schedule;             ///< then what it reads, in the order of first uses; then the rest
    /// Called now and then, by one thread at a time, not the caller's; false cancels. Must not throw.
    std::function<bool(const LoadProgress&)> progress;
    std::optional<MemoryLimits> limits;  ///< instead of those of this process
};

/// What was loaded, and how.
struct LoadReport {
    Tier tier = Tier::automatic;  ///< the tier in use, never automatic
    std::string reason;           ///< why, with the numbers, where it is not the first choice; otherwise empty
    MemoryLimits limits;
    std::uint64_t weight_bytes = 0;  ///< of the storages that were read from files
    std::uint64_t host_bytes = 0;    ///< taken for them
    unsigned threads = 0;
    std::chrono::nanoseconds load_time{};  ///< from the start to the end
    std::chrono::nanoseconds pin_time{};   ///< of that; others read meanwhile
};

/// Brings the storages of a catalog that lie in files into host memory: several threads read straight into place. The memory is
/// taken in blocks of whole storages, in the order of loading, and one more thread pins each block as soon as it is full, while others
/// are read: a driver pins one range at a time, and copies may not cross the ranges. What is loaded can be used while the rest is
/// still coming: wait(id), or transport::Staged, which asks by itself, so that a step of the first pass starts as soon as its
/// own bytes, and those that the schedule reads before, are there. Thread safe. Destroying it cancels and joins; the bytes live as long as a
/// catalog with them.
class Loading {
    struct Key {};

public:
    explicit Loading(Key) {}
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;
    ~Loading() {
        cancel();
        threads_.join();
    }

    /// Starts, and returns at once. The device pins and unpins: it has to outlive every catalog with the bytes. Errors: io and
    /// mismatch for files that are not what the catalog says; out_of_memory with the numbers where an explicit tier does not
    /// fit; unsupported where a storage has no source; mismatch for a schedule of another catalog. Reads the limits of the
    /// process first.
    template <Device D>
    [[nodiscard]] static Result<std::shared_ptr<Loading>> try_start(D& device, const Catalog& catalog,
                                                                    LoadOptions options = {}) {
        auto loading = std::make_shared<Loading>(Key{});
        loading->pin_ = [&device](void* at, std::uint64_t bytes) { return device.pin(at, bytes); };
        loading->unpin_ = [&device](void* at) { return device.unpin(at); };
        if (Status started = loading->start(catalog, std::move(options)); !started) { return started.error(); }
        return loading;
    }

    /// The catalog with its bytes in host memory, or the one given where the tier is file. Until wait() has returned, bytes may
    /// be missing, and after it the kind of memory is known: ask again then.
    [[nodiscard]] Catalog catalog() const {
        const std::lock_guard lock{mutex_};
        return catalog_;
    }
    /// Blocks until all is loaded and pinned; the first error otherwise (cancelled among them).
    [[nodiscard]] Status wait();
    /// Blocks until a storage is loaded; an error where it will not be. Precondition: an id of the catalog.
    [[nodiscard]] Status wait(StorageId id) { return wait(pieces_of_[index(id)]); }
    /// The same for bytes [offset, offset + bytes) of it. Precondition: they lie in it.
    [[nodiscard]] Status wait(StorageId id, std::uint64_t offset, std::uint64_t bytes);
    /// Whether the bytes of a storage are there. Precondition: an id of the catalog.
    [[nodiscard]] bool is_loaded(StorageId id) const noexcept { return are_loaded(pieces_of_[index(id)]); }
    /// Whether the bytes of a storage are there and pinned. Precondition: an id of the catalog.
    [[nodiscard]] bool is_pinned(StorageId id) const noexcept {
        if (places_.empty()) { return false; }
        const std::uint32_t run = places_[index(id)].run;
        return run != no_run && blocks_[runs_[run].block].pinned.load(std::memory_order_acquire);
    }
    /// Stops soon; wait() then returns ErrorKind::cancelled, unless all was loaded before.
    void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

    [[nodiscard]] LoadProgress progress() const noexcept {
        return {loaded_bytes_.load(std::memory_order_relaxed), total_bytes_, std::chrono::steady_clock::now() - start_};
    }
    /// Complete once wait() has returned.
    [[nodiscard]] LoadReport report() const {
        const std::lock_guard lock{mutex_};
        return report_;
    }

private:
    static constexpr std::uint32_t no_run = UINT32_MAX;

    /// A range of a file that is contiguous in memory too.
    struct Run {
        std::uint32_t file = 0;
        std::uint32_t block = 0;
        std::uint64_t offset = 0, bytes = 0;
        std::uint64_t at = 0;  ///< in the block
    };
    /// Where a storage is: nowhere, or so many bytes into a run.
    struct PlaceInRun {
        std::uint32_t run = no_run;
        std::uint64_t offset = 0;
    };
    struct Piece {
        std::uint32_t file = 0;
        std::uint32_t block = 0;
        std::uint64_t offset = 0, bytes = 0, at = 0;
    };
    /// Memory that is pinned as one.
    struct Block {
        std::uint64_t bytes = 0;
        std::shared_ptr<Region> region;
        std::atomic<std::size_t> pieces_left = 0;
        std::atomic<bool> pinned = false;
    };

    using Pieces = std::pair<std::size_t, std::size_t>;  // from the first up to the second

    [[nodiscard]] bool are_loaded(Pieces pieces) const noexcept {
        for (std::size_t piece = pieces.first; piece < pieces.second; ++piece) {
            if (loaded_[piece].load(std::memory_order_acquire) == 0) { return false; }
        }
        return true;
    }
    [[nodiscard]] Status wait(Pieces pieces);
    [[nodiscard]] Status start(const Catalog& catalog, LoadOptions options);
    /// Of every storage: when it is loaded. Those of one step together.
    [[nodiscard]] std::vector<std::uint64_t> ranks() const;
    /// Opens the files, joins the storages' ranges where they are neighbours, so that small ones cost no read each, and lays the
    /// ranges out in blocks, in the order of loading.
    [[nodiscard]] Status plan();
    /// Decides the tier before anything is taken.
    [[nodiscard]] Status choose(std::uint64_t needed);

    [[nodiscard]] Status done_at_once() {
        finished_ = true;
        return {};
    }
    /// The catalog over the blocks, by the kind of memory that each is now.
    [[nodiscard]] Catalog with_host_bytes() const;
    void make_pieces();
    void work();
    /// Pins each block when it is full, beside the threads that read.
    void pin_as_loaded();
    void leave();

    /// Precondition: mutex_ is held.
    [[nodiscard]] Status status() const { return error_ ? Status{*error_} : Status{}; }
    void fail(const Error& error);
    /// Pins a block that is full. Where that fails, the rest stays pageable.
    void pin(Block& block);
    /// Runs once, in the thread that is done last.
    void finish();

    LoadOptions options_;
    std::function<Status(void*, std::uint64_t)> pin_;
    std::function<Status(void*)> unpin_;
    std::chrono::steady_clock::time_point start_;
    std::vector<WeightFile> files_;
    std::deque<Block> blocks_;
    std::vector<Piece> pieces_;                            // in the order of reading
    std::vector<std::size_t> first_piece_;                 // of each run
    std::vector<Pieces> pieces_of_;                        // of each storage
    std::unique_ptr<std::atomic<std::uint8_t>[]> loaded_;  // each piece
    std::vector<Run> runs_;
    std::vector<PlaceInRun> places_;  // of each storage
    Catalog sources_;
    std::uint64_t total_bytes_ = 0;  // to read
    std::atomic<std::size_t> next_ = 0;
    std::atomic<std::uint64_t> loaded_bytes_ = 0;
    std::atomic<bool> cancelled_ = false;
    std::atomic<bool> failed_ = false;
    std::mutex progress_mutex_;

    mutable std::mutex mutex_;  // what follows
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
    Catalog catalog;
    LoadReport report;
};

/// Loads and waits. Errors: as Loading::try_start and Loading::wait. Blocks.
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
