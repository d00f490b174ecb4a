// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A mixture of experts at a thirty-second of Mixtral's widths: 8 experts a layer, 2 of them for each token, fused in one tensor in the
// file and split here, so that each travels alone. The router's guess for the next layer is the prefetcher's hint. Half of the
// experts fit. Exits with 0 if every composition's tokens equal those of the resident run bit for bit.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/residency.hpp"

namespace {

using namespace residency;

// Mixtral 8x7B: 32 layers, 4096 and 14336 wide.
constexpr std::uint32_t layers = 16, experts = 8, chosen = 2, hidden = 128, inner = 448, tokens = 32;
constexpr std::uint64_t expert_floats = 3ULL * inner * hidden;  // gate, up, and down transposed
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// The model in pinned host memory: fused experts of each layer, streamed; routers, resident.
class Mixture {
public:
    explicit Mixture(SimulatedDevice& device) : device_{device} {
        const std::uint64_t floats = layers * (experts * expert_floats + experts * hidden);
        host_ = static_cast<float*>(unwrap(device.allocate_host(floats * sizeof(float))));
        std::mt19937 random{7};
        for (std::uint64_t i = 0; i < floats; ++i) { host_[i] = (float(random() >> 8U) / 16777216.0F - 0.5F) * 0.2F; }
        CatalogBuilder builder;
        float* next = host_;
        const auto add = [&](const std::string& name, Shape shape, std::uint64_t count) {
            const auto id = builder.add(name, dtype::f32, std::move(shape), std::as_bytes(std::span{next, count}),
                                        HostMemory::pinned);
            next += count;
            return id;
        };
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            const std::string prefix = "layers." + std::to_string(layer) + ".";
            routers[layer] = add(prefix + "router", {experts, hidden}, experts * hidden);
            add(prefix + "experts", {experts, 3, inner, hidden}, experts * expert_floats);
            const auto parts = builder.split(prefix + "experts");
            std::copy(parts.begin(), parts.end(), ids[layer].begin());
        }
        catalog = builder.build().with_placement(std::span<const WeightId>{routers}, Placement::resident);
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            for (const WeightId id : ids[layer]) {
                layer_of.resize((std::max)(layer_of.size(), std::size_t{index(catalog.storage_of(id))} + 1), layers);
                layer_of[index(catalog.storage_of(id))] = layer;
            }
        }
        layer_of.resize(catalog.storages().size(), layers);
    }
    ~Mixture() {
        catalog = {};
        static_cast<void>(device_.deallocate_host(host_).has_value());
    }
    Mixture(const Mixture&) = delete;
    Mixture& operator=(const Mixture&) = delete;

    Catalog catalog;
    std::array<WeightId, layers> routers{};
    std::array<std::array<WeightId, experts>, layers> ids{};
    std::vector<std::uint32_t> layer_of;  ///< of each storage

private:
    SimulatedDevice& device_;
    float* host_ = nullptr;
};

/// What lies on the device beside the weights.
struct State {
    float *x, *scores, *scores_on_host;  ///< hidden; experts of this layer, then of the next
};

void score(const float* x, const float* router, float* scores) {
    double square = 0;
    for (std::uint32_t i = 0; i < hidden; ++i) { square += double(x[i]) * double(x[i]); }
    const float scale = 10 / float(std::sqrt(square));
    for (std::uint32_t e = 0; e < experts; ++e) {
        float sum = 0;
        for (std::uint32_t i = 0; i < hidden; ++i) { sum += router[e * hidden + i] * x[i]; }
        scores[e] = sum * scale;
    }
}

/// x += share · down(silu(gate x) · up x), of all chosen experts.
void apply(float* x, const std::array<const float*, chosen>& weights, const std::array<float, chosen>& shares) {
    std::vector<float> in(x, x + hidden);
    const float length = std::sqrt(std::inner_product(in.begin(), in.end(), in.begin(), 1e-6F) / float(hidden));
    for (float& value : in) { value /= length; }
    for (std::uint32_t e = 0; e < chosen; ++e) {
        const float *gate = weights[e], *up = gate + std::uint64_t{inner} * hidden,
                    *down = up + std::uint64_t{inner} * hidden;
        for (std::uint32_t i = 0; i < inner; ++i) {
            float g = 0, u = 0;
            for (std::uint32_t k = 0; k < hidden; ++k) { g += gate[std::size_t{i} * hidden + k] * in[k]; }
            for (std::uint32_t k = 0; k < hidden; ++k) { u += up[std::size_t{i} * hidden + k] * in[k]; }
            const float value = shares[e] * g / (1 + std::exp(-g)) * u * 0.05F;
            for (std::uint32_t k = 0; k < hidden; ++k) { x[k] += value * down[std::size_t{i} * hidden + k]; }
        }
    }
}

