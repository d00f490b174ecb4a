// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Failures injected into every call, the loss of the device, misuse, and leaks.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "residency/simulation/simulated_device.hpp"
#include "tests/support/child.hpp"
#include "tests/support/simulated_harness.hpp"

namespace failures_test {

using residency::Copy;
using residency::DeviceFailure;
using residency::Error;
using residency::ErrorKind;
using residency::Mapping;
using residency::SimulatedDevice;
using residency::Timing;
using residency::simulation::CallKind;
using residency::simulation::ReportKind;
using support::must;

namespace {

using Outcome = std::optional<Error>;

template <class R>
Outcome outcome(const R& result) {
    return result ? Outcome{} : Outcome{result.error()};
}

/// A device with one object of each kind, and for each kind of call a way to make the call once.
struct Everything {
    SimulatedDevice device{support::small_device()};
    SimulatedDevice::Stream stream = must(device.create_stream()), spare = must(device.create_stream());
    SimulatedDevice::Event from = must(device.create_event(Timing::on)), to = must(device.create_event(Timing::on));
    SimulatedDevice::Pool pool = must(device.create_pool(device.pool_granularity()));
    SimulatedDevice::Pool empty_pool = must(device.create_pool(device.pool_granularity()));
    SimulatedDevice::Flag flag = must(device.create_flag());
    SimulatedDevice::Chunk chunk = must(device.create_chunk(4096)), loose = must(device.create_chunk(4096));
    void* block = must(device.allocate(pool, 4096, stream));
    void* there = must(device.allocate(4096));
    void* host = must(device.allocate_host(4096));
    std::byte* range = static_cast<std::byte*>(must(device.reserve(2 * 4096)));
    void* other_range = must(device.reserve(4096));
    std::vector<std::byte> mine = std::vector<std::byte>(4096), pinned = std::vector<std::byte>(4096);
    SimulatedDevice::Graph graph = make_graph();

