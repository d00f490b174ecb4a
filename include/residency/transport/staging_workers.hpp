// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/ids.hpp"
#include "residency/transport/read_coalescer.hpp"
#include "residency/transport/staging_ring.hpp"
#include "residency/transport/weight_sources.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// What several threads could not read since take(): the first error, and every storage that lacks bytes. Thread safe.
class ReadFailures {
public:
    void add(const Error& error, std::span<const StoragePart> parts) {
        const std::lock_guard lock{mutex_};
        if (!error_) { error_ = error; }
        for (const StoragePart& part : parts) { storages_.push_back(part.storage); }
        is_set_.store(true, std::memory_order_release);
    }
    [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
    [[nodiscard]] Status status() const {
        if (!is_set()) { return {}; }
        const std::lock_guard lock{mutex_};
        return error_ ? Status{*error_} : Status{};
    }
    /// Forgets the error, and appends the storages, some of them perhaps twice.
    void take(std::vector<StorageId>& storages) {
        const std::lock_guard lock{mutex_};
        storages.insert(storages.end(), storages_.begin(), storages_.end());
        storages_.clear();
        error_.reset();
        is_set_.store(false, std::memory_order_release);
    }

private:
    mutable std::mutex mutex_;
    std::optional<Error> error_;       // under mutex_
    std::vector<StorageId> storages_;  // the same
    std::atomic<bool> is_set_ = false;
};

/// Threads that fill the slots of a ring. The flag of a slot rises to a job's generation only after the job has filled it or was withdrawn,
/// and for the jobs of one slot in their order. Bytes that cannot be read are filled with ones, and noted in `failures` before the flag
/// rises. A call of the device that fails is tried again, until it works or the threads are stopped.
template <FlagDevice D>
class StagingWorkers {
public:
    /// A slot to be filled.
    struct Job {
        explicit Job(std::uint64_t slot_bytes) : reads{slot_bytes} {}

        std::uint32_t slot = 0;
        std::uint32_t generation = 0;                  ///< see StagingRing::Taken
        std::optional<typename D::Event> last_copy{};  ///< the same; owned by the job
        ReadCoalescer reads;                           ///< that fill the slot
        std::unique_ptr<Job> next;                     ///< in a list
    };

    StagingWorkers(D& device, StagingRing<D>& ring, WeightSources& sources, ReadFailures& failures) noexcept
        : device_{device}, ring_{ring}, sources_{sources}, failures_{failures} {}
    StagingWorkers(const StagingWorkers&) = delete;
    StagingWorkers& operator=(const StagingWorkers&) = delete;
    ~StagingWorkers() { stop(); }

    /// Starts up to `threads` threads. The ring is open. `slot_bytes`: what one job may fill.
    [[nodiscard]] Status start(unsigned threads, std::uint64_t slot_bytes) {
        slot_bytes_ = slot_bytes;
        progress_.resize(ring_.size());
        return threads_.try_start_some(threads, [this] { work(); });
    }
    /// Blocks until every job is done, then ends the threads. A job that the device refuses again and again is left undone, with its flag
    /// down.
    void stop() noexcept {
        {
            const std::lock_guard lock{mutex_};
            is_stopping_ = true;
        }
        queued_.notify_all();
        threads_.join();
    }

    /// A job without reads.
    [[nodiscard]] std::unique_ptr<Job> take_job();
    /// Queues a job. Jobs of one slot are queued in the order of their generations.
    void queue(std::unique_ptr<Job> job);
    /// The bytes of a queued job are not needed: it is not read if it has not begun.
    void withdraw(std::uint32_t slot, std::uint32_t generation);

    /// Blocks until every queued job is done.
    void await_queued() {
        std::unique_lock lock{mutex_};
        done_.wait(lock, [&] { return undone_ == 0; });
    }

