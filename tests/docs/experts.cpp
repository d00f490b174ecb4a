// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/experts.md quotes.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/trace_writer.hpp"
#include "residency/packed_experts.hpp"
#include "residency/residency.hpp"
#include "residency/routed/routed_experts.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/simulation/simulated_server.hpp"
#include "residency/simulation/simulated_unpacker.hpp"
#include "tests/docs/model.hpp"
#include "tests/support/temporary_folder.hpp"

namespace docs_experts {

using namespace residency;
using Gpu = SimulatedDevice;

namespace {

constexpr std::uint32_t layers = 4, experts_per_layer = 8, chosen = 2;
constexpr std::uint64_t expert_bytes = std::uint64_t{2} << 20;

}  // namespace

TEST_CASE("docs/experts.md: a cache of experts, and a router's guesses") {
    Gpu gpu;
    const auto stream = unwrap(gpu.create_stream());
    auto* const host = static_cast<std::byte*>(unwrap(gpu.allocate_host(layers * experts_per_layer * expert_bytes)));
    std::memset(host, 7, layers * experts_per_layer * expert_bytes);
    {
        const auto held = HostBytes::borrow({host, layers * experts_per_layer * expert_bytes}, HostMemory::pinned);

        // In many files all experts of a layer are one tensor: split it along its first axis, so that each travels alone.
        CatalogBuilder builder;
        std::vector<std::vector<WeightId>> experts;  // by layer
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            const std::string name = "layers." + std::to_string(layer) + ".experts";
            builder.add(name, dtype::u8, {experts_per_layer, expert_bytes},
                        HostSource{held, layer * experts_per_layer * expert_bytes});
            experts.push_back(builder.split(name));
        }
        const Catalog catalog = builder.build();

        std::vector<std::uint32_t> layer_of(catalog.storages().size());
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            for (const WeightId expert : experts[layer]) { layer_of[index(catalog.storage_of(expert))] = layer; }
        }
        Experts<Gpu>::Options options;
        options.budget = Budget::parse("50%");
        options.policies.evictor = evict::ExpectedUse{{.layers = layer_of}};
        options.policies.storages_at_once = chosen;  // a cache that cannot hold them is refused here
        Experts<Gpu> weights{gpu, catalog, options};

        const test::TemporaryFolder folder;
        const std::string path = folder.path("experts.trace");
        TraceWriter trace = TraceWriter::open(path, catalog, layer_of);

        std::mt19937 router{1};
        std::uint64_t read = 0;
        for (int token = 0; token < 20; ++token) {
            auto pass = weights.begin(stream);
            for (std::uint32_t layer = 0; layer < layers; ++layer) {
                // What the router chose. If the host has to read it from the device first: pass.wait().
                const std::uint32_t first = static_cast<std::uint32_t>(router() % experts_per_layer);
                const std::array<WeightId, chosen> needed{experts[layer][first],
                                                          experts[layer][(first + 1) % experts_per_layer]};
                trace.step(std::array{catalog.storage_of(needed[0]), catalog.storage_of(needed[1])});
                const auto lease = pass.acquire(needed);

                // After the acquisition, so that the copies of this layer come first: what the next layer is likely to need.
                if (layer + 1 < layers) {
                    unwrap(weights.prefetcher().hint(
                        {{.storage = catalog.storage_of(experts[layer + 1][first]), .probability = 0.8F}}));
                }
                for (const WeightId expert : needed) {
                    const auto bytes = lease.bytes(expert);
                    unwrap(gpu.launch(stream, {.name = "expert",
                                               .reads = {{bytes.data(), bytes.size()}},
                                               .writes = {},
                                               .body = [&read, bytes] { read += bytes.front() == std::byte{7}; }}));
                }
            }
        }
        trace.finish();  // without it the file counts as cut off
        weights.drain();
        const Counters total = weights.statistics().total;
        CHECK(total.hits + total.prefetch_hits > 0);
        CHECK(read == std::uint64_t{20} * layers * chosen);
    }
    unwrap(gpu.destroy_stream(stream));
    unwrap(gpu.deallocate_host(host));
    CHECK(gpu.report_count() == 0);
}

