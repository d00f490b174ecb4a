// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Steps measured on the device, and the plan made of them.
#include "residency/core/measure/step_clock.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace learn_test {

using namespace planned;

namespace {

Weights make_learning(Device& device, const Model& model, std::uint64_t budget, Schedule schedule) {
    auto learning = options(budget, std::move(schedule));
    learning.learn = learning.strict = true;
    return must(Weights::try_create(device, model.catalog, std::move(learning)));
}
/// A pass over the steps of a schedule that need not be the one in force.
void run_steps(Weights& weights, Device& device, const Model& model, const Schedule& schedule, Stream stream) {
    auto pass = must(weights.try_begin(stream));
    for (const auto& step : schedule) { run_step(device, model, pass, step, stream); }
    must(pass.try_end());
    must(weights.try_drain());
}

void spin(Device& device, Stream stream, std::chrono::nanoseconds time) {
    must(device.launch(stream, {.name = "spin", .duration = time, .reads = {}, .writes = {}, .body = {}}));
}

/// Says longer times than copies take, as where others use the link.
class SlowAtFirst : public residency::SimulatedDevice {
public:
    residency::Result<std::chrono::nanoseconds> elapsed(Event from, Event to) {
        auto time = residency::SimulatedDevice::elapsed(from, to);
        if (time && is_slow) { *time = *time * 4 / 3; }
        return time;
    }
    bool is_slow = true;
};

/// A pass whose steps take 10 ms each; the host does not wait.
void enqueue_pass(Weights& weights, Device& device, Stream stream) {
    auto pass = must(weights.try_begin(stream));
    for (const auto& step : weights.schedule()) {
        auto lease = must(pass.try_acquire(step));
        spin(device, stream, std::chrono::milliseconds{10});
    }
    must(pass.try_end());
}

}  // namespace

TEST_SUITE_BEGIN("planned learning");

TEST_CASE("a threshold that is no share is refused") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, chunk);
    for (const double threshold : {-0.1, std::nan(""), 5.0}) {
        auto with = options(chunk, in_order(model));
        with.learn_threshold = threshold;
        const auto refused = Weights::try_create(device, model.catalog, with);
        CHECK(refused.error().kind() == residency::ErrorKind::invalid_argument);
        CHECK(refused.error().message().starts_with("Options::learn_threshold"));
    }
}

