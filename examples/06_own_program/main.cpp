// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A program of one's own: own kernel, own file, a budget, eager passes and a graph. Exits with 0 if every output is that of the run with
// everything resident, bit for bit, and with 77 without a GPU.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "layer.hpp"
#include "residency/host/loading.hpp"
#include "residency/planned.hpp"

using namespace residency;
using Weights = Planned<Gpu>;

namespace {

constexpr std::uint32_t layers = 32;
constexpr std::uint64_t layer_bytes = std::uint64_t{size} * size * sizeof(float), header_bytes = 16;

/// A file of a format of our own: a header, then the layers one after another.
void write_model(const std::string& path) {
    std::mt19937 random{1};
    std::normal_distribution<float> weight{0, 0.05F};
    std::vector<float> layer(std::size_t{size} * size);
    std::ofstream file{path, std::ios::binary};
    file.write("a model of ours\n", header_bytes);
    for (std::uint32_t i = 0; i < layers; ++i) {
        for (float& each : layer) { each = weight(random); }
        file.write(reinterpret_cast<const char*>(layer.data()), layer_bytes);
    }
}

/// The output after some tokens, eager and as a graph.
std::vector<float> run(Gpu& gpu, const Catalog& catalog, const Schedule& schedule, const char* budget) {
    Weights weights{gpu, catalog, {.budget = Budget::parse(budget), .schedule = schedule}};
    const Gpu::Stream stream = unwrap(gpu.create_stream());  // or a cudaStream_t of yours

    // Memory of our own, outside the budget: cudaMalloc does as well.
    constexpr std::uint64_t vector_bytes = size * sizeof(float);
    auto* const x = static_cast<float*>(unwrap(gpu.allocate(vector_bytes)));
    auto* const y = static_cast<float*>(unwrap(gpu.allocate(vector_bytes)));
    auto* const result = static_cast<float*>(unwrap(gpu.allocate_host(vector_bytes)));
    unwrap(gpu.fill(x, std::byte{0x3E}, vector_bytes, stream));

    // A pass: each layer's weights are leased, and its kernel is launched under the lease.
    const auto body = [&](auto& pass) {
        float *in = x, *out = y;
        for (const auto& step : weights.schedule()) {
            const auto lease = pass.acquire(step);
            launch_layer(gpu, stream, static_cast<const float*>(lease.address(step.weights.front())), in, out);
            std::swap(in, out);
        }
    };
    for (int token = 0; token < 10; ++token) {
        auto pass = weights.begin(stream);
        body(pass);
    }
    auto graph = weights.capture(stream, body);
    for (int token = 0; token < 10; ++token) { graph.launch(stream); }

    unwrap(gpu.copy({{result, x, vector_bytes}}, stream));
    unwrap(gpu.synchronize(stream));
    const std::vector<float> output(result, result + size);

    const Statistics statistics = weights.statistics();
    std::printf("%-5s %s\n      %.1f MiB held, %.1f MiB copied per pass\n", budget, weights.budget().text.c_str(),
                static_cast<double>(statistics.held_bytes) / (1 << 20),
                static_cast<double>(statistics.last_pass.fetched_bytes) / (1 << 20));
    unwrap(gpu.deallocate_host(result));
    unwrap(gpu.deallocate(y));
    unwrap(gpu.deallocate(x));
    weights.drain();
    unwrap(gpu.destroy_stream(stream));
    return output;
}

}  // namespace

int main() try {
#ifdef ON_CUDA
    auto opened = Gpu::try_open(0);
    if (!opened) { return std::fprintf(stderr, "own_program: %s\n", opened.error().message().c_str()), 77; }
    Gpu& gpu = *opened;
#else
    Gpu gpu;
#endif
    const std::string path = "own_program." + std::string{gpu.name()} + ".model";
    write_model(path);
    CatalogBuilder builder;
    for (std::uint32_t i = 0; i < layers; ++i) {
        builder.add("layers." + std::to_string(i), dtype::f32, {size, size}, path, header_bytes + i * layer_bytes);
    }
    const Catalog catalog = host::load(gpu, builder.build()).catalog;  // into pinned memory, by several threads
    std::remove(path.c_str());

    ScheduleBuilder steps{catalog};  // one launch reads one layer
    for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}); }
    const Schedule schedule = steps.build();

    const std::vector<float> expected = run(gpu, catalog, schedule, "100%");
    bool is_right = true;
    for (const char* const budget : {"50%", "25%", "0"}) {
        const std::vector<float> output = run(gpu, catalog, schedule, budget);
        is_right = is_right && std::memcmp(output.data(), expected.data(), size * sizeof(float)) == 0;
    }
#ifndef ON_CUDA
    for (const auto& report : gpu.reports()) { std::printf("%s\n", report.text.c_str()); }
    is_right = is_right && gpu.report_count() == 0;
#endif
    std::printf("%s\n", is_right ? "all outputs are the same" : "outputs DIFFER");
    return is_right ? 0 : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "own_program: %s\n", error.what()), 2; }
