// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "config.hpp"
#include "residency/format/model_file.hpp"
#include "residency/model/catalog.hpp"

namespace encoder {

/// A matrix and its vector, or the two vectors of a normalisation.
struct Pair {
    residency::WeightId weight{}, bias{};
};
struct Layer {
    Pair query, key, value, mix, mix_norm, up, down, down_norm;
};

/// A model whose tensors are exactly those that its configuration asks for. Tables that are read a row at a time, and what the
/// encoder does not read at all, are placed on the host; everything else is streamed.
struct Checkpoint {
    Config config;
    residency::Catalog catalog;
    residency::WeightId words{}, places{}, segments{};
    Pair norm;
    std::vector<Layer> layers;

    /// Reads config.json and model.safetensors or, where that is not there, pytorch_model.bin. Throws residency::Exception; a
    /// tensor that is missing, superfluous, of another shape or type is a MismatchError that names it.
    [[nodiscard]] static Checkpoint read(const std::string& folder);
};

/// A model of the shapes of all-MiniLM-L6-v2 with random weights and a vocabulary that has the words of `sentences`: config.json,
/// model.safetensors and vocab.txt, the same everywhere. Throws residency::IoError.
void generate(const std::string& folder, const std::vector<std::string>& sentences);

}  // namespace encoder
