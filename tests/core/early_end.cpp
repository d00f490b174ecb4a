// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/early_end.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "residency/core/engine/order_learner.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/core/compositions.hpp"

namespace early_end_test {

using namespace streaming;
using residency::core::PassEndPredictor;

TEST_SUITE_BEGIN("core early end");

namespace {

using Scheduled =
    residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, compositions::StreamOrdered>;
using Cached =
    residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<4>, compositions::StreamOrdered>;

}  // namespace

TEST_CASE("the end of a pass is where the last three ended, at the furthest, and at first the end of the schedule") {
    PassEndPredictor ends;
    ends.start(30);
    CHECK(ends.expected() == 30);
    ends.note(10);
    ends.note(0);  // a pass that read nothing
    ends.note(12);
    CHECK(ends.expected() == 30);
    ends.note(10);
    CHECK(ends.expected() == 12);
    ends.note(10);
    ends.note(10);
    CHECK(ends.expected() == 10);
    ends.note(30);
    CHECK(ends.expected() == 30);
    ends.note(5);
    ends.note(5);
    CHECK(ends.expected() == 30);
    ends.note(5);
    CHECK(ends.expected() == 5);
    ends.start(7);
    CHECK(ends.expected() == 7);
}

TEST_CASE_TEMPLATE("a pass that ends early pays for nothing behind its end, online", Weights, OnDemand, Ahead,
                   Scheduled, Cached) {
    for (const residency::Cycle cycle : {residency::Cycle::cyclic, residency::Cycle::one_shot}) {
        for (const std::uint64_t percent : {10U, 25U, 50U, 75U, 90U}) {
            CAPTURE(percent);
            CAPTURE(static_cast<int>(cycle));
            CheckedDevice device;
            const Model model = uniform_model(device, 30, 16384);
            check_early_end<Weights>(options<Weights>(30 * 16384 * percent / 100, in_order(model, cycle)), model,
                                     device, 15);
        }
    }
}

TEST_SUITE_END();

}  // namespace early_end_test
