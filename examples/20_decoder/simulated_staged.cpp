// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "staged.hpp"

#include "residency/simulation/simulated_device.hpp"

STAGED_PARTS(, residency::SimulatedDevice);