TEST_CASE("docs/experts.md: packed experts") {
    Gpu gpu;
    const SimulatedUnpacker unpacker;
    const auto stream = unwrap(gpu.create_stream());
    const std::vector<std::byte> bytes = docs::trained_weights(expert_bytes, 2);
    CatalogBuilder builder;
    std::vector<std::uint32_t> layer_of;
    for (std::uint32_t i = 0; i < layers * experts_per_layer; ++i) {
        builder.add("expert " + std::to_string(i), dtype::bf16, {1024, 1024}, bytes);
        layer_of.push_back(i / experts_per_layer);
    }
    const Catalog catalog = builder.build();
    {
        const packed::PackedModel model = packed::pack(gpu, catalog);  // once, after loading

        PackedExperts<Gpu>::Options options;
        options.budget = Budget::parse("50%");  // of the raw bytes
        options.policies.evictor = evict::ExpectedUse{{.layers = layer_of}};
        options.policies.storages_at_once = chosen;  // the cache holds them packed, and there is room to unpack them
        options.policies.unpacker = &unpacker;       // on a GPU: a CudaUnpacker
        PackedExperts<Gpu> weights{gpu, model.catalog, std::move(options)};

        std::uint64_t right = 0;
        {
            auto pass = weights.begin(stream);
            for (std::uint32_t layer = 0; layer < layers; ++layer) {
                const WeightId first{layer * experts_per_layer + 3}, second{layer * experts_per_layer + 6};
                const auto lease = pass.acquire({first, second});
                for (const WeightId expert : {first, second}) {
                    const auto here = lease.bytes(expert);
                    unwrap(gpu.launch(stream, {.name = "expert",
                                               .reads = {{here.data(), here.size()}},
                                               .writes = {},
                                               .body = [&right, &bytes, here] {
                                                   right += std::memcmp(here.data(), bytes.data(), here.size()) == 0;
                                               }}));
                }
            }
        }
        weights.drain();
        CHECK(right == std::uint64_t{layers} * chosen);
        CHECK(weights.statistics().total.fetched_bytes < right * expert_bytes * 7 / 10);

        std::vector<std::vector<WeightId>> by_layer(layers);
        for (std::uint32_t i = 0; i < layers * experts_per_layer; ++i) {
            by_layer[i / experts_per_layer].push_back(WeightId{i});
        }
        const SimulatedServer server;
        RoutedExperts<Gpu> cache{
            gpu, model.catalog, by_layer, {.budget = Budget::parse("50%"), .server = &server, .choices = chosen}};
        auto* const choices = static_cast<std::int32_t*>(unwrap(gpu.allocate(chosen * sizeof(std::int32_t))));
        unwrap(gpu.launch(stream, {.name = "router",
                                   .reads = {},
                                   .writes = {{choices, chosen * sizeof(std::int32_t)}},
                                   .body = [choices] { choices[0] = 3, choices[1] = 6; }}));
        const auto served = cache.serve(2, {choices, chosen}, stream);
        unwrap(gpu.launch(stream, {.name = "products", .reads = {}, .writes = {}, .body = [&right, &bytes, served] {
                                       for (std::uint32_t i = 0; i < chosen; ++i) {
                                           right += std::memcmp(served.addresses[i], bytes.data(), bytes.size()) == 0;
                                       }
                                   }}));
        CHECK(cache.statistics().total.demand_bytes < chosen * expert_bytes * 7 / 10);
        CHECK(right == std::uint64_t{layers + 1} * chosen);
        unwrap(gpu.deallocate(choices));
    }
    unwrap(gpu.destroy_stream(stream));
    CHECK(gpu.report_count() == 0);
}

TEST_CASE("docs/experts.md: the router is on the device") {
    Gpu gpu;
    const auto stream = unwrap(gpu.create_stream());
    auto* const host = static_cast<std::byte*>(unwrap(gpu.allocate_host(layers * experts_per_layer * expert_bytes)));
    std::memset(host, 7, layers * experts_per_layer * expert_bytes);
    auto* const choices =
        static_cast<std::int32_t*>(unwrap(gpu.allocate((1 + layers) * chosen * sizeof(std::int32_t))));
    std::int32_t* const guesses = choices + chosen;
    {
        const auto held = HostBytes::borrow({host, layers * experts_per_layer * expert_bytes}, HostMemory::pinned);
        CatalogBuilder builder;
        std::vector<std::vector<WeightId>> experts;
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            const std::string name = "layers." + std::to_string(layer) + ".experts";
            builder.add(name, dtype::u8, {experts_per_layer, expert_bytes},
                        HostSource{held, layer * experts_per_layer * expert_bytes});
            experts.push_back(builder.split(name));
        }
        const Catalog catalog = builder.build();

        const SimulatedServer server;  // on a GPU: a CudaServer
        RoutedExperts<Gpu> cache{
            gpu, catalog, experts, {.budget = Budget::parse("50%"), .server = &server, .choices = chosen}};

        std::uint64_t read = 0;
        const auto router = [&](std::uint32_t layer, std::int32_t* to) {
            unwrap(gpu.launch(
                stream,
                {.name = "router", .reads = {}, .writes = {{to, chosen * sizeof(std::int32_t)}}, .body = [layer, to] {
                     to[0] = static_cast<std::int32_t>(layer);
                     to[1] = 5;
                 }}));
        };
        const auto products = [&](const routed::Served& served) {
            unwrap(gpu.launch(stream, {.name = "products", .reads = {}, .writes = {}, .body = [&read, served] {
                                           for (std::uint32_t i = 0; i < chosen; ++i) {
                                               read += *served.addresses[i] == std::byte{7};
                                           }
                                       }}));
        };
        unwrap(gpu.begin_capture(stream));
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            router(layer, choices);
            std::optional<routed::Guess> next;
            if (layer + 1 < layers) {  // the next layer's router on this layer's input
                std::int32_t* const likely = guesses + layer * chosen;
                router(layer + 1, likely);
                next = {layer + 1, {likely, chosen}};
            }
            const auto served = cache.serve(layer, {choices, chosen}, stream, next);
            products(served);  // kernels that read served.addresses[0 … chosen − 1]
        }
        cache.join(stream);
        const auto token = unwrap(gpu.end_capture(stream));
        for (int i = 0; i < 20; ++i) { unwrap(gpu.launch(token, stream)); }

        const routed::Statistics statistics = cache.statistics();
        CHECK(read == std::uint64_t{20} * layers * chosen);
        CHECK(statistics.total.hits > statistics.total.misses);

        cache.begin_prefill();
        for (std::uint32_t layer = 0; layer < layers; ++layer) {
            for (std::uint32_t group = 0; group < cache.prefill_groups(layer); ++group) {
                const auto there = cache.acquire(layer, group, stream);
                // kernels that read there.addresses[there.first … there.last − 1], each an expert of the layer
                static_cast<void>(there);
            }
        }
        cache.end_prefill();
        unwrap(gpu.destroy_graph(token));
    }
    unwrap(gpu.deallocate(choices));
    unwrap(gpu.destroy_stream(stream));
    unwrap(gpu.deallocate_host(host));
    CHECK(gpu.report_count() == 0);
}

}  // namespace docs_experts
