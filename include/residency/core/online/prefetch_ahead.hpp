// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/core/online/storage_cache.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Brings whole storages ahead of their use, as a prefetcher proposes them. What is needed sooner never leaves for them. Best effort:
/// what cannot be brought is dropped and counted. Does not block; not thread safe.
template <evict::EvictionPolicy Evictor, pool::MemoryPool Pool>
class PrefetchAhead {
public:
    /// Allocates; bring() does not. `cache` outlives this object.
    void attach(StorageCache<Evictor, Pool>& cache) {
        cache_ = &cache;
        copies_.reserve(cache.bytes().size());
    }
    /// The cap has changed: the next call asks the prefetcher again.
    void reset() noexcept { last_ = {}; }

    /// `ended` is the number of leases and tickets that have ended so far.
    template <prefetch::PrefetchPolicy Prefetcher>
    void bring(Prefetcher& prefetcher, std::uint64_t ended, StepIndex now) noexcept {
        if (now == last_.now && cache_->changes() == last_.changes && ended == last_.ended) { return; }
        copies_.clear();
        cache_->commit_placements();
        prefetcher.propose(now, [&](StorageId id, StepIndex needed_by) {
            if (!cache_->is_absent(id)) { return true; }
            if (!cache_->place_ahead(id, needed_by, now, [&] { send(); })) {
                ++cache_->context().counters->dropped_prefetches;
                return false;
            }
            copies_.push_back(cache_->copy_of(id));
            return true;
        });
        send();
        last_ = {now, cache_->changes(), ended};
    }

private:
    /// The state at the end of the last bring(). While the step and the allocations are the same and no lease has ended, another call
    /// could bring nothing, and returns at once.
    struct Attempt {
        StepIndex now = UINT64_MAX;
        std::uint64_t changes = 0;  // of allocations
        std::uint64_t ended = 0;    // leases
    };

    /// Enqueues the collected copies. Called before the copy stream is made to wait for a use: the copies collected so far do not depend
    /// on that use.
    void send() noexcept {
        if (copies_.empty() || cache_->context().copy_scheduler->transfer(copies_)) {
            for (const transport::Fetch& copy : copies_) { cache_->state(copy.storage).partially_resident = false; }
            cache_->commit_placements();
        } else {
            cache_->roll_back_placements();
        }
        copies_.clear();
    }

    StorageCache<Evictor, Pool>* cache_ = nullptr;  // the decider's
    Attempt last_;
    std::vector<transport::Fetch> copies_;  // collected, not sent
};

}}}  // namespace residency::RESIDENCY_ABI::core
