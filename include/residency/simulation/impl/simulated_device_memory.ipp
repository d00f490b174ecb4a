// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// SimulatedDevice: memory, pools, pinned memory, and virtual memory.

#include <algorithm>
#include <cstring>

#include "residency/model/number.hpp"
#include "residency/simulation/device_state.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

// ---- Memory

RESIDENCY_INLINE bool SimulatedDevice::take_bytes(std::uint64_t bytes) {
    remove_empty_pools();
    if (bytes > config_.memory_bytes - gpu_->used_bytes) { return false; }
    gpu_->used_bytes += bytes;
    gpu_->peak_bytes = (std::max)(gpu_->peak_bytes, gpu_->used_bytes);
    return true;
}

RESIDENCY_INLINE std::byte* SimulatedDevice::new_memory(std::uint64_t bytes, Content content, const Access& access,
                                                        std::uint32_t& region) {
    std::byte* at = state_->device_space.reserve(bytes, simulation::AddressSpace::page_bytes());
    if (at == nullptr) { return nullptr; }
    if (config_.real_bytes) {
        if (!simulation::AddressSpace::commit(at, bytes)) {
            state_->device_space.give_back(at, bytes);
            return nullptr;
        }
        std::memset(at, std::to_integer<int>(fresh), bytes);
    }
    region = state_->checker.add_region(bytes, content, access);
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    state_->map.insert({begin, begin + bytes, region, 0, true, false, 0, gpu_->number});
    return at;
}

RESIDENCY_INLINE void SimulatedDevice::drop_memory(std::byte* at, std::uint64_t bytes, std::uint32_t region) {
    state_->map.erase(at, bytes);
    state_->checker.remove_region(region);
    state_->device_space.give_back(at, bytes);
}

RESIDENCY_INLINE Result<void*> SimulatedDevice::allocate(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::allocate); !entered) { return entered.error(); }
    if (bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::allocate, "zero bytes"); }
    if (bytes > config_.memory_bytes) { return out_of_memory(CallKind::allocate, bytes); }
    const std::uint64_t taken = simulation::AddressSpace::round_up(bytes, config_.allocation_granularity);
    if (!take_bytes(taken)) { return out_of_memory(CallKind::allocate, bytes); }
    std::uint32_t region = 0;
    const Access access = host_acts(OperationKind::allocate, simulation::name(OperationKind::allocate));
    std::byte* at = new_memory(bytes, Content::uninitialised, access, region);
    if (at == nullptr) {
        gpu_->used_bytes -= taken;
        return failure(ErrorKind::out_of_memory, CallKind::allocate, "the process has no memory left", bytes);
    }
    state_->map.find(at)->for_peers = true;
    gpu_->allocations.push_back({at, bytes, taken, region, false});
    return static_cast<void*>(at);
}

RESIDENCY_INLINE Status SimulatedDevice::deallocate(void* at) {
    Lock lock = guard();
    if (Status entered = enter(CallKind::deallocate); !entered) { return entered; }
    if (at == nullptr) { return {}; }
    const auto is_it = [&](const Gpu::Allocation& allocation) { return allocation.at == at; };
    if (std::none_of(gpu_->allocations.begin(), gpu_->allocations.end(), is_it)) {
        return misuse(ErrorKind::invalid_argument, CallKind::deallocate, "not the start of an allocation that is alive",
                      at);
    }
    if (Status drained = drain(lock, CallKind::deallocate); !drained) { return drained; }
    const auto found = std::find_if(gpu_->allocations.begin(), gpu_->allocations.end(), is_it);
    if (found == gpu_->allocations.end()) {
        return misuse(ErrorKind::invalid_argument, CallKind::deallocate, "another thread has freed it meanwhile", at);
    }
    if (state_->gpus.size() > 1) {  // the work of a peer, which nobody has waited for, may read it
        const Access access = host_acts(OperationKind::host_memory, simulation::name(CallKind::deallocate));
        state_->checker.check_unused(at, found->bytes, access, state_->host_clock);
    }
    gpu_->used_bytes -= found->taken_bytes;
    drop_memory(found->at, found->bytes, found->region);
    gpu_->allocations.erase(found);
    return {};
}

RESIDENCY_INLINE SimulatedDevice::MemoryPool* SimulatedDevice::find(Pool pool) noexcept {
    MemoryPool* state = gpu_->pools.find(pool);
    return state != nullptr && !state->destroyed ? state : nullptr;
}

