// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Experts whose router is on the device: a token is one graph. Beside it, in turns, the preset Experts, whose host reads the router's
// choice, with and without hints, and the same graph with experts that travel packed. Kernels that read every chosen expert and a dense part
// stand in for the model; every sum is checked.
// Arguments: a recorded router (.npy of integers [tokens, layers, chosen]; without one, a made-up one), and the bytes of an expert.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/packed/cuda_packer.cuh"
#include "residency/packed/pack.hpp"
#include "residency/residency.hpp"
#include "residency/routed/cuda_server.cuh"
#include "residency/routed/routed_experts.hpp"

namespace {

using namespace residency;

constexpr std::uint32_t warm_tokens = 28, most_chosen = 8;
constexpr std::uint64_t dense_bytes = 11'953'152;

/// What a router chose: experts of their layer, by token and layer.
struct Router {
    std::uint32_t tokens = 0, layers = 48, experts = 128, chosen = 6;
    std::vector<std::int32_t> choices;
};

/// A router that takes some of the last token's experts again, and some experts more often than others.
Router made_up() {
    Router router;
    router.tokens = 156;
    std::mt19937 random{5};
    std::vector<double> weights;
    for (std::uint32_t i = 0; i < router.experts; ++i) { weights.push_back(1 / (8.0 + i)); }
    std::vector<std::discrete_distribution<std::int32_t>> by_layer;
    std::vector<std::vector<std::int32_t>> last(router.layers);
    for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
        std::ranges::shuffle(weights, random);
        by_layer.emplace_back(weights.begin(), weights.end());
    }
    for (std::uint32_t token = 0; token < router.tokens; ++token) {
        for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
            std::vector<std::int32_t> now;
            for (const std::int32_t each : last[layer]) {
                if (random() % 100 < 25) { now.push_back(each); }
            }
            while (now.size() < router.chosen) {
                const std::int32_t expert = by_layer[layer](random);
                if (std::ranges::find(now, expert) == now.end()) { now.push_back(expert); }
            }
            router.choices.insert(router.choices.end(), now.begin(), now.end());
            last[layer] = std::move(now);
        }
    }
    return router;
}

Router recorded(const std::string& path) {
    const lab::trace::Trace trace = BENCH_RESULT(lab::read_trace(path, "npy"));
    Router router;
    router.layers = trace.groups.back() + 1;
    router.experts = static_cast<std::uint32_t>(trace.bytes.size()) / router.layers;
    router.tokens = static_cast<std::uint32_t>(trace.steps()) / router.layers;
    router.chosen = static_cast<std::uint32_t>(trace.step(0).size());
    for (std::size_t row = 0; row < trace.steps(); ++row) {
        if (trace.step(row).size() != router.chosen || router.chosen > most_chosen) {
            std::fprintf(stderr, "%s: every layer of every token needs as many different experts, at most %u\n",
                         path.c_str(), most_chosen);
            std::exit(1);
        }
        for (const StorageId id : trace.step(row)) {
            router.choices.push_back(static_cast<std::int32_t>(index(id) % router.experts));
        }
    }
    return router;
}

