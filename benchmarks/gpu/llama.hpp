// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/pinned_weights.hpp"
#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/schedule.hpp"
#include "tests/gpu/harness.hpp"

namespace bench {

/// The sizes of a model of that family.
struct Shape {
    std::string name;
    std::uint64_t hidden, inner;
    std::uint32_t layers;
    std::uint64_t key_value = 1024, vocabulary = 128256;
};

/// Everything but the embedding table, whose rows an engine reads from the host.
struct Llama : PinnedWeights {
    std::uint64_t norm_bytes;
    std::uint32_t layers;
    std::vector<std::vector<residency::WeightId>> steps;  // a matrix each, with the norm before it
    std::vector<std::size_t> layer_begin;                 // the first weight of each layer, and of the head

    /// `word`: what 8 random bytes become.
    template <class Word>
    Llama(residency::CudaDevice& device, const Shape& shape, Word word)
        : norm_bytes{shape.hidden * 2}, layers{shape.layers} {
        const auto& [title, hidden, inner, layer_count, key_value, vocabulary] = shape;
        for (std::uint32_t i = 0; i < layers; ++i) {
            const std::string layer = "model.layers." + std::to_string(i) + ".";
            layer_begin.push_back(names.size());
            const residency::WeightId before = add(layer + "input_layernorm.weight", hidden);
            steps.push_back({before, add(layer + "self_attn.q_proj.weight", hidden * hidden, hidden)});
            steps.push_back({add(layer + "self_attn.k_proj.weight", key_value * hidden, hidden)});
            steps.push_back({add(layer + "self_attn.v_proj.weight", key_value * hidden, hidden)});
            steps.push_back({add(layer + "self_attn.o_proj.weight", hidden * hidden, hidden)});
            const residency::WeightId after = add(layer + "post_attention_layernorm.weight", hidden);
            steps.push_back({after, add(layer + "mlp.gate_proj.weight", inner * hidden, hidden)});
            steps.push_back({add(layer + "mlp.up_proj.weight", inner * hidden, hidden)});
            steps.push_back({add(layer + "mlp.down_proj.weight", inner * hidden, inner)});
        }
        layer_begin.push_back(names.size());
        const residency::WeightId last = add("model.norm.weight", hidden);
        steps.push_back({last, add("lm_head.weight", vocabulary * hidden, hidden)});
        build(device, steps, word);
    }
    Llama(residency::CudaDevice& device, const Shape& shape)
        : Llama{device, shape, [](std::uint64_t pattern) { return pattern; }} {}
};

/// The kernels of a step. `by_weight`: one checksum a weight; otherwise one for all.
template <class Pass>
void run_step(Pass& pass, const residency::Schedule::Step& step, const Llama& model, std::uint64_t* sums,
              bool by_weight, cudaStream_t stream) {
    auto lease = BENCH_RESULT(pass.try_acquire(step));
    gpu::Range ranges[2];
    std::size_t count = 0;
    for (const residency::WeightId id : step.weights) { ranges[count++] = {lease.data(id), model.sizes[index(id)]}; }
    if (by_weight) {
        for (std::size_t i = 0; i < count; ++i) {
            BENCH_CUDA(gpu::launch_checksum(ranges[i], sums + index(step.weights[i]), stream));
        }
    } else if (count == 1) {
        BENCH_CUDA(gpu::launch_checksum(ranges[0], sums, stream));
    } else {
        BENCH_CUDA(gpu::launch_checksum(std::span<const gpu::Range>{ranges, count}, sums, stream));
    }
}
/// The kernels of a pass.
template <class Pass>
void run_steps(Pass& pass, const Llama& model, const residency::Schedule& schedule, std::uint64_t* sums, bool by_weight,
               cudaStream_t stream) {
    for (const residency::Schedule::Step& step : schedule) { run_step(pass, step, model, sums, by_weight, stream); }
}
/// A pass.
template <class Weights>
void run_pass(Weights& weights, const Llama& model, std::uint64_t* sums, bool by_weight, cudaStream_t stream) {
    auto pass = BENCH_RESULT(weights.try_begin(stream));
    run_steps(pass, model, weights.schedule(), sums, by_weight, stream);
    BENCH_RESULT(pass.try_end());
}

}  // namespace bench
