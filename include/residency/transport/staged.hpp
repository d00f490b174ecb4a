// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/memory_limits.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/transport/joined_copies.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Through a ring of pinned slots that worker threads fill from pageable memory or from files. A copy is enqueued at once, behind
/// a flag that the worker raises when the slot is full; a slot is filled again once its copy is over. Bytes that are pinned
/// already go straight.
///
/// Reads run ahead of the copies: what read_ahead() announces is read into free slots at once, so that its copy, when it is
/// enqueued, finds its bytes there. A deciding policy that knows its calls beforehand does that by itself.
///
/// A thread's failure (a file that was changed or truncated, a read error, a load that was cancelled) cannot be told to the
/// stream. Before the flag rises, the error is kept and the bytes of its read become all ones, which are not numbers in every
/// floating type; so do all that are filled later. From then on status(), every enqueue, the beginning and the end of
/// every pass return the error. A pass can end, on the host, before its bytes are read: who must not use results of such bytes
/// asks Residency::try_transport_status() (or try_drain()) after the pass's stream has been synchronized, and before the
/// results are used. Success then says that every byte that the pass read arrived as its source has it.
template <FlagDevice D>
class Staged {
public:
    struct Config {
        std::uint64_t ring_bytes = std::uint64_t{128} << 20;  ///< pinned, beside the weights; at least two slots
        std::uint64_t slot_bytes = std::uint64_t{4} << 20;    ///< of one copy at most
        unsigned threads = 0;                                 ///< 0: as many as the machine has, at most 8
        /// How files are read; none: through the page cache where all of them fit into free memory, past it otherwise.
        std::optional<host::FileAccess> file_access{};
        /// What is still loading the catalog: storages are waited for, and go straight once they are pinned.
        std::shared_ptr<host::Loading> loading{};
        /// Called before bytes [offset, offset + bytes) of a storage are brought into the ring, by any thread, several at once.
        /// An error is taken as that of the read, which may be one with that of neighbours. Must not throw.
        std::function<Status(StorageId, std::uint64_t offset, std::uint64_t bytes)> before_read{};
        std::optional<host::MemoryLimits> limits{};  ///< instead of those of this process
    };
    struct Statistics {
        host::Tier tier = host::Tier::pinned;  ///< of the slowest source of the catalog
        bool direct_io = false;                ///< files are read past the page cache
        std::uint64_t straight_bytes = 0;      ///< copied from where they were pinned
        std::uint64_t staged_bytes = 0;        ///< copied through the ring
        std::uint64_t file_bytes = 0;          ///< of those, read from files
        std::uint64_t file_reads = 0;          ///< calls for that; near neighbours in a slot are one
        std::uint64_t slots_filled = 0;
        std::uint64_t ahead_bytes = 0;  ///< of those staged, handed to the threads before their copies were enqueued
        std::uint64_t withdrawn_bytes = 0;  ///< of those, never enqueued
    };
    static constexpr bool capturable = false;

    Staged() : Staged(Config{}) {}
    explicit Staged(Config config) noexcept : config_{std::move(config)} {}

    /// Opens the files, takes the ring and starts the threads. Errors: io and mismatch for files; mismatch where what is loading
    /// is another catalog; unsupported where a storage has no source; out_of_memory for the ring.
    [[nodiscard]] Status open(D& device, const Catalog& catalog);
    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
        RESIDENCY_ASSERT(core_ != nullptr, "open the transport before it is used");
        return core_->enqueue(fetches, stream);
    }
    /// What later calls of enqueue() will bring, one call at a time and in their order: the threads begin to read at once. Those
    /// calls then only enqueue copies; others may come between. False: the ring is full of what will come, or a thread has
    /// failed; nothing was taken note of, ask again later. Does not block.
    [[nodiscard]] bool read_ahead(std::span<const Fetch> fetches) { return core_->read_ahead(fetches); }
    /// What was announced is not going to be enqueued. Does not block.
    void forget_ahead() {
        if (core_) { core_->forget_ahead(); }
    }
    void close() noexcept { core_.reset(); }
    void abandon() noexcept {
        if (core_) { core_->abandon(); }
    }

    /// The first failure of a worker. Any thread.
    [[nodiscard]] Status status() const { return core_ ? core_->status() : Status{}; }
    /// Any thread.
    [[nodiscard]] Statistics statistics() const { return core_ ? core_->statistics() : Statistics{}; }

