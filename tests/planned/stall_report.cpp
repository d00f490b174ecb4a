// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a report of stalls says to change, and that the change does what it says.
#include "residency/core/stall_report.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "residency/plan/advice.hpp"
#include "tests/planned/support.hpp"

using namespace planned;
using namespace std::chrono_literals;
using residency::Budget;
using residency::StallCause;
using residency::StallReport;

namespace {

constexpr auto kernel = 60us;

Device::Config slow_link() {
    auto config = small_config();
    config.link.to_device_bytes_per_second = chunk / 100e-6;
    return config;
}
template <class Which>
void pass_of(Which& weights, const Model& model, Stream stream) {
    auto pass = must(weights.try_begin(stream));
    for (const auto& step : weights.schedule()) {
        auto lease = must(pass.try_acquire(step));
        for (const auto id : step.weights) { verify(weights.device(), model, lease, id, stream, kernel); }
    }
    must(pass.try_end());
}
template <class Which>
void passes_of(Which& weights, const Model& model, Stream stream) {
    for (int i = 0; i < 5; ++i) { pass_of(weights, model, stream); }
    must(weights.try_drain());
}
Weights::Options timed(std::uint64_t budget, const Model& model, std::chrono::nanoseconds declared) {
    Steps steps;
    for (std::uint32_t i = 0; i < model.catalog.storages().size(); ++i) { steps.push_back({i}); }
    auto result = options(budget, schedule_of(model, steps, residency::Cycle::cyclic, declared));
    result.time_stalls = true;
    result.policies.link = link_of(slow_link().link);
    return result;
}

}  // namespace

TEST_SUITE_BEGIN("planned stall report");

TEST_CASE("the budget that a report names removes the stalls, and what the bound names does not") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 24, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, model.catalog, timed(8 * chunk, model, kernel)));
        CHECK(must(residency::try_report_stalls(weights)).text().find("no pass was timed") == 0);
        passes_of(weights, model, stream);
        const auto before = weights.statistics();
        const StallReport report = must(residency::try_report_stalls(weights));
        REQUIRE_FALSE(report.advice.empty());
        const auto& first = report.advice.front();
        CHECK((first.cause == StallCause::link || first.cause == StallCause::room));
        CHECK(first.stalls == before.stalls.last_pass[first.cause]);
        CHECK(first.worst_step < 24);
        REQUIRE(first.more_bytes);
        CHECK(first.text.find("more budget removes it") != std::string::npos);
        CHECK(report.text().find(first.text) == 0);

        const auto kernels = 24 * kernel;
        CHECK(before.stalls.last_pass.sum().time > kernels / 10);
        must(weights.try_set_budget(Budget::bytes(before.budget_bytes + *first.more_bytes)));
        passes_of(weights, model, stream);
        const auto after = weights.statistics();
        CHECK(after.streaming);  // it is less than everything
        CHECK(after.stalls.last_pass.sum().time < kernels / 50);
        REQUIRE(after.pass_time);
        CHECK(*after.pass_time < kernels + kernels / 20);

        const auto needed = must(residency::plan::budget_for(weights.problem(), 24 * 60e-6 * 1.01));
        must(weights.try_set_budget(Budget::bytes(needed.necessary_bytes - 2 * chunk)));
        passes_of(weights, model, stream);
        CHECK(weights.statistics().stalls.last_pass.sum().time > kernels / 100);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("where times were declared wrongly the report says so, and no budget") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 24, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, model.catalog, timed(12 * chunk, model, 10 * kernel)));
        passes_of(weights, model, stream);
        const StallReport report = must(residency::try_report_stalls(weights));
        REQUIRE_FALSE(report.advice.empty());
        CHECK(report.advice.front().cause == StallCause::declared_time);
        CHECK_FALSE(report.advice.front().more_bytes);
        CHECK(report.text().find("Options::learn") != std::string::npos);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("an online composition: capacity misses as they were counted, and the budget at which none is left") {
    using compositions::OnDemand;
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 8, chunk);
    const Stream stream = must(device.create_stream());
    {
        OnDemand::Options with;
        with.budget = Budget::bytes(5 * chunk);
        with.schedule = in_order(model);
        with.time_stalls = true;
        auto weights = must(OnDemand::try_create(device, model.catalog, std::move(with)));
        passes_of(weights, model, stream);
        const StallReport report = must(residency::try_report_stalls(weights));
        REQUIRE(report.advice.size() == 1);
        CHECK(report.advice.front().cause == StallCause::evicted);
        CHECK(report.advice.front().text.find("8 capacity misses") != std::string::npos);
        CHECK(report.advice.front().more_bytes == 3 * chunk);
        must(weights.try_set_budget(Budget::bytes(8 * chunk)));
        passes_of(weights, model, stream);
        CHECK(must(residency::try_report_stalls(weights)).text() ==
              "no step waited for bytes in the last pass that was timed\n");
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_SUITE_END();
