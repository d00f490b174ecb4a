// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "residency/device/cuda_stream.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"

// What the toolkit's handles point to: cudaEvent_t is a CUevent_st*, and so on. No CUDA header is needed for the declarations.
struct CUevent_st;
struct CUgraphExec_st;
struct CUmemPoolHandle_st;

namespace residency { inline namespace RESIDENCY_ABI {

namespace detail {
struct CudaState;
}  // namespace detail

/// One NVIDIA GPU through the CUDA runtime, from plain C++; nothing links against libcuda. Every call leaves the calling
/// thread's current device as it was, and clears the CUDA error that it reports. Whatever the device hands out (streams, events,
/// pools, chunks, graphs, flags, memory) must be given back before the device is destroyed. Move a device only while no other
/// thread uses it.
class CudaDevice {
public:
    using Stream = CudaStream;  ///< a cudaStream_t
    /// An event that this device made, or a cudaEvent_t of the caller's: `Event{mine}`, to be recorded and waited for.
    struct Event {
        CUevent_st* handle = nullptr;                                  ///< a cudaEvent_t
        Timing timing = Timing::off;                                   ///< whether it takes the time
        friend bool operator==(const Event&, const Event&) = default;  ///< compares all members
    };
    /// A capped stream-ordered pool.
    struct Pool {
        CUmemPoolHandle_st* handle = nullptr;                        ///< a cudaMemPool_t
        friend bool operator==(const Pool&, const Pool&) = default;  ///< compares all members
    };
    /// Physical memory: one driver handle.
    struct Chunk {
        std::uint64_t handle = 0;                                      ///< a CUmemGenericAllocationHandle
        friend bool operator==(const Chunk&, const Chunk&) = default;  ///< compares all members
    };
    /// A graph that can be launched.
    struct Graph {
        CUgraphExec_st* handle = nullptr;                              ///< a cudaGraphExec_t
        friend bool operator==(const Graph&, const Graph&) = default;  ///< compares all members
    };
    /// A counter that streams can wait for.
    struct Flag {
        std::uint32_t* value = nullptr;                              ///< pinned; owned by the device
        friend bool operator==(const Flag&, const Flag&) = default;  ///< compares all members
    };

    /// What is tuned.
    struct Config {
        unsigned events = 64;        ///< events created at the start, so that create_event is cheap
        unsigned timing_events = 8;  ///< the same with Timing::on
        unsigned host_threads = 0;   ///< threads that touch pinned memory; 0: as many as the machine has, at most 16
        bool huge_pages = true;      ///< ask for huge pages for pinned memory
        bool pin = true;             ///< false: allocate_host gives pageable memory, copied at a sixth of the speed
    };

    /// Blocks. Opens the GPU of that ordinal, and creates its primary context if there is none yet. There is an error of its own for
    /// each of: no driver, a driver that is too old, no GPU, no GPU of that ordinal, a lost device.
    [[nodiscard]] static Result<CudaDevice> try_open(int ordinal) { return try_open(ordinal, Config{}); }
    [[nodiscard]] static Result<CudaDevice> try_open(int ordinal, Config config);  ///< the same
#if RESIDENCY_EXCEPTIONS
    /// As try_open(), but throws Exception.
    /// @{
    explicit CudaDevice(int ordinal) : CudaDevice{ordinal, Config{}} {}
    CudaDevice(int ordinal, Config config) : CudaDevice{unwrap(try_open(ordinal, config))} {}
    /// @}
#endif
    /// The source is empty afterwards.
    /// @{
    CudaDevice(CudaDevice&&) noexcept;
    CudaDevice& operator=(CudaDevice&&) noexcept;
    /// @}
    ~CudaDevice();

    [[nodiscard]] DeviceUsers& users() noexcept;  ///< what it outlives
    [[nodiscard]] int ordinal() const noexcept;   ///< of the GPU, as CUDA counts
    /// What Device asks for (device/device.hpp).
    /// @{
    [[nodiscard]] std::string_view name() const noexcept;
    [[nodiscard]] std::chrono::nanoseconds host_time() const noexcept;
    /// @}
    /// The node of host memory that the GPU is attached to (NUMA), where allocate_host and host::load ask for memory. None: the system
    /// does not say.
    [[nodiscard]] std::optional<unsigned> memory_node() const noexcept;
    /// Whether a call has reported an error after which the device's context is broken for this process.
    [[nodiscard]] bool is_lost() const noexcept;

    // Streams.
    /// What Device and its optional parts ask for (device/device.hpp), whose numbered list says what each call does.
    /// @{
    [[nodiscard]] Result<Stream> create_stream();
    [[nodiscard]] Status destroy_stream(Stream stream);
    [[nodiscard]] Status synchronize(Stream stream);
    [[nodiscard]] Status synchronize();

    // Events. A destroyed event returns to the device's store.
    [[nodiscard]] Result<Event> create_event(Timing timing);
    [[nodiscard]] Status destroy_event(Event event);
    [[nodiscard]] Status record(Event event, Stream stream);
    [[nodiscard]] Status wait(Stream stream, Event event);
    [[nodiscard]] Result<bool> is_complete(Event event);
    [[nodiscard]] Status synchronize(Event event);
    [[nodiscard]] Result<std::chrono::nanoseconds> elapsed(Event from, Event to);

