// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint.hpp"
#include "operations.hpp"
#include "residency/error.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/storage.hpp"

namespace decoder {

/// What lies between the layers, in device memory: rows of a token each, and what belongs to the pass as a whole.
struct Activations {
    Bf16 *state = nullptr, *normed = nullptr, *query = nullptr, *key = nullptr, *value = nullptr, *context = nullptr;
    Bf16 *gate = nullptr, *up = nullptr;
    const Bf16 *cosines = nullptr, *sines = nullptr;  ///< of each position
    float *logits = nullptr, *partial = nullptr;
    Control control;                ///< on the device
    Control host;                   ///< what the host writes, in pinned memory
    std::uint64_t* next = nullptr;  ///< the chosen token, in pinned memory
    const Bf16* table = nullptr;    ///< the embedding table, in pinned memory
    Bf16* unpacked = nullptr;       ///< room for a layer's largest matrix, where prompts unpack them
};

/// One pass: some tokens that follow those in the cache.
struct Batch {
    std::uint32_t tokens = 0;
    std::uint32_t length = 0;  ///< no position is beyond
    Cache cache;
};

/// The weights in the order in which a pass reads them: a matrix a step, with the small ones beside it.
template <class Visit>
void visit_steps(const Checkpoint& model, Visit&& visit) {
    using Ids = std::vector<residency::WeightId>;
    const auto with_bias = [](Ids ids, const Matrix& matrix) {
        ids.push_back(matrix.weight);
        if (matrix.bias) { ids.push_back(*matrix.bias); }
        return ids;
    };
    for (std::uint32_t i = 0; i < model.config.layers; ++i) {
        const Layer& layer = model.layers[i];
        const std::string name = "layer " + std::to_string(i) + " ";
        visit(with_bias({layer.input_norm}, layer.query), name + "query");
        visit(with_bias({}, layer.key), name + "key");
        Ids value = with_bias({}, layer.value);
        if (layer.query_norm) { value.insert(value.end(), {*layer.query_norm, *layer.key_norm}); }
        visit(value, name + "value");
        visit(with_bias({}, layer.output), name + "output");
        visit(with_bias({layer.inner_norm}, layer.gate), name + "gate");
        visit(with_bias({}, layer.up), name + "up");
        visit(with_bias({}, layer.down), name + "down");
    }
    visit(Ids{model.norm, model.head}, std::string{"head"});
}

/// One pass over the schedule: enqueues everything and waits for nothing.
template <class Backend, class Pass>
void forward(Backend& backend, const Checkpoint& model, const residency::Schedule& schedule, Pass& pass,
             const Batch& batch, const Activations& a) {
    const Config& c = model.config;
    const std::uint32_t tokens = batch.tokens;
    const std::uint64_t row = std::uint64_t{tokens} * c.hidden;
    const auto* step = schedule.begin();

    const auto normalise = [&](const auto& lease, residency::WeightId id, const Bf16* in, Bf16* out, std::uint32_t rows,
                               std::uint32_t width) {
        backend.launch("normalise", Normalise{.in = in,
                                              .scale = lease.template get<Bf16>(id),
                                              .out = out,
                                              .rows = rows,
                                              .width = width,
                                              .epsilon = float(c.epsilon)});
    };
    const auto launch_product = [&](const auto& lease, const char* name, residency::WeightId id, Linear product) {
        const auto* const source =
            std::get_if<residency::PackedHostSource>(&model.catalog.storage(model.catalog.weight(id).storage).source);
        const residency::PackedWeight packed = lease.packed(id);
        if (packed.data == nullptr) {
            product.weight = lease.template get<Bf16>(id);
            product.is_weight_new = source != nullptr;  // the lease unpacked it
            return backend.launch(name, product);
        }
        const PackedMatrix matrix{packed.data, source->host->data() + source->offset_bytes, packed.bytes};
        if (product.tokens <= most_direct_tokens) {
            product.packed = matrix;
        } else {
            backend.launch("unpack",
                           Unpack{.matrix = matrix, .out = a.unpacked, .rows = product.to, .columns = product.from});
            product.weight = a.unpacked;
            product.is_weight_new = true;
        }
        backend.launch(name, product);
    };
    const auto multiply = [&](const auto& lease, const char* name, const Matrix& matrix, const Bf16* in, Bf16* out,
                              std::uint32_t from, std::uint32_t to) {
        launch_product(lease, name, matrix.weight,
                       {.in = in,
                        .bias = matrix.bias ? lease.template get<Bf16>(*matrix.bias) : nullptr,
                        .out = out,
                        .tokens = tokens,
                        .from = from,
                        .to = to});
    };

    const auto sum = [&] {
        if (model.part.sums) { backend.launch("sum", Sum{.data = a.normed, .count = row}); }
    };

    backend.launch("upload", Upload{.from = a.host, .to = a.control, .tokens = tokens});
    backend.launch("embed",
                   Embed{.control = a.control, .table = a.table, .out = a.state, .tokens = tokens, .hidden = c.hidden});
    for (std::uint32_t i = 0; i < c.layers; ++i) {
        const Layer& layer = model.layers[i];
        {
            const auto lease = pass.acquire(*step++);
            normalise(lease, layer.input_norm, a.state, a.normed, tokens, c.hidden);
            multiply(lease, "query", layer.query, a.normed, a.query, c.hidden, c.heads * c.width);
        }
        multiply(pass.acquire(*step++), "key", layer.key, a.normed, a.key, c.hidden, c.cache_heads * c.width);
        {
            const auto lease = pass.acquire(*step++);
            multiply(lease, "value", layer.value, a.normed, a.value, c.hidden, c.cache_heads * c.width);
            if (layer.query_norm) {
                normalise(lease, *layer.query_norm, a.query, a.query, tokens * c.heads, c.width);
                normalise(lease, *layer.key_norm, a.key, a.key, tokens * c.cache_heads, c.width);
            }
        }
        {
            const auto lease = pass.acquire(*step++);
            backend.launch("rotate", Rotate{.query = a.query,
                                            .key = a.key,
                                            .value = a.value,
                                            .cosines = a.cosines,
                                            .sines = a.sines,
                                            .control = a.control,
                                            .host = a.host,
                                            .cache = batch.cache,
                                            .layer = i,
                                            .tokens = tokens,
                                            .heads = c.heads});
            backend.launch("attend", Attend{.query = a.query,
                                            .out = a.context,
                                            .control = a.control,
                                            .host = a.host,
                                            .cache = batch.cache,
                                            .layer = i,
                                            .tokens = tokens,
                                            .heads = c.heads,
                                            .length = batch.length,
                                            .partial = a.partial});
            multiply(lease, "output", layer.output, a.context, a.normed, c.heads * c.width, c.hidden);
            sum();
            backend.launch("add", Add{.in = a.normed, .state = a.state, .count = row});
        }
        {
            const auto lease = pass.acquire(*step++);
            normalise(lease, layer.inner_norm, a.state, a.normed, tokens, c.hidden);
            multiply(lease, "gate", layer.gate, a.normed, a.gate, c.hidden, c.inner);
        }
        {
            const auto lease = pass.acquire(*step++);
            multiply(lease, "up", layer.up, a.normed, a.up, c.hidden, c.inner);
            backend.launch("swiglu", Gate{.gate = a.gate, .up = a.up, .count = std::uint64_t{tokens} * c.inner});
        }
        {
            const auto lease = pass.acquire(*step++);
            multiply(lease, "down", layer.down, a.gate, a.normed, c.inner, c.hidden);
            sum();
            backend.launch("add", Add{.in = a.normed, .state = a.state, .count = row});
        }
    }
    // Only the last token's successor is asked for. Without the others' logits, it is chosen from the own ones.
    const Part& part = model.part;
    const std::uint32_t words = c.words / part.of;
    float* const logits = a.logits + std::uint64_t{part.rank} * words;
    {
        const auto lease = pass.acquire(*step++);
        normalise(lease, model.norm, a.state + row - c.hidden, a.normed, 1, c.hidden);
        launch_product(lease, "head", model.head,
                       {.in = a.normed, .logits = logits, .tokens = 1, .from = c.hidden, .to = words});
        if (part.sums) {
            backend.launch("gather", Gather{.logits = a.logits, .count = words, .rank = part.rank, .of = part.of});
        }
    }
    backend.launch(
        "choose", Choose{.logits = part.sums ? a.logits : logits, .out = a.next, .words = part.sums ? c.words : words});
}

/// Stands for a device and a pass: adds up the times that a large GPU would take, step by step.
struct Estimate {
    struct Lease {
        const residency::Catalog* catalog;

