// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// y = W x by a kernel that reads packed matrices as they are (examples/60_packed/matvec.cuh).
class Products {
public:
    /// For matrices of at most so many rows and columns.
    Products(std::size_t rows, std::size_t columns);
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;
    ~Products();

    /// Enqueues one product. `front`: the first bytes of the packed matrix, in host memory; `packed`: all of it, on the device.
    void multiply(const std::byte* front, const std::byte* packed, cudaStream_t stream);
    /// Blocks. The result of the last product.
    [[nodiscard]] std::vector<float> result(std::size_t rows, cudaStream_t stream) const;

private:
    std::uint32_t multiprocessors_ = 0;
    void* x_ = nullptr;
    void* y_ = nullptr;
    void* workspace_ = nullptr;
    std::size_t workspace_bytes_ = 0;
};

}  // namespace bench