__device__ unsigned long long sum_of(const uint4& word) {
    return static_cast<unsigned long long>(word.x) + word.y + word.z + word.w;
}
__device__ unsigned long long sum_of(const uint4* at, std::size_t words, std::size_t first, std::size_t stride) {
    unsigned long long sum = 0;
    std::size_t i = first;
    for (; i + 3 * stride < words; i += 4 * stride) {  // four loads under way
        const uint4 a = __ldcs(at + i), b = __ldcs(at + i + stride), c = __ldcs(at + i + 2 * stride),
                    d = __ldcs(at + i + 3 * stride);
        sum += sum_of(a) + sum_of(b) + sum_of(c) + sum_of(d);
    }
    for (; i < words; i += stride) { sum += sum_of(__ldcs(at + i)); }
    return sum;
}
/// The warp's sum is added to a sum in device memory.
__device__ void add(unsigned long long sum, unsigned long long* to) {
    for (int distance = 16; distance > 0; distance /= 2) { sum += __shfl_down_sync(0xffffffffU, sum, distance); }
    if (threadIdx.x % 32 == 0 && sum != 0) { atomicAdd(to, sum); }
}
/// Row k of blocks reads the k-th expert; the last row the dense part. `experts`: their addresses.
template <class Experts>
__device__ void read_all(const Experts& experts, std::uint32_t chosen, std::size_t bytes, unsigned long long* sums,
                         const std::byte* dense) {
    const std::uint32_t k = blockIdx.y;
    const std::size_t first = blockIdx.x * blockDim.x + threadIdx.x, stride = std::size_t{gridDim.x} * blockDim.x;
    const auto* const at = reinterpret_cast<const uint4*>(k < chosen ? experts[k] : dense);
    add(sum_of(at, (k < chosen ? bytes : dense_bytes) / 16, first, stride), sums + k);
}
__global__ void products(const std::byte* const* experts, std::uint32_t chosen, std::size_t bytes,
                         unsigned long long* sums, const std::byte* dense) {
    read_all(experts, chosen, bytes, sums, dense);
}
/// Where every expert lies on the device, one after another, those of a layer from `layer` on.
struct InOrder {
    const std::byte* layer;
    const std::int32_t* choices;
    std::size_t bytes;
    __device__ const std::byte* operator[](std::uint32_t k) const { return layer + choices[k] * bytes; }
};
__global__ void products_in_order(InOrder experts, std::uint32_t chosen, std::size_t bytes, unsigned long long* sums,
                                  const std::byte* dense) {
    read_all(experts, chosen, bytes, sums, dense);
}
/// Where the host knows the addresses.
struct Addresses {
    const std::byte* at[most_chosen];
};
__global__ void products_of(Addresses addresses, std::uint32_t chosen, std::size_t bytes, unsigned long long* sums,
                            const std::byte* dense) {
    read_all(addresses.at, chosen, bytes, sums, dense);
}
/// Compares the sums of a layer with what they have to be, and clears them.
__global__ void check(unsigned long long* sums, const unsigned long long* right, const std::int32_t* choices,
                      const std::int32_t* token, std::uint32_t layers, std::uint32_t layer, std::uint32_t experts,
                      std::uint32_t chosen, unsigned long long* wrong) {
    const std::uint32_t k = threadIdx.x;
    if (k < chosen) {
        const std::int32_t expert = choices[(std::size_t(*token) * layers + layer) * chosen + k];
        if (sums[k] != right[layer * experts + expert]) { atomicAdd(wrong, 1ULL); }
    }
    if (k <= chosen) { sums[k] = 0; }
}
/// The router of every layer, a block each: its choices for the token that runs, and its guess for the next layer. One kernel of a token, since
/// the routers' own time is not measured: the host's way only copies what they chose.
__global__ void route(const std::int32_t* choices, const std::int32_t* guesses, const std::int32_t* token,
                      std::uint32_t chosen, std::int32_t* to) {
    if (threadIdx.x < chosen) {
        const std::size_t at = (std::size_t(*token) * gridDim.x + blockIdx.x) * chosen + threadIdx.x;
        std::int32_t* const routed = to + std::size_t{2} * blockIdx.x * most_chosen + threadIdx.x;
        routed[0] = choices[at];
        routed[most_chosen] = guesses[at + chosen];
    }
}
__global__ void next_token(std::int32_t* token) { ++*token; }
__device__ unsigned mixed(unsigned x) {
    x = (x ^ x >> 16) * 0x7feb352dU;
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
}
/// Two bf16 values of a normal distribution, as weights have them.
__device__ unsigned two_weights(unsigned seed) {
    const float u = static_cast<float>((mixed(seed) >> 8) + 1) * 0x1p-24F;
    const float v = static_cast<float>(mixed(seed ^ 0x9e3779b9U) >> 8) * 0x1p-23F;
    const float scale = 0.02F * sqrtf(-2 * logf(u));
    return (__float_as_uint(scale * cospif(v)) + 0x8000U) >> 16 |
           ((__float_as_uint(scale * sinpif(v)) + 0x8000U) & 0xffff0000U);
}
__global__ void write(std::byte* host, std::size_t bytes) {
    auto* const at = reinterpret_cast<unsigned*>(host + std::size_t{blockIdx.x} * bytes);
    for (std::size_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) {
        at[i] = two_weights(static_cast<unsigned>(i) + mixed(blockIdx.x));
    }
}
__global__ void sum_up(const std::byte* host, std::size_t bytes, unsigned long long* right) {
    const auto* const at = reinterpret_cast<const uint4*>(host + std::size_t{blockIdx.x} * bytes);
    add(sum_of(at, bytes / 16, threadIdx.x, blockDim.x), right + blockIdx.x);
}

