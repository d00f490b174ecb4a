// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/catalog.hpp"
#include "residency/transport/read_coalescer.hpp"
#include "residency/transport/staging_ring.hpp"
#include "residency/transport/staging_workers.hpp"
#include "residency/transport/transport_policy.hpp"
#include "residency/transport/weight_sources.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Copies through a ring of pinned slots, which worker threads fill from pageable memory or from files. A copy is enqueued at once,
/// behind the flag of its slot: the device copies a slot only after it was filled, and it is filled again only after its copy. Bytes
/// that are pinned already are copied from where they lie.
///
/// Reads run ahead of the copies. What read_ahead() announces is read into free slots at once, so that the copy finds its bytes
/// there when it is enqueued. A decider that knows its calls beforehand announces them.
///
/// A read that fails (a file that was changed or truncated, a read error, a load that was cancelled) cannot be told to the stream. Before
/// the flag rises, the error is noted and the bytes of the read become all ones, which are not numbers in any floating type. From
/// then on status() and every enqueue return the error, until take_failure(). A pass can end, on the host, before its bytes are read.
/// Who must not use results of such bytes asks Residency::try_transport_status() (or try_drain()) after the pass's stream was
/// synchronized, and before the next pass begins: success then says that every byte that the pass read arrived as its source has it.
template <FlagDevice D>
class Staged {
public:
    using Config = StagedConfig;               ///< the ring, the threads, how files are read
    using Statistics = StagedStatistics;       ///< what it has done
    static constexpr bool capturable = false;  ///< its copies wait for threads of the host

    Staged() : Staged(Config{}) {}
    /// Reads as `config` says.
    explicit Staged(Config config) noexcept : config_{std::move(config)} {}

    /// Opens the files, takes the ring and starts the threads. May block. Errors: invalid_argument: no ring or no slots; io and
    /// mismatch for files; mismatch: what is loading is another catalog; unsupported: a storage has no source; out_of_memory: for the ring.
    [[nodiscard]] Status open(D& device, const Catalog& catalog);
    /// Does not block.
    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
        RESIDENCY_ASSERT(core_ != nullptr, "open the transport before it is used");
        return core_->enqueue(fetches, stream);
    }
    /// Announces what a later call of enqueue() will bring; announcements come in the order of those calls. The threads begin to read
    /// at once. Calls that were not announced may come between. False: the ring is full of what was announced, or a thread has
    /// failed; nothing was noted, and it may be announced again later. Does not block.
    [[nodiscard]] bool read_ahead(std::span<const Fetch> fetches) { return core_->read_ahead(fetches); }
    /// Withdraws what was announced: it will not be enqueued. Does not block.
    void forget_ahead() {
        if (core_) { core_->forget_ahead(); }
    }
    /// Blocks until no thread reads: what was announced is withdrawn, and what is loading of these storages is loaded. Errors: those of the
    /// load.
    [[nodiscard]] Status pause(std::span<const StorageId> storages) {
        return core_ ? core_->pause(storages) : Status{};
    }
    /// The bytes of these storages were replaced since pause(). Blocks: their files are opened anew, by their paths, and any identity is
    /// right now. Errors: io; mismatch: a file has another size than the catalog says. The caller has drained the streams.
    [[nodiscard]] Status sources_changed(std::span<const StorageId> storages) {
        return core_ ? core_->sources_changed(storages) : Status{};
    }
    /// Blocks until the threads have ended. The caller has drained the streams.
    void close() noexcept { core_.reset(); }
    /// Blocks until the threads have ended. Leaves to the device what it may still read, wait for or record.
    void abandon() noexcept {
        if (core_) { core_->abandon(); }
    }

    /// Forgets the failure, and appends every storage of which bytes did not arrive. What was announced is withdrawn. The caller has
    /// drained the streams.
    void take_failure(std::vector<StorageId>& storages) {
        if (core_) { core_->take_failure(storages); }
    }
    /// The first failure of a worker since take_failure(). Any thread.
    [[nodiscard]] Status status() const { return core_ ? core_->status() : Status{}; }
    /// Any thread.
    [[nodiscard]] Statistics statistics() const { return core_ ? core_->statistics() : Statistics{}; }

