// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/evict/queues.hpp"
#include "residency/packed_experts.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

using namespace residency;

void attack::add_packed_online(std::vector<Kind>& kinds) {
    using Ordered = pool::PackedStorages<pool::StreamOrdered<Device>>;
    kinds.push_back(online<PackedExperts<Device>>("packed experts", Source::packed));
    kinds.push_back(
        online<Residency<evict::Lru, prefetch::Lookahead<2>, Ordered>>("Lru, StreamOrdered, packed", Source::packed));
}
