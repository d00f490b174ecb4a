// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// One transfer of `bytes` bytes. The addresses say in which direction.
struct Copy {
    void* to = nullptr;          ///< its first byte
    const void* from = nullptr;  ///< its first byte
    std::uint64_t bytes = 0;     ///< 0: nothing is copied
};

/// Device memory as the driver counts it.
struct MemoryInfo {
    std::uint64_t free_bytes = 0;   ///< not held by anybody
    std::uint64_t total_bytes = 0;  ///< of the device
};

/// Whether an event takes the time when it is reached.
enum class Timing : bool { off, on };

/// What the library needs of a GPU. Two models: SimulatedDevice and CudaDevice.
///
/// Handles (`Stream`, `Event`, `Pool`) are small values that are compared by ==. A default one names nothing, except that a default
/// Stream is the default stream. A Stream comes from create_stream() or from the user. A handle is used with the device that
/// made it only, but for events of peers (N2); SimulatedDevice refuses another device's.
///
/// Required expressions, with `d` a device. A call does not block the host unless its line says so. Every call that can fail
/// returns a Result. Asking for zero bytes of memory of any sort is ErrorKind::invalid_argument.
///  1. `d.create_stream()`, `d.destroy_stream(s)`          destroying does not wait for the stream's work
///  2. `d.create_event(Timing)`, `d.destroy_event(e)`      a pending event can be destroyed: what waits for it still does
///  3. `d.record(e, s)`                                    e now stands for all work that was enqueued on s before this call
///  4. `d.wait(s, e)`                                      later work of s starts after what e stands for now
///  5. `d.is_complete(e)`                                  an event that was never recorded is complete
///  6. `d.synchronize(e)`, `d.synchronize(s)`, `d.synchronize()`    block the host
///  7. `d.elapsed(from, to)`                               both were made with Timing::on, were recorded and are complete
///  8. `d.copy(copies, s)`                                 all pieces start together and end in any order; a device that batches takes
///                                                         one latency for the call; later work of s starts after the last of them
///  9. `d.fill(at, byte, bytes, s)`
///  10. `d.allocate(bytes)`, `d.deallocate(at)`, `d.allocation_granularity()`  may block; deallocate waits for the device;
///                                                         what an allocation takes from memory() is a multiple of the granularity
///  11. `d.create_pool(cap_bytes)`, `d.destroy_pool(p)`, `d.pool_granularity()`     a capped stream-ordered pool
///  12. `d.allocate(p, bytes, s)`, `d.deallocate(p, at, s)` in the order of s; exhaustion is ErrorKind::out_of_memory
///  13. `d.held_bytes(p)`, `d.trim(p)`                     what the pool holds of the device; gives back what is unused
///  14. `d.memory()`                                       free and total bytes
///  15. `d.allocate_host(bytes)`, `d.deallocate_host(at)`  pinned memory of exactly that size; may block
///  16. `d.pin(at, bytes)`, `d.unpin(at)`                  pins memory that the caller has touched and may write, never a mapping of a file on a disk; may block
///  17. `d.device_view(at)`                                the address under which kernels read pinned host memory
///  18. `d.is_capturing(s)`                                whether work on s is captured instead of run
///  19. `d.host_time()`                                    a monotonic clock; virtual on the simulated device
///  20. `d.name()`
///
/// Semantic rules. The conformance suite (conformance/device.hpp) runs each on both models, except D5 and D8, which are about
/// time and about how a program is built.
///  D1  A wait on an event that was never recorded orders nothing, and succeeds. A wait refers to the event's state at the
///      time of the call: recording the event again later changes nothing for it.
///  D2  In a capture, a wait on an event that was recorded outside of it fails and invalidates the capture. An event that was recorded
///      in a capture cannot be used outside of it. A fork that is not joined is an error at the end of the capture.
///  D3  is_complete() and every allocation are safe while another stream captures: they neither fail nor harm the capture.
///  D4  copy() works in a capture too, as single copies, and checks every code. A copy of zero bytes never reaches the device.
///  D5  A copy call costs its latency beside its bytes. The two directions of the link are independent.
///  D6  unmap() does not wait for running work: the caller has waited. A thread that captures is refused mapping, unmapping and waiting
///      for the device. Another thread's call waits until no thread captures, and a capture begins after such calls.
///  D7  The driver rounds allocations and caps: it rounds a pool's cap up to pool_granularity(). create_pool() therefore refuses a
///      cap that is not a multiple of it. In a capture, an allocation from a pool is refused.
///  D8  Translation units with per-thread default streams are another program: the inline namespace carries the mode.
///  D9  Every call is thread safe. Streams, events and pools may be used from any thread.
///  D10 A failed call changes nothing and leaves the device usable, unless the device itself is lost. The one exception is copy() with
///      several pieces: some of them may have been enqueued before it failed. Their targets then hold anything, in the order of s.
///  D11 On each side, a piece of a copy lies in one allocation, in what one pin() took, in pageable memory, or in mapped addresses,
///      where it may cross chunks. Neighbours that were allocated or pinned apart need a piece each: a driver refuses one.
///  D12 copy() does not wait for its copies where they move between the device and pinned memory, whatever their sizes.
template <class D>
concept Device = requires(D d, const D c, typename D::Stream s, typename D::Event e, typename D::Pool p, void* at,
                          const void* source, std::uint64_t bytes, std::span<const Copy> copies, std::byte value) {
    requires std::is_trivially_copyable_v<typename D::Stream> && std::equality_comparable<typename D::Stream>;
    requires std::is_trivially_copyable_v<typename D::Event> && std::equality_comparable<typename D::Event>;
    requires std::is_trivially_copyable_v<typename D::Pool> && std::equality_comparable<typename D::Pool>;
    { d.create_stream() } -> std::same_as<Result<typename D::Stream>>;
    { d.destroy_stream(s) } -> std::same_as<Status>;
    { d.create_event(Timing::off) } -> std::same_as<Result<typename D::Event>>;
    { d.destroy_event(e) } -> std::same_as<Status>;
    { d.record(e, s) } -> std::same_as<Status>;
    { d.wait(s, e) } -> std::same_as<Status>;
    { d.is_complete(e) } -> std::same_as<Result<bool>>;
    { d.synchronize(e) } -> std::same_as<Status>;
    { d.synchronize(s) } -> std::same_as<Status>;
    { d.synchronize() } -> std::same_as<Status>;
    { d.elapsed(e, e) } -> std::same_as<Result<std::chrono::nanoseconds>>;
    { d.copy(copies, s) } -> std::same_as<Status>;
    { d.fill(at, value, bytes, s) } -> std::same_as<Status>;
    { d.allocate(bytes) } -> std::same_as<Result<void*>>;
    { d.deallocate(at) } -> std::same_as<Status>;
    { c.allocation_granularity() } -> std::same_as<std::uint64_t>;
    { d.create_pool(bytes) } -> std::same_as<Result<typename D::Pool>>;
    { d.destroy_pool(p) } -> std::same_as<Status>;
    { c.pool_granularity() } -> std::same_as<std::uint64_t>;
    { d.allocate(p, bytes, s) } -> std::same_as<Result<void*>>;
    { d.deallocate(p, at, s) } -> std::same_as<Status>;
    { d.held_bytes(p) } -> std::same_as<Result<std::uint64_t>>;
    { d.trim(p) } -> std::same_as<Status>;
    { d.memory() } -> std::same_as<Result<MemoryInfo>>;
    { d.allocate_host(bytes) } -> std::same_as<Result<void*>>;
    { d.deallocate_host(at) } -> std::same_as<Status>;
    { d.pin(at, bytes) } -> std::same_as<Status>;
    { d.unpin(at) } -> std::same_as<Status>;
    { d.device_view(source) } -> std::same_as<Result<const void*>>;
    { d.is_capturing(s) } -> std::same_as<Result<bool>>;
    { c.host_time() } -> std::same_as<std::chrono::nanoseconds>;
    { c.name() } -> std::convertible_to<std::string_view>;
};