    Everything() {
        const Mapping<SimulatedDevice::Chunk> map{range, chunk};
        must(device.map({&map, 1}, 4096));
        must(device.pin(pinned.data(), pinned.size()));
        must(device.record(from, stream));
        must(device.record(to, stream));
        must(device.synchronize(stream));
    }
    SimulatedDevice::Graph make_graph() {
        must(device.begin_capture(stream));
        must(device.fill(there, std::byte{1}, 4096, stream));
        return must(device.end_capture(stream));
    }
    Outcome call(CallKind kind) {
        const Copy copy{there, host, 4096};
        const Mapping<SimulatedDevice::Chunk> map{range + 4096, chunk};
        switch (kind) {
            case CallKind::create_stream: return outcome(device.create_stream());
            case CallKind::destroy_stream: return outcome(device.destroy_stream(spare));
            case CallKind::create_event: return outcome(device.create_event(Timing::off));
            case CallKind::destroy_event: return outcome(device.destroy_event(from));
            case CallKind::record: return outcome(device.record(from, stream));
            case CallKind::wait: return outcome(device.wait(stream, from));
            case CallKind::is_complete: return outcome(device.is_complete(from));
            case CallKind::synchronize_event: return outcome(device.synchronize(from));
            case CallKind::synchronize_stream: return outcome(device.synchronize(stream));
            case CallKind::synchronize_device: return outcome(device.synchronize());
            case CallKind::elapsed: return outcome(device.elapsed(from, to));
            case CallKind::copy: return outcome(device.copy({&copy, 1}, stream));
            case CallKind::fill: return outcome(device.fill(there, std::byte{2}, 4096, stream));
            case CallKind::launch_kernel:
                return outcome(device.launch(stream, {.name = "k", .reads = {}, .writes = {{there, 8}}, .body = {}}));
            case CallKind::allocate: return outcome(device.allocate(4096));
            case CallKind::deallocate: return outcome(device.deallocate(there));
            case CallKind::create_pool: return outcome(device.create_pool(device.pool_granularity()));
            case CallKind::destroy_pool: return outcome(device.destroy_pool(empty_pool));
            case CallKind::pool_allocate: return outcome(device.allocate(pool, 4096, stream));
            case CallKind::pool_deallocate: return outcome(device.deallocate(pool, block, stream));
            case CallKind::held_bytes: return outcome(device.held_bytes(pool));
            case CallKind::trim: return outcome(device.trim(pool));
            case CallKind::memory: return outcome(device.memory());
            case CallKind::allocate_host: return outcome(device.allocate_host(4096));
            case CallKind::deallocate_host: return outcome(device.deallocate_host(host));
            case CallKind::pin: return outcome(device.pin(mine.data(), mine.size()));
            case CallKind::unpin: return outcome(device.unpin(pinned.data()));
            case CallKind::device_view: return outcome(device.device_view(host));
            case CallKind::is_capturing: return outcome(device.is_capturing(stream));
            case CallKind::reserve: return outcome(device.reserve(4096));
            case CallKind::release: return outcome(device.release(other_range, 4096));
            case CallKind::create_chunk: return outcome(device.create_chunk(4096));
            case CallKind::destroy_chunk: return outcome(device.destroy_chunk(loose));
            case CallKind::map: return outcome(device.map({&map, 1}, 4096));
            case CallKind::unmap: return outcome(device.unmap(range, 4096));
            case CallKind::begin_capture: return outcome(device.begin_capture(spare));
            case CallKind::end_capture: return outcome(device.end_capture(spare));
            case CallKind::launch_graph: return outcome(device.launch(graph, stream));
            case CallKind::destroy_graph: return outcome(device.destroy_graph(graph));
            case CallKind::create_flag: return outcome(device.create_flag());
            case CallKind::destroy_flag: return outcome(device.destroy_flag(flag));
            case CallKind::wait_flag: return outcome(device.wait_flag(stream, flag, 0));
            case CallKind::raise_flag: return outcome(device.raise_flag(flag, 1));
            case CallKind::enable_peer: return outcome(device.enable_peer(device));
            case CallKind::host_access: return outcome(device.host_write(host, 4096));
            case CallKind::any: break;
        }
        FAIL("no such call");
        return {};
    }
    std::vector<std::string> state() const {
        std::vector<std::string> result;
        for (const auto& leak : device.leaks()) { result.push_back(leak.what + " " + std::to_string(leak.bytes)); }
        result.push_back(std::to_string(device.statistics().operations));
        result.push_back(std::to_string(device.peak_used_bytes()));
        return result;
    }
};

}  // namespace

TEST_CASE("D10: every call can fail, changes nothing, and works afterwards") {
    std::set<std::string> names;
    for (std::size_t i = 0; i < residency::simulation::call_kinds; ++i) {
        const auto kind = static_cast<CallKind>(i);
        const std::string name{residency::simulation::name(kind)};
        INFO(name);
        names.insert(name);
        Everything all;
        if (kind == CallKind::end_capture) { must(all.device.begin_capture(all.spare)); }
        for (const auto error : {ErrorKind::device, ErrorKind::out_of_memory}) {
            const auto before = all.state();
            const auto time = all.device.host_time();
            const auto calls = all.device.statistics().of(kind);
            all.device.fail(kind, 1, error);
            const Outcome failed = all.call(kind);
            REQUIRE(failed);
            CHECK(failed->kind() == error);
            REQUIRE(failed->detail<DeviceFailure>() != nullptr);
            CHECK(failed->detail<DeviceFailure>()->call == name);
            CHECK(all.state() == before);
            CHECK(all.device.host_time() == time);
            CHECK(all.device.statistics().of(kind) == calls + 1);
        }
        const Outcome worked = all.call(kind);
        CHECK_MESSAGE(!worked, (worked ? worked->message() : ""));
        CHECK(all.device.report_count() == 0);
    }
    CHECK(names.size() == residency::simulation::call_kinds);
}

TEST_CASE("D10: a copy of several pieces that is made to fail enqueues the first half of them, in order") {
    SimulatedDevice device{support::small_device()};
    const auto stream = must(device.create_stream());
    auto* const host = static_cast<std::byte*>(must(device.allocate_host(1)));
    auto* const at = static_cast<std::byte*>(must(device.allocate(5)));
    host[0] = std::byte{7};
    must(device.fill(at, std::byte{1}, 5, stream));
    std::vector<Copy> copies;
    for (std::size_t i = 0; i < 5; ++i) { copies.push_back({at + i, host, 1}); }
    device.fail(CallKind::copy, 1);
    CHECK_FALSE(device.copy(copies, stream));
    must(device.synchronize(stream));
    CHECK(std::vector<std::byte>(at, at + 5) ==
          std::vector{std::byte{7}, std::byte{7}, std::byte{1}, std::byte{1}, std::byte{1}});
    must(device.copy(copies, stream));
    must(device.synchronize(stream));
    CHECK(std::vector<std::byte>(at, at + 5) == std::vector<std::byte>(5, std::byte{7}));
    CHECK(device.report_count() == 0);
}

TEST_CASE("the nth use of a kind, or the nth call of any") {
    SimulatedDevice device{support::small_device()};
    device.fail(CallKind::memory, 3);
    CHECK(device.memory());
    CHECK(device.synchronize());
    CHECK(device.memory());
    CHECK_FALSE(device.memory());
    CHECK(device.memory());
    device.fail(CallKind::any, 2, ErrorKind::io);
    CHECK(device.synchronize());
    const auto failed = device.memory();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind() == ErrorKind::io);
    CHECK(device.memory());
    device.fail(CallKind::any, 1);
    device.clear_failures();
    CHECK(device.memory());
}