RESIDENCY_INLINE void SimulatedDevice::collect_freed(MemoryPool& pool) {
    pool.collect_freed([&](Marker* marker) { state_->simulator.release(marker); });
}

RESIDENCY_INLINE void SimulatedDevice::trim_unused(MemoryPool& pool) {
    std::erase_if(pool.segments, [&](const MemoryPool::Segment& segment) {
        if (!MemoryPool::is_unused(segment)) { return false; }
        pool.held_bytes -= segment.bytes;
        gpu_->used_bytes -= segment.bytes;
        drop_memory(segment.at, segment.bytes, segment.region);
        return true;
    });
}

RESIDENCY_INLINE void SimulatedDevice::remove_empty_pools() {
    if (gpu_->dying_pools == 0) { return; }
    std::vector<Pool> empty;
    gpu_->pools.for_each_handle([&](Pool handle, MemoryPool& pool) {
        if (!pool.destroyed) { return; }
        collect_freed(pool);
        trim_unused(pool);
        if (pool.segments.empty()) { empty.push_back(handle); }
    });
    for (const Pool handle : empty) {
        gpu_->pools.remove(handle);
        --gpu_->dying_pools;
    }
}

RESIDENCY_INLINE bool SimulatedDevice::grow(MemoryPool& pool, std::uint64_t bytes) {
    const std::uint64_t segment_bytes = simulation::AddressSpace::round_up(bytes, config_.pool_granularity);
    if (segment_bytes > pool.cap_bytes - pool.held_bytes || !take_bytes(segment_bytes)) { return false; }
    MemoryPool::Segment segment;
    segment.bytes = segment_bytes;
    segment.at = new_memory(segment_bytes, Content::freed, Access{}, segment.region);
    if (segment.at == nullptr) {
        gpu_->used_bytes -= segment_bytes;
        return false;
    }
    segment.blocks.push_back({0, segment_bytes, false, nullptr});
    pool.segments.push_back(std::move(segment));
    pool.held_bytes += segment_bytes;
    pool.peak_bytes = (std::max)(pool.peak_bytes, pool.held_bytes);
    return true;
}

RESIDENCY_INLINE Result<SimulatedDevice::Pool> SimulatedDevice::create_pool(std::uint64_t cap_bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_pool); !entered) { return entered.error(); }
    if (cap_bytes == 0 || cap_bytes % config_.pool_granularity != 0) {
        return failure(ErrorKind::invalid_argument, CallKind::create_pool,
                       "a cap of " + residency::detail::in_bytes(cap_bytes) +
                           "; the driver would round it up to a multiple of " +
                           residency::detail::in_bytes(config_.pool_granularity),
                       cap_bytes);
    }
    const Pool pool = gpu_->pools.add();
    gpu_->pools.find(pool)->cap_bytes = cap_bytes;
    return pool;
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_pool(Pool pool) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_pool); !entered) { return entered; }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::destroy_pool, pool); }
    if (const std::uint64_t bytes = state->used_bytes(); bytes != 0) {
        return misuse(ErrorKind::wrong_state, CallKind::destroy_pool,
                      residency::detail::in_bytes(bytes) + " of the pool have not been deallocated", nullptr, bytes);
    }
    state->destroyed = true;
    ++gpu_->dying_pools;
    remove_empty_pools();
    return {};
}

