// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "residency/codec/bf16_tiles.cuh"

/// y = W x for a packed matrix and up to eight vectors: a complete kernel that reads weights in their packed form. The same input
/// gives the same bits, and those of the same matrix in plain tiles or row by row.
///
/// A matrix is cut into row groups of 16 rows, and across into slices. A block takes one slice of some row groups, a warp each. The sums
/// of the slices go to a workspace; the block that is last there adds them in the order of the slices.
namespace matvec {

namespace tiles = residency::codec::bf16_tiles;

inline constexpr std::uint32_t warps = 8;
inline constexpr std::uint32_t most_vectors = 8;
inline constexpr std::size_t counter_bytes = 4096;  // of a workspace, in front of the sums of the slices

inline constexpr std::uint32_t row_words = 0;  // in place of the words of a tile: the matrix lies row by row

/// A matrix that is not packed, row by row in device memory. `values`: at a multiple of 16; `columns`: a multiple of 8.
[[nodiscard]] inline tiles::DeviceMatrix matrix_of_rows(const std::uint16_t* values, std::uint32_t rows,
                                                        std::uint32_t columns) noexcept {
    constexpr std::uint32_t two_tiles = 2 * tiles::tile_columns;
    tiles::DeviceMatrix matrix;
    matrix.packed = reinterpret_cast<const std::byte*>(values);
    matrix.rows = rows;
    matrix.columns = columns;
    matrix.row_groups = (rows + tiles::tile_rows - 1) / tiles::tile_rows;
    matrix.tiles_across = (columns + two_tiles - 1) / two_tiles * 2;
    matrix.words = row_words;
    return matrix;
}

/// How a product is cut up for a GPU.
struct Cut {
    std::uint32_t slices = 1;
    std::uint32_t blocks_each = 1;  ///< of a slice
};

/// The cut with the least work of the warp that has most. `multiprocessors`: of the GPU; two blocks run on each.
[[nodiscard]] inline Cut cut_of(const tiles::DeviceMatrix& matrix, std::uint32_t vectors,
                                std::uint32_t multiprocessors) {
    const std::uint32_t blocks = 2 * multiprocessors, across = matrix.tiles_across / 2;
    constexpr std::uint32_t most_shared_bytes = 16384;  // for the slice of x
    constexpr double start_tiles = 2;                   // what a row group costs beside its tiles
    Cut best;
    double least = 0;
    for (std::uint32_t slices = 1; slices <= std::min({across, blocks, 64U}); ++slices) {
        const std::uint32_t tiles_each = (across + slices - 1) / slices * 2;
        if (slices < across && tiles_each * tiles::tile_columns * 2 * vectors > most_shared_bytes) { continue; }
        const std::uint32_t each = std::max(1U, std::min(blocks / slices, (matrix.row_groups + warps - 1) / warps));
        const double rounds = (matrix.row_groups + each * warps - 1) / (each * warps);
        const double work = rounds * (tiles_each + start_tiles);
        if (least == 0 || work < least) {
            least = work;
            best = {slices, each};
        }
    }
    return best;
}

/// Bytes that a product needs beside its operands, zeroed before the first use. Products one after another on a stream may share
/// them.
[[nodiscard]] inline std::size_t workspace_bytes(const tiles::DeviceMatrix& matrix, std::uint32_t vectors,
                                                 const Cut& cut) {
    const std::uint32_t padded = vectors == 3 ? 4 : vectors > 4 ? 8 : vectors;
    return counter_bytes + std::size_t{cut.slices} * matrix.row_groups * tiles::tile_rows * padded * sizeof(float);
}

/// What a product reads and writes, all of it in device memory.
struct Operands {
    tiles::DeviceMatrix matrix;
    const std::uint16_t* x = nullptr;  ///< bf16, [vectors][columns], at a multiple of 16
    float* y = nullptr;                ///< [vectors][rows]
    std::uint32_t vectors = 1;         ///< up to most_vectors
    std::byte* workspace = nullptr;
    Cut cut;
    float scale = 1;
    const std::uint16_t* bias = nullptr;  ///< bf16, [rows], added to every vector, or none
    std::uint16_t* rounded = nullptr;     ///< bf16, [vectors][rows]: where the result goes, rounded, instead of y
};

namespace detail {

__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Brings the tiles of a warp as TileStream does, from a matrix that lies row by row.
class RowStream {
    static constexpr std::uint32_t stages = 3;  // of two tiles each
    static constexpr std::uint32_t row_bytes = tiles::tile_columns * 2;
    static constexpr std::uint32_t tile_bytes = tiles::tile_rows * row_bytes;
    static constexpr std::uint32_t piece_values = 8;  // of 16 bytes

public:
    /// Shared memory of one warp.
    struct alignas(128) Shared {
        std::byte ring[stages * 2 * tile_bytes];
    };

