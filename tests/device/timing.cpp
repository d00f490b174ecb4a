// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The virtual clock: when operations start and end, and that the same seed gives the same times.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "residency/device/link.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/simulated_harness.hpp"

namespace timing_test {

using namespace std::chrono_literals;
using residency::Copy;
using residency::LinkModel;
using residency::SimulatedDevice;
using residency::Timing;
using residency::simulation::OperationKind;
using support::must;

namespace {

struct Span {
    std::string stream, name;
    OperationKind kind;
    std::int64_t start, end;
    friend bool operator==(const Span&, const Span&) = default;
};

struct Fixture {
    explicit Fixture(SimulatedDevice::Config config = support::device_of_round_numbers()) : device{std::move(config)} {
        device.observe([this](const SimulatedDevice::ExecutedOperation& done) {
            if (done.kind == OperationKind::record || done.kind == OperationKind::wait) { return; }
            trace.push_back(
                {std::string{done.stream_name}, std::string{done.name}, done.kind, done.start_ns, done.end_ns});
        });
    }
    SimulatedDevice device;
    std::vector<Span> trace;
    SimulatedDevice::Stream a = must(device.create_stream("a")), b = must(device.create_stream("b"));
    std::byte* host = static_cast<std::byte*>(must(device.allocate_host(8000)));
    std::byte* there = static_cast<std::byte*>(must(device.allocate(8000)));

