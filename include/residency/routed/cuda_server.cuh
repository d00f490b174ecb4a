// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of a cache of experts. For one file of a program that nvcc compiles; the others know it as routed::Server<CudaDevice>.

#include <cuda_runtime_api.h>
#include <cuda/atomic>

#include <algorithm>
#include <cstdint>
#include <string>

#include "residency/codec/task.hpp"
#include "residency/codec/tiers.cuh"
#include "residency/codec/tiers_layout.hpp"
#include "residency/device/cuda.hpp"
#include "residency/error.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/routed_experts.hpp"
#include "residency/routed/serve.hpp"
#include "residency/routed/tables.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed { namespace detail {

inline constexpr unsigned threads = 512;
inline constexpr unsigned warps = threads / 32;

template <class T>
using DeviceAtomic = cuda::atomic_ref<T, cuda::thread_scope_device>;

/// The threads of a block as a team.
struct BlockTeam {
    struct Shared {
        std::uint32_t totals[warps];
        Candidate best[2][warps];
    };

    __device__ explicit BlockTeam(Shared& with) : rank{threadIdx.x}, shared{with} {}

    __device__ void sync() const { __syncthreads(); }
    [[nodiscard]] __device__ std::uint32_t count_before(bool flag, std::uint32_t& total) const {
        const unsigned mask = __ballot_sync(0xffffffffU, flag ? 1 : 0);
        const unsigned warp = rank / 32, lane = rank % 32;
        if (lane == 0) { shared.totals[warp] = static_cast<std::uint32_t>(__popc(mask)); }
        total = static_cast<std::uint32_t>(__syncthreads_count(flag ? 1 : 0));
        if (total == 0) { return 0; }
        std::uint32_t before = static_cast<std::uint32_t>(__popc(mask & ((1U << lane) - 1)));
        if (flag) {
            for (unsigned i = 0; i < warp; ++i) { before += shared.totals[i]; }
        }
        __syncthreads();
        return before;
    }
    [[nodiscard]] __device__ Candidate first_of(Candidate own) const {
        own = first_in_warp(own);
        Candidate* const best = shared.best[turn % 2];  // the other half may still be read
        ++turn;
        if (rank % 32 == 0) { best[rank / 32] = own; }
        __syncthreads();
        return first_in_warp(rank % 32 < warps ? best[rank % 32] : Candidate{});
    }
    __device__ void lower(std::uint32_t& value, std::uint32_t other) const { atomicMin(&value, other); }
    __device__ void add(std::uint64_t& sum, std::uint64_t value) const {
        atomicAdd(reinterpret_cast<unsigned long long*>(&sum), static_cast<unsigned long long>(value));
    }
    [[nodiscard]] __device__ bool set_first(std::uint32_t& flag) const { return atomicCAS(&flag, 0U, 1U) == 0; }
    __device__ void publish(std::uint32_t& flag) const {
        __threadfence_system();
        *static_cast<volatile std::uint32_t*>(&flag) = 1;
    }

