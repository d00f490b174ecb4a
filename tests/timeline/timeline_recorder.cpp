// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The timeline that a Residency's own events give, beside that of the simulated device.

#include "residency/timeline/timeline_recorder.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/measure/report_text.hpp"
#include "residency/core/measure/stall_report.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/timeline/simulated_timeline.hpp"
#include "tests/support/compositions.hpp"
#include "tests/support/recorded_passes.hpp"
#include "tests/support/streaming.hpp"

namespace timeline_recorder_test {

using namespace residency;
using namespace std::chrono_literals;
using streaming::CheckedDevice;
using streaming::Model;
using streaming::must;
using Gpu = SimulatedDevice;
using Recorder = TimelineRecorder<Gpu>;

namespace {

constexpr std::uint64_t chunk = 4096;

/// Calls take no time of the host, so that kernels begin where their step does.
Gpu::Config instant_calls() {
    auto config = streaming::small_config();
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = 0ns;
    return config;
}

/// Twelve steps of one or two weights, every third with a name.
Schedule steps_of(const Model& model) {
    ScheduleBuilder builder{model.catalog};
    for (std::uint32_t i = 0; i + 1 < 16; i += i % 3 == 0 ? 2 : 1) {
        std::vector<WeightId> weights{WeightId{i}};
        if (i % 3 == 0) { weights.push_back(WeightId{i + 1}); }
        builder.step(std::span<const WeightId>{weights}, 2us,
                     i % 3 == 0 ? "layer " + std::to_string(i) : std::string{});
    }
    return must(builder.try_build());
}

template <class Weights>
typename Weights::Options options(const Model& model, std::uint64_t budget) {
    typename Weights::Options result;
    result.budget = Budget::bytes(budget);
    result.schedule = steps_of(model);
    if constexpr (requires { result.policies.pool.chunk_bytes; }) {
        result.policies.pool.chunk_bytes = chunk;
        result.learn = false;
    }
    return result;
}

/// A kernel that compares, as one of the step that runs.
template <class Weights>
auto kernels(Weights& weights, const Model& model, Gpu::Stream stream) {
    return [&, stream](WeightId id, std::span<const std::byte> bytes) {
        Gpu::Kernel kernel;
        const auto& weight = model.catalog.weight(id);
        kernel.name = weight.name;
        kernel.duration = 2us;
        kernel.reads = {{bytes.data(), bytes.size()}};
        unwrap(weights.device().launch(stream, std::move(kernel)));
    };
}

template <class Weights>
void check_composition(std::uint64_t budget) {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device, {.passes = 4}};
        auto weights = must(Weights::try_create(device, model.catalog, options<Weights>(model, budget)));
        must(weights.try_observe(&recorder));
        const auto copied = recorded::run_passes(weights, stream, 4, kernels(weights, model, stream));
        const PassTimeline timeline = recorder.timeline();
        recorded::check_passes(timeline, model.catalog, weights.schedule(), copied);
        CHECK(copied.back() > 0);
        CHECK_FALSE(timeline.stalls().empty());
        CHECK(recorder.gaps().text().empty());
        CHECK_FALSE(recorder.failure());
        must(weights.try_observe(nullptr));
        recorded::run_passes(weights, stream, 1, kernels(weights, model, stream));
        CHECK(recorder.timeline().passes().size() == 4);
    }
    must(device.destroy_stream(stream));
}

/// The beginning and end of each run of a step.
std::vector<std::pair<PassTimeline::Time, PassTimeline::Time>> runs_of(const PassTimeline& timeline,
                                                                       const Schedule& schedule) {
    std::vector<std::pair<PassTimeline::Time, PassTimeline::Time>> runs;
    std::size_t kernel = 0;
    while (kernel < timeline.kernels().size()) {
        for (const auto& step : schedule) {
            REQUIRE(kernel + step.weights.size() <= timeline.kernels().size());
            runs.emplace_back(timeline.kernels()[kernel].start,
                              timeline.kernels()[kernel + step.weights.size() - 1].end);
            kernel += step.weights.size();
        }
    }
    return runs;
}

}  // namespace

TEST_CASE("passes of planned and of online compositions: steps, copies, stalls and bytes") {
    check_composition<compositions::Planned>(20 * chunk);
    check_composition<compositions::OnDemand>(20 * chunk);
    check_composition<compositions::OnSlab>(20 * chunk);
    check_composition<compositions::Ahead>(20 * chunk);
}

