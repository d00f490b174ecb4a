// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests share in which several simulated GPUs of a host feed each other.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/transport_policy.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/packed/support.hpp"

namespace gpus_of_host {

using Device = residency::SimulatedDevice;

inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;

inline Device::Config named(std::string name) {
    Device::Config config;
    config.memory_bytes = 512 * mib;
    config.allocation_granularity = 4096;
    config.chunk_granularity = 4096;
    config.name = std::move(name);
    return config;
}

/// The contract of transports, on calls that are large enough for several links.
inline residency::conformance::TransportSuite<Device> large_calls() {
    residency::conformance::TransportSuite<Device> suite{.runs = 3, .operations = 40, .target_bytes = 24 * mib};
    suite.model = [](Device& on, std::uint32_t seed) {
        const std::vector<packed_tests::Model::Spec> specs{{mib, true}, {mib / 2, true}, {2 * mib, true}, {100, true},
                                                           {mib, true}, {0, true},       {mib / 3, true}};
        const auto model = std::make_shared<packed_tests::Model>(on, specs, seed);
        residency::conformance::TransportModel result{model->raw, {}, model};
        for (const auto& bytes : model->contents) { result.contents.emplace_back(bytes.begin(), bytes.end()); }
        return result;
    };
    return suite;
}

}  // namespace gpus_of_host