template <class T>
T* on_device(std::span<const T> values, std::size_t count) {
    T* at = nullptr;
    BENCH_CUDA(cudaMalloc(&at, count * sizeof(T)));
    BENCH_CUDA(cudaMemset(at, 0, count * sizeof(T)));
    if (!values.empty()) { BENCH_CUDA(cudaMemcpy(at, values.data(), values.size_bytes(), cudaMemcpyHostToDevice)); }
    return at;
}

/// The model, on the host and on the device.
struct Model {
    Model(CudaDevice& device, const Router& of, std::uint64_t each) : gpu{device}, router{of}, bytes{each} {
        const std::size_t all = std::size_t{router.layers} * router.experts;
        host = static_cast<std::byte*>(BENCH_RESULT(gpu.allocate_host(all * bytes)));
        write<<<static_cast<unsigned>(all), 256>>>(host, bytes);
        right = on_device<unsigned long long>({}, all);
        sum_up<<<static_cast<unsigned>(all), 1024>>>(host, bytes, right);
        BENCH_CUDA(cudaDeviceSynchronize());
        const auto held = HostBytes::borrow({host, all * bytes}, HostMemory::pinned);
        CatalogBuilder builder;
        for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
            const std::string name = "layers." + std::to_string(layer);
            builder.add(name, dtype::bf16, {router.experts, bytes / 2},
                        HostSource{held, std::uint64_t{layer} * router.experts * bytes});
            experts.push_back(builder.split(name));
        }
        catalog = builder.build();
        // Of the right choices a fifth is replaced at random: a guess of recall 0.8.
        std::mt19937 random{7};
        guesses = router.choices;
        for (auto& each_guess : guesses) {
            if (random() % 5 == 0) { each_guess = static_cast<std::int32_t>(random() % router.experts); }
        }
        choices =
            on_device<std::int32_t>(router.choices, router.choices.size() + std::size_t{router.layers} * router.chosen);
        guesses_on_device =
            on_device<std::int32_t>(guesses, guesses.size() + std::size_t{router.layers} * router.chosen);
        sums = on_device<unsigned long long>({}, most_chosen + 1);
        wrong = on_device<unsigned long long>({}, 1);
        token = on_device<std::int32_t>({}, 1);
        routed = on_device<std::int32_t>({}, std::size_t{2} * (router.layers + 1) * most_chosen);
        BENCH_CUDA(cudaMalloc(&dense, dense_bytes));
        BENCH_CUDA(cudaMemset(dense, 1, dense_bytes));
        stream = BENCH_RESULT(gpu.create_stream());
    }

    /// What the router chooses, and guesses for the next layer.
    struct Routed {
        std::int32_t *choices, *guess;
    };
    void route_token() {
        route<<<router.layers, 32, 0, stream>>>(choices, guesses_on_device, token, router.chosen, routed);
    }
    [[nodiscard]] Routed routed_of(std::uint32_t layer) const {
        return {routed + std::size_t{2} * layer * most_chosen, routed + (std::size_t{2} * layer + 1) * most_chosen};
    }
    void compute(const std::byte* const* addresses, std::uint32_t layer) {
        products<<<dim3(96, router.chosen + 1), 256, 0, stream>>>(addresses, router.chosen, bytes, sums, dense);
        check_layer(layer);
    }
    void check_layer(std::uint32_t layer) {
        check<<<1, 32, 0, stream>>>(sums, right, choices, token, router.layers, layer, router.experts, router.chosen,
                                    wrong);
    }
    void rewind() { BENCH_CUDA(cudaMemset(token, 0, sizeof *token)); }
    void require_right() const {
        unsigned long long number = 0;
        BENCH_CUDA(cudaMemcpy(&number, wrong, sizeof number, cudaMemcpyDeviceToHost));
        if (number != 0) {
            std::fprintf(stderr, "%llu products are wrong\n", number);
            std::exit(1);
        }
    }

    CudaDevice& gpu;
    const Router& router;
    std::uint64_t bytes;
    std::byte* host = nullptr;
    unsigned long long *right = nullptr, *sums = nullptr, *wrong = nullptr;
    std::byte* dense = nullptr;
    Catalog catalog;
    std::vector<std::vector<WeightId>> experts;
    std::vector<std::int32_t> guesses;
    std::int32_t *choices = nullptr, *guesses_on_device = nullptr, *token = nullptr, *routed = nullptr;
    CudaDevice::Stream stream{};
};

