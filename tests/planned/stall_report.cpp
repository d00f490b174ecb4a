// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a report of stalls says to change, and that the change does what it says.
#include "residency/core/measure/stall_report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/measure/report_text.hpp"
#include "residency/plan/advice.hpp"
#include "tests/planned/support.hpp"

namespace stall_report_test {

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

/// What a report calls a step without a name that reads one weight.
template <class Which>
std::string step_with_weight(const Which& weights, std::uint32_t step) {
    const auto weight = weights.schedule()[step].weights.front();
    return "step " + std::to_string(step) + " (" + std::string{weights.catalog().weight(weight).name} + ")";
}

}  // namespace

TEST_SUITE_BEGIN("planned stall report");

TEST_CASE("a step is called by its number, its name, and the first of its weights") {
    CheckedDevice device;
    const Model model = uniform_model(device, 3, chunk);
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0), weight(1), weight(2)}, 1us, "layer");
    builder.step({weight(1), weight(2)});
    builder.step({weight(2)}, 1us, "head");
    const auto schedule = must(builder.try_build());
    const auto words = [&](std::uint32_t step) {
        return residency::detail::step_in_words(schedule, model.catalog, step);
    };
    const auto name = [&](std::uint32_t i) { return std::string{model.catalog.weight(weight(i)).name}; };
    CHECK(words(0) == "step 0 (layer; " + name(0) + " and 2 others)");
    CHECK(words(1) == "step 1 (" + name(1) + " and 1 other)");
    CHECK(words(2) == "step 2 (head; " + name(2) + ")");
}

