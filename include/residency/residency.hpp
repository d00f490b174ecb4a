// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What most programs need, as far as the standard library is enough. Not in here:
// residency/device/cuda.hpp (the CUDA runtime), residency/simulation/simulated_device.hpp (a device without a GPU, by POSIX),
// residency/format/… (model files), residency/host/loading.hpp and residency/transport/staged.hpp (weights from files, by POSIX),
// residency/planned.hpp (the preset Planned, with the planner), residency/packed.hpp and residency/packed_experts.hpp (packed weights),
// residency/broker/broker.hpp (one total for several models), residency/plan/advice.hpp (what a budget would cost),
// residency/interop/….

#include "residency/budget/budget.hpp"
#include "residency/core/residency.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/fwd.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "residency/transport/pinned.hpp"
#include "residency/version.hpp"
