// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: is_planned
#include "residency/core/residency.hpp"
#include "residency/evict/lru.hpp"
#include "residency/evict/planned.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/none.hpp"
#include "residency/prefetch/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

using Device = residency::SimulatedDevice;
#ifdef SHOULD_FAIL
using Weights = residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::Slab<Device>>;
#else
using Weights =
    residency::Residency<residency::evict::Planned, residency::prefetch::Planned, residency::pool::Virtual<Device>>;
#endif
bool capture(Weights& weights, Device::Stream stream) {
    return weights.try_capture(stream, [](Weights::Pass&) {}).has_value();
}
