// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The least that models each concept: what compiles here is all that the library may ask for.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "residency/device/device.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/transport/transport_policy.hpp"

namespace archetype {

using residency::Result;
using residency::Status;

/// Takes every call and does nothing.
struct Device {
    struct Stream {
        friend bool operator==(Stream, Stream) = default;
    };
    struct Event {
        friend bool operator==(Event, Event) = default;
    };
    struct Pool {
        friend bool operator==(Pool, Pool) = default;
    };

    Result<Stream> create_stream() { return Stream{}; }
    Status destroy_stream(Stream) { return {}; }
    Result<Event> create_event(residency::Timing) { return Event{}; }
    Status destroy_event(Event) { return {}; }
    Status record(Event, Stream) { return {}; }
    Status wait(Stream, Event) { return {}; }
    Result<bool> is_complete(Event) { return true; }
    Status synchronize(Event) { return {}; }
    Status synchronize(Stream) { return {}; }
    Status synchronize() { return {}; }
    Result<std::chrono::nanoseconds> elapsed(Event, Event) { return std::chrono::nanoseconds{0}; }
    Status copy(std::span<const residency::Copy>, Stream) { return {}; }
    Status fill(void*, std::byte, std::uint64_t, Stream) { return {}; }
    Result<void*> allocate(std::uint64_t) { return static_cast<void*>(this); }
    Status deallocate(void*) { return {}; }
    std::uint64_t allocation_granularity() const { return 1; }
    Result<Pool> create_pool(std::uint64_t) { return Pool{}; }
    Status destroy_pool(Pool) { return {}; }
    std::uint64_t pool_granularity() const { return 1; }
    Result<void*> allocate(Pool, std::uint64_t, Stream) { return static_cast<void*>(this); }
    Status deallocate(Pool, void*, Stream) { return {}; }
    Result<std::uint64_t> held_bytes(Pool) { return std::uint64_t{0}; }
    Status trim(Pool) { return {}; }
    Result<residency::MemoryInfo> memory() { return residency::MemoryInfo{}; }
    Result<void*> allocate_host(std::uint64_t) { return static_cast<void*>(this); }
    Status deallocate_host(void*) { return {}; }
    Status pin(void*, std::uint64_t) { return {}; }
    Status unpin(void*) { return {}; }
    Result<const void*> device_view(const void* at) { return at; }
    Result<bool> is_capturing(Stream) { return false; }
    std::chrono::nanoseconds host_time() const { return {}; }
    std::string_view name() const { return "archetype"; }
};
static_assert(residency::Device<Device>);

/// The same, with addresses that can be arranged.
struct MappingDevice : Device {
    struct Chunk {
        friend bool operator==(Chunk, Chunk) = default;
    };
    std::uint64_t chunk_granularity() const { return 1; }
    Result<void*> reserve(std::uint64_t) { return static_cast<void*>(this); }
    Status release(void*, std::uint64_t) { return {}; }
    Result<Chunk> create_chunk(std::uint64_t) { return Chunk{}; }
    Status destroy_chunk(Chunk) { return {}; }
    Status map(std::span<const residency::Mapping<Chunk>>, std::uint64_t) { return {}; }
    Status unmap(void*, std::uint64_t) { return {}; }
};
static_assert(residency::VirtualMemoryDevice<MappingDevice>);

struct Evictor {
    Status attach(const residency::evict::Context&) { return {}; }
    void inserted(residency::StorageId, residency::StepIndex) noexcept {}
    void used(residency::StorageId, residency::StepIndex) noexcept {}
    void removed(residency::StorageId) noexcept {}
    template <class MayLeave>
    std::optional<residency::StorageId> victim(residency::StepIndex, MayLeave&&) noexcept {
        return std::nullopt;
    }
};
static_assert(residency::evict::EvictionPolicy<Evictor>);

struct Prefetcher {
    static constexpr bool interruptible = false;
    Status attach(const residency::prefetch::Context&) { return {}; }
    template <class Sink>
    void propose(residency::StepIndex, Sink&&) noexcept {}
};
static_assert(residency::prefetch::PrefetchPolicy<Prefetcher>);

struct Pool {
    using Device = archetype::Device;
    struct Config {};
    static constexpr bool one_range = false;

    explicit Pool(Config) {}
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    std::uint64_t occupied(std::uint64_t bytes) const noexcept { return bytes; }
    std::uint64_t floor_bytes(const Device&, const residency::pool::Requirements&) const { return 0; }
    Status open(Device&, const residency::pool::Requirements&, std::uint64_t) { return {}; }
    Result<void*> allocate(std::uint64_t, Device::Stream) { return static_cast<void*>(nullptr); }
    Status deallocate(void*, std::uint64_t, Device::Stream) { return {}; }
    std::uint64_t held_bytes() const { return 0; }
    std::uint64_t requested_bytes() const { return 0; }
    void close() noexcept {}
    void abandon() noexcept {}
};
static_assert(residency::pool::MemoryPool<Pool> && !residency::pool::RecoverablePool<Pool> &&
              !residency::pool::ResizablePool<Pool>);

/// The same, and it can be resized.
struct ResizablePool : Pool {
    using Pool::Pool;
    Status resize(std::uint64_t, std::span<const residency::pool::Place>) { return {}; }
    bool is_over() const noexcept { return false; }
    bool must_move(const void*) const noexcept { return false; }
    Status reclaim() { return {}; }
    Status commit_resize() { return {}; }
};
static_assert(residency::pool::ResizablePool<ResizablePool>);

struct Transport {
    struct Config {};
    static constexpr bool capturable = false;

    explicit Transport(Config) {}
    Status open(Device&, const residency::Catalog&) { return {}; }
    Status enqueue(std::span<const residency::transport::Fetch>, Device::Stream) { return {}; }
    void close() noexcept {}
};
static_assert(residency::transport::TransportPolicy<Transport, Device>);

}  // namespace archetype
