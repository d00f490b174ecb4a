// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The engine on a GPU: one cooperative kernel for any number of layers. C++17.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cuda/gpu.hpp"
#include "engine.hpp"

namespace engine {
namespace {

constexpr unsigned threads = 512, warps = threads / 32;

void check(cudaError_t code, const char* what) {
    if (code == cudaSuccess) { return; }
    std::fprintf(stderr, "foreign_engine: %s: %s\n", what, cudaGetErrorString(code));
    std::exit(2);
}

__device__ float number(Bf16 bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16U); }
__device__ float warp_sum(float value) {
    for (unsigned lane = 16; lane != 0; lane /= 2) { value += __shfl_xor_sync(~0U, value, lane); }
    return value;
}
/// The same for all threads of a block; `shared` has `warps` floats.
__device__ float block_sum(float value, float* shared) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) { shared[threadIdx.x / 32] = value; }
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < warps ? shared[threadIdx.x % 32] : 0.0F);
}
/// A row of weights with x, by a warp; `count` is a multiple of 256.
__device__ float dot(const Bf16* weights, const float* x, unsigned count) {
    float sum = 0;
#pragma unroll 4
    for (unsigned i = threadIdx.x % 32 * 8; i < count; i += 256) {
        const uint4 eight = __ldcs(reinterpret_cast<const uint4*>(weights + i));
        const float4 a = *reinterpret_cast<const float4*>(x + i), b = *reinterpret_cast<const float4*>(x + i + 4);
        sum += __uint_as_float(eight.x << 16U) * a.x + __uint_as_float(eight.x & 0xFFFF0000U) * a.y;
        sum += __uint_as_float(eight.y << 16U) * a.z + __uint_as_float(eight.y & 0xFFFF0000U) * a.w;
        sum += __uint_as_float(eight.z << 16U) * b.x + __uint_as_float(eight.z & 0xFFFF0000U) * b.y;
        sum += __uint_as_float(eight.w << 16U) * b.z + __uint_as_float(eight.w & 0xFFFF0000U) * b.w;
    }
    return warp_sum(sum);
}
/// x, normalized, in the block's shared memory.
__device__ void normalize(const float* x, const Bf16* norm, unsigned count, float* out, float* shared) {
    float square = 0;
    for (unsigned i = threadIdx.x; i < count; i += threads) { square += x[i] * x[i]; }
    const float scale = rsqrtf(block_sum(square, shared) / static_cast<float>(count) + 1e-5F);
    for (unsigned i = threadIdx.x; i < count; i += threads) { out[i] = x[i] * scale * number(norm[i]); }
    __syncthreads();
}
__device__ void rotate(float* at, unsigned i, unsigned size, unsigned position) {
    const float angle =
        static_cast<float>(position) * powf(10000.0F, -static_cast<float>(i) / static_cast<float>(size));
    float s, c;
    sincosf(angle, &s, &c);
    const float a = at[i], b = at[i + 1];
    at[i] = a * c - b * s;
    at[i + 1] = a * s + b * c;
}
/// One head, by one block.
__device__ void attend(const Launch& o, unsigned layer, unsigned head, float* memory, float* shared) {
    const Config& c = o.config;
    const unsigned size = c.dim / c.heads, at = head * size, p = o.position;
    float* const keys = o.state.keys + std::size_t{layer} * c.positions * c.dim + at;
    float* const values = o.state.values + std::size_t{layer} * c.positions * c.dim + at;
    float *const q = memory, *const k = memory + size, *const scores = memory + 2 * size;
    for (unsigned i = threadIdx.x; i < size; i += threads) {
        q[i] = o.state.qkv[at + i];
        k[i] = o.state.qkv[c.dim + at + i];
        values[std::size_t{p} * c.dim + i] = o.state.qkv[2 * c.dim + at + i];
    }
    __syncthreads();
    for (unsigned i = 2 * threadIdx.x; i < size; i += 2 * threads) {
        rotate(q, i, size, p);
        rotate(k, i, size, p);
        keys[std::size_t{p} * c.dim + i] = k[i];
        keys[std::size_t{p} * c.dim + i + 1] = k[i + 1];
    }
    __syncthreads();
    for (unsigned t = threadIdx.x / 32; t <= p; t += warps) {
        float score = 0;
        for (unsigned i = threadIdx.x % 32; i < size; i += 32) { score += q[i] * keys[std::size_t{t} * c.dim + i]; }
        score = warp_sum(score) * rsqrtf(static_cast<float>(size));
        if (threadIdx.x % 32 == 0) { scores[t] = score; }
    }
    __syncthreads();
    float most = -1e30F, part = 0;
    for (unsigned t = 0; t <= p; ++t) { most = fmaxf(most, scores[t]); }
    for (unsigned t = threadIdx.x; t <= p; t += threads) { part += expf(scores[t] - most); }
    const float sum = block_sum(part, shared);
    for (unsigned i = threadIdx.x; i < size; i += threads) {
        float value = 0;
        for (unsigned t = 0; t <= p; ++t) { value += expf(scores[t] - most) * values[std::size_t{t} * c.dim + i]; }
        o.state.attended[at + i] = value / sum;
    }
}

