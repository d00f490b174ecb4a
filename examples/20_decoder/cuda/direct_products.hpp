// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../config.hpp"
#include "../operations.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed/packer.hpp"

namespace decoder {

/// Products of up to most_direct_tokens by the kernel of examples/60_packed/matvec.cuh, which reads packed matrices as they are. A matrix
/// that is not packed gives the same bits.
class DirectProducts {
public:
    /// For the matrices of a model.
    DirectProducts(residency::CudaDevice& device, const Config& config);
    ~DirectProducts();
    DirectProducts(const DirectProducts&) = delete;
    DirectProducts& operator=(const DirectProducts&) = delete;

    [[nodiscard]] static bool takes(const Linear& o) noexcept {
        return o.tokens <= most_direct_tokens && (o.packed.data != nullptr || o.from % 8 == 0);
    }
    /// Enqueues one. Precondition: takes(o).
    [[nodiscard]] cudaError_t multiply(const Linear& o, cudaStream_t stream) const;
    /// Of the device, for sums of parts of a row.
    [[nodiscard]] std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }

private:
    residency::CudaDevice& device_;
    std::uint32_t multiprocessors_ = 0;
    std::size_t workspace_bytes_ = 0;
    std::byte* workspace_ = nullptr;
};

/// What unpacks weights that kernels do not read packed. As long as the program.
[[nodiscard]] const residency::Unpacker<residency::CudaDevice>& unpacker();

}  // namespace decoder
