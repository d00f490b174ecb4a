// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "residency/device/capture_gate.hpp"
#include "residency/device/cuda_driver.hpp"
#include "residency/device/cuda_error.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/device/cuda_stream.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// One NVIDIA GPU through the CUDA runtime, from plain C++; nothing links against libcuda. Every call leaves the calling
/// thread's current device as it was and clears the CUDA error that it reports. Values that it gives out (streams, events,
/// pools, chunks, graphs, flags, memory) must be given back before the device is destroyed. Move it only while no other
/// thread uses it.
class CudaDevice {
public:
    using Stream = CudaStream;
    struct Event {
        cudaEvent_t handle = nullptr;
        Timing timing = Timing::off;
        friend bool operator==(const Event&, const Event&) = default;
    };
    struct Pool {
        cudaMemPool_t handle = nullptr;
        friend bool operator==(const Pool&, const Pool&) = default;
    };
    /// Physical memory: one driver handle.
    struct Chunk {
        CUmemGenericAllocationHandle handle = 0;
        friend bool operator==(const Chunk&, const Chunk&) = default;
    };
    struct Graph {
        cudaGraphExec_t handle = nullptr;
        friend bool operator==(const Graph&, const Graph&) = default;
    };
    struct Flag {
        std::uint32_t* value = nullptr;  ///< pinned
        friend bool operator==(const Flag&, const Flag&) = default;
    };

    struct Config {
        unsigned events = 64;        ///< events created at the start, so that create_event is cheap
        unsigned timing_events = 8;  ///< the same with Timing::on
        unsigned host_threads = 0;   ///< threads that touch pinned memory; 0: as many as the machine has, at most 16
        bool huge_pages = true;      ///< ask for huge pages for pinned memory
        bool pin = true;             ///< false: allocate_host gives pageable memory, copied at a fifth of the speed
    };

    /// Fails with its own error where there is no driver, one too old, no GPU, no such ordinal, or a lost device.
    /// Creates the device's primary context where it is not there yet. Blocks.
    [[nodiscard]] static Result<CudaDevice> try_open(int ordinal) { return try_open(ordinal, Config{}); }
    [[nodiscard]] static Result<CudaDevice> try_open(int ordinal, Config config);
#if RESIDENCY_EXCEPTIONS
    explicit CudaDevice(int ordinal) : CudaDevice{ordinal, Config{}} {}
    CudaDevice(int ordinal, Config config) : CudaDevice{unwrap(try_open(ordinal, config))} {}
#endif
    CudaDevice(CudaDevice&&) noexcept = default;
    CudaDevice& operator=(CudaDevice&&) noexcept = default;
    ~CudaDevice() = default;

    [[nodiscard]] int ordinal() const noexcept { return state_->ordinal; }
    [[nodiscard]] std::string_view name() const noexcept { return state_->name; }
    [[nodiscard]] std::chrono::nanoseconds host_time() const noexcept {
        return std::chrono::steady_clock::now().time_since_epoch();
    }
    /// Whether a call has reported an error after which the device's context is broken for this process.
    [[nodiscard]] bool is_lost() const noexcept { return state_->lost.load(std::memory_order_relaxed); }

    // Streams.
    [[nodiscard]] Result<Stream> create_stream();
    [[nodiscard]] Status destroy_stream(Stream stream);
    [[nodiscard]] Status synchronize(Stream stream);
    [[nodiscard]] Status synchronize();

    // Events. A destroyed one returns to the device's store.
    [[nodiscard]] Result<Event> create_event(Timing timing);
    [[nodiscard]] Status destroy_event(Event event);
    [[nodiscard]] Status record(Event event, Stream stream);
    [[nodiscard]] Status wait(Stream stream, Event event);
    [[nodiscard]] Result<bool> is_complete(Event event);
    [[nodiscard]] Status synchronize(Event event);
    [[nodiscard]] Result<std::chrono::nanoseconds> elapsed(Event from, Event to);

    // Bytes. copy(): one call of the driver for two pieces or more where it can be: not in a capture, not on the legacy
    // default stream, not before CUDA 12.8. Pageable host memory is copied too, and may block.
    [[nodiscard]] Status copy(std::span<const Copy> copies, Stream stream);
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

    // Host memory. These block.
    [[nodiscard]] Result<void*> allocate_host(std::uint64_t bytes);
    /// The same with its contents: `fill(first, offset, bytes)` writes the bytes [first, first + bytes), which begin
    /// `offset` bytes into the memory; called once for each of the ranges that make it up, from several threads at once.
    /// It must not throw. The fill itself is the first touch.
    template <class Fill>
        requires requires(Fill& fill, std::byte* first, std::uint64_t offset, std::uint64_t bytes) {
            fill(first, offset, bytes);
        }
    [[nodiscard]] Result<void*> allocate_host(std::uint64_t bytes, Fill fill);
    [[nodiscard]] Status deallocate_host(void* at);
    [[nodiscard]] Status pin(void* at, std::uint64_t bytes);
    [[nodiscard]] Status unpin(void* at);
    [[nodiscard]] Result<const void*> device_view(const void* at);