    /// Bytes of the parts that were filled.
    [[nodiscard]] std::uint64_t filled_bytes() const noexcept { return filled_bytes_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t filled_slots() const noexcept { return filled_slots_.load(std::memory_order_relaxed); }

private:
    /// How far the generations of a slot are.
    struct Progress {
        std::uint32_t done = 0;                // the generation whose job ended last
        std::vector<std::uint32_t> withdrawn;  // generations whose jobs have not ended
    };

    /// Failed calls of the device that are tried again at once. After more of them, a thread sleeps between two tries.
    static constexpr int tries_at_once = 64;

    void work();
    /// Blocks until the slot may be written. False: the threads are stopping, and the slot may still be read.
    [[nodiscard]] bool wait_until_free(const Job& job);
    /// Calls the device until it works. False: it fails again and again, and the threads are stopping.
    template <class Call>
    [[nodiscard]] bool insist(const Call& call);
    /// A later generation of the slot may be withdrawn while an earlier one is still wanted.
    [[nodiscard]] bool is_wanted(const Job& job) {
        const std::lock_guard lock{mutex_};
        return !is_withdrawn(job);
    }
    /// Whether this generation of the job's slot was withdrawn. Precondition: mutex_ is locked.
    [[nodiscard]] bool is_withdrawn(const Job& job) const {
        const std::vector<std::uint32_t>& withdrawn = progress_[job.slot].withdrawn;
        return std::ranges::find(withdrawn, job.generation) != withdrawn.end();
    }
    /// Notes what could not be read, unless the job was withdrawn.
    void note_failure(const Job& job, const Error& error, std::span<const StoragePart> parts) {
        const std::lock_guard lock{mutex_};
        if (!is_withdrawn(job)) { failures_.add(error, parts); }
    }
    /// Blocks. Fills the slot with what the reads bring, or with all ones.
    void fill(const Job& job);
    void give_back(std::unique_ptr<Job> job);

    D& device_;
    StagingRing<D>& ring_;
    WeightSources& sources_;
    ReadFailures& failures_;
    std::uint64_t slot_bytes_ = 0;

    std::atomic<std::uint64_t> filled_bytes_ = 0, filled_slots_ = 0;

    std::mutex turn_mutex_;  // held by the one thread that waits for the next job and its slot; taken before mutex_
    std::mutex mutex_;       // what follows
    std::condition_variable queued_, done_;
    std::unique_ptr<Job> queue_;  // in the order in which their slots come free
    Job* last_ = nullptr;         // of a queue that is not empty
    std::size_t undone_ = 0;      // jobs that were queued
    std::unique_ptr<Job> free_jobs_;
    std::vector<Progress> progress_;  // by slot
    bool is_stopping_ = false;

    host::ThreadGroup threads_;
};

template <FlagDevice D>
auto StagingWorkers<D>::take_job() -> std::unique_ptr<Job> {
    {
        const std::lock_guard lock{mutex_};
        if (free_jobs_) {
            auto job = std::move(free_jobs_);
            free_jobs_ = std::move(job->next);
            return job;
        }
    }
    return std::make_unique<Job>(slot_bytes_);
}

template <FlagDevice D>
void StagingWorkers<D>::queue(std::unique_ptr<Job> job) {
    {
        const std::lock_guard lock{mutex_};
        Job* const last = job.get();
        (queue_ ? last_->next : queue_) = std::move(job);
        last_ = last;
        ++undone_;
    }
    queued_.notify_one();
}

template <FlagDevice D>
void StagingWorkers<D>::withdraw(std::uint32_t slot, std::uint32_t generation) {
    const std::lock_guard lock{mutex_};
    Progress& progress = progress_[slot];
    if (progress.done < generation) { progress.withdrawn.push_back(generation); }
}

template <FlagDevice D>
void StagingWorkers<D>::give_back(std::unique_ptr<Job> job) {
    job->reads.clear();
    if (job->last_copy) { ring_.give_back_event(*std::exchange(job->last_copy, std::nullopt)); }
    const std::lock_guard lock{mutex_};
    job->next = std::move(free_jobs_);
    free_jobs_ = std::move(job);
}

template <FlagDevice D>
void StagingWorkers<D>::work() {
    for (;;) {
        std::unique_ptr<Job> job;
        bool is_free = true;
        {
            // Slots come free in order: one thread waits for the next, the others for their turn, not for the device.
            const std::lock_guard turn{turn_mutex_};
            {
                std::unique_lock lock{mutex_};
                queued_.wait(lock, [&] { return is_stopping_ || queue_ != nullptr; });
                if (!queue_) { return; }
                job = std::move(queue_);
                queue_ = std::move(job->next);
            }
            is_free = wait_until_free(*job);
        }
        if (is_free && is_wanted(*job)) { fill(*job); }
        if (is_free) {
            static_cast<void>(insist([&] { return device_.raise_flag(ring_.flag(job->slot), job->generation); }));
        }
        {
            const std::lock_guard lock{mutex_};
            Progress& progress = progress_[job->slot];
            progress.done = job->generation;
            std::erase(progress.withdrawn, job->generation);
            --undone_;
        }
        done_.notify_all();
        give_back(std::move(job));
    }
}

template <FlagDevice D>
bool StagingWorkers<D>::wait_until_free(const Job& job) {
    {
        // The job before may be another thread's; one that was withdrawn has no copy to wait for.
        std::unique_lock lock{mutex_};
        done_.wait(lock, [&] { return progress_[job.slot].done + 1 == job.generation; });
    }
    return !job.last_copy || insist([&] { return device_.synchronize(*job.last_copy); });
}

template <FlagDevice D>
template <class Call>
bool StagingWorkers<D>::insist(const Call& call) {
    for (int tries = 1; !call(); ++tries) {
        if (tries < tries_at_once) { continue; }
        {
            const std::lock_guard lock{mutex_};
            if (is_stopping_) { return false; }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
}

template <FlagDevice D>
void StagingWorkers<D>::fill(const Job& job) {
    std::byte* const memory = ring_.memory(job.slot);
    std::span<const StoragePart> parts = job.reads.parts();
    for (const SlotRead& read : job.reads.reads()) {
        std::byte* const to = memory + read.at_bytes;
        if constexpr (requires { device_.host_write(to, read.window_bytes); }) {
            static_cast<void>(device_.host_write(to, read.window_bytes).has_value());
        }
        if (Status filled = sources_.try_read(read, parts.first(read.parts), to); !filled) {
            std::memset(to, 0xff, static_cast<std::size_t>(read.window_bytes));
            note_failure(job, filled.error(), parts.first(read.parts));
        }
        for (const StoragePart& part : parts.first(read.parts)) {
            filled_bytes_.fetch_add(part.bytes, std::memory_order_relaxed);
        }
        parts = parts.subspan(read.parts);
    }
    filled_slots_.fetch_add(1, std::memory_order_relaxed);
}

}}}  // namespace residency::RESIDENCY_ABI::transport
