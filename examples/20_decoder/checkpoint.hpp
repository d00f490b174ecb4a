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

/// Which part of a model this is, where several GPUs have one each (split.hpp).
struct Part {
    std::uint32_t rank = 0, of = 1;
    bool sums = false;  ///< products of which each GPU has a part are added up, and the logits gathered
};

/// A tensor as a configuration asks for it.
struct Tensor {
    std::string name;
    residency::Shape shape;
};
/// All of them, in the order of a pass.
[[nodiscard]] std::vector<Tensor> tensors_of(const Config& config);

/// A model whose tensors are exactly those that its configuration asks for. What streams, and the embedding table, of which rows are read
/// on the host, are catalogs of their own; a table that is also the last matrix is one of what streams.
struct Checkpoint {
    Config config;
    residency::Catalog catalog;
    residency::Catalog table;  ///< empty where it is the last matrix
    residency::WeightId norm{}, head{};
    std::vector<Layer> layers;
    Part part;

    /// The table, wherever it is.
    [[nodiscard]] const residency::Catalog& table_catalog() const noexcept { return config.tied ? catalog : table; }
    [[nodiscard]] const residency::Weight& words() const noexcept {
        return table_catalog().weight(config.tied ? head : residency::WeightId{0});
    }
    [[nodiscard]] const residency::Storage& words_storage() const noexcept {
        return table_catalog().storage(words().storage);
    }

    /// Reads config.json and model.safetensors, or the shards that model.safetensors.index.json names, or model.packed, which
    /// residency-pack wrote; `packed`: that one first. Throws residency::Exception; a tensor that is missing, superfluous, of another
    /// shape or type is a mismatch that names it.
    [[nodiscard]] static Checkpoint read(const std::string& folder, bool packed = false);
};

}  // namespace decoder
