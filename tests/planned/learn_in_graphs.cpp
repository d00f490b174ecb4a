// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Steps measured in the launches of a graph, where the host takes no time for them, and the plan made of them.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/engine/captured_pass.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "residency/core/measure/step_clock.hpp"
#include "residency/timeline/timeline_recorder.hpp"
#include "tests/planned/support.hpp"

namespace learn_in_graphs_test {

using namespace planned;
using residency::Budget;
using residency::ErrorKind;
using residency::LearningReason;
using residency::LearningState;
using residency::Status;
using std::chrono::milliseconds;

namespace {

constexpr std::uint32_t wanted = residency::core::StepClock::times_wanted;

Status spin(Device& device, Stream stream, std::chrono::nanoseconds time) {
    return device.launch(stream, {.name = "spin", .duration = time, .reads = {}, .writes = {}, .body = {}});
}

/// Steps that the caller declares, and that runs of `time` a step make longer or shorter.
struct Learning {
    explicit Learning(std::uint64_t chunks, bool learn = true, std::uint32_t steps = 6)
        : model{uniform_model(device, steps, 2 * chunk)} {
        auto learning = options(chunks * chunk, declared);
        learning.learn = learn;
        learning.strict = true;
        weights.emplace(must(Weights::try_create(device, model.catalog, std::move(learning))));
    }
    ~Learning() {
        weights.reset();
        must(device.destroy_stream(stream));
    }
    Learning(const Learning&) = delete;
    Learning& operator=(const Learning&) = delete;

    /// A body whose steps take a time on the device; step 2 three times that.
    [[nodiscard]] auto body(std::chrono::nanoseconds time) {
        return [this, time](auto& pass) {
            for (const auto& step : weights->schedule()) {
                auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) { verify(device, model, lease, id, stream); }
                must(spin(device, stream, time * (step.position == 2 ? 3 : 1)));
            }
        };
    }
    void run(std::chrono::nanoseconds time) {
        auto pass = must(weights->try_begin(stream));
        body(time)(pass);
        must(pass.try_end());
        must(weights->try_drain());
    }
    /// Of a step, as planned.
    void expect_time(std::uint32_t step, std::chrono::nanoseconds time) {
        CAPTURE(step);
        const auto compute = weights->schedule()[step].compute.value();
        CHECK(compute >= time);
        CHECK(compute < time + milliseconds{1});
    }
    void expect_times(std::chrono::nanoseconds time) {
        for (std::uint32_t step = 0; step < weights->schedule().size(); ++step) {
            expect_time(step, time * (step == 2 ? 3 : 1));
        }
    }
    void expect_right() {
        must(device.synchronize());
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights->failure().has_value());
        CHECK(weights->statistics().held_bytes <= weights->statistics().budget_bytes);
    }

    CheckedDevice device;
    const Model model;
    const Schedule declared = must(in_order(model).try_with_compute(
        std::vector<std::optional<std::chrono::nanoseconds>>(model.catalog.weights().size(), milliseconds{40})));
    const Stream stream = must(device.create_stream());
    std::optional<Weights> weights;
};

}  // namespace

TEST_SUITE_BEGIN("planned learning in graphs");

TEST_CASE("C29: a graph is planned with what its steps take in one, without what the host takes for them") {
    Learning learning{6};
    Weights& weights = *learning.weights;
    for (int i = 0; i < 6; ++i) { learning.run(milliseconds{20}); }
    learning.expect_times(milliseconds{20});
    const std::uint64_t replans = weights.statistics().learning.replans;

    auto timed = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{4})));
    CHECK(weights.statistics().learning.state == LearningState::measuring);
    std::uint32_t launches = 0;
    for (; timed.is_learning(); ++launches) { must(timed.try_launch(learning.stream)); }
    CHECK(launches == wanted + 1);  // the host waits for each in the next
    CHECK_FALSE(timed.is_stale());
    must(timed.try_launch(learning.stream));
    CHECK(weights.statistics().learning.timed_steps == 6);
    learning.expect_times(milliseconds{20});  // until another pass begins, or is captured

    auto graph = must(weights.try_capture(learning.stream, learning.body(milliseconds{4})));
    learning.expect_times(milliseconds{4});
    CHECK(weights.statistics().learning.replans == replans + 1);
    CHECK(weights.statistics().learning.reason == LearningReason::captured);
    CHECK(timed.is_stale());
    CHECK_FALSE(timed.is_learning());
    const Status refused = timed.try_launch(learning.stream);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::stale);
    const auto verified = *learning.model.verified;
    for (int i = 0; i < 3; ++i) { must(graph.try_launch(learning.stream)); }
    learning.run(milliseconds{4});
    must(graph.try_launch(learning.stream));
    learning.expect_right();
    CHECK(*learning.model.verified - verified == 5 * 6 * 2 * chunk);
    CHECK_FALSE(graph.is_stale());
}

