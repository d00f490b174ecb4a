// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <thread>

#include "bf16.hpp"
#include "checkpoint.hpp"
#include "residency/error.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/thread_group.hpp"
#include "residency/model/dtype.hpp"
#include "residency/model/file.hpp"

namespace decoder {
namespace {

Config tiny(const std::string& family) {
    Config c;
    c.family = family;
    c.epsilon = 1e-5;
    c.layers = 4;
    c.hidden = 128;
    c.inner = 352;
    c.words = 256;
    c.places = 512;
    c.heads = 8;
    c.cache_heads = 2;
    c.width = 16;
    return c;
}

const std::map<std::string, Config>& known() {
    static const std::map<std::string, Config> shapes = [] {
        Config llama3 = tiny("llama");
        llama3.theta = 500000;
        llama3.scaling = Llama3Scaling{8, 1, 4, 64};
        llama3.tied = true;
        Config biased = tiny("llama");
        biased.input_biases = biased.output_bias = true;
        Config qwen2 = tiny("qwen2");
        qwen2.input_biases = true;
        qwen2.theta = 1000000;
        Config qwen3 = tiny("qwen3");
        qwen3.head_norms = true;
        qwen3.width = 32;
        qwen3.tied = true;
        Config heads = tiny("llama");  // that four GPUs share
        heads.cache_heads = 4;
        Config small = tiny("llama");
        small.layers = 16;
        small.hidden = 1024;
        small.inner = 2816;
        small.words = 32000;
        small.places = 8192;
        small.heads = 16;
        small.cache_heads = 4;
        small.width = 64;
        Config llama8b = small;
        llama8b.layers = 32;
        llama8b.hidden = 4096;
        llama8b.inner = 14336;
        llama8b.words = 128256;
        llama8b.heads = 32;
        llama8b.cache_heads = 8;
        llama8b.width = 128;
        llama8b.places = 131072;  // as of 3.1, for long prompts
        llama8b.theta = 500000;
        Config llama70b = llama8b;
        llama70b.layers = 80;
        llama70b.hidden = 8192;
        llama70b.inner = 28672;
        llama70b.heads = 64;
        return std::map<std::string, Config>{
            {"tiny", tiny("llama")}, {"tiny-llama3", llama3}, {"tiny-bias", biased},
            {"tiny-heads", heads},   {"tiny-qwen2", qwen2},   {"tiny-qwen3", qwen3},
            {"small", small},        {"llama-3-8b", llama8b}, {"llama-3-70b", llama70b}};
    }();
    return shapes;
}

/// Vigna's splitmix64, the state being a counter.
std::uint64_t splitmix(std::uint64_t counter) {
    std::uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
}

/// Calls `fill(begin, end)` for parts of [0, count), each in a thread of its own where there is enough for several.
template <class Fill>
void in_parallel(std::uint64_t count, const Fill& fill) {
    constexpr std::uint64_t worth_a_thread = std::uint64_t{1} << 20U;
    const std::uint64_t machine = (std::max)(1U, std::thread::hardware_concurrency());
    const std::uint64_t parts =
        std::clamp<std::uint64_t>(count / worth_a_thread, 1, (std::min)(machine, std::uint64_t{16}));
    residency::host::ThreadGroup threads;
    for (std::uint64_t part = 1; part < parts; ++part) {
        residency::unwrap(threads.try_start([&, part] { fill(count * part / parts, count * (part + 1) / parts); }));
    }
    fill(0, count / parts);
}

}  // namespace

std::vector<std::string> shapes() {
    std::vector<std::string> names;
    for (const auto& each : known()) { names.push_back(each.first); }
    return names;
}

Config shape(const std::string& name) {
    const auto found = known().find(name);
    if (found != known().end()) { return found->second; }
    std::string names;
    for (const std::string& each : shapes()) { names += (names.empty() ? "" : ", ") + each; }
    residency::throw_error(
        {residency::ErrorKind::invalid_argument, "no shape \"" + name + "\" is known: give one of " + names});
}

void generate(const std::string& folder, const Config& config,
              const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    std::filesystem::create_directories(folder);
    std::vector<residency::format::SafetensorsTensor> tensors;
    std::uint64_t total = 0, done = 0;
    for (const Tensor& tensor : tensors_of(config)) {
        std::uint64_t count = 1;
        for (const std::uint64_t extent : tensor.shape) { count *= extent; }
        total += count * sizeof(Bf16);
        tensors.push_back({tensor.name, residency::dtype::bf16, tensor.shape});
    }
    // The configuration comes last: a folder with one has all of its weights.
    const std::string path = folder + "/model.safetensors";
    auto writer = residency::format::SafetensorsWriter::create(path + ".part", tensors);
    constexpr std::uint64_t piece = std::uint64_t{32} << 20U;  // elements
    std::vector<Bf16> values;
    for (std::uint64_t t = 0; t < tensors.size(); ++t) {
        const auto& [name, type, shape] = tensors[t];
        const bool is_matrix = shape.size() == 2;
        const bool is_last = name == "lm_head.weight";
        const float base = name.ends_with("norm.weight") ? 1.0F : 0.0F;
        const float range = !is_matrix ? 0.2F
                            : name == "model.embed_tokens.weight"
                                ? 0.25F
                                : float(std::sqrt(3.0 / double(shape[1]))) * (is_last ? 2.0F : 1.0F);
        const std::uint64_t count = shape[0] * (is_matrix ? shape[1] : 1);
        for (std::uint64_t first = 0; first < count; first += piece) {
            values.resize((std::min)(piece, count - first));
            in_parallel(values.size(), [&](std::uint64_t begin, std::uint64_t end) {
                for (std::uint64_t i = begin; i < end; ++i) {
                    const std::uint64_t random = splitmix((t << 40U) + first + i) >> 40U;
                    const float unit = float(random) / 16777216.0F;
                    const float centred = 2.0F * unit - 1.0F;
                    const float scaled = range * centred;
                    values[i] = to_bf16(base + scaled);
                }
            });
            writer.append(std::as_bytes(std::span{values}));
            done += values.size() * sizeof(Bf16);
            progress(done, total);
        }
    }
    writer.finish();
    std::filesystem::rename(path + ".part", path);
    const std::string text = config.text();
    residency::unwrap(residency::detail::write_file(folder + "/config.json", std::as_bytes(std::span{text})));
}

}  // namespace decoder
