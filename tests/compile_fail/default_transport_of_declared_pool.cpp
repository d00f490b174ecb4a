// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// expect: static_assert(sizeof(Pool) != 0)
// lines: 20
// Apart from residency::compiled, whose presets define the pools.
#undef RESIDENCY_HEADER_ONLY
#include "residency/fwd.hpp"
#include "residency/simulation/simulated_device.hpp"

using namespace residency;

// A preset can be named where its policies are only declared. Elsewhere the default transport is known once the pool is.
#ifdef SHOULD_FAIL
using Weights = Residency<evict::Lru, prefetch::Scheduled, pool::Slab<SimulatedDevice>>;
#else
using Weights = Planned<SimulatedDevice>;
#endif

void use(Weights& weights);
