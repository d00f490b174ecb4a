// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/plan/copy.hpp"
#include "residency/plan/problem.hpp"

namespace residency::campaign {

/// A schedule without a budget; `compute_seconds` are weights, to be scaled.
struct Shape {
    std::string name;
    plan::Problem problem;
};

inline void add_step(plan::Problem& problem, const std::vector<double>& bytes, double work) {
    std::vector<std::uint32_t> reads;
    for (const double b : bytes) {
        reads.push_back(problem.storages());
        problem.storage_bytes.push_back(static_cast<std::uint64_t>(b));
    }
    problem.add_step(reads);
    problem.compute_seconds.push_back(work);
}

/// Scales the compute time to `ratio` times what copying everything would take.
inline void scale_compute(plan::Problem& problem, double ratio) {
    double compute = 0, bytes = 0;
    for (const double c : problem.compute_seconds) { compute += c; }
    for (const std::uint64_t b : problem.storage_bytes) { bytes += static_cast<double>(b); }
    for (double& c : problem.compute_seconds) { c *= ratio * bytes / problem.link.bytes_per_second / compute; }
}

inline Shape uniform(int layers, double bytes) {
    Shape shape{"uniform " + std::to_string(layers) + " x " + std::to_string(static_cast<int>(bytes / 1e6)) + " MB",
                {}};
    for (int i = 0; i < layers; ++i) { add_step(shape.problem, {bytes}, 1); }
    return shape;
}

/// Decode of a Llama-3: every tensor a step, bf16, time by bytes.
inline Shape llama(const std::string& name, int layers, double hidden, double kv, double feed_forward,
                   double vocabulary) {
    Shape shape{name, {}};
    const auto step = [&](double rows, double columns) {
        add_step(shape.problem, {rows * columns * 2}, rows * columns);
    };
    for (int layer = 0; layer < layers; ++layer) {
        for (const auto& [rows, columns] : {std::pair{hidden, 1.0},
                                            {hidden, hidden},
                                            {kv, hidden},
                                            {kv, hidden},
                                            {hidden, hidden},
                                            {hidden, 1.0},
                                            {feed_forward, hidden},
                                            {feed_forward, hidden},
                                            {hidden, feed_forward}}) {
            step(rows, columns);
        }
    }
    step(hidden, 1);
    step(vocabulary, hidden);
    return shape;
}

/// Convolutions whose weights grow as the picture shrinks, down and up again: time by bytes times pixels.
inline Shape unet(const std::string& name, double channels, int blocks) {
    Shape shape{name, {}};
    const auto block = [&](double width, double picture) {
        const double bytes = 9 * width * width * 2;
        add_step(shape.problem, {bytes}, bytes * picture * picture);
        add_step(shape.problem, {bytes}, bytes * picture * picture);
        add_step(shape.problem, {bytes / 3}, bytes / 3 * picture * picture);
    };
    const double widths[] = {1, 2, 4, 4};
    for (int level = 0; level < 4; ++level) {
        for (int k = 0; k < blocks; ++k) { block(channels * widths[level], 64 >> level); }
    }
    for (int level = 3; level >= 0; --level) {
        for (int k = 0; k <= blocks; ++k) { block(channels * widths[level] * 1.3, 64 >> level); }
    }
    return shape;
}

/// Double and single blocks of a diffusion transformer, bf16; modulation reads much and computes little.
inline Shape flux() {
    Shape shape{"flux-like", {}};
    const auto squares = [](double n) { return n * 3072 * 3072 * 2; };
    for (int i = 0; i < 19; ++i) {
        for (const auto& [size, work] : {std::pair{6.0, 0.2},
                                         {6.0, 0.2},
                                         {6.0, 6.0},
                                         {2.0, 2.0},
                                         {4.0, 4.0},
                                         {4.0, 4.0},
                                         {4.0, 1.0},
                                         {4.0, 1.0}}) {
            if (size == 6 && work == 6) {
                add_step(shape.problem, {squares(3), squares(3)}, work);
            } else if (size == 2) {
                add_step(shape.problem, {squares(1), squares(1)}, work);
            } else {
                add_step(shape.problem, {squares(size)}, work);
            }
        }
    }
    for (int i = 0; i < 38; ++i) {
        add_step(shape.problem, {squares(3)}, 0.2);
        add_step(shape.problem, {squares(7)}, 7);
        add_step(shape.problem, {squares(5)}, 5);
    }
    return shape;
}

/// A residual network as a compiler lowers it (examples/50_compiled, ConvNet): of each convolution a step that lays out its weights, whose
/// time holds the product that reads the copy, and one that reads its normalisation, 8 bytes a channel. The early layers hold few bytes and
/// take most of the time. Microseconds, measured on an H100.
inline Shape residual_network() {
    constexpr double times[] = {89.4, 5.5,  36.9, 5.4,  18.0, 6.2,  17.6, 5.5,  17.7, 6.4,  17.7, 4.9,  31.8, 6.2,
                                17.9, 5.2,  18.0, 6.3,  15.7, 4.3,  23.9, 4.9,  19.9, 4.7,  24.8, 4.6,  26.0, 4.5,
                                26.1, 5.1,  25.7, 4.4,  25.7, 5.2,  26.4, 5.9,  22.7, 4.4,  24.1, 10.3, 24.1, 10.4,
                                27.7, 10.2, 24.7, 10.4, 24.9, 10.4, 24.0, 10.4, 26.1, 10.3, 23.9, 8.1,  5.6};
    Shape shape{"conv", {}};
    std::size_t k = 0;
    double before = 3;
    for (const double width : {128.0, 256.0, 512.0}) {
        for (int layer = 0; layer < 9; ++layer, before = width) {
            add_step(shape.problem, {before * width * 9 * 2}, times[k++]);
            if (layer == 0) {
                add_step(shape.problem, {width * 2}, times[k++]);
            } else {
                add_step(shape.problem, {width * 2, width * 2, width * 2, width * 2}, times[k++]);
            }
        }
    }
    add_step(shape.problem, {before * 1000 * 2, 1000 * 2}, times[k]);
    return shape;
}

/// A decoder of five layers as a compiler lowers it (examples/50_compiled, Transformer), bf16: query, key and value are one storage that
/// three steps read, and the embedding is read by the first steps of the first two layers and as the head. A cache that kernels write
/// stays. Seconds, measured on an H100.
inline Shape compiled_transformer() {
    // n, m: norms; q: query, key or value; c: the cache; o, u, d: out, up, down; f: the last norm; h: the head
    constexpr char kinds[] = "nqcqcqcomudnqccqqomudnqqqomudnqqqomudnqqqomudfhc";
    constexpr double times[] = {12.5, 20.1, 9.6,  16.3, 5.5,  12.7, 5.9,  15.1, 11.4, 30.7, 32.9,  11.1,
                                19.5, 12.7, 20.8, 20.6, 20.4, 11.1, 9.8,  30.9, 32.0, 10.6, 16.6,  20.4,
                                12.1, 19.3, 10.7, 30.1, 32.1, 10.9, 16.4, 19.9, 12.2, 19.4, 11.7,  30.9,
                                34.8, 10.6, 16.1, 20.2, 12.1, 19.6, 10.6, 31.0, 29.2, 10.9, 101.8, 18.7};
    constexpr std::uint64_t width = 2560;
    Shape shape{"compiled transformer", {}};
    plan::Problem& problem = shape.problem;
    const auto add_storage = [&](std::uint64_t bytes) {
        problem.storage_bytes.push_back(bytes);
        return problem.storages() - 1;
    };
    const std::uint32_t embedding = add_storage(48000 * width * 2), cache = add_storage(5 * 2 * 256 * width * 2);
    problem.kept = {cache};
    std::uint32_t layer = 0, query = plan::none;
    for (std::size_t i = 0; kinds[i] != 0; ++i) {
        std::vector<std::uint32_t> reads;
        const char kind = kinds[i];
        if (kind == 'n') {
            query = plan::none;
            ++layer;
        }
        if (kind == 'q' && query == plan::none) { query = add_storage(3 * width * width * 2); }
        if (kind == 'q') { reads = {query}; }
        if (kind == 'c') { reads = {cache}; }
        if (kind == 'h') { reads = {embedding}; }
        if (kind == 'o') { reads = {add_storage(width * width * 2)}; }
        if (kind == 'u' || kind == 'd') { reads = {add_storage(4 * width * width * 2)}; }
        if (kind == 'n' || kind == 'm' || kind == 'f') { reads = {add_storage(width * 2)}; }
        if (layer <= 2 && (kind == 'n' || kind == 'm')) { reads.push_back(embedding); }
        problem.add_step(reads);
        problem.compute_seconds.push_back(times[i] * 1e-6);
    }
    return shape;
}

/// Of compute to copies, for the residual network.
inline constexpr double residual_network_ratios[] = {0.5, 0.63, 0.9};

/// 60–360 steps of one to three storages, sizes and times log-normal.
inline Shape random_shape(std::uint64_t seed) {
    std::mt19937_64 engine{seed};
    const auto uniform01 = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    const auto normal = [&] {
        return std::sqrt(-2 * std::log(1 - uniform01())) * std::cos(6.283185307179586 * uniform01());
    };
    Shape shape{"random " + std::to_string(seed), {}};
    const int steps = 60 + static_cast<int>(engine() % 301);
    for (int i = 0; i < steps; ++i) {
        std::vector<double> bytes;
        const int count = engine() % 4 == 0 ? 1 + static_cast<int>(engine() % 3) : 1;
        for (int k = 0; k < count; ++k) { bytes.push_back(std::min(4e8, std::exp(3 + normal()) * 1e6)); }
        add_step(shape.problem, bytes, std::exp(normal()));
    }
    return shape;
}

/// A few wide storages among small ones, near the smallest budgets: 24–40 steps of one storage of 64 KB to 256 MB each, the same number
/// of them in each octave; 1.05 to 2.5 times the widest one fits, at most 0.8 of all. Steps take 0.05 to 1 of the copies, in proportion
/// to their bytes or with a random factor.
inline plan::Problem wide_problem(std::uint64_t seed) {
    std::mt19937_64 engine{seed};
    const auto uniform01 = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    plan::Problem problem;
    const auto steps = 24 + engine() % 17;
    const bool by_bytes = engine() % 2 == 0;
    double all = 0, widest = 0;
    for (std::uint64_t i = 0; i < steps; ++i) {
        const double bytes = 64e3 * std::pow(4000, uniform01());
        const double factor = by_bytes ? 1 : 0.25 + 1.5 * uniform01();
        add_step(problem, {bytes}, std::max(6e4, bytes) * factor);
        all += bytes;
        widest = std::max(widest, bytes);
    }
    constexpr double of_copies[] = {0.05, 0.05, 0.1, 0.2, 0.5, 1};
    scale_compute(problem, of_copies[engine() % 6]);
    problem.budget_bytes =
        static_cast<std::uint64_t>(std::min(0.8 * all, widest * (1.05 + 1.45 * uniform01()) + 2 * 2097152.0));
    return problem;
}
inline constexpr std::uint64_t wide_problems = 300;

/// 3–12 steps of one to three storages of 4 KB to 400 MB each, the same number of them in each decade; from what the widest step needs to
/// 0.95 of all fits. Steps take 0.03 to 3 of the copies, in proportion to their bytes or with a random factor.
inline plan::Problem short_problem(std::uint64_t seed) {
    std::mt19937_64 engine{seed};
    const auto uniform01 = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    plan::Problem problem;
    const auto steps = 3 + engine() % 10;
    const bool by_bytes = engine() % 2 == 0;
    double all = 0, widest = 0;
    for (std::uint64_t i = 0; i < steps; ++i) {
        std::vector<double> bytes;
        double sum = 0;
        for (std::uint64_t k = engine() % 3 == 0 ? 1 + engine() % 3 : 1; k > 0; --k) {
            bytes.push_back(4e3 * std::pow(1e5, uniform01()));
            sum += bytes.back();
        }
        add_step(problem, bytes, by_bytes ? sum : std::exp(3 * uniform01()));
        all += sum;
        widest = std::max(widest, sum);
    }
    scale_compute(problem, 0.03 * std::pow(100, uniform01()));
    const double least = widest + 4 * static_cast<double>(problem.chunk_bytes);
    problem.budget_bytes = static_cast<std::uint64_t>(least + std::max(0.0, 0.95 * all - least) * uniform01());
    return problem;
}
inline constexpr std::uint64_t short_problems = 300;

/// A schedule and where copies read its storages.
struct WithSources {
    plan::Problem problem;
    std::vector<std::uint64_t> source_offsets;  // bytes, by storage
};

/// For graphs, whose copy nodes cost more than another image: 30–150 steps of one matrix of 128 KB to 8 MB and up to eight vectors of 1 to
/// 32 KB. A file holds the tensors in the order of use, all vectors before the matrices, or in the order of their names; 0.3 to 0.95 of all
/// fits.
inline WithSources many_tensors(std::uint64_t seed) {
    std::mt19937_64 engine{seed};
    const auto uniform01 = [&] { return static_cast<double>(engine() >> 11) * 0x1p-53; };
    WithSources result;
    plan::Problem& problem = result.problem;
    const auto steps = 30 + engine() % 121, vectors = 1 + engine() % 8;
    const auto blocks = [&](double least, double most) {  // of 1 KB
        return std::floor(least * std::pow(most / least, uniform01())) * 1024;
    };
    for (std::uint64_t i = 0; i < steps; ++i) {
        std::vector<double> bytes{blocks(128, 8192)};
        for (std::uint64_t k = engine() % (vectors + 1); k > 0; --k) { bytes.push_back(blocks(1, 32)); }
        add_step(problem, bytes, bytes[0]);
    }
    constexpr double of_copies[] = {0.05, 0.2, 0.5, 1};
    scale_compute(problem, of_copies[engine() % 4]);
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;  // rank and storage
    const auto kind = engine() % 3;
    std::uint64_t all = 0;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        const bool is_matrix = problem.storage_bytes[s] >= 128 * 1024;
        order.emplace_back(kind == 0 ? 0 : kind == 1 ? (is_matrix ? 1 : 0) : engine(), s);
        all += problem.storage_bytes[s];
    }
    std::sort(order.begin(), order.end());
    result.source_offsets.resize(problem.storages());
    std::uint64_t at = 0;
    for (const auto& [rank, s] : order) {
        result.source_offsets[s] = at;
        at += problem.storage_bytes[s];
    }
    problem.budget_bytes = static_cast<std::uint64_t>(static_cast<double>(all) * (0.3 + 0.65 * uniform01()));
    return result;
}
inline constexpr std::uint64_t many_tensors_problems = 150;