    std::uint32_t rank;
    static constexpr std::uint32_t size = threads;
    Shared& shared;

private:
    /// A number that is ordered as the other one is, above 0.
    [[nodiscard]] static __device__ unsigned long long ordered(double value) {
        const auto bits = static_cast<unsigned long long>(__double_as_longlong(value));
        return (bits >> 63U) != 0 ? ~bits : bits | 1ULL << 63U;
    }
    [[nodiscard]] static __device__ unsigned largest(unsigned own) {
#if __CUDA_ARCH__ >= 800
        return __reduce_max_sync(0xffffffffU, own);
#else
        for (int distance = 16; distance > 0; distance /= 2) {
            own = std::max(own, __shfl_xor_sync(0xffffffffU, own, distance));
        }
        return own;
#endif
    }
    /// Of some lanes of the warp, those with the largest number.
    [[nodiscard]] static __device__ unsigned with_largest(unsigned lanes, unsigned own) {
        const bool is_in = (lanes >> (threadIdx.x % 32) & 1U) != 0;
        const unsigned most = largest(is_in ? own : 0);
        return __ballot_sync(0xffffffffU, is_in && own == most ? 1 : 0);
    }
    [[nodiscard]] static __device__ Candidate first_in_warp(const Candidate& own) {
        const unsigned long long first = own.slot == none ? 0 : ordered(own.key.first),
                                 second = ordered(own.key.second);
        unsigned lanes = with_largest(0xffffffffU, static_cast<unsigned>(first >> 32U));
        // One is left after the first of these numbers, most often.
        if (__popc(lanes) > 1) { lanes = with_largest(lanes, static_cast<unsigned>(first)); }
        if (__popc(lanes) > 1) { lanes = with_largest(lanes, static_cast<unsigned>(second >> 32U)); }
        if (__popc(lanes) > 1) { lanes = with_largest(lanes, static_cast<unsigned>(second)); }
        if (__popc(lanes) > 1) { lanes = with_largest(lanes, ~own.order); }
        const int lane = __ffs(static_cast<int>(lanes)) - 1;
        return {{__shfl_sync(0xffffffffU, own.key.first, lane), __shfl_sync(0xffffffffU, own.key.second, lane)},
                __shfl_sync(0xffffffffU, own.slot, lane),
                __shfl_sync(0xffffffffU, own.order, lane)};
    }

    mutable std::uint32_t turn = 0;
};

/// Brings one piece of an expert, by all threads of the block.
__device__ inline void bring_piece(const std::byte* from, std::byte* to, std::uint32_t bytes) {
    constexpr unsigned at_once = piece_bytes / 16 / threads;  // all loads are under way together
    const auto* const in = reinterpret_cast<const uint4*>(from);
    auto* const out = reinterpret_cast<uint4*>(to);
    uint4 words[at_once];
#pragma unroll
    for (unsigned i = 0; i < at_once; ++i) {
        const unsigned at = threadIdx.x + i * threads;
        if (at < bytes / 16) { words[i] = __ldcv(in + at); }
    }
#pragma unroll
    for (unsigned i = 0; i < at_once; ++i) {
        const unsigned at = threadIdx.x + i * threads;
        if (at < bytes / 16) { __stcs(out + at, words[i]); }  // what the model reads often stays in the L2 cache
    }
    for (unsigned i = bytes / 16 * 16 + threadIdx.x; i < bytes; i += threads) {
        to[i] = *static_cast<const volatile std::byte*>(from + i);
    }
}

/// One item of a list of fills: items count the pieces of all fills. `at`, `before`: the fill that had the item before, and the items
/// ahead of that fill; items of one block grow. False: there is no such item.
template <bool is_guess, class P>
__device__ bool bring_item(const Tables<P>& tables, const Fill* fills, std::uint32_t count, std::uint32_t item,
                           std::uint32_t& at, std::uint32_t& before) {
    Fill fill{};
    for (;; ++at) {
        if (at == count) { return false; }
        fill = fills[at];
        const std::uint32_t own = moves_of(fill, is_guess);
        if (item - before < own) { break; }
        before += own;
    }
    const Move move = move_of(tables, fill, at, item - before, is_guess);
    bring_piece(move.from, move.to, static_cast<std::uint32_t>(move.bytes));
    return true;
}

/// Block 0 tells the others the number of fills, and what it wrote before. By all its threads.
__device__ inline void tell(std::uint32_t* listed, std::uint32_t fills) {
    if (threadIdx.x > 0 && threadIdx.x < gridDim.x) {
        if (fills != 0) { __threadfence(); }
        DeviceAtomic<std::uint32_t>{listed[threadIdx.x]}.store(1 + fills, cuda::memory_order_relaxed);
    }
}
/// Another block waits for that, by one thread, and leaves the place as it found it.
[[nodiscard]] __device__ inline std::uint32_t hear(std::uint32_t* listed) {
    const DeviceAtomic<std::uint32_t> own{listed[blockIdx.x]};
    std::uint32_t told = own.load(cuda::memory_order_acquire);
    for (; told == 0; told = own.load(cuda::memory_order_acquire)) { __nanosleep(20); }
    own.store(0, cuda::memory_order_relaxed);
    return told - 1;
}