private:
    class Core {
    public:
        Core(D& device, const Config& config) : device_{device}, config_{config} {}
        Core(const Core&) = delete;
        Core& operator=(const Core&) = delete;
        ~Core() { close(); }

        [[nodiscard]] Status open(const Catalog& catalog);
        /// The caller has drained the streams, so no worker waits for one.
        void close() noexcept;
        /// Leaves to the device what it may still read, wait for or record.
        void abandon() noexcept;

        [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream);
        [[nodiscard]] bool read_ahead(std::span<const Fetch> fetches);
        void forget_ahead();

        [[nodiscard]] Status status() const;
        [[nodiscard]] Statistics statistics() const;

    private:
        static constexpr std::uint64_t page = host::WeightFile::direct_alignment_bytes;
        static constexpr std::uint64_t padding = 64;  // between weights, at most, in the formats that align them

        struct Source {
            const std::byte* memory = nullptr;
            const HostBytes* host = nullptr;  ///< that holds it
            bool pinned = false;
            std::uint32_t file = UINT32_MAX;
            std::uint64_t file_offset = 0;
        };
        /// A part of a storage.
        struct Part {
            StorageId storage = no_storage;
            std::uint64_t offset = 0, bytes = 0;
        };
        /// Neighbouring parts that one read brings into a slot.
        struct Segment {
            const std::byte* memory = nullptr;  ///< of the storage, or a file
            std::uint32_t file = UINT32_MAX;
            std::uint64_t from = 0;               ///< in the storage, or in the file
            std::uint64_t bytes = 0, window = 0;  ///< from there: needed, and read, which is whole pages if direct
            std::uint64_t at = 0;                 ///< in the slot
            std::size_t parts = 0;                ///< of the job's, in this order
        };
        /// A slot to be filled.
        struct Job {
            std::uint32_t slot = 0;
            std::uint32_t value = 0;                   ///< that the flag gets
            std::optional<typename D::Event> follows;  ///< the copy out of the slot before
            std::vector<Segment> segments;
            std::vector<Part> parts;
            std::uint64_t end = 0;      ///< of what is wanted, in the slot: slot_bytes after the first of it
            std::unique_ptr<Job> next;  ///< in the queue, or in the list of free ones
        };
        /// A slot that the workers fill, and the copies out of it that are still to be enqueued.
        struct Prepared {
            std::uint32_t slot = 0;
            std::uint32_t value = 0;
            std::uint64_t bytes = 0;
            JoinedCopies copies;
        };
        /// What one call enqueues: as far as it is prepared, in slots.
        struct Group {
            std::vector<Fetch> fetches;
            std::vector<std::uint8_t> is_straight;  ///< each
            std::size_t next_fetch = 0;             ///< to be prepared
            std::uint64_t done_bytes = 0;           ///< of it
            std::vector<Prepared> prepared;         ///< those from count on are kept for their memory
            std::size_t count = 0, sent = 0;
            std::unique_ptr<Group> next;
        };
        struct Slot {
            typename D::Flag flag{};
            bool has_flag = false;
            std::uint32_t generation = 0;             // handed to the workers
            std::optional<typename D::Event> copied;  // the last copy out of it
            std::uint32_t filled = 0;                 // of the generations; under mutex_
            std::vector<std::uint32_t> withdrawn;  // generations that need no bytes, still to be filled; under mutex_
        };

        [[nodiscard]] Status find_sources();
        [[nodiscard]] host::Tier tier() const noexcept;
        [[nodiscard]] bool goes_straight(const Source& source, StorageId id) const noexcept {
            return source.pinned ||
                   (source.memory != nullptr && config_.loading != nullptr && config_.loading->is_pinned(id));
        }
        [[nodiscard]] std::byte* slot_memory(std::uint32_t slot) const noexcept { return ring_ + slot * stride_; }
        /// Slots that what was not announced can count on.
        [[nodiscard]] std::size_t reserved_slots() const noexcept {
            return std::max<std::size_t>(1, slots_.size() / 8);
        }

        struct Placed {
            std::uint64_t at = 0;  ///< in the slot
            std::uint64_t bytes = 0;
        };
        /// Adds to a job what of a fetch still fits into its slot; 0 bytes where that is full. What follows the part before, with at
        /// most a small gap between them, is read with it.
        [[nodiscard]] Placed place(Job& job, const Fetch& fetch) const;
        [[nodiscard]] static std::uint64_t round_up(std::uint64_t bytes, std::uint64_t alignment) noexcept {
            return (bytes + alignment - 1) / alignment * alignment;
        }

        [[nodiscard]] std::unique_ptr<Group> make_group(std::span<const Fetch> fetches);
        void give_back(std::unique_ptr<Group> group) noexcept {
            group->next = std::move(free_groups_);
            free_groups_ = std::move(group);
        }
        /// The group that was announced for these, if any: what was announced before it has been left out.
        [[nodiscard]] std::unique_ptr<Group> take_announced(std::span<const Fetch> fetches);
        [[nodiscard]] std::unique_ptr<Group> take_first() noexcept;

        /// Prepares as many slots as may be taken ahead; whether that was all.
        [[nodiscard]] bool prepare_ahead(Group& group);
        [[nodiscard]] bool has_unprepared(Group& group) const noexcept;
        /// Hands the slot that has been free for longest to the workers, with what of the group comes next. Preconditions: there
        /// is some, and a free slot.
        void prepare(Group& group);
        void release(std::uint32_t slot) noexcept {
            free_slots_[(first_free_ + free_count_) % free_slots_.size()] = slot;
            ++free_count_;
        }
        /// Gives back the slots of a group whose copies will not be enqueued.
        void withdraw(Group& group);

        [[nodiscard]] Status enqueue(Group& group, typename D::Stream stream);
        [[nodiscard]] std::unique_ptr<Job> take_job();
        void give_back(std::unique_ptr<Job> job);
        [[nodiscard]] Result<typename D::Event> take_event();

        /// Enqueues the copies out of the group's next slot behind its flag. On failure the slot is the group's still, or free.
        [[nodiscard]] Status send(Group& group, typename D::Stream stream);

        void work();
        /// Waits until the slot may be written; false where it may still be read, and has to be left as it is.
        [[nodiscard]] bool is_free(const Job& job);
        /// Earlier generations of the slot may still be wanted where a later one is not.
        [[nodiscard]] bool is_wanted(const Job& job) {
            const std::lock_guard lock{mutex_};
            return std::ranges::find(slots_[job.slot].withdrawn, job.value) == slots_[job.slot].withdrawn.end();
        }
        void fill(Job& job);
        [[nodiscard]] Status fill(const Segment& segment, std::span<const Part> parts, std::byte* to);
        void fail(const Error& error);

        void stop() noexcept;

        D& device_;
        Config config_;
        Catalog catalog_;
        std::vector<Source> sources_;
        std::vector<host::WeightFile> files_;
        bool direct_io_ = false;
        std::byte* ring_ = nullptr;
        std::uint64_t stride_ = 0;
        std::vector<Slot> slots_;

        // Of the thread that enqueues.
        std::vector<std::uint32_t> free_slots_;  // a ring: those whose copies are enqueued, longest ago first
        std::size_t first_free_ = 0, free_count_ = 0;
        std::unique_ptr<Group> ahead_;  // what will be enqueued, in that order; only the last is not prepared wholly
        Group* last_ahead_ = nullptr;   // of a list that is not empty
        std::unique_ptr<Group> free_groups_;
        JoinedCopies straight_;

        std::atomic<bool> failed_ = false;
        std::atomic<std::uint64_t> straight_bytes_ = 0;
        std::atomic<std::uint64_t> staged_bytes_ = 0;
        std::atomic<std::uint64_t> file_bytes_ = 0, file_reads_ = 0;
        std::atomic<std::uint64_t> slots_filled_ = 0;
        std::atomic<std::uint64_t> ahead_bytes_ = 0;
        std::atomic<std::uint64_t> withdrawn_bytes_ = 0;

        std::mutex turn_mutex_;     // taken before mutex_
        mutable std::mutex mutex_;  // what follows
        std::condition_variable ready_;
        std::condition_variable filled_;
        std::unique_ptr<Job> queue_;  // in the order in which slots come free
        Job* last_ = nullptr;         // of a queue that is not empty
        std::unique_ptr<Job> free_jobs_;
        std::vector<typename D::Event> free_events_;
        std::optional<Error> error_;
        bool stopping_ = false;

        host::ThreadGroup threads_;
    };

    Config config_;
    std::unique_ptr<Core> core_;
};