struct Outcome {
    std::vector<float> output;
    Statistics statistics;
    double milliseconds = 0;  ///< a token, virtual
    std::uint64_t guessed = 0;
};

std::array<std::uint32_t, experts> ranked(const float* scores) {
    std::array<std::uint32_t, experts> order{};
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
    return order;
}

template <class Weights>
Outcome generate(SimulatedDevice& device, SimulatedDevice::Stream stream, const Mixture& model, const State& state,
                 typename Weights::Options options, bool hints) {
    Weights weights{device, model.catalog, std::move(options)};
    Outcome outcome;
    const auto begin = device.host_time();
    for (std::uint32_t token = 0; token < tokens; ++token) {
        unwrap(device.launch(
            stream,
            {.name = "embed", .reads = {}, .writes = {{state.x, hidden * sizeof(float)}}, .body = [x = state.x, token] {
                 std::mt19937 random{token};
                 for (std::uint32_t i = 0; i < hidden; ++i) { x[i] = float(random() >> 8U) / 16777216.0F - 0.5F; }
             }}));
        auto pass = weights.begin(stream);
        std::array<std::uint32_t, experts> guess{};
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            {  // this layer's router, and the next one's on the same state: a guess, as the state changes little
                const WeightId here = model.routers[layer], next = model.routers[(layer + 1) % layers];
                const auto lease = pass.acquire({here, next});
                unwrap(device.launch(
                    stream, {.name = "router",
                             .duration = std::chrono::microseconds{3},
                             .reads = {{lease.data(here), experts * hidden * sizeof(float)},
                                       {lease.data(next), experts * hidden * sizeof(float)},
                                       {state.x, hidden * sizeof(float)}},
                             .writes = {{state.scores, 2 * experts * sizeof(float)}},
                             .body = [state, a = lease.template get<float>(here), b = lease.template get<float>(next)] {
                                 score(state.x, a, state.scores);
                                 score(state.x, b, state.scores + experts);
                             }}));
            }
            const Copy copy{state.scores_on_host, state.scores, 2 * experts * sizeof(float)};
            unwrap(device.copy({&copy, 1}, stream));
            unwrap(device.synchronize(stream));

            const auto order = ranked(state.scores_on_host);
            if (layer > 0) {
                for (std::uint32_t i = 0; i < chosen; ++i) {
                    outcome.guessed += order[i] == guess[0] || order[i] == guess[1];
                }
            }
            guess = ranked(state.scores_on_host + experts);
            std::array<WeightId, chosen> needed{};
            std::array<float, chosen> shares{};
            float total = 0;
            for (std::uint32_t i = 0; i < chosen; ++i) {
                needed[i] = model.ids[layer][order[i]];
                total += shares[i] = std::exp(state.scores_on_host[order[i]] - state.scores_on_host[order[0]]);
            }
            for (float& share : shares) { share /= total; }

            const auto lease = pass.acquire(std::span<const WeightId>{needed});
            if constexpr (requires { weights.prefetcher().hint(std::span<const prefetch::Hint>{}); }) {
                if (hints) {  // after the acquisition, so that the copies of this layer come first
                    std::array<prefetch::Hint, chosen> likely{};
                    for (std::uint32_t i = 0; i < chosen; ++i) {
                        const WeightId id = model.ids[(layer + 1) % layers][guess[i]];
                        likely[i] = {.storage = model.catalog.storage_of(id), .probability = i == 0 ? 0.9F : 0.8F};
                    }
                    unwrap(weights.prefetcher().hint(likely));
                }
            }
            const std::array<const float*, chosen> at{lease.template get<float>(needed[0]),
                                                      lease.template get<float>(needed[1])};
            constexpr std::uint64_t bytes = expert_floats * sizeof(float);
            unwrap(device.launch(stream, {.name = "experts",
                                          .duration = std::chrono::microseconds{40},  // with the attention of the layer
                                          .reads = {{at[0], bytes}, {at[1], bytes}, {state.x, hidden * sizeof(float)}},
                                          .writes = {{state.x, hidden * sizeof(float)}},
                                          .body = [x = state.x, at, shares] { apply(x, at, shares); }}));
        }
        pass.end();
        unwrap(device.synchronize(stream));
        outcome.output.insert(outcome.output.end(), state.x, state.x + hidden);
    }
    outcome.milliseconds = double((device.host_time() - begin).count()) / 1e6 / tokens;
    outcome.statistics = weights.statistics();
    return outcome;
}

}  // namespace

