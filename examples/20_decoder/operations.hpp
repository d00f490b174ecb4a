// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "bf16.hpp"
#include "examples/support/roofline.hpp"

// What a Llama-style decoder consists of, as plain data with addresses: the same for every device. Rows of a token each lie one after
// another. Everything between two operations is bf16; inside of one, sums are float. Results are rounded where the reference
// implementation rounds them.
namespace decoder {

/// What differs from pass to pass, in words of 64 bits: the position of the pass's first token, the addresses of the cache's
/// blocks, the ids of the tokens. Kernels read it in device memory, so that a captured pass can be launched again for any token.
struct Control {
    std::uint64_t* words = nullptr;
    std::uint32_t blocks = 0;  ///< for how many there is room

    [[nodiscard]] constexpr std::uint64_t& position() const { return words[0]; }
    [[nodiscard]] constexpr std::uint64_t& block(std::uint64_t i) const { return words[1 + i]; }
    [[nodiscard]] constexpr std::uint64_t& id(std::uint64_t token) const { return words[1 + blocks + token]; }
    /// Of a pass with so many tokens.
    [[nodiscard]] constexpr std::uint32_t count(std::uint32_t tokens) const { return 1 + blocks + tokens; }
};

/// The widths of heads that every device has kernels for.
constexpr std::uint32_t head_widths[] = {16, 32, 64, 96, 128, 192, 256};

/// The shape of the KV cache. A block has room for block_tokens() positions of every layer: of each the keys, then the values, head
/// by head, position by position.
struct Cache {
    std::uint32_t layers = 0, heads = 0, width = 0, block_shift = 0;

