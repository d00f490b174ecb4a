// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/schedule.hpp"
#include "tests/attack/device.hpp"

namespace attack {

using Random = std::mt19937_64;

/// Where the bytes of a model lie, and how.
enum class Source : std::uint8_t {
    pinned,  ///< in pinned memory
    file,    ///< in a file
    packed,  ///< packed, in pinned memory
    large,   ///< in pinned memory, so many that calls of copies are worth several links
};

/// Random weights, the bytes that kernels have to find, and two schedules, of which either may be empty.
struct Model {
    explicit Model(Device& of) : device{of} {}
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model();

    /// Other bytes for a storage, at its source and in `content`. Precondition: it is not packed, and nothing reads it.
    residency::Status replace(residency::StorageId storage, Random& random);
    /// Kernels have written `bytes` to a storage, or what they wrote is lost.
    void set_content(residency::StorageId storage, std::span<const std::byte> bytes);

    Device& device;
    residency::Catalog catalog;
    std::array<residency::Schedule, 2> schedules;
    std::vector<std::vector<std::byte>> content;       ///< by weight
    std::vector<std::vector<std::byte>> at_source;     ///< by storage
    std::vector<std::uint64_t> offsets;                ///< by storage, in the file or the memory
    std::shared_ptr<const residency::HostBytes> host;  ///< null: in a file
    std::filesystem::path file;                        ///< that holds the weights; empty: in memory
};

/// `device` outlives the model.
[[nodiscard]] std::unique_ptr<Model> make_model(Device& device, Random& random, Source source);

}  // namespace attack
