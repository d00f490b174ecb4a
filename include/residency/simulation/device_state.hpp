// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "residency/device/capture_gate.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/simulation/access.hpp"
#include "residency/simulation/address_space.hpp"
#include "residency/simulation/call_kind.hpp"
#include "residency/simulation/checker.hpp"
#include "residency/simulation/event_simulator.hpp"
#include "residency/simulation/handle_table.hpp"
#include "residency/simulation/memory_pool.hpp"
#include "residency/simulation/operation.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

class SimulatedDevice;

namespace simulation {

/// One call of a capture, which every launch of the graph makes again.
struct CapturedCall {
    OperationKind kind = OperationKind::kernel;
    std::uint32_t lane = 0;     ///< the stream, numbered in the graph
    std::uint32_t mark = 0;     ///< of a record or a wait: number of the point in the graph
    std::uint32_t label = 0;    ///< number of the name
    std::uint32_t group = 0;    ///< of a kernel: number of its group's name; 0: none
    std::int64_t duration = 0;  ///< ns
    Copy copy;
    std::byte* fill_at = nullptr;
    std::byte fill_value{};
    std::uint64_t bytes = 0;
    ByteRanges reads, writes;              ///< of a kernel
    std::shared_ptr<KernelFunction> body;  ///< of a kernel
    Handle<EventTag> event;                ///< of a record: that each launch records; a default one: none
};

/// A capture under way. Its streams are the lanes of the graph to be; lane 0 is the stream that began the capture.
struct CaptureState {
    struct Mark {
        VectorClock before;  ///< of lanes, in work calls
    };
    std::uint32_t number = 0;
    std::thread::id owner;                 ///< the thread that began it
    std::vector<std::uint32_t> streams;    ///< numbers, by lane
    std::vector<VectorClock> clocks;       ///< by lane: what lies before its next call
    std::vector<std::uint64_t> positions;  ///< work calls of the lanes
    std::vector<CapturedCall> calls;
    std::vector<Mark> marks;  ///< recorded points, by number
    std::string invalid;      ///< why the capture is invalid; empty: it is valid
};

/// What was captured. Lane 0 runs on the stream of the launch, the other lanes on streams of the graph's own.
struct GraphState {
    std::vector<CapturedCall> calls;
    std::vector<std::uint32_t> streams;  ///< numbers, by lane; the first is unused
    std::vector<Marker*> marks;          ///< by number, during a launch; references
    Marker* last = nullptr;              ///< the end of the latest launch; a reference
    std::uint64_t generation = 0;        ///< of the address map when the ranges were checked last
};

/// A call of a simulated device of the host is under way: its mutex is held.
struct DeviceLock : std::unique_lock<std::mutex> {
    using unique_lock::unique_lock;
};

/// A chunk of a simulated device.
struct ChunkState {
    std::uint64_t offset = 0, bytes = 0;  ///< in the file of device_space
    std::uint32_t region = 0;             ///< number of the physical memory
    std::uint32_t mapped = 0;             ///< addresses where it is mapped
    bool destroyed = false;               ///< lives on until it is mapped nowhere
};

/// What belongs to one GPU of a host.
struct GpuState {
    struct EventState {
        Marker* marker = nullptr;  ///< of its last record, a reference; null: not recorded outside of a capture
        bool timing = false;
        std::uint32_t capture = 0;  ///< number of the capture that it was recorded in last; 0: none
        std::uint32_t mark = 0;     ///< number of the point in that capture
    };
    struct Allocation {
        std::byte* at = nullptr;
        std::uint64_t bytes = 0, taken_bytes = 0;  ///< asked for; counted in used_bytes
        std::uint32_t region = 0;                  ///< number of the physical memory
        bool pinned_only = false;                  ///< by pin(): the memory is the caller's
    };
    struct MappedChunk {
        std::byte* at = nullptr;
        Handle<ChunkTag> chunk;
    };
    /// A call that is to fail.
    struct Failure {
        CallKind kind;
        std::uint64_t remaining;  ///< calls of that kind up to it
        ErrorKind error;
    };

    GpuState(SimulatedDevice& owner, std::uint16_t its_number) noexcept
        : device{owner},
          number{its_number},
          events{&owner},
          pools{&owner},
          chunks{&owner},
          graphs{&owner},
          flags{&owner} {}

    SimulatedDevice& device;
    std::uint16_t number;              ///< among the GPUs of the host
    std::uint32_t default_stream = 0;  ///< its number
    std::uint32_t streams_made = 0;    // for names
    std::vector<std::uint16_t> peers;  ///< numbers of the GPUs whose memory its copies read
    HandleTable<EventState, EventTag> events;
    HandleTable<MemoryPool, PoolTag> pools;
    HandleTable<ChunkState, ChunkTag> chunks;
    HandleTable<GraphState, GraphTag> graphs;
    HandleTable<FlagState, FlagTag> flags;
    std::vector<Allocation> allocations;   // of device memory
    std::vector<Allocation> pinned;        // host memory
    std::vector<Allocation> reservations;  // of addresses
    std::vector<MappedChunk> mapped;       ///< by address

    std::uint32_t dying_pools = 0;                 ///< destroyed, with deallocations pending
    std::uint64_t used_bytes = 0, peak_bytes = 0;  // of the device; the most ever
    std::vector<Failure> failures;
    bool lost = false;
};

/// What the simulated devices of one host hold, out of sight of the programs that use them.
struct DeviceState {
    /// Pieces of one copy call that go the same way.
    struct CopyGroup {
        OperationKind kind = OperationKind::copy_on_host;
        bool pageable = false;
        std::uint64_t bytes = 0;
        std::vector<Copy> copies;
    };

    CaptureGate gate;  // of all GPUs of the host; taken before mutex
    std::mutex mutex;
    std::condition_variable changed;  ///< a flag was raised, or a device lost

    std::vector<std::unique_ptr<GpuState>> gpus;  ///< by number; null: destroyed

    AddressSpace device_space, host_space;
    AddressMap map;
    NameTable names;
    Checker checker{map, names};
    EventSimulator simulator{map, names};
    std::array<std::uint32_t, 16> kind_labels{};

    std::int64_t host_now = 0;                   // ns
    std::uint64_t sequence = 0;                  // of the last operation
    VectorClock host_clock;                      // what the host knows to be over
    std::uint64_t host_version = 1;              ///< changes with host_clock
    std::vector<std::uint32_t> retired_streams;  // numbers to be used again
    std::vector<std::unique_ptr<CaptureState>> captures;
    std::uint32_t captures_made = 0;
    std::array<CopyGroup, 10> groups;  // of the call being made
};

}  // namespace simulation
}}  // namespace residency::RESIDENCY_ABI
