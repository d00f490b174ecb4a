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
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "mixture.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/packed_experts.hpp"
#include "residency/planned.hpp"
#include "residency/residency.hpp"
#include "residency/routed/routed_experts.hpp"

namespace experts {

/// The model in pinned host memory: fused experts of each layer, streamed; routers and shared experts, resident.
struct Mixture {
    residency::Catalog catalog;
    std::vector<residency::WeightId> routers, shared;                     ///< by layer
    std::vector<std::array<residency::WeightId, experts_a_layer>> parts;  ///< by layer: its experts
    std::vector<std::uint32_t> layer_of;                                  ///< of each storage
};

/// ± 1/128 … 1/64, in all threads.
inline void fill(std::span<Bf16> weights) {
    const std::size_t threads = std::max(1U, std::thread::hardware_concurrency());
    residency::host::ThreadGroup running;
    for (std::size_t t = 0; t < threads; ++t) {
        residency::unwrap(running.try_start([=] {
            for (std::size_t i = weights.size() * t / threads; i < weights.size() * (t + 1) / threads; ++i) {
                std::uint64_t bits = (i + 1) * 0x9E3779B97F4A7C15U;
                bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
                weights[i].bits = std::uint16_t(((bits >> 40U) & 0x807FU) | 0x3C00U);
            }
        }));
    }
}

template <class Backend>
Mixture make_mixture(Backend& backend, const Sizes& sizes) {
    using namespace residency;
    const std::size_t router = std::size_t{experts_a_layer} * sizes.hidden;
    const std::size_t count = sizes.layers * ((experts_a_layer + 1) * sizes.expert() + router);
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
        model.shared.push_back(add(prefix + "shared", {3, sizes.inner, sizes.hidden}, sizes.expert()));
        // In the file all experts of a layer are one tensor; each travels alone.
        add(prefix + "experts", {experts_a_layer, 3, sizes.inner, sizes.hidden}, experts_a_layer * sizes.expert());
        const auto parts = builder.split(prefix + "experts");
        std::ranges::copy(parts, model.parts.emplace_back().begin());
    }
    model.catalog = builder.build()
                        .with_placement(std::span<const WeightId>{model.routers}, Placement::resident)
                        .with_placement(std::span<const WeightId>{model.shared}, Placement::resident);
    model.layer_of.assign(model.catalog.storages().size(), sizes.layers);
    for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
        for (const WeightId id : model.parts[layer]) { model.layer_of[index(model.catalog.storage_of(id))] = layer; }
    }
    return model;
}

/// What lies on the device beside the weights.
struct State {
    float *x = nullptr, *values = nullptr, *scores = nullptr, *shares = nullptr, *x_on_host = nullptr;
    std::int32_t *choices = nullptr, *choices_on_host = nullptr;  ///< of each layer, and likely ones of the next
};

/// Batch after batch, all of them twice: the first time, which loads what is there to be loaded, is not counted. The host reads each
/// router's choice before it knows which experts to ask for.
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
        std::array<std::int32_t, chosen> guess{};
        for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
            const std::uint32_t after = (layer + 1) % sizes.layers;
            {
                const WeightId here = model.routers[layer], next = model.routers[after];
                const auto lease = pass.acquire({here, next});
                backend.launch("router", Route{state.x, lease.template get<Bf16>(here), lease.template get<Bf16>(next),
                                               state.scores, sizes.hidden});
                backend.launch("choose", Choose{state.scores, state.choices, state.shares});
            }
            const Copy read{state.choices_on_host, state.choices, 2 * chosen * sizeof(std::int32_t)};
            unwrap(device.copy({&read, 1}, backend.stream()));
            pass.wait();  // while guesses travel

            std::array<WeightId, chosen> needed{};
            for (std::uint32_t i = 0; i < chosen; ++i) {
                const std::int32_t choice = state.choices_on_host[i];
                outcome.guessed += layer > 0 && (choice == guess[0] || choice == guess[1]);
                needed[i] = model.parts[layer][std::size_t(choice)];
            }
            std::copy_n(state.choices_on_host + chosen, chosen, guess.begin());

            const auto lease = pass.acquire(std::span<const WeightId>{needed});
            if constexpr (requires { weights.prefetcher().hint(std::span<const prefetch::Hint>{}); }) {
                if (hints) {  // after the acquisition, so that the copies of this layer come first
                    std::array<prefetch::Hint, chosen> likely{};
                    for (std::uint32_t i = 0; i < chosen; ++i) {
                        likely[i] = {.storage = catalog.storage_of(model.parts[after][std::size_t(guess[i])]),
                                     .probability = i == 0 ? 0.9F : 0.8F};
                    }
                    unwrap(weights.prefetcher().hint(likely));
                }
            }
            const WeightId shared = model.shared[layer];
            const auto always = pass.acquire({shared});
            ReadExperts experts;
            for (std::uint32_t i = 0; i < chosen; ++i) { experts.at[i] = lease.template get<Bf16>(needed[i]); }
            experts.shared = always.template get<Bf16>(shared);
            backend.launch("expand",
                           Expand{state.x, experts, state.shares, state.values, batch, sizes.hidden, sizes.inner});
            backend.launch("reduce", Reduce{state.values, experts, state.x, batch, sizes.hidden, sizes.inner});
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

