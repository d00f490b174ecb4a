// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/device/link.hpp"
#include "residency/simulation/access.hpp"
#include "residency/simulation/call_kind.hpp"
#include "residency/simulation/checker.hpp"
#include "residency/simulation/handle_table.hpp"
#include "residency/simulation/kernel.hpp"
#include "residency/simulation/operation.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

// What programs need not read: simulation/device_state.hpp.
namespace simulation {
struct Access;
struct CapturedCall;
struct CaptureState;
struct ChunkState;
struct DeviceLock;
struct DeviceState;
struct GpuState;
enum class Content : std::uint8_t;
struct GraphState;
class MemoryPool;
struct StreamState;
}  // namespace simulation

/// A GPU in software that keeps the rules D1 to D12: a deterministic discrete-event model with a virtual clock, real bytes and a
/// happens-before checker. The same seed and the same calls give the same clock, the same bytes and the same reports.
///
/// Time. Every call costs the host virtual time (Config::call_cost and the like). An operation starts when its stream, the events
/// that it waits for and its direction of the link allow, and takes effect on bytes when it ends: a copy reads and writes at its
/// end. The host sees an effect only after the virtual clock has passed it: by synchronising, by polling (where calls cost
/// something) or by spend().
///
/// Memory. Addresses are real: host functions that act as kernels (launch) dereference them. Device memory is poisoned when it is
/// allocated and when a pool takes it back, and inaccessible once it is freed.
///
/// Checks. The checker works on physical bytes, in the order of the calls. It reports an access that is not ordered after the write
/// that made its bytes, or before the write, deallocation or unmapping that ends them, and names both operations. Operations are
/// ordered by their stream, by waits on events, by host synchronisation (all host threads count as one), by flags and by graph
/// launches. A kernel's reads and writes are seen where the kernel declares them, the host's accesses of pinned memory where
/// host_read() and host_write() declare them. A handle or an address of something destroyed, or of another device, is an error and
/// a report.
///
/// Several GPUs. One that is made beside another is of the same host: host memory, the clock, captures and reports are theirs together.
/// Memory, streams, the link, the unit for copies from peers (N1), failures, statistics and the observer are each one's own. Where there
/// are several, reports and errors name the GPU. A GPU that is destroyed or lost drops its pending work, and its events count as reached;
/// the others go on. What a lost one was reading or writing, the host may use.
///
/// Threads. Every call may come from any thread; one mutex guards the devices of a host. A call that blocks lets others in only while a
/// stream waits for a flag, or another thread captures (D6). Kernel bodies, the observer and the report handler run inside a call
/// and must not make one.
class SimulatedDevice {
public:
    /// The machine that is simulated.
    struct Config {
        std::uint64_t memory_bytes = std::uint64_t{16} << 30U;           ///< of the device
        std::uint64_t allocation_granularity = std::uint64_t{2} << 20U;  ///< of device memory
        std::uint64_t pool_granularity = std::uint64_t{32} << 20U;       ///< of pools
        std::uint64_t pool_block_bytes = 512;                            ///< what a pool rounds its blocks to
        std::uint64_t chunk_granularity = std::uint64_t{2} << 20U;       ///< a multiple of the page
        LinkModel link{};                                                ///< to the host
        double peer_bytes_per_second = 390e9;           ///< of copies from a peer's memory, with the link's latency
        bool peer_access = true;                        ///< false: enable_peer() is refused, in both directions
        std::chrono::nanoseconds call_cost{150};        ///< host time of a call
        std::chrono::nanoseconds copy_cost{700};        ///< in addition, of a copy or a fill
        std::chrono::nanoseconds copy_piece_cost{310};  ///< in addition, of each piece of a copy
        std::chrono::nanoseconds launch_cost{2500};     ///< in addition, of a launch of a kernel or a graph
        bool concurrent_kernels = true;  ///< kernels of different streams run at once, none of them slower
        double jitter = 1.0;             ///< durations are multiplied by a random factor in [1 / jitter, jitter]
        std::uint64_t seed = 1;          ///< of these factors
        bool checker = true;             ///< false: nothing is checked but handles and addresses
        bool real_bytes = true;          ///< false: addresses have no memory and kernels no bodies; for predictions
        std::size_t max_reports = 1000;  ///< kept; further findings are only counted
        std::string name = "simulated device";  ///< for messages; a number follows where another GPU of the host has it
    };

