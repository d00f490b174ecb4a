// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A cache of experts whose router is on the GPU: kernels decide as the host does, and every byte is right.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/conformance/codec.hpp"
#include "residency/conformance/routed_policy.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/model/storage.hpp"
#include "residency/routed/cuda_server.cuh"
#include "residency/routed/on_host.hpp"
#include "residency/routed/routed_experts.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/gpu/support.hpp"
#include "tests/routed/pack_expert.hpp"

namespace gpu_routed_test {

using namespace residency;
using conformance::detail::choose_experts;
using gpu::must;
using gpu::must_cuda;
using residency::routed::ExpectedUse;
using residency::routed::Lfu;
using residency::routed::Lru;

template <class P>
using Cache = RoutedExperts<CudaDevice, P>;

namespace {

constexpr std::uint32_t layers = 6, per_layer = 32, all = layers * per_layer, tokens = 200, chosen = 4;
constexpr std::uint64_t stride = 1 << 19, bytes = stride - 4090;  // no multiple of 16, nor of a piece

/// Counts the bytes, or 16 at once, in which an expert differs from its own on the host. By all threads of a block.
__device__ void compare_expert(const std::byte* at, const std::byte* right, unsigned long long* wrong) {
    unsigned long long different = 0;
    const auto *const words = reinterpret_cast<const uint4*>(at), *const right_words =
                                                                      reinterpret_cast<const uint4*>(right);
    for (std::uint64_t i = threadIdx.x; i < bytes / sizeof(uint4); i += blockDim.x) {
        const uint4 a = words[i], b = right_words[i];
        different += a.x != b.x || a.y != b.y || a.z != b.z || a.w != b.w ? 1 : 0;
    }
    for (std::uint64_t i = bytes / sizeof(uint4) * sizeof(uint4) + threadIdx.x; i < bytes; i += blockDim.x) {
        different += at[i] != right[i] ? 1 : 0;
    }
    if (different != 0) { atomicAdd(wrong, different); }
}
/// Compares what every chosen expert of a layer is read as with its bytes on the host. A block for each choice.
__global__ void compare(const std::byte* const* addresses, const std::int32_t* slots, const std::byte* base,
                        std::uint64_t slot_bytes, const std::int32_t* choices, const std::int32_t* token,
                        std::uint32_t layer, const std::byte* host, unsigned long long* wrong) {
    const std::int32_t choice = choices[(*token * layers + layer) * gridDim.x + blockIdx.x];
    const std::byte* const at = addresses[blockIdx.x];
    const std::int32_t slot = slots[blockIdx.x];
    const std::byte* const right = host + (layer * per_layer + choice) * stride;
    const bool is_there = slot == -1 ? at == right : at == base + slot * slot_bytes;
    if (!is_there && threadIdx.x == 0) { atomicAdd(wrong, 1ULL); }
    compare_expert(at, right, wrong);
}
/// The same of a group of a prefill. A block for each expert of it, the first of which is expert `first` of all.
__global__ void compare_group(const std::byte* const* addresses, std::uint32_t first, const std::byte* host,
                              unsigned long long* wrong) {
    compare_expert(addresses[blockIdx.x], host + (first + blockIdx.x) * stride, wrong);
}
__global__ void next_token(std::int32_t* token) { ++*token; }
/// The choices of a layer of the token that runs, to where the library reads them.
__global__ void route(const std::int32_t* choices, const std::int32_t* token, std::uint32_t layer, std::uint32_t count,
                      std::int32_t* to) {
    if (threadIdx.x < count) { to[threadIdx.x] = choices[(*token * layers + layer) * count + threadIdx.x]; }
}

/// A model on the first GPU, and the choices of a router for many tokens.
struct Fixture {
    explicit Fixture(std::uint32_t seed, std::uint32_t per_call = chosen, bool is_packed = false) : count{per_call} {
        host = static_cast<std::byte*>(must(gpu.allocate_host(all * stride)));
        gpu::fill_pattern({host, all * stride}, 5);
        if (is_packed) { fill_weights(); }
        view = static_cast<const std::byte*>(must(gpu.device_view(host)));
        held = HostBytes::borrow({host, all * stride}, HostMemory::pinned);
        CatalogBuilder builder;
        for (std::uint32_t i = 0; i < all; ++i) {
            builder.add("e" + std::to_string(i), dtype::u8, {bytes}, HostSource{held, i * stride});
            if (i % per_layer == 0) { experts.emplace_back(); }
            experts.back().push_back(WeightId{i});
        }
        catalog = builder.build();
        if (is_packed) { pack(); }
        std::mt19937 random{seed};
        for (std::uint32_t i = 0; i < tokens * layers; ++i) {
            const auto some = choose_experts(random, per_layer, count);
            choices.insert(choices.end(), some.begin(), some.end());
            auto guess = some;
            for (auto& each : guess) {
                if (random() % 4 == 0) { each = static_cast<std::int32_t>(random() % per_layer); }
            }
            guesses.insert(guesses.end(), guess.begin(), guess.end());
        }
        stream = must(gpu.create_stream());
        const std::size_t size = choices.size() * sizeof(std::int32_t);
        for (auto* at : {&on_device, &guesses_on_device}) { must_cuda(cudaMalloc(at, size)); }
        must_cuda(cudaMemcpy(on_device, choices.data(), size, cudaMemcpyHostToDevice));
        must_cuda(cudaMemcpy(guesses_on_device, guesses.data(), size, cudaMemcpyHostToDevice));
        must_cuda(cudaMalloc(&token, sizeof *token));
        must_cuda(cudaMalloc(&routed, (1 + layers) * count * sizeof *routed));
        must_cuda(cudaMalloc(&wrong, sizeof *wrong));
        must_cuda(cudaMemset(token, 0, sizeof *token));
        must_cuda(cudaMemset(wrong, 0, sizeof *wrong));
    }
    ~Fixture() {
        must_cuda(cudaDeviceSynchronize());
        for (void* at : {static_cast<void*>(on_device), static_cast<void*>(guesses_on_device),
                         static_cast<void*>(token), static_cast<void*>(routed), static_cast<void*>(wrong)}) {
            must_cuda(cudaFree(at));
        }
        must(gpu.destroy_stream(stream));
        catalog = Catalog{};
        held.reset();
        must(gpu.deallocate_host(host));
        if (packed_host != nullptr) { must(gpu.deallocate_host(packed_host)); }
    }
    Fixture(const Fixture&) = delete;
    Fixture& operator=(const Fixture&) = delete;

