// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Packed weights, the whole program: they are packed once, and streamed packed. Exits with 0 if every output is that of the raw weights
// with everything resident, bit for bit, and with 77 without a GPU.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layer.hpp"
#include "residency/packed.hpp"

using namespace residency;

namespace {

constexpr std::uint32_t layers = 16;

/// The output after some tokens, by whichever composition.
template <class Weights>
std::vector<float> run(Gpu& gpu, Weights& weights) {
    const Gpu::Stream stream = unwrap(gpu.create_stream());
    constexpr std::uint64_t vector_bytes = size * sizeof(float);
    auto* const memory = static_cast<float*>(unwrap(gpu.allocate(2 * vector_bytes)));
    auto* const result = static_cast<float*>(unwrap(gpu.allocate_host(vector_bytes)));
    float *x = memory, *y = memory + size;
    unwrap(gpu.fill(x, std::byte{0x3E}, vector_bytes, stream));
    for (int token = 0; token < 4; ++token) {
        auto pass = weights.begin(stream);
        for (const auto& step : weights.schedule()) {
            const auto lease =
                pass.acquire(step);  // what is packed is unpacked here, on the stream, in front of the kernel
            launch_layer(gpu, stream, lease.template get<std::uint16_t>(step.weights.front()), x, y);
            std::swap(x, y);
        }
    }
    unwrap(gpu.copy({{result, x, vector_bytes}}, stream));
    unwrap(gpu.synchronize(stream));
    std::vector<float> output(result, result + size);
    weights.drain();
    unwrap(gpu.deallocate_host(result));
    unwrap(gpu.deallocate(memory));
    unwrap(gpu.destroy_stream(stream));
    return output;
}

}  // namespace

int main() try {
#ifdef ON_CUDA
    auto opened = Gpu::try_open(0);
    if (!opened) { return std::fprintf(stderr, "packed: %s\n", opened.error().message().c_str()), 77; }
    Gpu& gpu = *opened;
#else
    Gpu gpu;
#endif
    // The weights in bf16, with exponents as trained ones have them. Or: host::load(gpu, format::read_model(path).catalog()).catalog
    std::vector<std::uint16_t> values(std::size_t{layers} * size * size);
    std::mt19937 random{1};
    std::normal_distribution<float> weight{0, 0.02F};
    for (std::uint16_t& value : values) {
        value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(weight(random)) >> 16U);
    }
    CatalogBuilder builder;
    constexpr std::size_t layer_values = std::size_t{size} * size;
    for (std::uint32_t i = 0; i < layers; ++i) {
        const std::span layer = std::span{values}.subspan(i * layer_values, layer_values);
        builder.add("layers." + std::to_string(i), dtype::bf16, {size, size}, std::as_bytes(layer));
    }
    const Catalog raw = builder.build();
    ScheduleBuilder steps{raw};  // one launch reads one layer
    for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}); }
    const Schedule schedule = steps.build();

    Planned<Gpu> resident{gpu, raw, {.budget = Budget::parse("100%"), .schedule = schedule}};
    const std::vector<float> expected = run(gpu, resident);

    // Once: the packed bytes lie in pinned memory, which ends with the catalog.
    const packed::PackedModel model = packed::pack(gpu, raw);
    std::printf("%.1f MiB, packed %.1f MiB\n", static_cast<double>(model.raw_bytes) / (1 << 20),
                static_cast<double>(model.packed_bytes) / (1 << 20));

    bool is_right = true;
    for (const char* const budget : {"75%", "50%", "0"}) {  // of the raw bytes
        Packed<Gpu>::Options options;
        options.budget = Budget::parse(budget);
        options.schedule = schedule;
        options.policies.unpacker = &unpacker();
        Packed<Gpu> weights{gpu, model.catalog, std::move(options)};
        const std::vector<float> output = run(gpu, weights);
        is_right = is_right && std::memcmp(output.data(), expected.data(), size * sizeof(float)) == 0;
        std::printf("%-4s %s\n     %.1f MiB copied per pass\n", budget, weights.budget().text.c_str(),
                    static_cast<double>(weights.statistics().last_pass.fetched_bytes) / (1 << 20));
    }
#ifndef ON_CUDA
    for (const auto& report : gpu.reports()) { std::printf("%s\n", report.text.c_str()); }
    is_right = is_right && gpu.report_count() == 0;
#endif
    std::printf("%s\n", is_right ? "all outputs are the same" : "outputs DIFFER");
    return is_right ? 0 : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "packed: %s\n", error.what()), 2; }