TEST_CASE("where a graph says what is planned already, nothing is planned again, and the graph before stays valid") {
    Learning learning{6};
    Weights& weights = *learning.weights;
    for (int i = 0; i < 6; ++i) { learning.run(milliseconds{20}); }
    auto before = must(weights.try_capture(learning.stream, learning.body(milliseconds{20})));
    auto timed = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{20})));
    const auto plans = weights.statistics().total.plans_made;
    while (timed.is_learning()) { must(timed.try_launch(learning.stream)); }
    auto graph = must(weights.try_capture(learning.stream, learning.body(milliseconds{20})));
    CHECK(weights.statistics().total.plans_made == plans);
    CHECK(timed.is_stale());
    CHECK_FALSE(before.is_stale());
    for (auto* each : {&before, &graph}) { must(each->try_launch(learning.stream)); }
    learning.expect_right();
}

TEST_CASE("an eager pass, or another budget, ends what a graph measures") {
    for (const bool by_budget : {false, true}) {
        CAPTURE(by_budget);
        Learning learning{6};
        Weights& weights = *learning.weights;
        auto timed = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{4})));
        must(timed.try_launch(learning.stream));
        if (by_budget) { must(weights.try_set_budget(Budget::bytes(8 * chunk))); }
        CHECK(timed.is_stale() == by_budget);
        // Plans with its one launch; after a change of the budget, eager passes measure the rest.
        learning.run(milliseconds{4});
        CHECK(timed.is_stale());
        for (int i = 0; i < 3; ++i) { learning.run(milliseconds{4}); }
        learning.expect_times(milliseconds{4});
        learning.expect_right();
    }
}

TEST_CASE("a schedule that is left while a graph of it is timed keeps what was measured") {
    Learning learning{6};
    Weights& weights = *learning.weights;
    auto timed = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{4})));
    while (timed.is_learning()) { must(timed.try_launch(learning.stream)); }
    must(timed.try_launch(learning.stream));  // is not complete when the schedule changes
    must(weights.try_set_schedule(schedule_of(learning.model, {{5}, {0, 1}, {2}})));
    CHECK(timed.is_stale());
    learning.run(milliseconds{1});
    must(weights.try_set_schedule(learning.declared));
    learning.run(milliseconds{4});
    learning.run(milliseconds{4});
    learning.expect_times(milliseconds{4});
    learning.expect_right();
}

TEST_CASE("graphs with a clock: where nothing is learned, or never launched, or given up, or two of them") {
    for (const int why : {0, 1, 2}) {  // nothing streams; no learning is wanted; somebody observes
        CAPTURE(why);
        Learning learning{why == 0 ? 100U : 6U, why != 1};
        residency::TimelineRecorder<Device> recorder{learning.device, {}};
        if (why == 2) { must(learning.weights->try_observe(&recorder)); }
        {
            auto graph = must(learning.weights->try_capture_timed(learning.stream, learning.body(milliseconds{4})));
            CHECK_FALSE(graph.is_learning());
            for (int i = 0; i < 3; ++i) { must(graph.try_launch(learning.stream)); }
            learning.run(milliseconds{4});
            CHECK_FALSE(graph.is_stale());
        }
        learning.expect_time(0, milliseconds{40});
        learning.expect_right();
        must(learning.weights->try_observe(nullptr));
    }
    Learning learning{6};
    Weights& weights = *learning.weights;
    {
        auto unused = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{9})));
        CHECK(unused.is_learning());
    }
    auto first = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{8})));
    must(first.try_launch(learning.stream));
    learning.expect_time(0, milliseconds{40});
    auto second = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{4})));
    learning.expect_times(milliseconds{8});
    CHECK(first.is_stale());
    while (second.is_learning()) { must(second.try_launch(learning.stream)); }
    learning.run(milliseconds{4});
    learning.expect_times(milliseconds{4});
    learning.expect_right();
}

TEST_CASE("a body that fails leaves the learning of eager passes as it was") {
    Learning learning{6};
    Weights& weights = *learning.weights;
    learning.run(milliseconds{20});
    const auto timed_steps = weights.statistics().learning.timed_steps;
    const auto failed = weights.try_capture_timed(learning.stream, [&](auto& pass) -> Status {
        auto lease = must(pass.try_acquire(weights.schedule()[0]));
        return residency::Error{ErrorKind::cancelled, "enough"};
    });
    REQUIRE_FALSE(failed);
    CHECK(weights.statistics().learning.state == LearningState::measuring);
    CHECK(weights.statistics().learning.timed_steps == timed_steps);
    for (int i = 0; i < 6; ++i) { learning.run(milliseconds{20}); }
    learning.expect_times(milliseconds{20});
    learning.expect_right();
}

TEST_CASE("a body that fails resumes no learning that ended for another graph: that one stays valid") {
    Learning learning{6};
    Weights& weights = *learning.weights;
    learning.run(milliseconds{20});
    auto graph = must(weights.try_capture(learning.stream, learning.body(milliseconds{20})));
    const auto before = weights.statistics().learning;
    CHECK(before.reason == LearningReason::captured);
    REQUIRE_FALSE(weights.try_capture_timed(
        learning.stream, [](auto&) -> Status { return residency::Error{ErrorKind::cancelled, "enough"}; }));
    CHECK(weights.statistics().learning == before);
    for (int i = 0; i < 4; ++i) { learning.run(milliseconds{4}); }
    CHECK_FALSE(graph.is_stale());
    must(graph.try_launch(learning.stream));
    learning.expect_right();
}

