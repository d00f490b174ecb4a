// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What streams wait for bytes, and why, on a simulated device whose times are known. Kernels compare every byte meanwhile.
#include "residency/core/measure/stalls.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/compositions.hpp"

namespace stalls_test {

using namespace streaming;
using namespace std::chrono_literals;
using compositions::Planned;
using residency::Event;
using residency::EventKind;
using residency::StallCause;
using residency::Stalls;
using CallKind = Device::CallKind;

namespace {

constexpr std::uint64_t bytes = 4096;
constexpr auto copy_time = 100us;  // of a storage, beside the latency of the call

Device::Config slow_link() {
    auto config = small_config();
    config.link.to_device_bytes_per_second =
        static_cast<double>(bytes) / std::chrono::duration<double>(copy_time).count();
    return config;
}

residency::Schedule declared(const Model& model, std::chrono::nanoseconds compute) {
    residency::ScheduleBuilder builder{model.catalog};
    for (std::uint32_t i = 0; i < model.catalog.storages().size(); ++i) {
        const auto id = weight(i);
        builder.step({&id, 1}, compute);
    }
    return must(builder.try_build());
}

template <class Weights>
typename Weights::Options timed(std::uint64_t budget, residency::Schedule schedule) {
    auto result = options<Weights>(budget, std::move(schedule));
    result.time_stalls = true;
    if constexpr (requires { result.policies.link; }) {
        result.policies.pool.chunk_bytes = bytes;
        result.policies.link = residency::plan::Link{40.96e6, 2.4e-6, 2.7e-6};
        result.policies.memory_bytes_per_second = 4e12;
        result.learn = false;
    }
    return result;
}

/// A pass whose kernels take so long.
template <class Weights>
void pass_of(Weights& weights, const Model& model, Stream stream, std::chrono::nanoseconds kernel) {
    auto pass = must(weights.try_begin(stream));
    for (const auto& step : weights.schedule()) {
        auto lease = must(pass.try_acquire(step));
        for (const auto id : step.weights) { verify(weights.device(), model, lease, id, stream, kernel); }
    }
    must(pass.try_end());
}

/// The stalls of the last of some passes.
struct Measured {
    Stalls pass;
    std::vector<Stalls> steps;
    residency::Statistics statistics;
};
template <class Weights>
Measured measure(std::uint64_t slots, std::chrono::nanoseconds plan_assumes, std::chrono::nanoseconds kernel,
                 std::size_t storages = 8) {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, storages, bytes);
    const Stream stream = must(device.create_stream());
    Measured result;
    {
        auto weights = must(
            Weights::try_create(device, model.catalog, timed<Weights>(slots * bytes, declared(model, plan_assumes))));
        for (int i = 0; i < 6; ++i) { pass_of(weights, model, stream, kernel); }
        must(weights.try_drain());
        result.statistics = weights.statistics();
        result.pass = result.statistics.stalls.last_pass;
        result.steps.assign(weights.step_stalls().begin(), weights.step_stalls().end());
        CHECK(result.statistics.stalls.passes == 6);
        CHECK(result.statistics.stalls.not_timed == 0);
        CHECK_FALSE(weights.failure());
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
    return result;
}
/// The cause of most of the time.
StallCause main_cause(const Stalls& stalls) {
    std::size_t largest = 0;
    for (std::size_t i = 0; i < residency::stall_causes; ++i) {
        if (stalls.by_cause[i].time > stalls.by_cause[largest].time) { largest = i; }
    }
    return static_cast<StallCause>(largest);
}

}  // namespace

TEST_SUITE_BEGIN("core stalls");

TEST_CASE("a pass that the link limits: its stalls are what it takes beside its kernels, and the link's") {
    const Measured measured = measure<Planned>(5, 10us, 10us);
    CHECK(main_cause(measured.pass) == StallCause::link);
    REQUIRE(measured.statistics.pass_time);
    const auto beside = *measured.statistics.pass_time - 8 * 10us;
    CHECK(measured.pass.sum().time <= *measured.statistics.pass_time);
    CHECK(measured.pass.sum().time >= beside - beside / 10);
    residency::StallTime by_step;
    for (const Stalls& step : measured.steps) { by_step += step.sum(); }
    CHECK(measured.steps.size() == 8);
    CHECK(by_step == measured.pass.sum());
}

TEST_CASE("a budget that holds one step: each copy waits until the step before has let go of its memory") {
    const Measured measured = measure<Planned>(1, 300us, 300us);
    CHECK(main_cause(measured.pass) == StallCause::room);
    CHECK(measured.pass[StallCause::room].stalls >= 7);
}

TEST_CASE("steps that take less time than was declared") {
    const Measured wrong = measure<Planned>(5, 200us, 5us);
    CHECK(main_cause(wrong.pass) == StallCause::declared_time);
    const Measured right = measure<Planned>(5, 5us, 5us);
    CHECK(right.pass[StallCause::declared_time].time == 0ns);
    CHECK(right.pass.sum().time <= wrong.pass.sum().time);
}

TEST_CASE("a cycle that does not fit a cache of the least recently used: every step misses what was evicted") {
    const Measured measured = measure<OnDemand>(5, 10us, 10us);
    CHECK(measured.pass[StallCause::evicted].stalls == 8);
    CHECK(measured.pass.sum() == measured.pass[StallCause::evicted]);
    CHECK(measured.pass.sum().time >= 8 * (copy_time - 10us));  // the host is ahead by a kernel
    CHECK(measured.statistics.last_pass.capacity_misses == 8);
    // Of the first pass, nothing had been there.
    CHECK(measured.statistics.stalls.total[StallCause::unpredicted].stalls == 8);
    CHECK(measured.statistics.total.capacity_misses == 5 * 8);
}

TEST_CASE("a lookahead of one step, and a host that waits after each: the link idles with nothing to copy") {
    using Short = residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<1>, compositions::Slab>;
    CheckedDevice device{slow_link()};
    std::vector<Spec> specs(8, Spec{bytes, residency::Placement::resident});
    specs[3].placement = specs[7].placement = residency::Placement::streamed;  // take turns in one slot
    const Model model = make_model(device, specs);
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Short::try_create(device, model.catalog, timed<Short>(7 * bytes, in_order(model))));
        for (int i = 0; i < 3; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t w = 0; w < 8; ++w) {
                {
                    auto lease = must(pass.try_acquire(weights.schedule()[w]));
                    verify(device, model, lease, weight(w), stream, 40us);
                }
                must(device.synchronize(stream));
            }
        }
        must(weights.try_drain());
        const Stalls pass = weights.statistics().stalls.last_pass;
        CHECK(pass[StallCause::issued_late].stalls == 2);
        CHECK(pass.sum() == pass[StallCause::issued_late]);
        CHECK(pass.sum().time > 2 * (copy_time - 60us));
        CHECK(weights.step_stalls()[3].sum().stalls == 1);
        CHECK(weights.step_stalls()[7].sum().stalls == 1);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("an access that the schedule does not announce") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    {
        auto weights =
            must(Planned::try_create(device, model.catalog, timed<Planned>(5 * bytes, declared(model, 200us))));
        for (int i = 0; i < 3; ++i) { pass_of(weights, model, stream, 200us); }
        must(weights.try_drain());
        const auto before = weights.statistics().stalls.total[StallCause::unpredicted];
        auto pass = must(weights.try_begin(stream));
        for (std::uint32_t w = 8; w-- > 0;) {
            auto lease = must(pass.try_acquire(weight(w)));
            verify(device, model, lease, weight(w), stream, 200us);
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(weights.statistics().stalls.total[StallCause::unpredicted].stalls > before.stalls);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("leases that overlap where the plan has room for one: the second waits for room") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    {
        auto weights =
            must(Planned::try_create(device, model.catalog, timed<Planned>(3 * bytes, declared(model, 200us))));
        pass_of(weights, model, stream, 200us);
        for (int i = 0; i < 3; ++i) {
            auto pass = must(weights.try_begin(stream));
            Planned::Lease before;
            for (std::uint32_t w = 0; w < 8; ++w) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream, 200us);
                before = std::move(lease);
            }
        }
        must(weights.try_drain());
        CHECK(main_cause(weights.statistics().stalls.last_pass) == StallCause::room);
        CHECK(weights.statistics().stalls.total[StallCause::unpredicted].stalls == 0);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE_TEMPLATE("a handler is told each stall with its step, weight, time and cause", Weights, OnDemand, Planned) {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    Stalls told;
    std::vector<std::uint64_t> passes;
    {
        auto with = timed<Weights>(5 * bytes, declared(model, 10us));
        with.on_event = [&](const Event& event) {
            if (event.kind != EventKind::stalled) { return; }
            told[event.cause] += {1, event.duration};
            passes.push_back(event.pass);
            CHECK(event.weight() == "w" + std::to_string(event.steps.first));
            CHECK(event.duration >= 5us);
        };
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        for (int i = 0; i < 4; ++i) { pass_of(weights, model, stream, 10us); }
        must(weights.try_drain());
        CHECK(told == weights.statistics().stalls.total);
        CHECK(told.sum().stalls > 4);
        CHECK(passes.front() == 0);
        CHECK(passes.back() == 3);
        CHECK(std::is_sorted(passes.begin(), passes.end()));
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE_TEMPLATE("nothing is timed unless it is asked for, and nothing where everything is resident", Weights,
                   OnDemand, Planned) {
    for (const bool is_resident : {false, true}) {
        CheckedDevice device{slow_link()};
        const Model model = uniform_model(device, 8, bytes);
        const Stream stream = must(device.create_stream());
        {
            auto with = timed<Weights>((is_resident ? 32 : 5) * bytes, declared(model, 10us));
            with.time_stalls = is_resident;
            auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
            for (int i = 0; i < 3; ++i) { pass_of(weights, model, stream, 10us); }
            must(weights.try_drain());
            const auto stalls = weights.statistics().stalls;
            CHECK(stalls.passes == (is_resident ? 3 : 0));
            CHECK(stalls.last_pass == Stalls{});
            CHECK(weights.step_stalls().size() == (is_resident ? 8 : 0));
        }
        must(device.destroy_stream(stream));
        CHECK(*model.wrong == 0);
    }
}

TEST_CASE_TEMPLATE("an event that the device refuses costs a measurement, never a pass", Weights, OnDemand, Planned) {
    for (const CallKind kind : {CallKind::create_event, CallKind::elapsed}) {
        CheckedDevice device{slow_link()};
        const Model model = uniform_model(device, 8, bytes);
        const Stream stream = must(device.create_stream());
        {
            auto weights =
                must(Weights::try_create(device, model.catalog, timed<Weights>(5 * bytes, declared(model, 10us))));
            for (int i = 0; i < 5; ++i) {
                pass_of(weights, model, stream, 10us);
                if (i == 1) { fail_from(device, kind, 1); }
            }
            device.clear_failures();
            must(weights.try_drain());
            pass_of(weights, model, stream, 10us);
            must(weights.try_drain());
            CHECK(weights.statistics().total.passes == 6);
            CHECK(weights.statistics().stalls.last_pass.sum().stalls > 0);
        }
        must(device.destroy_stream(stream));
        CHECK(*model.wrong == 0);
    }
}

TEST_CASE("another schedule has steps of its own, and a captured pass is not timed") {
    CheckedDevice device{slow_link()};
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    {
        auto weights =
            must(Planned::try_create(device, model.catalog, timed<Planned>(5 * bytes, declared(model, 10us))));
        for (int i = 0; i < 3; ++i) { pass_of(weights, model, stream, 10us); }
        residency::ScheduleBuilder builder{model.catalog};
        for (std::uint32_t i = 0; i < 4; ++i) { builder.step({weight(2 * i), weight(2 * i + 1)}); }
        must(weights.try_set_schedule(must(builder.try_build())));
        CHECK(weights.step_stalls().size() == 4);
        for (int i = 0; i < 3; ++i) { pass_of(weights, model, stream, 10us); }
        must(weights.try_drain());
        const auto eager = weights.statistics().stalls;
        CHECK(eager.passes == 6);
        CHECK(eager.last_pass.sum().stalls > 0);
        auto graph = must(weights.try_capture(stream, [&](auto& pass) {
            for (const auto& step : weights.schedule()) {
                auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) { verify(device, model, lease, id, stream); }
            }
        }));
        for (int i = 0; i < 3; ++i) { must(graph.try_launch(stream)); }
        must(weights.try_drain());
        CHECK(weights.statistics().stalls.passes == 6);
        CHECK(weights.statistics().stalls.total == eager.total);
    }
    must(device.synchronize());
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("every cause has a name of its own") {
    std::map<std::string, int> names;
    for (std::size_t cause = 0; cause < residency::stall_causes; ++cause) {
        ++names[std::string{residency::to_string(static_cast<StallCause>(cause))}];
    }
    CHECK(names.size() == residency::stall_causes);
    CHECK(names.count("") == 0);
}

TEST_SUITE_END();

}  // namespace stalls_test