        template <class T>
        [[nodiscard]] const T* get(residency::WeightId) const {
            return nullptr;
        }
        /// In host memory, which nobody reads.
        [[nodiscard]] residency::PackedWeight packed(residency::WeightId id) const {
            const auto& storage = catalog->storage(catalog->weight(id).storage);
            const auto* const source = std::get_if<residency::PackedHostSource>(&storage.source);
            if (source == nullptr || source->parts->front().form != residency::PackedForm::bf16_tiles) { return {}; }
            const residency::PackedPart& part = source->parts->front();
            return {source->host->data() + source->offset_bytes + part.offset_bytes, part.packed_bytes, part.form};
        }
    };
    const residency::Catalog& catalog;
    std::chrono::nanoseconds begun{};  ///< before the first step
    std::vector<std::optional<std::chrono::nanoseconds>> steps{};

    [[nodiscard]] Lease acquire(const residency::Schedule::Step&) {
        steps.push_back(std::exchange(begun, {}));
        return {&catalog};
    }
    template <class Operation>
    void launch(const char*, const Operation& operation) {
        (steps.empty() ? begun : *steps.back()) += roofline(operation);
    }
};

/// The schedule of such a pass, with these times: on a GPU, measured ones replace them.
[[nodiscard]] inline residency::Schedule make_schedule(const Checkpoint& model, const Batch& batch,
                                                       const Activations& activations) {
    residency::ScheduleBuilder steps{model.catalog};
    visit_steps(model, [&](const auto& ids, const std::string& name) { steps.step(ids, std::nullopt, name); });
    const residency::Schedule schedule = steps.build();
    Estimate estimate{model.catalog};
    forward(estimate, model, schedule, estimate, batch, activations);
    return residency::unwrap(schedule.try_with_compute(estimate.steps));
}

}  // namespace decoder
