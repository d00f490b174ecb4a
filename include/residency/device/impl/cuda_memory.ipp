// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/device/cuda_state.hpp"
#include "residency/device/memory_limits.hpp"
#include "residency/model/number.hpp"

// CudaDevice: device memory, pools, host memory.

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<void*> CudaDevice::allocate(std::uint64_t bytes) {
    if (bytes == 0) { return Error{ErrorKind::invalid_argument, "allocate: ask for at least one byte"}; }
    const detail::CudaState::RelaxedScope scope{*state_};
    // A size near 2^64 would wrap around where the driver rounds it up.
    if (bytes > state_->total_bytes) { return state_->failure(cudaErrorMemoryAllocation, "cudaMalloc", bytes); }
    void* at = nullptr;
    const cudaError_t code = cudaMalloc(&at, bytes);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaMalloc", bytes); }
    return at;
}

RESIDENCY_INLINE Status CudaDevice::deallocate(void* at) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked_destruction(cudaFree(at), "cudaFree");
}

RESIDENCY_INLINE Result<MemoryInfo> CudaDevice::memory() {
    const detail::CudaState::RelaxedScope scope{*state_};
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    const cudaError_t code = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaMemGetInfo"); }
    return MemoryInfo{free_bytes, total_bytes};
}

RESIDENCY_INLINE Result<CudaDevice::Pool> CudaDevice::create_pool(std::uint64_t cap_bytes) {
    if (!state_->has_pools) { return state_->without_pools(); }
    const std::uint64_t step = pool_granularity();
    if (cap_bytes == 0 || cap_bytes % step != 0) {
        return Error{ErrorKind::invalid_argument,
                     "a pool's cap of " + residency::detail::in_bytes(cap_bytes) +
                         " would be rounded up by the driver: ask for " +
                         (cap_bytes >= step ? std::to_string(cap_bytes / step * step) + " or " : std::string{}) +
                         std::to_string((cap_bytes / step + 1) * step) + " (multiples of " +
                         residency::detail::in_bytes(step) + ")"};
    }
    const detail::CudaState::RelaxedScope scope{*state_};
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = state_->ordinal;
    properties.maxSize = cap_bytes;
    Pool pool;
    cudaError_t code = cudaMemPoolCreate(&pool.handle, &properties);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaMemPoolCreate", cap_bytes); }
    // The pool keeps unused memory: giving it back and asking again would stall the stream.
    std::uint64_t threshold = UINT64_MAX;
    code = cudaMemPoolSetAttribute(pool.handle, cudaMemPoolAttrReleaseThreshold, &threshold);
    if (code != cudaSuccess) {
        const Error error = state_->runtime_failure(code, "cudaMemPoolSetAttribute");
        static_cast<void>(cudaMemPoolDestroy(pool.handle));
        return error;
    }
    return pool;
}

RESIDENCY_INLINE Status CudaDevice::destroy_pool(Pool pool) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked_destruction(cudaMemPoolDestroy(pool.handle), "cudaMemPoolDestroy");
}

RESIDENCY_INLINE Result<void*> CudaDevice::allocate(Pool pool, std::uint64_t bytes, Stream stream) {
    if (bytes == 0) { return Error{ErrorKind::invalid_argument, "allocate: ask for at least one byte"}; }
    // In a capture the driver would allocate outside of the pool, and so beyond its cap.
    if (Status refused = refuse_in_capture(stream, "allocating from a pool"); !refused) { return refused.error(); }
    const detail::CudaState::RelaxedScope scope{*state_};
    void* at = nullptr;
    const cudaError_t code = cudaMallocFromPoolAsync(&at, bytes, pool.handle, stream.get());
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaMallocFromPoolAsync", bytes); }
    return at;
}

RESIDENCY_INLINE Status CudaDevice::deallocate(Pool, void* at, Stream stream) {
    if (Status refused = refuse_in_capture(stream, "giving memory back to a pool"); !refused) { return refused; }
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked_destruction(cudaFreeAsync(at, stream.get()), "cudaFreeAsync");
}

RESIDENCY_INLINE Result<std::uint64_t> CudaDevice::held_bytes(Pool pool) {
    const detail::CudaState::RelaxedScope scope{*state_};
    std::uint64_t bytes = 0;
    const cudaError_t code = cudaMemPoolGetAttribute(pool.handle, cudaMemPoolAttrReservedMemCurrent, &bytes);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaMemPoolGetAttribute"); }
    return bytes;
}

RESIDENCY_INLINE Status CudaDevice::trim(Pool pool) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked(cudaMemPoolTrimTo(pool.handle, 0), "cudaMemPoolTrimTo");
}