private:
    /// An open transport: it does not move, since threads use it.
    class Core {
    public:
        explicit Core(D& device) : device_{device}, ring_{device}, workers_{device, ring_, sources_, failures_} {}
        Core(const Core&) = delete;
        Core& operator=(const Core&) = delete;
        ~Core() { stop(); }

        [[nodiscard]] Status open(const Catalog& catalog, const Config& config);
        void abandon() noexcept {
            stop();
            ring_.abandon();
        }

        [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream);
        [[nodiscard]] bool read_ahead(std::span<const Fetch> fetches);
        void forget_ahead();

        [[nodiscard]] Status pause(std::span<const StorageId> storages) {
            forget_ahead();
            workers_.await_queued();
            return sources_.await_loaded(storages);
        }
        [[nodiscard]] Status sources_changed(std::span<const StorageId> storages) {
            return sources_.open_again(storages);
        }
        void take_failure(std::vector<StorageId>& storages);
        [[nodiscard]] Status status() const { return failures_.status(); }
        [[nodiscard]] Statistics statistics() const;

    private:
        using Job = typename StagingWorkers<D>::Job;

        /// A slot that was handed to the workers, and the copies out of it that are still to be enqueued.
        struct PreparedSlot {
            std::uint32_t slot = 0;
            std::uint32_t generation = 0;
            std::uint64_t bytes = 0;  ///< of the copies
            JoinedCopies copies;
        };
        /// What one call of enqueue() brings. The fetches before `next_fetch` have slots, or go straight.
        struct Transfer {
            std::vector<Fetch> fetches;
            std::vector<std::uint8_t> is_straight;  ///< each: 1 where it is copied from pinned memory
            std::size_t next_fetch = 0;             ///< to be prepared
            std::uint64_t done_bytes = 0;           ///< of it, prepared already
            std::vector<PreparedSlot> prepared;     ///< those from `count` on are kept for their memory
            std::size_t count = 0, sent = 0;        ///< of `prepared`: in use; enqueued
            std::unique_ptr<Transfer> next;         ///< in a list
        };

        /// Slots that announcements leave to calls that were not announced.
        [[nodiscard]] std::size_t reserved_slots() const noexcept { return std::max<std::size_t>(1, ring_.size() / 8); }

        [[nodiscard]] std::unique_ptr<Transfer> make_transfer(std::span<const Fetch> fetches);
        void give_back(std::unique_ptr<Transfer> transfer) noexcept {
            transfer->next = std::move(free_transfers_);
            free_transfers_ = std::move(transfer);
        }
        /// The transfer that was announced for these fetches; null: none was. Announcements before it count as left out.
        [[nodiscard]] std::unique_ptr<Transfer> take_announced(std::span<const Fetch> fetches);
        [[nodiscard]] std::unique_ptr<Transfer> take_first() noexcept;

        /// Prepares as many slots as may be taken ahead. Returns whether that was all of the transfer.
        [[nodiscard]] bool prepare_ahead(Transfer& transfer);
        [[nodiscard]] bool has_unprepared(Transfer& transfer) const noexcept;
        /// Hands a free slot to the workers, with what comes next of the transfer. Preconditions: there is some, and a free slot.
        void prepare(Transfer& transfer);
        /// Gives back the slots whose copies will not be enqueued.
        void withdraw(Transfer& transfer);

        [[nodiscard]] Status enqueue(Transfer& transfer, typename D::Stream stream);
        /// Enqueues the copies out of the transfer's next slot, behind its flag. After a failure the slot is still the transfer's, or
        /// free. Blocks only after a failure.
        [[nodiscard]] Status send(Transfer& transfer, typename D::Stream stream);

        void stop() noexcept {
            forget_ahead();
            workers_.stop();
        }

        D& device_;
        WeightSources sources_;
        ReadFailures failures_;
        StagingRing<D> ring_;

        // Used by the thread that enqueues.
        std::unique_ptr<Transfer> ahead_;  // announced, in that order; only the last one may have something unprepared
        Transfer* last_ahead_ = nullptr;   // of a list that is not empty
        std::unique_ptr<Transfer> free_transfers_;
        JoinedCopies straight_;
        std::vector<std::uint32_t> unknown_slots_;  // may be copied from until the streams are drained

        std::atomic<std::uint64_t> straight_bytes_ = 0;
        std::atomic<std::uint64_t> ahead_bytes_ = 0;
        std::atomic<std::uint64_t> withdrawn_bytes_ = 0;

        StagingWorkers<D> workers_;  // last: its threads use what stands before
    };

    Config config_;
    std::unique_ptr<Core> core_;  // while open
};

template <FlagDevice D>
Status Staged<D>::open(D& device, const Catalog& catalog) {
    auto core = std::make_unique<Core>(device);
    if (Status opened = core->open(catalog, config_); !opened) { return opened; }
    core_ = std::move(core);
    return {};
}

