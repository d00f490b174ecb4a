// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "residency/codec/bf16_tiles_layout.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/config.hpp"

// Device code of codec::Bf16Tiles, for kernels of your own that read packed weights: a stream of decoded tiles, and what to do with
// them. For files that nvcc compiles. examples/60_packed/ has a whole kernel.

namespace residency { inline namespace RESIDENCY_ABI { namespace codec { namespace bf16_tiles {

/// A packed matrix as kernels take it, by value.
struct DeviceMatrix {
    const std::byte* packed = nullptr;  ///< in device memory, at a multiple of packed_alignment_bytes
    std::uint32_t rows = 0, columns = 0;
    std::uint32_t row_groups = 0;  ///< of 16 rows; the last one may go beyond the rows
    std::uint32_t tiles_across =
        0;  ///< of 64 columns, even; the last two may go beyond the columns, where they hold finite numbers
    std::uint32_t words = 0;  ///< a lane and tile: packed_words or plain_words
    std::int32_t shift = 0;
    std::uint32_t constant = 0;
    std::uint64_t escapes_at = 0;

    /// What the decoded values have to be multiplied with: a power of two, so that a sum is multiplied once, and exactly.
    [[nodiscard]] float scale() const noexcept { return std::ldexp(1.0F, -shift); }
};

/// The matrix whose packed form begins with `header`, at an address in device memory.
[[nodiscard]] inline DeviceMatrix device_matrix(const Header& header, const std::byte* packed) noexcept {
    return {packed,       header.rows,  header.columns,  header.row_groups, header.tiles_across,
            header.words, header.shift, header.constant, header.escapes_at};
}

/// Which tiles a warp reads: `count` consecutive ones of a row group, then the same of the row group `step` further on, and so on.
struct WarpTiles {
    std::uint32_t first_group = 0;  ///< row group
    std::uint32_t step = 1;         ///< to its next row group
    std::uint32_t groups = 0;       ///< how many row groups
    std::uint32_t first_tile = 0;   ///< across, even
    std::uint32_t count = 0;        ///< tiles of each row group, even
};

namespace detail {

constexpr std::uint32_t all_lanes = ~std::uint32_t{0};

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/// Stages that bulk copies fill, one lane each, with a barrier a stage.
template <std::uint32_t stages>
class StageFill {
public:
    struct Shared {
        std::uint64_t barriers[stages];
    };
    __device__ __forceinline__ StageFill(Shared& shared, std::uint32_t lane)
        : barriers_{shared_address(&shared.barriers[0])}, lane_{lane} {
        if (lane == 0) {
            for (std::uint32_t i = 0; i < stages; ++i) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + 8 * i));
            }
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
        __syncwarp();
    }
    template <std::uint32_t bytes>
    __device__ __forceinline__ void start(std::uint32_t stage, std::uint32_t to, const std::byte* from) {
        if (lane_ != 0) { return; }
        const std::uint32_t barrier = barriers_ + 8 * stage;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
            "%4;" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier), "l"(policy_)
            : "memory");
    }
    __device__ __forceinline__ void start_none() {}
    __device__ __forceinline__ void wait(std::uint32_t stage, std::uint32_t phase) {
        asm volatile("{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(
                         barriers_ + 8 * stage),
                     "r"(phase)
                     : "memory");
        __syncwarp();
    }

private:
    std::uint32_t barriers_, lane_;
    std::uint64_t policy_;
};
#else
/// Stages that all lanes fill, 16 bytes each at a time; the oldest is waited for.
template <std::uint32_t stages>
class StageFill {
public:
    struct Shared {};
    __device__ __forceinline__ StageFill(Shared&, std::uint32_t lane) : lane_{lane} {}
    template <std::uint32_t bytes>
    __device__ __forceinline__ void start(std::uint32_t, std::uint32_t to, const std::byte* from) {
#pragma unroll
        for (std::uint32_t at = 0; at < bytes; at += 512) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at + 16 * lane_),
                         "l"(from + at + 16 * lane_)
                         : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ __forceinline__ void start_none() { asm volatile("cp.async.commit_group;" ::: "memory"); }
    __device__ __forceinline__ void wait(std::uint32_t, std::uint32_t) {
        asm volatile("cp.async.wait_group %0;" ::"n"(stages - 1) : "memory");
        __syncwarp();
    }

private:
    std::uint32_t lane_;
};
#endif

}  // namespace detail