    /// A stream of the device that made it. The default one is the default stream of whichever device it is passed to.
    struct Stream {
        std::uint32_t number = 0;                                        ///< 0: the default stream
        std::uint32_t generation = 0;                                    ///< of a number that is used again
        const SimulatedDevice* device = nullptr;                         ///< that made it; null: the default stream
        friend bool operator==(const Stream&, const Stream&) = default;  ///< compares all members
    };
    /// Handles, as Device and its optional parts ask for them.
    /// @{
    using Event = simulation::Handle<simulation::EventTag>;
    using Pool = simulation::Handle<simulation::PoolTag>;
    using Chunk = simulation::Handle<simulation::ChunkTag>;
    using Graph = simulation::Handle<simulation::GraphTag>;
    using Flag = simulation::Handle<simulation::FlagTag>;
    /// @}
    /// What a device is given and what it tells.
    /// @{
    using Kernel = simulation::Kernel;
    using Report = simulation::Report;
    using CallKind = simulation::CallKind;
    using ExecutedOperation = simulation::ExecutedOperation;
    /// @}

    /// What it was asked for.
    struct Statistics {
        std::array<std::uint64_t, simulation::call_kinds> calls{};  ///< by CallKind, failed ones included
        std::uint64_t operations = 0;                               ///< executed
        std::uint64_t bytes_to_device = 0;   ///< enqueued, not those inside graphs that never ran
        std::uint64_t bytes_to_host = 0;     ///< the same
        std::uint64_t bytes_from_peers = 0;  ///< the same
        std::uint64_t copies = 0;            ///< pieces of more than zero bytes
        /// Calls of that kind.
        [[nodiscard]] std::uint64_t of(CallKind kind) const noexcept { return calls[static_cast<std::size_t>(kind)]; }
    };

    /// Something that is not destroyed.
    struct Leak {
        std::string what;         ///< in words
        std::uint64_t bytes = 0;  ///< that it takes
    };

    SimulatedDevice();
    /// Preconditions: granularities are powers of two, and chunk_granularity is a multiple of the page; rates are finite and above 0,
    /// latencies and costs not negative, and the jitter is finite and 1 or more.
    explicit SimulatedDevice(Config config);
    /// Another GPU of the host of `beside`, whose checker, real_bytes and max_reports it has. Either may be destroyed first.
    /// Preconditions: as above.
    SimulatedDevice(Config config, SimulatedDevice& beside);
    SimulatedDevice(const SimulatedDevice&) = delete;
    SimulatedDevice& operator=(const SimulatedDevice&) = delete;
    /// Drops pending work. Its memory ends, its pinned memory too: that the work of a peer still uses it is a report.
    ~SimulatedDevice();

    /// The Residencies on it.
    [[nodiscard]] DeviceUsers& users() noexcept { return users_; }

