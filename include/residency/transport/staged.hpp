// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
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
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/catalog.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency::inline RESIDENCY_ABI::transport {

/// Through a ring of pinned slots that worker threads fill from pageable memory or from files. A copy is enqueued at once, behind
/// a flag that the worker raises when the slot is full; a slot is filled again once its copy is over. Bytes that are pinned
/// already go straight.
///
/// A worker's failure (a file that was changed or truncated, a load that was cancelled) cannot be told to the stream: the
/// bytes become all ones, which are not numbers in every floating type, and status() and every later enqueue return the error.
template <FlagDevice D>
class Staged {
public:
    struct Config {
        std::uint64_t ring_bytes = std::uint64_t{128} << 20;  ///< pinned, beside the weights; at least two slots
        std::uint64_t slot_bytes = std::uint64_t{4} << 20;    ///< of one copy at most
        unsigned threads = 0;                                 ///< 0: as many as the machine has, at most 8
        /// How files are read; none: through the page cache where all of them fit into free memory, past it otherwise.
        std::optional<host::FileAccess> file_access;
        /// What is still loading the catalog: storages are waited for, and go straight once they are pinned.
        std::shared_ptr<host::Loading> loading;
    };
    struct Statistics {
        host::Tier tier = host::Tier::pinned;  ///< of the slowest source of the catalog
        bool direct_io = false;                ///< files are read past the page cache
        std::uint64_t straight_bytes = 0;      ///< copied from where they were pinned
        std::uint64_t staged_bytes = 0;        ///< copied through the ring
        std::uint64_t file_bytes = 0;          ///< of those, read from files
        std::uint64_t slots_filled = 0;
    };
    static constexpr bool capturable = false;

    Staged() : Staged(Config{}) {}
    explicit Staged(Config config) noexcept : config_{std::move(config)} {}

    /// Opens the files, takes the ring and starts the threads. Errors: io and mismatch for files; mismatch where what is loading
    /// is another catalog; unsupported where a storage has no source; out_of_memory for the ring.
    [[nodiscard]] Status open(D& device, const Catalog& catalog) {
        auto core = std::make_unique<Core>(device, config_);
        if (Status opened = core->open(catalog); !opened) { return opened; }
        core_ = std::move(core);
        return {};
    }
    [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
        RESIDENCY_ASSERT(core_ != nullptr, "open the transport before it is used");
        return core_->enqueue(fetches, stream);
    }
    void close() noexcept { core_.reset(); }

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

        [[nodiscard]] Status open(const Catalog& catalog) {
            config_.slot_bytes = std::max<std::uint64_t>(config_.slot_bytes / page * page, page);
            if (config_.loading && config_.loading->catalog().hash() != catalog.hash()) {
                return Error{ErrorKind::mismatch, "what is loading is another catalog than the one to be streamed"};
            }
            catalog_ = catalog;
            if (Status found = find_sources(); !found) { return found; }
            stride_ = config_.slot_bytes + 2 * page;  // a direct read is widened to whole pages
            const std::uint64_t slots = std::max<std::uint64_t>(2, config_.ring_bytes / config_.slot_bytes);
            auto ring = device_.allocate_host(slots * stride_);
            if (!ring) { return ring.error().in("a ring of " + std::to_string(slots) + " slots"); }
            ring_ = static_cast<std::byte*>(*ring);
            slots_.resize(static_cast<std::size_t>(slots));
            for (Slot& slot : slots_) {
                auto flag = device_.create_flag();
                if (!flag) { return flag.error(); }
                slot.flag = *flag;
                slot.has_flag = true;
            }
            const unsigned machine = (std::max)(1U, std::thread::hardware_concurrency());
            const unsigned threads = config_.threads != 0 ? config_.threads : (std::min)(8U, machine);
            threads_.reserve(threads);
            for (unsigned i = 0; i < threads; ++i) {
                threads_.emplace_back([this] { work(); });
            }
            return {};
        }

        [[nodiscard]] Status enqueue(std::span<const Fetch> fetches, typename D::Stream stream) {
            if (Status healthy = status(); !healthy) { return healthy; }
            straight_.clear();
            for (const Fetch& fetch : fetches) {
                const Source& source = sources_[index(fetch.storage)];
                if (goes_straight(source, fetch.storage)) {
                    const std::byte* from = source.memory + fetch.offset_bytes;
                    if (!straight_.empty() && !fetch.begins_allocation) {
                        Copy& last = straight_.back();
                        if (static_cast<const std::byte*>(last.from) + last.bytes == from &&
                            static_cast<std::byte*>(last.to) + last.bytes == fetch.to) {
                            last.bytes += fetch.bytes;
                            continue;
                        }
                    }
                    straight_.push_back({fetch.to, from, fetch.bytes});
                    continue;
                }
                for (std::uint64_t done = 0; done < fetch.bytes;) {
                    const std::uint64_t offset = fetch.offset_bytes + done;
                    std::uint64_t room = 0;
                    Layout layout = place(source, offset, fetch.bytes - done, room);
                    if (room == 0) {
                        if (Status sent = send(stream); !sent) { return sent; }
                        continue;
                    }
                    Job& job = *building_;
                    job.segments.push_back({fetch.storage, offset, room, layout.at, layout.skip, layout.window});
                    job.copies.push_back(
                        {static_cast<std::byte*>(fetch.to) + done, slot_memory(turn_) + layout.at + layout.skip, room});
                    used_ = layout.at + layout.window;
                    done += room;
                }
            }
            if (!straight_.empty()) {
                std::uint64_t bytes = 0;
                for (const Copy& copy : straight_) { bytes += copy.bytes; }
                if (Status copied = device_.copy(straight_, stream); !copied) {
                    drop();
                    return copied;
                }
                straight_bytes_.fetch_add(bytes, std::memory_order_relaxed);
            }
            return send(stream);
        }

        [[nodiscard]] Status status() const {
            if (!failed_.load(std::memory_order_acquire)) { return {}; }
            const std::lock_guard lock{mutex_};
            return *error_;
        }
        [[nodiscard]] Statistics statistics() const {
            return {tier(),
                    direct_io_,
                    straight_bytes_.load(std::memory_order_relaxed),
                    staged_bytes_.load(std::memory_order_relaxed),
                    file_bytes_.load(std::memory_order_relaxed),
                    slots_filled_.load(std::memory_order_relaxed)};
        }

    private:
        static constexpr std::uint64_t page = host::WeightFile::direct_alignment_bytes;

        struct Source {
            const std::byte* memory = nullptr;
            bool pinned = false;
            std::uint32_t file = UINT32_MAX;
            std::uint64_t file_offset = 0;
        };
        /// A part of a slot: filled with `window` bytes, of which those after `skip` are wanted.
        struct Layout {
            std::uint64_t at = 0, skip = 0, window = 0;
        };
        struct Segment {
            StorageId storage = no_storage;
            std::uint64_t offset = 0, bytes = 0;  ///< in the storage
            std::uint64_t at = 0, skip = 0, window = 0;
        };
        struct Job {
            std::uint32_t slot = 0;
            std::uint32_t value = 0;                   ///< that the flag gets
            std::optional<typename D::Event> follows;  ///< the copy out of the slot before
            std::vector<Segment> segments;
            std::vector<Copy> copies;
            std::unique_ptr<Job> next;  ///< in the queue, or in the list of free ones
        };
        struct Slot {
            typename D::Flag flag{};
            bool has_flag = false;
            std::uint32_t generation = 0;
            std::optional<typename D::Event> copied;  ///< the last copy out of it
        };

        [[nodiscard]] Status find_sources() {
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
            } else if (file_bytes > host::read_memory_limits().room_bytes()) {
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
        [[nodiscard]] host::Tier tier() const noexcept {
            host::Tier slowest = host::Tier::pinned;
            for (std::uint32_t i = 0; i < sources_.size(); ++i) {
                if (sources_[i].file != UINT32_MAX) { return host::Tier::file; }
                if (!goes_straight(sources_[i], StorageId{i})) { slowest = host::Tier::pageable; }
            }
            return slowest;
        }
        [[nodiscard]] bool goes_straight(const Source& source, StorageId id) const noexcept {
            return source.pinned ||
                   (source.memory != nullptr && config_.loading != nullptr && config_.loading->is_pinned(id));
        }
        [[nodiscard]] std::byte* slot_memory(std::uint64_t turn) const noexcept {
            return ring_ + turn % slots_.size() * stride_;
        }

        /// Where the next bytes go in the slot that is being filled; `room`: how many, 0 where it is full.
        [[nodiscard]] Layout place(const Source& source, std::uint64_t offset, std::uint64_t wanted,
                                   std::uint64_t& room) {
            if (!building_) { begin(); }
            const bool is_direct = source.file != UINT32_MAX && files_[source.file].is_direct();
            const std::uint64_t alignment = is_direct ? page : 64;
            Layout layout;
            layout.at = (used_ + alignment - 1) / alignment * alignment;
            layout.skip = is_direct ? (source.file_offset + offset) % page : 0;
            if (layout.at + layout.skip >= config_.slot_bytes + page) { return layout; }
            // With its last page a direct read reaches at most two pages beyond slot_bytes.
            room = (std::min)(wanted,
                              config_.slot_bytes + (is_direct ? page : 0) -
                                  (std::min)(layout.at + layout.skip, config_.slot_bytes + (is_direct ? page : 0)));
            layout.window = is_direct ? (layout.skip + room + page - 1) / page * page : room;
            return layout;
        }
        void begin() {
            building_ = take_job();
            used_ = 0;
        }
        void drop() noexcept {
            if (building_) { give_back(std::move(building_)); }
            used_ = 0;
        }
        [[nodiscard]] std::unique_ptr<Job> take_job() {
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
        void give_back(std::unique_ptr<Job> job) {
            job->segments.clear();
            job->copies.clear();
            const std::lock_guard lock{mutex_};
            if (job->follows) { free_events_.push_back(*std::exchange(job->follows, std::nullopt)); }
            job->next = std::move(free_jobs_);
            free_jobs_ = std::move(job);
        }
        [[nodiscard]] Result<typename D::Event> take_event() {
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

        /// Hands the slot that is being filled to the workers, and its copies to the stream behind the flag.
        [[nodiscard]] Status send(typename D::Stream stream) {
            if (!building_) { return {}; }
            Slot& slot = slots_[static_cast<std::size_t>(turn_ % slots_.size())];
            const auto event = take_event();
            if (!event) {
                drop();
                return event.error();
            }
            const auto keep_event = [&] {
                const std::lock_guard lock{mutex_};
                free_events_.push_back(*event);
            };
            Job& job = *building_;
            job.slot = static_cast<std::uint32_t>(turn_ % slots_.size());
            job.value = slot.generation + 1;
            if (Status waits = device_.wait_flag(stream, slot.flag, job.value); !waits) {
                keep_event();
                drop();
                return waits;
            }
            // From here on the flag has to rise: the worker raises it whatever happens.
            ++slot.generation;
            ++turn_;
            job.follows = std::exchange(slot.copied, std::nullopt);
            sent_.assign(job.copies.begin(), job.copies.end());
            {
                const std::lock_guard lock{mutex_};
                (queue_ ? last_->next : queue_) = std::move(building_);
                last_ = &job;
            }
            ready_.notify_one();
            used_ = 0;
            Status copied = device_.copy(sent_, stream);
            // Recorded even if there is no copy: the next job of this slot has to follow the flag, so that it follows this one.
            if (Status recorded = device_.record(*event, stream); !recorded) {
                keep_event();
                if (Status drained = device_.synchronize(stream); !drained) { fail(drained.error()); }
                return copied ? std::move(recorded) : std::move(copied);
            }
            slot.copied = *event;
            return copied;
        }

        void work() {
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
                if (free) { fill(*job); }
                if (Status raised = device_.raise_flag(slots_[job->slot].flag, job->value); !raised) {
                    fail(raised.error());
                }
                give_back(std::move(job));
            }
        }
        /// Waits until the slot may be written; false where it may still be read, and has to be left as it is.
        [[nodiscard]] bool is_free(const Job& job) {
            if (!job.follows) { return true; }
            Status free = device_.synchronize(*job.follows);
            if (!free) { fail(free.error()); }
            return free.has_value();
        }
        void fill(Job& job) {
            std::byte* const memory = ring_ + job.slot * stride_;
            for (const Segment& segment : job.segments) {
                std::byte* const to = memory + segment.at;
                if constexpr (requires { device_.host_write(to, segment.window); }) {
                    static_cast<void>(device_.host_write(to, segment.window).has_value());
                }
                Status filled = failed_.load(std::memory_order_relaxed) ? status() : fill(segment, to);
                if (!filled) {
                    std::memset(to, 0xff, static_cast<std::size_t>(segment.window));
                    fail(filled.error());
                }
                staged_bytes_.fetch_add(segment.bytes, std::memory_order_relaxed);
            }
            slots_filled_.fetch_add(1, std::memory_order_relaxed);
        }
        [[nodiscard]] Status fill(const Segment& segment, std::byte* to) {
            const Source& source = sources_[index(segment.storage)];
            if (source.memory != nullptr) {
                if (config_.loading) {
                    if (Status loaded = config_.loading->wait(segment.storage); !loaded) { return loaded; }
                }
                std::memcpy(to, source.memory + segment.offset, static_cast<std::size_t>(segment.bytes));
                return {};
            }
            file_bytes_.fetch_add(segment.bytes, std::memory_order_relaxed);
            const std::uint64_t from = source.file_offset + segment.offset - segment.skip;
            return files_[source.file].try_read(from, {to, static_cast<std::size_t>(segment.window)},
                                                static_cast<std::size_t>(segment.skip + segment.bytes));
        }
        void fail(const Error& error) {
            const std::lock_guard lock{mutex_};
            if (!error_) { error_ = error; }
            failed_.store(true, std::memory_order_release);
        }

        /// The caller has drained the streams, so no worker waits for one.
        void close() noexcept {
            {
                const std::lock_guard lock{mutex_};
                stopping_ = true;
            }
            ready_.notify_all();
            for (std::thread& thread : threads_) { thread.join(); }
            threads_.clear();
            for (const auto& event : free_events_) { static_cast<void>(device_.destroy_event(event).has_value()); }
            for (const Slot& slot : slots_) {
                if (slot.copied) { static_cast<void>(device_.destroy_event(*slot.copied).has_value()); }
                if (slot.has_flag) { static_cast<void>(device_.destroy_flag(slot.flag).has_value()); }
            }
            if (ring_ != nullptr) { static_cast<void>(device_.deallocate_host(ring_).has_value()); }
        }

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
        std::uint64_t turn_ = 0;         // slots handed out
        std::unique_ptr<Job> building_;  // the slot that is being filled, if any
        std::uint64_t used_ = 0;         // bytes of it
        std::vector<Copy> straight_, sent_;

        std::atomic<bool> failed_ = false;
        std::atomic<std::uint64_t> straight_bytes_ = 0;
        std::atomic<std::uint64_t> staged_bytes_ = 0;
        std::atomic<std::uint64_t> file_bytes_ = 0;
        std::atomic<std::uint64_t> slots_filled_ = 0;

        std::mutex turn_mutex_;     // taken before mutex_
        mutable std::mutex mutex_;  // what follows
        std::condition_variable ready_;
        std::unique_ptr<Job> queue_;  // in the order of the streams' waits
        Job* last_ = nullptr;         // of a queue that is not empty
        std::unique_ptr<Job> free_jobs_;
        std::vector<typename D::Event> free_events_;
        std::optional<Error> error_;
        bool stopping_ = false;

        std::vector<std::thread> threads_;
    };

    Config config_;
    std::unique_ptr<Core> core_;
};

}  // namespace residency::inline RESIDENCY_ABI::transport
