// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "residency/codec/tiers.cuh"
#include "residency/codec/tiers_layout.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Unpacks on a GPU. For one file of a program that nvcc compiles; the others know it as Unpacker<CudaDevice>.
class CudaUnpacker final : public Unpacker<CudaDevice> {
public:
    /// `blocks` blocks a launch, each of which fills a multiprocessor. 0: one for each multiprocessor of the GPU.
    explicit CudaUnpacker(unsigned blocks = 0) noexcept : blocks_{blocks} {}

    [[nodiscard]] bool takes(PackedForm form) const noexcept override { return codec::tiers::is_tiers(form); }
    /// As Unpacker says.
    [[nodiscard]] Status enqueue(CudaDevice& device, std::span<const codec::UnpackTask> tasks,
                                 std::span<const PackedPart> parts, const codec::UnpackTask* on_device,
                                 CudaDevice::Stream stream) const override {
        int processors = 0, current = 0;
        cudaError_t code = cudaGetDevice(&current);
        const bool is_other = code == cudaSuccess && current != device.ordinal();
        if (is_other) { code = cudaSetDevice(device.ordinal()); }
        if (code == cudaSuccess && blocks_ == 0) {
            code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.ordinal());
        }
        const unsigned blocks = blocks_ != 0 ? blocks_ : static_cast<unsigned>(processors);
        std::uint64_t bytes = 0;
        // A launch for each form that occurs, which leaves the tasks of others alone.
        codec::tiers::for_each_format([&](auto format) {
            using Format = decltype(format);
            std::uint64_t most_bytes = 0;
            for (const PackedPart& part : parts) {
                if (part.form == Format::form) { most_bytes = std::max(most_bytes, part.raw_bytes); }
            }
            if (most_bytes == 0 || code != cudaSuccess) { return; }
            bytes = most_bytes;
            const auto most_values = static_cast<std::uint32_t>(most_bytes / sizeof(typename Format::Value));
            code = on_device != nullptr
                       ? codec::tiers::enqueue_unpack<Format>(on_device, static_cast<std::uint32_t>(tasks.size()),
                                                              most_values, blocks, stream)
                       : codec::tiers::enqueue_unpack<Format>(tasks, most_values, blocks, stream);
        });
        if (is_other) { static_cast<void>(cudaSetDevice(current)); }
        if (code == cudaSuccess) { return {}; }
        return Error{ErrorKind::device, std::string{"unpack: "} + cudaGetErrorString(code),
                     DeviceFailure{code, "unpack", bytes}};
    }

private:
    unsigned blocks_;
};

}}  // namespace residency::RESIDENCY_ABI
