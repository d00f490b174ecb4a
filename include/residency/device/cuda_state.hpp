// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/capture_gate.hpp"
#include "residency/device/cuda_driver.hpp"
#include "residency/device/cuda_error.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// A queue of events that can be used again, oldest first: the first one is the likeliest to be complete. Owns its events; its user
/// destroys them.
class CudaEventStore {
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

/// How allocate_host() got its memory, and so how it is given back.
enum class CudaHostKind : std::uint8_t {
    registered,  ///< mapped by map_host(), then pinned
    driver,      ///< by cudaHostAlloc
    pageable,    ///< mapped by map_host() only
};
struct CudaHostBlock {
    std::uint64_t bytes;
    CudaHostKind kind;
};

[[nodiscard]] inline Error refused_in_capture(const char* what) {
    return {ErrorKind::wrong_state, std::string{what} + " is not possible in a capture: do it before begin_capture",
            DeviceFailure{cudaErrorStreamCaptureUnsupported, what, 0}};
}

[[nodiscard]] inline cudaError_t create_raw_event(cudaEvent_t& event, Timing timing) noexcept {
    return cudaEventCreateWithFlags(&event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming);
}

/// What one CudaDevice owns: its share of the primary context and all that is kept to be used again.
struct CudaState {
    CudaState() = default;
    CudaState(const CudaState&) = delete;
    CudaState& operator=(const CudaState&) = delete;
    ~CudaState();

    int ordinal = 0;
    CudaDriver driver;
    CUdevice device = 0;
    CUcontext context = nullptr;  ///< the primary context, retained
    std::string name;
    std::uint64_t chunk_granularity = std::uint64_t{2} << 20;  ///< bytes
    std::uint64_t total_bytes = 0;                             ///< of the device
    std::optional<unsigned> memory_node;                       ///< that it is attached to
    unsigned host_threads = 1;                                 ///< that touch pinned memory, at most
    bool huge_pages = true, pin = true;                        ///< of host memory; see CudaDevice::Config
    bool has_pools = false, has_virtual_memory = false, has_host_registration = false, has_batches = false;
    std::atomic<bool> lost{false};
    std::shared_ptr<CaptureGate> captures = std::make_shared<CaptureGate>();  ///< those of peers know it

    std::mutex events_mutex;
    CudaEventStore events[2];  ///< without and with timing; under events_mutex

    std::mutex host_mutex;
    std::map<void*, CudaHostBlock> host_blocks;  ///< of allocate_host(); under host_mutex

    std::mutex mappings_mutex;
    std::map<std::uintptr_t, std::uint64_t> mappings;  ///< address → bytes of each mapped chunk; under mappings_mutex

    std::mutex flags_mutex;
    std::vector<void*> flag_pages;           ///< pinned, flag_page_bytes each; under flags_mutex
    std::vector<std::uint32_t*> free_flags;  ///< in flag_pages; under flags_mutex

    DeviceUsers users;

    static constexpr std::size_t flag_page_bytes = 16384;
    static constexpr std::size_t flag_stride_bytes = 64;  ///< a cache line each

    /// The error of a failed call. Notes that the device is lost if the code says so.
    [[nodiscard]] Error failure(int code, const char* call, std::uint64_t bytes = 0) {
        if (is_lost_device(code)) { lost.store(true, std::memory_order_relaxed); }
        return cuda_error(code, call, bytes);
    }
    /// The error of a failed call of the CUDA runtime; clears the thread's last error. Notes that the device is lost if the code says so.
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
    /// For calls that destroy: a runtime that is unloading has freed everything already.
    [[nodiscard]] Status checked_destruction(cudaError_t code, const char* call) {
        if (code == cudaErrorCudartUnloading) { return {}; }
        return checked(code, call);
    }
    [[nodiscard]] Error unsupported(const char* what, const char* instead) const {
        return {ErrorKind::unsupported, name + " (device " + std::to_string(ordinal) + ") " + what + "; " + instead,
                DeviceFailure{cudaErrorNotSupported, what, 0}};
    }
    [[nodiscard]] Error without_virtual_memory() const {
        return unsupported("has no virtual memory management", "use pool::StreamOrdered or pool::Slab");
    }
    [[nodiscard]] Error without_pools() const { return unsupported("has no stream-ordered pools", "use pool::Slab"); }
    [[nodiscard]] Status check_granularity(const char* what, std::uint64_t bytes) const {
        if (bytes != 0 && bytes % chunk_granularity == 0) { return {}; }
        return Error{ErrorKind::invalid_argument, std::string{what} + ": " + residency::detail::in_bytes(bytes) +
                                                      " is not a multiple of chunk_granularity(), " +
                                                      residency::detail::in_bytes(chunk_granularity)};
    }
    /// Blocks. Pins memory for every context, and maps it for the device.
    [[nodiscard]] Status register_host(void* at, std::uint64_t bytes);

    /// Makes the device current for a call, and restores what was current.
    struct Scope {
        explicit Scope(const CudaState& state) noexcept : context{state.driver, state.context} {}
        CudaContextScope context;
    };
    /// A Scope for calls that allocate or query: they do no harm to a capture in another thread.
    struct RelaxedScope {
        explicit RelaxedScope(const CudaState& state) noexcept : context{state.driver, state.context} {}
        CudaContextScope context;
        CudaRelaxedCapture relaxed;
    };
};

inline CudaState::~CudaState() {
    if (context == nullptr) { return; }
    // On a lost device every call fails; whatever is left goes with the process.
    if (!lost.load(std::memory_order_relaxed)) {
        const Scope scope{*this};
        const CudaRelaxedCapture relaxed;
        for (CudaEventStore& store : events) {
            for (; !store.is_empty(); store.pop()) { static_cast<void>(cudaEventDestroy(store.front())); }
        }
        for (void* const page : flag_pages) { static_cast<void>(cudaFreeHost(page)); }
        static_cast<void>(cudaGetLastError());
    }
    static_cast<void>(driver.primary_context_release(device));
}

inline Status CudaState::register_host(void* at, std::uint64_t bytes) {
    const cudaError_t code = cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (code == cudaSuccess) { return {}; }
    const Error error = runtime_failure(code, "cudaHostRegister", bytes);
    if (code == cudaErrorMemoryAllocation || code == cudaErrorNotPermitted || code == cudaErrorOperatingSystem) {
        return Error{error.kind(), error.message() + locked_memory_limit(), *error.detail<DeviceFailure>()};
    }
    return error;
}

}}}  // namespace residency::RESIDENCY_ABI::detail