TEST_CASE("waits of the caller's own: the report says how long the device was idle between steps, and after which") {
    using Weights = compositions::Planned;
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, chunk);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device};
        auto weights =
            must(Weights::try_create(device, model.catalog, options<Weights>(model, std::uint64_t{16} * chunk)));
        must(weights.try_observe(&recorder));
        const auto run_pass = [&](bool waits) {
            auto pass = must(weights.try_begin(stream));
            for (const auto& step : weights.schedule()) {
                {
                    const auto lease = must(pass.try_acquire(step));
                    for (const auto id : step.weights) { streaming::verify(device, model, lease, id, stream, 100us); }
                }
                if (!waits) { continue; }
                must(device.synchronize(stream));
                device.spend(step.position == 7 ? 60us : 30us);  // the host does something else
            }
            must(pass.try_end());
            must(weights.try_drain());
        };
        for (int i = 0; i < 3; ++i) { run_pass(false); }
        CHECK(recorder.timeline().idle_in_words().empty());
        CHECK(must(try_report_stalls(weights, recorder.timeline())).idle.empty());
        for (int i = 0; i < 2; ++i) { run_pass(true); }
        const PassTimeline timeline = recorder.timeline();
        const auto report = must(try_report_stalls(weights, timeline));
        const auto steps = static_cast<std::int64_t>(weights.schedule().size());
        CAPTURE(report.idle);
        // Behind the last step there is no other.
        CHECK(report.idle.find("idle between steps: " + residency::detail::in_ms((steps - 1) * 30us + 30us) + " of ") ==
              0);
        CHECK(report.idle.find("the longest 0.060 ms after step 7; the host did not submit in time") !=
              std::string::npos);
        CHECK(report.text().find(report.idle) != std::string::npos);
        CHECK(timeline.table().find("\nidle ") != std::string::npos);
        CHECK(timeline.table(0).find("\nidle ") == std::string::npos);
        must(weights.try_observe(nullptr));
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE("the recorder's timeline is that of the simulated device") {
    for (const bool by_kernel : {false, true}) {
        CAPTURE(by_kernel);
        CheckedDevice device{instant_calls()};
        const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
        const auto stream = must(device.create_stream());
        {
            auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                                  options<compositions::Planned>(model, 20 * chunk)));
            must(weights.try_drain());
            Recorder recorder{device, {.passes = 5}};
            must(weights.try_observe(&recorder));
            SimulatedTimeline simulated;
            simulated.name_weights(model.catalog);
            device.observe([&](const Gpu::ExecutedOperation& operation) { simulated.add(operation); });
            const auto launch = kernels(weights, model, stream);
            recorded::run_passes(weights, stream, 5, [&](WeightId id, std::span<const std::byte> bytes) {
                if (!by_kernel) { return launch(id, bytes); }
                recorder.kernel(model.catalog.weight(id).name, stream, [&] { launch(id, bytes); });
            });
            device.observe({});

            const PassTimeline mine = recorder.timeline();
            const PassTimeline& its = simulated.timeline();
            REQUIRE(its.copies().size() > 20);
            REQUIRE(mine.copies().size() == its.copies().size());
            // Only the zero differs.
            const auto shift = its.copies()[0].start - mine.copies()[0].start;
            for (std::size_t i = 0; i < its.copies().size(); ++i) {
                const auto &a = mine.copies()[i], &b = its.copies()[i];
                REQUIRE(a.pieces.size() == b.pieces.size());
                for (std::size_t k = 0; k < a.pieces.size(); ++k) {
                    CHECK(a.pieces[k].weight == b.pieces[k].weight);
                    CHECK(a.pieces[k].bytes == b.pieces[k].bytes);
                }
                CHECK(a.start + shift == b.start);
                CHECK(a.end + shift == b.end);
            }
            const auto its_runs = runs_of(its, weights.schedule());
            REQUIRE(its_runs.size() == 5 * weights.schedule().size());
            if (by_kernel) {
                REQUIRE(mine.kernels().size() == its.kernels().size());
                for (std::size_t i = 0; i < its.kernels().size(); ++i) {
                    CHECK(mine.kernels()[i].name == its.kernels()[i].name);
                    CHECK(mine.kernels()[i].start + shift == its.kernels()[i].start);
                    CHECK(mine.kernels()[i].end + shift == its.kernels()[i].end);
                }
            } else {
                REQUIRE(mine.kernels().size() == its_runs.size());
                for (std::size_t i = 0; i < its_runs.size(); ++i) {
                    CHECK(mine.kernels()[i].start + shift == its_runs[i].first);
                    CHECK(mine.kernels()[i].end + shift == its_runs[i].second);
                }
            }
            REQUIRE(its.stalls().size() > 5);
            REQUIRE(mine.stalls().size() == its.stalls().size());
            for (std::size_t i = 0; i < its.stalls().size(); ++i) {
                CHECK(mine.stalls()[i].start + shift == its.stalls()[i].start);
                CHECK(mine.stalls()[i].end + shift == its.stalls()[i].end);
                CHECK(mine.stalls()[i].copy == its.stalls()[i].copy);
            }
            must(weights.try_observe(nullptr));
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("captured passes: each launch has its steps and copies, if it was read before the next") {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device, {.passes = 4}};
        auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                              options<compositions::Planned>(model, 20 * chunk)));
        must(weights.try_observe(&recorder));
        const auto launch = kernels(weights, model, stream);
        const auto capture = [&] {
            return must(weights.try_capture(stream, [&](auto& pass) {
                for (const auto& step : weights.schedule()) {
                    const auto lease = must(pass.try_acquire(step));
                    for (const auto id : step.weights) { launch(id, lease.bytes(id)); }
                }
            }));
        };
        auto graph = capture();
        CHECK(recorder.timeline().passes().empty());
        std::vector<std::uint64_t> copied;
        for (int i = 0; i < 4; ++i) {
            must(graph.try_launch(stream));
            must(device.synchronize(stream));
            copied.push_back(weights.statistics().last_pass.fetched_bytes);
        }
        CHECK(copied.back() > 0);
        PassTimeline timeline = recorder.timeline();
        CHECK(recorder.gaps().text().empty());
        // What a graph brings for the next pass is awaited by nobody in it.
        CHECK_FALSE(timeline.stalls().empty());
        REQUIRE(timeline.passes().size() == 4);
        CHECK(timeline.kernels().size() == 4 * weights.schedule().size());
        for (std::size_t i = 0; i < 4; ++i) {
            const auto& pass = timeline.passes()[i];
            CHECK(pass.copied_bytes == copied[i]);
            for (std::uint32_t step = 0; step < weights.schedule().size(); ++step) {
                const auto& ran = timeline.kernels()[i * weights.schedule().size() + step];
                const auto& declared = weights.schedule()[step];
                CHECK(ran.step ==
                      (declared.name.empty() ? "step " + std::to_string(step) : std::string{declared.name}));
                CHECK(pass.start <= ran.start);
                CHECK(ran.start < ran.end);
                CHECK(ran.end <= pass.end);
            }
        }
        // Two in a row without a look between them: of the first only the whole is known.
        must(graph.try_launch(stream));
        must(graph.try_launch(stream));
        must(device.synchronize(stream));
        timeline = recorder.timeline();
        CHECK(recorder.gaps().unseen_steps == 1);
        CHECK(recorder.gaps().text().find("1 launches of graphs without their steps") != std::string::npos);
        CHECK(timeline.passes().size() == 4);
        CHECK(timeline.kernels().size() == 3 * weights.schedule().size() + 1);
        // Another graph after the first one has gone; eager passes between them.
        graph = {};
        auto second = capture();
        const auto eager = recorded::run_passes(weights, stream, 1, launch);
        must(second.try_launch(stream));
        must(device.synchronize(stream));
        timeline = recorder.timeline();
        CHECK(recorder.gaps().unseen_steps == 1);
        CHECK(timeline.passes()[2].copied_bytes == eager[0]);
        CHECK(timeline.kernels().size() == 3 * weights.schedule().size() + 1);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a ring: the last passes are kept, and what is missing is said") {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device, {.passes = 2}};
        auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                              options<compositions::Planned>(model, 20 * chunk)));
        must(weights.try_observe(&recorder));
        recorded::run_passes(weights, stream, 5, kernels(weights, model, stream));
        const PassTimeline timeline = recorder.timeline();
        REQUIRE(timeline.passes().size() == 2);
        CHECK(timeline.passes()[0].name == "pass 3");
        CHECK(recorder.gaps().forgotten_passes == 3);
        CHECK(recorder.gaps().text().empty());
        // Nobody waits: passes that are not complete leave unread.
        for (int i = 0; i < 12; ++i) { streaming::run_pass(weights, model, stream); }
        CHECK(recorder.gaps().unread_passes > 0);
        CHECK(recorder.gaps().text().find("were not complete in time") != std::string::npos);
        must(device.synchronize());
        CHECK(recorder.timeline().passes().size() == 2);
    }
    {
        Recorder recorder{device, {.passes = 2, .most_events = 10}};
        auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                              options<compositions::Planned>(model, 20 * chunk)));
        must(weights.try_observe(&recorder));
        recorded::run_passes(weights, stream, 2, kernels(weights, model, stream));
        const PassTimeline timeline = recorder.timeline();
        CHECK(timeline.kernels().size() < weights.schedule().size());
        CHECK(recorder.gaps().lost_events > 0);
        CHECK(recorder.gaps().text().find("events could not be had") != std::string::npos);
        const std::string text = timeline.trace().json();
        CHECK(text.find("\"dur\":-") == std::string::npos);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("launches for which no events are left leave with their frames, however few events there are") {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
    const auto stream = must(device.create_stream());
    for (std::uint32_t events = 1; events < 400; events += 7) {
        CAPTURE(events);
        Recorder recorder{device, {.passes = 1, .most_events = events}};
        auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                              options<compositions::Planned>(model, 20 * chunk)));
        must(weights.try_observe(&recorder));
        const auto launch = kernels(weights, model, stream);
        auto graph = must(weights.try_capture(stream, [&](auto& pass) {
            for (const auto& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) { launch(id, lease.bytes(id)); }
            }
        }));
        for (int turn = 0; turn < 3; ++turn) {
            must(graph.try_launch(stream));
            must(device.synchronize());
            recorder.collect();
            for (int i = 0; i < 3; ++i) {
                streaming::run_pass(weights, model, stream);
                must(device.synchronize());
                recorder.collect();
            }
        }
        CHECK(recorder.timeline().passes().size() <= 1);
        CHECK(!recorder.failure());
        must(weights.try_observe(nullptr));
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("leases that overlap have rows of their own; those that outlive a pass belong to it") {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 4, 3 * chunk);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device};
        compositions::OnDemand::Options settings;
        settings.budget = Budget::bytes(64 * chunk);
        auto weights = must(compositions::OnDemand::try_create(device, model.catalog, std::move(settings)));
        must(weights.try_observe(&recorder));
        const auto launch = kernels(weights, model, stream);
        auto pass = must(weights.try_begin(stream));
        auto first = must(pass.try_acquire(WeightId{0}));
        launch(WeightId{0}, first.bytes(WeightId{0}));
        auto second = must(pass.try_acquire({WeightId{1}, WeightId{2}}));
        launch(WeightId{0}, first.bytes(WeightId{0}));
        launch(WeightId{1}, second.bytes(WeightId{1}));
        first.end();
        must(pass.try_end());
        const auto refused = weights.try_observe(nullptr);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::wrong_state);
        must(device.synchronize());
        CHECK(recorder.timeline().passes().empty());  // a lease of it is open
        launch(WeightId{2}, second.bytes(WeightId{2}));
        second.end();
        must(device.synchronize());
        const PassTimeline timeline = recorder.timeline();
        REQUIRE(timeline.passes().size() == 1);
        REQUIRE(timeline.kernels().size() == 2);
        CHECK(timeline.kernels()[0].row == 0);
        CHECK(timeline.kernels()[1].row == 1);
        CHECK(timeline.kernels()[0].step.empty());
        CHECK(timeline.kernels()[0].name == "w0");
        CHECK(timeline.kernels()[1].name == "w1 and 1 more");
        CHECK(timeline.kernels()[1].start < timeline.kernels()[0].end);
        CHECK(timeline.passes()[0].end < timeline.kernels()[1].end);
        must(weights.try_observe(nullptr));
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("what the schedule did not announce is drawn as such") {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device};
        auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                              options<compositions::Planned>(model, 30 * chunk)));
        must(weights.try_observe(&recorder));
        auto pass = must(weights.try_begin(stream));
        { const auto lease = must(pass.try_acquire({WeightId{9}, WeightId{3}})); }
        must(pass.try_end());
        must(device.synchronize());
        const PassTimeline timeline = recorder.timeline();
        REQUIRE(timeline.kernels().size() == 1);
        CHECK(timeline.kernels()[0].step == "not in the schedule");
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("calls of the recorder that fail cost events, never a pass") {
    CheckedDevice device{instant_calls()};
    const Model model = streaming::uniform_model(device, 16, 3 * chunk + 700);
    const auto stream = must(device.create_stream());
    {
        Recorder recorder{device};
        auto weights = must(compositions::Planned::try_create(device, model.catalog,
                                                              options<compositions::Planned>(model, 20 * chunk)));
        const auto launch = kernels(weights, model, stream);
        recorded::run_passes(weights, stream, 1, launch);
        must(weights.try_observe(&recorder));
        device.fail(Gpu::CallKind::create_event, 2);
        recorded::run_passes(weights, stream, 3, launch);
        CHECK(recorder.gaps().lost_events == 1);
        CHECK(recorder.failure());
        CHECK_FALSE(weights.failure());
        CHECK(recorder.timeline().passes().size() == 3);
        recorded::run_passes(weights, stream, 1, launch);
        device.fail(Gpu::CallKind::elapsed, 1);
        CHECK(recorder.timeline().passes().size() == 3);
        CHECK(recorder.gaps().unread_passes == 1);
        recorded::run_passes(weights, stream, 1, launch);
        CHECK(recorder.timeline().passes().size() == 4);
        CHECK(recorder.gaps().unread_passes == 1);
    }
    must(device.destroy_stream(stream));
}

}  // namespace timeline_recorder_test