/// The same work on another day: the link and the steps 10 % faster to 10 % slower. Even seeds change all steps alike, odd ones each step
/// by itself.
inline plan::Problem perturbed(plan::Problem problem, std::uint64_t seed) {
    std::mt19937_64 engine{seed};
    const auto factor = [&] { return 0.9 + 0.2 * static_cast<double>(engine() >> 11) * 0x1p-53; };
    problem.link.bytes_per_second *= factor();
    const double of_all = factor();
    for (double& seconds : problem.compute_seconds) { seconds *= seed % 2 == 0 ? of_all : factor(); }
    return problem;
}
inline constexpr std::uint64_t perturbed_passes = 10;

inline std::vector<Shape> named_shapes() {
    return {uniform(60, 100e6),
            uniform(120, 48e6),
            uniform(360, 40e6),
            llama("llama-3-8b", 32, 4096, 1024, 14336, 128256),
            llama("llama-3-70b", 80, 8192, 1024, 28672, 128256),
            unet("unet-like", 320, 3),
            unet("unet-like large", 512, 4),
            flux()};
}

/// The problem with a budget of that share of the weights' bytes.
inline plan::Problem with_budget(plan::Problem problem, double share) {
    double bytes = 0;
    for (const std::uint64_t each : problem.storage_bytes) { bytes += static_cast<double>(each); }
    problem.budget_bytes = static_cast<std::uint64_t>(bytes * share);
    return problem;
}