/// Milliseconds a token, and what was brought for one.
struct Run {
    double ms = 0, hits = 0, demand_bytes = 0, other_bytes = 0;
};

/// All tokens by `token(number)`; those after the warm ones are measured, each with the host's wait.
template <class Token>
double mean_ms(Model& model, const Token& token) {
    double sum = 0;
    model.rewind();
    for (std::uint32_t i = 0; i < model.router.tokens; ++i) {
        const double seconds = bench::host_seconds([&] {
            token(i);
            BENCH_CUDA(cudaStreamSynchronize(model.stream));
        });
        if (i >= warm_tokens) { sum += seconds; }
    }
    return sum * 1e3 / (model.router.tokens - warm_tokens);
}

/// How the kernels of a cache run.
struct Kernels {
    bool guesses = false, in_place = false;
    unsigned blocks = 32, guess_blocks = 4;
    bool is_late = false;              ///< guesses come behind the call
    bool is_second_round = false;      ///< all tokens have run once
    const Catalog* catalog = nullptr;  ///< of packed experts; null: raw ones
};

Run in_graph(Model& model, const char* budget, const Kernels& way) {
    const Router& router = model.router;
    const CudaServer<> server{way.blocks, way.guess_blocks};
    RoutedExperts<CudaDevice>::Options options;
    options.budget = Budget::parse(budget);
    options.server = &server;
    options.choices = router.chosen;
    options.read_in_place = way.in_place;
    RoutedExperts<CudaDevice> cache{model.gpu, way.catalog != nullptr ? *way.catalog : model.catalog, model.experts,
                                    options};
    const auto one_token = [&] {
        model.route_token();
        for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
            const auto [choices, guess] = model.routed_of(layer);
            std::optional<routed::Guess> next;
            if (way.guesses && layer + 1 < router.layers) { next = {layer + 1, {guess, router.chosen}}; }
            const auto served = BENCH_RESULT(
                cache.try_serve(layer, {choices, router.chosen}, model.stream, way.is_late ? std::nullopt : next));
            if (next && way.is_late) { BENCH_RESULT(cache.try_guess(next->layer, next->choices, model.stream)); }
            model.compute(served.addresses, layer);
        }
        if (way.guesses) { BENCH_RESULT(cache.try_join(model.stream)); }
        next_token<<<1, 1, 0, model.stream>>>(model.token);
    };
    model.rewind();
    one_token();  // loads the kernels
    BENCH_CUDA(cudaStreamSynchronize(model.stream));
    BENCH_RESULT(model.gpu.begin_capture(model.stream));
    one_token();
    const auto graph = BENCH_RESULT(model.gpu.end_capture(model.stream));
    routed::Counters before;
    Run run;
    for (int round = 0; round < (way.is_second_round ? 2 : 1); ++round) {
        run.ms = mean_ms(model, [&](std::uint32_t token) {
            if (token == warm_tokens) { before = BENCH_RESULT(cache.try_statistics()).total; }
            BENCH_RESULT(model.gpu.launch(graph, model.stream));
        });
    }
    const auto total = BENCH_RESULT(cache.try_statistics()).total;
    const double count = router.tokens - warm_tokens;
    run.hits = static_cast<double>(total.hits - before.hits) / (count * router.layers * router.chosen);
    run.demand_bytes =
        static_cast<double>(total.demand_bytes + total.in_place_bytes - before.demand_bytes - before.in_place_bytes) /
        count;
    run.other_bytes = static_cast<double>(total.guess_bytes - before.guess_bytes) / count;
    model.require_right();
    BENCH_RESULT(model.gpu.destroy_graph(graph));
    return run;
}

