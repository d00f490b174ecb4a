// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The engine's GPU where there is none: its kernel as a host function, whose reads and writes the simulated device checks.
#include "simulated/gpu.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "engine.hpp"

namespace engine {
namespace {

using residency::SimulatedDevice;
using residency::unwrap;

constexpr double share = 1.0 / 32;

SimulatedDevice::Config config() {
    SimulatedDevice::Config config;
    config.allocation_granularity = config.chunk_granularity = simulated_chunk_bytes;
    config.link.to_device_bytes_per_second *= share;
    config.link.to_host_bytes_per_second *= share;
    return config;
}

struct Gpu {
    SimulatedDevice device{config()};
    SimulatedDevice::Stream stream = unwrap(device.create_stream("engine"));
};
std::optional<Gpu> gpu;

float number(Bf16 bits) {
    const std::uint32_t wide = std::uint32_t{bits} << 16U;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}
/// out[row] (+)= matrix[row] · x
void multiply(const Bf16* matrix, const float* x, std::uint32_t rows, std::uint32_t columns, float* out,
              bool adds = false) {
    for (std::uint32_t row = 0; row < rows; ++row) {
        const Bf16* const weights = matrix + std::size_t{row} * columns;
        float sum = 0;
        for (std::uint32_t i = 0; i < columns; ++i) { sum += number(weights[i]) * x[i]; }
        out[row] = adds ? out[row] + sum : sum;
    }
}
std::vector<float> normalized(const float* x, const Bf16* norm, std::uint32_t count) {
    float square = 0;
    for (std::uint32_t i = 0; i < count; ++i) { square += x[i] * x[i]; }
    const float scale = 1.0F / std::sqrt(square / static_cast<float>(count) + 1e-5F);
    std::vector<float> result(count);
    for (std::uint32_t i = 0; i < count; ++i) { result[i] = x[i] * scale * number(norm[i]); }
    return result;
}
void rotate(float* at, std::uint32_t size, std::uint32_t position) {
    for (std::uint32_t i = 0; i < size; i += 2) {
        const float angle =
            static_cast<float>(position) * std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(size));
        const float a = at[i], b = at[i + 1], c = std::cos(angle), s = std::sin(angle);
        at[i] = a * c - b * s;
        at[i + 1] = a * s + b * c;
    }
}

void attend(const Launch& o, std::uint32_t layer) {
    const Config& c = o.config;
    const std::uint32_t size = c.dim / c.heads;
    const std::size_t cache = std::size_t{layer} * c.positions * c.dim;
    float* const keys = o.state.keys + cache;
    float* const values = o.state.values + cache;
    std::memcpy(values + std::size_t{o.position} * c.dim, o.state.qkv + 2 * c.dim, c.dim * sizeof(float));
    std::vector<float> scores(o.position + 1);
    for (std::uint32_t head = 0; head < c.heads; ++head) {
        float* const q = o.state.qkv + head * size;
        float* const key_now = keys + std::size_t{o.position} * c.dim + head * size;
        std::memcpy(key_now, o.state.qkv + c.dim + head * size, size * sizeof(float));
        rotate(q, size, o.position);
        rotate(key_now, size, o.position);
        float most = -1e30F, sum = 0;
        for (std::uint32_t p = 0; p <= o.position; ++p) {
            scores[p] = 0;
            for (std::uint32_t i = 0; i < size; ++i) {
                scores[p] += q[i] * keys[std::size_t{p} * c.dim + head * size + i];
            }
            scores[p] /= std::sqrt(static_cast<float>(size));
            most = std::fmax(most, scores[p]);
        }
        for (float& score : scores) { sum += score = std::exp(score - most); }
        for (std::uint32_t i = 0; i < size; ++i) {
            float value = 0;
            for (std::uint32_t p = 0; p <= o.position; ++p) {
                value += scores[p] * values[std::size_t{p} * c.dim + head * size + i];
            }
            o.state.attended[head * size + i] = value / sum;
        }
    }
}

/// The kernel, as cuda/gpu.cu has it.
void run_layers(const Launch& o) {
    const Config& c = o.config;
    Bf16* const* const last = o.table + std::size_t{c.layers} * per_layer;
    if (o.first == 0) {
        for (std::uint32_t i = 0; i < c.dim; ++i) {
            o.state.x[i] = number(last[embedding][std::size_t{o.token} * c.dim + i]);
        }
    }
    for (std::uint32_t layer = o.first; layer < o.last && layer < c.layers; ++layer) {
        Bf16* const* const w = o.table + std::size_t{layer} * per_layer;
        const auto x = normalized(o.state.x, w[norm_attention], c.dim);
        multiply(w[query], x.data(), c.dim, c.dim, o.state.qkv);
        multiply(w[key], x.data(), c.dim, c.dim, o.state.qkv + c.dim);
        multiply(w[value], x.data(), c.dim, c.dim, o.state.qkv + 2 * c.dim);
        attend(o, layer);
        multiply(w[output], o.state.attended, c.dim, c.dim, o.state.x, true);
        const auto y = normalized(o.state.x, w[norm_ffn], c.dim);
        std::vector<float> gated(c.hidden);
        multiply(w[gate], y.data(), c.hidden, c.dim, gated.data());
        multiply(w[up], y.data(), c.hidden, c.dim, o.state.activated);
        for (std::uint32_t i = 0; i < c.hidden; ++i) {
            o.state.activated[i] *= gated[i] / (1.0F + std::exp(-gated[i]));
        }
        multiply(w[down], o.state.activated, c.dim, c.hidden, o.state.x, true);
    }
    if (!o.classify || o.last <= c.layers) { return; }
    const auto x = normalized(o.state.x, last[norm_last], c.dim);
    multiply(last[classifier], x.data(), c.vocabulary, c.dim, o.state.logits);
    *o.sampled = {};
    for (std::uint32_t i = 0; i < c.vocabulary; ++i) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, o.state.logits + i, sizeof bits);
        o.sampled->checksum += std::uint64_t{bits} * (2 * std::uint64_t{i} + 1);
        if (o.state.logits[i] > o.state.logits[o.sampled->token]) { o.sampled->token = i; }
    }
}

}  // namespace

