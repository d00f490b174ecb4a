// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace decoder {

/// How the rotary embeddings of Llama 3.1 and later stretch long wavelengths.
struct Llama3Scaling {
    double factor = 8, low_frequency = 1, high_frequency = 4, original_places = 8192;
};

/// The shape of a decoder, as config.json gives it.
struct Config {
    std::string family = "llama";  ///< model_type: llama, qwen2 or qwen3
    std::uint32_t layers = 0, hidden = 0, inner = 0, words = 0, places = 0;
    std::uint32_t heads = 0, cache_heads = 0, width = 0;  ///< width: of a head
    double epsilon = 1e-6, theta = 10000;
    std::optional<Llama3Scaling> scaling;
    bool tied = false;                ///< the embedding table is also the last matrix
    bool input_biases = false;        ///< of queries, keys and values
    bool output_bias = false;         ///< of what attention gives
    bool head_norms = false;          ///< queries and keys are normalised head by head
    std::vector<std::uint32_t> ends;  ///< tokens that end a text

    /// Throws residency::Exception: malformed for what is no such JSON, unsupported for a model that this engine would run wrongly.
    [[nodiscard]] static Config read(const std::string& path);
    /// Text in the words of the same file.
    [[nodiscard]] std::string text() const;
    /// Radians a position, for each pair of a head's elements.
    [[nodiscard]] std::vector<float> frequencies() const;
};

}  // namespace decoder
