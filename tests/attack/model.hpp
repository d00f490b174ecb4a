// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "tests/attack/device.hpp"

namespace attack {

using Random = std::mt19937_64;

/// Random weights, the bytes that kernels have to find, and two schedules, of which either may be empty.
struct Model {
    Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model();

    residency::Catalog catalog;
    std::array<residency::Schedule, 2> schedules;
    std::vector<std::vector<std::byte>> content;  ///< by weight
    std::filesystem::path file;                   ///< that holds the weights of a staged model
};

/// `in_file`: the bytes lie in a file, not in pinned memory. `device` outlives the model.
[[nodiscard]] std::unique_ptr<Model> make_model(Device& device, Random& random, bool in_file);

}  // namespace attack