/// A message of a guess that has something to bring; that of one that has not is 1.
inline constexpr std::uint32_t message_brings = 1U << 16U;
/// Block 0 of a guess tells the others whether there is something to bring. Guesses of a stream and of a graph may overlap: each block takes one
/// message, no matter whose.
__device__ inline void tell_guess(std::uint32_t* messages, bool brings) {
    if (threadIdx.x > 0 && threadIdx.x < gridDim.x) {
        const DeviceAtomic<std::uint32_t> own{messages[threadIdx.x]};
        if (brings) {
            own.fetch_add(message_brings, cuda::memory_order_release);
        } else {
            own.fetch_add(1, cuda::memory_order_relaxed);
        }
    }
}
/// Another block waits for that, by one thread.
[[nodiscard]] __device__ inline bool hear_guess(std::uint32_t* messages) {
    const DeviceAtomic<std::uint32_t> own{messages[blockIdx.x]};
    std::uint32_t told = own.load(cuda::memory_order_relaxed);
    for (;;) {
        if (told == 0) {
            __nanosleep(20);
            told = own.load(cuda::memory_order_relaxed);
        } else if (own.compare_exchange_weak(told, told - (told >= message_brings ? message_brings : 1),
                                             cuda::memory_order_acquire, cuda::memory_order_relaxed)) {
            return told >= message_brings;
        }
    }
}

/// A guess that is enqueued ahead of a call waits for its decision no longer than so: then it brings nothing.
inline constexpr std::uint64_t longest_wait_ns = 100'000;
[[nodiscard]] __device__ inline std::uint64_t now_ns() {
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
/// By one thread.
__device__ inline void await_decision(State& state, std::uint32_t layer) {
    const DeviceAtomic<std::uint32_t> served{state.layer}, gate{state.gate};
    const std::uint64_t begin = now_ns();
    while (served.load(cuda::memory_order_relaxed) != layer ||
           (gate.load(cuda::memory_order_relaxed) & ~gate_guessed) != 0) {
        if (now_ns() - begin > longest_wait_ns) { return; }
        __nanosleep(50);
    }
}

/// Brings a part of a table into the L2 cache, by one of `all` threads.
__device__ inline void ask_for(const void* at, std::uint64_t bytes, unsigned thread, unsigned all) {
    constexpr std::uint64_t line = 128;
    const auto begin = reinterpret_cast<std::uint64_t>(at), end = begin + bytes;
    for (std::uint64_t own = begin / line * line + thread * line; own < end; own += all * line) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(own));
    }
}
/// What block 0 is about to read, by the others: the model's kernels have pushed it out.
template <class P>
__device__ void ask_for_tables(const Tables<P>& tables, const Call& call) {
    const unsigned thread = (blockIdx.x - 1) * threads + threadIdx.x, all = (gridDim.x - 1) * threads;
    const std::uint32_t first = call.first, experts = call.experts;
    const std::uint32_t slots = tables.state->fresh;  // a few more, if block 0 is ahead: nothing depends on it
    ask_for(tables.slot_of + first, experts * sizeof(std::uint32_t), thread, all);
    ask_for(tables.sources + first, experts * sizeof(Source), thread, all);
    ask_for(tables.of_expert + first, experts * sizeof(typename P::OfExpert), thread, all);
    ask_for(tables.slot, slots * sizeof(Slot), thread, all);
    ask_for(tables.of_slot, slots * sizeof(typename P::OfSlot), thread, all);
    ask_for(tables.numbers, sizeof(typename P::Numbers), thread, all);
}

/// Whether no earlier lane of the warp has that expert.
[[nodiscard]] __device__ inline bool is_first_with(std::uint32_t expert) {
    return static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(__match_any_sync(0xffffffffU, expert))) - 1;
}

