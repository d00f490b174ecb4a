// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "residency/error.hpp"

#if CUDART_VERSION < 12050
#error "residency needs the CUDA toolkit 12.5 or later (12.8 for batched copies)"
#endif

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

/// Entry points of the driver that the runtime does not offer, found at run time: nothing links against libcuda.
/// `stream_wait_value` and all that follow are null if the driver has no such call; those before are never null.
struct CudaDriver {
    PFN_cuDeviceGet_v2000 device_get = nullptr;
    PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
    PFN_cuDevicePrimaryCtxRetain_v7000 primary_context_retain = nullptr;
    PFN_cuDevicePrimaryCtxRelease_v11000 primary_context_release = nullptr;
    PFN_cuCtxGetCurrent_v4000 context_get_current = nullptr;
    PFN_cuCtxPushCurrent_v4000 context_push = nullptr;
    PFN_cuCtxPopCurrent_v4000 context_pop = nullptr;
    PFN_cuStreamWaitValue32_v11070 stream_wait_value = nullptr;
    PFN_cuMemGetAllocationGranularity_v10020 memory_granularity = nullptr;
    PFN_cuMemAddressReserve_v10020 memory_reserve = nullptr;
    PFN_cuMemAddressFree_v10020 memory_free = nullptr;
    PFN_cuMemCreate_v10020 memory_create = nullptr;
    PFN_cuMemRelease_v10020 memory_release = nullptr;
    PFN_cuMemMap_v10020 memory_map = nullptr;
    PFN_cuMemUnmap_v10020 memory_unmap = nullptr;
    PFN_cuMemSetAccess_v10020 memory_set_access = nullptr;

    /// Error unsupported: the driver lacks a call that is required.
    [[nodiscard]] static Result<CudaDriver> load() {
        CudaDriver driver;
        const char* missing = nullptr;
        const auto find = [&missing](auto& function, const char* name, unsigned version, bool required) {
            void* address = nullptr;
            cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
            // The default flag selects the per-thread variants where this translation unit is compiled for them.
            const cudaError_t code =
                cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
            if (code != cudaSuccess) { static_cast<void>(cudaGetLastError()); }
            if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) {
                function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
            } else if (required && missing == nullptr) {
                missing = name;
            }
        };
        find(driver.device_get, "cuDeviceGet", 2000, true);
        find(driver.device_get_attribute, "cuDeviceGetAttribute", 2000, true);
        find(driver.primary_context_retain, "cuDevicePrimaryCtxRetain", 7000, true);
        find(driver.primary_context_release, "cuDevicePrimaryCtxRelease", 11000, true);
        find(driver.context_get_current, "cuCtxGetCurrent", 4000, true);
        find(driver.context_push, "cuCtxPushCurrent", 4000, true);
        find(driver.context_pop, "cuCtxPopCurrent", 4000, true);
        find(driver.stream_wait_value, "cuStreamWaitValue32", 11070, false);
        find(driver.memory_granularity, "cuMemGetAllocationGranularity", 10020, false);
        find(driver.memory_reserve, "cuMemAddressReserve", 10020, false);
        find(driver.memory_free, "cuMemAddressFree", 10020, false);
        find(driver.memory_create, "cuMemCreate", 10020, false);
        find(driver.memory_release, "cuMemRelease", 10020, false);
        find(driver.memory_map, "cuMemMap", 10020, false);
        find(driver.memory_unmap, "cuMemUnmap", 10020, false);
        find(driver.memory_set_access, "cuMemSetAccess", 10020, false);
        if (missing != nullptr) {
            return Error{ErrorKind::unsupported,
                         std::string{"the NVIDIA driver has no "} + missing + "; install a newer NVIDIA driver",
                         DeviceFailure{cudaErrorCallRequiresNewerDriver, missing, 0}};
        }
        return driver;
    }

    [[nodiscard]] bool has_virtual_memory() const noexcept {
        return memory_granularity != nullptr && memory_reserve != nullptr && memory_free != nullptr &&
               memory_create != nullptr && memory_release != nullptr && memory_map != nullptr &&
               memory_unmap != nullptr && memory_set_access != nullptr;
    }
};

/// Makes a context current in this thread for its lifetime, then restores what was current. Creates no context on another GPU. Costs
/// one thread-local read if the context is current already.
class CudaContextScope {
public:
    CudaContextScope(const CudaDriver& driver, CUcontext context) noexcept : driver_{driver} {
        CUcontext current = nullptr;
        if (driver.context_get_current(&current) == CUDA_SUCCESS && current == context) { return; }
        pushed_ = driver.context_push(context) == CUDA_SUCCESS;
    }
    CudaContextScope(const CudaContextScope&) = delete;
    CudaContextScope& operator=(const CudaContextScope&) = delete;
    ~CudaContextScope() {
        CUcontext popped = nullptr;
        if (pushed_) { static_cast<void>(driver_.context_pop(&popped)); }
    }

private:
    const CudaDriver& driver_;
    bool pushed_ = false;
};

/// During its lifetime, this thread may query and allocate without harm to captures of other streams.
class CudaRelaxedCapture {
public:
    CudaRelaxedCapture() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
    CudaRelaxedCapture(const CudaRelaxedCapture&) = delete;
    CudaRelaxedCapture& operator=(const CudaRelaxedCapture&) = delete;
    ~CudaRelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}}}  // namespace residency::RESIDENCY_ABI::detail
