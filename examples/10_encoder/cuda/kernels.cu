// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <cstddef>

#include "residency/packed/cuda_unpacker.cuh"

namespace encoder {
namespace {

constexpr unsigned threads = 128;  // of a block that works on a row

/// The sum over the block, in an order that does not change from run to run.
__device__ float block_sum(float value) {
    __shared__ float sums[threads];
    sums[threadIdx.x] = value;
    __syncthreads();
    for (unsigned width = threads / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) { sums[threadIdx.x] += sums[threadIdx.x + width]; }
        __syncthreads();
    }
    const float total = sums[0];
    __syncthreads();
    return total;
}

__device__ void normalise(const float* row, const float* scale, const float* shift, float* out, unsigned n,
                          float epsilon) {
    float sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += threads) { sum += row[i]; }
    const float mean = block_sum(sum) / float(n);
    float square = 0;
    for (unsigned i = threadIdx.x; i < n; i += threads) { square += (row[i] - mean) * (row[i] - mean); }
    const float factor = rsqrtf(block_sum(square) / float(n) + epsilon);
    for (unsigned i = threadIdx.x; i < n; i += threads) { out[i] = (row[i] - mean) * factor * scale[i] + shift[i]; }
}

__global__ void embed(Embed o) {
    extern __shared__ float row[];
    const float* word = o.words + std::size_t(o.ids[blockIdx.x]) * o.hidden;
    const float* place = o.places + std::size_t(o.positions[blockIdx.x]) * o.hidden;
    for (unsigned i = threadIdx.x; i < o.hidden; i += threads) { row[i] = word[i] + place[i] + o.segments[i]; }
    __syncthreads();
    normalise(row, o.scale, o.shift, o.out + std::size_t(blockIdx.x) * o.hidden, o.hidden, o.epsilon);
}

__global__ void add_normalise(AddNormalise o) {
    extern __shared__ float row[];
    const std::size_t at = std::size_t(blockIdx.x) * o.hidden;
    for (unsigned i = threadIdx.x; i < o.hidden; i += threads) { row[i] = o.in[at + i] + o.residual[at + i]; }
    __syncthreads();
    normalise(row, o.scale, o.shift, o.out + at, o.hidden, o.epsilon);
}

constexpr unsigned tile = 16;

/// A block makes tile × tile results.
__global__ void linear(Linear o) {
    __shared__ float in[tile][tile + 1], weight[tile][tile + 1];
    const unsigned token = blockIdx.y * tile + threadIdx.y, output = blockIdx.x * tile + threadIdx.x;
    const unsigned row = blockIdx.x * tile + threadIdx.y;  // of the weights that this thread loads
    float sum = 0;
    for (unsigned k = 0; k < o.from; k += tile) {
        const unsigned column = k + threadIdx.x;
        in[threadIdx.y][threadIdx.x] =
            token < o.tokens && column < o.from ? o.in[std::size_t(token) * o.from + column] : 0.0F;
        weight[threadIdx.y][threadIdx.x] =
            row < o.to && column < o.from ? o.weight[std::size_t(row) * o.from + column] : 0.0F;
        __syncthreads();
        for (unsigned i = 0; i < tile; ++i) { sum += in[threadIdx.y][i] * weight[threadIdx.x][i]; }
        __syncthreads();
    }
    if (token >= o.tokens || output >= o.to) { return; }
    sum += o.bias[output];
    if (o.gelu) { sum *= 0.5F * (1 + erff(sum * 0.70710678F)); }
    o.out[std::size_t(token) * o.to + output] = sum;
}

/// A block attends for one token and one head. Shared memory: a score for each token of the sentence.
__global__ void attention(Attention o) {
    extern __shared__ float scores[];
    const unsigned width = o.hidden / o.heads, token = blockIdx.x, head = blockIdx.y;
    unsigned sentence = 0;
    while (o.starts[sentence + 1] <= int(token)) { ++sentence; }
    const unsigned first = unsigned(o.starts[sentence]), length = unsigned(o.starts[sentence + 1]) - first;
    const float* query = o.query + std::size_t(token) * o.hidden + head * width;
    const float factor = rsqrtf(float(width));
    for (unsigned u = threadIdx.x; u < length; u += threads) {
        const float* key = o.key + std::size_t(first + u) * o.hidden + head * width;
        float sum = 0;
        for (unsigned i = 0; i < width; ++i) { sum += query[i] * key[i]; }
        scores[u] = sum * factor;
    }
    __syncthreads();
    float largest = scores[0];
    for (unsigned u = 1; u < length; ++u) { largest = fmaxf(largest, scores[u]); }
    float total = 0;
    for (unsigned u = 0; u < length; ++u) { total += expf(scores[u] - largest); }
    for (unsigned i = threadIdx.x; i < width; i += threads) {
        float sum = 0;
        for (unsigned u = 0; u < length; ++u) {
            sum += expf(scores[u] - largest) * o.value[std::size_t(first + u) * o.hidden + head * width + i];
        }
        o.out[std::size_t(token) * o.hidden + head * width + i] = sum / total;
    }
}

__global__ void pool(Pool o) {
    extern __shared__ float mean[];
    const unsigned first = unsigned(o.starts[blockIdx.x]), end = unsigned(o.starts[blockIdx.x + 1]);
    float square = 0;
    for (unsigned i = threadIdx.x; i < o.hidden; i += threads) {
        float sum = 0;
        for (unsigned t = first; t < end; ++t) { sum += o.in[std::size_t(t) * o.hidden + i]; }
        mean[i] = sum;
        square += sum * sum;
    }
    const float length = fmaxf(sqrtf(block_sum(square)), 1e-12F);
    for (unsigned i = threadIdx.x; i < o.hidden; i += threads) {
        o.out[std::size_t(blockIdx.x) * o.hidden + i] = mean[i] / length;
    }
}

}  // namespace

cudaError_t launch(const Embed& o, cudaStream_t stream) {
    embed<<<o.tokens, threads, o.hidden * sizeof(float), stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Linear& o, cudaStream_t stream) {
    linear<<<dim3((o.to + tile - 1) / tile, (o.tokens + tile - 1) / tile), dim3(tile, tile), 0, stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Attention& o, cudaStream_t stream) {
    attention<<<dim3(o.tokens, o.heads), threads, o.tokens * sizeof(float), stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const AddNormalise& o, cudaStream_t stream) {
    add_normalise<<<o.tokens, threads, o.hidden * sizeof(float), stream>>>(o);
    return cudaGetLastError();
}
cudaError_t launch(const Pool& o, cudaStream_t stream) {
    pool<<<o.sentences, threads, o.hidden * sizeof(float), stream>>>(o);
    return cudaGetLastError();
}

const residency::Unpacker<residency::CudaDevice>& unpacker() {
    static const residency::CudaUnpacker one;
    return one;
}

}  // namespace encoder
