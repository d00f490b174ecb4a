// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "mixture.hpp"
#include "residency/packed_experts.hpp"
#include "residency/residency.hpp"

namespace experts {

/// The model in pinned host memory: fused experts of each layer, streamed; routers, resident.
struct Mixture {
    residency::Catalog catalog;
    std::vector<residency::WeightId> routers;                             ///< by layer
    std::vector<std::array<residency::WeightId, experts_a_layer>> parts;  ///< by layer: its experts
    std::vector<std::uint32_t> layer_of;                                  ///< of each storage
};

/// ± 1/128 … 1/64, in all threads.
inline void fill(std::span<Bf16> weights) {
    const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> running;
    for (std::size_t t = 0; t < threads; ++t) {
        running.emplace_back([=] {
            for (std::size_t i = weights.size() * t / threads; i < weights.size() * (t + 1) / threads; ++i) {
                std::uint64_t bits = (i + 1) * 0x9E3779B97F4A7C15U;
                bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
                weights[i].bits = std::uint16_t(((bits >> 40U) & 0x807FU) | 0x3C00U);
            }
        });
    }
}

template <class Backend>
Mixture make_mixture(Backend& backend, const Sizes& sizes) {
    using namespace residency;
    const std::size_t router = std::size_t{experts_a_layer} * sizes.hidden;
    const std::size_t count = sizes.layers * (experts_a_layer * sizes.expert() + router);
    const std::span<Bf16> weights{backend.memory().template pinned<Bf16>(count), count};
    fill(weights);
    const auto held = HostBytes::borrow(std::as_bytes(weights), HostMemory::pinned);
    std::uint64_t next_bytes = 0;
    CatalogBuilder builder;
    const auto add = [&](const std::string& name, Shape shape, std::size_t elements) {
        const auto id = builder.add(name, dtype::bf16, std::move(shape), HostSource{held, next_bytes});
        next_bytes += elements * sizeof(Bf16);
        return id;
    };
    Mixture model;
    for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
        const std::string prefix = "layers." + std::to_string(layer) + ".";
        model.routers.push_back(add(prefix + "router", {experts_a_layer, sizes.hidden}, router));
        // In the file all experts of a layer are one tensor; each travels alone.
        add(prefix + "experts", {experts_a_layer, 3, sizes.inner, sizes.hidden}, experts_a_layer * sizes.expert());
        const auto parts = builder.split(prefix + "experts");
        std::ranges::copy(parts, model.parts.emplace_back().begin());
    }
    model.catalog = builder.build().with_placement(std::span<const WeightId>{model.routers}, Placement::resident);
    model.layer_of.assign(model.catalog.storages().size(), sizes.layers);
    for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
        for (const WeightId id : model.parts[layer]) { model.layer_of[index(model.catalog.storage_of(id))] = layer; }
    }
    return model;
}

/// What lies on the device beside the weights.
struct State {
    float *x = nullptr, *values = nullptr, *scores = nullptr, *scores_on_host = nullptr, *x_on_host = nullptr;
};

[[nodiscard]] inline std::array<std::uint32_t, experts_a_layer> ranked(const float* scores) {
    std::array<std::uint32_t, experts_a_layer> order{};
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    });
    return order;
}

/// Batch after batch, all of them twice: the first time, which loads what is there to be loaded, is not counted. The host reads each
/// router's scores before it knows which experts to ask for.
template <class Weights, class Backend>
Outcome generate(Backend& backend, const Mixture& model, const residency::Catalog& catalog, const Sizes& sizes,
                 std::uint32_t batch, const State& state, std::string name, typename Weights::Options options,
                 bool hints) {
    using namespace residency;
    auto& device = backend.device();
    Weights weights{device, catalog, std::move(options)};
    Outcome outcome;
    outcome.name = std::move(name);
    const std::size_t numbers = std::size_t{batch} * sizes.hidden;
    auto begin = device.host_time();
    Counters before;
    for (std::uint32_t run = 0; run < 2 * sizes.passes; ++run) {
        if (run == sizes.passes) {
            begin = device.host_time();
            before = weights.statistics().total;
            outcome.output.clear();
            outcome.guessed = 0;
        }
        backend.launch("embed", Embed{state.x, run % sizes.passes * batch, batch, sizes.hidden});
        auto pass = weights.begin(backend.stream());
        std::array<std::uint32_t, experts_a_layer> guess{};
        for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
            const std::uint32_t after = (layer + 1) % sizes.layers;
            {
                const WeightId here = model.routers[layer], next = model.routers[after];
                const auto lease = pass.acquire({here, next});
                backend.launch("router", Route{state.x, lease.template get<Bf16>(here), lease.template get<Bf16>(next),
                                               state.scores, sizes.hidden});
            }
            const Copy read{state.scores_on_host, state.scores, 2 * experts_a_layer * sizeof(float)};
            unwrap(device.copy({&read, 1}, backend.stream()));
            pass.wait();  // while guesses travel

            const auto order = ranked(state.scores_on_host);
            for (std::uint32_t i = 0; layer > 0 && i < chosen; ++i) {
                outcome.guessed += order[i] == guess[0] || order[i] == guess[1];
            }
            guess = ranked(state.scores_on_host + experts_a_layer);
            std::array<WeightId, chosen> needed{};
            std::array<float, chosen> shares{};
            float total = 0;
            for (std::uint32_t i = 0; i < chosen; ++i) {
                needed[i] = model.parts[layer][order[i]];
                total += shares[i] = std::exp(state.scores_on_host[order[i]] - state.scores_on_host[order[0]]);
            }
            for (float& share : shares) { share /= total; }

            const auto lease = pass.acquire(std::span<const WeightId>{needed});
            if constexpr (requires { weights.prefetcher().hint(std::span<const prefetch::Hint>{}); }) {
                if (hints) {  // after the acquisition, so that the copies of this layer come first
                    std::array<prefetch::Hint, chosen> likely{};
                    for (std::uint32_t i = 0; i < chosen; ++i) {
                        likely[i] = {.storage = catalog.storage_of(model.parts[after][guess[i]]),
                                     .probability = i == 0 ? 0.9F : 0.8F};
                    }
                    unwrap(weights.prefetcher().hint(likely));
                }
            }
            Expand expand{state.x, {}, {}, shares, state.values, batch, sizes.hidden, sizes.inner};
            Reduce reduce{state.values, {}, state.x, batch, sizes.hidden, sizes.inner};
            for (std::uint32_t i = 0; i < chosen; ++i) {
                expand.gate[i] = lease.template get<Bf16>(needed[i]);
                expand.up[i] = expand.gate[i] + sizes.expert() / 3;
                reduce.down[i] = expand.up[i] + sizes.expert() / 3;
            }
            backend.launch("expand", expand);
            backend.launch("reduce", reduce);
        }
        pass.end();
        backend.memory().copy(state.x, state.x_on_host, numbers, backend.stream());
        outcome.output.insert(outcome.output.end(), state.x_on_host, state.x_on_host + numbers);
    }
    outcome.milliseconds = double((device.host_time() - begin).count()) / 1e6 / sizes.passes;
    outcome.counters = weights.statistics().total - before;
    outcome.held_bytes = weights.statistics().held_bytes;
    if (weights.failure()) { throw_error(*weights.failure()); }
    return outcome;
}

