// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/early_end.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "tests/planned/support.hpp"

namespace early_end_test {

using namespace planned;

TEST_SUITE_BEGIN("planned early end");

TEST_CASE("a pass that ends early pays for nothing behind its end, planned") {
    for (const residency::Cycle cycle : {residency::Cycle::cyclic, residency::Cycle::one_shot}) {
        for (const std::uint64_t percent : {10U, 25U, 50U, 75U, 90U}) {
            CAPTURE(percent);
            CAPTURE(static_cast<int>(cycle));
            CheckedDevice device;
            const Model model = uniform_model(device, 30, 8 * chunk);
            check_early_end<Weights>(options(30 * 8 * chunk * percent / 100, in_order(model, cycle)), model, device, 0);
        }
    }
}

TEST_CASE("graphs are whole passes, wherever eager ones end") {
    CheckedDevice device;
    const Model model = uniform_model(device, 30, 8 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 120 * chunk, in_order(model));
        for (int i = 0; i < 5; ++i) { static_cast<void>(pass_of(weights, model, stream, 10)); }
        auto graph = must(weights.try_capture(stream, [&](Weights::Pass& pass) {
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        }));
        for (int i = 0; i < 3; ++i) {
            must(graph.try_launch(stream));
            must(graph.try_launch(stream));
            static_cast<void>(pass_of(weights, model, stream, 10));
        }
        must(weights.try_drain());
        const auto before = *model.verified;
        must(graph.try_launch(stream));
        must(weights.try_drain());
        CHECK(*model.verified == before + 30 * 8 * chunk);
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace early_end_test
