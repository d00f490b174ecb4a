// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/products.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "benchmarks/gpu/record.hpp"
#include "examples/60_packed/matvec.cuh"

namespace bench {

namespace tiles = residency::codec::bf16_tiles;

Products::Products(std::size_t rows, std::size_t columns) {
    cudaDeviceProp properties{};
    BENCH_CUDA(cudaGetDeviceProperties(&properties, 0));
    multiprocessors_ = static_cast<std::uint32_t>(properties.multiProcessorCount);
    workspace_bytes_ = matvec::counter_bytes + 64 * (rows + tiles::tile_rows) * sizeof(float);
    BENCH_CUDA(cudaMalloc(&x_, 2 * columns + 64));
    BENCH_CUDA(cudaMalloc(&y_, 4 * rows));
    BENCH_CUDA(cudaMalloc(&workspace_, workspace_bytes_));
    BENCH_CUDA(cudaMemset(workspace_, 0, matvec::counter_bytes));
    std::mt19937 random{7};
    std::normal_distribution<float> normal{0, 1};
    std::vector<std::uint16_t> x(columns);
    for (std::uint16_t& value : x) {
        const float drawn = normal(random);
        std::memcpy(&value, reinterpret_cast<const char*>(&drawn) + 2, 2);
    }
    BENCH_CUDA(cudaMemcpy(x_, x.data(), 2 * columns, cudaMemcpyHostToDevice));
}

Products::~Products() {
    static_cast<void>(cudaFree(x_));
    static_cast<void>(cudaFree(y_));
    static_cast<void>(cudaFree(workspace_));
}

void Products::multiply(const std::byte* front, const std::byte* packed, cudaStream_t stream) {
    tiles::Header header;
    std::memcpy(&header, front, sizeof header);
    const tiles::DeviceMatrix matrix = tiles::device_matrix(header, packed);
    const matvec::Cut cut = matvec::cut_of(matrix, 1, multiprocessors_);
    if (matvec::workspace_bytes(matrix, 1, cut) > workspace_bytes_) {
        std::fprintf(stderr, "a matrix of %u rows is larger than the workspace\n", matrix.rows);
        std::exit(1);
    }
    BENCH_CUDA(matvec::enqueue({matrix, static_cast<const std::uint16_t*>(x_), static_cast<float*>(y_), 1,
                                static_cast<std::byte*>(workspace_), cut, matrix.scale()},
                               true, stream));
}

std::vector<float> Products::result(std::size_t rows, cudaStream_t stream) const {
    std::vector<float> y(rows);
    BENCH_CUDA(cudaStreamSynchronize(stream));
    BENCH_CUDA(cudaMemcpy(y.data(), y_, 4 * rows, cudaMemcpyDeviceToHost));
    return y;
}

}  // namespace bench