TEST_CASE("divergences come before the stalls that follow from them") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 24, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, model.catalog, timed(8 * chunk, model, kernel)));
        passes_of(weights, model, stream);
        CHECK(must(residency::try_report_stalls(weights)).divergences.empty());
        for (int i = 0; i < 3; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t k = 24; k-- > 0;) {
                auto lease = must(pass.try_acquire(weights.schedule()[k]));
                verify(device, model, lease, weight(k), stream, kernel);
            }
            must(pass.try_end());
        }
        must(weights.try_drain());
        const StallReport report = must(residency::try_report_stalls(weights));
        const auto divergences = weights.statistics().last_pass.divergences;
        REQUIRE(divergences > 0);
        REQUIRE_FALSE(report.advice.empty());
        CHECK(report.lines().front() == report.divergences);
        CHECK(report.text().find(std::to_string(divergences) + " lease") == 0);
        CHECK(report.divergences_first);
        CHECK(report.off_plan.find("it came out of the order of the schedule") != std::string::npos);
        CHECK(report.divergences.find("Options::record") != std::string::npos);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("the report says which times are assumed or still measured, why, and what to do") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 24, chunk);
    const Stream stream = must(device.create_stream());
    {
        const auto make_timed = [&](bool learn) {
            auto with = options(12 * chunk, in_order(model));
            with.time_stalls = true;
            with.learn = learn;
            with.policies.leases_at_once = 2;
            with.policies.link = link_of(slow_link().link);
            return must(Weights::try_create(device, model.catalog, std::move(with)));
        };
        const auto times = [](const Weights& weights) {
            const StallReport report = must(residency::try_report_stalls(weights));
            const auto lines = report.lines();
            CHECK((report.times.empty() || (report.times_first ? lines.front() : lines.back()) == report.times));
            return report.times;
        };
        auto assumed = make_timed(false);
        passes_of(assumed, model, stream);
        CHECK(times(assumed).find("times of 24 of 24 steps are assumed from their bytes: set Options::learn") == 0);

        auto learning = make_timed(true);
        pass_of(learning, model, stream);
        must(learning.try_drain());
        CHECK(times(learning).find("they are being measured, 24 so far; let more passes go by") != std::string::npos);
        for (int i = 0; i < 6; ++i) { pass_of(learning, model, stream); }
        CHECK(times(learning).find("the passes that are measured are not complete") != std::string::npos);
        CHECK(must(residency::try_report_stalls(learning)).times_first);
        for (int i = 0; i < 5; ++i) {
            must(learning.try_drain());
            pass_of(learning, model, stream);
        }
        must(learning.try_drain());
        CHECK(times(learning).empty());

        auto overlapping = make_timed(true);
        for (int i = 0; i < 12; ++i) {
            auto pass = must(overlapping.try_begin(stream));
            Weights::Lease lease;
            for (const auto& step : overlapping.schedule()) {
                lease = must(pass.try_acquire(step));
                verify(device, model, lease, step.weights.front(), stream, kernel);
            }
            lease.end();
            must(pass.try_end());
            must(overlapping.try_drain());
        }
        CHECK(times(overlapping) ==
              "times of 24 of 24 steps are assumed from their bytes: 24 are not learned, since leases overlap: end "
              "each before the next is acquired");
        CHECK(overlapping.statistics().learning.state == residency::LearningState::gave_up);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("a pool that leaves memory unused says so, with the budget at which everything stays") {
    using compositions::OnDemand;
    auto config = slow_link();
    config.pool_granularity = 8 * chunk;
    CheckedDevice device{config};
    const Model model = uniform_model(device, 6, 5 * chunk);  // a segment of the pool each
    const Stream stream = must(device.create_stream());
    {
        OnDemand::Options with;
        with.budget = Budget::parse("70%");
        with.schedule = in_order(model);
        with.time_stalls = true;
        auto weights = must(OnDemand::try_create(device, model.catalog, std::move(with)));
        passes_of(weights, model, stream);
        const StallReport report = must(residency::try_report_stalls(weights));
        REQUIRE_FALSE(report.advice.empty());
        CHECK(report.times.empty());
        CHECK(report.text().find("192.0 KiB for weights of 120.0 KiB: the pool may leave so much unused") !=
              std::string::npos);
        must(weights.try_set_budget(Budget::parse("100%")));
        CHECK(weights.budget().bytes == 6 * 8 * chunk);
        CHECK(weights.budget().text.find("the weights have 122,880 bytes (120 KiB)") != std::string::npos);
        passes_of(weights, model, stream);
        CHECK(weights.statistics().held_bytes == 6 * 8 * chunk);  // no byte of it is too much
        CHECK_FALSE(weights.statistics().streaming);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

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
        CHECK(first.text.find(step_with_weight(weights, first.worst_step)) != std::string::npos);
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
        // 24 steps of 0.6 ms each, where the pass takes less.
        REQUIRE(weights.statistics().regret());
        CHECK(*weights.statistics().regret() < 0);
        CHECK(report.too_long.find("declared times are too long: the plan counts with 14.400 ms of steps") == 0);
        CHECK(report.text().find(report.too_long) != std::string::npos);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("a lease that is held over the pass: the report names it, and what it costs, and nothing else first") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 24, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto with = timed(8 * chunk, model, kernel);
        with.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        for (int i = 0; i < 6; ++i) {
            auto pass = must(weights.try_begin(stream));
            auto held = must(pass.try_acquire(weight(0)));
            for (std::uint32_t k = 1; k < 24; k += 2) {
                for (const std::uint32_t at : {(std::min)(k + 1, 23U), k}) {  // two of a layer, in the other order
                    auto lease = must(pass.try_acquire(weight(at)));
                    verify(device, model, lease, weight(at), stream, kernel);
                }
            }
            held.end();
            must(pass.try_end());
            must(weights.try_drain());
        }
        const auto statistics = weights.statistics();
        REQUIRE(statistics.last_pass.demand_misses > 0);
        REQUIRE(statistics.last_pass.divergences > 0);
        CHECK(statistics.held_lease.storage == residency::StorageId{0});
        CHECK(statistics.held_lease.step == 0);
        CHECK(statistics.held_lease.until == 23);
        const StallReport report = must(residency::try_report_stalls(weights));
        CHECK(report.lines().front() == report.off_plan);
        CAPTURE(report.off_plan);
        CHECK(report.off_plan.find("; " + std::to_string(statistics.last_pass.demand_misses) + " demand miss") !=
              std::string::npos);
        CHECK(report.off_plan.find("end each lease after its last kernel; the lease of " +
                                   model.catalog.describe(residency::StorageId{0}) +
                                   " (step 0) was open until step 23; if it is read that long, declare it "
                                   "(ScheduleBuilder::live_until, 23)") != std::string::npos);
        CHECK_FALSE(report.divergences_first);
        CHECK(report.text().find("Options::record") == std::string::npos);  // it would make the pass slower
        CHECK(report.text().find("Options::learn") == std::string::npos);   // it is on
        CHECK(report.text().find("more budget") == std::string::npos);
        REQUIRE_FALSE(report.advice.empty());
        for (const auto& advice : report.advice) { CHECK_FALSE(advice.text.empty()); }
        passes_of(weights, model, stream);  // one lease at a time
        CHECK(weights.statistics().held_lease.storage == residency::no_storage);
        CHECK(must(residency::try_report_stalls(weights)).off_plan.empty());
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("divergences that cost nothing come near the end") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 24, chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, model.catalog, timed(16 * chunk, model, kernel)));
        std::vector<bool> streams(24, false);
        const auto& plan = weights.plan();
        for (const auto& copy : plan.copies()) {
            for (std::uint32_t s = 0; s < 24; ++s) {
                const auto begin = plan.storage_offset(s), end = begin + plan.storage_bytes(s);
                if (begin < copy.image_end && copy.image_begin < end) { streams[s] = true; }
            }
        }
        std::uint32_t first = 0;  // of two in a row that stay
        while (first < 23 && (streams[first] || streams[first + 1])) { ++first; }
        REQUIRE(first < 23);
        std::vector<std::uint32_t> order;
        for (std::uint32_t k = 0; k < 24; ++k) { order.push_back(k); }
        std::swap(order[first], order[first + 1]);
        for (int i = 0; i < 6; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const std::uint32_t k : order) {
                auto lease = must(pass.try_acquire(weight(k)));
                verify(device, model, lease, weight(k), stream, kernel);
            }
            must(pass.try_end());
        }
        must(weights.try_drain());
        const auto last = weights.statistics().last_pass;
        REQUIRE(last.divergences > 0);
        REQUIRE(last.demand_misses == 0);
        REQUIRE(last.fetched_bytes <= weights.plan().bytes_per_pass());
        const StallReport report = must(residency::try_report_stalls(weights));
        CHECK(report.off_plan.empty());
        CHECK(report.divergences.find("they cost nothing measurable") != std::string::npos);
        REQUIRE(report.lines().size() >= 2);
        CHECK(report.lines()[(std::max)(report.advice.size(), std::size_t{1})] == report.divergences);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("no cause with a measured time is left out, whatever can be said of it") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, chunk);
    const auto schedule = in_order(model);
    residency::core::StallFacts facts;
    facts.schedule = &schedule;
    facts.catalog = &model.catalog;
    facts.statistics.stalls.passes = 1;
    for (std::size_t i = 0; i < residency::stall_causes; ++i) {
        facts.statistics.stalls.last_pass.by_cause[i].time = std::chrono::milliseconds{1 + i};  // no number
    }
    const StallReport report = must(residency::core::report_stalls(facts));
    REQUIRE(report.advice.size() == residency::stall_causes);
    for (const auto& advice : report.advice) {
        CHECK(report.text().find(std::string{residency::to_string(advice.cause)} + ": ") != std::string::npos);
    }
}