RESIDENCY_INLINE Result<void*> SimulatedDevice::allocate(Pool pool, std::uint64_t bytes, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::pool_allocate); !entered) { return entered.error(); }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::pool_allocate, pool); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::pool_allocate, stream); }
    if (state_->simulator.stream(number).capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::pool_allocate, "refused in a capture: the cap would not hold",
                       bytes);
    }
    if (bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::pool_allocate, "zero bytes"); }
    const auto exhausted = [&] {
        return failure(ErrorKind::out_of_memory, CallKind::pool_allocate,
                       residency::detail::in_bytes(bytes) + " asked for; the pool holds " +
                           residency::detail::in_bytes(state->held_bytes) + " of at most " +
                           residency::detail::in_bytes(state->cap_bytes) + ", " +
                           residency::detail::in_bytes(state->used_bytes()) +
                           " of them in use, and no hole is large enough",
                       bytes);
    };
    if (bytes > state->cap_bytes) { return exhausted(); }
    const std::uint64_t block_bytes = simulation::AddressSpace::round_up(bytes, config_.pool_block_bytes);
    StreamState& queue = state_->simulator.stream(number);
    join_host(queue);
    collect_freed(*state);
    // The driver's order: a block that this stream knows to be free, then more memory, then a block that another stream still frees.
    const auto known = [&](const Marker& freed) { return queue.clock.covers(freed.stream, freed.sequence); };
    MemoryPool::Fit fit = state->find(block_bytes, known);
    if (fit.segment == nullptr && grow(*state, block_bytes)) { fit = state->find(block_bytes, known); }
    if (fit.segment == nullptr) {
        trim_unused(*state);
        if (grow(*state, block_bytes)) { fit = state->find(block_bytes, known); }
    }
    if (fit.segment == nullptr) {
        fit = state->find(block_bytes, [](const Marker&) { return true; });
    }
    if (fit.segment == nullptr) { return exhausted(); }
    std::byte* at = state->take(fit, block_bytes, [&](Marker* freed, bool whole) {
        append_wait(number, freed, false);
        if (whole) { state_->simulator.release(freed); }
    });
    Operation* operation = begin(number, OperationKind::allocate, label_of(OperationKind::allocate));
    operation->fill_at = at;
    operation->fill_value = fresh;
    operation->bytes = block_bytes;
    state_->checker.assign(at, block_bytes, access_of(*operation), Content::uninitialised);
    state_->simulator.append(operation);
    return static_cast<void*>(at);
}

RESIDENCY_INLINE Status SimulatedDevice::deallocate(Pool pool, void* at, Stream stream) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::pool_deallocate); !entered) { return entered; }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::pool_deallocate, pool); }
    const std::uint32_t number = find(stream);
    if (number == 0) { return dead_handle(CallKind::pool_deallocate, stream); }
    if (state_->simulator.stream(number).capture != 0) {
        return failure(ErrorKind::wrong_state, CallKind::pool_deallocate, "refused in a capture");
    }
    MemoryPool::Segment* segment = state->segment_of(at);
    MemoryPool::Block* block = segment != nullptr ? MemoryPool::block_of(*segment, at) : nullptr;
    if (block == nullptr || !block->used) {
        return misuse(ErrorKind::invalid_argument, CallKind::pool_deallocate,
                      "not the start of an allocation of this pool that is alive", at);
    }
    Operation* operation = begin(number, OperationKind::deallocate, label_of(OperationKind::deallocate));
    operation->fill_at = static_cast<std::byte*>(at);
    operation->fill_value = stale;
    operation->bytes = block->bytes;
    state_->checker.write(at, block->bytes, access_of(*operation), state_->simulator.stream(number).clock, false,
                          Content::freed, [](const Access&) noexcept { return false; });
    Marker* freed = state_->simulator.make_marker();
    state_->simulator.hold(freed);
    freed->stream = number;
    freed->sequence = operation->sequence;
    operation->marker = freed;
    block->used = false;
    block->freed = freed;
    state_->simulator.append(operation);
    return {};
}

RESIDENCY_INLINE Result<std::uint64_t> SimulatedDevice::held_bytes(Pool pool) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::held_bytes); !entered) { return entered.error(); }
    const MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::held_bytes, pool); }
    return state->held_bytes;
}

RESIDENCY_INLINE Status SimulatedDevice::trim(Pool pool) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::trim); !entered) { return entered; }
    MemoryPool* state = find(pool);
    if (state == nullptr) { return dead_handle(CallKind::trim, pool); }
    collect_freed(*state);
    trim_unused(*state);
    return {};
}

RESIDENCY_INLINE Result<MemoryInfo> SimulatedDevice::memory() {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::memory); !entered) { return entered.error(); }
    remove_empty_pools();
    return MemoryInfo{config_.memory_bytes - gpu_->used_bytes, config_.memory_bytes};
}