/// Decides, by all threads of block 0. Returns the number of fills.
template <class P>
__device__ std::uint32_t decide(const Tables<P>& tables, const Call& call) {
    __shared__ Scratch scratch;
    __shared__ BlockTeam::Shared shared;
    __shared__ std::uint32_t gate_before;
    const BlockTeam team{shared};
    State& state = *tables.state;
    const DeviceAtomic<std::uint32_t> gate{state.gate};
    // The last thread closes the gate while others look up choices.
    bool has_guess = false;
    if (threadIdx.x == threads - 1) {
        state.filling = gridDim.x;
        gate_before = gate.fetch_or(gate_closed, cuda::memory_order_relaxed);  // 0: no guess has changed a thing
        has_guess = gate_before != 0;
    }
    Decision<P, BlockTeam> decision{team, scratch, tables, call, false};
    decision.look_up();
    if (__syncthreads_and(call.count <= 32 && !has_guess && decision.has_hit() ? 1 : 0) != 0) {
        tell(state.listed, 0);
        decision.finish_hits(is_first_with(decision.own_expert()));
    } else {
        if (gate_before != 0) {  // it may have blocks
            __syncthreads();
            if (threadIdx.x == threads - 1) {
                do {
                    gate_before = gate.load(cuda::memory_order_acquire);
                } while ((gate_before & ~gate_guessed) != gate_closed);
            }
            __syncthreads();
        }
        decision.list((gate_before & gate_guessed) != 0);
        tell(state.listed, decision.fills());
        decision.finish();
        if (gridDim.x > 1) { decision.look_ahead(); }  // nobody waits for this block
    }
    const std::uint32_t fills = decision.fills();
    if (threadIdx.x == 0 && fills == 0) { state.filling = 0; }
    __syncthreads();
    if (threadIdx.x == threads - 1) { gate.fetch_and(~(gate_closed | gate_guessed), cuda::memory_order_release); }
    return fills;
}

/// Block 0 decides, and the others bring what it lists: it would begin late, and end last. They wait for it: GPUs start block 0 no later than
/// the others, and it waits for none of them.
template <class P>
__global__ void __launch_bounds__(threads, 1) serve_kernel(Tables<P> tables, Call call) {
    __shared__ std::uint32_t count;
    State& state = *tables.state;
    std::uint32_t fills = 0;
    if (blockIdx.x == 0) {
        fills = decide(tables, call);
    } else {
        ask_for_tables(tables, call);
        if (threadIdx.x == 0) { count = hear(state.listed); }
        __syncthreads();
        fills = count;
    }
    if (fills == 0) { return; }
    if (blockIdx.x != 0 || gridDim.x == 1) {
        const std::uint32_t step = gridDim.x == 1 ? 1 : gridDim.x - 1;
        std::uint32_t at = 0, before = 0;
        for (std::uint32_t item = blockIdx.x % step;
             bring_item<false>(tables, tables.fills, fills, item, at, before);) {
            item += step;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) { DeviceAtomic<std::uint32_t>{state.filling}.fetch_sub(1, cuda::memory_order_relaxed); }
}

/// Block 0 decides, unless a call has begun; one that is early waits for the decision of the call before, and brings nothing until that call
/// has brought its own. Then all blocks bring what it lists, piece by piece, until they have all or a call begins: it
/// waits for blocks that are counted in the gate.
template <class P>
__global__ void __launch_bounds__(threads) guess_kernel(Tables<P> tables, Call call) {
    __shared__ Scratch scratch;
    __shared__ BlockTeam::Shared shared;
    __shared__ std::uint32_t count, taken;
    State& state = *tables.state;
    const DeviceAtomic<std::uint32_t> gate{state.gate};
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {  // alone, or not at all
            if (call.is_early) { await_decision(state, call.after); }
            std::uint32_t open = 0;
            do {
                count = gate.compare_exchange_strong(open, open | gate_decides, cuda::memory_order_acquire,
                                                     cuda::memory_order_relaxed)
                            ? 1
                            : 0;
            } while (count == 0 && (open & ~gate_guessed) == 0);
        }
        __syncthreads();
        const bool may = count != 0;
        std::uint32_t fills = 0;
        bool is_decided = false;
        if (may) {
            const BlockTeam team{shared};
            Decision<P, BlockTeam> decision{team, scratch, tables, call, true};
            decision.make();
            fills = decision.fills();
            is_decided = decision.is_decided();
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            count = fills;
            if (may) {
                if (is_decided) { gate.fetch_or(gate_guessed, cuda::memory_order_relaxed); }
                gate.fetch_add(1 - gate_decides, cuda::memory_order_acq_rel);
            }
        }
        __syncthreads();
        tell_guess(state.guess_messages, fills != 0);
        if (!may) { return; }
    } else {
        if (threadIdx.x == 0) {
            count = 0;
            if (hear_guess(state.guess_messages)) {  // the gate says what was decided
                const bool is_late =
                    (gate.fetch_add(1, cuda::memory_order_acquire) & (gate_closed | gate_decides)) != 0;
                count = is_late ? 0 : state.guess_fills;  // none, once a call has come
                if (count == 0) { gate.fetch_sub(1, cuda::memory_order_relaxed); }
            }
        }
        __syncthreads();
        if (count == 0) { return; }
    }
    if (call.is_early && count != 0 && threadIdx.x == 0) {
        const DeviceAtomic<std::uint32_t> filling{state.filling};
        while (filling.load(cuda::memory_order_relaxed) != 0 &&
               (gate.load(cuda::memory_order_relaxed) & gate_closed) == 0) {
            __nanosleep(50);
        }
    }
    std::uint32_t at = 0, before = 0;
    for (;;) {
        if (threadIdx.x == 0) {
            const bool is_over = (gate.load(cuda::memory_order_relaxed) & gate_closed) != 0;
            taken = is_over || count == 0
                        ? none
                        : DeviceAtomic<std::uint32_t>{state.guess_next}.fetch_add(1, cuda::memory_order_relaxed);
        }
        __syncthreads();
        const std::uint32_t item = taken;
        __syncthreads();
        if (item == none || !bring_item<true>(tables, tables.guess_fills, count, item, at, before)) { break; }
    }
    __syncthreads();
    if (threadIdx.x == 0) { gate.fetch_sub(1, cuda::memory_order_release); }
}

