// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "residency/conformance/device.hpp"
#include "tests/support/simulated_harness.hpp"

namespace conformance_jitter_test {

namespace {

/// Durations are up to three times longer or shorter: nothing may depend on them.
struct JitteredHarness : support::SimulatedHarness {
    JitteredHarness() : SimulatedHarness{config()} {}
    static residency::SimulatedDevice::Config config() {
        auto config = support::small_device();
        config.jitter = 3;
        config.seed = 7;
        config.concurrent_kernels = false;
        return config;
    }
    void launch_spin(std::chrono::nanoseconds duration, Stream stream) {
        SimulatedHarness::launch_spin(3 * duration, stream);
    }
};

struct JitteredPair : support::SimulatedPair {
    JitteredPair() : SimulatedPair{JitteredHarness::config()} {}
};

}  // namespace

TEST_CASE("SimulatedDevice is a PeerDevice whatever the durations") {
    residency::conformance::peer_conformance<JitteredPair>();
}
TEST_CASE("SimulatedDevice is a PeerDevice in captures whatever the durations") {
    residency::conformance::peer_capture_conformance<JitteredPair>();
}
TEST_CASE("SimulatedDevice is a Device whatever the durations") {
    residency::conformance::device_conformance<JitteredHarness>();
}
TEST_CASE("SimulatedDevice is a CapturingDevice whatever the durations") {
    residency::conformance::capture_conformance<JitteredHarness>();
}
TEST_CASE("SimulatedDevice is a VirtualMemoryDevice whatever the durations") {
    residency::conformance::virtual_memory_conformance<JitteredHarness>();
}
TEST_CASE("SimulatedDevice is a FlagDevice whatever the durations") {
    residency::conformance::flag_conformance<JitteredHarness>();
}

}  // namespace conformance_jitter_test
