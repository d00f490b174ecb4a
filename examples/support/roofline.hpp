// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace examples {

/// Work of one operation: multiply-adds count as two; bytes of device memory; bytes read over the link.
struct Work {
    double operations = 0, bytes = 0, link_bytes = 0;
};

/// How long a large GPU takes that computes so many operations a second: the slower of arithmetic, its memory and the link, and a
/// launch.
[[nodiscard]] inline std::chrono::nanoseconds roofline(const Work& work, double operations_per_second) {
    const double seconds =
        2e-6 + (std::max)({work.operations / operations_per_second, work.bytes / 4e12, work.link_bytes / 50e9});
    return std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)};
}

}  // namespace examples