/// Brings the tiles of a warp from device memory and decodes them, several ahead of their use. `words`: packed_words or plain_words,
/// as the matrix has. All lanes of a warp make every call together.
template <std::uint32_t words>
class TileStream {
    static constexpr std::uint32_t stages = 3;  // of two tiles each
    static constexpr std::uint32_t stage_bytes = 2 * tile_bytes(words);
    static constexpr bool has_escapes = words == packed_words;

public:
    /// Shared memory of one warp.
    struct alignas(128) Shared {
        std::byte ring[stages * stage_bytes];
        std::uint32_t patch[has_escapes ? 512 : 1];
        typename detail::StageFill<stages>::Shared fill;
    };

    /// Starts the first copies: before the kernel waits for what the weights do not depend on.
    __device__ __forceinline__ TileStream(const DeviceMatrix& matrix, const WarpTiles& tiles, Shared& shared)
        : shared_{shared},
          lane_{threadIdx.x & 31},
          fill_{shared.fill, lane_},
          constant_{matrix.constant},
          tiles_{tiles},
          pairs_{tiles.groups * (tiles.count / 2)},
          first_{tiles.first_group * matrix.tiles_across + tiles.first_tile},
          skip_{tiles.step * matrix.tiles_across - tiles.count},
          ring_{detail::shared_address(shared.ring)},
          next_{matrix.packed + packed_header_bytes + std::size_t{first_} * tile_bytes(words)},
          escapes_{reinterpret_cast<const std::uint32_t*>(matrix.packed + matrix.escapes_at)} {
#pragma unroll 1
        for (std::uint32_t i = 0; i < stages; ++i) { start(); }
        if constexpr (has_escapes) {
            for (std::uint32_t i = lane_; i < 512; i += 32) { shared_.patch[i] = constant_; }
            if (pairs_ != 0) { load_block(first_ / escape_tiles); }
        }
        __syncwarp();
    }

    /// Calls tile(pairs, t) for each tile in order: `pairs` are this lane's 16 pairs of w · 2^shift, and t counts the tiles of the row
    /// group from the first that this warp reads. tile() computes with all pairs and keeps none of them as they are: a load that is
    /// still under way when it returns may see the bytes of a later tile. Calls end(group) after the last tile of each row group.
    template <class Tile, class End>
    __device__ __forceinline__ void run(Tile&& tile, End&& end) {
        std::uint32_t stage = 0, phase = 0, across = 0, group = tiles_.first_group, at = first_;
#pragma unroll 1
        for (std::uint32_t turn = 0; turn < pairs_; ++turn) {
            fill_.wait(stage, phase);
            const std::byte* const slot = shared_.ring + stage * stage_bytes;
            const bool ends = across + 2 == tiles_.count;
            const std::uint32_t following = ends ? at + 2 + skip_ : at + 2;
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                std::uint32_t in[words], patch[16], pairs[16];
                load_words(slot + half * tile_bytes(words), in);
                if constexpr (has_escapes) {
                    place_escapes(at + half);
                    load_patch(patch);
                    __syncwarp();
                    take_back_escapes(at + half);
                } else {
#pragma unroll
                    for (int i = 0; i < 16; ++i) { patch[i] = 0; }
                }
                __syncwarp();
                pairs_of_lane(in, patch, pairs);
                tile(pairs, across + half);
            }
            __syncwarp();
            start();  // into the stage that was read: not before tile() has used what was loaded from it
            if constexpr (has_escapes) {
                if (following / escape_tiles != at / escape_tiles && turn + 1 < pairs_) {
                    load_block(following / escape_tiles);
                }
            }
            if (++stage == stages) {
                stage = 0;
                phase ^= 1;
            }
            at = following;
            across += 2;
            if (ends) {
                end(group);
                across = 0;
                group += tiles_.step;
            }
        }
    }