    [[nodiscard]] constexpr std::uint32_t block_tokens() const { return 1U << block_shift; }
    [[nodiscard]] constexpr std::uint64_t block_elements() const {
        return std::uint64_t{2} * layers * heads * block_tokens() * width;
    }
    /// Where a position's row begins in its block, in elements; `part` is 0 for keys, 1 for values.
    [[nodiscard]] constexpr std::uint64_t offset(std::uint32_t layer, std::uint32_t part, std::uint32_t head,
                                                 std::uint64_t position) const {
        const std::uint64_t row = (std::uint64_t{layer} * 2 + part) * heads + head;
        return ((row << block_shift) + (position & (block_tokens() - 1))) * width;
    }
    [[nodiscard]] constexpr std::uint64_t block(std::uint64_t position) const { return position >> block_shift; }
};

/// Brings the control words from pinned memory. By a kernel: a copy would queue behind those of the weights.
struct Upload {
    Control from, to;
    std::uint32_t tokens = 0;
};

/// Rows of a table in pinned memory.
struct Embed {
    Control control;
    const Bf16* table = nullptr;
    Bf16* out = nullptr;
    std::uint32_t tokens = 0, hidden = 0;
};

/// RMSNorm of rows; out may be in.
struct Normalise {
    const Bf16 *in = nullptr, *scale = nullptr;
    Bf16* out = nullptr;
    std::uint32_t rows = 0, width = 0;
    float epsilon = 0;
};

/// A matrix in the form bf16_tiles.
struct PackedMatrix {
    const std::byte* data = nullptr;   ///< in device memory; null: the matrix is not packed
    const std::byte* front = nullptr;  ///< the first bytes of it, in host memory
    std::uint64_t bytes = 0;
};
/// A pass of so many tokens multiplies with packed matrices as they are. For more they are unpacked first.
constexpr std::uint32_t most_direct_tokens = 8;

/// What a packed matrix holds, row by row.
struct Unpack {
    PackedMatrix matrix;
    Bf16* out = nullptr;
    std::uint32_t rows = 0, columns = 0;
};

/// in × weightᵀ (+ bias), to `out`, or unrounded to `logits`.
struct Linear {
    const Bf16 *in = nullptr, *weight = nullptr, *bias = nullptr;
    PackedMatrix packed{};       ///< instead of `weight`, for up to most_direct_tokens
    bool is_weight_new = false;  ///< the work before on the stream may have written `weight`
    Bf16* out = nullptr;
    float* logits = nullptr;
    std::uint32_t tokens = 0, from = 0, to = 0;  ///< from, to: extents of a row
};

/// Rotary embeddings: of the queries in place, of the keys on their way into the cache, where the values go as they are.
struct Rotate {
    Bf16* query = nullptr;
    const Bf16 *key = nullptr, *value = nullptr;
    const Bf16 *cosines = nullptr, *sines = nullptr;  ///< of each position, half a head's width
    Control control, host;                            ///< host: in pinned memory; which blocks there are now
    Cache cache;
    std::uint32_t layer = 0, tokens = 0, heads = 0;
};

/// Every token attends to the cache up to its own position; several heads share keys and values.
struct Attend {
    const Bf16* query = nullptr;
    Bf16* out = nullptr;
    Control control, host;
    Cache cache;
    std::uint32_t layer = 0, tokens = 0, heads = 0;
    std::uint32_t length = 0;  ///< no position is beyond
    float* partial = nullptr;  ///< partial_floats() of it, where the device works on parts of the cache at a time
};
/// The positions that are one part, and what the parts of one token take: of each head an output, a largest score and a sum.
constexpr std::uint32_t part_positions = 256;
[[nodiscard]] constexpr std::uint64_t partial_floats(std::uint32_t heads, std::uint32_t width, std::uint32_t length) {
    return std::uint64_t{heads} * ((length + part_positions - 1) / part_positions) * (width + 2);
}

/// data = the sum of what every GPU has there.
struct Sum {
    Bf16* data = nullptr;
    std::uint64_t count = 0;
};
/// Every GPU gives its part of the logits, of `count` each, and gets all.
struct Gather {
    float* logits = nullptr;
    std::uint64_t count = 0;
    std::uint32_t rank = 0, of = 1;
};

/// state += in.
struct Add {
    const Bf16* in = nullptr;
    Bf16* state = nullptr;
    std::uint64_t count = 0;
};

/// SwiGLU: gate = silu(gate) · up.
struct Gate {
    Bf16* gate = nullptr;
    const Bf16* up = nullptr;
    std::uint64_t count = 0;
};

/// The index of the largest, the first of equals, to pinned memory.
struct Choose {
    const float* logits = nullptr;
    std::uint64_t* out = nullptr;
    std::uint32_t words = 0;
};

using examples::Work;
[[nodiscard]] inline Work work(const Upload& o) { return {0, 0, 8.0 * o.from.count(o.tokens)}; }
[[nodiscard]] inline Work work(const Embed& o) { return {0, 2.0 * o.tokens * o.hidden, 2.0 * o.tokens * o.hidden}; }
[[nodiscard]] inline Work work(const Normalise& o) { return {4.0 * o.rows * o.width, 4.0 * o.rows * o.width, 0}; }
[[nodiscard]] inline Work work(const Unpack& o) { return {0, double(o.matrix.bytes) + 2.0 * o.rows * o.columns, 0}; }
[[nodiscard]] inline Work work(const Linear& o) {
    const double weight = o.packed.data != nullptr ? double(o.packed.bytes) : 2.0 * o.from * o.to;
    return {2.0 * o.tokens * o.from * o.to, weight + 2.0 * o.tokens * (o.from + o.to), 0};
}
[[nodiscard]] inline Work work(const Rotate& o) {
    const double elements = double(o.tokens) * (o.heads + 2.0 * o.cache.heads) * o.cache.width;
    return {4 * elements, 4 * elements, 0};
}
[[nodiscard]] inline Work work(const Attend& o) {
    const double width = o.cache.width, length = o.length;
    return {4 * o.tokens * length * o.heads * width, 4 * length * o.cache.heads * width, 0};
}
// Between GPUs, at what is counted as device memory here. On a GPU they are measured like everything else.
[[nodiscard]] inline Work work(const Sum& o) { return {double(o.count), 8.0 * double(o.count), 0}; }
[[nodiscard]] inline Work work(const Gather& o) { return {0, 8.0 * double(o.count) * o.of, 0}; }
[[nodiscard]] inline Work work(const Add& o) { return {double(o.count), 6.0 * double(o.count), 0}; }
[[nodiscard]] inline Work work(const Gate& o) { return {8.0 * double(o.count), 6.0 * double(o.count), 0}; }
[[nodiscard]] inline Work work(const Choose& o) { return {double(o.words), 4.0 * o.words, 0}; }

/// How long a large GPU takes, with products of bf16 on its tensor cores.
template <class Operation>
[[nodiscard]] std::chrono::nanoseconds roofline(const Operation& operation) {
    return examples::roofline(work(operation), 500e12);
}

}  // namespace decoder