    // Peers.
    [[nodiscard]] Status enable_peer(CudaDevice& other);

    // Bytes. copy() makes one call of the driver for two or more pieces, except in a capture, on a default stream and before
    // CUDA 12.8. It copies pageable host memory too, and may then block.
    [[nodiscard]] Status copy(std::span<const Copy> copies, Stream stream);
    [[nodiscard]] Status copy(std::initializer_list<Copy> copies, Stream stream) {
        return copy(std::span{copies.begin(), copies.size()}, stream);
    }
    [[nodiscard]] Status fill(void* at, std::byte value, std::uint64_t bytes, Stream stream);

    // Device memory.
    [[nodiscard]] std::uint64_t allocation_granularity() const noexcept { return std::uint64_t{2} << 20; }
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes);
    [[nodiscard]] Status deallocate(void* at);
    [[nodiscard]] Result<MemoryInfo> memory();

    // Capped stream-ordered pools.
    [[nodiscard]] std::uint64_t pool_granularity() const noexcept { return std::uint64_t{32} << 20; }
    [[nodiscard]] Result<Pool> create_pool(std::uint64_t cap_bytes);
    [[nodiscard]] Status destroy_pool(Pool pool);
    [[nodiscard]] Result<void*> allocate(Pool pool, std::uint64_t bytes, Stream stream);
    [[nodiscard]] Status deallocate(Pool pool, void* at, Stream stream);
    [[nodiscard]] Result<std::uint64_t> held_bytes(Pool pool);
    [[nodiscard]] Status trim(Pool pool);

    // Host memory. All of these block.
    [[nodiscard]] Result<void*> allocate_host(std::uint64_t bytes);
    /// Blocks. The same, with contents: `fill(first, offset, bytes)` writes the bytes [first, first + bytes), which begin `offset`
    /// bytes into the memory. It is called once for each of the ranges that make up the memory, from several threads at once, and
    /// must not throw. No page is touched before it is filled.
    template <class Fill>
        requires requires(Fill& fill, std::byte* first, std::uint64_t offset, std::uint64_t bytes) {
            fill(first, offset, bytes);
        }
    [[nodiscard]] Result<void*> allocate_host(std::uint64_t bytes, Fill fill) {
        return allocate_host_with(
            bytes,
            [](void* context, std::byte* first, std::uint64_t offset, std::uint64_t count) {
                (*static_cast<Fill*>(context))(first, offset, count);
            },
            std::addressof(fill));
    }
    [[nodiscard]] Status deallocate_host(void* at);
    [[nodiscard]] Status pin(void* at, std::uint64_t bytes);
    [[nodiscard]] Status unpin(void* at);
    [[nodiscard]] Result<const void*> device_view(const void* at);

    // Virtual memory.
    [[nodiscard]] std::uint64_t chunk_granularity() const noexcept;
    [[nodiscard]] Result<void*> reserve(std::uint64_t bytes);
    [[nodiscard]] Status release(void* at, std::uint64_t bytes);
    [[nodiscard]] Result<Chunk> create_chunk(std::uint64_t bytes);
    [[nodiscard]] Status destroy_chunk(Chunk chunk);
    [[nodiscard]] Status map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes);
    [[nodiscard]] Status unmap(void* at, std::uint64_t bytes);

    // Captures. The thread that began a capture ends it. What a capture forbids fails in that thread only.
    [[nodiscard]] Result<bool> is_capturing(Stream stream);
    [[nodiscard]] Status begin_capture(Stream stream);
    [[nodiscard]] Result<Graph> end_capture(Stream stream);
    [[nodiscard]] Status launch(Graph graph, Stream stream);
    [[nodiscard]] Status destroy_graph(Graph graph);
    [[nodiscard]] Status record_in_graph(Event event, Stream stream);

    // Flags.
    [[nodiscard]] Result<Flag> create_flag();
    [[nodiscard]] Status destroy_flag(Flag flag);
    [[nodiscard]] Status wait_flag(Stream stream, Flag flag, std::uint32_t value);
    [[nodiscard]] Status raise_flag(Flag flag, std::uint32_t value);
    /// @}

private:
    using HostFill = void(void* context, std::byte* first, std::uint64_t offset, std::uint64_t bytes);

    explicit CudaDevice(std::unique_ptr<detail::CudaState> state) noexcept;

    /// Error wrong_state: the stream captures.
    [[nodiscard]] Status refuse_in_capture(Stream stream, const char* what);
    /// Blocks. `write` writes the memory; null: it is only touched.
    [[nodiscard]] Result<void*> allocate_host_with(std::uint64_t bytes, HostFill* write, void* context);

    std::unique_ptr<detail::CudaState> state_;
};

static_assert(Device<CudaDevice>);
static_assert(VirtualMemoryDevice<CudaDevice>);
static_assert(CapturingDevice<CudaDevice>);
static_assert(FlagDevice<CudaDevice>);
static_assert(PeerDevice<CudaDevice>);

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/device/impl/cuda.ipp"
#include "residency/device/impl/cuda_copies.ipp"
#include "residency/device/impl/cuda_graphs.ipp"
#include "residency/device/impl/cuda_memory.ipp"
#include "residency/device/impl/cuda_virtual_memory.ipp"
#endif

#include "residency/device/cuda_presets.hpp"  // last: it needs the device