template <FlagDevice D>
Status Staged<D>::Core::open(const Catalog& catalog, const Config& config) {
    if (config.slot_bytes == 0 || config.ring_bytes == 0) {
        return Error{
            ErrorKind::invalid_argument,
            std::string{"transport.ring_bytes and transport.slot_bytes of transport::Staged are above 0, and "} +
                (config.slot_bytes == 0 ? "slot_bytes" : "ring_bytes") +
                " is 0: give bytes, such as the usual 128 MiB and 4 MiB"};
    }
    constexpr std::uint64_t page = ReadCoalescer::page_bytes;
    const std::uint64_t slot_bytes = std::max<std::uint64_t>(config.slot_bytes / page * page, page);
    if (Status found = sources_.open(catalog, config); !found) { return found; }
    const std::uint64_t slots = std::max<std::uint64_t>(2, config.ring_bytes / slot_bytes);
    // A direct read is widened to whole pages.
    if (Status opened = ring_.open(slots, slot_bytes + page); !opened) { return opened; }
    return workers_.start(host::detail::threads_of(config.threads), slot_bytes);
}

template <FlagDevice D>
Status Staged<D>::Core::enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
    if (Status healthy = status(); !healthy) { return healthy; }
    std::unique_ptr<Transfer> transfer = take_announced(fetches);
    if (!transfer) { transfer = make_transfer(fetches); }
    Status sent = enqueue(*transfer, stream);
    withdraw(*transfer);  // nothing, where all went well
    give_back(std::move(transfer));
    return sent;
}

template <FlagDevice D>
bool Staged<D>::Core::read_ahead(std::span<const Fetch> fetches) {
    if (failures_.is_set()) { return false; }
    if (last_ahead_ != nullptr && !prepare_ahead(*last_ahead_)) { return false; }
    if (ring_.free_count() <= reserved_slots()) { return false; }
    std::unique_ptr<Transfer> transfer = make_transfer(fetches);
    static_cast<void>(prepare_ahead(*transfer));
    Transfer* const last = transfer.get();
    (ahead_ ? last_ahead_->next : ahead_) = std::move(transfer);
    last_ahead_ = last;
    return true;
}

template <FlagDevice D>
void Staged<D>::Core::forget_ahead() {
    while (ahead_) {
        std::unique_ptr<Transfer> transfer = take_first();
        withdraw(*transfer);
        give_back(std::move(transfer));
    }
}

template <FlagDevice D>
void Staged<D>::Core::take_failure(std::vector<StorageId>& storages) {
    forget_ahead();
    failures_.take(storages);
    for (const std::uint32_t slot : unknown_slots_) { ring_.give_back(slot); }
    unknown_slots_.clear();
}

template <FlagDevice D>
auto Staged<D>::Core::statistics() const -> Statistics {
    return {.tier = sources_.tier(),
            .direct_io = sources_.has_direct_files(),
            .straight_bytes = straight_bytes_.load(std::memory_order_relaxed),
            .staged_bytes = workers_.filled_bytes(),
            .file_bytes = sources_.file_bytes(),
            .file_reads = sources_.file_reads(),
            .slots_filled = workers_.filled_slots(),
            .ahead_bytes = ahead_bytes_.load(std::memory_order_relaxed),
            .withdrawn_bytes = withdrawn_bytes_.load(std::memory_order_relaxed)};
}

template <FlagDevice D>
auto Staged<D>::Core::make_transfer(std::span<const Fetch> fetches) -> std::unique_ptr<Transfer> {
    auto transfer = std::move(free_transfers_);
    if (transfer) {
        free_transfers_ = std::move(transfer->next);
    } else {
        transfer = std::make_unique<Transfer>();
    }
    transfer->fetches.assign(fetches.begin(), fetches.end());
    transfer->is_straight.clear();
    for (const Fetch& fetch : fetches) { transfer->is_straight.push_back(sources_.is_pinned(fetch.storage) ? 1 : 0); }
    transfer->next_fetch = transfer->count = transfer->sent = 0;
    transfer->done_bytes = 0;
    return transfer;
}

template <FlagDevice D>
auto Staged<D>::Core::take_announced(std::span<const Fetch> fetches) -> std::unique_ptr<Transfer> {
    const Transfer* announced = ahead_.get();
    while (announced != nullptr && !std::ranges::equal(announced->fetches, fetches)) {
        announced = announced->next.get();
    }
    if (announced == nullptr) { return nullptr; }
    while (ahead_.get() != announced) {
        std::unique_ptr<Transfer> left_out = take_first();
        withdraw(*left_out);
        give_back(std::move(left_out));
    }
    return take_first();
}

template <FlagDevice D>
auto Staged<D>::Core::take_first() noexcept -> std::unique_ptr<Transfer> {
    std::unique_ptr<Transfer> transfer = std::move(ahead_);
    ahead_ = std::move(transfer->next);
    if (!ahead_) { last_ahead_ = nullptr; }
    return transfer;
}

template <FlagDevice D>
bool Staged<D>::Core::prepare_ahead(Transfer& transfer) {
    while (has_unprepared(transfer)) {
        if (ring_.free_count() <= reserved_slots()) { return false; }
        prepare(transfer);
        ahead_bytes_.fetch_add(transfer.prepared[transfer.count - 1].bytes, std::memory_order_relaxed);
    }
    return true;
}