template <FlagDevice D>
Status Staged<D>::open(D& device, const Catalog& catalog) {
    auto core = std::make_unique<Core>(device, config_);
    if (Status opened = core->open(catalog); !opened) { return opened; }
    core_ = std::move(core);
    return {};
}

template <FlagDevice D>
Status Staged<D>::Core::open(const Catalog& catalog) {
    config_.slot_bytes = std::max<std::uint64_t>(config_.slot_bytes / page * page, page);
    if (config_.loading && config_.loading->catalog().hash() != catalog.hash()) {
        return Error{ErrorKind::mismatch, "what is loading is another catalog than the one to be streamed"};
    }
    catalog_ = catalog;
    if (Status found = find_sources(); !found) { return found; }
    stride_ = config_.slot_bytes + page;  // a direct read is widened to whole pages
    const std::uint64_t slots = std::max<std::uint64_t>(2, config_.ring_bytes / config_.slot_bytes);
    auto ring = device_.allocate_host(slots * stride_);
    if (!ring) { return ring.error().in("a ring of " + std::to_string(slots) + " slots"); }
    ring_ = static_cast<std::byte*>(*ring);
    slots_ = std::vector<Slot>(static_cast<std::size_t>(slots));
    free_slots_.resize(slots_.size());
    std::iota(free_slots_.begin(), free_slots_.end(), std::uint32_t{0});
    free_count_ = slots_.size();
    for (Slot& slot : slots_) {
        auto flag = device_.create_flag();
        if (!flag) { return flag.error(); }
        slot.flag = *flag;
        slot.has_flag = true;
    }
    const unsigned machine = (std::max)(1U, std::thread::hardware_concurrency());
    const unsigned threads = config_.threads != 0 ? config_.threads : (std::min)(8U, machine);
    return threads_.try_start_some(threads, [this] { work(); });
}