TEST_CASE("a graph with a clock that nothing streams in forgets no times") {
    Learning learning{6};
    Weights& weights = *learning.weights;
    for (int i = 0; i < 6; ++i) { learning.run(milliseconds{20}); }
    must(weights.try_set_budget(Budget::bytes(100 * chunk)));
    const auto learned = weights.statistics().learning;
    CHECK(learned.state == LearningState::done);
    CHECK(learned.timed_steps == 6);
    auto graph = must(weights.try_capture_timed(learning.stream, learning.body(milliseconds{4})));
    CHECK_FALSE(graph.is_learning());
    CHECK(weights.statistics().learning == learned);
    must(graph.try_launch(learning.stream));
    learning.expect_right();
}

TEST_CASE("a launch times all steps, however many") {
    constexpr std::uint32_t steps = 4200;  // four events each are more than eager passes have
    Learning learning{steps, true, steps};
    auto timed = must(learning.weights->try_capture_timed(learning.stream, learning.body(milliseconds{4})));
    while (timed.is_learning()) { must(timed.try_launch(learning.stream)); }
    CHECK(learning.weights->statistics().learning.timed_steps == steps);
    learning.run(milliseconds{4});
    learning.expect_times(milliseconds{4});
    learning.expect_right();
}

namespace {

/// In a graph, an event comes some time after what is before it, as on a GPU.
class SlowEvents : public CheckedDevice {
public:
    static constexpr milliseconds delay{2};

    [[nodiscard]] Status record_in_graph(Event event, Stream stream) {
        if (auto spun = spin(*this, stream, delay); !spun) { return spun; }
        return Device::record_in_graph(event, stream);
    }
};

}  // namespace

TEST_CASE("C29: what the events of a clock take in a graph does not count") {
    SlowEvents device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        using Planned = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                             residency::pool::Virtual<SlowEvents>>;
        Planned::Options options;
        options.budget = Budget::bytes(6 * chunk);
        options.schedule = in_order(model);
        options.policies.pool.chunk_bytes = chunk;
        auto weights = must(Planned::try_create(device, model.catalog, std::move(options)));
        const auto body = [&](auto& pass) {
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) { verify(device, model, lease, id, stream); }
                // Kernels, too, come some time after an event.
                if (step.position != 4) { must(spin(device, stream, milliseconds{10} + SlowEvents::delay)); }
                if (step.position != 2) { continue; }
                lease.end();
                must(spin(device, stream, milliseconds{20} + SlowEvents::delay));
            }
        };
        auto timed = must(weights.try_capture_timed(stream, body));
        while (timed.is_learning()) { must(timed.try_launch(stream)); }
        run_pass(weights, model, stream);
        CHECK_FALSE(weights.failure().has_value());
        for (std::uint32_t step = 0; step < 6; ++step) {
            CAPTURE(step);
            const auto compute = weights.schedule()[step].compute.value();
            const milliseconds time{step == 4 ? 0 : step == 3 ? 30 : 10};
            CHECK(compute >= time);
            CHECK(compute < time + milliseconds{1});
        }
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("whichever call fails while a graph is timed: passes go on, and what is planned is not wrong") {
    std::uint64_t failures = 0, graphs = 0;
    bool done = false;
    for (std::uint64_t nth = 1; !done; nth += 3) {
        CAPTURE(nth);
        Learning learning{6};
        Weights& weights = *learning.weights;
        learning.run(milliseconds{4});
        learning.device.leaks_expected = true;  // an event that cannot be given back
        const auto calls = total_calls(learning.device);
        learning.device.fail(Device::CallKind::any, nth);
        auto timed = weights.try_capture_timed(learning.stream, [&](auto& pass) -> Status {
            for (const auto& step : weights.schedule()) {
                auto lease = pass.try_acquire(step);
                if (!lease) { return lease.error(); }
                if (auto spun = spin(learning.device, learning.stream, milliseconds{4}); !spun) { return spun; }
            }
            return {};
        });
        if (timed) {
            ++graphs;
            for (int i = 0; i < 4 && !timed->is_stale(); ++i) {
                failures += timed->try_launch(learning.stream) ? 0U : 1U;
            }
        } else {
            ++failures;
        }
        auto pass = weights.try_begin(learning.stream);  // which plans again
        const bool has_ended = pass && pass->try_end();
        failures += has_ended ? 0U : 1U;
        done = total_calls(learning.device) - calls < nth;
        learning.device.clear_failures();
        for (int i = 0; i < 3; ++i) { learning.run(milliseconds{4}); }
        must(learning.device.synchronize());
        CHECK(*learning.model.wrong == 0);
        CHECK(weights.schedule()[0].compute < milliseconds{41});
    }
    CHECK(failures > 20);
    CHECK(graphs > 10);
}

TEST_SUITE_END();

}  // namespace learn_in_graphs_test
