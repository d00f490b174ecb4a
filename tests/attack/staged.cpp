// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/staged.hpp"

#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

using namespace residency;

void attack::add_staged(std::vector<Kind>& kinds) {
    using Slab = pool::Slab<Device>;
    using Ordered = pool::StreamOrdered<Device>;
    using Staged = transport::Staged<Device>;
    kinds.push_back(
        online<Residency<evict::Lru, prefetch::Lookahead<2>, Slab, Staged>>("Lru, Slab, staged", Source::file));
    kinds.push_back(online<Residency<evict::Scheduled, prefetch::Hinted, Ordered, Staged>>("Scheduled, Hinted, staged",
                                                                                           Source::file));
}
