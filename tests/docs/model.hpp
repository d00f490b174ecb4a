// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace docs {

using namespace residency;

/// The bytes of bf16 weights as training leaves them: the exponents of most are near each other.
inline std::vector<std::byte> trained_weights(std::size_t bytes, std::uint32_t seed) {
    std::vector<std::byte> result(bytes);
    std::mt19937 random{seed};
    std::normal_distribution<float> weight{0, 0.02F};
    for (std::size_t at = 0; at < bytes; at += 2) {
        const float value = weight(random);
        std::memcpy(result.data() + at, reinterpret_cast<const std::byte*>(&value) + 2, 2);  // its upper half
    }
    return result;
}

/// A model of equal layers in pinned memory, on a simulated device with one stream: what the pages of docs/ begin with.
class Model {
public:
    using Stream = SimulatedDevice::Stream;
    static constexpr std::uint64_t mib = std::uint64_t{1} << 20;

    explicit Model(std::uint32_t layers = 8, std::uint64_t layer_bytes = 4 * mib) : host_(layers * layer_bytes) {
        std::mt19937_64 random{layers};
        for (std::size_t at = 0; at < host_.size(); at += sizeof(std::uint64_t)) {
            const std::uint64_t word = random();
            std::memcpy(host_.data() + at, &word, sizeof word);
        }
        unwrap(gpu.pin(host_.data(), host_.size()));
        const auto held = HostBytes::borrow(host_, HostMemory::pinned);
        CatalogBuilder builder;
        for (std::uint32_t i = 0; i < layers; ++i) {
            builder.add("layers." + std::to_string(i), dtype::u8, {layer_bytes}, HostSource{held, i * layer_bytes});
        }
        catalog = builder.build();
        ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}); }
        schedule = steps.build();
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() {
        unwrap(gpu.destroy_stream(stream));
        unwrap(gpu.unpin(host_.data()));
    }

    /// A kernel that reads a weight, and compares it with what the host has.
    void launch(WeightId weight, const void* at, Stream on) {
        const std::uint64_t bytes = catalog.weight(weight).bytes;
        const std::byte* const expected = catalog.host_bytes(catalog.storage_of(weight));
        unwrap(gpu.launch(on, {.name = "layer",
                               .duration = std::chrono::microseconds{20},
                               .reads = {{at, bytes}},
                               .writes = {},
                               .body = [this, at, bytes, expected] {
                                   ++launched;
                                   wrong += std::memcmp(at, expected, bytes) != 0;
                               }}));
    }
    void launch(WeightId weight, const void* at) { launch(weight, at, stream); }
    /// A weight's bytes where the host has them.
    [[nodiscard]] std::span<std::byte> bytes(WeightId weight) {
        const std::size_t each = host_.size() / catalog.weights().size();
        return std::span{host_}.subspan(index(weight) * each, each);
    }
    /// Waits for everything. Whether every kernel read the right bytes, and the device saw no access that nothing orders.
    [[nodiscard]] bool is_right() {
        unwrap(gpu.synchronize());
        return launched > 0 && wrong == 0 && gpu.report_count() == 0;
    }

    SimulatedDevice gpu;
    Stream stream = unwrap(gpu.create_stream());
    Catalog catalog;
    Schedule schedule;
    std::uint64_t launched = 0, wrong = 0;

private:
    std::vector<std::byte> host_;
};

}  // namespace docs