/// The same with the router on the device: all layers of a pass are one graph. Routers and shared experts belong to a Residency beside the cache.
template <class Backend>
Outcome generate_in_graph(Backend& backend, const Mixture& model, const Sizes& sizes, std::uint32_t batch,
                          const State& state, std::string name, std::uint64_t budget_bytes, bool guesses) {
    using namespace residency;
    using Device = typename Backend::Device;
    auto& device = backend.device();
    ScheduleBuilder steps{model.catalog};
    std::vector<std::vector<WeightId>> experts;
    for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
        steps.step({model.routers[layer], model.routers[(layer + 1) % sizes.layers], model.shared[layer]});
        experts.emplace_back(model.parts[layer].begin(), model.parts[layer].end());
    }
    Planned<Device> rest{device, model.catalog, {.budget = Budget::bytes(0), .schedule = steps.build()}};
    RoutedExperts<Device> cache{device,
                                model.catalog,
                                experts,
                                {.budget = Budget::bytes(budget_bytes - rest.statistics().held_bytes),
                                 .server = &backend.server(),
                                 .choices = chosen}};
    rest.drain();  // everything that it has is there now, so that a graph may read it

    const auto layers = [&] {
        auto pass = rest.begin(backend.stream());
        for (std::uint32_t layer = 0; layer < sizes.layers; ++layer) {
            const WeightId here = model.routers[layer], next = model.routers[(layer + 1) % sizes.layers];
            const auto lease = pass.acquire(rest.schedule()[layer]);
            std::int32_t* const choices = state.choices + layer * 2 * chosen;
            backend.launch("router", Route{state.x, lease.template get<Bf16>(here), lease.template get<Bf16>(next),
                                           state.scores, sizes.hidden});
            backend.launch("choose", Choose{state.scores, choices, state.shares});
            std::optional<residency::routed::Guess> likely;
            if (guesses && layer + 1 < sizes.layers) { likely = {layer + 1, {choices + chosen, chosen}}; }
            const auto served = cache.serve(layer, {choices, chosen}, backend.stream(), likely);
            const ReadExperts read{{}, served.addresses, lease.template get<Bf16>(model.shared[layer])};
            backend.launch("expand",
                           Expand{state.x, read, state.shares, state.values, batch, sizes.hidden, sizes.inner});
            backend.launch("reduce", Reduce{state.values, read, state.x, batch, sizes.hidden, sizes.inner});
        }
        if (guesses) { cache.join(backend.stream()); }
    };
    backend.launch("embed", Embed{state.x, 0, batch, sizes.hidden});
    layers();  // loads what is there to be loaded
    unwrap(device.synchronize(backend.stream()));
    unwrap(device.begin_capture(backend.stream()));
    layers();
    const auto graph = unwrap(device.end_capture(backend.stream()));

    Outcome outcome;
    outcome.name = std::move(name);
    const std::size_t numbers = std::size_t{batch} * sizes.hidden;
    auto begin = device.host_time();
    routed::Counters before;
    for (std::uint32_t run = 0; run < 2 * sizes.passes; ++run) {
        if (run == sizes.passes) {
            before = cache.statistics().total;
            begin = device.host_time();
            outcome.output.clear();
        }
        backend.launch("embed", Embed{state.x, run % sizes.passes * batch, batch, sizes.hidden});
        unwrap(device.launch(graph, backend.stream()));
        backend.memory().copy(state.x, state.x_on_host, numbers, backend.stream());
        outcome.output.insert(outcome.output.end(), state.x_on_host, state.x_on_host + numbers);
    }
    if constexpr (Backend::times_fills) {
        outcome.milliseconds = double((device.host_time() - begin).count()) / 1e6 / sizes.passes;
    }
    const routed::Statistics after = cache.statistics();
    outcome.counters.hits = after.total.hits - before.hits - (after.total.guess_hits - before.guess_hits);
    outcome.counters.prefetch_hits = after.total.guess_hits - before.guess_hits;
    outcome.counters.demand_misses = after.total.misses - before.misses;
    outcome.counters.fetched_bytes =
        after.total.demand_bytes + after.total.guess_bytes - before.demand_bytes - before.guess_bytes;
    outcome.held_bytes = after.held_bytes + rest.statistics().held_bytes;
    unwrap(device.destroy_graph(graph));
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
    state.values = memory.template on_device<float>(most * read_a_layer * sizes.inner);
    state.scores = memory.template on_device<float>(2 * experts_a_layer);
    state.shares = memory.template on_device<float>(chosen);
    state.choices = memory.template on_device<std::int32_t>(std::size_t{2} * chosen * sizes.layers);
    state.choices_on_host = memory.template pinned<std::int32_t>(2 * chosen);
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
    const std::uint64_t half_bytes = (model.catalog.streamed_bytes() + model.catalog.resident_bytes()) / 2;
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
        const auto in_graph = [&](const char* name, bool guesses) {
            return generate_in_graph(backend, model, sizes, batch, state, name, half_bytes, guesses);
        };
        results.comparisons.push_back({batch,
                                       run.template operator()<Hinted>("everything resident", options(all), false),
                                       run.template operator()<Hinted>("Experts, with hints", options(half), true),
                                       run.template operator()<Hinted>("Experts, without", options(half), false),
                                       run.template operator()<Plain>(
                                           "Cached", {.budget = half, .policies = {.storages_at_once = chosen}}, false),
                                       in_graph("RoutedExperts, guesses", true),
                                       in_graph("RoutedExperts", false),
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
