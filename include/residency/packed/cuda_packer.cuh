// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "residency/codec/packed_part.hpp"
#include "residency/codec/tiers.cuh"
#include "residency/codec/tiers_layout.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

static_assert(codec::tiers::most_kernel_raw_bytes == codec::part_bytes);

/// Packs on a GPU. For one file of a program that nvcc compiles; the others know it as Packer<CudaDevice>.
class CudaPacker final : public Packer<CudaDevice> {
public:
    [[nodiscard]] bool takes(PackedForm form) const noexcept override { return codec::tiers::is_tiers(form); }
    [[nodiscard]] std::uint64_t workspace_bytes(std::size_t tasks) const noexcept override {
        return codec::tiers::pack_workspace_bytes(static_cast<std::uint32_t>(tasks));
    }
    /// As Packer says.
    [[nodiscard]] Status enqueue(CudaDevice& device, const PackBatch& batch, CudaDevice::Stream stream) const override {
        int processors = 0, current = 0;
        cudaError_t code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.ordinal());
        if (code == cudaSuccess) { code = cudaGetDevice(&current); }
        const bool is_other = code == cudaSuccess && current != device.ordinal();
        if (is_other) { code = cudaSetDevice(device.ordinal()); }
        if (code == cudaSuccess) {
            code = codec::tiers::enqueue_checked_pack(
                {batch.tasks, batch.on_device, batch.results, batch.differing, batch.workspace},
                static_cast<unsigned>(processors), stream);
        }
        if (is_other) { static_cast<void>(cudaSetDevice(current)); }
        if (code == cudaSuccess) { return {}; }
        return Error{ErrorKind::device, std::string{"pack: "} + cudaGetErrorString(code),
                     DeviceFailure{code, "pack", batch.tasks.size() * codec::tiers::most_kernel_raw_bytes}};
    }
};

}}  // namespace residency::RESIDENCY_ABI
