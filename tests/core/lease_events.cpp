// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Events of the caller's: a lease waits for them, and records them.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <type_traits>

#include "residency/core/engine/lease.hpp"
#include "residency/planned.hpp"
#include "tests/core/compositions.hpp"

namespace lease_events_test {

using namespace streaming;
using namespace std::chrono_literals;
using residency::ErrorKind;
using residency::Timing;
using Event = Device::Event;
using CallKind = Device::CallKind;

TEST_SUITE_BEGIN("core lease events");

namespace {

/// Device memory that kernels of the caller's share, outside of the budget.
struct Scratch {
    Device& device;
    std::uint64_t bytes = 4096;
    void* at = must(device.allocate(bytes));
    ~Scratch() { CHECK(device.deallocate(at)); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    explicit Scratch(Device& on) : device{on} {}

    void write(Stream stream, std::chrono::nanoseconds duration = 2us) const {
        must(device.launch(stream,
                           {.name = "write", .duration = duration, .reads = {}, .writes = {{at, bytes}}, .body = {}}));
    }
    void read(Stream stream) const {
        must(
            device.launch(stream, {.name = "read", .duration = 2us, .reads = {{at, bytes}}, .writes = {}, .body = {}}));
    }
};

struct Streams {
    Device& device;
    Stream own = must(device.create_stream("own"));
    Stream second = must(device.create_stream("second"));
    Stream foreign = must(device.create_stream("foreign"));
    Event arrived = must(device.create_event(Timing::off));
    Event done = must(device.create_event(Timing::off));
    explicit Streams(Device& on) : device{on} {}
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;
    ~Streams() {
        for (const Stream stream : {own, second, foreign}) { CHECK(device.destroy_stream(stream)); }
        for (const Event event : {arrived, done}) { CHECK(device.destroy_event(event)); }
    }
};

/// Plans move chunks of 2 MiB.
constexpr std::uint64_t planned_bytes = std::uint64_t{2} << 20U;
template <class Weights>
constexpr std::uint64_t storage_bytes = std::is_same_v<Weights, compositions::Planned> ? planned_bytes : 4096;

/// Passes whose weights are read on a stream that the library never hears of. Whether each side is told by an event.
template <class Weights>
void read_on_foreign_stream(CheckedDevice& device, const Model& model, bool tells_arrival, bool tells_end) {
    const Streams streams{device};
    auto weights = make<Weights>(device, model, 3 * storage_bytes<Weights>, in_order(model));
    for (int round = 0; round < 3; ++round) {
        auto pass = must(weights.try_begin(streams.own));
        for (std::uint32_t w = 0; w < model.catalog.weights().size(); ++w) {
            auto lease = must(pass.try_acquire(weight(w)));
            if (tells_arrival) {
                lease.record(streams.arrived);
                must(device.wait(streams.foreign, streams.arrived));
            }
            verify(device, model, lease, weight(w), streams.foreign, 50us);
            must(device.record(streams.done, streams.foreign));
            if (tells_end) { lease.wait_for(streams.done); }
        }
    }
    must(weights.try_drain());
    must(device.synchronize());
}

}  // namespace

TEST_CASE_TEMPLATE("C13 C14: a reader that is known by its events only reads what it should, and keeps it", Weights,
                   OnDemand, Ahead, compositions::Planned) {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, storage_bytes<Weights>);
    read_on_foreign_stream<Weights>(device, model, true, true);
    CHECK(device.report_count() == 0);
    CHECK(*model.wrong == 0);
    CHECK(*model.verified == 3 * 8 * storage_bytes<Weights>);
    // The checker sees what is missing.
    read_on_foreign_stream<Weights>(device, model, false, true);
    CHECK(device.report_count() > 0);
    device.clear_reports();
    read_on_foreign_stream<Weights>(device, model, true, false);
    CHECK(device.report_count() > 0);
    device.clear_reports();
}

TEST_CASE("wait_for: every stream of a lease waits for the event") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, 4096);
    const Scratch scratch{device};
    const Streams streams{device};
    auto weights = make<OnDemand>(device, model, 2 * 4096);
    const auto read_with = [&](bool waits) {
        auto pass = must(weights.try_begin(streams.own));
        auto lease = must(pass.try_acquire(weight(0)));
        lease.use_on(streams.second);
        scratch.write(streams.foreign, 100us);
        must(device.record(streams.done, streams.foreign));
        if (waits) { must(lease.try_wait_for(streams.done)); }
        scratch.read(streams.own);
        scratch.read(streams.second);
        must(device.synchronize());
    };
    read_with(true);
    CHECK(device.report_count() == 0);
    read_with(false);
    CHECK(device.report_count() == 2);
    device.clear_reports();
}

