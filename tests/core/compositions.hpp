// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "residency/evict/lru.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/lookahead.hpp"
#include "residency/prefetch/none.hpp"
#include "tests/support/streaming.hpp"

namespace streaming {

using OnDemand =
    residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::StreamOrdered<Device>>;
using Ahead =
    residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>, residency::pool::Slab<Device>>;

template <class Weights>
typename Weights::Options options(std::uint64_t budget, residency::Schedule schedule = {}) {
    typename Weights::Options result;
    result.budget = residency::Budget::bytes(budget);
    result.schedule = std::move(schedule);
    return result;
}
template <class Weights>
Weights make(Device& device, const Model& model, std::uint64_t budget, residency::Schedule schedule = {}) {
    return must(Weights::try_create(device, model.catalog, options<Weights>(budget, std::move(schedule))));
}

}  // namespace streaming