RESIDENCY_INLINE Status SimulatedDevice::add_pinned(std::byte* at, std::uint64_t bytes, bool pinned_only) {
    const Access access = host_acts(OperationKind::host_memory, simulation::name(OperationKind::host_memory));
    const std::uint32_t region = state_->checker.add_region(bytes, Content::written, access);
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    state_->map.insert({begin, begin + bytes, region, 0, false, false, 0, gpu_->number});
    gpu_->pinned.push_back({at, bytes, 0, region, pinned_only});
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::release_pinned(void* at, bool pinned_only, CallKind call) {
    const auto found = std::find_if(gpu_->pinned.begin(), gpu_->pinned.end(), [&](const Gpu::Allocation& allocation) {
        return allocation.at == at && allocation.pinned_only == pinned_only;
    });
    if (found == gpu_->pinned.end()) {
        return misuse(ErrorKind::invalid_argument, call,
                      pinned_only ? "not the start of a range that is pinned"
                                  : "not the start of a host allocation that is alive",
                      at);
    }
    const Access access = host_acts(OperationKind::host_memory, simulation::name(call));
    if (state_->checker.check_unused(at, found->bytes, access, state_->host_clock) != 0) {
        return failure(ErrorKind::wrong_state, call, "work that the host has not synchronised with uses this memory",
                       found->bytes);
    }
    drop_pinned(found->at, found->bytes, found->region, pinned_only);
    gpu_->pinned.erase(found);
    return {};
}

RESIDENCY_INLINE void SimulatedDevice::drop_pinned(std::byte* at, std::uint64_t bytes, std::uint32_t region,
                                                   bool pinned_only) {
    state_->map.erase(at, bytes);
    state_->checker.remove_region(region);
    if (!pinned_only) { state_->host_space.give_back(at, bytes); }
}

RESIDENCY_INLINE Result<void*> SimulatedDevice::allocate_host(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::allocate_host); !entered) { return entered.error(); }
    if (bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::allocate_host, "zero bytes"); }
    std::byte* at =
        bytes > PTRDIFF_MAX / 2 ? nullptr : state_->host_space.reserve(bytes, simulation::AddressSpace::page_bytes());
    if (at != nullptr && !simulation::AddressSpace::commit(at, bytes)) {
        state_->host_space.give_back(at, bytes);
        at = nullptr;
    }
    if (at == nullptr) {
        return failure(ErrorKind::out_of_memory, CallKind::allocate_host, "the process has no memory left", bytes);
    }
    if (Status added = add_pinned(at, bytes, false); !added) { return added.error(); }
    return static_cast<void*>(at);
}

RESIDENCY_INLINE Status SimulatedDevice::deallocate_host(void* at) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::deallocate_host); !entered) { return entered; }
    if (at == nullptr) { return {}; }
    return release_pinned(at, false, CallKind::deallocate_host);
}

RESIDENCY_INLINE Status SimulatedDevice::pin(void* at, std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::pin); !entered) { return entered; }
    if (at == nullptr || bytes == 0) { return failure(ErrorKind::invalid_argument, CallKind::pin, "no bytes to pin"); }
    if (state_->map.touches(at, bytes) || state_->device_space.owns(at) || state_->host_space.owns(at)) {
        return misuse(ErrorKind::invalid_argument, CallKind::pin,
                      "a part of the range is pinned, or is the device's own", at, bytes);
    }
    return add_pinned(static_cast<std::byte*>(at), bytes, true);
}

RESIDENCY_INLINE Status SimulatedDevice::unpin(void* at) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::unpin); !entered) { return entered; }
    return release_pinned(at, true, CallKind::unpin);
}

RESIDENCY_INLINE Result<const void*> SimulatedDevice::device_view(const void* at) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::device_view); !entered) { return entered.error(); }
    const simulation::AddressMap::Entry* entry = state_->map.find(at);
    if (entry == nullptr || entry->on_device) {
        return failure(ErrorKind::invalid_argument, CallKind::device_view, "this is not pinned host memory");
    }
    return at;
}

// ---- Virtual memory

RESIDENCY_INLINE SimulatedDevice::ChunkState* SimulatedDevice::find(Chunk chunk) noexcept {
    ChunkState* state = gpu_->chunks.find(chunk);
    return state != nullptr && !state->destroyed ? state : nullptr;
}

RESIDENCY_INLINE Result<void*> SimulatedDevice::reserve(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::reserve); !entered) { return entered.error(); }
    if (bytes == 0 || bytes % config_.chunk_granularity != 0) {
        return failure(ErrorKind::invalid_argument, CallKind::reserve, "not a multiple of the chunk granularity",
                       bytes);
    }
    std::byte* at = bytes > PTRDIFF_MAX / 2 ? nullptr : state_->device_space.reserve(bytes, config_.chunk_granularity);
    if (at == nullptr) {
        return failure(ErrorKind::out_of_memory, CallKind::reserve, "the process has no addresses left", bytes);
    }
    gpu_->reservations.push_back({at, bytes, 0, 0, false});
    return static_cast<void*>(at);
}