template <FlagDevice D>
bool Staged<D>::Core::has_unprepared(Transfer& transfer) const noexcept {
    while (transfer.next_fetch < transfer.fetches.size() && transfer.is_straight[transfer.next_fetch] != 0) {
        ++transfer.next_fetch;
    }
    return transfer.next_fetch < transfer.fetches.size();
}

template <FlagDevice D>
void Staged<D>::Core::prepare(Transfer& transfer) {
    if (transfer.count == transfer.prepared.size()) { transfer.prepared.emplace_back(); }
    std::unique_ptr<Job> job = workers_.take_job();
    const typename StagingRing<D>::Taken taken = ring_.take();
    job->slot = taken.slot;
    job->generation = taken.generation;
    job->last_copy = taken.last_copy;
    PreparedSlot& prepared = transfer.prepared[transfer.count++];
    prepared.slot = taken.slot;
    prepared.generation = taken.generation;
    prepared.bytes = 0;
    prepared.copies.clear();
    while (has_unprepared(transfer)) {
        Fetch rest = transfer.fetches[transfer.next_fetch];
        rest.offset_bytes += transfer.done_bytes;
        rest.bytes -= transfer.done_bytes;
        rest.to = static_cast<std::byte*>(rest.to) + transfer.done_bytes;
        const ReadCoalescer::Placed placed =
            job->reads.add(sources_.of(rest.storage), {rest.storage, rest.offset_bytes, rest.bytes});
        if (placed.bytes == 0) { break; }
        const bool is_last = placed.bytes == rest.bytes;
        rest.bytes = placed.bytes;
        prepared.copies.add(rest, ring_.memory(prepared.slot) + placed.at_bytes, nullptr);
        prepared.bytes += placed.bytes;
        transfer.done_bytes += placed.bytes;
        if (is_last) {
            transfer.done_bytes = 0;
            ++transfer.next_fetch;
        }
    }
    workers_.queue(std::move(job));
}

template <FlagDevice D>
void Staged<D>::Core::withdraw(Transfer& transfer) {
    for (; transfer.sent < transfer.count; ++transfer.sent) {
        const PreparedSlot& prepared = transfer.prepared[transfer.sent];
        workers_.withdraw(prepared.slot, prepared.generation);
        withdrawn_bytes_.fetch_add(prepared.bytes, std::memory_order_relaxed);
        ring_.give_back(prepared.slot);
    }
}

template <FlagDevice D>
Status Staged<D>::Core::enqueue(Transfer& transfer, typename D::Stream stream) {
    straight_.clear();
    std::uint64_t straight_bytes = 0;
    for (std::size_t i = 0; i < transfer.fetches.size(); ++i) {
        if (transfer.is_straight[i] == 0) { continue; }
        const Fetch& fetch = transfer.fetches[i];
        const WeightSource& source = sources_.of(fetch.storage);
        straight_bytes += fetch.bytes;
        straight_.add(fetch, source.memory + fetch.offset_bytes, source.host);
    }
    if (!straight_.copies().empty()) {
        if (Status copied = device_.copy(straight_.copies(), stream); !copied) { return copied; }
        straight_bytes_.fetch_add(straight_bytes, std::memory_order_relaxed);
    }
    for (;;) {
        if (transfer.sent == transfer.count) {
            if (!has_unprepared(transfer)) { return {}; }
            prepare(transfer);
        }
        if (Status sent = send(transfer, stream); !sent) { return sent; }
    }
}

template <FlagDevice D>
Status Staged<D>::Core::send(Transfer& transfer, typename D::Stream stream) {
    const PreparedSlot& prepared = transfer.prepared[transfer.sent];
    const auto event = ring_.take_event();
    if (!event) { return event.error(); }
    if (Status waits = device_.wait_flag(stream, ring_.flag(prepared.slot), prepared.generation); !waits) {
        ring_.give_back_event(*event);
        return waits;
    }
    Status copied = device_.copy(prepared.copies.copies(), stream);
    ++transfer.sent;
    // Recorded even if there is no copy: the slot's next job has to follow the flag's wait, so that it follows this one.
    if (Status recorded = device_.record(*event, stream); !recorded) {
        ring_.give_back_event(*event);
        if (Status drained = device_.synchronize(stream); drained) {
            ring_.give_back(prepared.slot);
        } else {
            unknown_slots_.push_back(prepared.slot);
            failures_.add(drained.error(), {});  // nothing more is enqueued before the streams are drained
        }
        return copied ? std::move(recorded) : std::move(copied);
    }
    ring_.give_back(prepared.slot, *event);
    return copied;
}

}}}  // namespace residency::RESIDENCY_ABI::transport