    // Virtual memory.
    [[nodiscard]] std::uint64_t chunk_granularity() const noexcept { return state_->chunk_granularity; }
    [[nodiscard]] Result<void*> reserve(std::uint64_t bytes);
    [[nodiscard]] Status release(void* at, std::uint64_t bytes);
    [[nodiscard]] Result<Chunk> create_chunk(std::uint64_t bytes);
    [[nodiscard]] Status destroy_chunk(Chunk chunk);
    [[nodiscard]] Status map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes);
    [[nodiscard]] Status unmap(void* at, std::uint64_t bytes);

    // Capture. End it in the thread that began it; calls that a capture forbids fail in that thread only.
    [[nodiscard]] Result<bool> is_capturing(Stream stream);
    [[nodiscard]] Status begin_capture(Stream stream);
    [[nodiscard]] Result<Graph> end_capture(Stream stream);
    [[nodiscard]] Status launch(Graph graph, Stream stream);
    [[nodiscard]] Status destroy_graph(Graph graph);

    // Flags.
    [[nodiscard]] Result<Flag> create_flag();
    [[nodiscard]] Status destroy_flag(Flag flag);
    [[nodiscard]] Status wait_flag(Stream stream, Flag flag, std::uint32_t value);
    [[nodiscard]] Status raise_flag(Flag flag, std::uint32_t value);

private:
    /// Events to be used again, oldest first, so that the one that comes out is the likeliest to be complete.
    class EventStore {
    public:
        [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
        void push(cudaEvent_t event) {
            if (count_ == ring_.size()) {
                std::vector<cudaEvent_t> larger(std::max<std::size_t>(16, ring_.size() * 2));
                for (std::size_t i = 0; i < count_; ++i) { larger[i] = ring_[(first_ + i) % ring_.size()]; }
                ring_ = std::move(larger);
                first_ = 0;
            }
            ring_[(first_ + count_++) % ring_.size()] = event;
        }
        [[nodiscard]] cudaEvent_t front() const noexcept { return ring_[first_]; }
        void pop() noexcept {
            first_ = (first_ + 1) % ring_.size();
            --count_;
        }

    private:
        std::vector<cudaEvent_t> ring_;
        std::size_t first_ = 0, count_ = 0;
    };

    enum class HostKind : std::uint8_t { registered, driver, pageable };
    struct HostBlock {
        std::uint64_t bytes;
        HostKind kind;
    };
    struct HostDeleter {
        std::uint64_t bytes;
        void operator()(void* at) const noexcept { detail::unmap_host(at, bytes); }
    };

    struct State {
        State() = default;
        State(const State&) = delete;
        State& operator=(const State&) = delete;
        ~State();

        int ordinal = 0;
        Config config;
        detail::CudaDriver driver;
        CUdevice device = 0;
        CUcontext context = nullptr;
        std::string name;
        std::uint64_t chunk_granularity = std::uint64_t{2} << 20;
        std::uint64_t total_bytes = 0;
        bool has_pools = false, has_virtual_memory = false, has_host_registration = false, has_batches = false;
        std::atomic<bool> lost{false};
        CaptureGate captures;

        std::mutex events_mutex;
        EventStore events[2];

        std::mutex host_mutex;
        std::map<void*, HostBlock> host_blocks;

        std::mutex mappings_mutex;
        std::map<std::uintptr_t, std::uint64_t> mappings;  // address → bytes of each mapped chunk

        std::mutex flags_mutex;
        std::vector<void*> flag_pages;
        std::vector<std::uint32_t*> free_flags;
    };

    // Makes the device current; for calls that allocate or query, also forbids them to harm a capture elsewhere.
    struct Scope {
        explicit Scope(const State& state) noexcept : context{state.driver, state.context} {}
        detail::CudaContextScope context;
    };
    struct RelaxedScope {
        explicit RelaxedScope(const State& state) noexcept : context{state.driver, state.context} {}
        detail::CudaContextScope context;
        detail::CudaRelaxedCapture relaxed;
    };

    explicit CudaDevice(std::unique_ptr<State> state) noexcept : state_{std::move(state)} {}

    static constexpr std::size_t flag_page_bytes = 16384;
    static constexpr std::size_t flag_stride_bytes = 64;

    [[nodiscard]] Error failure(int code, const char* call, std::uint64_t bytes = 0) {
        if (detail::is_lost_device(code)) { state_->lost.store(true, std::memory_order_relaxed); }
        return detail::cuda_error(code, call, bytes);
    }
    /// The error of a runtime call, taken off the thread's last error.
    [[nodiscard]] Error runtime_failure(cudaError_t code, const char* call, std::uint64_t bytes = 0) {
        static_cast<void>(cudaGetLastError());
        return failure(code, call, bytes);
    }
    [[nodiscard]] Status checked(cudaError_t code, const char* call, std::uint64_t bytes = 0) {
        if (code == cudaSuccess) [[likely]] { return {}; }
        return runtime_failure(code, call, bytes);
    }
    [[nodiscard]] Status checked(CUresult code, const char* call, std::uint64_t bytes = 0) {
        if (code == CUDA_SUCCESS) [[likely]] { return {}; }
        return failure(code, call, bytes);
    }
    /// For destruction: an unloading runtime has freed everything already.
    [[nodiscard]] Status checked_destruction(cudaError_t code, const char* call) {
        if (code == cudaErrorCudartUnloading) { return {}; }
        return checked(code, call);
    }
    [[nodiscard]] Status refuse_in_capture(Stream stream, const char* what);
    [[nodiscard]] static Error refused_in_capture(const char* what);
    [[nodiscard]] Error unsupported(const char* what, const char* instead) const {
        return {ErrorKind::unsupported,
                state_->name + " (device " + std::to_string(state_->ordinal) + ") " + what + "; " + instead,
                DeviceFailure{cudaErrorNotSupported, what, 0}};
    }
    [[nodiscard]] Error without_virtual_memory() const {
        return unsupported("has no virtual memory management", "use pool::StreamOrdered or pool::Slab");
    }
    [[nodiscard]] Error without_pools() const { return unsupported("has no stream-ordered pools", "use pool::Slab"); }
    [[nodiscard]] unsigned host_threads() const noexcept {
        if (state_->config.host_threads != 0) { return state_->config.host_threads; }
        return std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
    }
    [[nodiscard]] static cudaError_t create_raw_event(cudaEvent_t& event, Timing timing) noexcept {
        return cudaEventCreateWithFlags(&event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming);
    }
    [[nodiscard]] Status check_granularity(const char* what, std::uint64_t bytes) const {
        if (bytes != 0 && bytes % state_->chunk_granularity == 0) { return {}; }
        return Error{ErrorKind::invalid_argument, std::string{what} + ": " + std::to_string(bytes) +
                                                      " bytes is not a multiple of chunk_granularity(), " +
                                                      std::to_string(state_->chunk_granularity)};
    }
    [[nodiscard]] Status register_host(void* at, std::uint64_t bytes);
    template <class Prepare>
    [[nodiscard]] Result<void*> allocate_host_with(std::uint64_t bytes, Prepare prepare);
    [[nodiscard]] Status copy_one(const Copy& copy, Stream stream) {
        return checked(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, stream.get()),
                       "cudaMemcpyAsync", copy.bytes);
    }

    std::unique_ptr<State> state_;
};