residency::SimulatedDevice& simulated_gpu() { return gpu->device; }
residency::SimulatedDevice::Stream simulated_stream() { return gpu->stream; }

bool gpu_open() {
    gpu.emplace();
    return true;
}
void gpu_close() {
    unwrap(gpu->device.destroy_stream(gpu->stream));
    for (const auto& report : gpu->device.reports()) {
        std::fprintf(stderr, "foreign_engine: %s\n", report.text.c_str());
        std::exit(1);
    }
    gpu.reset();
}
const char* gpu_name() { return "simulated"; }
void* gpu_allocate(std::size_t bytes) {
    void* const at = unwrap(gpu->device.allocate(bytes));
    unwrap(gpu->device.fill(at, std::byte{0}, bytes, gpu->stream));
    return at;
}
void gpu_free(void* at) { unwrap(gpu->device.deallocate(at)); }
void* gpu_allocate_pinned(std::size_t bytes) { return unwrap(gpu->device.allocate_host(bytes)); }
void gpu_free_pinned(void* at) { unwrap(gpu->device.deallocate_host(at)); }
void gpu_copy(void* to, const void* from, std::size_t bytes) {
    unwrap(gpu->device.copy({{to, from, bytes}}, gpu->stream));
}

void gpu_run(const Launch& launch) {
    const Config& c = launch.config;
    SimulatedDevice::Kernel kernel;
    kernel.name = "layers";
    std::uint64_t read = 0;
    const auto reads = [&](std::uint32_t tensor, std::uint64_t bytes) {
        kernel.reads.push_back({weights_address(tensor), bytes});
        read += bytes;
    };
    kernel.reads.push_back({launch.table, (c.layers * per_layer + after_layers) * sizeof(Bf16*)});
    const std::uint32_t last = launch.last < c.layers ? launch.last : c.layers;
    for (std::uint32_t i = launch.first * per_layer; i < last * per_layer; ++i) { reads(i, 2 * elements_of(c, i)); }
    if (launch.classify && launch.last > c.layers) {
        for (const std::uint32_t i : {norm_last, classifier}) {
            reads(c.layers * per_layer + i, 2 * elements_of(c, c.layers * per_layer + i));
        }
        kernel.writes.push_back({launch.sampled, sizeof(Sampled)});
        kernel.writes.push_back({launch.state.logits, c.vocabulary * sizeof(float)});
    }
    if (launch.first == 0) {
        const auto* const rows = static_cast<const Bf16*>(weights_address(c.layers * per_layer + embedding));
        kernel.reads.push_back({rows + std::size_t{launch.token} * c.dim, c.dim * sizeof(Bf16)});
    }
    const std::uint64_t cache = std::uint64_t{c.layers} * c.positions * c.dim;
    const State& state = launch.state;
    for (const auto& [at, count] : std::initializer_list<std::pair<float*, std::uint64_t>>{{state.x, c.dim},
                                                                                           {state.qkv, 3 * c.dim},
                                                                                           {state.attended, c.dim},
                                                                                           {state.activated, c.hidden},
                                                                                           {state.keys, cache},
                                                                                           {state.values, cache}}) {
        kernel.reads.push_back({at, count * sizeof(float)});
        kernel.writes.push_back({at, count * sizeof(float)});
    }
    const double seconds = 2e-6 + static_cast<double>(read) / (3e12 * share);
    kernel.duration = std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)};
    kernel.body = [launch] { run_layers(launch); };
    unwrap(gpu->device.launch(gpu->stream, std::move(kernel)));
}
void gpu_wait() { unwrap(gpu->device.synchronize(gpu->stream)); }
double gpu_seconds() { return std::chrono::duration<double>(gpu->device.host_time()).count(); }

}  // namespace engine