Run by_host(Model& model, const char* budget, bool hints) {
    const Router& router = model.router;
    Experts<CudaDevice>::Options options;
    options.budget = Budget::parse(budget);
    options.policies.storages_at_once = router.chosen;
    std::vector<std::uint32_t> layer_of(model.catalog.storages().size());
    for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
        for (const WeightId id : model.experts[layer]) { layer_of[index(model.catalog.storage_of(id))] = layer; }
    }
    options.policies.evictor = evict::ExpectedUse{{.layers = layer_of}};
    Experts<CudaDevice> weights{model.gpu, model.catalog, options};
    auto* const chosen =
        static_cast<std::int32_t*>(BENCH_RESULT(model.gpu.allocate_host(most_chosen * sizeof(std::int32_t))));
    Counters before;
    Run run;
    run.ms = mean_ms(model, [&](std::uint32_t token) {
        if (token == warm_tokens) { before = weights.statistics().total; }
        auto pass = weights.begin(model.stream);
        for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
            const std::size_t first = (std::size_t{token} * router.layers + layer) * router.chosen;
            BENCH_CUDA(cudaMemcpyAsync(chosen, model.choices + first, router.chosen * sizeof(std::int32_t),
                                       cudaMemcpyDeviceToHost, model.stream));
            pass.wait();
            std::array<WeightId, most_chosen> needed{};
            for (std::uint32_t k = 0; k < router.chosen; ++k) {
                needed[k] = model.experts[layer][static_cast<std::size_t>(chosen[k])];
            }
            const auto lease = pass.acquire(std::span{needed}.first(router.chosen));
            if (hints && layer + 1 < router.layers) {
                std::array<prefetch::Hint, most_chosen> likely{};
                for (std::uint32_t k = 0; k < router.chosen; ++k) {
                    const auto guess = static_cast<std::size_t>(model.guesses[first + router.chosen + k]);
                    likely[k] = {.storage = model.catalog.storage_of(model.experts[layer + 1][guess]),
                                 .probability = 0.8F};
                }
                BENCH_RESULT(weights.prefetcher().hint(std::span{likely}.first(router.chosen)));
            }
            Addresses addresses{};
            for (std::uint32_t k = 0; k < router.chosen; ++k) { addresses.at[k] = lease.data(needed[k]); }
            products_of<<<dim3(96, router.chosen + 1), 256, 0, model.stream>>>(addresses, router.chosen, model.bytes,
                                                                               model.sums, model.dense);
            check<<<1, 32, 0, model.stream>>>(model.sums, model.right, model.choices, model.token, router.layers, layer,
                                              router.experts, router.chosen, model.wrong);
        }
        next_token<<<1, 1, 0, model.stream>>>(model.token);
    });
    weights.drain();
    const Counters total = weights.statistics().total;
    const double count = router.tokens - warm_tokens;
    run.hits = static_cast<double>(total.hits + total.prefetch_hits - before.hits - before.prefetch_hits) /
               (count * router.layers * router.chosen);
    run.demand_bytes = static_cast<double>(total.fetched_bytes - before.fetched_bytes) / count;
    model.require_right();
    BENCH_RESULT(model.gpu.deallocate_host(chosen));
    return run;
}

/// The model's kernels alone, as a graph: every expert is on the device.
double compute_ms(Model& model) {
    const Router& router = model.router;
    const std::uint64_t layer_bytes = router.experts * model.bytes;
    std::byte* experts = nullptr;
    BENCH_CUDA(cudaMalloc(&experts, router.layers * layer_bytes));
    BENCH_CUDA(cudaMemcpy(experts, model.host, router.layers * layer_bytes, cudaMemcpyHostToDevice));
    BENCH_RESULT(model.gpu.begin_capture(model.stream));
    model.route_token();
    for (std::uint32_t layer = 0; layer < router.layers; ++layer) {
        const InOrder chosen{experts + layer * layer_bytes, model.routed_of(layer).choices, model.bytes};
        products_in_order<<<dim3(96, router.chosen + 1), 256, 0, model.stream>>>(chosen, router.chosen, model.bytes,
                                                                                 model.sums, model.dense);
        model.check_layer(layer);
    }
    next_token<<<1, 1, 0, model.stream>>>(model.token);
    const auto graph = BENCH_RESULT(model.gpu.end_capture(model.stream));
    const double ms = mean_ms(model, [&](std::uint32_t) { BENCH_RESULT(model.gpu.launch(graph, model.stream)); });
    model.require_right();
    BENCH_RESULT(model.gpu.destroy_graph(graph));
    BENCH_CUDA(cudaFree(experts));
    return ms;
}

