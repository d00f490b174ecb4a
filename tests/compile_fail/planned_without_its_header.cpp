// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: a planned composition needs residency/planned.hpp
// lines: 20
#undef RESIDENCY_HEADER_ONLY  // header-only: a device of the compiled library brings its presets
#ifndef SHOULD_FAIL
#include "residency/planned.hpp"
#endif
#include "residency/residency.hpp"
#include "residency/simulation/simulated_device.hpp"

int main() {
    residency::SimulatedDevice device;
    return residency::Planned<residency::SimulatedDevice>::try_create(device, {}) ? 0 : 1;
}