    /// Bytes that get smaller: bf16 values of weights.
    void fill_weights() const {
        std::mt19937 random{9};
        const auto weights = conformance::detail::normal_weights(random, 2 * stride, 0.02F);
        for (std::uint32_t i = 0; i < all; ++i) {  // from another place on, each
            std::memcpy(host + i * stride, weights.data() + i * 2048, bytes);
        }
    }
    /// The experts as they travel packed; one in five travels raw.
    void pack() {
        packed_host = static_cast<std::byte*>(must(gpu.allocate_host(2 * all * stride)));
        const auto memory = HostBytes::borrow({packed_host, 2 * all * stride}, HostMemory::pinned);
        std::mt19937_64 random{9};
        std::vector<StorageSource> sources;
        for (std::uint32_t i = 0; i < all; ++i) {
            const std::span own{host + i * stride, bytes};
            if (i % 5 == 0) {
                sources.push_back(HostSource{held, i * stride});
            } else {
                sources.push_back(routed_test::pack_expert(random, own, PackedForm::bf16_tiers, true, memory,
                                                           packed_host, 2 * i * stride));
            }
        }
        catalog = must(catalog.try_with_sources(std::move(sources)));
    }
    /// The sources of the experts, as kernels' code on the host reads them.
    void describe_to(std::vector<routed::Source>& sources) const {
        for (std::uint32_t i = 0; i < all; ++i) {
            const auto* source = std::get_if<PackedHostSource>(&catalog.storages()[i].source);
            if (source == nullptr) { continue; }
            sources[i].bytes = source->bytes;
            sources[i].parts = static_cast<std::uint32_t>(source->parts->size());
        }
    }
    /// Enqueues a comparison of what served() of a layer gave.
    void check(const routed::Served& served, std::uint32_t layer) const {
        compare<<<count, 1024, 0, stream>>>(served.addresses, served.slots, served.base, served.slot_bytes, on_device,
                                            token, layer, view, wrong);
    }
    /// Enqueues one token.
    template <class P>
    void run(Cache<P>& cache, bool guesses_too) {
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            route<<<1, 1024, 0, stream>>>(on_device, token, layer, count, routed);
            std::optional<residency::routed::Guess> next;
            if (guesses_too && layer + 1 < layers) {
                std::int32_t* const likely = routed + (1 + layer) * count;
                route<<<1, 1024, 0, stream>>>(guesses_on_device, token, layer + 1, count, likely);
                next = {layer + 1, {likely, count}};
            }
            // Beside the call, or behind it.
            const bool is_early = layer % 3 != 2;
            const auto served = must(cache.try_serve(layer, {routed, count}, stream, is_early ? next : std::nullopt));
            if (next && !is_early) { must(cache.try_guess(next->layer, next->choices, stream)); }
            check(served, layer);
        }
        if (guesses_too) { must(cache.try_join(stream)); }
        next_token<<<1, 1, 0, stream>>>(token);
        must_cuda(cudaGetLastError());
    }
    /// All tokens, with right guesses, each of which has ended before the call that it is for.
    template <class P>
    void run_after_guesses(Cache<P>& cache) {
        rewind();
        for (std::uint32_t call = 0; call < tokens * layers; ++call) {
            const std::uint32_t layer = call % layers, next = (call + 1) % layers;
            route<<<1, 1024, 0, stream>>>(on_device, token, layer, count, routed);
            check(must(cache.try_serve(layer, {routed, count}, stream)), layer);
            if (call + 1 == tokens * layers) { break; }
            if (next == 0) { next_token<<<1, 1, 0, stream>>>(token); }
            std::int32_t* const likely = routed + (1 + next) * count;
            route<<<1, 1024, 0, stream>>>(on_device, token, next, count, likely);
            must(cache.try_guess(next, {likely, count}, stream));
            must_cuda(cudaDeviceSynchronize());
        }
    }
    [[nodiscard]] unsigned long long wrong_bytes() const {
        unsigned long long number = 0;
        must_cuda(cudaMemcpy(&number, wrong, sizeof number, cudaMemcpyDeviceToHost));
        return number;
    }
    void rewind() const { must_cuda(cudaMemsetAsync(token, 0, sizeof *token, stream)); }
    template <class P>
    [[nodiscard]] typename Cache<P>::Options options(const CudaServer<P>& server, const char* budget) const {
        typename Cache<P>::Options result;
        result.budget = Budget::parse(budget);
        result.server = &server;
        result.choices = count;
        return result;
    }

