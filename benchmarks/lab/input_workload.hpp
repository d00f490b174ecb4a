// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "benchmarks/lab/workload.hpp"
#include "residency/error.hpp"

namespace lab {

/// A model file's weights one after the other, as one token's pass, a storage a step. `packs`: packs some bytes of each bf16 weight, for
/// packed_shares.
[[nodiscard]] residency::Result<Workload> workload_of_file(const std::string& path, bool packs);
/// A recorded trace whose order is not known beforehand; a pass ends where the layers begin again, or after 64 steps without layers.
[[nodiscard]] residency::Result<Workload> workload_of_trace(const std::string& path, const std::string& format);

}  // namespace lab