    // Device.
    /// What Device and its optional parts ask for (device/device.hpp), whose numbered list says what each call does.
    /// @{
    [[nodiscard]] Result<Stream> create_stream() { return create_stream({}); }
    [[nodiscard]] Result<Stream> create_stream(std::string_view name);
    Status destroy_stream(Stream stream);
    [[nodiscard]] Result<Event> create_event(Timing timing);
    Status destroy_event(Event event);
    Status record(Event event, Stream stream);
    Status wait(Stream stream, Event event);
    [[nodiscard]] Result<bool> is_complete(Event event);
    Status synchronize(Event event);
    Status synchronize(Stream stream);
    Status synchronize();
    [[nodiscard]] Result<std::chrono::nanoseconds> elapsed(Event from, Event to);
    /// Pieces of one direction run together, those of different directions one after another. Blocks if host memory is not pinned.
    Status copy(std::span<const Copy> copies, Stream stream);
    Status copy(std::initializer_list<Copy> copies, Stream stream) {
        return copy(std::span{copies.begin(), copies.size()}, stream);
    }
    Status fill(void* at, std::byte value, std::uint64_t bytes, Stream stream);
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes);
    Status deallocate(void* at);
    [[nodiscard]] std::uint64_t allocation_granularity() const noexcept { return config_.allocation_granularity; }
    [[nodiscard]] Result<Pool> create_pool(std::uint64_t cap_bytes);
    /// Error wrong_state: something of the pool is still allocated. Deallocations may be pending.
    Status destroy_pool(Pool pool);
    [[nodiscard]] std::uint64_t pool_granularity() const noexcept { return config_.pool_granularity; }
    [[nodiscard]] Result<void*> allocate(Pool pool, std::uint64_t bytes, Stream stream);
    Status deallocate(Pool pool, void* at, Stream stream);
    [[nodiscard]] Result<std::uint64_t> held_bytes(Pool pool);
    Status trim(Pool pool);
    [[nodiscard]] Result<MemoryInfo> memory();
    [[nodiscard]] Result<void*> allocate_host(std::uint64_t bytes);
    Status deallocate_host(void* at);
    Status pin(void* at, std::uint64_t bytes);
    Status unpin(void* at);
    [[nodiscard]] Result<const void*> device_view(const void* at);
    [[nodiscard]] Result<bool> is_capturing(Stream stream);
    /// Reading the clock takes no time.
    [[nodiscard]] std::chrono::nanoseconds host_time() const;
    [[nodiscard]] std::string_view name() const noexcept { return config_.name; }

    // VirtualMemoryDevice.
    [[nodiscard]] std::uint64_t chunk_granularity() const noexcept { return config_.chunk_granularity; }
    [[nodiscard]] Result<void*> reserve(std::uint64_t bytes);
    Status release(void* at, std::uint64_t bytes);
    [[nodiscard]] Result<Chunk> create_chunk(std::uint64_t bytes);
    Status destroy_chunk(Chunk chunk);
    Status map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes);
    Status unmap(void* at, std::uint64_t bytes);

    // CapturingDevice.
    Status begin_capture(Stream stream);
    [[nodiscard]] Result<Graph> end_capture(Stream stream);
    Status launch(Graph graph, Stream stream);
    Status destroy_graph(Graph graph);
    Status record_in_graph(Event event, Stream stream);

    // FlagDevice.
    [[nodiscard]] Result<Flag> create_flag();
    Status destroy_flag(Flag flag);
    Status wait_flag(Stream stream, Flag flag, std::uint32_t value);
    Status raise_flag(Flag flag, std::uint32_t value);

    // PeerDevice.
    Status enable_peer(SimulatedDevice& other);
    /// @}

    // What only a simulated device has.

    /// Enqueues a kernel. Its ranges must be device memory or pinned host memory.
    Status launch(Stream stream, Kernel kernel);
    /// Names a stream in later reports and traces.
    Status name_stream(Stream stream, std::string_view name);
    /// Declares that the host reads pinned host memory now.
    Status host_read(const void* at, std::uint64_t bytes) { return host_access(at, bytes, false); }
    /// Declares that the host writes to pinned host memory now.
    Status host_write(void* at, std::uint64_t bytes) { return host_access(at, bytes, true); }
    /// Lets virtual time pass in which the host makes no call.
    void spend(std::chrono::nanoseconds duration);

    /// What the checker found, at most Config::max_reports: of all GPUs of the host, as the next three.
    [[nodiscard]] std::vector<Report> reports() const;
    /// The number of findings since the last clear_reports(), kept or not.
    [[nodiscard]] std::uint64_t report_count() const;
    void clear_reports();  ///< forgets them
    /// From now on calls `handler` with each finding, inside the call that causes it.
    void on_report(std::function<void(const Report&)> handler);
    /// From now on calls `observer` with each operation of this GPU that ends, in that order.
    void observe(std::function<void(const ExecutedOperation&)> observer);

    /// The nth call of that kind from now on (1: the next one) fails and changes nothing. A copy enqueues the first half of its pieces
    /// (D10).
    void fail(CallKind kind, std::uint64_t nth, ErrorKind error = ErrorKind::device);
    void clear_failures();  ///< forgets what fail() asked for
    /// From now on every call fails. Where the host has several GPUs, pending work is dropped.
    void lose_device();
    [[nodiscard]] Statistics statistics() const;  ///< since it was made

    /// The most device bytes that were ever in use at once, as memory() counts them.
    [[nodiscard]] std::uint64_t peak_used_bytes() const;
    /// The most bytes that the pool ever held; 0 for a dead handle.
    [[nodiscard]] std::uint64_t peak_held_bytes(Pool pool) const;
    /// What exists now of all that calls have made.
    [[nodiscard]] std::vector<Leak> leaks() const;

