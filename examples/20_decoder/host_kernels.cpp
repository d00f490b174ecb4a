// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "host_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "examples/support/host_product.hpp"
#include "residency/codec/bf16_tiles.hpp"
#include "residency/error.hpp"

namespace decoder {
namespace {

Bf16* row_of(const Control& control, const Cache& cache, std::uint32_t layer, std::uint32_t part, std::uint32_t head,
             std::uint64_t position) {
    return std::bit_cast<Bf16*>(control.block(cache.block(position))) + cache.offset(layer, part, head, position);
}

/// Turns a head's row by the angles of its position.
void rotate(const Bf16* in, const Bf16* cosines, const Bf16* sines, std::uint32_t half, Bf16* out) {
    for (std::uint32_t i = 0; i < half; ++i) {
        const float a = to_float(in[i]), b = to_float(in[i + half]);
        const float cosine = to_float(cosines[i]), sine = to_float(sines[i]);
        out[i] = to_bf16(rounded(a * cosine) - rounded(b * sine));
        out[i + half] = to_bf16(rounded(b * cosine) + rounded(a * sine));
    }
}

}  // namespace

void compute(const Upload& o) { std::copy_n(o.from.words, o.from.count(o.tokens), o.to.words); }

void compute(const Embed& o) {
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        std::copy_n(o.table + o.control.id(t) * o.hidden, o.hidden, o.out + std::size_t{t} * o.hidden);
    }
}

void compute(const Normalise& o) {
    for (std::uint32_t r = 0; r < o.rows; ++r) {
        const Bf16* in = o.in + std::size_t{r} * o.width;
        Bf16* out = o.out + std::size_t{r} * o.width;
        float square = 0;
        for (std::uint32_t i = 0; i < o.width; ++i) { square += to_float(in[i]) * to_float(in[i]); }
        const float factor = 1 / std::sqrt(square / float(o.width) + o.epsilon);
        for (std::uint32_t i = 0; i < o.width; ++i) {
            out[i] = to_bf16(to_float(o.scale[i]) * rounded(to_float(in[i]) * factor));
        }
    }
}

void compute(const Unpack& o) {
    const std::span raw{o.out, std::size_t{o.rows} * o.columns};
    residency::unwrap(residency::codec::Bf16Tiles{}.unpack({.rows = o.rows, .columns = o.columns},
                                                           {o.matrix.data, static_cast<std::size_t>(o.matrix.bytes)},
                                                           std::as_writable_bytes(raw)));
}

void compute(const Linear& o) {
    const Bf16* weight = o.weight;
    std::vector<Bf16> unpacked;
    if (o.packed.data != nullptr) {
        unpacked.resize(std::size_t{o.from} * o.to);
        compute(Unpack{.matrix = o.packed, .out = unpacked.data(), .rows = o.to, .columns = o.from});
        weight = unpacked.data();
    }
    examples::multiply(o.in, weight, o.tokens, o.from, o.to, [&](std::size_t token, std::size_t output, float value) {
        if (o.bias != nullptr) { value += to_float(o.bias[output]); }
        const std::size_t at = token * o.to + output;
        if (o.logits != nullptr) {
            o.logits[at] = value;
        } else {
            o.out[at] = to_bf16(value);
        }
    });
}

void compute(const Rotate& o) {
    const std::uint32_t width = o.cache.width, half = width / 2;
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        const std::uint64_t position = o.control.position() + t;
        const Bf16 *cosines = o.cosines + position * half, *sines = o.sines + position * half;
        for (std::uint32_t head = 0; head < o.heads; ++head) {
            Bf16* row = o.query + (std::size_t{t} * o.heads + head) * width;
            rotate(row, cosines, sines, half, row);
        }
        for (std::uint32_t head = 0; head < o.cache.heads; ++head) {
            const std::size_t at = (std::size_t{t} * o.cache.heads + head) * width;
            rotate(o.key + at, cosines, sines, half, row_of(o.control, o.cache, o.layer, 0, head, position));
            std::copy_n(o.value + at, width, row_of(o.control, o.cache, o.layer, 1, head, position));
        }
    }
}

void compute(const Attend& o) {
    const std::uint32_t width = o.cache.width, group = o.heads / o.cache.heads;
    const float factor = 1 / std::sqrt(float(width));
    std::vector<float> scores, sums(width);
    for (std::uint32_t t = 0; t < o.tokens; ++t) {
        const std::uint64_t length = o.control.position() + t + 1;
        scores.resize(length);
        for (std::uint32_t head = 0; head < o.heads; ++head) {
            const Bf16* query = o.query + (std::size_t{t} * o.heads + head) * width;
            float largest = -INFINITY, total = 0;
            for (std::uint64_t u = 0; u < length; ++u) {
                const Bf16* key = row_of(o.control, o.cache, o.layer, 0, head / group, u);
                examples::Sum sum;
                for (std::uint32_t i = 0; i < width; i += examples::Sum::lanes) { sum.add(query + i, key + i); }
                scores[u] = sum.total() * factor;
                largest = (std::max)(largest, scores[u]);
            }
            std::fill(sums.begin(), sums.end(), 0.0F);
            for (std::uint64_t u = 0; u < length; ++u) {
                const float share = std::exp(scores[u] - largest);
                const Bf16* value = row_of(o.control, o.cache, o.layer, 1, head / group, u);
                total += share;
                for (std::uint32_t i = 0; i < width; ++i) { sums[i] += share * to_float(value[i]); }
            }
            Bf16* out = o.out + (std::size_t{t} * o.heads + head) * width;
            for (std::uint32_t i = 0; i < width; ++i) { out[i] = to_bf16(sums[i] / total); }
        }
    }
}

void compute(const Sum& o, const Rank& rank) {
    std::vector<float> sums(o.count);
    for (const void* each : rank.all().show(rank.number(), o.data)) {
        const auto* part = static_cast<const Bf16*>(each);
        for (std::uint64_t i = 0; i < o.count; ++i) { sums[i] += to_float(part[i]); }
    }
    if (!rank.all().try_least(0)) { return; }  // all have read
    std::transform(sums.begin(), sums.end(), o.data, to_bf16);
}

void compute(const Gather& o, const Rank& rank) {
    const auto shown = rank.all().show(rank.number(), o.logits + o.rank * o.count);
    for (std::size_t i = 0; i < shown.size(); ++i) {
        if (i != o.rank) { std::copy_n(static_cast<const float*>(shown[i]), o.count, o.logits + i * o.count); }
    }
    static_cast<void>(rank.all().try_least(0));
}

void compute(const Add& o) {
    for (std::uint64_t i = 0; i < o.count; ++i) { o.state[i] = to_bf16(to_float(o.state[i]) + to_float(o.in[i])); }
}

void compute(const Gate& o) {
    for (std::uint64_t i = 0; i < o.count; ++i) {
        const float gate = to_float(o.gate[i]);
        o.gate[i] = to_bf16(rounded(gate / (1 + std::exp(-gate))) * to_float(o.up[i]));
    }
}

void compute(const Choose& o) { *o.out = std::uint64_t(std::max_element(o.logits, o.logits + o.words) - o.logits); }

}  // namespace decoder
