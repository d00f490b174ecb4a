// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Kernels that run many steps in one launch: leases of ranges of steps. Every kernel compares every byte under the checker.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace ranges_test {

using namespace planned;
using residency::Budget;
using residency::ErrorKind;
using residency::StepRange;

namespace {

/// One kernel that reads everything that some steps read.
void run_range(Device& device, const Model& model, Weights& weights, Weights::Pass& pass, StepRange range,
               Stream stream) {
    const auto lease = must(pass.try_acquire(range));
    for (std::uint32_t i = range.first; i < range.last; ++i) {
        for (const auto id : weights.schedule()[i].weights) { verify(device, model, lease, id, stream); }
    }
}
void run_ranges(Device& device, const Model& model, Weights& weights, Stream stream) {
    auto pass = must(weights.try_begin(stream));
    for (const StepRange range : weights.ranges()) { run_range(device, model, weights, pass, range, stream); }
    must(pass.try_end());
}
Model sixteen(Device& device) { return uniform_model(device, 16, 3 * chunk); }

}  // namespace

TEST_SUITE_BEGIN("planned ranges");

TEST_CASE(
    "C28: passes in the ranges of their plan move what the plan says and miss nothing, at every budget, eager and in a "
    "graph") {
    std::mt19937_64 random{34};
    std::uint32_t streaming = 0, joined = 0;
    for (int round = 0; round < 60; ++round) {
        CAPTURE(round);
        CheckedDevice device;
        const auto made = random_model(random);
        const Model model = make_model(device, made.specs);
        const auto cycle = round % 5 == 0 ? residency::Cycle::one_shot : residency::Cycle::cyclic;
        const Schedule schedule = schedule_of(model, made.steps, cycle);
        const Stream stream = must(device.create_stream());
        const auto floor = make(device, model, 0, schedule).statistics().floor_bytes;
        {
            auto weights = make(device, model, floor + random() % 6 * 4 * chunk, schedule);
            const auto ranges = weights.ranges();
            streaming += weights.statistics().streaming ? 1U : 0U;
            joined += ranges.size() < schedule.size() ? 1U : 0U;
            for (int p = 0; p < 3; ++p) { run_ranges(device, model, weights, stream); }
            const auto counters = weights.statistics().last_pass;
            CHECK(counters.acquires == ranges.size());
            CHECK(counters.divergences == 0);
            if (schedule.is_cyclic()) {
                CHECK(counters.demand_misses == 0);
                CHECK(counters.fetched_bytes == bytes_of(weights.plan()));
                auto graph = must(weights.try_capture(stream, [&](Weights::Pass& pass) {
                    for (const StepRange range : weights.ranges()) {
                        run_range(device, model, weights, pass, range, stream);
                    }
                }));
                for (int p = 0; p < 3; ++p) { must(graph.try_launch(stream)); }
                run_ranges(device, model, weights, stream);
                must(graph.try_launch(stream));
                expect_back_on_plan(weights, model, stream);
            }
            must(weights.try_drain());
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
    CHECK(streaming > 15);
    CHECK(joined > 20);
}

TEST_CASE("C28: one range where everything is resident; more for another budget; steps where leases overlap") {
    CheckedDevice device;
    const Model model = sixteen(device);
    const Schedule schedule = in_order(model);
    auto weights = make(device, model, std::uint64_t{1} << 30U, schedule);
    REQUIRE(weights.ranges().size() == 1);
    CHECK(weights.ranges()[0] == StepRange{0, 16});
    must(weights.try_set_budget(Budget::bytes(24 * chunk)));
    CHECK(weights.ranges().size() > 1);
    must(weights.try_set_budget(Budget::percent_of_weights(100)));
    CHECK(weights.ranges().size() == 1);

    auto overlapping = options(24 * chunk, schedule);
    overlapping.policies.leases_at_once = 2;
    auto two = must(Weights::try_create(device, model.catalog, overlapping));
    CHECK(two.ranges().size() == 16);
}

TEST_CASE("C28: the copies of the next range run while one computes: a pass in ranges takes as long as step by step") {
    auto config = small_config();
    config.link.to_device_bytes_per_second /= 512;  // a chunk of 4 KiB takes as long as 2 MiB
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = std::chrono::nanoseconds{0};
    CheckedDevice device{config};
    const Model model = uniform_model(device, 24, 10 * chunk);
    const auto compute = std::chrono::microseconds{250};
    Steps steps;
    for (std::uint32_t i = 0; i < 24; ++i) { steps.push_back({i}); }
    const Schedule schedule = schedule_of(model, steps, residency::Cycle::cyclic, compute);
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t share : {90U, 75U, 50U, 25U}) {
        CAPTURE(share);
        auto with = options(240 * chunk * share / 100, schedule);
        with.policies.link = link_of(config.link);
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        const auto seconds = [&](const auto& one_pass) {
            for (int p = 0; p < 3; ++p) { one_pass(); }
            must(device.synchronize());
            const auto begin = device.host_time();
            for (int p = 0; p < 8; ++p) { one_pass(); }
            must(device.synchronize());
            return std::chrono::duration<double>(device.host_time() - begin).count() / 8;
        };
        const auto launch = [&](Weights::Pass& pass, StepRange range) {
            const auto lease = must(pass.try_acquire(range));
            for (std::uint32_t i = range.first; i < range.last; ++i) {
                verify(device, model, lease, weight(i), stream, compute);
            }
        };
        const double by_steps = seconds([&] {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t i = 0; i < 24; ++i) { launch(pass, {i, i + 1}); }
        });
        const double by_ranges = seconds([&] {
            auto pass = must(weights.try_begin(stream));
            for (const StepRange range : weights.ranges()) { launch(pass, range); }
        });
        CHECK(by_ranges <= by_steps * 1.006);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "C28: a range that does not fit is refused with the numbers, names what would fit, and leaves the pass as it was") {
    CheckedDevice device;
    const Model model = sixteen(device);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 24 * chunk, in_order(model));
        run_pass(weights, model, stream);
        auto pass = must(weights.try_begin(stream));
        const auto before = weights.statistics().total;
        const auto refused = pass.try_acquire(4, 16);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        const std::string& message = refused.error().message();
        CAPTURE(message);
        CHECK(message.find("steps [4, 16): they need 147,456 bytes (144 KiB) together") != std::string::npos);
        CHECK(message.find("the budget holds 98,304 bytes (96 KiB)") != std::string::npos);
        CHECK(message.find("steps [4, 12) would fit") != std::string::npos);
        CHECK(message.find("Residency::ranges()") != std::string::npos);
        const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->asked_bytes == 36 * chunk);
        CHECK(numbers->step == 12);
        CHECK(weights.statistics().total.acquires == before.acquires);
        CHECK(weights.statistics().total.evictions == before.evictions);

        // What the error names does fit, at the cost of copies beside the plan; then not with that lease open.
        {
            const auto lease = must(pass.try_acquire(4, 12));
            for (std::uint32_t i = 4; i < 12; ++i) { verify(device, model, lease, weight(i), stream); }
            const auto beside = pass.try_acquire(12, 14);
            REQUIRE_FALSE(beside);
            CHECK(beside.error().message().find("no range from there would fit: end leases first") !=
                  std::string::npos);
            // What is asked for counts once and whole, leased or not.
            const auto overlapping = pass.try_acquire(10, 14);
            REQUIRE_FALSE(overlapping);
            const auto* both = overlapping.error().detail<residency::BudgetNumbers>();
            REQUIRE(both != nullptr);
            CHECK(both->asked_bytes == 12 * chunk);
            CHECK(both->held_bytes == 18 * chunk);
            CHECK(both->budget_bytes == 24 * chunk);
        }
        must(pass.try_end());
        expect_back_on_plan(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C1: ranges that the schedule does not have") {
    CheckedDevice device;
    const Model model = sixteen(device);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 24 * chunk, in_order(model));
        auto pass = must(weights.try_begin(stream));
        for (const StepRange range : {StepRange{0, 17}, StepRange{3, 3}, StepRange{4, 2}, StepRange{16, 17}}) {
            const auto refused = pass.try_acquire(range);
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::invalid_argument);
            CHECK(refused.error().message().find("of a schedule of 16") != std::string::npos);
        }
        CHECK(weights.statistics().total.acquires == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "a range that the plan does not bring together cannot be captured, and the error says which steps do come "
    "together") {
    CheckedDevice device;
    const Model model = sixteen(device);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 24 * chunk, in_order(model));
        const auto refused = weights.try_capture(stream, [&](Weights::Pass& pass) -> residency::Status {
            auto lease = pass.try_acquire(0, 16);
            return lease ? residency::Status{} : residency::Status{lease.error()};
        });
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::unsupported);
        CAPTURE(refused.error().message());
        CHECK(refused.error().message().find("steps [0, 16): they do not come together") != std::string::npos);
        CHECK(refused.error().message().find("Residency::ranges()") != std::string::npos);
        expect_back_on_plan(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("ranges, steps, weights and tickets of one pass in any mixture read right bytes") {
    std::mt19937_64 random{3};
    for (int round = 0; round < 40; ++round) {
        CAPTURE(round);
        CheckedDevice device;
        const Model model = sixteen(device);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make(device, model, (9 + random() % 40) * chunk, in_order(model));
            for (int p = 0; p < 6; ++p) {
                auto pass = must(weights.try_begin(stream));
                for (std::uint32_t i = 0; i < 16;) {
                    const auto last = static_cast<std::uint32_t>(std::min<std::uint64_t>(16, i + 1 + random() % 4));
                    if (random() % 3 == 0) {
                        auto lease = must(pass.try_acquire(weights.schedule()[i]));
                        verify(device, model, lease, weight(i), stream);
                        ++i;
                        continue;
                    }
                    auto ticket = random() % 2 == 0 ? pass.try_request(StepRange{i, last})
                                                    : residency::Result<Weights::Ticket>{Weights::Ticket{}};
                    auto lease = !ticket                   ? residency::Result<Weights::Lease>{ticket.error()}
                                 : ticket->operator bool() ? ticket->try_lease()
                                                           : pass.try_acquire(i, last);
                    if (!lease) {
                        CHECK(lease.error().kind() == ErrorKind::budget);
                        lease = pass.try_acquire(i, i + 1);
                        REQUIRE(lease);
                        verify(device, model, *lease, weight(i), stream);
                        ++i;
                        continue;
                    }
                    for (; i < last; ++i) { verify(device, model, *lease, weight(i), stream); }
                }
                must(pass.try_end());
            }
            expect_back_on_plan(weights, model, stream);
        }
        CHECK(*model.wrong == 0);
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("C17: a planned refusal has the same numbers whatever is on the device already") {
    CheckedDevice device;
    const Model model = sixteen(device);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 24 * chunk, in_order(model));
        std::vector<WeightId> ten;
        for (std::uint32_t i = 0; i < 10; ++i) { ten.push_back(weight(i)); }
        run_pass(weights, model, stream);
        for (const std::uint32_t there : {0U, 1U, 3U}) {
            for (const bool stays_leased : {false, true}) {
                CAPTURE(there);
                CAPTURE(stays_leased);
                auto pass = must(weights.try_begin(stream));
                auto part = must(pass.try_acquire(std::span{ten}.first(there)));
                auto other = must(pass.try_acquire(weight(15)));
                if (!stays_leased) { part.end(); }
                const auto refused = pass.try_acquire(ten);
                REQUIRE_FALSE(refused);
                const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
                REQUIRE(numbers != nullptr);
                CHECK(numbers->asked_bytes == 30 * chunk);
                CHECK(numbers->held_bytes == 3 * chunk);
                CHECK(numbers->budget_bytes == 24 * chunk);
                CHECK(numbers->floor_bytes == weights.statistics().floor_bytes);
                other.end();
                part.end();
                must(pass.try_end());
            }
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("online compositions lease ranges too: they count as their steps, and an error names the range") {
    CheckedDevice device;
    const Model model = sixteen(device);
    const Schedule schedule = in_order(model);
    const Stream stream = must(device.create_stream());
    {
        compositions::Ahead::Options with;
        with.budget = Budget::bytes(24 * chunk);
        with.schedule = schedule;
        with.record = true;
        with.strict = true;
        auto weights = must(compositions::Ahead::try_create(device, model.catalog, std::move(with)));
        {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t i = 0; i < 16; i += 4) {
                auto lease = must(pass.try_acquire(i, i + 4));
                for (std::uint32_t k = i; k < i + 4; ++k) { verify(device, model, lease, weight(k), stream); }
            }
            must(pass.try_end());
        }
        CHECK(weights.statistics().last_pass.divergences == 0);
        CHECK(must(weights.try_recorded_schedule()) == schedule);
        auto pass = must(weights.try_begin(stream));
        const auto early = pass.try_acquire(4, 8);
        REQUIRE_FALSE(early);
        CHECK(early.error().kind() == ErrorKind::divergence);
        const auto too_long = pass.try_acquire(0, 16);
        REQUIRE_FALSE(too_long);
        CHECK(too_long.error().kind() == ErrorKind::budget);
        CAPTURE(too_long.error().message());
        CHECK(too_long.error().message().find("steps [0, 16)") != std::string::npos);
        must(pass.try_end());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace ranges_test