template <FlagDevice D>
Status Staged<D>::Core::enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
    if (Status healthy = status(); !healthy) { return healthy; }
    std::unique_ptr<Group> group = take_announced(fetches);
    if (!group) { group = make_group(fetches); }
    Status sent = enqueue(*group, stream);
    withdraw(*group);  // nothing, where all went well
    give_back(std::move(group));
    return sent;
}

template <FlagDevice D>
bool Staged<D>::Core::read_ahead(std::span<const Fetch> fetches) {
    if (failed_.load(std::memory_order_relaxed)) { return false; }
    if (last_ahead_ != nullptr && !prepare_ahead(*last_ahead_)) { return false; }
    if (free_count_ <= reserved_slots()) { return false; }
    std::unique_ptr<Group> group = make_group(fetches);
    static_cast<void>(prepare_ahead(*group));
    Group* const last = group.get();
    (ahead_ ? last_ahead_->next : ahead_) = std::move(group);
    last_ahead_ = last;
    return true;
}

template <FlagDevice D>
void Staged<D>::Core::forget_ahead() {
    while (ahead_) {
        std::unique_ptr<Group> group = take_first();
        withdraw(*group);
        give_back(std::move(group));
    }
}

template <FlagDevice D>
Status Staged<D>::Core::status() const {
    if (!failed_.load(std::memory_order_acquire)) { return {}; }
    const std::lock_guard lock{mutex_};
    return *error_;
}

template <FlagDevice D>
auto Staged<D>::Core::statistics() const -> Statistics {
    return {tier(),
            direct_io_,
            straight_bytes_.load(std::memory_order_relaxed),
            staged_bytes_.load(std::memory_order_relaxed),
            file_bytes_.load(std::memory_order_relaxed),
            file_reads_.load(std::memory_order_relaxed),
            slots_filled_.load(std::memory_order_relaxed),
            ahead_bytes_.load(std::memory_order_relaxed),
            withdrawn_bytes_.load(std::memory_order_relaxed)};
}