    void copy(void* to, const void* from, std::uint64_t bytes, SimulatedDevice::Stream stream) {
        const Copy piece{to, from, bytes};
        must(device.copy({&piece, 1}, stream));
    }
    void run(SimulatedDevice::Stream stream, std::chrono::nanoseconds duration, std::string_view name = "k") {
        must(device.launch(stream, {.name = name, .duration = duration, .reads = {}, .writes = {}, .body = {}}));
    }
    std::chrono::nanoseconds time() const { return device.host_time(); }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "D5: a call costs its latency beside its bytes; a batch costs one") {
    copy(there, host, 1000, a);
    must(device.synchronize(a));
    CHECK(time() == 1100ns);
    const std::array<Copy, 4> pieces{
        {{there, host, 250}, {there + 250, host, 250}, {there + 500, host, 250}, {there + 750, host, 250}}};
    must(device.copy(pieces, a));
    must(device.synchronize(a));
    CHECK(time() == 2200ns);
    for (const Copy& piece : pieces) { must(device.copy({&piece, 1}, a)); }
    must(device.synchronize(a));
    CHECK(time() == 2200ns + 1400ns);
    must(device.fill(there, std::byte{0}, 400, a));
    must(device.synchronize(a));
    CHECK(time() == 2200ns + 1400ns + 200ns);
    CHECK(device.statistics().bytes_to_device == 3000);
    CHECK(device.statistics().copies == 9);
}

TEST_CASE_FIXTURE(Fixture, "D5: copies of one direction take turns, the directions are independent") {
    must(device.fill(there, std::byte{0}, 8000, a));
    must(device.synchronize());
    const auto start = time();
    const auto c = must(device.create_stream("c"));
    copy(there, host, 1000, a);
    copy(host + 4000, there + 4000, 1000, b);
    copy(there + 1000, host + 1000, 1000, c);
    must(device.synchronize(a));
    CHECK(time() - start == 1100ns);
    must(device.synchronize(b));
    CHECK(time() - start == 2100ns);
    must(device.synchronize(c));
    CHECK(time() - start == 2200ns);
}

TEST_CASE_FIXTURE(Fixture, "the engine serves in the order of readiness, not of the calls") {
    run(a, 500ns);
    copy(there, host, 1000, a);  // ready at 500
    copy(there + 1000, host, 1000, b);
    must(device.synchronize(b));
    CHECK(time() == 1100ns);
    must(device.synchronize(a));
    CHECK(time() == 2200ns);
}

TEST_CASE("kernels of different streams overlap, or do not") {
    for (const bool concurrent : {true, false}) {
        auto config = support::device_of_round_numbers();
        config.concurrent_kernels = concurrent;
        Fixture f{config};
        f.run(f.a, 1000ns);
        f.run(f.b, 1000ns);
        f.run(f.b, 1000ns);
        must(f.device.synchronize());
        CHECK(f.time() == (concurrent ? 2000ns : 3000ns));
    }
}

TEST_CASE_FIXTURE(Fixture, "pageable memory is slow and blocks the host") {
    std::vector<std::byte> mine(1000, std::byte{4});
    copy(there, mine.data(), 1000, a);
    CHECK(time() == 100ns + 4000ns);
    CHECK(there[999] == std::byte{4});
}

TEST_CASE_FIXTURE(Fixture, "nothing has happened until the clock has passed it") {
    std::memset(host, 9, 1000);
    bool ran = false;
    copy(there, host, 1000, a);
    must(device.launch(a, {.name = "k", .duration = 50ns, .reads = {}, .writes = {}, .body = [&] { ran = true; }}));
    CHECK(there[0] == std::byte{0xA5});
    device.spend(1099ns);
    CHECK(there[0] == std::byte{0xA5});
    device.spend(1ns);
    CHECK(there[0] == std::byte{9});
    CHECK_FALSE(ran);
    device.spend(50ns);
    CHECK(ran);
}

TEST_CASE("polling makes progress, and costs") {
    auto config = support::device_of_round_numbers();
    config.call_cost = 10ns;
    Fixture f{config};
    const auto event = must(f.device.create_event(Timing::off));
    f.run(f.a, 1000ns);
    must(f.device.record(event, f.a));
    int polls = 0;
    while (!must(f.device.is_complete(event))) { ++polls; }
    CHECK(polls == 98);  // the record is one call
}

TEST_CASE_FIXTURE(Fixture, "events stand for the moment that the work before them ended") {
    const auto from = must(device.create_event(Timing::on)), to = must(device.create_event(Timing::on));
    run(a, 300ns);
    must(device.record(from, a));
    must(device.wait(b, from));
    run(b, 700ns);
    must(device.record(to, b));
    must(device.synchronize(to));
    CHECK(must(device.elapsed(from, to)) == 700ns);
    CHECK(time() == 1000ns);
}

TEST_CASE_FIXTURE(Fixture, "a graph's copies cost a node's latency; a launch follows the one before") {
    const auto event = must(device.create_event(Timing::off));
    must(device.begin_capture(a));
    const std::array<Copy, 2> pieces{{{there, host, 100}, {there + 100, host, 100}}};
    must(device.copy(pieces, a));
    must(device.record(event, a));
    must(device.wait(b, event));
    run(b, 50ns);
    must(device.record(event, b));
    must(device.wait(a, event));
    const auto graph = must(device.end_capture(a));
    CHECK(trace.empty());
    must(device.launch(graph, a));
    must(device.launch(graph, b));
    must(device.synchronize(a));
    CHECK(time() == 850ns);
    must(device.synchronize(b));
    CHECK(time() == 1700ns);
    CHECK(trace.size() == 6);
}

TEST_CASE("the clock of a flag: the later of its raising and the stream") {
    Fixture f;
    const auto flag = must(f.device.create_flag());
    must(f.device.wait_flag(f.a, flag, 1));
    f.run(f.a, 100ns);
    f.device.spend(500ns);
    std::thread{[&] { static_cast<void>(f.device.raise_flag(flag, 1).has_value()); }}.join();
    must(f.device.synchronize(f.a));
    CHECK(f.time() == 600ns);
}

TEST_CASE("a blocked host is woken by a flag from another thread, or by the loss of the device") {
    for (const bool lost : {false, true}) {
        Fixture f;
        const auto flag = must(f.device.create_flag());
        must(f.device.wait_flag(f.a, flag, 1));
        bool synchronized = false;
        std::thread blocked{[&] { synchronized = f.device.synchronize(f.a).has_value(); }};
        if (lost) {
            f.device.lose_device();
        } else {
            must(f.device.raise_flag(flag, 1));
        }
        blocked.join();
        CHECK(synchronized == !lost);
    }
}

TEST_CASE("same seed, same trace; another seed, another; within the factor") {
    const auto run = [](std::uint64_t seed) {
        auto config = support::device_of_round_numbers();
        config.jitter = 4;
        config.seed = seed;
        Fixture f{config};
        const auto event = must(f.device.create_event(Timing::off));
        for (int i = 0; i < 50; ++i) {
            f.copy(f.there, f.host, 1000, f.a);
            must(f.device.record(event, f.a));
            must(f.device.wait(f.b, event));
            f.run(f.b, 1000ns);
            must(f.device.record(event, f.b));
            must(f.device.wait(f.a, event));
        }
        must(f.device.synchronize());
        f.trace.push_back({"clock", "", OperationKind::wait, 0, f.time().count()});
        return f.trace;
    };
    const auto first = run(1);
    CHECK(first == run(1));
    CHECK(first != run(2));
    bool shorter = false, longer = false;
    for (const Span& span : first) {
        if (span.kind != OperationKind::kernel) { continue; }
        CHECK(span.end - span.start >= 250);
        CHECK(span.end - span.start <= 4000);
        shorter = shorter || span.end - span.start < 500;
        longer = longer || span.end - span.start > 2000;
    }
    CHECK(shorter);
    CHECK(longer);
}

TEST_CASE("the default figures are the measured ones") {
    SimulatedDevice device;
    CHECK(device.pool_granularity() == std::uint64_t{32} << 20U);
    CHECK(device.chunk_granularity() == std::uint64_t{2} << 20U);
    const auto stream = must(device.create_stream());
    constexpr std::uint64_t bytes = 64 << 20;
    auto* const host = must(device.allocate_host(bytes));
    auto* const there = must(device.allocate(bytes));
    const auto from = must(device.create_event(Timing::on)), to = must(device.create_event(Timing::on));
    const Copy copy{there, host, bytes};
    must(device.record(from, stream));
    must(device.copy({&copy, 1}, stream));
    must(device.record(to, stream));
    must(device.synchronize(to));
    const double seconds = std::chrono::duration<double>(must(device.elapsed(from, to))).count();
    CHECK(static_cast<double>(bytes) / seconds > 55.0e9);
    CHECK(static_cast<double>(bytes) / seconds < 55.5e9);
}

TEST_CASE("without real bytes a device larger than the machine still tells the time") {
    SimulatedDevice device{{.memory_bytes = std::uint64_t{1} << 42U, .real_bytes = false}};
    const std::uint64_t bytes = std::uint64_t{1} << 38U;
    const auto stream = must(device.create_stream());
    auto* const host = must(device.allocate_host(1 << 20));
    auto* const there = static_cast<std::byte*>(must(device.allocate(bytes)));
    const Copy copy{there + bytes - (1 << 20), host, 1 << 20};
    must(device.copy({&copy, 1}, stream));
    const auto chunk = must(device.create_chunk(device.chunk_granularity()));
    const residency::Mapping<SimulatedDevice::Chunk> map{must(device.reserve(device.chunk_granularity())), chunk};
    must(device.map({&map, 1}, device.chunk_granularity()));
    bool ran = false;
    must(device.launch(stream,
                       {.name = "k", .reads = {{copy.to, 8}}, .writes = {{map.at, 8}}, .body = [&] { ran = true; }}));
    must(device.synchronize());
    CHECK_FALSE(ran);
    CHECK(device.host_time() > 20us);
    CHECK(device.report_count() == 0);
}

TEST_CASE("link presets") {
    for (const LinkModel& link : residency::links::all) {
        REQUIRE(residency::links::find(link.name) != nullptr);
        CHECK(*residency::links::find(link.name) == link);
        CHECK(link.to_device_bytes_per_second > link.pageable_bytes_per_second);
    }
    CHECK(residency::links::h200_measured.to_device_bytes_per_second == 55.5e9);
    CHECK(residency::links::h200_measured.call_latency == 2400ns);
    CHECK(residency::links::find("pcie2") == nullptr);
}

}  // namespace timing_test
