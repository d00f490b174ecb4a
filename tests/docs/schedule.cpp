// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/integrate.md quotes of compute times in a schedule.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "residency/model/schedule_file.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"
#include "tests/support/temporary_folder.hpp"

namespace docs_schedule {

using namespace residency;
using docs::Model;
using Weights = Planned<SimulatedDevice>;

TEST_CASE("docs/integrate.md: compute times that are declared") {
    Model model;
    const Catalog& catalog = model.catalog;

    using namespace std::chrono_literals;
    ScheduleBuilder steps{catalog};
    steps.step({"layers.0", "layers.1"}, 40us, "attention");  // its kernels take 40 µs on the device, without copies
    steps.step({"layers.2"}, 20us);                           // the name is for logs and timelines
    for (std::uint32_t i = 3; i < catalog.weights().size(); ++i) { steps.step({WeightId{i}}, 20us); }
    const Schedule schedule = steps.build();

    // The same for a schedule that is there already: one time for each step. nullopt: not known, to be measured.
    std::vector<std::optional<std::chrono::nanoseconds>> times(schedule.size(), 20us);
    times[0] = std::nullopt;
    const Schedule other = schedule.with_compute(times);

    CHECK(schedule[0].compute == 40us);
    CHECK(schedule[0].name == "attention");
    CHECK_FALSE(other[0].compute);
    const Weights weights{model.gpu, catalog, {.budget = Budget::parse("50%"), .schedule = schedule, .learn = false}};
    CHECK(weights.plan().compute_seconds() == doctest::Approx(160e-6));
}

TEST_CASE("docs/integrate.md: compute times that were measured, for the next run") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path("model.schedule");
    Model model;
    const Catalog& catalog = model.catalog;
    {
        Weights weights{model.gpu, catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
        for (int i = 0; i < 10; ++i) {
            auto pass = weights.begin(model.stream);
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.acquire(step);
                model.launch(step.weights.front(), lease.data(step.weights.front()));
            }
            pass.end();
            unwrap(model.gpu.synchronize(model.stream));  // a token is read
        }

        // After ten passes or so: the schedule in force has the times that were measured.
        if (weights.statistics().learning.state == LearningState::done) { save_file(weights.schedule(), path); }
    }

    // The next run of the program plans with them from the first pass on.
    const Schedule measured = load_schedule_file(path, catalog);

    CHECK(std::ranges::all_of(measured, [](const auto& step) { return step.compute.has_value(); }));
    CHECK(model.is_right());
}

}  // namespace docs_schedule