TEST_CASE("the steps of the declared schedule are the same steps after others were measured") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    const auto declared = schedule_of(model, {{0}, {0}, {1}, {2}, {2, 3}, {4}, {5}}, residency::Cycle::cyclic,
                                      std::chrono::milliseconds{900});
    {
        auto weights = make_learning(device, model, 6 * chunk, declared);
        for (int pass = 0; pass < 6; ++pass) { run_steps(weights, device, model, declared, stream); }
        CHECK(weights.schedule()[0].compute < declared[0].compute);
        CHECK(weights.statistics().total.divergences == 0);
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("steps that are requested ahead are not measured, and passes go on") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make_learning(device, model, 6 * chunk, in_order(model));
        for (int i = 0; i < 24; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                auto ticket = must(pass.try_request(step));
                auto lease = must(ticket.try_lease());
                for (const auto id : step.weights) { verify(device, model, lease, id, stream); }
            }
            must(pass.try_end());
            must(weights.try_drain());
        }
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("another schedule before the measured passes are over is measured instead") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    Steps longer;
    for (std::uint32_t i = 0; i < 600; ++i) { longer.push_back({i / 100}); }
    for (const Steps& next : {longer, Steps{{0}, {1, 2}}}) {
        const auto schedule = schedule_of(model, next, residency::Cycle::cyclic, std::chrono::milliseconds{900});
        auto weights = make_learning(device, model, 5 * chunk, in_order(model));
        run_pass(weights, model, stream);
        must(weights.try_set_schedule(schedule));
        for (int pass = 0; pass < 4; ++pass) { run_steps(weights, device, model, schedule, stream); }
        CHECK(weights.schedule().size() == next.size());
        CHECK(weights.schedule()[0].compute < schedule[0].compute);
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what a pass does between its steps counts to the step that follows, and after the last one to that") {
    using std::chrono::milliseconds;
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make_learning(device, model, 6 * chunk, in_order(model));
        for (int i = 0; i < 4; ++i) {
            auto pass = must(weights.try_begin(stream));
            spin(device, stream, milliseconds{3});
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                spin(device, stream, milliseconds{10});
                if (step.position == 2) {
                    lease.end();
                    spin(device, stream, milliseconds{20});
                }
            }
            spin(device, stream, milliseconds{40});
            must(pass.try_end());
            must(device.synchronize(stream));
        }
        const auto& steps = weights.schedule();
        const auto is_about = [&](std::uint32_t step, int time) {
            const auto compute = steps[step].compute.value();
            CAPTURE(step);
            CAPTURE(compute.count());
            CHECK(compute >= milliseconds{time});
            CHECK(compute < milliseconds{time + 2});
        };
        is_about(0, 13);
        is_about(1, 10);
        is_about(3, 30);
        is_about(5, 50);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C29: leases that overlap are not measured: no time counts twice, and the bound stays below the pass") {
    using std::chrono::milliseconds;
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 2 * chunk);
    const Stream stream = must(device.create_stream()), side = must(device.create_stream());
    enum class Kind : std::uint8_t { chained, with_weights_inside, two_streams, from_tickets };
    for (const Kind kind : {Kind::chained, Kind::with_weights_inside, Kind::two_streams, Kind::from_tickets}) {
        CAPTURE(static_cast<int>(kind));
        auto chosen = options(12 * chunk, in_order(model));
        chosen.learn = true;
        chosen.policies.leases_at_once = 2;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
        const auto passes = [&](int count, bool overlap) {
            for (int i = 0; i < count; ++i) {
                auto pass = must(weights.try_begin(stream));
                Weights::Lease held;
                for (const auto& step : weights.schedule()) {
                    const bool is_odd = step.position % 2 == 1;
                    if (overlap && kind == Kind::from_tickets) {
                        auto ticket = must(pass.try_request(step));
                        auto next = must(ticket.try_lease());
                        held = std::move(next);
                    } else {
                        held = must(
                            pass.try_acquire(step, overlap && kind == Kind::two_streams && is_odd ? side : stream));
                    }
                    spin(device, stream, milliseconds{10});
                    if (overlap && kind == Kind::with_weights_inside) {
                        auto inner = must(pass.try_acquire({step.weights.front()}));
                    }
                    if (!overlap || kind == Kind::with_weights_inside) { held.end(); }
                }
                held.end();
                must(pass.try_end());
                must(weights.try_drain());
            }
        };
        passes(5, true);
        auto statistics = weights.statistics();
        CHECK(statistics.learning.state == residency::LearningState::measuring);
        CHECK(statistics.learning.timed_steps == 0);
        CHECK(statistics.learning.overlapping_steps == (kind == Kind::from_tickets ? 0 : 12));
        CHECK(statistics.learning.replans == 0);
        CHECK(weights.problem().compute_seconds.front() < 5e-3);
        REQUIRE(statistics.regret());
        CHECK(*statistics.regret() >= 0);
        const bool says =
            describe(statistics.learning).find("times of 12 steps are not learned: their leases overlap") !=
            std::string::npos;
        CHECK(says == (kind != Kind::from_tickets));

        passes(5, false);  // it is not too late
        statistics = weights.statistics();
        CHECK(statistics.learning.state == residency::LearningState::done);
        CHECK(statistics.learning.timed_steps == 12);
        CHECK(statistics.learning.overlapping_steps == 0);
        CHECK(*statistics.regret() > -1e-4);  // what was measured, and events have a resolution
        CHECK(weights.schedule()[3].compute.value() >= milliseconds{10});
        CHECK(weights.schedule()[3].compute.value() < milliseconds{12});
    }
    for (const Stream each : {stream, side}) { must(device.destroy_stream(each)); }
}