/// Kernels that read their weights once, at the memory's rate.
inline void bind_to_memory(plan::Problem& problem) {
    for (std::uint32_t i = 0; i < problem.steps(); ++i) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t s : problem.reads(i)) { bytes += problem.storage_bytes[s]; }
        problem.compute_seconds[i] = static_cast<double>(bytes) / plan::default_memory_bytes_per_second;
    }
}

/// Of compute to copies, for random schedules.
inline constexpr double ratios[] = {0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 2.0};

/// Calls cell(shape, ratio of compute to copies, share of the weights) for the schedules of the campaign whose name contains `only`,
/// until it returns false. Whether it never did.
template <class Cell>
bool for_each_cell(const std::string& only, Cell&& cell) {
    const auto is_wanted = [&](const Shape& shape) { return shape.name.find(only) != std::string::npos; };
    for (const Shape& shape : named_shapes()) {
        if (!is_wanted(shape)) { continue; }
        for (const double ratio : {0.01, 0.1, 0.3, 0.6, 1.0, 2.0}) {
            for (const double share : {0.25, 0.5, 0.75, 0.9, 0.95}) {
                if (!cell(shape, ratio, share)) { return false; }
            }
        }
    }
    const double shares[] = {0.25, 0.4, 0.5, 0.6, 0.75, 0.85, 0.9, 0.95};
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        const Shape shape = random_shape(seed);
        if (is_wanted(shape) && !cell(shape, ratios[seed % 7], shares[seed % 8])) { return false; }
    }
    return true;
}

}  // namespace residency::campaign
