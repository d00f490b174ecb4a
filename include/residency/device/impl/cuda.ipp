// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_state.hpp"
#include "residency/device/memory_node.hpp"

// CudaDevice: opening, streams, events, flags.

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE CudaDevice::CudaDevice(std::unique_ptr<detail::CudaState> state) noexcept : state_{std::move(state)} {}
RESIDENCY_INLINE CudaDevice::CudaDevice(CudaDevice&&) noexcept = default;
RESIDENCY_INLINE CudaDevice& CudaDevice::operator=(CudaDevice&&) noexcept = default;
RESIDENCY_INLINE CudaDevice::~CudaDevice() = default;

RESIDENCY_INLINE DeviceUsers& CudaDevice::users() noexcept { return state_->users; }
RESIDENCY_INLINE int CudaDevice::ordinal() const noexcept { return state_->ordinal; }
RESIDENCY_INLINE std::string_view CudaDevice::name() const noexcept { return state_->name; }
RESIDENCY_INLINE std::uint64_t CudaDevice::chunk_granularity() const noexcept { return state_->chunk_granularity; }
RESIDENCY_INLINE std::optional<unsigned> CudaDevice::memory_node() const noexcept { return state_->memory_node; }
RESIDENCY_INLINE bool CudaDevice::is_lost() const noexcept { return state_->lost.load(std::memory_order_relaxed); }
RESIDENCY_INLINE std::chrono::nanoseconds CudaDevice::host_time() const noexcept {
    return std::chrono::steady_clock::now().time_since_epoch();
}

namespace detail {

/// Finds out whether this program can use the GPU of that ordinal; each reason why it cannot has an error of its own. Gives the version
/// of the driver.
[[nodiscard]] inline Result<int> find_cuda_device(int ordinal) {
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
                         ", this program was built with CUDA " + version(CUDART_VERSION) + "; " + cuda_advice(code),
                     DeviceFailure{code, "cudaGetDeviceCount", 0}};
    }
    if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
        static_cast<void>(cudaGetLastError());
        return Error{ErrorKind::device, cuda_advice(cudaErrorNoDevice),
                     DeviceFailure{cudaErrorNoDevice, "cudaGetDeviceCount", 0}};
    }
    if (code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return cuda_error(code, "cudaGetDeviceCount");
    }
    if (ordinal < 0 || ordinal >= count) {
        return Error{ErrorKind::invalid_argument,
                     "there is no GPU " + std::to_string(ordinal) + ": this process sees " + std::to_string(count) +
                         ", counted from 0; check CUDA_VISIBLE_DEVICES",
                     DeviceFailure{cudaErrorInvalidDevice, "CudaDevice", 0}};
    }
    return driver_version;
}

/// Takes a share of the primary context, and creates it if there is none yet.
[[nodiscard]] inline Status retain_cuda_context(CudaState& s) {
    // The runtime keeps the primary context for itself too, so that releasing ours never destroys the caller's objects.
    const cudaError_t code = cudaInitDevice(s.ordinal, 0, 0);
    if (code != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
        return cuda_error(code, "cudaInitDevice");
    }
    const auto driver = CudaDriver::load();
    if (!driver) { return driver.error(); }
    s.driver = *driver;
    if (const CUresult got = s.driver.device_get(&s.device, s.ordinal); got != CUDA_SUCCESS) {
        return cuda_error(got, "cuDeviceGet");
    }
    if (const CUresult got = s.driver.primary_context_retain(&s.context, s.device); got != CUDA_SUCCESS) {
        s.context = nullptr;
        return cuda_error(got, "cuDevicePrimaryCtxRetain");
    }
    return {};
}

/// What the GPU is and what it can do. Precondition: its context is current.
[[nodiscard]] inline Status read_cuda_properties(CudaState& s, [[maybe_unused]] int driver_version) {
    cudaDeviceProp properties{};
    const cudaError_t code = cudaGetDeviceProperties(&properties, s.ordinal);
    if (code != cudaSuccess) { return s.runtime_failure(code, "cudaGetDeviceProperties"); }
    s.name = properties.name;
    s.total_bytes = properties.totalGlobalMem;
    char address[32];
    std::snprintf(address, sizeof address, "%04x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
                  static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
    s.memory_node = memory_node_of_pci(address);
    const auto has = [&s](CUdevice_attribute attribute) {
        int value = 0;
        return s.driver.device_get_attribute(&value, attribute, s.device) == CUDA_SUCCESS && value != 0;
    };
    if (!has(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)) {
        return s.unsupported("has no unified addresses", "use a 64-bit system and a newer GPU");
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
            return s.failure(got, "cuMemGetAllocationGranularity");
        }
        s.chunk_granularity = granularity;
    }
    return {};
}