/// A chunk, and the address to map it at: a multiple of chunk_granularity().
template <class Chunk>
struct Mapping {
    void* at = nullptr;  ///< where the range begins
    Chunk chunk{};       ///< the physical memory that lies there
};

/// A device that maps physical memory at chosen addresses: one chunk may be mapped at several.
///  V1 `d.chunk_granularity()`                         bytes; chunks and ranges are multiples of it
///  V2 `d.reserve(bytes)`, `d.release(at, bytes)`      an address range without memory
///  V3 `d.create_chunk(bytes)`, `d.destroy_chunk(c)`   physical memory; memory() counts it from its creation until it is
///                                                   destroyed and mapped nowhere
///  V4 `d.map(mappings, bytes)`                        each chunk has `bytes` bytes; readable and writable; all or nothing
///  V5 `d.unmap(at, bytes)`                            see D6; the range holds whole mapped chunks, at least one
/// A write through one address is seen through another only by operations that a stream orders after it.
template <class D>
concept VirtualMemoryDevice =
    Device<D> && requires(D d, const D c, void* at, std::uint64_t bytes, typename D::Chunk chunk,
                          std::span<const Mapping<typename D::Chunk>> mappings) {
        requires std::is_trivially_copyable_v<typename D::Chunk>;
        { c.chunk_granularity() } -> std::same_as<std::uint64_t>;
        { d.reserve(bytes) } -> std::same_as<Result<void*>>;
        { d.release(at, bytes) } -> std::same_as<Status>;
        { d.create_chunk(bytes) } -> std::same_as<Result<typename D::Chunk>>;
        { d.destroy_chunk(chunk) } -> std::same_as<Status>;
        { d.map(mappings, bytes) } -> std::same_as<Status>;
        { d.unmap(at, bytes) } -> std::same_as<Status>;
    };