/// Experts in the staging area as tasks of codec/tiers.cuh. Raw parts are none.
template <class P>
struct UnpackTasks {
    const Tables<P>& tables;
    const Unpacking& unpacking;
    __device__ codec::UnpackTask operator[](std::uint32_t i) const {
        const StagedPart part = staged_part(tables, unpacking, i);
        return {part.form == PackedForm::raw ? nullptr : part.packed, part.raw};
    }
};
/// Unpacks parts of the form of F.
template <class F, class P>
__global__ void __launch_bounds__(codec::tiers::block_threads)
    unpack_kernel(Tables<P> tables, Unpacking unpacking, std::uint32_t groups_each) {
    codec::tiers::detail::unpack_groups<F, false>(UnpackTasks<P>{tables, unpacking}, staged_parts(tables, unpacking),
                                                  groups_each, nullptr);
}
/// Copies the raw parts of packed experts, `pieces_each` pieces each.
template <class P>
__global__ void __launch_bounds__(threads)
    copy_parts_kernel(Tables<P> tables, Unpacking unpacking, std::uint32_t pieces_each) {
    const std::uint32_t turns = staged_parts(tables, unpacking) * pieces_each;
    for (std::uint32_t turn = blockIdx.x; turn < turns; turn += gridDim.x) {
        const StagedPart part = staged_part(tables, unpacking, turn / pieces_each);
        const std::uint64_t at = std::uint64_t{turn % pieces_each} * piece_bytes;
        if (part.packed == nullptr || part.form != PackedForm::raw || at >= part.raw_bytes) { continue; }
        const std::uint64_t left = part.raw_bytes - at;
        bring_piece(part.packed + at, part.raw + at,
                    left < piece_bytes ? static_cast<std::uint32_t>(left) : piece_bytes);
    }
}

}}}}  // namespace residency::RESIDENCY_ABI::routed::detail

