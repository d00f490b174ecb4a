// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "tests/conformance/device.hpp"
#include "tests/support/simulated_harness.hpp"

TEST_CASE("SimulatedDevice is a Device") { conformance::device_conformance<support::SimulatedHarness>(); }
TEST_CASE("SimulatedDevice is a CapturingDevice") { conformance::capture_conformance<support::SimulatedHarness>(); }
TEST_CASE("SimulatedDevice is a VirtualMemoryDevice") {
    conformance::virtual_memory_conformance<support::SimulatedHarness>();
}
TEST_CASE("SimulatedDevice is a FlagDevice") { conformance::flag_conformance<support::SimulatedHarness>(); }