TEST_CASE("a failed piece of a capture leaves the capture valid, without it") {
    SimulatedDevice device{support::small_device()};
    const auto stream = must(device.create_stream());
    auto* const host = must(device.allocate_host(8));
    auto* const there = static_cast<std::byte*>(must(device.allocate(8)));
    must(device.begin_capture(stream));
    must(device.fill(there, std::byte{6}, 8, stream));
    device.fail(CallKind::copy, 1);
    const Copy copy{there, host, 8};
    CHECK_FALSE(device.copy({&copy, 1}, stream));
    const auto graph = must(device.end_capture(stream));
    must(device.launch(graph, stream));
    must(device.synchronize(stream));
    CHECK(there[0] == std::byte{6});
}

TEST_CASE("on a lost device every call fails") {
    for (std::size_t i = 0; i < residency::simulation::call_kinds; ++i) {
        Everything all;
        all.device.lose_device();
        const Outcome failed = all.call(static_cast<CallKind>(i));
        REQUIRE(failed);
        CHECK(failed->kind() == ErrorKind::device);
        CHECK(failed->message().find("lost") != std::string::npos);
    }
}

TEST_CASE("what was not destroyed is listed; what was, is not") {
    Everything all;
    const auto leaks = all.device.leaks();
    const auto count = [&](const std::string& what) {
        int found = 0;
        for (const auto& leak : leaks) { found += leak.what == what ? 1 : 0; }
        return found;
    };
    CHECK(count("event") == 2);
    CHECK(count("pool") == 2);
    CHECK(count("flag") == 1);
    CHECK(count("chunk") == 2);
    CHECK(count("allocation of a pool") == 1);
    CHECK(count("allocation") == 1);
    CHECK(count("host allocation") == 1);
    CHECK(count("pinned range") == 1);
    CHECK(count("reserved range") == 2);
    CHECK(count("graph") == 1);
    CHECK(count("stream 'stream 1'") == 1);
    CHECK(count("stream 'stream 2'") == 1);
    CHECK(leaks.size() == 16);

    auto& device = all.device;
    must(device.deallocate(all.pool, all.block, all.stream));
    must(device.unmap(all.range, 4096));
    for (const auto stream : {all.stream, all.spare}) { must(device.destroy_stream(stream)); }
    for (const auto event : {all.from, all.to}) { must(device.destroy_event(event)); }
    for (const auto chunk : {all.chunk, all.loose}) { must(device.destroy_chunk(chunk)); }
    for (const auto pool : {all.pool, all.empty_pool}) { must(device.destroy_pool(pool)); }
    must(device.destroy_flag(all.flag));
    must(device.destroy_graph(all.graph));
    must(device.deallocate(all.there));
    must(device.deallocate_host(all.host));
    must(device.unpin(all.pinned.data()));
    must(device.release(all.range, 2 * 4096));
    must(device.release(all.other_range, 4096));
    CHECK(device.leaks().empty());
    const auto memory = must(device.memory());
    CHECK(memory.free_bytes == memory.total_bytes);
}

