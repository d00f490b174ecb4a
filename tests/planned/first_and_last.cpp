// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A storage that the last step reads and the first one of the next pass: it leaves between them, and is held across the end of a pass.
// Every kernel, eager or replayed, compares every byte under the checker.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/planned/support.hpp"
#include "tests/support/early_end.hpp"

namespace first_and_last_test {

using namespace planned;
using residency::Budget;
using residency::testing::copied_of;

namespace {

constexpr std::uint64_t table = 16;  // chunks of storage 0; the other nine have six

Model tied_model(Device& device) {
    std::vector<Spec> specs(10, Spec{6 * chunk});
    specs[0].bytes = table * chunk;
    return make_model(device, specs);
}
/// Storage 0 is read by the first step and by the last of eleven.
Schedule tied_schedule(const Model& model) {
    Steps steps;
    for (std::uint32_t i = 0; i < 11; ++i) { steps.push_back({i % 10}); }
    return schedule_of(model, steps);
}

}  // namespace

TEST_SUITE_BEGIN("planned first and last");

TEST_CASE("read by the last step and the first: right in every pass, copied once a pass, and no floor of its own") {
    CheckedDevice device;
    const Model model = tied_model(device);
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t chunks : {0U, 16U, 17U, 20U, 32U, 50U, 70U}) {
        CAPTURE(chunks);
        const std::uint64_t used = used_bytes(device);
        auto weights = make(device, model, chunks * chunk, tied_schedule(model));
        CHECK(weights.statistics().floor_bytes == table * chunk);
        const std::uint64_t before = *model.verified;  // the passes of other budgets are complete
        run_pass(weights, model, stream);
        must(weights.try_drain());
        CHECK(*model.verified - before == (2 * table + 9 * 6) * chunk);
        expect_inside_budget(device, weights, used);
        CHECK(weights.statistics().total.demand_misses == 0);
        expect_back_on_plan(weights, model, stream);
        CHECK(copied_of(weights.plan(), 0) <= table * chunk);
        if (chunks == 0) { CHECK(copied_of(weights.plan(), 0) > 0); }
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "read by the last step and the first: as a graph, between eager passes, after early ends and changes of the "
    "budget") {
    CheckedDevice device;
    const Model model = tied_model(device);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 0, tied_schedule(model));
        for (const std::uint64_t chunks : {16U, 40U, 18U, 80U, 24U, 16U}) {
            CAPTURE(chunks);
            must(weights.try_set_budget(Budget::bytes(chunks * chunk)));
            run_pass(weights, model, stream);
            static_cast<void>(pass_of(weights, model, stream, 4));
            {
                auto graph = must(weights.try_capture(stream, plain(device, model, weights, stream)));
                for (int i = 0; i < 3; ++i) {
                    must(weights.try_drain());
                    const std::uint64_t before = *model.verified;
                    must(graph.try_launch(stream));
                    must(graph.try_launch(stream));
                    must(weights.try_drain());
                    CHECK(*model.verified - before == 2 * (2 * table + 9 * 6) * chunk);
                    static_cast<void>(pass_of(weights, model, stream, i == 1 ? 11U : 3U));
                }
            }
            for (const std::uint32_t steps : {1U, 10U, 11U, 5U, 11U}) {
                static_cast<void>(pass_of(weights, model, stream, steps));
            }
            expect_back_on_plan(weights, model, stream);
            CHECK(weights.statistics().held_bytes <= chunks * chunk);
        }
        CHECK(weights.statistics().total.divergences == 0);
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace first_and_last_test
