// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "mixture.hpp"

namespace experts {
namespace {

float dot(const Bf16* weights, const float* x, std::uint32_t count) {
    std::array<float, 8> lanes{};
    for (std::uint32_t i = 0; i < count; ++i) { lanes[i % 8] += to_float(weights[i]) * x[i]; }
    float sum = 0;
    for (const float lane : lanes) { sum += lane; }
    return sum;
}
/// One over the length of x.
float inverse_length(const float* x, std::uint32_t count) {
    float square = 1e-6F;
    for (std::uint32_t i = 0; i < count; ++i) { square += x[i] * x[i]; }
    return 1 / std::sqrt(square);
}

}  // namespace

void compute(const Embed& o) {
    for (std::uint32_t t = 0; t < o.batch; ++t) {
        for (std::uint32_t i = 0; i < o.hidden; ++i) { o.x[std::size_t{t} * o.hidden + i] = embedding(o.token + t, i); }
    }
}
void compute(const Route& o) {
    const float scale = 0.6F * unit * inverse_length(o.x, o.hidden);
    for (std::uint32_t e = 0; e < experts_a_layer; ++e) {
        o.scores[e] = scale * dot(o.here + std::size_t{e} * o.hidden, o.x, o.hidden);
        o.scores[experts_a_layer + e] = scale * dot(o.next + std::size_t{e} * o.hidden, o.x, o.hidden);
    }
}
void compute(const Choose& o) {
    const auto two_of = [](const float* scores, std::int32_t* to) {
        to[0] = best_of(scores, -1);
        to[1] = best_of(scores, to[0]);
    };
    two_of(o.scores, o.choices);
    two_of(o.scores + experts_a_layer, o.choices + chosen);
    const float second = std::exp(o.scores[o.choices[1]] - o.scores[o.choices[0]]);
    o.shares[0] = 1 / (1 + second);
    o.shares[1] = second / (1 + second);
}
void compute(const Expand& o) {
    for (std::uint32_t t = 0; t < o.batch; ++t) {
        const float* x = o.x + std::size_t{t} * o.hidden;
        float* values = o.values + std::size_t{t} * read_a_layer * o.inner;
        const float scale = unit * inverse_length(x, o.hidden);
        for (std::uint32_t e = 0; e < read_a_layer; ++e) {
            const Bf16 *const gates = o.experts[e], *const ups = gates + std::size_t{o.inner} * o.hidden;
            const float share = e < chosen ? o.shares[e] : 1;
            for (std::uint32_t i = 0; i < o.inner; ++i) {
                const std::size_t row = std::size_t{i} * o.hidden;
                const float gate = scale * dot(gates + row, x, o.hidden);
                const float up = scale * dot(ups + row, x, o.hidden);
                values[std::size_t{e} * o.inner + i] = share * gate / (1 + std::exp(-gate)) * up;
            }
        }
    }
}
void compute(const Reduce& o) {
    const float scale = 0.1F * unit / std::sqrt(float(o.inner));
    for (std::uint32_t t = 0; t < o.batch; ++t) {
        const float* values = o.values + std::size_t{t} * read_a_layer * o.inner;
        for (std::uint32_t k = 0; k < o.hidden; ++k) {
            float sum = 0;
            for (std::uint32_t e = 0; e < read_a_layer; ++e) {
                const Bf16* const down = o.experts[e] + std::size_t{2} * o.inner * o.hidden;
                sum += dot(down + std::size_t{k} * o.inner, values + std::size_t{e} * o.inner, o.inner);
            }
            o.x[std::size_t{t} * o.hidden + k] += scale * sum;
        }
    }
}

}  // namespace experts