TEST_CASE("weights that stream from memory which is not pinned are told, where the transport copies straight from it") {
    CheckedDevice device;
    residency::CatalogBuilder builder;
    const std::vector<std::byte> bytes(4 * chunk);
    const auto host = residency::HostBytes::borrow(bytes, residency::HostMemory::pageable);
    for (std::uint32_t i = 0; i < 4; ++i) {
        builder.add("w" + std::to_string(i), residency::dtype::u8, {chunk}, residency::HostSource{host, i * chunk});
    }
    const Model model{must(builder.try_build())};
    const Stream stream = must(device.create_stream());
    const auto told = [&](std::uint64_t budget) {
        auto weights = must(Weights::try_create(device, model.catalog, timed(budget, model, kernel)));
        passes_of(weights, model, stream);
        return must(residency::try_report_stalls(weights));
    };
    const StallReport streams = told(2 * chunk);
    CHECK(streams.pageable.starts_with("16,384 bytes (16 KiB) lie in host memory that is not pinned"));
    CHECK(streams.text().find(streams.pageable) != std::string::npos);
    CHECK(told(4 * chunk).pageable.empty());  // nothing streams
    residency::core::StallFacts staged;
    const auto schedule = in_order(model);
    staged.schedule = &schedule;
    staged.catalog = &model.catalog;
    staged.statistics.streaming = true;
    CHECK(must(residency::core::report_stalls(staged)).pageable.empty());
    must(device.destroy_stream(stream));
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

}  // namespace stall_report_test
