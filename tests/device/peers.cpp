// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Several GPUs of one host: times, checks, memory, failures, captures, and the end of one of them.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "residency/device/capture_gate.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/simulated_harness.hpp"

namespace peers_test {

using namespace std::chrono_literals;
using residency::Copy;
using residency::ErrorKind;
using residency::Mapping;
using residency::SimulatedDevice;
using residency::Timing;
using residency::simulation::CallKind;
using residency::simulation::OperationKind;
using residency::simulation::ReportKind;
using support::must;

namespace {

/// Of round numbers, with 10 bytes per nanosecond between GPUs.
SimulatedDevice::Config simple(std::string name) {
    auto config = support::device_of_round_numbers();
    config.peer_bytes_per_second = 10e9;
    config.name = std::move(name);
    return config;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// One GPU, with what tests use of it.
struct Gpu {
    explicit Gpu(const SimulatedDevice::Config& config) : device{config} {}
    Gpu(const SimulatedDevice::Config& config, SimulatedDevice& beside) : device{config, beside} {}

    SimulatedDevice device;
    SimulatedDevice::Stream s = must(device.create_stream("s")), t = must(device.create_stream("t"));
    SimulatedDevice::Event e = must(device.create_event(Timing::on)), f = must(device.create_event(Timing::on));
    std::byte* there = static_cast<std::byte*>(must(device.allocate(8000)));

    void copy(void* to, const void* from, std::uint64_t bytes, SimulatedDevice::Stream stream) {
        must(device.copy({{to, from, bytes}}, stream));
    }
    void run(SimulatedDevice::Stream stream, std::chrono::nanoseconds duration) {
        must(device.launch(stream, {.name = "k", .duration = duration, .reads = {}, .writes = {}, .body = {}}));
    }
};

struct Fixture {
    explicit Fixture(const SimulatedDevice::Config& second = simple("b")) {
        b = std::make_unique<Gpu>(second, a->device);
        host = static_cast<std::byte*>(must(a->device.allocate_host(8000)));
        std::memset(host, 1, 8000);
    }
    std::unique_ptr<Gpu> a = std::make_unique<Gpu>(simple("a")), b;
    std::byte* host = nullptr;

    std::chrono::nanoseconds time() const { return (a != nullptr ? a : b)->device.host_time(); }
    /// The only finding, which is forgotten then.
    SimulatedDevice::Report only(ReportKind kind) const {
        SimulatedDevice& device = (a != nullptr ? a : b)->device;
        const auto reports = device.reports();
        REQUIRE(reports.size() == 1);
        CHECK(reports[0].kind == kind);
        device.clear_reports();
        return reports[0];
    }
    template <class R>
    std::string error(const R& result, ErrorKind kind) const {
        REQUIRE_FALSE(result);
        CHECK(result.error().kind() == kind);
        return result.error().message();
    }
    /// b brings bytes of the host, a takes them: in that order.
    void bounce(std::uint64_t bytes) {
        b->copy(b->there, host, bytes, b->s);
        must(b->device.record(b->e, b->s));
        must(a->device.wait(a->s, b->e));
        a->copy(a->there, b->there, bytes, a->s);
    }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "each GPU has a link of its own: copies of two overlap, copies of one do not") {
    a->copy(a->there, host, 1000, a->s);
    b->copy(b->there, host, 1000, b->s);
    must(a->device.synchronize());
    CHECK(time() == 1100ns);
    must(b->device.synchronize());
    CHECK(time() == 1100ns);
    CHECK(b->device.host_time() == time());
    a->copy(a->there, host, 1000, a->s);
    a->copy(a->there + 4000, host, 1000, a->t);
    must(a->device.synchronize());
    CHECK(time() == 3300ns);
    CHECK(b->there[999] == std::byte{1});
    CHECK(a->device.statistics().bytes_to_device == 3000);
    CHECK(b->device.statistics().bytes_to_device == 1000);
    CHECK(b->device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture,
                  "a copy from a peer takes its rate and the latency of the link; two take turns, beside the link") {
    must(a->device.enable_peer(b->device));
    bounce(1000);
    must(a->device.synchronize());
    CHECK(time() == 1100ns + 200ns);
    CHECK(a->there[999] == std::byte{1});
    CHECK(a->device.statistics().bytes_from_peers == 1000);
    CHECK(a->device.statistics().bytes_to_device == 0);
    CHECK(b->device.statistics().bytes_from_peers == 0);
    a->copy(a->there + 1000, b->there, 1000, a->s);
    a->copy(a->there + 2000, b->there, 1000, a->t);
    b->copy(b->there + 4000, host, 100, b->s);
    a->copy(a->there + 4000, host, 100, must(a->device.create_stream()));
    must(a->device.synchronize());
    CHECK(time() == 1700ns);
    CHECK(b->device.report_count() == 0);
}

TEST_CASE("without numbers of its own a peer is read at 390 GB/s") {
    SimulatedDevice a, b{{}, a};
    must(a.enable_peer(b));
    constexpr std::uint64_t bytes = 39'000'000;
    void* const from = must(b.allocate(bytes));
    void* const to = must(a.allocate(bytes));
    must(b.fill(from, std::byte{1}, bytes, {}));
    must(b.synchronize());
    const auto begin = must(a.create_event(Timing::on)), end = must(a.create_event(Timing::on));
    must(a.record(begin, {}));
    must(a.copy({{to, from, bytes}}, {}));
    must(a.record(end, {}));
    must(a.synchronize());
    CHECK(must(a.elapsed(begin, end)) >= 102'400ns);
    CHECK(must(a.elapsed(begin, end)) <= 104us);
    CHECK(a.name() == "simulated device");
    CHECK(b.name() == "simulated device 2");
}

TEST_CASE_FIXTURE(Fixture, "kernels that take turns do so on each GPU; observers see their own GPU, by name") {
    auto config = simple("c");
    config.concurrent_kernels = false;
    Gpu c{config, a->device}, d{config, a->device};
    CHECK(d.device.name() == "c 4");
    std::vector<std::string> trace;
    d.device.observe([&](const SimulatedDevice::ExecutedOperation& done) {
        if (done.kind != OperationKind::kernel) { return; }
        trace.push_back(std::string{done.device} + " " + std::string{done.stream_name} + " " +
                        std::to_string(done.end_ns));
    });
    c.run(c.s, 1000ns);
    d.run(d.s, 1000ns);
    d.run(d.t, 1000ns);
    must(c.device.synchronize());
    CHECK(time() == 1000ns);
    must(d.device.synchronize(d.t));
    CHECK(time() == 2000ns);
    CHECK(trace == std::vector<std::string>{"c 4 s 1000", "c 4 t 2000"});
    CHECK(c.device.statistics().operations != d.device.statistics().operations);
}

TEST_CASE_FIXTURE(Fixture, "a wait that is missing between GPUs is found, and both are named") {
    must(a->device.enable_peer(b->device));
    b->copy(b->there, host, 1000, b->s);
    a->copy(a->there, b->there, 1000, a->s);
    const auto report = only(ReportKind::unordered);
    CHECK(report.first.device == "b");
    CHECK(report.first.kind == OperationKind::copy_to_device);
    CHECK(report.second.device == "a");
    CHECK(report.second.kind == OperationKind::copy_from_peer);
    CHECK(contains(report.text, "stream 's' of 'a' has to wait for an event recorded on stream 's' of 'b'"));
}

TEST_CASE_FIXTURE(Fixture, "memory of a peer that is used again too early is found") {
    must(a->device.enable_peer(b->device));
    bounce(1000);
    CHECK(b->device.report_count() == 0);
    SUBCASE("without a wait") {
        b->copy(b->there, host, 1000, b->s);
        const auto report = only(ReportKind::unordered);
        CHECK(report.first.kind == OperationKind::copy_from_peer);
        CHECK(report.second.device == "b");
    }
    SUBCASE("with one") {
        must(a->device.record(a->e, a->s));
        must(b->device.wait(b->s, a->e));
        bounce(1000);
        must(b->device.synchronize());
        must(a->device.synchronize());
        CHECK(a->device.report_count() == 0);
        CHECK(time() == 2600ns);
    }
    SUBCASE("freed before the reader is done") {
        must(b->device.deallocate(b->there));
        CHECK(contains(only(ReportKind::unordered).text, "frees"));
        must(a->device.synchronize());
        b->there = nullptr;
    }
    SUBCASE("freed after the host has waited for the reader") {
        must(a->device.synchronize());
        must(b->device.deallocate(b->there));
        CHECK(a->device.report_count() == 0);
        b->there = nullptr;
    }
}

TEST_CASE_FIXTURE(Fixture, "each GPU has its own memory and its own leaks; host memory is pinned for all") {
    auto config = support::small_device();
    config.memory_bytes = 65536;
    SimulatedDevice c{config, a->device};
    CHECK(must(c.memory()).total_bytes == 65536);
    CHECK(must(c.memory()).free_bytes == 65536);
    void* const all = must(c.allocate(65536));
    CHECK(error(c.allocate(1), ErrorKind::out_of_memory).find("on 'simulated device'") != std::string::npos);
    CHECK(must(a->device.allocate(65536)) != nullptr);
    CHECK(c.peak_used_bytes() == 65536);
    CHECK(a->device.peak_used_bytes() == 65536 + 8192);
    CHECK(c.leaks().size() == 1);
    CHECK(must(c.device_view(host)) == host);
    must(c.copy({{all, host, 8000}}, {}));
    must(c.synchronize());
    CHECK(static_cast<const std::byte*>(all)[7999] == std::byte{1});
    CHECK(contains(error(c.deallocate_host(host), ErrorKind::invalid_argument), "not the start of a host allocation"));
    CHECK(contains(error(c.deallocate(a->there), ErrorKind::invalid_argument), "not the start of an allocation"));
    a->device.clear_reports();
    std::vector<std::byte> mine(4096);
    must(a->device.pin(mine.data(), mine.size()));
    CHECK_FALSE(c.pin(mine.data(), mine.size()));
    must(c.deallocate(all));
    CHECK(c.leaks().empty());
    must(a->device.unpin(mine.data()));
}

TEST_CASE_FIXTURE(Fixture, "what N1 does not allow is an error that says why") {
    const auto refused = [&](const void* to, const void* from, const char* why) {
        const Copy copy{const_cast<void*>(to), from, 100};
        CHECK(contains(error(a->device.copy({&copy, 1}, a->s), ErrorKind::unsupported), why));
        CHECK(contains(only(ReportKind::misuse).text, "copy on 'a': "));
    };
    must(b->device.fill(b->there, std::byte{1}, 8000, b->s));
    must(b->device.synchronize());
    refused(a->there, b->there, "this reads memory of 'b': enable_peer() first");
    must(b->device.enable_peer(a->device));
    refused(a->there, b->there, "enable_peer() first");  // the other direction
    must(a->device.enable_peer(b->device));
    must(a->device.enable_peer(b->device));
    must(a->device.enable_peer(a->device));
    a->copy(a->there, b->there, 100, a->s);
    refused(b->there, a->there, "this writes memory of 'b'");
    refused(b->there, host, "this writes memory of 'b'");
    refused(host, b->there, "copied to the device's own memory only");
    const auto pool = must(b->device.create_pool(65536));
    void* const block = must(b->device.allocate(pool, 4096, b->s));
    refused(a->there, block, "only what allocate() returned");
    auto* const range = must(b->device.reserve(4096));
    const Mapping<SimulatedDevice::Chunk> map{range, must(b->device.create_chunk(4096))};
    must(b->device.map({&map, 1}, 4096));
    refused(a->there, range, "only what allocate() returned");
    CHECK(contains(error(a->device.fill(b->there, std::byte{0}, 8, a->s), ErrorKind::invalid_argument),
                   "memory of another device"));
    CHECK_FALSE(a->device.launch(a->s, {.name = "k", .reads = {{b->there, 8}}, .writes = {}, .body = {}}));
    a->device.clear_reports();
}

TEST_CASE_FIXTURE(Fixture, "GPUs without access to each other, or of two hosts, are no peers") {
    auto config = simple("c");
    config.peer_access = false;
    Gpu c{config, a->device};
    Gpu alone{simple("d")};
    for (const auto& refusal : {error(a->device.enable_peer(c.device), ErrorKind::unsupported),
                                error(c.device.enable_peer(a->device), ErrorKind::unsupported)}) {
        CHECK(contains(refusal, "have no access to each other's memory"));
    }
    CHECK(contains(error(a->device.enable_peer(alone.device), ErrorKind::unsupported),
                   "'a' and 'd' are not of one host"));
    CHECK(a->device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a handle of a peer is refused, but for its events in a wait") {
    const auto refused = [&](const auto& result, const char* why) {
        CHECK(contains(error(result, ErrorKind::invalid_argument), why));
        CHECK(contains(only(ReportKind::misuse).text, "on 'a'"));
    };
    refused(a->device.wait(a->s, b->e),
            "the event was made by 'b': let one of the two devices enable_peer() the other");
    must(b->device.enable_peer(a->device));
    must(a->device.wait(a->s, b->e));
    refused(a->device.wait(b->s, b->e), "made by another device");
    refused(a->device.record(b->e, a->s), "made by another device");
    refused(a->device.synchronize(b->e), "made by another device");
    refused(a->device.synchronize(b->s), "made by another device");
    refused(a->device.elapsed(a->e, b->e), "made by another device");
    refused(a->device.destroy_stream(b->s), "made by another device");
    must(b->device.destroy_event(b->f));
    refused(a->device.wait(a->s, b->f), "made by another device");
}

TEST_CASE_FIXTURE(Fixture, "failures are of one GPU only") {
    b->device.fail(CallKind::memory, 1);
    CHECK(a->device.memory());
    CHECK(contains(error(b->device.memory(), ErrorKind::device), "memory on 'b': made to fail"));
    CHECK(b->device.memory());
    b->device.fail(CallKind::enable_peer, 1, ErrorKind::unsupported);
    CHECK_FALSE(b->device.enable_peer(a->device));
    CHECK(b->device.enable_peer(a->device));
}

TEST_CASE_FIXTURE(Fixture, "one GPU is lost: its work is dropped, who waits for it goes on, its calls fail") {
    must(a->device.enable_peer(b->device));
    b->run(b->s, 1h);
    bounce(1000);
    const auto flag = must(b->device.create_flag());
    must(b->device.wait_flag(b->t, flag, 1));
    must(b->device.record(b->f, b->t));
    b->copy(b->there + 4000, host + 4000, 1000, b->t);
    must(a->device.wait(a->t, b->f));
    SUBCASE("while the host does something else") {
        b->device.lose_device();
        must(a->device.synchronize());
        CHECK(time() < 1h);
    }
    SUBCASE("while a thread waits for the other, and for the lost one") {
        std::optional<residency::Status> other, lost;
        std::thread waits{[&] { other = a->device.synchronize(a->t); }};
        std::thread waits_there{[&] { lost = b->device.synchronize(b->t); }};
        std::this_thread::sleep_for(20ms);
        b->device.lose_device();
        waits.join();
        waits_there.join();
        CHECK(other->has_value());
        CHECK_FALSE(lost->has_value());
        must(a->device.synchronize());
    }
    CHECK(contains(error(b->device.synchronize(), ErrorKind::device), "on 'b': the device is lost"));
    CHECK_FALSE(b->device.copy({{b->there, host, 8}}, b->s));
    must(a->device.wait(a->s, b->e));
    CHECK(contains(error(a->device.copy({{a->there, b->there, 8}}, a->s), ErrorKind::device),
                   "memory of 'b', which is lost"));
    CHECK_FALSE(a->device.enable_peer(b->device).has_value());
    must(a->device.host_write(host + 4000, 1000));  // the lost one reads it no more
    a->copy(a->there, host, 1000, a->s);
    must(a->device.synchronize());
    CHECK(a->there[999] == std::byte{1});
    CHECK(a->device.report_count() == 0);
    Gpu c{simple("c"), b->device};  // beside a lost one
    c.copy(c.there, host, 8, c.s);
    must(c.device.synchronize());
}

TEST_CASE_FIXTURE(Fixture, "a capture across GPUs: lanes run where they were captured, launches follow each other") {
    must(b->device.enable_peer(a->device));
    must(a->device.enable_peer(b->device));
    const auto timed = must(b->device.create_event(Timing::on)), timed_too = must(b->device.create_event(Timing::on));
    must(a->device.begin_capture(a->s));
    must(a->device.record(a->e, a->s));
    must(b->device.wait(b->s, a->e));
    must(b->device.record_in_graph(timed, b->s));
    b->copy(b->there, host, 1000, b->s);
    must(b->device.record_in_graph(timed_too, b->s));
    must(b->device.record(b->e, b->s));
    a->copy(a->there + 4000, host + 4000, 1000, a->s);
    must(a->device.wait(a->s, b->e));
    a->copy(a->there, b->there, 1000, a->s);
    const auto graph = must(a->device.end_capture(a->s));
    for (int round = 2; round < 4; ++round) {
        std::memset(host, round, 8000);
        const auto before = time();
        must(a->device.launch(graph, a->t));
        must(a->device.synchronize());
        CHECK(time() - before == 1300ns + 400ns);  // both links at once, then the copy between
        CHECK(a->there[999] == static_cast<std::byte>(round));
        CHECK(a->there[4999] == static_cast<std::byte>(round));
        CHECK(must(b->device.elapsed(timed, timed_too)) == 1300ns);
    }
    CHECK(a->device.report_count() == 0);
    CHECK(b->device.statistics().bytes_to_device == 2000);
    CHECK(a->device.statistics().bytes_to_device == 2000);
    CHECK(a->device.statistics().bytes_from_peers == 2000);
    SUBCASE("one that is lost ends the graph") {
        b->device.lose_device();
        CHECK(contains(error(a->device.launch(graph, a->s), ErrorKind::device), "'b', which takes part in the graph"));
    }
    SUBCASE("one that is destroyed does, too") {
        must(a->device.launch(graph, a->s));
        must(a->device.synchronize());
        b.reset();
        CHECK_FALSE(a->device.launch(graph, a->s));
        a->device.clear_reports();
    }
    SUBCASE("one that is destroyed while it runs") {
        must(a->device.launch(graph, a->s));
        b.reset();
        CHECK(a->device.report_count() > 0);  // a still reads its memory
        must(a->device.synchronize());
        a->device.clear_reports();
    }
    must(a->device.destroy_graph(graph));
    const auto again = must(a->device.create_stream("again"));
    a->copy(a->there, host, 8, again);
    must(a->device.synchronize());
    CHECK(a->device.report_count() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a GPU that is lost or destroyed in a capture") {
    must(a->device.enable_peer(b->device));
    const auto begin = [](Gpu& first, Gpu& second) {
        must(first.device.begin_capture(first.s));
        must(first.device.record(first.e, first.s));
        must(second.device.wait(second.s, first.e));
        must(second.device.fill(second.there, std::byte{1}, 8, second.s));
    };
    const auto lose = [&](bool destroy) {
        if (destroy) {
            b.reset();
        } else {
            b->device.lose_device();
        }
    };
    for (const bool destroy : {false, true}) {
        CAPTURE(destroy);
        SUBCASE(destroy ? "taking part, destroyed" : "taking part, lost") {
            begin(*a, *b);
            lose(destroy);
            CHECK(contains(error(a->device.end_capture(a->s), ErrorKind::wrong_state), "a device that takes part"));
        }
        SUBCASE(destroy ? "having begun it, destroyed" : "having begun it, lost") {
            begin(*b, *a);
            lose(destroy);
        }
    }
    CHECK_FALSE(must(a->device.is_capturing(a->s)));
    std::thread{[&] { must(a->device.synchronize()); }}.join();  // no capture is left that it would wait for
    a->copy(a->there, host, 8, a->s);
    must(a->device.synchronize());
    CHECK(a->device.report_count() == 0);
}

TEST_CASE("a capture is in the gates of the device's peers, until it ends and as long as there are peers") {
    using residency::CaptureGate;
    const auto is_refused = [](CaptureGate& gate) { return CaptureGate::Call{gate}.is_refused(); };
    CaptureGate own;
    const auto peer = std::make_shared<CaptureGate>(), alone = std::make_shared<CaptureGate>();
    CHECK(own.add_peer(peer));
    CHECK(own.add_peer(peer));
    own.enter();
    own.enter();
    CHECK(is_refused(*peer));
    CHECK(peer->is_capturing());
    CHECK_FALSE(is_refused(*alone));
    CHECK_FALSE(own.add_peer(alone));
    peer->enter();
    own.leave();
    own.leave();
    own.leave();  // nothing happens
    CHECK_FALSE(is_refused(own));
    CHECK(is_refused(*peer));  // its own capture goes on
    peer->leave();
    CHECK_FALSE(peer->is_capturing());
    {
        const auto gone = std::make_shared<CaptureGate>();
        CHECK(own.add_peer(gone));
        own.enter();
        CHECK(is_refused(*gone));
    }
    own.leave();
    CHECK_FALSE(own.is_capturing());
    CHECK_FALSE(peer->is_capturing());
    // A capture begins after calls of other threads, also of a peer's.
    std::optional<CaptureGate::Call> call{std::in_place, *peer};
    std::atomic<bool> has_begun{false}, is_in{false};
    std::thread captures{[&] {
        has_begun = true;
        own.enter();
        is_in = true;
        own.leave();
    }};
    while (!has_begun) { std::this_thread::yield(); }
    CHECK_FALSE(is_in);
    call.reset();
    captures.join();
    CHECK(is_in);
}

TEST_CASE_FIXTURE(Fixture, "either GPU may be destroyed first, with work pending; the other goes on") {
    must(a->device.enable_peer(b->device));
    must(b->device.enable_peer(a->device));
    const auto end = [&](std::unique_ptr<Gpu>& gone, std::unique_ptr<Gpu>& stays) {
        auto* const mine = static_cast<std::byte*>(must(stays->device.allocate_host(8000)));
        std::memset(mine, 5, 8000);
        SimulatedDevice& device = gone->device;
        const auto pool = must(device.create_pool(65536));
        must(device.deallocate(pool, must(device.allocate(pool, 4096, gone->s)), gone->s));
        static_cast<void>(must(device.allocate(pool, 4096, gone->s)));
        const Mapping<SimulatedDevice::Chunk> map{must(device.reserve(8192)), must(device.create_chunk(4096))};
        must(device.map({&map, 1}, 4096));
        must(device.fill(map.at, std::byte{1}, 4096, gone->t));
        must(device.begin_capture(gone->t));
        must(device.fill(gone->there + 4000, std::byte{1}, 8, gone->t));
        const auto graph = must(device.end_capture(gone->t));
        must(device.launch(graph, gone->t));
        must(device.wait_flag(gone->t, must(device.create_flag()), 1));
        must(device.record(gone->f, gone->t));
        gone->run(gone->s, 1h);
        gone->copy(gone->there, mine, 1000, gone->s);
        must(device.record(gone->e, gone->s));
        must(stays->device.record(stays->f, stays->t));
        must(device.wait(gone->s, stays->f));
        for (const auto event : {gone->e, gone->f}) { must(stays->device.wait(stays->s, event)); }
        stays->copy(stays->there, mine, 1000, stays->s);
        const auto leaks = stays->device.leaks().size();
        const auto event = gone->e;
        gone.reset();
        must(stays->device.synchronize());
        CHECK(time() < 1h);
        CHECK(stays->there[999] == std::byte{5});
        CHECK(stays->device.report_count() == 0);
        CHECK(stays->device.leaks().size() == leaks);
        CHECK_FALSE(stays->device.wait(stays->s, event));
        only(ReportKind::misuse);
        gone = std::make_unique<Gpu>(simple("again"), stays->device);
        must(stays->device.enable_peer(gone->device));
        gone->copy(gone->there, mine, 1000, gone->s);
        must(gone->device.record(gone->e, gone->s));
        must(stays->device.wait(stays->s, gone->e));
        stays->copy(stays->there + 1000, gone->there, 1000, stays->s);
        must(stays->device.synchronize());
        CHECK(stays->there[1999] == std::byte{5});
        CHECK(stays->device.report_count() == 0);
        gone.reset();
    };
    SUBCASE("the first one") { end(a, b); }
    SUBCASE("the second one") { end(b, a); }
    SUBCASE("both, in the order in which they were made") {
        a.reset();
        b.reset();
    }
}

TEST_CASE_FIXTURE(Fixture, "a GPU that is destroyed while another still reads its memory is a report") {
    must(a->device.enable_peer(b->device));
    bounce(1000);
    b.reset();
    const auto report = only(ReportKind::unordered);
    CHECK(report.first.device == "a");
    CHECK(contains(report.text, "'end of b'"));
    must(a->device.synchronize());
    CHECK(a->there[0] == std::byte{0xA5});  // nothing arrived
}

}  // namespace peers_test
