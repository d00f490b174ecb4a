// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of an online decider without the decider, and a stream that reads. Leases are counted by hand.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "residency/core/engine/transport_interface.hpp"
#include "residency/core/online/pool_resizer.hpp"
#include "residency/core/online/storage_cache.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/transport/pinned.hpp"
#include "tests/support/streaming.hpp"

namespace online_parts {

using namespace streaming;
using residency::StorageId;
using residency::core::StorageState;
using residency::transport::Fetch;
namespace core = residency::core;

inline constexpr std::uint64_t page = 4096;
inline constexpr auto any = [](StorageId) { return true; };

/// A cache of storages of one page over a pool, an order of use that is not known, and speculation where it is asked for.
template <class Pool = residency::pool::Slab<Device>>
class Parts {
public:
    using Cache = core::StorageCache<residency::evict::Lru, Pool>;

    Parts(std::size_t storages, std::uint64_t pages, bool speculates = false, std::uint64_t storage_bytes = page)
        : model{uniform_model(device, storages, storage_bytes)},
          states(storages),
          sizes(storages, storage_bytes),
          step{storage_bytes} {
        must(scheduler.open(device, model.catalog,
                            std::make_unique<core::TransportAdapter<Device, residency::transport::Pinned<Device>>>(
                                residency::transport::Pinned<Device>::Config{}),
                            64, states, counters, marks));
        context.catalog = model.catalog;
        context.states = states;
        context.counters = &counters;
        context.device = &device;
        context.copy_scheduler = &scheduler;
        stream = must(device.create_stream());
        must(scheduler.begin_pass());
        reader = must(scheduler.consumer(stream));
        const residency::pool::Requirements requirements{sizes, step, storage_bytes, 1};
        limits = cache.limits(device, model.catalog, residency::Schedule{}, requirements, 0);
        cache.attach(context, requirements, speculates ? &speculation : nullptr);
        speculation.attach(context, cache.bytes());
        change.attach(cache);
        must(cache.open(pages * page, limits.ceiling_bytes));
        must(cache.rank_again(0));
    }
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;
    ~Parts() {
        must(scheduler.drain_device());
        CHECK(*model.wrong == 0);
        cache.close();
        scheduler.close();
        must(device.destroy_stream(stream));
    }

    [[nodiscard]] StorageState& state(std::uint32_t i) { return states[i]; }
    [[nodiscard]] bool is_there(std::uint32_t i) { return states[i].address != nullptr; }
    [[nodiscard]] std::vector<std::uint32_t> there() {
        std::vector<std::uint32_t> all;
        for (std::uint32_t i = 0; i < states.size(); ++i) {
            if (is_there(i)) { all.push_back(i); }
        }
        return all;
    }
    /// Brings a storage, in the place of any that is not leased. False: there is no room.
    bool bring(std::uint32_t i) {
        cache.commit_placements();
        const auto free = [&](StorageId id) { return states[index(id)].leases == 0; };
        if (!must(cache.place(StorageId{i}, now, free, [] {}))) { return false; }
        copy(cache.copy_of(StorageId{i}));
        cache.commit_placements();
        return true;
    }
    /// Copies a storage that was placed, or the rest of it.
    void copy(const Fetch& fetch) {
        must(scheduler.transfer({&fetch, 1}));
        states[index(fetch.storage)].partially_resident = false;
    }
    /// A kernel compares a storage that is there, and its use is recorded.
    void read(std::uint32_t i, std::chrono::nanoseconds duration = std::chrono::microseconds{2}) {
        must(scheduler.stream_wait_arrival(reader, state(i).arrival));
        const std::string name = "w" + std::to_string(i);
        Device::Kernel kernel;
        kernel.name = name;
        kernel.duration = duration;
        kernel.reads = {{state(i).address, sizes[i]}};
        kernel.body = [at = state(i).address, host = model.catalog.host_bytes(StorageId{i}), bytes = sizes[i],
                       wrong = model.wrong] { *wrong += std::memcmp(at, host, bytes) != 0 ? 1U : 0U; };
        must(device.launch(stream, std::move(kernel)));
        const StorageId id{i};
        must(scheduler.record_use(reader, {&id, 1}));
        cache.used({&id, 1}, now);
    }
    [[nodiscard]] std::uint64_t used_bytes() {
        const auto memory = must(device.memory());
        return memory.total_bytes - memory.free_bytes;
    }

    CheckedDevice device;
    Model model;
    std::vector<StorageState> states;
    std::vector<std::uint64_t> sizes, step;
    residency::Counters counters;
    core::MarkLog<Device> marks;
    core::CopyScheduler<Device> scheduler;
    core::DeciderContext<Device> context;
    core::BudgetLimits limits;
    core::Speculation<Device> speculation;
    Cache cache{{}, {}};
    core::PoolResizer<residency::evict::Lru, Pool> change;
    Stream stream{};
    core::ConsumerId reader = 0;
    residency::StepIndex now = 0;
};

}  // namespace online_parts