TEST_CASE("record: the event stands for the work of every stream of a lease") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, 4096);
    const Scratch scratch{device};
    const Streams streams{device};
    auto weights = make<OnDemand>(device, model, 2 * 4096);
    const auto read_after = [&](bool is_recorded_by_lease) {
        auto pass = must(weights.try_begin(streams.own));
        auto lease = must(pass.try_acquire(weight(0)));
        lease.use_on(streams.second);
        scratch.write(streams.second, 100us);
        if (is_recorded_by_lease) {
            must(lease.try_record(streams.done));
        } else {
            must(device.record(streams.done, streams.own));
        }
        must(device.wait(streams.foreign, streams.done));
        scratch.read(streams.foreign);
        lease.end();
        must(device.synchronize());
    };
    read_after(true);
    CHECK(device.report_count() == 0);
    read_after(false);
    CHECK(device.report_count() == 1);
    device.clear_reports();
}

TEST_CASE("events of a lease: a failure is said, and the lease goes on") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Streams streams{device};
    auto weights = make<OnDemand>(device, model, 2 * 4096);
    {
        auto pass = must(weights.try_begin(streams.own));
        auto lease = must(pass.try_acquire(weight(0)));
        must(lease.try_use_on(streams.second));
        device.fail(CallKind::wait, 1);
        CHECK(lease.try_wait_for(streams.done).error().kind() == ErrorKind::device);
        device.fail(CallKind::record, 1);
        CHECK(lease.try_record(streams.done).error().kind() == ErrorKind::device);
        device.fail(CallKind::record, 2);
        CHECK(lease.try_record(streams.done).error().kind() == ErrorKind::device);
        device.fail(CallKind::wait, 1);
        CHECK(lease.try_record(streams.done).error().kind() == ErrorKind::device);
        const Event gone = must(device.create_event(Timing::off));
        must(device.destroy_event(gone));
        CHECK(lease.try_wait_for(gone).error().kind() == ErrorKind::invalid_argument);
        CHECK(lease.try_record(gone).error().kind() == ErrorKind::invalid_argument);
        CHECK(device.report_count() == 2);
        device.clear_reports();
        must(lease.try_record(streams.done));
        must(lease.try_wait_for(streams.done));
        verify(device, model, lease, weight(0), streams.own);
        lease.end();
        for (std::uint32_t w = 1; w < 4; ++w) { static_cast<void>(must(pass.try_acquire(weight(w)))); }
    }
    must(weights.try_drain());
    CHECK_FALSE(weights.failure().has_value());
    CHECK(*model.verified == 4096);
    CHECK(*model.wrong == 0);
}

TEST_CASE(
    "events of a lease in a capture: of the body's own streams they become part of the graph; a lease that a "
    "failed capture ended says so") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, planned_bytes);
    const Streams streams{device};
    auto weights = make<compositions::Planned>(device, model, 4 * planned_bytes, in_order(model));
    const auto pass_on_foreign_stream = [&](auto& pass) -> residency::Status {
        for (std::uint32_t w = 0; w < 8; ++w) {
            auto lease = pass.try_acquire(weight(w));
            if (!lease) { return lease.error(); }
            if (auto recorded = lease->try_record(streams.arrived); !recorded) { return recorded; }
            must(device.wait(streams.foreign, streams.arrived));
            verify(device, model, *lease, weight(w), streams.foreign, 20us);
            must(device.record(streams.done, streams.foreign));
            if (auto waited = lease->try_wait_for(streams.done); !waited) { return waited; }
        }
        return {};
    };
    {
        auto graph = must(weights.try_capture(streams.own, pass_on_foreign_stream));
        for (int round = 0; round < 3; ++round) { must(graph.try_launch(streams.own)); }
        must(device.synchronize());
        CHECK(*model.verified == 3 * 8 * planned_bytes);
        CHECK(*model.wrong == 0);
        must(weights.try_drain());
    }
    compositions::Planned::Lease kept;
    const auto failed = weights.try_capture(streams.own, [&](auto& pass) -> residency::Status {
        kept = must(pass.try_acquire(weight(0)));
        return residency::Error{ErrorKind::invalid_argument, "the body fails"};
    });
    REQUIRE_FALSE(failed);
    CHECK(kept.try_wait_for(streams.done).error().kind() == ErrorKind::wrong_state);
    CHECK(kept.try_record(streams.done).error().kind() == ErrorKind::wrong_state);
}

TEST_CASE("a lease knows its catalog, its device, its stream and what it covers") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, 4096);
    const Streams streams{device};
    auto weights = make<OnDemand>(device, model, 2 * 4096);
    auto pass = must(weights.try_begin(streams.own));
    auto lease = must(pass.try_acquire(weight(1), streams.second));
    must(lease.try_use_on(streams.own));
    CHECK(lease.stream() == streams.second);
    CHECK(lease.covers(weight(1)));
    CHECK_FALSE(lease.covers(weight(0)));
    CHECK_FALSE(lease.covers(weight(2)));  // not in the catalog
    CHECK(&lease.device() == &device);
    CHECK(lease.catalog().weight(weight(1)).name == "w1");
    lease.end();
    CHECK_FALSE(lease.covers(weight(1)));
}

TEST_SUITE_END();

}  // namespace lease_events_test