TEST_CASE("where the host never waits three passes are measured, and read when they are complete") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make_learning(device, model, 6 * chunk, in_order(model));
        const auto enqueue = [&](int passes) {
            for (int i = 0; i < passes; ++i) { enqueue_pass(weights, device, stream); }
        };
        enqueue(5);
        auto learning = weights.statistics().learning;
        CHECK(learning.state == residency::LearningState::measuring);
        CHECK(learning.timed_steps == 0);
        CHECK(learning.passes_ahead == 2);
        CHECK(describe(learning).find("the passes that are measured are not complete, 2 passes were enqueued since") !=
              std::string::npos);
        must(weights.try_drain());
        learning = weights.statistics().learning;
        CHECK(learning.timed_steps == 6);
        CHECK(learning.passes_ahead == 0);
        for (int i = 0; i < 3; ++i) {  // one wait every few passes is enough
            enqueue(4);
            must(weights.try_drain());
        }
        enqueue(1);
        CHECK(weights.statistics().learning.state == residency::LearningState::done);
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a host that never waits learns what the steps take, after a few passes of the device") {
    using std::chrono::milliseconds;
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make_learning(device, model, 6 * chunk, in_order(model));
        int passes = 0;
        for (; passes < 40 && weights.statistics().learning.state == residency::LearningState::measuring; ++passes) {
            enqueue_pass(weights, device, stream);
            device.spend(milliseconds{20});  // the host enqueues a pass in a third of the time that it runs
        }
        CHECK(weights.statistics().learning.state == residency::LearningState::done);
        CHECK(weights.statistics().learning.timed_steps == 6);
        CHECK(weights.schedule()[3].compute.value() >= milliseconds{10});
        CHECK(passes < 16);
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a link that was busy while it was measured is planned again at the rate that copies reach") {
    SlowAtFirst device;
    constexpr std::uint64_t large = std::uint64_t{4} << 20;
    using Slow = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                      residency::pool::Virtual<SlowAtFirst>, residency::transport::Pinned<SlowAtFirst>>;
    const Model model = make_model(device, std::vector<Spec>(8, Spec{large}));
    const Stream stream = must(device.create_stream());
    {
        Slow::Options options;
        options.budget = residency::Budget::bytes(4 * large);
        options.schedule = in_order(model);
        auto weights = must(Slow::try_create(device, model.catalog, std::move(options)));
        const double measured = weights.problem().link.bytes_per_second;
        const auto bound = weights.statistics().bound;
        device.is_slow = false;
        for (int i = 0; i < 4; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) { auto lease = must(pass.try_acquire(step)); }
            must(pass.try_end());
            must(weights.try_drain());
        }
        CHECK(weights.problem().link.bytes_per_second > 1.2 * measured);
        CHECK(weights.statistics().bound < bound);
        CHECK(weights.statistics().learning.replans > 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("leases that are open while the pass is planned again, and views of the steps before, stay as they are") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 2 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make_learning(device, model, 12 * chunk, in_order(model));
        const auto steps = weights.schedule().steps();
        std::optional<Weights::Lease> held;
        for (int i = 0; i < 8; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : steps) {
                auto lease = must(pass.try_acquire(step));
                verify(device, model, lease, step.weights[0], stream);
                if (step.position == 11) { held = std::move(lease); }
            }
            must(pass.try_end());
            must(device.synchronize(stream));
            CHECK(held->data(weight(11)) != nullptr);
            verify(device, model, *held, weight(11), stream);
        }
        CHECK(weights.statistics().learning.replans == 1);
        CHECK(steps[3].weights[0] == weight(3));
        held.reset();
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a measured lease that ends in a capture is not waited for") {
    using std::chrono::milliseconds;
    CheckedDevice device;
    const Model model = uniform_model(device, 3, 2 * chunk);
    const Stream stream = must(device.create_stream()), captured = must(device.create_stream());
    {
        auto weights = make_learning(device, model, 4 * chunk, in_order(model));
        std::optional<Weights::Lease> held;
        for (int i = 0; i < 6; ++i) {
            auto pass = must(weights.try_begin(stream));
            spin(device, stream, milliseconds{40});
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                spin(device, stream, milliseconds{10});
                if (i == 0 && step.position == 2) { held = std::move(lease); }
            }
            must(pass.try_end());
            must(device.synchronize(stream));
            if (i > 0) { continue; }
            // With everything resident, the caller may capture a pass.
            must(weights.try_set_budget(residency::Budget::bytes(100 * chunk)));
            run_pass(weights, model, stream);
            must(weights.try_drain());
            must(device.begin_capture(captured));
            auto recorded = must(weights.try_begin(captured));
            held.reset();
            must(recorded.try_end());
            must(device.destroy_graph(must(device.end_capture(captured))));
            must(weights.try_set_budget(residency::Budget::bytes(4 * chunk)));
        }
        CHECK(weights.schedule()[0].compute >= milliseconds{50});
    }
    for (const Stream each : {stream, captured}) { must(device.destroy_stream(each)); }
}

