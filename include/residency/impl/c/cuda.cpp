// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "residency/device/cuda.hpp"
#include "residency/impl/c/opened_model.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace c {

/// A cudaStream_t.
template <>
struct StreamPointer<CudaDevice> {
    [[nodiscard]] static CudaStream from(const CudaDevice&, void* pointer) noexcept {
        return CudaStream{static_cast<CUstream_st*>(pointer)};
    }
    [[nodiscard]] static void* to(CudaStream stream) noexcept { return stream.get(); }
};

bool has_cuda() noexcept { return true; }

Result<std::unique_ptr<Model>> open_cuda(int ordinal, OpenRequest request) {
    auto device = CudaDevice::try_open(ordinal);
    if (!device) { return device.error(); }
    return open_on(std::make_unique<CudaDevice>(std::move(*device)), std::move(request));
}

}}}  // namespace residency::RESIDENCY_ABI::c
