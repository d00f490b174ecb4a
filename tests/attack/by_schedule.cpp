// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/evict/known_order.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

using namespace residency;

void attack::add_by_schedule(std::vector<Kind>& kinds) {
    using Slab = pool::Slab<Device>;
    using Ordered = pool::StreamOrdered<Device>;
    kinds.push_back(online<Residency<evict::Scheduled, prefetch::Scheduled, Ordered>>("Scheduled, StreamOrdered"));
    kinds.push_back(online<Residency<evict::Belady, prefetch::Scheduled, Slab>>("Belady, Slab"));
    kinds.push_back(online<Residency<evict::StaticSplit, prefetch::Lookahead<2>, Slab>>("StaticSplit, Slab"));
}