template <FlagDevice D>
Status Staged<D>::Core::find_sources() {
    std::unordered_map<const SourceFile*, std::uint32_t> numbers;
    std::uint64_t file_bytes = 0;
    const auto storages = catalog_.storages();
    for (const Storage& storage : storages) {
        const auto* source = std::get_if<FileSource>(&storage.source);
        if (source != nullptr && storage.bytes != 0) { file_bytes += storage.bytes; }
    }
    host::FileAccess access = host::FileAccess::cached;
    if (config_.file_access) {
        access = *config_.file_access;
    } else if (file_bytes > (config_.limits ? *config_.limits : host::read_memory_limits()).room_bytes()) {
        access = host::FileAccess::direct;
    }
    sources_.resize(storages.size());
    for (std::uint32_t i = 0; i < storages.size(); ++i) {
        const Storage& storage = storages[i];
        Source& source = sources_[i];
        if (storage.bytes == 0) {
            source.pinned = true;
        } else if (const auto* memory = std::get_if<HostSource>(&storage.source)) {
            source.memory = memory->host->data() + memory->offset_bytes;
            source.host = memory->host.get();
            source.pinned = memory->host->kind() == HostMemory::pinned;
        } else if (const auto* file = std::get_if<FileSource>(&storage.source)) {
            const auto [known, fresh] =
                numbers.try_emplace(file->file.get(), static_cast<std::uint32_t>(files_.size()));
            if (fresh) {
                auto opened = host::WeightFile::try_open(*file->file, access);
                if (!opened) { return opened.error(); }
                direct_io_ = direct_io_ || opened->is_direct();
                files_.push_back(std::move(*opened));
            }
            source.file = known->second;
            source.file_offset = file->offset_bytes;
        } else {
            return Error{ErrorKind::unsupported,
                         catalog_.describe(StorageId{i}) + " has no source: there is nothing to stream"};
        }
    }
    return {};
}

template <FlagDevice D>
host::Tier Staged<D>::Core::tier() const noexcept {
    host::Tier slowest = host::Tier::pinned;
    for (std::uint32_t i = 0; i < sources_.size(); ++i) {
        if (sources_[i].file != UINT32_MAX) { return host::Tier::file; }
        if (!goes_straight(sources_[i], StorageId{i})) { slowest = host::Tier::pageable; }
    }
    return slowest;
}

template <FlagDevice D>
auto Staged<D>::Core::place(Job& job, const Fetch& fetch) const -> Placed {
    const Source& source = sources_[index(fetch.storage)];
    const bool is_file = source.file != UINT32_MAX;
    const bool is_direct = is_file && files_[source.file].is_direct();
    const std::uint64_t from = source.file_offset + fetch.offset_bytes;
    const std::uint64_t widest_gap = is_direct ? page : is_file ? padding : 0;  // read too, and not copied
    const auto continues = [&](const Segment& last) {
        const std::uint64_t end = last.from + last.bytes;
        return last.memory == source.memory && last.file == source.file && from >= end && from - end <= widest_gap;
    };
    Segment segment;
    const bool is_new = job.segments.empty() || !continues(job.segments.back());
    if (is_new) {
        const std::uint64_t used = job.segments.empty() ? 0 : job.segments.back().at + job.segments.back().window;
        segment.memory = source.memory;
        segment.file = source.file;
        segment.from = is_direct ? from / page * page : from;
        segment.at = round_up(used, is_direct ? page : padding);
        if (job.segments.empty()) { job.end = config_.slot_bytes + (from - segment.from); }
    } else {
        segment = job.segments.back();
    }
    const std::uint64_t at = segment.at + (from - segment.from);
    const Placed placed{at, (std::min)(fetch.bytes, job.end - (std::min)(at, job.end))};
    if (placed.bytes == 0) { return placed; }
    segment.bytes = from - segment.from + placed.bytes;
    segment.window = is_direct ? round_up(segment.bytes, page) : segment.bytes;
    ++segment.parts;
    if (is_new) {
        job.segments.push_back(segment);
    } else {
        job.segments.back() = segment;
    }
    job.parts.push_back({fetch.storage, fetch.offset_bytes, placed.bytes});
    return placed;
}