/// A device that records the work of a stream, and of the streams forked from it by events, and replays it.
///  G1 `d.begin_capture(s)`         from here on, work on s is recorded, not run; s is not the default stream; may block (D6)
///  G2 `d.end_capture(s)`           the graph, or the error that invalidated the capture; either way s is out of the capture
///  G3 `d.launch(g, s)`             runs the graph in the order of s; may be called many times
///  G4 `d.destroy_graph(g)`         never waits
template <class D>
concept CapturingDevice = Device<D> && requires(D d, typename D::Stream s, typename D::Graph g) {
    requires std::is_trivially_copyable_v<typename D::Graph>;
    { d.begin_capture(s) } -> std::same_as<Status>;
    { d.end_capture(s) } -> std::same_as<Result<typename D::Graph>>;
    { d.launch(g, s) } -> std::same_as<Status>;
    { d.destroy_graph(g) } -> std::same_as<Status>;
};

/// A capturing device whose graphs record events that the host reads.
///  G5 `d.record_in_graph(e, s)`    in a capture only: each launch of the graph records e when it gets there. Once the launch is
///                                  complete, e is an event like any other outside of the graph; it outlives the graph
template <class D>
concept GraphTimingDevice = CapturingDevice<D> && requires(D d, typename D::Stream s, typename D::Event e) {
    { d.record_in_graph(e, s) } -> std::same_as<Status>;
};

/// A device whose streams can wait for the host: a flag is a 32-bit counter in pinned memory that only grows.
///  F1 `d.create_flag()`, `d.destroy_flag(f)`   starts at 0
///  F2 `d.wait_flag(s, f, value)`               later work of s starts when the flag is at least `value`; refused in a capture
///  F3 `d.raise_flag(f, value)`                 from any host thread; the stream then sees what that thread wrote before; does
///                                              nothing if the flag is at `value` or beyond
template <class D>
concept FlagDevice = Device<D> && requires(D d, typename D::Stream s, typename D::Flag f, std::uint32_t value) {
    requires std::is_trivially_copyable_v<typename D::Flag>;
    { d.create_flag() } -> std::same_as<Result<typename D::Flag>>;
    { d.destroy_flag(f) } -> std::same_as<Status>;
    { d.wait_flag(s, f, value) } -> std::same_as<Status>;
    { d.raise_flag(f, value) } -> std::same_as<Status>;
};

/// A device that may have peers: other GPUs of the same host, whose memory its copies read. With `other` another one of the same type:
///  N1 `d.enable_peer(other)`       from here on copies on d's streams read memory that `other` allocated by allocate(), into d's own
///                                  memory. Does nothing where it was done before, or d is `other`; may block. Error unsupported: these
///                                  two cannot, for they have no access to each other or are not of one host. Error wrong_state: this
///                                  thread captures on one of the two
///  N2 `d.wait(s, e)`               e may also have been made by a peer: enable_peer() was called on one of the two. In a capture too:
///                                  a stream of a peer takes part as one of d does, from its wait for an event of the capture on (D2).
///                                  So a capture that begins on one of the two keeps the calls of D6 from both
///  N3 Otherwise each stream, event and allocation is used with the device that made it. Pinned memory is pinned for all.
template <class D>
concept PeerDevice = Device<D> && requires(D d, D& other) {
    { d.enable_peer(other) } -> std::same_as<Status>;
};

/// Counts what a device has to outlive: Residencies, also those of other devices that use its link, and host memory that it pinned. A
/// device has one as its last member, and gives it as users(). Thread safe.
class DeviceUsers {
public:
    DeviceUsers() noexcept = default;
    DeviceUsers(const DeviceUsers&) = delete;
    DeviceUsers& operator=(const DeviceUsers&) = delete;
    ~DeviceUsers() {
        RESIDENCY_ASSERT(count_ == 0,
                         "end every Residency before its device and its neighbours, and every catalog whose bytes it "
                         "pinned: declare the device first");
    }

    void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }     ///< one begins
    void remove() noexcept { count_.fetch_sub(1, std::memory_order_relaxed); }  ///< one ends

private:
    std::atomic<std::uint32_t> count_{0};
};

}}  // namespace residency::RESIDENCY_ABI
