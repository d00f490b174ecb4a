// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/support/roofline.hpp"
#include "residency/core/measure/statistics.hpp"

namespace diffusion {

/// Positions of an image and its channels between the blocks. Multiples of 64 on a GPU.
struct Sizes {
    std::uint32_t pixels = 0, width = 0;
};
inline constexpr std::uint32_t steps = 8;  // of denoising
/// Rows between the two matrices of each block: wide and shallow in the middle, narrow and long outside.
inline constexpr std::array<std::uint32_t, 13> inner{512,  1024, 2048, 3072, 6144, 8192, 12288,
                                                     8192, 6144, 3072, 2048, 1024, 512};

/// What a block consists of, as plain data with addresses: the same for every device. A product of in (pixels × from) with
/// weightᵀ (to × from): up, silu of it over `to` into out; down, added to out, the image.
struct Product {
    const float *in = nullptr, *weight = nullptr;
    float* out = nullptr;
    std::uint32_t pixels = 0, from = 0, to = 0;
    bool up = false;
};
/// The kernel on the host's processor.
void compute(const Product& o);
/// At a rate at which compute and copies are alike, as they are on a GPU where images are large.
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Product& o) {
    return examples::roofline(
        {.operations = 2.0 * o.pixels * o.from * o.to, .bytes = 4.0 * o.from * o.to + 8.0 * o.pixels * (o.from + o.to)},
        0.65e12);
}

/// One budget.
struct Outcome {
    std::uint32_t percent = 0;  ///< of the weights
    residency::Statistics statistics;
    double milliseconds = 0;  ///< of a step, the median of the last ones
    bool is_right = false;    ///< its image is that of the resident run
};
struct Results {
    std::string device;
    std::uint64_t bytes = 0, smallest_bytes = 0, largest_bytes = 0;  ///< of all weights, and of a block's
    std::vector<Outcome> outcomes;
    std::string timeline;  ///< what copies and kernels did at half of the weights, to print; empty: it was not recorded
    std::vector<std::string> reports;  ///< of the simulated device's checker
};

/// The same on either device. Throws residency::Exception.
[[nodiscard]] Results run_simulated();
[[nodiscard]] Results run_cuda();

}  // namespace diffusion
