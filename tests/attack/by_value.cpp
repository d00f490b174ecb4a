// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/evict/expected_use.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/attack/kinds.hpp"
#include "tests/attack/subject_of.hpp"

using namespace residency;

void attack::add_by_value(std::vector<Kind>& kinds) {
    using Slab = pool::Slab<Device>;
    using Ordered = pool::StreamOrdered<Device>;
    kinds.push_back(online<Residency<evict::ExpectedUse, prefetch::Hinted, Slab>>("ExpectedUse, Hinted, Slab"));
    kinds.push_back(online<Residency<evict::Gdsf, prefetch::Hinted, Ordered>>("Gdsf, Hinted, StreamOrdered"));
    kinds.push_back(online<Residency<evict::Lfu, prefetch::None, Ordered>>("Lfu, StreamOrdered"));
}