/// Fills the store of events. Precondition: the context is current.
[[nodiscard]] inline Status create_cuda_events(CudaState& s, unsigned count, Timing timing) {
    for (unsigned i = 0; i < count; ++i) {
        cudaEvent_t event = nullptr;
        if (const cudaError_t code = create_raw_event(event, timing); code != cudaSuccess) {
            return s.runtime_failure(code, "cudaEventCreateWithFlags");
        }
        s.events[timing == Timing::on ? 1 : 0].push(event);
    }
    return {};
}

}  // namespace detail

RESIDENCY_INLINE Result<CudaDevice> CudaDevice::try_open(int ordinal, Config config) {
    const auto driver_version = detail::find_cuda_device(ordinal);
    if (!driver_version) { return driver_version.error(); }
    auto state = std::make_unique<detail::CudaState>();
    state->ordinal = ordinal;
    state->host_threads =
        config.host_threads != 0 ? config.host_threads : std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
    state->huge_pages = config.huge_pages;
    state->pin = config.pin;
    if (Status retained = detail::retain_cuda_context(*state); !retained) { return retained.error(); }

    CudaDevice device{std::move(state)};
    detail::CudaState& s = *device.state_;
    const detail::CudaState::RelaxedScope scope{s};
    if (Status read = detail::read_cuda_properties(s, *driver_version); !read) { return read.error(); }
    for (const Timing timing : {Timing::off, Timing::on}) {
        const unsigned count = timing == Timing::on ? config.timing_events : config.events;
        if (Status made = detail::create_cuda_events(s, count, timing); !made) { return made.error(); }
    }
    return device;
}

RESIDENCY_INLINE Result<CudaDevice::Stream> CudaDevice::create_stream() {
    const detail::CudaState::RelaxedScope scope{*state_};
    cudaStream_t stream = nullptr;
    const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaStreamCreateWithFlags"); }
    return Stream{stream};
}

RESIDENCY_INLINE Status CudaDevice::destroy_stream(Stream stream) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked_destruction(cudaStreamDestroy(stream.get()), "cudaStreamDestroy");
}