/// For few tokens a pass and for many: with everything resident, then with half of the experts, by several compositions.
template <class Backend>
Results run_all(Backend& backend, const Sizes& sizes, bool packs) {
    using Hinted = residency::Experts<typename Backend::Device>;
    using Plain = residency::Cached<typename Backend::Device>;
    using Packed = residency::PackedExperts<typename Backend::Device>;
    using residency::Budget;
    const Mixture model = make_mixture(backend, sizes);
    auto& memory = backend.memory();
    const std::size_t most = *std::ranges::max_element(sizes.batches);
    State state;
    state.x = memory.template on_device<float>(most * sizes.hidden);
    state.values = memory.template on_device<float>(most * chosen * sizes.inner);
    state.scores = memory.template on_device<float>(2 * experts_a_layer);
    state.scores_on_host = memory.template pinned<float>(2 * experts_a_layer);
    state.x_on_host = memory.template pinned<float>(most * sizes.hidden);
    residency::packed::PackedModel packed;  // the same weights
    if (packs) { packed = residency::packed::pack(backend.device(), model.catalog); }
    const auto options = [&]<class Weights = Hinted>(Budget budget) {
        typename Weights::Options made;
        made.budget = budget;
        made.policies.evictor = residency::evict::ExpectedUse{{.layers = model.layer_of}};
        made.policies.storages_at_once = chosen;  // a cache that cannot hold them is refused
        if constexpr (std::is_same_v<Weights, Packed>) { made.policies.unpacker = &backend.unpacker(); }
        return made;
    };
    const Budget all = Budget::percent_of_weights(1000), half = Budget::percent_of_weights(50);
    Results results;
    results.device = backend.device().name();
    results.sizes = sizes;
    results.streamed_bytes = model.catalog.streamed_bytes();
    results.packed_bytes = packed.packed_bytes;
    results.packed_raw_bytes = packed.raw_bytes;
    for (const std::uint32_t batch : sizes.batches) {
        const auto run = [&]<class Weights>(const char* name, typename Weights::Options how, bool hints) {
            constexpr bool is_packed = std::is_same_v<Weights, Packed>;
            return generate<Weights>(backend, model, is_packed ? packed.catalog : model.catalog, sizes, batch, state,
                                     name, std::move(how), hints);
        };
        results.comparisons.push_back({batch,
                                       run.template operator()<Hinted>("everything resident", options(all), false),
                                       run.template operator()<Hinted>("Experts, with hints", options(half), true),
                                       run.template operator()<Hinted>("Experts, without", options(half), false),
                                       run.template operator()<Plain>(
                                           "Cached", {.budget = half, .policies = {.storages_at_once = chosen}}, false),
                                       {}});
        for (const bool hints : {true, false}) {
            if (!packs) { break; }
            results.comparisons.back().packed.push_back(run.template operator()<Packed>(
                hints ? "PackedExperts, hints" : "PackedExperts", options.template operator()<Packed>(half), hints));
        }
    }
    results.reports = backend.reports();
    return results;
}

}  // namespace experts

// What one composition runs, compiled in a file of its own: EXTERN is `extern` in a header, nothing in that file. At global scope.
#define GENERATE(EXTERN, BACKEND, COMPOSITION)                                                                         \
    EXTERN template experts::Outcome experts::generate<COMPOSITION<BACKEND::Device>>(                                  \
        BACKEND&, const experts::Mixture&, const residency::Catalog&, const experts::Sizes&, std::uint32_t,            \
        const experts::State&, std::string, COMPOSITION<BACKEND::Device>::Options, bool)
