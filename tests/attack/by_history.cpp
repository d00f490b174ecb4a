// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

using namespace residency;

void attack::add_by_history(std::vector<Kind>& kinds) {
    using Slab = pool::Slab<Device>;
    using Ordered = pool::StreamOrdered<Device>;
    kinds.push_back(online<Residency<evict::Lru, prefetch::Lookahead<4>, Ordered>>("Lru, Lookahead, StreamOrdered"));
    kinds.push_back(online<Residency<evict::Fifo, prefetch::Lookahead<1>, Slab>>("Fifo, Lookahead, Slab"));
    kinds.push_back(online<Residency<evict::Sieve, prefetch::None, Slab>>("Sieve, Slab"));
    kinds.push_back(online<Residency<evict::S3Fifo, prefetch::Hinted, Ordered>>("S3Fifo, Hinted, StreamOrdered"));
}