int main() try {
    SimulatedDevice device;
    const Mixture model{device};
    const auto stream = unwrap(device.create_stream("compute"));
    State state{static_cast<float*>(unwrap(device.allocate(hidden * sizeof(float)))),
                static_cast<float*>(unwrap(device.allocate(2 * experts * sizeof(float)))),
                static_cast<float*>(unwrap(device.allocate_host(2 * experts * sizeof(float))))};

    using Hinted = Experts<SimulatedDevice>;
    using Plain = Cached<SimulatedDevice>;
    const auto options = [&](Budget budget) {
        Hinted::Options made;
        made.budget = budget;
        made.policies.evictor = evict::ExpectedUse{{.layers = model.layer_of}};
        return made;
    };
    const Budget half = Budget::percent_of_weights(50);
    std::vector<std::pair<const char*, Outcome>> runs;
    runs.emplace_back("everything resident",
                      generate<Hinted>(device, stream, model, state, options(Budget::percent_of_weights(1000)), false));
    runs.emplace_back("Experts, with hints", generate<Hinted>(device, stream, model, state, options(half), true));
    runs.emplace_back("Experts, without", generate<Hinted>(device, stream, model, state, options(half), false));
    runs.emplace_back("Cached", generate<Plain>(device, stream, model, state, {.budget = half}, false));

    std::printf(
        "%u layers of %u experts of %.2f MiB, %u a token; %.0f MiB of them, half of that is the budget; %u tokens\n\n",
        layers, experts, double(expert_floats * sizeof(float)) / mib, chosen,
        double(model.catalog.streamed_bytes()) / mib, tokens);
    std::printf("%-20s %10s %14s %8s %11s %8s %12s\n", "", "held", "copied a token", "hits", "prefetched", "missed",
                "a token");
    bool same = true;
    for (const auto& [name, run] : runs) {
        const Counters& total = run.statistics.total;
        same = same && std::memcmp(run.output.data(), runs.front().second.output.data(),
                                   run.output.size() * sizeof(float)) == 0;
        std::printf("%-20s %6.0f MiB %10.1f MiB %8llu %11llu %8llu %9.3f ms\n", name,
                    double(run.statistics.held_bytes) / mib, double(total.fetched_bytes) / mib / tokens,
                    static_cast<unsigned long long>(total.hits), static_cast<unsigned long long>(total.prefetch_hits),
                    static_cast<unsigned long long>(total.demand_misses), run.milliseconds);
    }
    const bool finite = std::all_of(runs.front().second.output.begin(), runs.front().second.output.end(),
                                    [](float v) { return std::isfinite(v); });
    const std::uint64_t prefetched = runs[1].second.statistics.total.prefetch_hits;
    std::printf(
        "\nthe router guessed %.0f %% of the experts a layer ahead; tokens %s those of the resident run bit for bit; "
        "reports of the checker: %llu\n",
        100.0 * double(runs[1].second.guessed) / (tokens * (layers - 1) * chosen), same ? "equal" : "DIFFER FROM",
        static_cast<unsigned long long>(device.report_count()));
    for (const auto& report : device.reports()) { std::printf("%s\n", report.text.c_str()); }
    unwrap(device.deallocate(state.x));
    unwrap(device.deallocate(state.scores));
    unwrap(device.deallocate_host(state.scores_on_host));
    return same && finite && prefetched > 0 && device.report_count() == 0 ? 0 : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "experts: %s\n", error.what()), 2; }