__global__ void __launch_bounds__(threads) run_layers(const Launch o) {
    namespace cg = cooperative_groups;
    const cg::grid_group grid = cg::this_grid();
    extern __shared__ float memory[];  // what a matrix is multiplied with
    __shared__ float shared[warps];
    const Config& c = o.config;
    const State& s = o.state;
    const unsigned dim = c.dim, hidden = c.hidden;
    const unsigned warp = blockIdx.x * warps + threadIdx.x / 32, all_warps = gridDim.x * warps;
    const bool is_first_lane = threadIdx.x % 32 == 0;
    Bf16* const* const last = o.table + std::size_t{c.layers} * per_layer;
    if (o.first == 0) {
        const Bf16* const row = last[embedding] + std::size_t{o.token} * dim;
        for (unsigned i = blockIdx.x * threads + threadIdx.x; i < dim; i += gridDim.x * threads) {
            s.x[i] = number(row[i]);
        }
        grid.sync();
    }
    for (unsigned layer = o.first; layer < o.last && layer < c.layers; ++layer) {
        Bf16* const* const w = o.table + std::size_t{layer} * per_layer;
        normalize(s.x, w[norm_attention], dim, memory, shared);
        for (unsigned row = warp; row < 3 * dim; row += all_warps) {
            const Bf16* const matrix = w[row < dim ? query : row < 2 * dim ? key : value];
            const float sum = dot(matrix + std::size_t{row % dim} * dim, memory, dim);
            if (is_first_lane) { s.qkv[row] = sum; }
        }
        grid.sync();
        if (blockIdx.x < c.heads) { attend(o, layer, blockIdx.x, memory, shared); }
        grid.sync();
        for (unsigned i = threadIdx.x; i < dim; i += threads) { memory[i] = s.attended[i]; }
        __syncthreads();
        for (unsigned row = warp; row < dim; row += all_warps) {
            const float sum = dot(w[output] + std::size_t{row} * dim, memory, dim);
            if (is_first_lane) { s.x[row] += sum; }
        }
        grid.sync();
        normalize(s.x, w[norm_ffn], dim, memory, shared);
        for (unsigned row = warp; row < hidden; row += all_warps) {
            const float g = dot(w[gate] + std::size_t{row} * dim, memory, dim);
            const float u = dot(w[up] + std::size_t{row} * dim, memory, dim);
            if (is_first_lane) { s.activated[row] = u * g / (1.0F + expf(-g)); }
        }
        grid.sync();
        for (unsigned i = threadIdx.x; i < hidden; i += threads) { memory[i] = s.activated[i]; }
        __syncthreads();
        for (unsigned row = warp; row < dim; row += all_warps) {
            const float sum = dot(w[down] + std::size_t{row} * hidden, memory, hidden);
            if (is_first_lane) { s.x[row] += sum; }
        }
        grid.sync();
    }
    if (!o.classify || o.last <= c.layers) { return; }
    normalize(s.x, last[norm_last], dim, memory, shared);
    for (unsigned row = warp; row < c.vocabulary; row += all_warps) {
        const float sum = dot(last[classifier] + std::size_t{row} * dim, memory, dim);
        if (is_first_lane) { s.logits[row] = sum; }
    }
    grid.sync();
    if (blockIdx.x != 0) { return; }
    __shared__ float best[threads];
    __shared__ unsigned where[threads];
    __shared__ unsigned long long sums[threads];
    const unsigned me = threadIdx.x;
    best[me] = -1e30F;
    where[me] = 0;
    sums[me] = 0;
    for (unsigned i = me; i < c.vocabulary; i += threads) {
        const float logit = s.logits[i];
        sums[me] += static_cast<unsigned long long>(__float_as_uint(logit)) * (2ULL * i + 1);
        if (logit > best[me]) {
            best[me] = logit;
            where[me] = i;
        }
    }
    for (unsigned half = threads / 2; half != 0; half /= 2) {
        __syncthreads();
        if (me >= half) { continue; }
        sums[me] += sums[me + half];
        if (best[me + half] > best[me] || (best[me + half] == best[me] && where[me + half] < where[me])) {
            best[me] = best[me + half];
            where[me] = where[me + half];
        }
    }
    if (me == 0) {
        o.sampled->token = where[0];
        o.sampled->checksum = sums[0];
    }
}

cudaStream_t stream = nullptr;
unsigned blocks = 0, memory_bytes = 0;
char name[256] = "GPU";

}  // namespace

cudaStream_t gpu_stream() { return stream; }

bool gpu_open() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "foreign_engine: no GPU\n");
        return false;
    }
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    std::snprintf(name, sizeof name, "%s", properties.name);
    for (char* at = name; *at != '\0'; ++at) {
        if (*at == ' ') { *at = '-'; }
    }
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    memory_bytes = 32U << 10U;  // with what the kernel declares, below the 48 KiB that need no further call
    int per_processor = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, run_layers, threads, memory_bytes),
          "occupancy");
    blocks = static_cast<unsigned>(properties.multiProcessorCount * (per_processor < 2 ? per_processor : 2));
    return true;
}
void gpu_close() { check(cudaStreamDestroy(stream), "cudaStreamDestroy"); }
const char* gpu_name() { return name; }
void* gpu_allocate(std::size_t bytes) {
    void* at = nullptr;
    check(cudaMalloc(&at, bytes), "cudaMalloc");
    check(cudaMemset(at, 0, bytes), "cudaMemset");
    return at;
}
void gpu_free(void* at) { check(cudaFree(at), "cudaFree"); }
void* gpu_allocate_pinned(std::size_t bytes) {
    void* at = nullptr;
    check(cudaHostAlloc(&at, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    return at;
}
void gpu_free_pinned(void* at) { check(cudaFreeHost(at), "cudaFreeHost"); }
void gpu_copy(void* to, const void* from, std::size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
}
void gpu_run(const Launch& launch) {
    Launch copy = launch;
    void* arguments[] = {&copy};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(run_layers), dim3{blocks}, dim3{threads}, arguments,
                                      memory_bytes, stream),
          "the kernel");
}
void gpu_wait() { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
double gpu_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace engine
