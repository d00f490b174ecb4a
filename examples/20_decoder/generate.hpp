// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config.hpp"

namespace decoder {

/// The names of the shapes that can be generated.
[[nodiscard]] std::vector<std::string> shapes();
/// Error of kind invalid_argument for a name that is none, thrown.
[[nodiscard]] Config shape(const std::string& name);

/// A model of these shapes with random weights: config.json and model.safetensors, the same everywhere. Element i of the file's
/// tensor t, both counted from 0, is
///
///     base + a · (2u − 1), rounded to float after each operation and then to bf16,    u = splitmix64(2⁴⁰ t + i) >> 40, over 2²⁴
///
/// with a = 0.2 for vectors (base 1 in norms, else 0), 0.25 for the embedding table, √(3 / columns) for matrices and twice that for the last.
/// Throws residency::Exception (io). `progress(done, total)` in bytes.
void generate(const std::string& folder, const Config& config,
              const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace decoder
