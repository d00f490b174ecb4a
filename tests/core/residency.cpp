// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/residency.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "residency/evict/lru.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/lookahead.hpp"
#include "residency/prefetch/none.hpp"
#include "tests/support/streaming.hpp"

using namespace streaming;
using residency::Budget;
using residency::ErrorKind;
using residency::Placement;
using residency::Schedule;
using residency::WeightId;

namespace {

using OnDemand =
    residency::Residency<residency::evict::Lru, residency::prefetch::None, residency::pool::StreamOrdered<Device>>;
using Ahead = residency::Residency<residency::evict::Scheduled, residency::prefetch::Lookahead<2>,
                                   residency::pool::Slab<Device>>;

template <class Weights>
Weights make(Device& device, const Model& model, std::uint64_t budget, Schedule schedule = {}) {
    typename Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = std::move(schedule);
    return must(Weights::try_create(device, model.catalog, std::move(options)));
}

}  // namespace

TEST_SUITE_BEGIN("core residency");

TEST_CASE_TEMPLATE("C8 C13 C14: passes through a small budget give every byte, in order and inside the budget", Weights,
                   OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 8192);
    const Stream stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    const std::uint64_t budget = std::uint64_t{8192} * 4 + 4096;
    {
        auto weights = make<Weights>(device, model, budget, in_order(model));
        for (int i = 0; i < 4; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(*model.verified == 4U * 12 * 8192);
        CHECK(*model.wrong == 0);
        const auto statistics = weights.statistics();
        CHECK(statistics.streaming);
        CHECK(statistics.total.passes == 4);
        CHECK(statistics.total.evictions > 0);
        CHECK(statistics.held_bytes <= budget);
        CHECK(before - must(device.memory()).free_bytes <= budget);
        CHECK(device.peak_used_bytes() <= budget);
    }
    CHECK(must(device.memory()).free_bytes == before);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();