template <FlagDevice D>
auto Staged<D>::Core::make_group(std::span<const Fetch> fetches) -> std::unique_ptr<Group> {
    auto group = std::move(free_groups_);
    if (group) {
        free_groups_ = std::move(group->next);
    } else {
        group = std::make_unique<Group>();
    }
    group->fetches.assign(fetches.begin(), fetches.end());
    group->is_straight.clear();
    for (const Fetch& fetch : fetches) {
        const bool straight = goes_straight(sources_[index(fetch.storage)], fetch.storage);
        group->is_straight.push_back(straight ? 1 : 0);
    }
    group->next_fetch = group->count = group->sent = 0;
    group->done_bytes = 0;
    return group;
}

template <FlagDevice D>
auto Staged<D>::Core::take_announced(std::span<const Fetch> fetches) -> std::unique_ptr<Group> {
    const Group* announced = ahead_.get();
    while (announced != nullptr && !std::ranges::equal(announced->fetches, fetches)) {
        announced = announced->next.get();
    }
    if (announced == nullptr) { return nullptr; }
    while (ahead_.get() != announced) {
        std::unique_ptr<Group> left_out = take_first();
        withdraw(*left_out);
        give_back(std::move(left_out));
    }
    return take_first();
}

template <FlagDevice D>
auto Staged<D>::Core::take_first() noexcept -> std::unique_ptr<Group> {
    std::unique_ptr<Group> group = std::move(ahead_);
    ahead_ = std::move(group->next);
    if (!ahead_) { last_ahead_ = nullptr; }
    return group;
}

template <FlagDevice D>
bool Staged<D>::Core::prepare_ahead(Group& group) {
    while (has_unprepared(group)) {
        if (free_count_ <= reserved_slots()) { return false; }
        prepare(group);
        ahead_bytes_.fetch_add(group.prepared[group.count - 1].bytes, std::memory_order_relaxed);
    }
    return true;
}

template <FlagDevice D>
bool Staged<D>::Core::has_unprepared(Group& group) const noexcept {
    while (group.next_fetch < group.fetches.size() && group.is_straight[group.next_fetch] != 0) { ++group.next_fetch; }
    return group.next_fetch < group.fetches.size();
}

template <FlagDevice D>
void Staged<D>::Core::prepare(Group& group) {
    if (group.count == group.prepared.size()) { group.prepared.emplace_back(); }
    Prepared& prepared = group.prepared[group.count];
    prepared.copies.clear();
    prepared.bytes = 0;
    prepared.slot = free_slots_[first_free_];
    Slot& slot = slots_[prepared.slot];
    std::unique_ptr<Job> job = take_job();
    while (has_unprepared(group)) {
        Fetch rest = group.fetches[group.next_fetch];
        rest.offset_bytes += group.done_bytes;
        rest.bytes -= group.done_bytes;
        rest.to = static_cast<std::byte*>(rest.to) + group.done_bytes;
        const Placed placed = place(*job, rest);
        if (placed.bytes == 0) { break; }
        const bool is_last = placed.bytes == rest.bytes;
        rest.bytes = placed.bytes;
        prepared.copies.add(rest, slot_memory(prepared.slot) + placed.at, nullptr);
        prepared.bytes += placed.bytes;
        group.done_bytes += placed.bytes;
        if (is_last) {
            group.done_bytes = 0;
            ++group.next_fetch;
        }
    }
    ++group.count;
    first_free_ = (first_free_ + 1) % free_slots_.size();
    --free_count_;
    job->slot = prepared.slot;
    job->value = prepared.value = ++slot.generation;
    job->follows = std::exchange(slot.copied, std::nullopt);
    {
        const std::lock_guard lock{mutex_};
        Job* const last = job.get();
        (queue_ ? last_->next : queue_) = std::move(job);
        last_ = last;
    }
    ready_.notify_one();
}

