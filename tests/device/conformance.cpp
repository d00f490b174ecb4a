// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "residency/conformance/device.hpp"
#include "tests/support/simulated_harness.hpp"

TEST_CASE("SimulatedDevice is a Device") { residency::conformance::device_conformance<support::SimulatedHarness>(); }
TEST_CASE("SimulatedDevice is a CapturingDevice") {
    residency::conformance::capture_conformance<support::SimulatedHarness>();
}
TEST_CASE("SimulatedDevice is a VirtualMemoryDevice") {
    residency::conformance::virtual_memory_conformance<support::SimulatedHarness>();
}
TEST_CASE("SimulatedDevice is a PeerDevice") { residency::conformance::peer_conformance<support::SimulatedPair>(); }
TEST_CASE("SimulatedDevice is a PeerDevice in captures") {
    residency::conformance::peer_capture_conformance<support::SimulatedPair>();
}
TEST_CASE("SimulatedDevice is a FlagDevice") { residency::conformance::flag_conformance<support::SimulatedHarness>(); }
