// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/storage.hpp"
#include "residency/model/weight.hpp"

namespace decoder {

/// A matrix, and a bias where the model has one.
struct Matrix {
    residency::WeightId weight{};
    std::optional<residency::WeightId> bias;
};
struct Layer {
    residency::WeightId input_norm{}, inner_norm{};
    Matrix query, key, value, output, gate, up, down;
    std::optional<residency::WeightId> query_norm, key_norm;
};

/// A tensor as a configuration asks for it.
struct Tensor {
    std::string name;
    residency::Shape shape;
};
/// All of them, in the order of a pass.
[[nodiscard]] std::vector<Tensor> tensors_of(const Config& config);

/// A model whose tensors are exactly those that its configuration asks for. An embedding table of its own is placed on the host, as
/// is what the engine does not read; everything else is streamed, a table that is also the last matrix included.
struct Checkpoint {
    Config config;
    residency::Catalog catalog;
    residency::WeightId words{}, norm{}, head{};
    std::vector<Layer> layers;

    /// Reads config.json and model.safetensors, or the shards that model.safetensors.index.json names. Throws
    /// residency::Exception; a tensor that is missing, superfluous, of another shape or type is a mismatch that names it.
    [[nodiscard]] static Checkpoint read(const std::string& folder);
};

}  // namespace decoder