template <FlagDevice D>
void Staged<D>::Core::withdraw(Group& group) {
    for (; group.sent < group.count; ++group.sent) {
        const Prepared& prepared = group.prepared[group.sent];
        Slot& slot = slots_[prepared.slot];
        {
            const std::lock_guard lock{mutex_};
            if (slot.filled < prepared.value) { slot.withdrawn.push_back(prepared.value); }
        }
        withdrawn_bytes_.fetch_add(prepared.bytes, std::memory_order_relaxed);
        release(prepared.slot);
    }
}

template <FlagDevice D>
Status Staged<D>::Core::enqueue(Group& group, typename D::Stream stream) {
    straight_.clear();
    std::uint64_t straight_bytes = 0;
    for (std::size_t i = 0; i < group.fetches.size(); ++i) {
        if (group.is_straight[i] == 0) { continue; }
        const Fetch& fetch = group.fetches[i];
        const Source& source = sources_[index(fetch.storage)];
        straight_bytes += fetch.bytes;
        straight_.add(fetch, source.memory + fetch.offset_bytes, source.host);
    }
    if (!straight_.copies().empty()) {
        if (Status copied = device_.copy(straight_.copies(), stream); !copied) { return copied; }
        straight_bytes_.fetch_add(straight_bytes, std::memory_order_relaxed);
    }
    for (;;) {
        if (group.sent == group.count) {
            if (!has_unprepared(group)) { return {}; }
            prepare(group);
        }
        if (Status sent = send(group, stream); !sent) { return sent; }
    }
}

template <FlagDevice D>
auto Staged<D>::Core::take_job() -> std::unique_ptr<Job> {
    {
        const std::lock_guard lock{mutex_};
        if (free_jobs_) {
            auto job = std::move(free_jobs_);
            free_jobs_ = std::move(job->next);
            return job;
        }
    }
    return std::make_unique<Job>();
}

template <FlagDevice D>
void Staged<D>::Core::give_back(std::unique_ptr<Job> job) {
    job->segments.clear();
    job->parts.clear();
    const std::lock_guard lock{mutex_};
    if (job->follows) { free_events_.push_back(*std::exchange(job->follows, std::nullopt)); }
    job->next = std::move(free_jobs_);
    free_jobs_ = std::move(job);
}

template <FlagDevice D>
Result<typename D::Event> Staged<D>::Core::take_event() {
    {
        const std::lock_guard lock{mutex_};
        if (!free_events_.empty()) {
            const auto event = free_events_.back();
            free_events_.pop_back();
            return event;
        }
    }
    return device_.create_event(Timing::off);
}

template <FlagDevice D>
Status Staged<D>::Core::send(Group& group, typename D::Stream stream) {
    const Prepared& prepared = group.prepared[group.sent];
    Slot& slot = slots_[prepared.slot];
    const auto event = take_event();
    if (!event) { return event.error(); }
    const auto keep_event = [&] {
        const std::lock_guard lock{mutex_};
        free_events_.push_back(*event);
    };
    if (Status waits = device_.wait_flag(stream, slot.flag, prepared.value); !waits) {
        keep_event();
        return waits;
    }
    Status copied = device_.copy(prepared.copies.copies(), stream);
    ++group.sent;
    // Recorded even if there is no copy: the next job of this slot has to follow the flag, so that it follows this one.
    if (Status recorded = device_.record(*event, stream); !recorded) {
        keep_event();
        if (Status drained = device_.synchronize(stream); !drained) { fail(drained.error()); }
        release(prepared.slot);
        return copied ? std::move(recorded) : std::move(copied);
    }
    slot.copied = *event;
    release(prepared.slot);
    return copied;
}

template <FlagDevice D>
void Staged<D>::Core::work() {
    for (;;) {
        std::unique_ptr<Job> job;
        bool free = true;
        {
            // Slots come free in order: one worker waits for the next, the others for their turn, not for the device.
            const std::lock_guard turn{turn_mutex_};
            {
                std::unique_lock lock{mutex_};
                ready_.wait(lock, [&] { return stopping_ || queue_ != nullptr; });
                if (!queue_) { return; }
                job = std::move(queue_);
                queue_ = std::move(job->next);
            }
            free = is_free(*job);
        }
        Slot& slot = slots_[job->slot];
        if (free && is_wanted(*job)) { fill(*job); }
        if (Status raised = device_.raise_flag(slot.flag, job->value); !raised) { fail(raised.error()); }
        {
            const std::lock_guard lock{mutex_};
            slot.filled = job->value;
            std::erase(slot.withdrawn, job->value);
        }
        filled_.notify_all();
        give_back(std::move(job));
    }
}

