// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "examples/support/roofline.hpp"

// What a BERT encoder consists of, as plain data with addresses: the same for every device. All tokens of a batch lie one after
// another, sentence after sentence; rows of `hidden` floats.
namespace encoder {

struct Embed {
    const std::int32_t *ids = nullptr, *positions = nullptr;               ///< of each token
    const float *words = nullptr, *places = nullptr, *segments = nullptr;  ///< tables, read a row at a time
    const float *scale = nullptr, *shift = nullptr;                        ///< of the normalisation
    float* out = nullptr;
    std::uint32_t tokens = 0, hidden = 0;
    float epsilon = 0;
};

/// out = in × weightᵀ + bias, then GELU if asked for.
struct Linear {
    const float *in = nullptr, *weight = nullptr, *bias = nullptr;
    float* out = nullptr;
    std::uint32_t tokens = 0, from = 0, to = 0;  ///< from, to: extents of a row
    bool gelu = false;
};

/// Each sentence attends to itself.
struct Attention {
    const float *query = nullptr, *key = nullptr, *value = nullptr;
    const std::int32_t* starts = nullptr;  ///< of the sentences, and the end
    float* out = nullptr;
    std::uint32_t sentences = 0, tokens = 0, heads = 0, hidden = 0;
};

/// out = normalise(in + residual); out may be residual.
struct AddNormalise {
    const float *in = nullptr, *residual = nullptr, *scale = nullptr, *shift = nullptr;
    float* out = nullptr;
    std::uint32_t tokens = 0, hidden = 0;
    float epsilon = 0;
};

/// The mean of each sentence's tokens, of length one.
struct Pool {
    const float* in = nullptr;
    const std::int32_t* starts = nullptr;
    float* out = nullptr;
    std::uint32_t sentences = 0, tokens = 0, hidden = 0;
};

using examples::Work;
[[nodiscard]] inline Work work(const Embed& o) {
    return {10.0 * o.tokens * o.hidden, 4.0 * o.tokens * o.hidden, 12.0 * o.tokens * o.hidden};
}
[[nodiscard]] inline Work work(const Linear& o) {
    return {2.0 * o.tokens * o.from * o.to, 4.0 * (double(o.from) * o.to + double(o.tokens) * (o.from + o.to)), 0};
}
[[nodiscard]] inline Work work(const Attention& o) {
    const double length = double(o.tokens) / (std::max)(o.sentences, 1U);
    return {4.0 * o.tokens * length * o.hidden, 16.0 * o.tokens * o.hidden, 0};
}
[[nodiscard]] inline Work work(const AddNormalise& o) {
    return {8.0 * o.tokens * o.hidden, 12.0 * o.tokens * o.hidden, 0};
}
[[nodiscard]] inline Work work(const Pool& o) { return {2.0 * o.tokens * o.hidden, 4.0 * o.tokens * o.hidden, 0}; }

/// How long a large GPU takes, with single-precision arithmetic.
template <class Operation>
[[nodiscard]] std::chrono::nanoseconds roofline(const Operation& operation) {
    return examples::roofline(work(operation), 50e12);
}

}  // namespace encoder