TEST_CASE("misuse is an error and a finding") {
    Everything all;
    auto& device = all.device;
    const auto misused = [&](const auto& result, ErrorKind kind, const char* remedy = "") {
        REQUIRE_FALSE(result);
        CHECK(result.error().message().find(remedy) != std::string::npos);
        CHECK(result.error().kind() == kind);
        REQUIRE(device.report_count() == 1);
        CHECK(device.reports()[0].kind == ReportKind::misuse);
        device.clear_reports();
    };
    SUBCASE("dead handles, and default ones that name nothing") {
        must(device.destroy_event(all.from));
        misused(device.destroy_event(all.from), ErrorKind::invalid_argument);
        misused(device.record(all.from, all.stream), ErrorKind::invalid_argument);
        misused(device.wait(all.stream, all.from), ErrorKind::invalid_argument);
        const auto again = must(device.create_event(Timing::off));  // the same place, another generation
        CHECK_FALSE(again == all.from);
        misused(device.is_complete(all.from), ErrorKind::invalid_argument);
        misused(device.is_complete({}), ErrorKind::invalid_argument);
        misused(device.held_bytes({}), ErrorKind::invalid_argument);
        misused(device.destroy_chunk({}), ErrorKind::invalid_argument);
        misused(device.launch(SimulatedDevice::Graph{}, all.stream), ErrorKind::invalid_argument);
        misused(device.raise_flag({}, 1), ErrorKind::invalid_argument);
        misused(device.record(again, {999, 0}), ErrorKind::invalid_argument);
    }
    SUBCASE("streams") {
        misused(device.destroy_stream({}), ErrorKind::invalid_argument);
        must(device.begin_capture(all.spare));
        misused(device.destroy_stream(all.spare), ErrorKind::wrong_state);
        misused(device.begin_capture(all.spare), ErrorKind::wrong_state,
                "begin_capture: the stream is capturing already: end that capture first");
        must(device.destroy_graph(must(device.end_capture(all.spare))));
        misused(device.begin_capture({}), ErrorKind::invalid_argument,
                "begin_capture: the default stream cannot be captured: make one by create_stream()");
    }
    SUBCASE("memory") {
        misused(device.deallocate(static_cast<std::byte*>(all.there) + 1), ErrorKind::invalid_argument);
        misused(device.deallocate(all.block), ErrorKind::invalid_argument);
        misused(device.deallocate_host(all.pinned.data()), ErrorKind::invalid_argument);
        misused(device.unpin(all.host), ErrorKind::invalid_argument);
        misused(device.pin(all.pinned.data() + 8, 8), ErrorKind::invalid_argument);
        misused(device.release(all.range, 4096), ErrorKind::invalid_argument);
        misused(device.release(all.range, 2 * 4096), ErrorKind::wrong_state);
        misused(device.unmap(all.range, 100), ErrorKind::invalid_argument);
    }
    SUBCASE("a flag that a stream has yet to wait for") {
        must(device.wait_flag(all.stream, all.flag, 1));
        misused(device.destroy_flag(all.flag), ErrorKind::wrong_state);
        must(device.raise_flag(all.flag, 1));
        must(device.destroy_flag(all.flag));
    }
    SUBCASE("the end of a capture on another of its streams; synchronising with it") {
        must(device.begin_capture(all.stream));
        must(device.record(all.from, all.stream));
        must(device.wait(all.spare, all.from));
        misused(device.end_capture(all.spare), ErrorKind::wrong_state);
        CHECK_FALSE(device.end_capture(all.stream));
        must(device.begin_capture(all.stream));
        CHECK_FALSE(device.synchronize());
        CHECK_FALSE(device.end_capture(all.stream));
        must(device.begin_capture(all.stream));
        CHECK_FALSE(device.synchronize(all.stream));
        CHECK_FALSE(device.fill(all.there, std::byte{0}, 8, all.stream));
        CHECK_FALSE(device.end_capture(all.stream));
        must(device.fill(all.there, std::byte{0}, 8, all.stream));
    }
}

#if RESIDENCY_ASSERTIONS
TEST_CASE("a device whose rates, latencies, costs or jitter no machine has is a precondition with a sentence") {
    using Config = SimulatedDevice::Config;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto refused = [](auto change, const char* what) {
        Config config = support::small_device();
        change(config);
        const auto outcome = child::run([&] { const SimulatedDevice device{config}; });
        CAPTURE(outcome.text);
        CHECK(outcome.aborted);
        CHECK(outcome.text.find(what) != std::string::npos);
    };
    for (const double bad : {-1.0, 0.0, nan, std::numeric_limits<double>::infinity()}) {
        refused([&](Config& config) { config.link.to_device_bytes_per_second = bad; }, "give link.to_device_");
        refused([&](Config& config) { config.link.to_host_bytes_per_second = bad; }, "give link.to_device_");
        refused([&](Config& config) { config.link.pageable_bytes_per_second = bad; }, "give link.to_device_");
        refused([&](Config& config) { config.link.on_device_bytes_per_second = bad; }, "above 0, and finite");
        refused([&](Config& config) { config.peer_bytes_per_second = bad; }, "give peer_bytes_per_second");
        refused([&](Config& config) { config.jitter = bad; }, "give jitter of 1 or more");
    }
    refused([](Config& config) { config.jitter = 0.5; }, "give jitter of 1 or more");
    using std::chrono::nanoseconds;
    refused([](Config& config) { config.link.call_latency = nanoseconds{-1}; }, "link.call_latency");
    refused([](Config& config) { config.link.node_latency = nanoseconds{-1}; }, "link.node_latency of 0 or more");
    refused([](Config& config) { config.launch_cost = nanoseconds{-1}; }, "launch_cost of 0 or more");
}
#endif

}  // namespace failures_test