    std::uint32_t count;
    CudaDevice gpu{0};
    std::byte *host = nullptr, *packed_host = nullptr;
    const std::byte* view = nullptr;
    std::shared_ptr<const HostBytes> held;
    Catalog catalog;
    std::vector<std::vector<WeightId>> experts;
    CudaDevice::Stream stream{};
    std::vector<std::int32_t> choices, guesses;
    std::int32_t *on_device = nullptr, *guesses_on_device = nullptr, *token = nullptr, *routed = nullptr;
    unsigned long long* wrong = nullptr;
};

}  // namespace

TEST_CASE_TEMPLATE("conformance: a policy of experts on a device", P, ExpectedUse, Lru, Lfu) {
    CudaDevice device{0};
    conformance::check_routed_policy_on(device, CudaServer<P>{}, conformance::RoutedSuite<P>{.runs = 4, .tokens = 20});
}
namespace {

template <class P>
void check_decisions(unsigned seed, bool is_packed, std::initializer_list<const char*> budgets) {
    Fixture f{seed, chosen, is_packed};
    const CudaServer<P> server;
    for (const char* const budget : budgets) {
        CAPTURE(budget);
        f.rewind();
        Cache<P> cache{f.gpu, f.catalog, f.experts, f.template options<P>(server, budget)};
        routed::OnHost<P> on_host{conformance::detail::equal_layers(layers, per_layer), cache.slots(), bytes};
        f.describe_to(on_host.sources);
        for (std::uint32_t i = 0; i < tokens; ++i) {
            f.run(cache, false);
            for (std::uint32_t layer = 0; layer < layers; ++layer) {
                const auto first = f.choices.begin() + static_cast<std::ptrdiff_t>((i * layers + layer) * chosen);
                on_host.serve(layer, {first, first + chosen});
            }
        }
        const auto statistics = must(cache.try_statistics());
        CHECK(f.wrong_bytes() == 0);
        CHECK(statistics.total.hits == on_host.state.counters.hits);
        CHECK(statistics.total.misses == on_host.state.counters.misses);
        CHECK(statistics.total.demand_bytes == on_host.state.counters.demand_bytes);
        CHECK(statistics.held_bytes <= cache.budget().bytes);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("gpu: routed: kernels decide as the host's code does, and every byte is right", P, ExpectedUse, Lru,
                   Lfu) {
    gpu::for_seeds(3, [](unsigned seed) { check_decisions<P>(seed, false, {"0", "30%", "70%", "100%"}); });
}

// Threads of the block that decides have several slots each, and calls take many of them at once.
TEST_CASE_TEMPLATE("gpu: routed: kernels choose among thousands of slots as the host's code does", P, ExpectedUse,
                   Lfu) {
    CudaDevice device{0};
    CHECK(conformance::check_routed_policy_on(
              device, CudaServer<P>{},
              conformance::RoutedSuite<P>{.runs = 4, .tokens = 20, .layers = 2, .per_layer = 1024, .choices = 600}) >
          1024);
}

TEST_CASE("gpu: routed: a token is one graph, with guesses beside it, which stays valid over changes of the budget") {
    gpu::for_seeds(7, [](unsigned seed) {
        Fixture f{seed};
        const CudaServer<> server;
        Cache<ExpectedUse> cache{f.gpu, f.catalog, f.experts, f.options<ExpectedUse>(server, "40%")};
        f.run(cache, true);  // loads the kernels
        must_cuda(cudaStreamSynchronize(f.stream));
        std::array<CudaDevice::Graph, 2> graphs;
        for (const bool with_guesses : {false, true}) {
            must(f.gpu.begin_capture(f.stream));
            f.run(cache, with_guesses);
            graphs[with_guesses ? 1 : 0] = must(f.gpu.end_capture(f.stream));
        }
        for (const char* const budget : {"40%", "100%", "0", "60%"}) {
            must(cache.try_set_budget(Budget::parse(budget)));
            for (const auto& graph : graphs) {
                f.rewind();
                for (std::uint32_t i = 0; i < tokens; ++i) { must(f.gpu.launch(graph, f.stream)); }
            }
            const auto statistics = must(cache.try_statistics());
            CHECK(statistics.held_bytes <= cache.budget().bytes);
            CHECK(f.wrong_bytes() == 0);
        }
        const auto total = must(cache.try_statistics()).total;
        CHECK(total.hits + total.misses == std::uint64_t{chosen} * layers * (8 * tokens + 1));
        f.run_after_guesses(cache);
        CHECK(must(cache.try_statistics()).total.guess_hits > 0);
        CHECK(f.wrong_bytes() == 0);
        for (const auto& graph : graphs) { must(f.gpu.destroy_graph(graph)); }
    });
}

TEST_CASE("gpu: routed: batches of 64 tokens, and experts that are read in host memory") {
    for (const bool in_place : {false, true}) {
        Fixture f{11, 32};
        const CudaServer<> server;
        auto options = f.options<ExpectedUse>(server, "25%");
        options.read_in_place = in_place;
        Cache<ExpectedUse> cache{f.gpu, f.catalog, f.experts, options};
        for (std::uint32_t i = 0; i < 20; ++i) { f.run(cache, true); }
        const auto total = must(cache.try_statistics()).total;
        CHECK(f.wrong_bytes() == 0);
        CHECK(total.misses > 0);
        if (in_place) { CHECK(total.in_place > 0); }
    }
}

TEST_CASE("gpu: routed: a wrong choice is told by the next call, once") {
    Fixture f{13};
    const CudaServer<> server;
    Cache<ExpectedUse> cache{f.gpu, f.catalog, f.experts, f.options<ExpectedUse>(server, "40%")};
    const std::array<std::int32_t, chosen> choices{1, per_layer, 2, -1};
    must_cuda(cudaMemcpy(f.routed, choices.data(), sizeof choices, cudaMemcpyHostToDevice));
    must(cache.try_serve(2, {f.routed, chosen}, f.stream));
    must_cuda(cudaStreamSynchronize(f.stream));
    const auto refused = cache.try_serve(0, {f.routed, chosen}, f.stream);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("layer 2: choice 1 of an earlier call or guess was expert 32") !=
          std::string::npos);
    f.run(cache, true);
    CHECK(cache.try_statistics());
    CHECK(f.wrong_bytes() == 0);
}

TEST_CASE_TEMPLATE("gpu: routed packed: kernels decide as the host's code does, and every byte is right", P,
                   ExpectedUse, Lru) {
    gpu::for_seeds(3, [](unsigned seed) { check_decisions<P>(seed, true, {"30%", "100%"}); });
}

TEST_CASE("gpu: routed packed: a token is one graph with guesses, which stays valid over budgets and prefills") {
    gpu::for_seeds(7, [](unsigned seed) {
        Fixture f{seed, chosen, true};
        const CudaServer<> server;
        Cache<ExpectedUse> cache{f.gpu, f.catalog, f.experts, f.options<ExpectedUse>(server, "40%")};
        f.run(cache, true);  // loads the kernels
        must_cuda(cudaStreamSynchronize(f.stream));
        must(f.gpu.begin_capture(f.stream));
        f.run(cache, true);
        const auto graph = must(f.gpu.end_capture(f.stream));
        for (const char* const budget : {"40%", "100%", "15%", "60%"}) {
            must(cache.try_set_budget(Budget::parse(budget)));
            f.rewind();
            for (std::uint32_t i = 0; i < tokens; ++i) { must(f.gpu.launch(graph, f.stream)); }
            CHECK(must(cache.try_statistics()).held_bytes <= cache.budget().bytes);
            CHECK(f.wrong_bytes() == 0);
            must(cache.try_begin_prefill());
            for (std::uint32_t layer = 0; layer < layers; ++layer) {
                for (std::uint32_t group = 0; group < cache.prefill_groups(layer); ++group) {
                    const auto there = must(cache.try_acquire(layer, group, f.stream));
                    compare_group<<<there.last - there.first, 1024, 0, f.stream>>>(
                        there.addresses + there.first, layer * per_layer + there.first, f.view, f.wrong);
                }
            }
            must(cache.try_end_prefill());
            CHECK(f.wrong_bytes() == 0);
        }
        const auto total = must(cache.try_statistics()).total;
        CHECK(total.hits + total.misses == std::uint64_t{chosen} * layers * (4 * tokens + 1));
        f.run_after_guesses(cache);
        CHECK(must(cache.try_statistics()).total.guess_hits > 0);
        CHECK(f.wrong_bytes() == 0);
        must(f.gpu.destroy_graph(graph));
    });
}

TEST_CASE("gpu: routed: a guess that nobody joined runs beside a graph that has guesses of its own") {
    for (const bool is_packed : {false, true}) {
        CAPTURE(is_packed);
        Fixture f{17, chosen, is_packed};
        const CudaServer<> server;
        Cache<ExpectedUse> cache{f.gpu, f.catalog, f.experts, f.options<ExpectedUse>(server, "30%")};
        f.run(cache, true);       // loads the kernels
        const auto guess = [&] {  // as a token does that ends after its first layer
            route<<<1, 1024, 0, f.stream>>>(f.on_device, f.token, 0, f.count, f.routed);
            f.check(must(cache.try_serve(0, {f.routed, f.count}, f.stream)), 0);
            std::int32_t* const likely = f.routed + layers * f.count;
            route<<<1, 1024, 0, f.stream>>>(f.guesses_on_device, f.token, 1, f.count, likely);
            must(cache.try_guess(1, {likely, f.count}, f.stream));
        };
        must_cuda(cudaStreamSynchronize(f.stream));
        guess();
        must(f.gpu.begin_capture(f.stream));
        f.run(cache, true);
        const auto graph = must(f.gpu.end_capture(f.stream));
        f.rewind();
        for (std::uint32_t i = 0; i < tokens; ++i) {
            guess();
            must(f.gpu.launch(graph, f.stream));
        }
        CHECK(f.wrong_bytes() == 0);
        const auto total = must(cache.try_statistics()).total;
        CHECK(total.hits + total.misses == std::uint64_t{chosen} * (layers * (tokens + 1) + tokens + 1));
        must(f.gpu.destroy_graph(graph));
    }
}

TEST_CASE("gpu: routed: a guess that is still to run, or runs, while two calls go by") {
    for (const bool is_packed : {false, true}) {
        CAPTURE(is_packed);
        Fixture f{19, chosen, is_packed};
        const CudaServer<> server{32, routed::most_blocks};
        Cache<ExpectedUse> cache{f.gpu, f.catalog, f.experts, f.options<ExpectedUse>(server, "30%")};
        for (std::uint32_t i = 0; i < tokens; ++i) {
            for (std::uint32_t layer = 0; layer < layers; layer += 2) {
                route<<<1, 1024, 0, f.stream>>>(f.on_device, f.token, layer, f.count, f.routed);
                const auto first = must(cache.try_serve(layer, {f.routed, f.count}, f.stream));
                f.check(first, layer);
                std::int32_t* const likely = f.routed + (1 + layer) * f.count;
                route<<<1, 1024, 0, f.stream>>>(f.guesses_on_device, f.token, layer + 1, f.count, likely);
                must(cache.try_guess(layer + 1, {likely, f.count}, f.stream));
                route<<<1, 1024, 0, f.stream>>>(f.on_device, f.token, layer + 1, f.count, f.routed);
                f.check(must(cache.try_serve(layer + 1, {f.routed, f.count}, f.stream)), layer + 1);
                // The same layers again, with nothing between the calls.
                for (std::uint32_t again = layer; again < layer + 2; ++again) {
                    route<<<1, 1024, 0, f.stream>>>(f.on_device, f.token, again, f.count, f.routed);
                    f.check(must(cache.try_serve(again, {f.routed, f.count}, f.stream)), again);
                }
            }
            next_token<<<1, 1, 0, f.stream>>>(f.token);
        }
        must_cuda(cudaGetLastError());
        const auto total = must(cache.try_statistics()).total;
        CHECK(f.wrong_bytes() == 0);
        CHECK(total.hits + total.misses == std::uint64_t{chosen} * layers * 2 * tokens);
    }
}

}  // namespace gpu_routed_test
