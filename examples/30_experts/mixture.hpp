// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/support/roofline.hpp"
#include "residency/core/measure/statistics.hpp"

namespace experts {

inline constexpr std::uint32_t experts_a_layer = 8, chosen = 2;  // of each token
inline constexpr std::uint32_t read_a_layer = chosen + 1;        // and one that every token reads

struct Sizes {
    std::uint32_t layers = 0, hidden = 0, inner = 0;
    std::uint32_t passes = 0;                ///< that are measured, after as many that are not
    std::array<std::uint32_t, 2> batches{};  ///< tokens of a pass: few, where copies bound it, and many
    [[nodiscard]] std::size_t expert() const { return std::size_t{3} * inner * hidden; }  ///< gate, up, down
};
/// The widths of Mixtral 8x7B, which has 32 layers.
inline constexpr std::uint32_t mixtral_hidden = 4096, mixtral_inner = 14336;

/// A 16-bit float: the upper half of a 32-bit one.
struct Bf16 {
    std::uint16_t bits = 0;
};
[[nodiscard]] inline float to_float(Bf16 value) noexcept {
    return std::bit_cast<float>(std::uint32_t{value.bits} << 16U);
}
/// The weights are ± 1/128 … 1/64: what brings the sum of n products with them back to the size of the other factors.
inline constexpr float unit = 84;

// What a pass does, as plain data with addresses: the same for every device. Numbers lie token after token.

/// x of the batch's tokens, the first of which is `token`: hidden numbers each.
struct Embed {
    float* x = nullptr;
    std::uint32_t token = 0, batch = 0, hidden = 0;
};
/// A number ± 1/2 for each place of a token.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline float
    embedding(std::uint32_t token, std::uint32_t place) {
    std::uint64_t bits = (std::uint64_t{token} << 32U | place) + 0x9E3779B97F4A7C15U;
    bits = (bits ^ (bits >> 30U)) * 0xBF58476D1CE4E5B9U;
    bits = (bits ^ (bits >> 27U)) * 0x94D049BB133111EBU;
    return float(bits >> 40U) / 16777216.0F - 0.5F;
}
/// The scores of this layer's experts, then those of the next one's on the same x: a guess, as x changes little.
struct Route {
    const float* x = nullptr;
    const Bf16 *here = nullptr, *next = nullptr;  ///< experts × hidden
    float* scores = nullptr;
    std::uint32_t hidden = 0;
};
/// The experts of the highest scores, for all tokens of the batch, and their shares; then the likely ones of the next layer.
struct Choose {
    const float* scores = nullptr;
    std::int32_t* choices = nullptr;  ///< chosen, then as many of the next layer
    float* shares = nullptr;          ///< chosen
};
#ifdef __CUDACC__
__host__ __device__
#endif
    inline std::int32_t
    best_of(const float* scores, std::int32_t but) {
    std::int32_t best = but == 0 ? 1 : 0;
    for (std::int32_t e = best + 1; e < std::int32_t{experts_a_layer}; ++e) {
        if (e != but && scores[e] > scores[best]) { best = e; }
    }
    return best;
}
/// The experts that a layer's tokens read: those that were chosen, and one that all tokens share. Each is gate and up, inner × hidden, and
/// down, hidden × inner.
struct ReadExperts {
    const Bf16* at[chosen] = {};              ///< where the host knows what was chosen
    const std::byte* const* table = nullptr;  ///< in device memory, where the device knows it; null: `at`
    const Bf16* shared = nullptr;

#ifdef __CUDACC__
    __host__ __device__
#endif
        [[nodiscard]] const Bf16*
        operator[](std::uint32_t e) const {
        if (e == chosen) { return shared; }
        return table != nullptr ? reinterpret_cast<const Bf16*>(table[e]) : at[e];
    }
};
/// values[token][e][i] = share · silu(gate x) · up x, of the experts that are read; x at length one. The shared one has share 1.
struct Expand {
    const float* x = nullptr;
    ReadExperts experts;
    const float* shares = nullptr;
    float* values = nullptr;
    std::uint32_t batch = 0, hidden = 0, inner = 0;
};
/// x += the experts' down · values.
struct Reduce {
    const float* values = nullptr;
    ReadExperts experts;
    float* x = nullptr;
    std::uint32_t batch = 0, hidden = 0, inner = 0;
};

/// The kernels on the host's processor.
void compute(const Embed& o);
void compute(const Route& o);
void compute(const Choose& o);
void compute(const Expand& o);
void compute(const Reduce& o);

/// On the simulated device, which computes as slowly as its experts are small: many tokens take about as long as their experts' copies.
[[nodiscard]] inline std::chrono::nanoseconds slow_roofline(double products) {
    return examples::roofline({.operations = 2 * products, .bytes = 2 * products}, 2e11);
}
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Embed&) { return std::chrono::microseconds{2}; }
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Route&) { return std::chrono::microseconds{3}; }
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Choose&) { return std::chrono::microseconds{2}; }
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Expand& o) {
    return slow_roofline(2.0 * read_a_layer * o.batch * o.inner * o.hidden);
}
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Reduce& o) {
    return slow_roofline(1.0 * read_a_layer * o.batch * o.inner * o.hidden);
}

/// What one composition did in the passes that are measured.
struct Outcome {
    std::string name;
    std::vector<float> output;  ///< x after the last layer, token after token
    residency::Counters counters;
    std::uint64_t held_bytes = 0;
    double milliseconds = 0;    ///< a pass; 0: not known
    std::uint64_t guessed = 0;  ///< of the experts, by the layer before
};
/// All of them at one size of batches.
struct Comparison {
    std::uint32_t batch = 0;
    Outcome resident, hinted, unhinted, cached;
    Outcome guessed, routed;      ///< the router stays on the device: with guesses, and without
    std::vector<Outcome> packed;  ///< with --packed: with hints, and without
};
struct Results {
    std::string device;
    Sizes sizes;
    std::uint64_t streamed_bytes = 0;
    std::uint64_t packed_bytes = 0, packed_raw_bytes = 0;  ///< of what is packed
    std::vector<Comparison> comparisons;
    std::vector<std::string> reports;  ///< of the simulated device's checker
};

/// The same on either device. `packed`: also with experts that are packed. Throws residency::Exception.
[[nodiscard]] Results run_simulated(bool packed);
[[nodiscard]] Results run_cuda(bool packed);

}  // namespace experts
