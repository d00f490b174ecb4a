// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <iterator>
#include <mutex>

#include "residency/device/cuda.hpp"
#include "residency/device/cuda_state.hpp"

// CudaDevice: virtual memory.

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<void*> CudaDevice::reserve(std::uint64_t bytes) {
    detail::CudaState& s = *state_;
    if (!s.has_virtual_memory) { return state_->without_virtual_memory(); }
    if (Status fits = state_->check_granularity("reserve", bytes); !fits) { return fits.error(); }
    const detail::CudaState::RelaxedScope scope{s};
    CUdeviceptr at = 0;
    const CUresult code = s.driver.memory_reserve(&at, bytes, s.chunk_granularity, 0, 0);
    if (code != CUDA_SUCCESS) { return state_->failure(code, "cuMemAddressReserve", bytes); }
    return reinterpret_cast<void*>(at);
}

RESIDENCY_INLINE Status CudaDevice::release(void* at, std::uint64_t bytes) {
    detail::CudaState& s = *state_;
    if (!s.has_virtual_memory) { return state_->without_virtual_memory(); }
    const detail::CudaState::RelaxedScope scope{s};
    return state_->checked(s.driver.memory_free(reinterpret_cast<CUdeviceptr>(at), bytes), "cuMemAddressFree", bytes);
}

RESIDENCY_INLINE Result<CudaDevice::Chunk> CudaDevice::create_chunk(std::uint64_t bytes) {
    detail::CudaState& s = *state_;
    if (!s.has_virtual_memory) { return state_->without_virtual_memory(); }
    if (Status fits = state_->check_granularity("create_chunk", bytes); !fits) { return fits.error(); }
    const detail::CudaState::RelaxedScope scope{s};
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, s.device};
    CUmemGenericAllocationHandle handle = 0;
    const CUresult code = s.driver.memory_create(&handle, bytes, &wanted, 0);
    if (code != CUDA_SUCCESS) { return state_->failure(code, "cuMemCreate", bytes); }
    return Chunk{handle};
}

RESIDENCY_INLINE Status CudaDevice::destroy_chunk(Chunk chunk) {
    detail::CudaState& s = *state_;
    if (!s.has_virtual_memory) { return state_->without_virtual_memory(); }
    const detail::CudaState::RelaxedScope scope{s};
    return state_->checked(s.driver.memory_release(chunk.handle), "cuMemRelease");
}

RESIDENCY_INLINE Status CudaDevice::map(std::span<const Mapping<Chunk>> mappings, std::uint64_t bytes) {
    detail::CudaState& s = *state_;
    if (!s.has_virtual_memory) { return state_->without_virtual_memory(); }
    if (Status fits = state_->check_granularity("map", bytes); !fits) { return fits; }
    const CaptureGate::Call call{*s.captures};
    if (call.is_refused()) { return detail::refused_in_capture("mapping memory"); }
    const auto address = [](const Mapping<Chunk>& mapping) { return reinterpret_cast<CUdeviceptr>(mapping.at); };
    const detail::CudaState::RelaxedScope scope{s};
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
            return state_->failure(code, "cuMemMap", bytes);
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
            return state_->failure(code, "cuMemSetAccess", (last - first) * bytes);
        }
        first = last;
    }
    for (const Mapping<Chunk>& mapping : mappings) { s.mappings.emplace(address(mapping), bytes); }
    return {};
}

RESIDENCY_INLINE Status CudaDevice::unmap(void* at, std::uint64_t bytes) {
    detail::CudaState& s = *state_;
    if (!s.has_virtual_memory) { return state_->without_virtual_memory(); }
    const CaptureGate::Call call{*s.captures};
    if (call.is_refused()) { return detail::refused_in_capture("unmapping memory"); }
    const auto first = reinterpret_cast<CUdeviceptr>(at);
    const detail::CudaState::RelaxedScope scope{s};
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
                state_->checked(s.driver.memory_unmap(mapping->first, mapping->second), "cuMemUnmap", mapping->second);
            !done) {
            return done;
        }
    }
    return {};
}

}}  // namespace residency::RESIDENCY_ABI