private:
    using Access = simulation::Access;
    using Content = simulation::Content;
    using Marker = simulation::Marker;
    using MemoryPool = simulation::MemoryPool;
    using Operation = simulation::Operation;
    using OperationKind = simulation::OperationKind;
    using StreamState = simulation::StreamState;
    using CaptureState = simulation::CaptureState;
    using CapturedCall = simulation::CapturedCall;
    using ChunkState = simulation::ChunkState;
    using Gpu = simulation::GpuState;
    using State = simulation::DeviceState;
    using Lock = simulation::DeviceLock;

    /// What an address range lies in; peer: in memory of another GPU; dead: in no one thing that exists.
    enum class Where : std::uint8_t { device, peer, pinned, pageable, dead };

    static constexpr std::uint32_t host = 0;          // its number among the streams
    static constexpr std::uint32_t first_stream = 1;  // the number of the first GPU's default stream
    static constexpr std::byte fresh{0xA5};           // what device memory holds when it is allocated
    static constexpr std::byte stale{0xDE};           // what a pool's memory holds when it is given back

    SimulatedDevice(Config config, std::shared_ptr<State> state);
    /// Makes what the GPUs of a host have in common.
    void make_host();
    /// Drops the work of this GPU, and the captures that began on it.
    void drop_work();
    /// Gives up all that this GPU has, for the others of its host go on.
    void leave_host();
    void leave_pools();
    void leave_mappings();
    /// The GPU of this host that made a handle; null: none.
    [[nodiscard]] Gpu* gpu_of(const void* owner) const noexcept;
    /// Whether copies of one read the memory of the other.
    [[nodiscard]] static bool reads(const Gpu& reader, const Gpu& read) noexcept;
    /// " on 'name'" where the host has several GPUs.
    [[nodiscard]] std::string on_this() const;

    // What every call does.
    [[nodiscard]] Lock guard() const;
    /// Counts a call, charges the host for it, and fails where it is to fail.
    Status enter(CallKind kind, std::chrono::nanoseconds more = {});
    [[nodiscard]] Error failure(ErrorKind kind, CallKind call, const std::string& text, std::uint64_t bytes = 0) const;
    /// A failure that the checker also reports, at `at`.
    [[nodiscard]] Error misuse(ErrorKind kind, CallKind call, const std::string& text, const void* at = nullptr,
                               std::uint64_t bytes = 0);
    /// Reports a handle that finds nothing.
    [[nodiscard]] Error dead_handle(CallKind call, const char* what, const void* owner) {
        return misuse(ErrorKind::invalid_argument, call,
                      std::string{"this "} + what +
                          (owner != nullptr && owner != this ? " was made by another device, which alone can use it"
                                                             : " does not exist, or no longer does"));
    }
    [[nodiscard]] Error dead_handle(CallKind call, Stream stream) {
        return misuse(ErrorKind::invalid_argument, call,
                      std::string{"the stream is not valid: it "} +
                          (stream.device != nullptr && stream.device != this
                               ? "was made by another device: pass one of this device"
                               : "was destroyed, or never made: pass one") +
                          " that lives until the last lease on it has ended");
    }
    [[nodiscard]] Error dead_handle(CallKind call, Event event) { return dead_handle(call, "event", event.owner); }
    [[nodiscard]] Error dead_handle(CallKind call, Pool pool) { return dead_handle(call, "pool", pool.owner); }
    [[nodiscard]] Error dead_handle(CallKind call, Chunk chunk) { return dead_handle(call, "chunk", chunk.owner); }
    [[nodiscard]] Error dead_handle(CallKind call, Graph graph) { return dead_handle(call, "graph", graph.owner); }
    [[nodiscard]] Error dead_handle(CallKind call, Flag flag) { return dead_handle(call, "flag", flag.owner); }
    [[nodiscard]] Error out_of_memory(CallKind call, std::uint64_t bytes) const;
    /// Reports an address that this operation cannot use.
    [[nodiscard]] Error unusable(CallKind call, std::uint32_t number, OperationKind kind, std::uint32_t label,
                                 const void* at, std::uint64_t bytes);

    // Streams and order.
    /// Its number; 0: the handle names no stream of this device.
    [[nodiscard]] std::uint32_t find(Stream stream) noexcept;
    [[nodiscard]] std::uint32_t add_stream(std::string_view name, std::uint16_t gpu);
    void retire_stream(std::uint32_t number);
    /// Begins an operation of the host.
    [[nodiscard]] Access host_acts(OperationKind kind, std::string_view label);
    /// Makes the next operation of a stream, to be filled in and appended.
    [[nodiscard]] Operation* begin(std::uint32_t number, OperationKind kind, std::uint32_t label);
    [[nodiscard]] Access access_of(const Operation& operation);
    /// Appends a record and returns its marker, which the caller holds.
    [[nodiscard]] Marker* mark(std::uint32_t number);
    /// `learn`: the checker counts it as an ordering.
    void append_wait(std::uint32_t number, Marker* marker, bool learn);
    /// The host knows from now on that all before the marker is over.
    void host_learns(const Marker& marker);
    /// Blocks until the marker is done.
    /// `learns`: the host knows afterwards that it is over, which orders what it enqueues next after it.
    Status block_until(Lock& lock, Marker* marker, CallKind call, bool learns = true);
    /// Blocks until all streams are done.
    Status drain(Lock& lock, CallKind call);

    // Work.
    /// What the host does before a call lies before the work that the call enqueues.
    void join_host(StreamState& stream);
    /// What all of [at, at + bytes) lies in, as that GPU sees it.
    [[nodiscard]] Where where(const void* at, std::uint64_t bytes, std::uint16_t gpu);
    [[nodiscard]] Where where(const void* at, std::uint64_t bytes);
    /// Error: a copy between GPUs that rule N1 does not allow.
    [[nodiscard]] Status check_peer(const Copy& copy, Where to);
    /// Error: the GPU that has this memory is lost.
    [[nodiscard]] Status check_owner(const void* at, CallKind call);
    [[nodiscard]] static OperationKind copy_kind(Where to, Where from) noexcept;
    /// ns. `node`: of a captured graph.
    [[nodiscard]] std::int64_t copy_duration(OperationKind kind, bool pageable, std::uint64_t bytes, bool node) const;
    void enqueue_copies(std::uint32_t number, OperationKind kind, std::int64_t duration, std::span<const Copy> copies);
    void enqueue_fill(std::uint32_t number, std::byte* at, std::byte value, std::uint64_t bytes, std::int64_t duration);
    void enqueue_kernel(Operation* operation);
    /// Error: memory that a graph uses is gone.
    [[nodiscard]] Status check_ranges(const simulation::GraphState& graph, std::uint32_t number);
    /// Error: a GPU or an event that a graph uses is gone.
    [[nodiscard]] Status check_parts(const simulation::GraphState& graph);
    [[nodiscard]] std::uint32_t label_of(OperationKind kind) const noexcept;
    Status host_access(const void* at, std::uint64_t bytes, bool write);

    // Memory.
    /// Counts device bytes as used. False: there are not that many.
    [[nodiscard]] bool take_bytes(std::uint64_t bytes);
    /// Device addresses with memory under them, known to the checker. Null: the process has none.
    [[nodiscard]] std::byte* new_memory(std::uint64_t bytes, Content content, const Access& access,
                                        std::uint32_t& region);
    void drop_memory(std::byte* at, std::uint64_t bytes, std::uint32_t region);
    Status add_pinned(std::byte* at, std::uint64_t bytes, bool pinned_only);
    Status release_pinned(void* at, bool pinned_only, CallKind call);
    void drop_pinned(std::byte* at, std::uint64_t bytes, std::uint32_t region, bool pinned_only);
    void collect_freed(MemoryPool& pool);
    /// Gives unused segments back.
    void trim_unused(MemoryPool& pool);
    /// Adds a segment that holds `bytes`. False: the cap or the device has no room for it.
    [[nodiscard]] bool grow(MemoryPool& pool, std::uint64_t bytes);
    [[nodiscard]] MemoryPool* find(Pool pool) noexcept;
    [[nodiscard]] ChunkState* find(Chunk chunk) noexcept;
    /// Removes destroyed pools whose deallocations have been executed.
    void remove_empty_pools();
    void forget_chunk(Chunk handle, ChunkState& chunk);

    // Captures.
    /// begin_capture(), after the gate was entered.
    [[nodiscard]] Status begin_capture_alone(Stream stream);
    [[nodiscard]] CaptureState* capture_of(std::uint32_t number);
    [[nodiscard]] CaptureState* find_capture(std::uint32_t capture);
    static void invalidate(CaptureState& capture, std::string why);
    [[nodiscard]] Status check_valid(const CaptureState& capture, CallKind call) const;
    void join_capture(CaptureState& capture, std::uint32_t number);
    CapturedCall& add_work(CaptureState& capture, std::uint32_t number, OperationKind kind, std::uint32_t label);

    Config config_;
    Statistics statistics_;
    std::shared_ptr<State> state_;  // of the host; never null
    Gpu* gpu_ = nullptr;            // of this device, in state_
    DeviceUsers users_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/simulation/impl/simulated_device.ipp"
#include "residency/simulation/impl/simulated_device_memory.ipp"
#include "residency/simulation/impl/simulated_device_work.ipp"
#endif

namespace residency { inline namespace RESIDENCY_ABI {

static_assert(Device<SimulatedDevice>);
static_assert(VirtualMemoryDevice<SimulatedDevice>);
static_assert(CapturingDevice<SimulatedDevice>);
static_assert(FlagDevice<SimulatedDevice>);
static_assert(PeerDevice<SimulatedDevice>);

}}  // namespace residency::RESIDENCY_ABI

#include "residency/simulation/presets.hpp"  // last: it needs the device