template <FlagDevice D>
bool Staged<D>::Core::is_free(const Job& job) {
    {
        // One that was withdrawn has no copy to wait for.
        std::unique_lock lock{mutex_};
        filled_.wait(lock, [&] { return slots_[job.slot].filled + 1 == job.value; });
    }
    if (!job.follows) { return true; }
    Status free = device_.synchronize(*job.follows);
    if (!free) { fail(free.error()); }
    return free.has_value();
}

template <FlagDevice D>
void Staged<D>::Core::fill(Job& job) {
    std::byte* const memory = ring_ + job.slot * stride_;
    std::span<const Part> parts = job.parts;
    for (const Segment& segment : job.segments) {
        std::byte* const to = memory + segment.at;
        if constexpr (requires { device_.host_write(to, segment.window); }) {
            static_cast<void>(device_.host_write(to, segment.window).has_value());
        }
        Status filled =
            failed_.load(std::memory_order_relaxed) ? status() : fill(segment, parts.first(segment.parts), to);
        if (!filled) {
            std::memset(to, 0xff, static_cast<std::size_t>(segment.window));
            fail(filled.error());
        }
        for (const Part& part : parts.first(segment.parts)) {
            staged_bytes_.fetch_add(part.bytes, std::memory_order_relaxed);
        }
        parts = parts.subspan(segment.parts);
    }
    slots_filled_.fetch_add(1, std::memory_order_relaxed);
}

template <FlagDevice D>
Status Staged<D>::Core::fill(const Segment& segment, std::span<const Part> parts, std::byte* to) {
    for (const Part& part : parts) {
        if (config_.before_read) {
            if (Status may = config_.before_read(part.storage, part.offset, part.bytes); !may) { return may; }
        }
        if (segment.memory != nullptr && config_.loading) {
            if (Status loaded = config_.loading->wait(part.storage, part.offset, part.bytes); !loaded) {
                return loaded;
            }
        }
    }
    if (segment.memory != nullptr) {
        std::memcpy(to, segment.memory + segment.from, static_cast<std::size_t>(segment.bytes));
        return {};
    }
    file_reads_.fetch_add(1, std::memory_order_relaxed);
    for (const Part& part : parts) { file_bytes_.fetch_add(part.bytes, std::memory_order_relaxed); }
    return files_[segment.file].try_read(segment.from, {to, static_cast<std::size_t>(segment.window)},
                                         static_cast<std::size_t>(segment.bytes));
}

template <FlagDevice D>
void Staged<D>::Core::fail(const Error& error) {
    const std::lock_guard lock{mutex_};
    if (!error_) { error_ = error; }
    failed_.store(true, std::memory_order_release);
}

template <FlagDevice D>
void Staged<D>::Core::stop() noexcept {
    forget_ahead();
    {
        const std::lock_guard lock{mutex_};
        stopping_ = true;
    }
    ready_.notify_all();
    threads_.join();
}

template <FlagDevice D>
void Staged<D>::Core::abandon() noexcept {
    stop();
    free_events_.clear();
    slots_.clear();
    ring_ = nullptr;
}

template <FlagDevice D>
void Staged<D>::Core::close() noexcept {
    stop();
    for (const auto& event : free_events_) { static_cast<void>(device_.destroy_event(event).has_value()); }
    for (const Slot& slot : slots_) {
        if (slot.copied) { static_cast<void>(device_.destroy_event(*slot.copied).has_value()); }
        if (slot.has_flag) { static_cast<void>(device_.destroy_flag(slot.flag).has_value()); }
    }
    if (ring_ != nullptr) { static_cast<void>(device_.deallocate_host(ring_).has_value()); }
}

}}}  // namespace residency::RESIDENCY_ABI::transport
