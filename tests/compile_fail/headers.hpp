// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What most cases include: compiled once for all of them.
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/simulation/simulated_device.hpp"
