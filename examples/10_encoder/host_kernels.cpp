// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "host_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "examples/support/host_product.hpp"

namespace encoder {
namespace {

void normalise(const float* in, const float* scale, const float* shift, float* out, std::uint32_t n, float epsilon) {
    double mean = 0;
    for (std::uint32_t i = 0; i < n; ++i) { mean += double(in[i]); }
    mean /= n;
    double variance = 0;
    for (std::uint32_t i = 0; i < n; ++i) { variance += (double(in[i]) - mean) * (double(in[i]) - mean); }
    const double factor = 1 / std::sqrt(variance / n + double(epsilon));
    for (std::uint32_t i = 0; i < n; ++i) { out[i] = float((double(in[i]) - mean) * factor) * scale[i] + shift[i]; }
}

}  // namespace

void compute(const Embed& o) {
    std::vector<float> row(o.hidden);
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        const float* word = o.words + std::size_t(o.ids[t]) * o.hidden;
        const float* place = o.places + std::size_t(o.positions[t]) * o.hidden;
        for (std::uint32_t i = 0; i < o.hidden; ++i) { row[i] = word[i] + place[i] + o.segments[i]; }
        normalise(row.data(), o.scale, o.shift, o.out + std::size_t{t} * o.hidden, o.hidden, o.epsilon);
    }
}

// Precondition of all: rows are multiples of eight elements (checked with the configuration).
void compute(const Linear& o) {
    examples::multiply(o.in, o.weight, o.tokens, o.from, o.to, [&](std::size_t token, std::size_t output, float value) {
        value += o.bias[output];
        if (o.gelu) { value *= 0.5F * (1 + std::erf(value * 0.70710678F)); }
        o.out[token * o.to + output] = value;
    });
}

void compute(const Attention& o) {
    const std::uint32_t width = o.hidden / o.heads;
    const float factor = 1 / std::sqrt(float(width));
    std::vector<float> scores;
    for (std::uint32_t s = 0; s < o.sentences; ++s) {
        const auto first = std::size_t(o.starts[s]), end = std::size_t(o.starts[s + 1]);
        scores.resize(end - first);
        for (std::uint32_t head = 0; head < o.heads; ++head) {
            for (std::size_t t = first; t < end; ++t) {
                const float* query = o.query + t * o.hidden + std::size_t{head} * width;
                float largest = -INFINITY, total = 0;
                for (std::size_t u = first; u < end; ++u) {
                    const float* key = o.key + u * o.hidden + std::size_t{head} * width;
                    examples::Sum sum;
                    for (std::uint32_t i = 0; i < width; i += examples::Sum::lanes) { sum.add(query + i, key + i); }
                    scores[u - first] = sum.total() * factor;
                    largest = (std::max)(largest, scores[u - first]);
                }
                for (float& score : scores) { total += score = std::exp(score - largest); }
                float* out = o.out + t * o.hidden + std::size_t{head} * width;
                std::fill_n(out, width, 0.0F);
                for (std::size_t u = first; u < end; ++u) {
                    const float share = scores[u - first] / total;
                    const float* value = o.value + u * o.hidden + std::size_t{head} * width;
                    for (std::uint32_t i = 0; i < width; ++i) { out[i] += share * value[i]; }
                }
            }
        }
    }
}

void compute(const AddNormalise& o) {
    std::vector<float> row(o.hidden);
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        const std::size_t at = std::size_t{t} * o.hidden;
        for (std::uint32_t i = 0; i < o.hidden; ++i) { row[i] = o.in[at + i] + o.residual[at + i]; }
        normalise(row.data(), o.scale, o.shift, o.out + at, o.hidden, o.epsilon);
    }
}

void compute(const Pool& o) {
    std::vector<double> mean(o.hidden);
    for (std::uint32_t s = 0; s < o.sentences; ++s) {
        std::fill(mean.begin(), mean.end(), 0.0);
        for (auto t = std::size_t(o.starts[s]); t < std::size_t(o.starts[s + 1]); ++t) {
            for (std::uint32_t i = 0; i < o.hidden; ++i) { mean[i] += double(o.in[t * o.hidden + i]); }
        }
        double square = 0;
        for (const double value : mean) { square += value * value; }
        const double length = (std::max)(std::sqrt(square), 1e-12);
        for (std::uint32_t i = 0; i < o.hidden; ++i) { o.out[std::size_t{s} * o.hidden + i] = float(mean[i] / length); }
    }
}

}  // namespace encoder