RESIDENCY_INLINE Status SimulatedDevice::release(void* at, std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::release); !entered) { return entered; }
    const auto found =
        std::find_if(gpu_->reservations.begin(), gpu_->reservations.end(),
                     [&](const Gpu::Allocation& range) { return range.at == at && range.bytes == bytes; });
    if (found == gpu_->reservations.end()) {
        return misuse(ErrorKind::invalid_argument, CallKind::release, "not a reserved range", at, bytes);
    }
    if (state_->map.touches(at, bytes)) {
        return misuse(ErrorKind::wrong_state, CallKind::release, "chunks are still mapped in the range", at, bytes);
    }
    state_->device_space.give_back(found->at, found->bytes);
    gpu_->reservations.erase(found);
    return {};
}

RESIDENCY_INLINE Result<SimulatedDevice::Chunk> SimulatedDevice::create_chunk(std::uint64_t bytes) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::create_chunk); !entered) { return entered.error(); }
    if (bytes == 0 || bytes % config_.chunk_granularity != 0) {
        return failure(ErrorKind::invalid_argument, CallKind::create_chunk, "not a multiple of the chunk granularity",
                       bytes);
    }
    if (!take_bytes(bytes)) { return out_of_memory(CallKind::create_chunk, bytes); }
    std::uint64_t offset = 0;
    if (config_.real_bytes && !state_->device_space.create(bytes, offset, fresh)) {
        gpu_->used_bytes -= bytes;
        return failure(ErrorKind::out_of_memory, CallKind::create_chunk, "the process has no memory left", bytes);
    }
    const Access access = host_acts(OperationKind::mapping, simulation::name(CallKind::create_chunk));
    const Chunk chunk = gpu_->chunks.add();
    *gpu_->chunks.find(chunk) = {offset, bytes, state_->checker.add_region(bytes, Content::uninitialised, access), 0,
                                 false};
    return chunk;
}

RESIDENCY_INLINE void SimulatedDevice::forget_chunk(Chunk handle, ChunkState& chunk) {
    state_->checker.remove_region(chunk.region);
    if (config_.real_bytes) { state_->device_space.destroy(chunk.offset, chunk.bytes); }
    gpu_->used_bytes -= chunk.bytes;
    gpu_->chunks.remove(handle);
}

RESIDENCY_INLINE Status SimulatedDevice::destroy_chunk(Chunk chunk) {
    const Lock lock = guard();
    if (Status entered = enter(CallKind::destroy_chunk); !entered) { return entered; }
    ChunkState* state = find(chunk);
    if (state == nullptr) { return dead_handle(CallKind::destroy_chunk, chunk); }
    state->destroyed = true;
    if (state->mapped == 0) { forget_chunk(chunk, *state); }
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes) {
    const CaptureGate::Call call{state_->gate};
    const Lock lock = guard();
    if (Status entered = enter(CallKind::map); !entered) { return entered; }
    if (!state_->captures.empty()) {
        return failure(ErrorKind::wrong_state, CallKind::map, "refused while a stream captures");
    }
    const auto by_address = [](const Gpu::MappedChunk& mapped, const std::byte* at) { return mapped.at < at; };
    const auto place = [&](const Mapping<Chunk>& mapping) -> Status {
        auto* at = static_cast<std::byte*>(mapping.at);
        ChunkState* chunk = find(mapping.chunk);
        if (chunk == nullptr) { return dead_handle(CallKind::map, mapping.chunk); }
        if (chunk->bytes != bytes || reinterpret_cast<std::uintptr_t>(at) % config_.chunk_granularity != 0) {
            return misuse(ErrorKind::invalid_argument, CallKind::map,
                          "a chunk of another size, or an address that is not aligned", at, bytes);
        }
        const bool reserved =
            std::any_of(gpu_->reservations.begin(), gpu_->reservations.end(), [&](const Gpu::Allocation& range) {
                return at >= range.at && at < range.at + range.bytes &&
                       bytes <= static_cast<std::uint64_t>(range.at + range.bytes - at);
            });
        if (!reserved || state_->map.touches(at, bytes)) {
            return misuse(ErrorKind::invalid_argument, CallKind::map,
                          "the range is not reserved, or something is mapped there", at, bytes);
        }
        if (config_.real_bytes && !state_->device_space.map(at, chunk->offset, bytes)) {
            return failure(ErrorKind::out_of_memory, CallKind::map, "the process has no mappings left", bytes);
        }
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        state_->map.insert({begin, begin + bytes, chunk->region, 0, true, true, 0, gpu_->number});
        gpu_->mapped.insert(std::lower_bound(gpu_->mapped.begin(), gpu_->mapped.end(), at, by_address),
                            {at, mapping.chunk});
        ++chunk->mapped;
        return {};
    };
    for (std::size_t i = 0; i < mappings.size(); ++i) {
        Status placed = place(mappings[i]);
        if (placed) { continue; }
        while (i-- > 0) {
            auto* at = static_cast<std::byte*>(mappings[i].at);
            if (config_.real_bytes) { simulation::AddressSpace::revoke(at, bytes); }
            state_->map.erase(at, bytes);
            gpu_->mapped.erase(std::lower_bound(gpu_->mapped.begin(), gpu_->mapped.end(), at, by_address));
            --find(mappings[i].chunk)->mapped;
        }
        return placed;
    }
    return {};
}