/// Bytes a second that a call brings eight experts with, none of which is there.
double fill_rate(Model& model) {
    const Router& router = model.router;
    const CudaServer<> server;
    RoutedExperts<CudaDevice>::Options options;
    options.budget = Budget::parse("12.5%");
    options.server = &server;
    options.choices = most_chosen;
    RoutedExperts<CudaDevice> cache{model.gpu, model.catalog, model.experts, options};
    std::vector<std::int32_t> all(router.experts / most_chosen * most_chosen);
    for (std::size_t i = 0; i < all.size(); ++i) { all[i] = static_cast<std::int32_t>(i); }
    auto* const choices = on_device<std::int32_t>(all, all.size());
    const auto calls = static_cast<std::uint32_t>(all.size() / most_chosen);
    bench::StreamTimer timer{model.stream};
    std::uint32_t layer = 0;
    const double seconds = timer.median_seconds(9, [&] {
        for (std::uint32_t i = 0; i < calls; ++i) {
            BENCH_RESULT(cache.try_serve(layer, {choices + i * most_chosen, most_chosen}, model.stream));
        }
        layer = (layer + 1) % router.layers;
    });
    BENCH_CUDA(cudaFree(choices));
    return static_cast<double>(all.size() * model.bytes) / seconds;
}

/// Bytes a second of large copies just now.
double link_rate(Model& model) {
    std::byte* at = nullptr;
    const std::uint64_t piece = std::uint64_t{256} << 20;
    BENCH_CUDA(cudaMalloc(&at, piece));
    bench::StreamTimer timer{model.stream};
    const double seconds = timer.median_seconds(5, [&] {
        for (std::uint64_t i = 0; i < 4; ++i) {
            BENCH_CUDA(cudaMemcpyAsync(at, model.host + i * piece, piece, cudaMemcpyHostToDevice, model.stream));
        }
    });
    BENCH_CUDA(cudaFree(at));
    return 4.0 * static_cast<double>(piece) / seconds;
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice gpu = bench::open_gpu();
    const CudaPacker packer;
    bench::Records records{"gpu-routed", argc, argv};
    const Router router = argc > 1 ? recorded(argv[1]) : made_up();
    std::vector<std::uint64_t> sizes{3'059'712, 1'048'576};
    if (argc > 2) { sizes = {std::strtoull(argv[2], nullptr, 10)}; }
    for (const std::uint64_t bytes : sizes) {
        Model model{gpu, router, bytes};
        const std::string size = std::to_string(static_cast<double>(bytes + 5'000) / 1e6).substr(0, 4) + " MB";
        const double compute = compute_ms(model), link = link_rate(model);
        records.add(size + ": link", link / 1e9, "GB/s");
        records.add(size + ": compute in a graph", compute, "ms/token");
        const Run whole = in_graph(model, "100%", {.is_second_round = true});
        records.add(size + ": no miss, beside compute", (whole.ms - compute) * 1e3 / router.layers, "us/layer", "<= 6");
        const packed::PackedModel packed = packed::pack(gpu, model.catalog, {}, &packer);
        records.add(size + ": packed over raw bytes",
                    static_cast<double>(packed.packed_bytes) / static_cast<double>(packed.raw_bytes), "");
        const Run whole_packed = in_graph(model, "100%", {.is_second_round = true, .catalog = &packed.catalog});
        records.add(size + ": no miss, packed, beside compute", (whole_packed.ms - compute) * 1e3 / router.layers,
                    "us/layer");
        records.add(size + ": a call that brings eight experts, over the link", fill_rate(model) / link, "", ">= 0.95");
        const std::array<double, 4> targets =
            bytes > 2'000'000 ? std::array{0.90, 0.82, 0.62, 0.60} : std::array{0.80, 0.72, 0.58, 0.60};
        std::size_t k = 0;
        for (const char* const budget : {"12.5%", "25%", "50%", "75%"}) {
            // Host, host with hints, graph, graph with guesses, and both graphs with packed experts.
            std::array<std::vector<double>, 6> times;
            std::array<Run, 6> last;
            for (int turn = 0; turn < 3; ++turn) {
                for (int which = 0; which < 6; ++which) {
                    const int way = turn % 2 == 0 ? which : 5 - which;
                    const bool guesses = way % 2 == 1;
                    auto& run = last[static_cast<std::size_t>(way)];
                    run = way < 2 ? by_host(model, budget, guesses)
                                  : in_graph(model, budget,
                                             {.guesses = guesses, .catalog = way < 4 ? nullptr : &packed.catalog});
                    times[static_cast<std::size_t>(way)].push_back(run.ms);
                }
            }
            std::array<double, 6> ms{};
            for (std::size_t way = 0; way < 6; ++way) { ms[way] = bench::median(times[way]); }
            const std::string name = size + ", " + budget;
            const auto least = [&](const Run& run) {
                return compute + run.demand_bytes / link * 1e3 + 6e-3 * router.layers;
            };
            records.add(name + ": host", ms[0], "ms/token");
            records.add(name + ": host with hints", ms[1], "ms/token");
            records.add(name + ": graph", ms[2], "ms/token");
            records.add(name + ": graph with guesses", ms[3], "ms/token");
            records.add(name + ": graph, packed", ms[4], "ms/token");
            records.add(name + ": graph with guesses, packed", ms[5], "ms/token");
            records.add(name + ": packed over raw graph", ms[4] / ms[2], "");
            records.add(name + ": hits, graph, packed", last[4].hits, "");
            records.add(name + ": brought, graph", last[2].demand_bytes / 1e6, "MB/token");
            records.add(name + ": brought, graph, packed", last[4].demand_bytes / 1e6, "MB/token");
            records.add(name + ": graph over the faster of the host's", std::min(ms[2], ms[3]) / std::min(ms[0], ms[1]),
                        "", "<= " + std::to_string(targets[k]));
            records.add(name + ": graph over compute, bytes, 6 us a layer", ms[2] / least(last[2]), "", "<= 1.05");
            records.add(name + ": guesses over none", ms[3] / ms[2], "", "<= 1.01");
            records.add(name + ": hits, host", last[0].hits, "");
            records.add(name + ": hits, graph", last[2].hits, "", ">= " + std::to_string(last[0].hits - 0.003));
            records.add(name + ": hits, graph with guesses", last[3].hits, "");
            records.add(name + ": guessed", last[3].other_bytes / 1e6, "MB/token");
            ++k;
        }
        for (const char* const budget : {"12.5%", "25%", "50%", "75%"}) {
            std::array<std::vector<double>, 2> times;
            for (int turn = 0; turn < 3; ++turn) {
                for (const bool is_late : {turn % 2 == 0, turn % 2 != 0}) {
                    times[is_late ? 1 : 0].push_back(in_graph(model, budget, {.guesses = true, .is_late = is_late}).ms);
                }
            }
            records.add(size + ", " + budget + ": guesses beside the call over guesses behind it",
                        bench::median(times[0]) / bench::median(times[1]), "");
        }
        records.add(size + ", 12.5%: read in place over the graph",
                    in_graph(model, "12.5%", {.in_place = true}).ms / in_graph(model, "12.5%", {}).ms, "");
        for (const unsigned blocks : {8U, 16U, 64U}) {
            records.add(size + ", 25%: graph, " + std::to_string(blocks) + " blocks",
                        in_graph(model, "25%", {.blocks = blocks}).ms, "ms/token");
        }
        for (const unsigned blocks : {2U, 8U, 16U}) {
            records.add(size + ", 25%: guesses, " + std::to_string(blocks) + " blocks",
                        in_graph(model, "25%", {.guesses = true, .guess_blocks = blocks}).ms, "ms/token");
        }
        BENCH_RESULT(gpu.deallocate_host(model.host));
    }
}