private:
    /// Starts the copy of the next two tiles, if there are any.
    __device__ __forceinline__ void start() {
        if (started_ < pairs_) {
            fill_.template start<stage_bytes>(started_stage_, ring_ + started_stage_ * stage_bytes, next_);
            next_ += stage_bytes;
            started_across_ += 2;
            if (started_across_ == tiles_.count) {
                started_across_ = 0;
                next_ += std::size_t{skip_} * tile_bytes(words);
            }
            ++started_;
            if (++started_stage_ == stages) { started_stage_ = 0; }
        } else {
            fill_.start_none();
        }
    }
    __device__ __forceinline__ void load_words(const std::byte* tile, std::uint32_t (&in)[words]) const {
        const uint4* const from = reinterpret_cast<const uint4*>(tile) + lane_;
#pragma unroll
        for (std::uint32_t i = 0; i < words / 4; ++i) {
            const uint4 four = from[i * 32];
            in[4 * i] = four.x, in[4 * i + 1] = four.y, in[4 * i + 2] = four.z, in[4 * i + 3] = four.w;
        }
    }
    __device__ __forceinline__ void load_patch(std::uint32_t (&patch)[16]) const {
        const uint4* const from = reinterpret_cast<const uint4*>(shared_.patch) + lane_;
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const uint4 four = from[i * 32];
            patch[4 * i] = four.x, patch[4 * i + 1] = four.y, patch[4 * i + 2] = four.z, patch[4 * i + 3] = four.w;
        }
    }
    /// The escape block of 32 tiles, an entry a lane. A block that goes on is rare: its tiles are then looked for block by block.
    __device__ __forceinline__ void load_block(std::uint32_t block) {
        entry_ = __ldg(escapes_ + std::size_t{block} * escape_entries + lane_);
    }
    [[nodiscard]] __device__ __forceinline__ static bool is_of(std::uint32_t entry, std::uint32_t tile) {
        return entry >> 26 == (32 | (tile & 31));
    }
    __device__ __forceinline__ void put(std::uint32_t entry, std::uint16_t value) {
        reinterpret_cast<std::uint16_t*>(shared_.patch)[entry >> 16 & 1023] = value;
    }
    /// Calls visit(entry) for the entries of a tile that are in the blocks that this group's block links to.
    template <class Visit>
    __device__ __forceinline__ void for_linked(std::uint32_t tile, Visit&& visit) {
        std::uint32_t link = __shfl_sync(detail::all_lanes, entry_, 31);
#pragma unroll 1
        while (is_link(link)) {
            const std::uint32_t entry = __ldg(escapes_ + std::size_t{link} * escape_entries + lane_);
            if (is_of(entry, tile)) { visit(entry); }
            link = __shfl_sync(detail::all_lanes, entry, 31);
        }
    }
    __device__ __forceinline__ void place_escapes(std::uint32_t tile) {
        if (is_of(entry_, tile)) { put(entry_, static_cast<std::uint16_t>(entry_)); }
        for_linked(tile, [&](std::uint32_t entry) { put(entry, static_cast<std::uint16_t>(entry)); });
        __syncwarp();
    }
    __device__ __forceinline__ void take_back_escapes(std::uint32_t tile) {
        const auto constant = static_cast<std::uint16_t>(constant_);
        if (is_of(entry_, tile)) { put(entry_, constant); }
        for_linked(tile, [&](std::uint32_t entry) { put(entry, constant); });
    }

    Shared& shared_;
    const std::uint32_t lane_;
    detail::StageFill<stages> fill_;
    const std::uint32_t constant_;
    const WarpTiles tiles_;
    const std::uint32_t pairs_;  // of tiles, in all
    const std::uint32_t first_;  // tile
    const std::uint32_t skip_;   // tiles from the end of a row group's to its next ones
    const std::uint32_t ring_;
    const std::byte* next_;
    const std::uint32_t* escapes_;
    std::uint32_t entry_ = 0;  // this lane's, of the escape block at hand
    std::uint32_t started_ = 0, started_stage_ = 0, started_across_ = 0;
};

/// Adds tile · x to a lane's sums by mma.m16n8k16, for up to 8 vectors at a time. `x`: the 16 values of vector lane / 4 that belong to
/// columns 16 (lane mod 4) … of the tile, as bf16. sums[0], sums[1]: row lane / 4 of vectors 2 (lane mod 4) and the next;
/// sums[2], sums[3]: the same of row lane / 4 + 8.
__device__ __forceinline__ void multiply_mma(const std::uint32_t (&pairs)[16], const uint4 (&x)[2], float (&sums)[4]) {
    const std::uint32_t columns[8] = {x[0].x, x[0].y, x[0].z, x[0].w, x[1].x, x[1].y, x[1].z, x[1].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(pairs[2 * i]), "r"(pairs[8 + 2 * i]), "r"(pairs[2 * i + 1]), "r"(pairs[9 + 2 * i]),
              "r"(columns[2 * i]), "r"(columns[2 * i + 1]));
    }
}

/// Adds tile · x to a lane's sums in float, for one vector. `x`: the 16 values of columns 16 (lane mod 4) … of the tile, as float.
/// sums[0]: row lane / 4, sums[1]: row lane / 4 + 8; those of the four lanes of a row are still to be added.
__device__ __forceinline__ void multiply_ffma(const std::uint32_t (&pairs)[16], const float (&x)[16],
                                              float (&sums)[2]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const std::uint32_t pair = pairs[8 * row + i];
            sums[row] = fmaf(__uint_as_float(pair << 16), x[2 * i], sums[row]);
            sums[row] = fmaf(__uint_as_float(pair & 0xffff0000U), x[2 * i + 1], sums[row]);
        }
    }
}