TEST_CASE("a pass that leaves steps out, and waits that are nobody's, do not count") {
    using std::chrono::milliseconds;
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 256 * chunk);
    const Stream stream = must(device.create_stream());
    enum class Odd : std::uint8_t { empty_pass, by_weights, idle_between, weights_first };
    for (const Odd odd : {Odd::empty_pass, Odd::by_weights, Odd::idle_between, Odd::weights_first}) {
        CAPTURE(static_cast<int>(odd));
        auto made = options(2 * 256 * chunk, in_order(model));
        made.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(made)));
        for (int i = 0; i < 6; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                if (i == 1 && odd == Odd::empty_pass) { break; }
                if (i == 1 && odd == Odd::idle_between && step.position == 2) { device.spend(milliseconds{500}); }
                if (odd == Odd::weights_first || (i == 1 && odd == Odd::by_weights)) {
                    auto lease = must(pass.try_acquire(step.weights));
                    spin(device, stream, milliseconds{1});
                    if (odd == Odd::by_weights) { continue; }
                }
                auto lease = must(pass.try_acquire(step));
                spin(device, stream, milliseconds{1});
            }
            must(pass.try_end());
            must(weights.try_drain());
            if (i == 0) { device.spend(milliseconds{5000}); }
        }
        for (const auto& step : weights.schedule()) {
            REQUIRE(step.compute.has_value());
            // What is leased twice in a row takes both times.
            const auto time = milliseconds{odd == Odd::weights_first ? 2 : 1};
            CHECK(*step.compute >= time);
            CHECK(*step.compute < time + std::chrono::microseconds{500});
        }
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a step that two streams lease at once is not measured, and the passes go on") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, chunk);
    const Stream first = must(device.create_stream()), second = must(device.create_stream());
    {
        auto chosen = options(4 * chunk, in_order(model));
        chosen.learn = true;
        auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
        for (int p = 0; p < 10; ++p) {
            auto pass = must(weights.try_begin(first));
            for (const auto& step : weights.schedule()) {
                auto one = must(pass.try_acquire(step));
                verify(device, model, one, weight(step.position), first);
                auto other = must(pass.try_acquire(step, second));
                verify(device, model, other, weight(step.position), second, std::chrono::microseconds{50});
                one.end();
            }
            must(pass.try_end());
            must(weights.try_drain());
        }
        CHECK_FALSE(weights.failure().has_value());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(first));
    must(device.destroy_stream(second));
}

TEST_SUITE_END();

}  // namespace learn_test