namespace residency { inline namespace RESIDENCY_ABI {

/// Runs a cache of experts on a GPU. Kernels bring experts from pinned host memory: `blocks` blocks a call, of which one decides and, unless
/// it is the only one, brings nothing; `guess_blocks` a guess: so many pieces are under way when a call ends it. Packed experts are unpacked by `unpack_blocks` blocks, each of
/// which fills a multiprocessor; 0: one for each multiprocessor.
template <routed::Policy P = routed::ExpectedUse>
class CudaServer final : public routed::Server<CudaDevice, P> {
public:
    explicit CudaServer(unsigned blocks = 32, unsigned guess_blocks = 4, unsigned unpack_blocks = 0) noexcept
        : blocks_{std::clamp(blocks, 1U, routed::most_blocks)},
          guess_blocks_{std::clamp(guess_blocks, 1U, routed::most_blocks)},
          unpack_blocks_{unpack_blocks} {}

    /// As Server says.
    /// @{
    [[nodiscard]] Status serve(CudaDevice& device, const routed::Tables<P>& tables, const routed::Call& call,
                               CudaDevice::Stream stream) const override {
        return on(device, "serve experts", [&] {
            return launch(routed::detail::serve_kernel<P>, blocks_, routed::detail::threads, stream, tables, call);
        });
    }
    [[nodiscard]] Status unpack(CudaDevice& device, const routed::Tables<P>& tables, const routed::Unpacking& unpacking,
                                CudaDevice::Stream stream) const override {
        return on(device, "unpack experts", [&] {
            int processors = 1;
            cudaError_t code = cudaSuccess;
            if (unpack_blocks_ == 0) {
                code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.ordinal());
            }
            const unsigned blocks = unpack_blocks_ != 0 ? unpack_blocks_ : static_cast<unsigned>(processors);
            const auto has = [&](PackedForm form) { return (tables.forms >> static_cast<unsigned>(form) & 1U) != 0; };
            codec::tiers::for_each_format([&](auto format) {
                using Format = decltype(format);
                if (code != cudaSuccess || !has(Format::form)) { return; }
                const std::uint32_t groups = codec::tiers::detail::groups_of(
                    static_cast<std::uint32_t>(tables.part_bytes / sizeof(typename Format::Value)));
                code = launch(routed::detail::unpack_kernel<Format, P>, blocks, codec::tiers::block_threads, stream,
                              tables, unpacking, groups);
            });
            if (code != cudaSuccess || !has(PackedForm::raw)) { return code; }
            return launch(routed::detail::copy_parts_kernel<P>, blocks, routed::detail::threads, stream, tables,
                          unpacking, routed::pieces_of(tables.part_bytes));
        });
    }
    [[nodiscard]] Status guess(CudaDevice& device, const routed::Tables<P>& tables, const routed::Call& call,
                               CudaDevice::Stream stream) const override {
        return on(device, "guess experts", [&] {
            return launch(routed::detail::guess_kernel<P>, guess_blocks_, routed::detail::threads, stream, tables,
                          call);
        });
    }
    [[nodiscard]] bool waits_for_calls() const noexcept override { return true; }
    /// @}

private:
    template <class... Parameters, class... Arguments>
    [[nodiscard]] static cudaError_t launch(void (*kernel)(Parameters...), unsigned blocks, unsigned block_threads,
                                            cudaStream_t stream, const Arguments&... arguments) {
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(block_threads);
        config.stream = stream;
        return cudaLaunchKernelEx(&config, kernel, arguments...);
    }
    /// Launches on that device, and leaves the caller's current one as it was.
    template <class Launch>
    [[nodiscard]] static Status on(CudaDevice& device, const char* what, const Launch& enqueue) {
        int current = 0;
        cudaError_t code = cudaGetDevice(&current);
        const bool is_other = code == cudaSuccess && current != device.ordinal();
        if (is_other) { code = cudaSetDevice(device.ordinal()); }
        if (code == cudaSuccess) { code = enqueue(); }
        if (is_other) { static_cast<void>(cudaSetDevice(current)); }
        if (code == cudaSuccess) { return {}; }
        return Error{ErrorKind::device, std::string{what} + ": " + cudaGetErrorString(code),
                     DeviceFailure{code, what, 0}};
    }

    unsigned blocks_, guess_blocks_, unpack_blocks_;
};

}}  // namespace residency::RESIDENCY_ABI