RESIDENCY_INLINE Result<void*> CudaDevice::allocate_host_with(std::uint64_t bytes, HostFill* write, void* context) {
    if (bytes == 0) { return Error{ErrorKind::invalid_argument, "allocate_host: ask for at least one byte"}; }
    if (bytes >= detail::huge_page_bytes) {  // beyond a limit of its control group the system would end the process
        Status room = host::read_memory_limits().check_room(bytes, "pinned memory");
        if (!room) { return room.error(); }
    }
    struct Unmap {
        std::uint64_t bytes;
        void operator()(void* at) const noexcept { detail::unmap_host(at, bytes); }
    };
    detail::CudaState& s = *state_;
    const detail::CudaState::RelaxedScope scope{s};
    const auto prepare = [&](std::byte* memory) {
        if (write == nullptr) {
            detail::touch_host(memory, bytes, s.host_threads);
            return;
        }
        auto work = [=](std::uint64_t first, std::uint64_t last) {
            write(context, memory + first, first, last - first);
        };
        detail::for_blocks_in_parallel(bytes, std::uint64_t{32} << 20, s.host_threads, work);
    };
    void* at = nullptr;
    detail::CudaHostKind kind = detail::CudaHostKind::registered;
    if (s.has_host_registration || !s.pin) {
        std::unique_ptr<void, Unmap> memory{detail::map_host(bytes, s.huge_pages, s.memory_node), Unmap{bytes}};
        if (memory == nullptr) {
            return Error{ErrorKind::out_of_memory,
                         "the host has no " + residency::detail::in_bytes(bytes) +
                             " of address space or memory left: " + std::strerror(errno),
                         DeviceFailure{errno, "mmap", bytes}};
        }
        prepare(static_cast<std::byte*>(memory.get()));
        if (!s.pin) {
            kind = detail::CudaHostKind::pageable;
        } else if (Status registered = state_->register_host(memory.get(), bytes); !registered) {
            return registered.error();
        }
        at = memory.release();
    } else {
        kind = detail::CudaHostKind::driver;
        const cudaError_t code = cudaHostAlloc(&at, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
        if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaHostAlloc", bytes); }
        prepare(static_cast<std::byte*>(at));
    }
    const std::lock_guard lock{s.host_mutex};
    s.host_blocks.emplace(at, detail::CudaHostBlock{bytes, kind});
    return at;
}

RESIDENCY_INLINE Result<void*> CudaDevice::allocate_host(std::uint64_t bytes) {
    return allocate_host_with(bytes, nullptr, nullptr);
}

RESIDENCY_INLINE Status CudaDevice::deallocate_host(void* at) {
    detail::CudaState& s = *state_;
    detail::CudaHostBlock block{};
    {
        const std::lock_guard lock{s.host_mutex};
        const auto found = s.host_blocks.find(at);
        if (found == s.host_blocks.end()) {
            return Error{ErrorKind::invalid_argument, "deallocate_host: this address is not from allocate_host"};
        }
        block = found->second;
        s.host_blocks.erase(found);
    }
    const detail::CudaState::RelaxedScope scope{s};
    if (block.kind == detail::CudaHostKind::driver) {
        return state_->checked_destruction(cudaFreeHost(at), "cudaFreeHost");
    }
    if (block.kind == detail::CudaHostKind::registered) {
        // Pages that the device may still read are leaked: the system would give them to somebody else.
        if (Status unregistered = unpin(at); !unregistered) { return unregistered; }
    }
    detail::unmap_host(at, block.bytes);
    return {};
}

RESIDENCY_INLINE Status CudaDevice::pin(void* at, std::uint64_t bytes) {
    if (at == nullptr || bytes == 0) { return Error{ErrorKind::invalid_argument, "pin: ask for at least one byte"}; }
    if (!state_->has_host_registration) {
        return state_->unsupported("cannot pin memory that the caller owns", "load into memory from allocate_host");
    }
    if (const std::string file = detail::file_mapping_in(at, bytes); !file.empty()) {
        return Error{ErrorKind::invalid_argument, "pin: these bytes are a mapping of " + file +
                                                      ", and pinning one may never return: read the file into "
                                                      "anonymous memory and pin that"};
    }
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->register_host(at, bytes);
}

RESIDENCY_INLINE Status CudaDevice::unpin(void* at) {
    const detail::CudaState::RelaxedScope scope{*state_};
    return state_->checked_destruction(cudaHostUnregister(at), "cudaHostUnregister");
}

RESIDENCY_INLINE Result<const void*> CudaDevice::device_view(const void* at) {
    const detail::CudaState::RelaxedScope scope{*state_};
    cudaPointerAttributes attributes{};
    const cudaError_t code = cudaPointerGetAttributes(&attributes, at);
    if (code != cudaSuccess) { return state_->runtime_failure(code, "cudaPointerGetAttributes"); }
    if (attributes.type != cudaMemoryTypeHost || attributes.devicePointer == nullptr) {
        if (!state_->pin) { return state_->unsupported("pins no memory", "open it with .pin = true"); }
        return Error{ErrorKind::invalid_argument,
                     "device_view: these bytes are not pinned host memory: pin them first"};
    }
    return attributes.devicePointer;
}

}}  // namespace residency::RESIDENCY_ABI