    __device__ __forceinline__ RowStream(const tiles::DeviceMatrix& matrix, const tiles::WarpTiles& mine,
                                         Shared& shared)
        : lane_{threadIdx.x & 31},
          values_{reinterpret_cast<const std::uint16_t*>(matrix.packed)},
          rows_{matrix.rows},
          columns_{matrix.columns},
          tiles_{mine},
          ring_{shared.ring},
          pairs_{mine.groups * (mine.count / 2)},
          started_group_{mine.first_group} {
#pragma unroll 1
        for (std::uint32_t i = 0; i < stages; ++i) { start(); }
    }

    template <class Tile, class End>
    __device__ __forceinline__ void run(Tile&& tile, End&& end) {
        std::uint32_t stage = 0, across = 0, group = tiles_.first_group;
#pragma unroll 1
        for (std::uint32_t turn = 0; turn < pairs_; ++turn) {
            asm volatile("cp.async.wait_group %0;" ::"n"(stages - 1) : "memory");
            __syncwarp();
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                std::uint32_t pairs[16];
#pragma unroll
                for (std::uint32_t i = 0; i < 4; ++i) {
                    const uint4 four = *reinterpret_cast<const uint4*>(ring_ + (2 * stage + half) * tile_bytes +
                                                                       place(i / 2, 2 * (lane_ & 3) + i % 2));
                    pairs[4 * i] = four.x, pairs[4 * i + 1] = four.y, pairs[4 * i + 2] = four.z;
                    pairs[4 * i + 3] = four.w;
                }
                tile(pairs, across + half);
            }
            __syncwarp();
            start();  // into the stage that was read
            if (++stage == stages) { stage = 0; }
            across += 2;
            if (across == tiles_.count) {
                end(group);
                across = 0;
                group += tiles_.step;
            }
        }
    }

private:
    /// Where 16 bytes of the rows of this lane, lane / 4 and lane / 4 + 8, lie in a tile: so that neither copies nor loads of a warp
    /// meet on a bank.
    [[nodiscard]] __device__ __forceinline__ std::uint32_t place(std::uint32_t lower, std::uint32_t piece) const {
        const std::uint32_t row = lane_ / 4;
        return (row + 8 * lower) * row_bytes + (piece ^ (row & 1) * 5) * 16;
    }
    /// Starts the copy of the next two tiles, if there are any. What is not there becomes zero.
    __device__ __forceinline__ void start() {
        if (started_ < pairs_) {
#pragma unroll
            for (std::uint32_t i = 0; i < 8; ++i) {
                const std::uint32_t half = i / 4, lower = i / 2 % 2, piece = (lane_ & 3) + 4 * (i % 2);
                const std::uint32_t row = started_group_ * tiles::tile_rows + lane_ / 4 + 8 * lower;
                const std::uint32_t column =
                    (tiles_.first_tile + started_across_ + half) * tiles::tile_columns + piece * piece_values;
                const bool is_there = row < rows_ && column < columns_;
                const std::uint16_t* const from = values_ + (is_there ? std::size_t{row} * columns_ + column : 0);
                const std::byte* const to = ring_ + (2 * started_stage_ + half) * tile_bytes + place(lower, piece);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                                 static_cast<std::uint32_t>(__cvta_generic_to_shared(to))),
                             "l"(from), "r"(is_there ? 16 : 0)
                             : "memory");
            }
            started_across_ += 2;
            if (started_across_ == tiles_.count) {
                started_across_ = 0;
                started_group_ += tiles_.step;
            }
            ++started_;
            if (++started_stage_ == stages) { started_stage_ = 0; }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    const std::uint32_t lane_;
    const std::uint16_t* const values_;
    const std::uint32_t rows_, columns_;
    const tiles::WarpTiles tiles_;
    std::byte* const ring_;
    const std::uint32_t pairs_;  // of tiles, in all
    std::uint32_t started_ = 0, started_stage_ = 0, started_across_ = 0, started_group_;
};

/// What brings the tiles of a matrix with so many words.
template <std::uint32_t words>
struct StreamOf {
    using Type = tiles::TileStream<words>;
};
template <>
struct StreamOf<row_words> {
    using Type = RowStream;
};

/// A finished sum becomes a result, if the matrix has the row.
__device__ __forceinline__ void finish(const Operands& operands, std::uint32_t row, std::uint32_t vector, float sum) {
    if (row >= operands.matrix.rows || vector >= operands.vectors) { return; }
    float value = sum * operands.scale;
    if (operands.bias != nullptr) { value += __uint_as_float(std::uint32_t{operands.bias[row]} << 16); }
    const std::size_t at = std::size_t{vector} * operands.matrix.rows + row;
    if (operands.rounded != nullptr) {
        operands.rounded[at] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
    } else {
        operands.y[at] = value;
    }
}

template <std::uint32_t words, std::uint32_t vectors>
__global__ void __launch_bounds__(warps * 32, 2) product(const Operands operands) {
    using Stream = typename StreamOf<words>::Type;
    extern __shared__ std::byte shared_bytes[];
    std::byte* const aligned = shared_bytes + (128 - reinterpret_cast<std::uintptr_t>(shared_bytes) % 128) % 128;
    auto* const streams = reinterpret_cast<typename Stream::Shared*>(aligned);
    std::byte* const x_shared = aligned + warps * sizeof(typename Stream::Shared);
    const tiles::DeviceMatrix& matrix = operands.matrix;
    const std::uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    let_next_start();
    const std::uint32_t slice = blockIdx.x % operands.cut.slices, block = blockIdx.x / operands.cut.slices;
    const std::uint32_t across = matrix.tiles_across / 2;
    const std::uint32_t begin = static_cast<std::uint32_t>(std::uint64_t{across} * slice / operands.cut.slices) * 2;
    const std::uint32_t end = static_cast<std::uint32_t>(std::uint64_t{across} * (slice + 1) / operands.cut.slices) * 2;
    const std::uint32_t group = block * warps + warp, step = operands.cut.blocks_each * warps;
    const tiles::WarpTiles mine{
        group, step, group < matrix.row_groups ? (matrix.row_groups - group + step - 1) / step : 0, begin, end - begin};
    Stream stream{matrix, mine, streams[warp]};  // the weights are on their way before x is there

    wait_for_previous();
    const std::uint32_t columns = (end - begin) * tiles::tile_columns, first_column = begin * tiles::tile_columns;
    const std::uint32_t x_stride = columns * 2 + 16;  // bytes; 16 more, so that the vectors lie on different banks
    for (std::uint32_t i = threadIdx.x; i < vectors * (columns / 8); i += warps * 32) {
        const std::uint32_t vector = i / (columns / 8), column = i % (columns / 8) * 8, at = first_column + column;
        const std::uint16_t* const from = operands.x + std::size_t{vector} * matrix.columns + at;
        uint4 eight = {};
        if (vector < operands.vectors && at + 8 <= matrix.columns && matrix.columns % 8 == 0) {
            eight = *reinterpret_cast<const uint4*>(from);
        } else if (vector < operands.vectors) {  // behind the columns x is zero
            std::uint32_t values[8];
            for (std::uint32_t k = 0; k < 8; ++k) { values[k] = at + k < matrix.columns ? from[k] : 0; }
            eight = make_uint4(values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                               values[6] | values[7] << 16);
        }
        *reinterpret_cast<uint4*>(x_shared + std::size_t{vector} * x_stride + column * 2) = eight;
    }
    __syncthreads();

    float* const partial = reinterpret_cast<float*>(operands.workspace + counter_bytes);
    const std::size_t slice_values = std::size_t{matrix.row_groups} * tiles::tile_rows * vectors;
    const auto store = [&](std::uint32_t row, std::uint32_t vector, float sum) {
        if (operands.cut.slices > 1) {
            partial[slice * slice_values + std::size_t{row} * vectors + vector] = sum;
        } else {
            finish(operands, row, vector, sum);
        }
    };
    float sums[4] = {};
    const std::byte* const x_lane = x_shared + std::size_t{lane / 4 % vectors} * x_stride + (lane & 3) * 32;
    stream.run(
        [&](const std::uint32_t(&pairs)[16], std::uint32_t t) {
            const uint4* const from = reinterpret_cast<const uint4*>(x_lane + t * (tiles::tile_columns * 2));
            const uint4 x[2] = {from[0], from[1]};
            tiles::multiply_mma(pairs, x, sums);
        },
        [&](std::uint32_t row_group) {
            const std::uint32_t row = row_group * tiles::tile_rows + lane / 4, vector = 2 * (lane & 3);
            if (vector < vectors) {
                store(row, vector, sums[0]);
                store(row + 8, vector, sums[2]);
            }
            if (vector + 1 < vectors) {
                store(row, vector + 1, sums[1]);
                store(row + 8, vector + 1, sums[3]);
            }
            sums[0] = sums[1] = sums[2] = sums[3] = 0;
        });
    if (operands.cut.slices == 1) { return; }

    // The last of the blocks with these row groups adds up the slices.
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    auto* const counter = reinterpret_cast<std::uint32_t*>(operands.workspace) + block;
    if (threadIdx.x == 0) {
        is_last = atomicAdd(counter, 1U) == operands.cut.slices - 1;
        if (is_last) { *counter = 0; }
    }
    __syncthreads();
    if (!is_last) { return; }
    __threadfence();
    for (std::uint32_t at = group; at < matrix.row_groups; at += step) {
        for (std::uint32_t i = lane; i < tiles::tile_rows * vectors; i += 32) {
            const std::size_t value = std::size_t{at} * tiles::tile_rows * vectors + i;
            float sum = 0;
            for (std::uint32_t first = 0; first < operands.cut.slices; first += 8) {
                float eight[8];  // loaded together, added in the order of the slices
#pragma unroll
                for (std::uint32_t k = 0; k < 8; ++k) {
                    eight[k] =
                        first + k < operands.cut.slices ? __ldcg(partial + (first + k) * slice_values + value) : 0;
                }
#pragma unroll
                for (std::uint32_t k = 0; k < 8; ++k) { sum += eight[k]; }
            }
            finish(operands, at * tiles::tile_rows + i / vectors, i % vectors, sum);
        }
    }
}

template <std::uint32_t words, std::uint32_t vectors>
[[nodiscard]] cudaError_t enqueue(const Operands& operands, bool overlaps_previous, cudaStream_t stream) {
    using Shared = typename StreamOf<words>::Type::Shared;
    const std::uint32_t slices = operands.cut.slices, across = operands.matrix.tiles_across / 2;
    const std::uint32_t columns = (across + slices - 1) / slices * 2 * tiles::tile_columns;
    const std::size_t shared = 128 + warps * sizeof(Shared) + std::size_t{vectors} * (columns * 2 + 16);
    if (const cudaError_t code = cudaFuncSetAttribute(
            product<words, vectors>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
        code != cudaSuccess) {
        return code;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3{slices * operands.cut.blocks_each};
    config.blockDim = dim3{warps * 32};
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = overlaps_previous ? 1 : 0;
    return cudaLaunchKernelEx(&config, product<words, vectors>, operands);
}
template <std::uint32_t words>
[[nodiscard]] cudaError_t enqueue(const Operands& operands, bool overlaps_previous, cudaStream_t stream) {
    switch (operands.vectors) {
        case 1: return enqueue<words, 1>(operands, overlaps_previous, stream);
        case 2: return enqueue<words, 2>(operands, overlaps_previous, stream);
        case 3:
        case 4: return enqueue<words, 4>(operands, overlaps_previous, stream);
        default: return enqueue<words, 8>(operands, overlaps_previous, stream);
    }
}

}  // namespace detail

/// Enqueues y = W x. `overlaps_previous`: the kernel may start while the one before it on the stream still runs, and then waits for it
/// before it reads x; only where the weights are there already and nothing on the stream changes them.
[[nodiscard]] inline cudaError_t enqueue(const Operands& operands, bool overlaps_previous, cudaStream_t stream) {
    switch (operands.matrix.words) {
        case tiles::packed_words: return detail::enqueue<tiles::packed_words>(operands, overlaps_previous, stream);
        case tiles::plain_words: return detail::enqueue<tiles::plain_words>(operands, overlaps_previous, stream);
        default: return detail::enqueue<row_words>(operands, overlaps_previous, stream);
    }
}

}  // namespace matvec
