// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint.hpp"
#include "operations.hpp"
#include "residency/model/schedule_builder.hpp"

namespace encoder {

/// Sentences as the kernels read them, in pinned host memory.
struct Batch {
    std::int32_t *ids = nullptr, *positions = nullptr, *starts = nullptr;
    std::uint32_t tokens = 0, sentences = 0;
};

/// What lies between the layers, in device memory of the caller's: rows of a token each, and one of a sentence each at the end.
struct Activations {
    float *state = nullptr, *query = nullptr, *key = nullptr, *value = nullptr, *context = nullptr, *inner = nullptr;
    float* sentences = nullptr;
};

/// The order in which a pass reads the weights, with the times that a large GPU would take.
[[nodiscard]] inline residency::Schedule make_schedule(const Checkpoint& model, std::uint32_t tokens,
                                                       std::uint32_t sentences) {
    const Config& c = model.config;
    residency::ScheduleBuilder steps{model.catalog};
    const auto linear = [&](std::uint32_t from, std::uint32_t to) {
        return roofline(Linear{.tokens = tokens, .from = from, .to = to});
    };
    const auto norm = roofline(AddNormalise{.tokens = tokens, .hidden = c.hidden});
    const auto attention =
        roofline(Attention{.sentences = sentences, .tokens = tokens, .heads = c.heads, .hidden = c.hidden});
    steps.step({model.words, model.places, model.segments, model.norm.weight, model.norm.bias},
               roofline(Embed{.tokens = tokens, .hidden = c.hidden}), "embed");
    for (std::uint32_t i = 0; i < c.layers; ++i) {
        const Layer& layer = model.layers[i];
        const std::string name = "layer " + std::to_string(i) + " ";
        steps.step({layer.query.weight, layer.query.bias}, linear(c.hidden, c.hidden), name + "query");
        steps.step({layer.key.weight, layer.key.bias}, linear(c.hidden, c.hidden), name + "key");
        steps.step({layer.value.weight, layer.value.bias}, linear(c.hidden, c.hidden), name + "value");
        steps.step({layer.mix.weight, layer.mix.bias, layer.mix_norm.weight, layer.mix_norm.bias},
                   attention + linear(c.hidden, c.hidden) + norm, name + "attention");
        steps.step({layer.up.weight, layer.up.bias}, linear(c.hidden, c.inner), name + "up");
        steps.step({layer.down.weight, layer.down.bias, layer.down_norm.weight, layer.down_norm.bias},
                   linear(c.inner, c.hidden) + norm, name + "down");
    }
    return steps.build();
}

/// One pass over the schedule: enqueues everything and waits for nothing.
template <class Backend, class Pass>
void forward(Backend& backend, const Checkpoint& model, const residency::Schedule& schedule, Pass& pass,
             const Batch& batch, const Activations& a) {
    const Config& c = model.config;
    const auto* step = schedule.begin();
    const auto linear = [&](const auto& lease, const Pair& pair, const float* in, float* out, std::uint32_t from,
                            std::uint32_t to) {
        backend.launch("linear", Linear{.in = in,
                                        .weight = lease.template get<float>(pair.weight),
                                        .bias = lease.template get<float>(pair.bias),
                                        .out = out,
                                        .tokens = batch.tokens,
                                        .from = from,
                                        .to = to,
                                        .gelu = to == c.inner});
    };
    const auto add_normalise = [&](const auto& lease, const Pair& pair, const float* in) {
        backend.launch("normalise", AddNormalise{.in = in,
                                                 .residual = a.state,
                                                 .scale = lease.template get<float>(pair.weight),
                                                 .shift = lease.template get<float>(pair.bias),
                                                 .out = a.state,
                                                 .tokens = batch.tokens,
                                                 .hidden = c.hidden,
                                                 .epsilon = c.epsilon});
    };
    {
        const auto lease = pass.acquire(*step++);
        backend.launch("embed", Embed{.ids = batch.ids,
                                      .positions = batch.positions,
                                      .words = lease.template get<float>(model.words),
                                      .places = lease.template get<float>(model.places),
                                      .segments = lease.template get<float>(model.segments),
                                      .scale = lease.template get<float>(model.norm.weight),
                                      .shift = lease.template get<float>(model.norm.bias),
                                      .out = a.state,
                                      .tokens = batch.tokens,
                                      .hidden = c.hidden,
                                      .epsilon = c.epsilon});
    }
    for (const Layer& layer : model.layers) {
        linear(pass.acquire(*step++), layer.query, a.state, a.query, c.hidden, c.hidden);
        linear(pass.acquire(*step++), layer.key, a.state, a.key, c.hidden, c.hidden);
        linear(pass.acquire(*step++), layer.value, a.state, a.value, c.hidden, c.hidden);
        {
            const auto lease = pass.acquire(*step++);
            backend.launch("attention", Attention{.query = a.query,
                                                  .key = a.key,
                                                  .value = a.value,
                                                  .starts = batch.starts,
                                                  .out = a.context,
                                                  .sentences = batch.sentences,
                                                  .tokens = batch.tokens,
                                                  .heads = c.heads,
                                                  .hidden = c.hidden});
            linear(lease, layer.mix, a.context, a.query, c.hidden, c.hidden);
            add_normalise(lease, layer.mix_norm, a.query);
        }
        linear(pass.acquire(*step++), layer.up, a.state, a.inner, c.hidden, c.inner);
        {
            const auto lease = pass.acquire(*step++);
            linear(lease, layer.down, a.inner, a.query, c.inner, c.hidden);
            add_normalise(lease, layer.down_norm, a.query);
        }
    }
    backend.launch("pool", Pool{.in = a.state,
                                .starts = batch.starts,
                                .out = a.sentences,
                                .sentences = batch.sentences,
                                .tokens = batch.tokens,
                                .hidden = c.hidden});
}

}  // namespace encoder