inline CudaDevice::State::~State() {
    if (context == nullptr) { return; }
    // On a lost device every call fails; whatever is left goes with the process.
    if (!lost.load(std::memory_order_relaxed)) {
        const Scope scope{*this};
        const detail::CudaRelaxedCapture relaxed;
        for (EventStore& store : events) {
            for (; !store.is_empty(); store.pop()) { static_cast<void>(cudaEventDestroy(store.front())); }
        }
        for (void* const page : flag_pages) { static_cast<void>(cudaFreeHost(page)); }
        static_cast<void>(cudaGetLastError());
    }
    static_cast<void>(driver.primary_context_release(device));
}

inline Result<CudaDevice> CudaDevice::try_open(int ordinal, Config config) {
    int driver_version = 0;
    int count = 0;
    cudaError_t code = cudaDriverGetVersion(&driver_version);
    if (code == cudaSuccess && driver_version == 0) {
        static_cast<void>(cudaGetLastError());
        return Error{ErrorKind::device,
                     "no NVIDIA driver is installed: install one, or use SimulatedDevice where there is no GPU",
                     DeviceFailure{cudaErrorInsufficientDriver, "cudaDriverGetVersion", 0}};
    }
    if (code == cudaSuccess) { code = cudaGetDeviceCount(&count); }
    if (code == cudaErrorInsufficientDriver) {
        static_cast<void>(cudaGetLastError());
        const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
        return Error{ErrorKind::unsupported,
                     "the NVIDIA driver is too old: it supports CUDA " + version(driver_version) +
                         ", this program was built with CUDA " + version(CUDART_VERSION) + "; " +
                         detail::cuda_advice(code),
                     DeviceFailure{code, "cudaGetDeviceCount", 0}};
    }
    if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
        static_cast<void>(cudaGetLastError());
        return Error{ErrorKind::device, detail::cuda_advice(cudaErrorNoDevice),
                     DeviceFailure{cudaErrorNoDevice, "cudaGetDeviceCount", 0}};
    }
    if (code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return detail::cuda_error(code, "cudaGetDeviceCount");
    }
    if (ordinal < 0 || ordinal >= count) {
        return Error{ErrorKind::invalid_argument,
                     "there is no GPU " + std::to_string(ordinal) + ": this process sees " + std::to_string(count) +
                         ", counted from 0; check CUDA_VISIBLE_DEVICES",
                     DeviceFailure{cudaErrorInvalidDevice, "CudaDevice", 0}};
    }
    // The runtime keeps the primary context for itself too, so that releasing ours never destroys the caller's objects.
    code = cudaInitDevice(ordinal, 0, 0);
    if (code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return detail::cuda_error(code, "cudaInitDevice");
    }
    auto driver = detail::CudaDriver::load();
    if (!driver) { return driver.error(); }

    auto state = std::make_unique<State>();
    state->ordinal = ordinal;
    state->config = config;
    state->driver = *driver;
    if (const CUresult got = state->driver.device_get(&state->device, ordinal); got != CUDA_SUCCESS) {
        return detail::cuda_error(got, "cuDeviceGet");
    }
    if (const CUresult got = state->driver.primary_context_retain(&state->context, state->device);
        got != CUDA_SUCCESS) {
        state->context = nullptr;
        return detail::cuda_error(got, "cuDevicePrimaryCtxRetain");
    }
    CudaDevice device{std::move(state)};
    State& s = *device.state_;
    const RelaxedScope scope{s};

    cudaDeviceProp properties{};
    code = cudaGetDeviceProperties(&properties, ordinal);
    if (code != cudaSuccess) { return device.runtime_failure(code, "cudaGetDeviceProperties"); }
    s.name = properties.name;
    s.total_bytes = properties.totalGlobalMem;
    const auto has = [&s](CUdevice_attribute attribute) {
        int value = 0;
        return s.driver.device_get_attribute(&value, attribute, s.device) == CUDA_SUCCESS && value != 0;
    };
    if (!has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)) {
        return device.unsupported("has no unified addresses", "use a 64-bit system and a newer GPU");
    }
    s.has_pools = has(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
    s.has_host_registration = has(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
    s.has_virtual_memory =
        s.driver.has_virtual_memory() && has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
#if CUDART_VERSION >= 12080
    s.has_batches = driver_version >= 12080;
#endif
    if (s.has_virtual_memory) {
        CUmemAllocationProp wanted{};
        wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.device};
        std::size_t granularity = 0;
        if (const CUresult got = s.driver.memory_granularity(&granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
            got != CUDA_SUCCESS) {
            return device.failure(got, "cuMemGetAllocationGranularity");
        }
        s.chunk_granularity = granularity;
    }
    for (const Timing timing : {Timing::off, Timing::on}) {
        EventStore& store = s.events[timing == Timing::on ? 1 : 0];
        for (unsigned i = 0; i < (timing == Timing::on ? config.timing_events : config.events); ++i) {
            cudaEvent_t event = nullptr;
            if (code = create_raw_event(event, timing); code != cudaSuccess) {
                return device.runtime_failure(code, "cudaEventCreateWithFlags");
            }
            store.push(event);
        }
    }
    return device;
}

inline Status CudaDevice::refuse_in_capture(Stream stream, const char* what) {
    const Result<bool> capturing = is_capturing(stream);
    if (!capturing) { return capturing.error(); }
    if (!*capturing) [[likely]] { return {}; }
    return refused_in_capture(what);
}

inline Error CudaDevice::refused_in_capture(const char* what) {
    return {ErrorKind::wrong_state, std::string{what} + " is not possible in a capture: do it before begin_capture",
            DeviceFailure{cudaErrorStreamCaptureUnsupported, what, 0}};
}

inline Result<CudaDevice::Stream> CudaDevice::create_stream() {
    const RelaxedScope scope{*state_};
    cudaStream_t stream = nullptr;
    const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaStreamCreateWithFlags"); }
    return Stream{stream};
}

inline Status CudaDevice::destroy_stream(Stream stream) {
    const RelaxedScope scope{*state_};
    return checked_destruction(cudaStreamDestroy(stream.get()), "cudaStreamDestroy");
}

inline Status CudaDevice::synchronize(Stream stream) {
    if (Status refused = refuse_in_capture(stream, "waiting for the stream"); !refused) { return refused; }
    const RelaxedScope scope{*state_};
    return checked(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

inline Status CudaDevice::synchronize() {
    const CaptureGate::Call call{state_->captures};
    if (call.is_refused()) { return refused_in_capture("waiting for the device"); }
    const RelaxedScope scope{*state_};
    return checked(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

inline Result<CudaDevice::Event> CudaDevice::create_event(Timing timing) {
    const RelaxedScope scope{*state_};
    cudaEvent_t event = nullptr;
    // To query an event of a capture that still runs would end it.
    if (!state_->captures.is_capturing()) {
        const std::lock_guard lock{state_->events_mutex};
        EventStore& store = state_->events[timing == Timing::on ? 1 : 0];
        while (event == nullptr && !store.is_empty()) {
            // A complete event behaves as one that was never recorded. One whose work still runs does not.
            const cudaError_t code = cudaEventQuery(store.front());
            if (code != cudaSuccess) { static_cast<void>(cudaGetLastError()); }
            if (code == cudaErrorNotReady) { break; }
            if (code == cudaSuccess) {
                event = store.front();
            } else {
                static_cast<void>(cudaEventDestroy(store.front()));
            }
            store.pop();
        }
    }
    if (event == nullptr) {
        if (const cudaError_t code = create_raw_event(event, timing); code != cudaSuccess) {
            return runtime_failure(code, "cudaEventCreateWithFlags");
        }
    }
    return Event{event, timing};
}

inline Status CudaDevice::destroy_event(Event event) {
    if (event.handle == nullptr) {
        return Error{ErrorKind::invalid_argument, "destroy_event: this event names nothing"};
    }
    const std::lock_guard lock{state_->events_mutex};
    state_->events[event.timing == Timing::on ? 1 : 0].push(event.handle);
    return {};
}

inline Status CudaDevice::record(Event event, Stream stream) {
    const Scope scope{*state_};
    return checked(cudaEventRecord(event.handle, stream.get()), "cudaEventRecord");
}

inline Status CudaDevice::wait(Stream stream, Event event) {
    const Scope scope{*state_};
    return checked(cudaStreamWaitEvent(stream.get(), event.handle, 0), "cudaStreamWaitEvent");
}

inline Result<bool> CudaDevice::is_complete(Event event) {
    const RelaxedScope scope{*state_};
    const cudaError_t code = cudaEventQuery(event.handle);
    if (code == cudaSuccess) { return true; }
    if (code == cudaErrorNotReady) {
        if (cudaPeekAtLastError() == cudaErrorNotReady) { static_cast<void>(cudaGetLastError()); }
        return false;
    }
    return runtime_failure(code, "cudaEventQuery");
}

inline Status CudaDevice::synchronize(Event event) {
    const RelaxedScope scope{*state_};
    return checked(cudaEventSynchronize(event.handle), "cudaEventSynchronize");
}

inline Result<std::chrono::nanoseconds> CudaDevice::elapsed(Event from, Event to) {
    const RelaxedScope scope{*state_};
    float milliseconds = 0;
    const cudaError_t code = cudaEventElapsedTime(&milliseconds, from.handle, to.handle);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaEventElapsedTime"); }
    return std::chrono::nanoseconds{static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6)};
}

inline Status CudaDevice::copy(std::span<const Copy> copies, Stream stream) {
    const Scope scope{*state_};
    // A block of pieces on the stack: no allocation, and the latency of a call is lost in that many.
    constexpr std::size_t block = 512;
    void* to[block];
    const void* from[block];
    std::size_t bytes[block];
    bool asked = false;
    bool batches = state_->has_batches && !stream.is_default();
    std::size_t next = 0;
    while (next < copies.size()) {
        std::size_t count = 0;
        for (; next < copies.size() && count < block; ++next) {
            const Copy& piece = copies[next];
            if (piece.bytes == 0) { continue; }
            to[count] = piece.to;
            from[count] = piece.from;
            bytes[count++] = piece.bytes;
        }
        if (count == 0) { break; }
        if (count > 1 && batches && !asked) {
            const Result<bool> capturing = is_capturing(stream);
            if (!capturing) { return capturing.error(); }
            batches = !*capturing;
            asked = true;
        }
#if CUDART_VERSION >= 12080
        if (count > 1 && batches) {
            cudaMemcpyAttributes attributes{};
            attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
            std::size_t attributes_from = 0;
#if CUDART_VERSION >= 13000
            const cudaError_t code =
                cudaMemcpyBatchAsync(to, from, bytes, count, &attributes, &attributes_from, 1, stream.get());
#else
            std::size_t failed = 0;
            const cudaError_t code = cudaMemcpyBatchAsync(to, const_cast<void**>(from), bytes, count, &attributes,
                                                          &attributes_from, 1, &failed, stream.get());
#endif
            if (code != cudaSuccess) { return runtime_failure(code, "cudaMemcpyBatchAsync"); }
            continue;
        }
#endif
        for (std::size_t i = 0; i < count; ++i) {
            if (Status copied = copy_one({to[i], from[i], bytes[i]}, stream); !copied) { return copied; }
        }
    }
    return {};
}

inline Status CudaDevice::fill(void* at, std::byte value, std::uint64_t bytes, Stream stream) {
    if (bytes == 0) { return {}; }
    const Scope scope{*state_};
    return checked(cudaMemsetAsync(at, std::to_integer<int>(value), bytes, stream.get()), "cudaMemsetAsync", bytes);
}

inline Result<void*> CudaDevice::allocate(std::uint64_t bytes) {
    if (bytes == 0) { return Error{ErrorKind::invalid_argument, "allocate: ask for at least one byte"}; }
    const RelaxedScope scope{*state_};
    // What is too large for any device must not wrap around where it is rounded up.
    if (bytes > state_->total_bytes) { return failure(cudaErrorMemoryAllocation, "cudaMalloc", bytes); }
    void* at = nullptr;
    const cudaError_t code = cudaMalloc(&at, bytes);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaMalloc", bytes); }
    return at;
}

inline Status CudaDevice::deallocate(void* at) {
    const RelaxedScope scope{*state_};
    return checked_destruction(cudaFree(at), "cudaFree");
}

inline Result<MemoryInfo> CudaDevice::memory() {
    const RelaxedScope scope{*state_};
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    const cudaError_t code = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaMemGetInfo"); }
    return MemoryInfo{free_bytes, total_bytes};
}

inline Result<CudaDevice::Pool> CudaDevice::create_pool(std::uint64_t cap_bytes) {
    if (!state_->has_pools) { return without_pools(); }
    const std::uint64_t step = pool_granularity();
    if (cap_bytes == 0 || cap_bytes % step != 0) {
        return Error{
            ErrorKind::invalid_argument,
            "a pool's cap of " + std::to_string(cap_bytes) + " bytes would be rounded up by the driver: ask for " +
                (cap_bytes >= step ? std::to_string(cap_bytes / step * step) + " or " : std::string{}) +
                std::to_string((cap_bytes / step + 1) * step) + " (multiples of " + std::to_string(step) + ")"};
    }
    const RelaxedScope scope{*state_};
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = state_->ordinal;
    properties.maxSize = cap_bytes;
    Pool pool;
    cudaError_t code = cudaMemPoolCreate(&pool.handle, &properties);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaMemPoolCreate", cap_bytes); }
    // What the pool has, it keeps: giving memory back and asking again would stall the stream.
    std::uint64_t threshold = UINT64_MAX;
    code = cudaMemPoolSetAttribute(pool.handle, cudaMemPoolAttrReleaseThreshold, &threshold);
    if (code != cudaSuccess) {
        const Error error = runtime_failure(code, "cudaMemPoolSetAttribute");
        static_cast<void>(cudaMemPoolDestroy(pool.handle));
        return error;
    }
    return pool;
}

inline Status CudaDevice::destroy_pool(Pool pool) {
    const RelaxedScope scope{*state_};
    return checked_destruction(cudaMemPoolDestroy(pool.handle), "cudaMemPoolDestroy");
}

inline Result<void*> CudaDevice::allocate(Pool pool, std::uint64_t bytes, Stream stream) {
    if (bytes == 0) { return Error{ErrorKind::invalid_argument, "allocate: ask for at least one byte"}; }
    // In a capture the driver would allocate outside of the pool and escape its cap.
    if (Status refused = refuse_in_capture(stream, "allocating from a pool"); !refused) { return refused.error(); }
    const RelaxedScope scope{*state_};
    void* at = nullptr;
    const cudaError_t code = cudaMallocFromPoolAsync(&at, bytes, pool.handle, stream.get());
    if (code != cudaSuccess) { return runtime_failure(code, "cudaMallocFromPoolAsync", bytes); }
    return at;
}

inline Status CudaDevice::deallocate(Pool, void* at, Stream stream) {
    if (Status refused = refuse_in_capture(stream, "giving memory back to a pool"); !refused) { return refused; }
    const RelaxedScope scope{*state_};
    return checked_destruction(cudaFreeAsync(at, stream.get()), "cudaFreeAsync");
}

inline Result<std::uint64_t> CudaDevice::held_bytes(Pool pool) {
    const RelaxedScope scope{*state_};
    std::uint64_t bytes = 0;
    const cudaError_t code = cudaMemPoolGetAttribute(pool.handle, cudaMemPoolAttrReservedMemCurrent, &bytes);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaMemPoolGetAttribute"); }
    return bytes;
}

inline Status CudaDevice::trim(Pool pool) {
    const RelaxedScope scope{*state_};
    return checked(cudaMemPoolTrimTo(pool.handle, 0), "cudaMemPoolTrimTo");
}

inline Status CudaDevice::register_host(void* at, std::uint64_t bytes) {
    const cudaError_t code = cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (code == cudaSuccess) { return {}; }
    const Error error = runtime_failure(code, "cudaHostRegister", bytes);
    if (code == cudaErrorMemoryAllocation || code == cudaErrorNotPermitted || code == cudaErrorOperatingSystem) {
        return Error{error.kind(), error.message() + detail::locked_memory_limit(), *error.detail<DeviceFailure>()};
    }
    return error;
}

template <class Prepare>
Result<void*> CudaDevice::allocate_host_with(std::uint64_t bytes, Prepare prepare) {
    if (bytes == 0) { return Error{ErrorKind::invalid_argument, "allocate_host: ask for at least one byte"}; }
    State& s = *state_;
    const RelaxedScope scope{s};
    void* at = nullptr;
    HostKind kind = HostKind::registered;
    if (s.has_host_registration || !s.config.pin) {
        std::unique_ptr<void, HostDeleter> memory{detail::map_host(bytes, s.config.huge_pages), HostDeleter{bytes}};
        if (memory == nullptr) {
            return Error{ErrorKind::out_of_memory,
                         "the host has no " + std::to_string(bytes) +
                             " bytes of address space or memory left: " + std::strerror(errno),
                         DeviceFailure{errno, "mmap", bytes}};
        }
        prepare(static_cast<std::byte*>(memory.get()));
        if (!s.config.pin) {
            kind = HostKind::pageable;
        } else if (Status registered = register_host(memory.get(), bytes); !registered) {
            return registered.error();
        }
        at = memory.release();
    } else {
        kind = HostKind::driver;
        const cudaError_t code = cudaHostAlloc(&at, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (code != cudaSuccess) { return runtime_failure(code, "cudaHostAlloc", bytes); }
        prepare(static_cast<std::byte*>(at));
    }
    const std::lock_guard lock{s.host_mutex};
    s.host_blocks.emplace(at, HostBlock{bytes, kind});
    return at;
}

inline Result<void*> CudaDevice::allocate_host(std::uint64_t bytes) {
    return allocate_host_with(bytes, [this, bytes](std::byte* at) { detail::touch_host(at, bytes, host_threads()); });
}

template <class Fill>
    requires requires(Fill& fill, std::byte* first, std::uint64_t offset, std::uint64_t bytes) {
        fill(first, offset, bytes);
    }
Result<void*> CudaDevice::allocate_host(std::uint64_t bytes, Fill fill) {
    return allocate_host_with(bytes, [this, bytes, &fill](std::byte* at) {
        auto work = [at, &fill](std::uint64_t first, std::uint64_t last) { fill(at + first, first, last - first); };
        detail::for_blocks_in_parallel(bytes, std::uint64_t{32} << 20, host_threads(), work);
    });
}

inline Status CudaDevice::deallocate_host(void* at) {
    State& s = *state_;
    HostBlock block{};
    {
        const std::lock_guard lock{s.host_mutex};
        const auto found = s.host_blocks.find(at);
        if (found == s.host_blocks.end()) {
            return Error{ErrorKind::invalid_argument, "deallocate_host: this address is not from allocate_host"};
        }
        block = found->second;
        s.host_blocks.erase(found);
    }
    const RelaxedScope scope{s};
    if (block.kind == HostKind::driver) { return checked_destruction(cudaFreeHost(at), "cudaFreeHost"); }
    if (block.kind == HostKind::registered) {
        // Pages that the device may still read stay: a leak is better than bytes of somebody else.
        if (Status unregistered = unpin(at); !unregistered) { return unregistered; }
    }
    detail::unmap_host(at, block.bytes);
    return {};
}

inline Status CudaDevice::pin(void* at, std::uint64_t bytes) {
    if (at == nullptr || bytes == 0) { return Error{ErrorKind::invalid_argument, "pin: ask for at least one byte"}; }
    if (!state_->has_host_registration) {
        return unsupported("cannot pin memory that the caller owns", "load into memory from allocate_host");
    }
    if (const std::string file = detail::file_mapping_in(at, bytes); !file.empty()) {
        return Error{ErrorKind::invalid_argument, "pin: these bytes are a mapping of " + file +
                                                      ", and pinning one may never return: read the file into "
                                                      "anonymous memory and pin that"};
    }
    const RelaxedScope scope{*state_};
    return register_host(at, bytes);
}

inline Status CudaDevice::unpin(void* at) {
    const RelaxedScope scope{*state_};
    return checked_destruction(cudaHostUnregister(at), "cudaHostUnregister");
}

inline Result<const void*> CudaDevice::device_view(const void* at) {
    const RelaxedScope scope{*state_};
    cudaPointerAttributes attributes{};
    const cudaError_t code = cudaPointerGetAttributes(&attributes, at);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaPointerGetAttributes"); }
    if (attributes.type != cudaMemoryTypeHost || attributes.devicePointer == nullptr) {
        return Error{ErrorKind::invalid_argument,
                     "device_view: these bytes are not pinned host memory: pin them first"};
    }
    return attributes.devicePointer;
}

inline Result<void*> CudaDevice::reserve(std::uint64_t bytes) {
    State& s = *state_;
    if (!s.has_virtual_memory) { return without_virtual_memory(); }
    if (Status fits = check_granularity("reserve", bytes); !fits) { return fits.error(); }
    const RelaxedScope scope{s};
    CUdeviceptr at = 0;
    const CUresult code = s.driver.memory_reserve(&at, bytes, s.chunk_granularity, 0, 0);
    if (code != CUDA_SUCCESS) { return failure(code, "cuMemAddressReserve", bytes); }
    return reinterpret_cast<void*>(at);
}

inline Status CudaDevice::release(void* at, std::uint64_t bytes) {
    State& s = *state_;
    if (!s.has_virtual_memory) { return without_virtual_memory(); }
    const RelaxedScope scope{s};
    return checked(s.driver.memory_free(reinterpret_cast<CUdeviceptr>(at), bytes), "cuMemAddressFree", bytes);
}

inline Result<CudaDevice::Chunk> CudaDevice::create_chunk(std::uint64_t bytes) {
    State& s = *state_;
    if (!s.has_virtual_memory) { return without_virtual_memory(); }
    if (Status fits = check_granularity("create_chunk", bytes); !fits) { return fits.error(); }
    const RelaxedScope scope{s};
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.device};
    Chunk chunk;
    const CUresult code = s.driver.memory_create(&chunk.handle, bytes, &wanted, 0);
    if (code != CUDA_SUCCESS) { return failure(code, "cuMemCreate", bytes); }
    return chunk;
}

inline Status CudaDevice::destroy_chunk(Chunk chunk) {
    State& s = *state_;
    if (!s.has_virtual_memory) { return without_virtual_memory(); }
    const RelaxedScope scope{s};
    return checked(s.driver.memory_release(chunk.handle), "cuMemRelease");
}

inline Status CudaDevice::map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes) {
    State& s = *state_;
    if (!s.has_virtual_memory) { return without_virtual_memory(); }
    if (Status fits = check_granularity("map", bytes); !fits) { return fits; }
    const CaptureGate::Call call{s.captures};
    if (call.is_refused()) { return refused_in_capture("mapping memory"); }
    const auto address = [](const Mapping<Chunk>& mapping) { return reinterpret_cast<CUdeviceptr>(mapping.at); };
    const RelaxedScope scope{s};
    const std::lock_guard lock{s.mappings_mutex};
    std::size_t mapped = 0;
    const auto roll_back = [&] {
        for (std::size_t i = 0; i < mapped; ++i) {
            static_cast<void>(s.driver.memory_unmap(address(mappings[i]), bytes));
        }
    };
    for (; mapped < mappings.size(); ++mapped) {
        const CUresult code =
            s.driver.memory_map(address(mappings[mapped]), bytes, 0, mappings[mapped].chunk.handle, 0);
        if (code != CUDA_SUCCESS) {
            roll_back();
            return failure(code, "cuMemMap", bytes);
        }
    }
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.device};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (std::size_t first = 0; first < mappings.size();) {
        std::size_t last = first + 1;
        while (last < mappings.size() && address(mappings[last]) == address(mappings[last - 1]) + bytes) { ++last; }
        const CUresult code = s.driver.memory_set_access(address(mappings[first]), (last - first) * bytes, &access, 1);
        if (code != CUDA_SUCCESS) {
            roll_back();
            return failure(code, "cuMemSetAccess", (last - first) * bytes);
        }
        first = last;
    }
    for (const Mapping<Chunk>& mapping : mappings) { s.mappings.emplace(address(mapping), bytes); }
    return {};
}

inline Status CudaDevice::unmap(void* at, std::uint64_t bytes) {
    State& s = *state_;
    if (!s.has_virtual_memory) { return without_virtual_memory(); }
    const CaptureGate::Call call{s.captures};
    if (call.is_refused()) { return refused_in_capture("unmapping memory"); }
    const auto first = reinterpret_cast<CUdeviceptr>(at);
    const RelaxedScope scope{s};
    const std::lock_guard lock{s.mappings_mutex};
    const auto begin = s.mappings.lower_bound(first);
    const auto end = s.mappings.lower_bound(first + bytes);
    const bool cuts_the_first =
        begin != s.mappings.begin() && std::prev(begin)->first + std::prev(begin)->second > first;
    const bool cuts_the_last = begin != end && std::prev(end)->first + std::prev(end)->second > first + bytes;
    if (begin == end || cuts_the_first || cuts_the_last) {
        return Error{ErrorKind::invalid_argument, "unmap: the range must hold whole mapped chunks, at least one"};
    }
    for (auto mapping = begin; mapping != end; mapping = s.mappings.erase(mapping)) {
        if (Status done =
                checked(s.driver.memory_unmap(mapping->first, mapping->second), "cuMemUnmap", mapping->second);
            !done) {
            return done;
        }
    }
    return {};
}

inline Result<bool> CudaDevice::is_capturing(Stream stream) {
    if (stream.is_legacy_default()) { return false; }
    const Scope scope{*state_};
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t code = cudaStreamIsCapturing(stream.get(), &status);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaStreamIsCapturing"); }
    return status != cudaStreamCaptureStatusNone;
}

inline Status CudaDevice::begin_capture(Stream stream) {
    if (stream.is_legacy_default()) {
        return Error{ErrorKind::invalid_argument,
                     "the legacy default stream cannot be captured: pass a stream of your own"};
    }
    const Scope scope{*state_};
    state_->captures.enter();
    Status begun =
        checked(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    if (!begun) { state_->captures.leave(); }
    return begun;
}

inline Result<CudaDevice::Graph> CudaDevice::end_capture(Stream stream) {
    const RelaxedScope scope{*state_};
    cudaGraph_t recorded = nullptr;
    cudaError_t code = cudaStreamEndCapture(stream.get(), &recorded);
    // These leave the stream as it was.
    if (code != cudaErrorStreamCaptureWrongThread && code != cudaErrorIllegalState && code != cudaErrorInvalidValue &&
        code != cudaErrorStreamCaptureUnmatched) {
        state_->captures.leave();
    }
    if (code != cudaSuccess) { return runtime_failure(code, "cudaStreamEndCapture"); }
    Graph graph;
    code = cudaGraphInstantiate(&graph.handle, recorded, 0);
    const cudaError_t destroyed = cudaGraphDestroy(recorded);
    if (code != cudaSuccess) { return runtime_failure(code, "cudaGraphInstantiate"); }
    if (destroyed != cudaSuccess) {
        const Error error = runtime_failure(destroyed, "cudaGraphDestroy");
        static_cast<void>(cudaGraphExecDestroy(graph.handle));
        return error;
    }
    return graph;
}

inline Status CudaDevice::launch(Graph graph, Stream stream) {
    const Scope scope{*state_};
    return checked(cudaGraphLaunch(graph.handle, stream.get()), "cudaGraphLaunch");
}

inline Status CudaDevice::destroy_graph(Graph graph) {
    const RelaxedScope scope{*state_};
    return checked_destruction(cudaGraphExecDestroy(graph.handle), "cudaGraphExecDestroy");
}

inline Result<CudaDevice::Flag> CudaDevice::create_flag() {
    State& s = *state_;
    if (s.driver.stream_wait_value == nullptr) {
        return unsupported("has no stream waits on memory", "install a newer NVIDIA driver, or use transport::Pinned");
    }
    const RelaxedScope scope{s};
    const std::lock_guard lock{s.flags_mutex};
    if (s.free_flags.empty()) {
        void* page = nullptr;
        const cudaError_t code = cudaHostAlloc(&page, flag_page_bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (code != cudaSuccess) { return runtime_failure(code, "cudaHostAlloc", flag_page_bytes); }
        s.flag_pages.push_back(page);
        for (std::size_t at = 0; at < flag_page_bytes; at += flag_stride_bytes) {
            s.free_flags.push_back(reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(page) + at));
        }
    }
    const Flag flag{s.free_flags.back()};
    s.free_flags.pop_back();
    std::atomic_ref{*flag.value}.store(0, std::memory_order_release);
    return flag;
}

inline Status CudaDevice::destroy_flag(Flag flag) {
    if (flag.value == nullptr) { return Error{ErrorKind::invalid_argument, "destroy_flag: this flag names nothing"}; }
    const std::lock_guard lock{state_->flags_mutex};
    state_->free_flags.push_back(flag.value);
    return {};
}

inline Status CudaDevice::wait_flag(Stream stream, Flag flag, std::uint32_t value) {
    if (Status refused = refuse_in_capture(stream, "waiting for a flag"); !refused) { return refused; }
    const Scope scope{*state_};
    // With unified addresses the device reads pinned memory from cudaHostAlloc under its own address.
    return checked(state_->driver.stream_wait_value(stream.get(), reinterpret_cast<CUdeviceptr>(flag.value), value,
                                                    CU_STREAM_WAIT_VALUE_GEQ),
                   "cuStreamWaitValue32");
}

inline Status CudaDevice::raise_flag(Flag flag, std::uint32_t value) {
    const std::atomic_ref counter{*flag.value};
    std::uint32_t now = counter.load(std::memory_order_relaxed);
    while (now < value &&
           !counter.compare_exchange_weak(now, value, std::memory_order_release, std::memory_order_relaxed)) {}
    return {};
}

static_assert(Device<CudaDevice>);
static_assert(VirtualMemoryDevice<CudaDevice>);
static_assert(CapturingDevice<CudaDevice>);
static_assert(FlagDevice<CudaDevice>);

}}  // namespace residency::RESIDENCY_ABI
