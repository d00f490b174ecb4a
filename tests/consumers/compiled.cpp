// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A program that links residency::compiled: a preset and the simulated device, whose code is there.
#include <cstdio>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

#if RESIDENCY_HEADER_ONLY
#error "what links residency::compiled is compiled with RESIDENCY_HEADER_ONLY=0"
#endif

int main() {
    using namespace residency;
    SimulatedDevice device;
    CatalogBuilder builder;
    builder.add("weight", dtype::u8, {1024});
    const auto refused = Planned<SimulatedDevice>::try_create(device, builder.build(), {.budget = Budget::bytes(1)});
    if (refused || refused.error().kind() != ErrorKind::budget) { return 1; }
    std::printf("consumer of residency::compiled works\n");
}