RESIDENCY_INLINE Status SimulatedDevice::unmap(void* at, std::uint64_t bytes) {
    const CaptureGate::Call call{state_->gate};
    const Lock lock = guard();
    if (Status entered = enter(CallKind::unmap); !entered) { return entered; }
    if (!state_->captures.empty()) {
        return failure(ErrorKind::wrong_state, CallKind::unmap, "refused while a stream captures");
    }
    const auto first =
        std::lower_bound(gpu_->mapped.begin(), gpu_->mapped.end(), static_cast<std::byte*>(at),
                         [](const Gpu::MappedChunk& mapped, const std::byte* value) { return mapped.at < value; });
    const auto end_of = [&](const Gpu::MappedChunk& mapped) {
        return mapped.at + gpu_->chunks.find(mapped.chunk)->bytes;
    };
    const std::byte* end = static_cast<std::byte*>(at) + bytes;
    auto last = first;
    while (last != gpu_->mapped.end() && last->at < end) { ++last; }
    const bool cut =
        (first != gpu_->mapped.begin() && end_of(first[-1]) > at) || (first != last && end_of(last[-1]) > end);
    if (first == last || cut) {
        return misuse(ErrorKind::invalid_argument, CallKind::unmap,
                      "the range must hold whole mapped chunks, at least one", at, bytes);
    }
    // Unmapping does not wait (D6): work that still uses the range loses it, and that is a report.
    const Access access = host_acts(OperationKind::mapping, simulation::name(CallKind::unmap));
    for (auto mapped = first; mapped != last; ++mapped) {
        ChunkState& chunk = *gpu_->chunks.find(mapped->chunk);
        state_->checker.check_unused(mapped->at, chunk.bytes, access, state_->host_clock);
        state_->checker.forget_uses(mapped->at, chunk.bytes);
        if (config_.real_bytes) { simulation::AddressSpace::revoke(mapped->at, chunk.bytes); }
        state_->map.erase(mapped->at, chunk.bytes);
        if (--chunk.mapped == 0 && chunk.destroyed) { forget_chunk(mapped->chunk, chunk); }
    }
    gpu_->mapped.erase(first, last);
    return {};
}

// ---- The end of one GPU of several

RESIDENCY_INLINE void SimulatedDevice::leave_pools() {
    gpu_->pools.for_each_handle([&](Pool, MemoryPool& pool) {
        for (const MemoryPool::Segment& segment : pool.segments) {
            for (const MemoryPool::Block& block : segment.blocks) { state_->simulator.release(block.freed); }
            drop_memory(segment.at, segment.bytes, segment.region);
        }
    });
}

RESIDENCY_INLINE void SimulatedDevice::leave_mappings() {
    for (const Gpu::MappedChunk& mapped : gpu_->mapped) {
        const std::uint64_t bytes = gpu_->chunks.find(mapped.chunk)->bytes;
        state_->checker.forget_uses(mapped.at, bytes);
        if (config_.real_bytes) { simulation::AddressSpace::revoke(mapped.at, bytes); }
        state_->map.erase(mapped.at, bytes);
    }
    gpu_->chunks.for_each_handle([&](Chunk, const ChunkState& chunk) {
        state_->checker.remove_region(chunk.region);
        if (config_.real_bytes) { state_->device_space.destroy(chunk.offset, chunk.bytes); }
    });
    for (const Gpu::Allocation& range : gpu_->reservations) { state_->device_space.give_back(range.at, range.bytes); }
}

}}  // namespace residency::RESIDENCY_ABI
