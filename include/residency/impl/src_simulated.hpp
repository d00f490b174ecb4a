// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A part of src.hpp: the simulated device, and the presets on it.
#if !defined(RESIDENCY_HEADER_ONLY) || RESIDENCY_HEADER_ONLY
#error "residency/impl/src.hpp is for programs that are compiled with RESIDENCY_HEADER_ONLY=0, in every file"
#endif

#include "residency/impl/presets.hpp"
#include "residency/simulation/impl/address_space.ipp"
#include "residency/simulation/impl/simulated_device.ipp"
#include "residency/simulation/impl/simulated_device_memory.ipp"
#include "residency/simulation/impl/simulated_device_work.ipp"
#include "residency/simulation/simulated_device.hpp"

RESIDENCY_DETAIL_PRESETS(, residency::SimulatedDevice);