RESIDENCY_INLINE Status CudaDevice::synchronize(Stream stream) {
    if (Status refused = refuse_in_capture(stream, "waiting for the stream"); !refused) { return refused; }
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

RESIDENCY_INLINE Status CudaDevice::synchronize() {
    const CaptureGate::Call call{*state_->captures};
    if (call.is_refused()) { return detail::refused_in_capture("waiting for the device"); }
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

RESIDENCY_INLINE Result<CudaDevice::Event> CudaDevice::create_event(Timing timing) {
    const detail::CudaState::RelaxedScope scope{*state_};
    cudaEvent_t event = nullptr;
    // Querying an event of a capture under way would end the capture.
    if (!state_->captures->is_capturing()) {
        const std::lock_guard lock{state_->events_mutex};
        detail::CudaEventStore& store = state_->events[timing == Timing::on ? 1 : 0];
        while (event == nullptr && !store.is_empty()) {
            // A complete event behaves as one that was never recorded; a pending one does not.
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
        if (const cudaError_t code = detail::create_raw_event(event, timing); code != cudaSuccess) {
            return state_->runtime_failure(code, "cudaEventCreateWithFlags");
        }
    }
    return Event{event, timing};
}

RESIDENCY_INLINE Status CudaDevice::destroy_event(Event event) {
    if (event.handle == nullptr) {
        return Error{ErrorKind::invalid_argument, "destroy_event: this event names nothing"};
    }
    const std::lock_guard lock{state_->events_mutex};
    state_->events[event.timing == Timing::on ? 1 : 0].push(event.handle);
    return {};
}

RESIDENCY_INLINE Status CudaDevice::record(Event event, Stream stream) {
    const detail::CudaState::Scope scope{*state_};
    return state_->checked(cudaEventRecord(event.handle, stream.get()), "cudaEventRecord");
}

RESIDENCY_INLINE Status CudaDevice::wait(Stream stream, Event event) {
    const detail::CudaState::Scope scope{*state_};
    return state_->checked(cudaStreamWaitEvent(stream.get(), event.handle, 0), "cudaStreamWaitEvent");
}

RESIDENCY_INLINE Status CudaDevice::enable_peer(CudaDevice& other) {
    const int own = state_->ordinal, peer = other.state_->ordinal;
    if (own == peer) { return {}; }
    const detail::CudaState::RelaxedScope scope{*state_};
    int can = 0;
    if (auto asked = state_->checked(cudaDeviceCanAccessPeer(&can, own, peer), "cudaDeviceCanAccessPeer"); !asked) {
        return asked;
    }
    if (can == 0) {
        return Error{ErrorKind::unsupported, "GPU " + std::to_string(own) +
                                                 " has no peer access to the memory of GPU " + std::to_string(peer) +
                                                 ": nvidia-smi topo -p2p r shows which have"};
    }
    // Streams of one may take part in captures of the other from now on.
    if (!state_->captures->add_peer(other.state_->captures) || !other.state_->captures->add_peer(state_->captures)) {
        return detail::refused_in_capture("enabling access to a peer");
    }
    const cudaError_t code = cudaDeviceEnablePeerAccess(peer, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
        static_cast<void>(cudaGetLastError());
        return {};
    }
    return state_->checked(code, "cudaDeviceEnablePeerAccess");
}

RESIDENCY_INLINE Result<bool> CudaDevice::is_complete(Event event) {
    const detail::CudaState::RelaxedScope scope{*state_};
    const cudaError_t code = cudaEventQuery(event.handle);
    if (code == cudaSuccess) { return true; }
    if (code == cudaErrorNotReady) {
        if (cudaPeekAtLastError() == cudaErrorNotReady) { static_cast<void>(cudaGetLastError()); }
        return false;
    }
    return state_->runtime_failure(code, "cudaEventQuery");
}

RESIDENCY_INLINE Status CudaDevice::synchronize(Event event) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked(cudaEventSynchronize(event.handle), "cudaEventSynchronize");
}

RESIDENCY_INLINE Result<std::chrono::nanoseconds> CudaDevice::elapsed(Event from, Event to) {
    const detail::CudaState::RelaxedScope scope{*state_};
    float milliseconds = 0;
    const cudaError_t code = cudaEventElapsedTime(&milliseconds, from.handle, to.handle);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaEventElapsedTime"); }
    return std::chrono::nanoseconds{static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6)};
}

RESIDENCY_INLINE Result<CudaDevice::Flag> CudaDevice::create_flag() {
    detail::CudaState& s = *state_;
    if (s.driver.stream_wait_value == nullptr) {
        return state_->unsupported("has no stream waits on memory",
                                   "install a newer NVIDIA driver, or use transport::Pinned");
    }
    const detail::CudaState::RelaxedScope scope{s};
    const std::lock_guard lock{s.flags_mutex};
    if (s.free_flags.empty()) {
        void* page = nullptr;
        const cudaError_t code =
            cudaHostAlloc(&page, detail::CudaState::flag_page_bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (code != cudaSuccess) {
            return state_->runtime_failure(code, "cudaHostAlloc", detail::CudaState::flag_page_bytes);
        }
        s.flag_pages.push_back(page);
        for (std::size_t at = 0; at < detail::CudaState::flag_page_bytes; at += detail::CudaState::flag_stride_bytes) {
            s.free_flags.push_back(reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(page) + at));
        }
    }
    const Flag flag{s.free_flags.back()};
    s.free_flags.pop_back();
    std::atomic_ref{*flag.value}.store(0, std::memory_order_release);
    return flag;
}

RESIDENCY_INLINE Status CudaDevice::destroy_flag(Flag flag) {
    if (flag.value == nullptr) { return Error{ErrorKind::invalid_argument, "destroy_flag: this flag names nothing"}; }
    const std::lock_guard lock{state_->flags_mutex};
    state_->free_flags.push_back(flag.value);
    return {};
}

RESIDENCY_INLINE Status CudaDevice::wait_flag(Stream stream, Flag flag, std::uint32_t value) {
    if (Status refused = refuse_in_capture(stream, "waiting for a flag"); !refused) { return refused; }
    const detail::CudaState::Scope scope{*state_};
    // With unified addresses the device reads pinned memory from cudaHostAlloc under its own address.
    return state_->checked(state_->driver.stream_wait_value(stream.get(), reinterpret_cast<CUdeviceptr>(flag.value),
                                                            value, CU_STREAM_WAIT_VALUE_GEQ),
                           "cuStreamWaitValue32");
}

RESIDENCY_INLINE Status CudaDevice::raise_flag(Flag flag, std::uint32_t value) {
    const std::atomic_ref counter{*flag.value};
    std::uint32_t now = counter.load(std::memory_order_relaxed);
    while (now < value &&
           !counter.compare_exchange_weak(now, value, std::memory_order_release, std::memory_order_relaxed)) {}
    return {};
}

}}  // namespace residency::RESIDENCY_ABI