/// The pairs with the bits of the weights themselves.
__device__ __forceinline__ void restore(std::uint32_t (&pairs)[16], std::int32_t shift) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        pairs[i] = shifted_back(pairs[i] & 0xffff, shift) | shifted_back(pairs[i] >> 16, shift) << 16;
    }
}

namespace detail {

inline constexpr unsigned unpack_warps = 8;

/// Unpacks a matrix row by row. A warp takes a quarter of every so manieth row group, so that matrices of few rows keep all warps busy.
template <std::uint32_t words>
__global__ void __launch_bounds__(unpack_warps * 32) unpack_kernel(DeviceMatrix matrix, std::uint16_t* raw) {
    constexpr std::uint32_t parts = 4;
    extern __shared__ std::byte shared_bytes[];
    using Stream = TileStream<words>;
    auto* const shared =
        reinterpret_cast<typename Stream::Shared*>((reinterpret_cast<std::uintptr_t>(shared_bytes) + 127) / 128 * 128);
    const std::uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const std::uint32_t first = blockIdx.x * unpack_warps + warp, step = gridDim.x * unpack_warps / parts;
    const std::uint32_t which = first % parts, group = first / parts, across = matrix.tiles_across / 2;
    const std::uint32_t begin = across * which / parts * 2, end = across * (which + 1) / parts * 2;
    const bool has_none = begin == end || group >= matrix.row_groups;
    const WarpTiles tiles{group, step, has_none ? 0 : (matrix.row_groups - group + step - 1) / step, begin,
                          end - begin};
    Stream stream{matrix, tiles, shared[warp]};
    std::uint32_t at = group;
    stream.run(
        [&](std::uint32_t(&pairs)[16], std::uint32_t t) {
            restore(pairs, matrix.shift);
            const std::uint32_t column = (begin + t) * tile_columns + 16 * (lane & 3);
#pragma unroll
            for (std::uint32_t half = 0; half < 2; ++half) {
                const std::uint32_t row = at * tile_rows + lane / 4 + 8 * half;
                if (row >= matrix.rows) { continue; }
                std::uint16_t* const to = raw + std::size_t{row} * matrix.columns + column;
                if (column + 16 <= matrix.columns && matrix.columns % 8 == 0) {
                    uint4* const out = reinterpret_cast<uint4*>(to);
                    out[0] = make_uint4(pairs[8 * half], pairs[8 * half + 1], pairs[8 * half + 2], pairs[8 * half + 3]);
                    out[1] =
                        make_uint4(pairs[8 * half + 4], pairs[8 * half + 5], pairs[8 * half + 6], pairs[8 * half + 7]);
                    continue;
                }
#pragma unroll
                for (std::uint32_t i = 0; i < 16; ++i) {
                    if (column + i < matrix.columns) {
                        to[i] = static_cast<std::uint16_t>(pairs[8 * half + i / 2] >> 16 * (i % 2));
                    }
                }
            }
        },
        [&](std::uint32_t) { at += step; });
}

template <std::uint32_t words>
[[nodiscard]] inline cudaError_t enqueue_unpack(const DeviceMatrix& matrix, std::byte* raw, unsigned blocks,
                                                cudaStream_t stream) {
    const std::size_t shared = unpack_warps * sizeof(typename TileStream<words>::Shared) + 128;
    if (const cudaError_t code = cudaFuncSetAttribute(unpack_kernel<words>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                      static_cast<int>(shared));
        code != cudaSuccess) {
        return code;
    }
    unpack_kernel<words><<<blocks, unpack_warps * 32, shared, stream>>>(matrix, reinterpret_cast<std::uint16_t*>(raw));
    return cudaGetLastError();
}

}  // namespace detail

/// Enqueues a kernel that unpacks a matrix to its raw bytes, row by row, at a multiple of 16: for kernels that read raw weights, such as
/// those of a library.
[[nodiscard]] inline cudaError_t enqueue_unpack(const DeviceMatrix& matrix, std::byte* raw, unsigned blocks,
                                                cudaStream_t stream) {
    return matrix.words == packed_words ? detail::enqueue_unpack<packed_words>(matrix, raw, blocks, stream)
                                        : detail::enqueue_unpack<plain_words>(matrix, raw, blocks, stream);
}

}}}}  // namespace residency::RESIDENCY_ABI::codec::bf16_tiles
