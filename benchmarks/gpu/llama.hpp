// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/pinned_weights.hpp"
#include "residency/device/cuda.hpp"

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

}  // namespace bench
