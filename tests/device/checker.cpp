// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The checker finds planted mistakes and names them.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "residency/simulation/simulated_device.hpp"
#include "tests/support/simulated_harness.hpp"

namespace checker_test {

using namespace std::chrono_literals;
using residency::Copy;
using residency::ErrorKind;
using residency::Mapping;
using residency::SimulatedDevice;
using residency::Timing;
using residency::simulation::OperationKind;
using residency::simulation::ReportKind;
using support::must;

namespace {

struct Fixture {
    static constexpr std::uint64_t bytes = 4096;
    SimulatedDevice device{support::small_device()};
    SimulatedDevice::Stream copies = must(device.create_stream("copies"));
    SimulatedDevice::Stream compute = must(device.create_stream("compute"));
    SimulatedDevice::Event arrived = must(device.create_event(Timing::off));
    SimulatedDevice::Event used = must(device.create_event(Timing::off));
    std::byte* host = static_cast<std::byte*>(must(device.allocate_host(2 * bytes)));
    std::byte* there = static_cast<std::byte*>(must(device.allocate(bytes)));

    void copy(void* to, const void* from, std::uint64_t count, SimulatedDevice::Stream stream) {
        const Copy piece{to, from, count};
        must(device.copy({&piece, 1}, stream));
    }
    void read(const void* at, std::uint64_t count, SimulatedDevice::Stream stream, std::string_view name = "reader") {
        must(device.launch(stream, {.name = name, .reads = {{at, count}}, .writes = {}, .body = {}}));
    }
    void write(void* at, std::uint64_t count, SimulatedDevice::Stream stream, std::string_view name = "writer") {
        must(device.launch(stream, {.name = name, .reads = {}, .writes = {{at, count}}, .body = {}}));
    }
    /// Returns the only finding; another number of findings ends the test case.
    SimulatedDevice::Report only(ReportKind kind) {
        const auto reports = device.reports();
        std::string all;
        for (const auto& report : reports) { all += report.text + "\n"; }
        INFO(all);
        REQUIRE(reports.size() == 1);
        CHECK(reports[0].kind == kind);
        device.clear_reports();
        return reports[0];
    }
    void clean() {
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
    }
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a read without a wait on the arrival") {
    std::memset(host, 3, bytes);
    must(device.launch(copies, {.name = "delay", .duration = 1ms, .reads = {}, .writes = {}, .body = {}}));
    copy(there, host, bytes, copies);
    must(device.record(arrived, copies));
    std::byte seen{};
    must(device.launch(compute,
                       {.name = "matmul", .duration = 1ns, .reads = {{there + 64, 128}}, .writes = {}, .body = [&] {
                            seen = there[64];
                        }}));
    const auto report = only(ReportKind::unordered);
    CHECK(report.first.stream == "copies");
    CHECK(report.first.kind == OperationKind::copy_to_device);
    CHECK(report.second.stream == "compute");
    CHECK(report.second.name == "matmul");
    CHECK(report.first.sequence < report.second.sequence);
    CHECK(report.at == there + 64);
    CHECK(report.bytes == 128);
    CHECK(contains(report.text, "stream 'compute' has to wait for an event recorded on stream 'copies' after #" +
                                    std::to_string(report.first.sequence)));
    must(device.synchronize());
    CHECK(seen == std::byte{0xA5});  // the bytes were wrong too: the poison of the allocation

    must(device.wait(compute, arrived));
    read(there, bytes, compute);
    clean();
}

TEST_CASE_FIXTURE(Fixture, "a wait on an arrival that was recorded too early") {
    copy(there, host, 64, copies);
    must(device.record(arrived, copies));
    copy(there + 64, host, 64, copies);
    must(device.wait(compute, arrived));
    read(there, 128, compute);
    const auto report = only(ReportKind::unordered);
    CHECK(report.at == there + 64);
    CHECK(report.bytes == 64);
    CHECK(contains(report.text, "it has waited only up to #"));
}

TEST_CASE_FIXTURE(Fixture, "a copy from pageable memory has been read when its call returns, and has not arrived") {
    std::vector<std::byte> pageable(bytes, std::byte{3});
    copy(there, pageable.data(), bytes, copies);
    read(there, bytes, compute, "too early");
    CHECK(contains(only(ReportKind::unordered).text, "too early"));
    must(device.record(arrived, copies));
    must(device.wait(compute, arrived));
    read(there, bytes, compute);
    copy(pageable.data(), there, bytes, compute);  // the host has the bytes
    write(there, bytes, copies);
    clean();
}

TEST_CASE_FIXTURE(Fixture, "bytes replaced without a wait on their last use") {
    copy(there, host, bytes, copies);
    must(device.record(arrived, copies));
    must(device.wait(compute, arrived));
    read(there, bytes, compute, "last use");
    copy(there, host + bytes, bytes, copies);
    const auto report = only(ReportKind::unordered);
    CHECK(report.first.name == "last use");
    CHECK(report.second.kind == OperationKind::copy_to_device);
    CHECK(contains(report.text, " reads "));
    must(device.record(used, compute));
    must(device.wait(copies, used));
    copy(there, host + bytes, bytes, copies);
    clean();
}

TEST_CASE_FIXTURE(Fixture, "every one of several readers counts") {
    copy(there, host, bytes, copies);
    must(device.record(arrived, copies));
    const auto other = must(device.create_stream("other"));
    for (const auto stream : {compute, other}) {
        must(device.wait(stream, arrived));
        read(there, bytes, stream);
    }
    must(device.record(used, compute));
    must(device.wait(copies, used));
    copy(there, host, bytes, copies);
    CHECK(only(ReportKind::unordered).first.stream == "other");
}

TEST_CASE_FIXTURE(Fixture, "a victim freed or replaced before its own copy has landed") {
    SUBCASE("in a pool") {
        const auto pool = must(device.create_pool(device.pool_granularity()));
        void* const victim = must(device.allocate(pool, bytes, copies));
        copy(victim, host, bytes, copies);
        must(device.deallocate(pool, victim, compute));
        const auto report = only(ReportKind::unordered);
        CHECK(report.first.kind == OperationKind::copy_to_device);
        CHECK(report.second.kind == OperationKind::deallocate);
        CHECK(report.second.stream == "compute");
        must(device.synchronize());
        must(device.destroy_pool(pool));
    }
    SUBCASE("in a slot") {
        copy(there, host, bytes, copies);
        const auto second = must(device.create_stream("second copies"));
        copy(there, host + bytes, bytes, second);
        const auto report = only(ReportKind::unordered);
        CHECK(report.first.stream == "copies");
        CHECK(report.second.stream == "second copies");
    }
}

TEST_CASE_FIXTURE(Fixture, "memory of a pool: freed while read, used after, used before") {
    const auto pool = must(device.create_pool(device.pool_granularity()));
    auto* const block = static_cast<std::byte*>(must(device.allocate(pool, bytes, copies)));
    SUBCASE("freed while read") {
        copy(block, host, bytes, copies);
        must(device.record(arrived, copies));
        must(device.wait(compute, arrived));
        read(block, bytes, compute);
        must(device.deallocate(pool, block, copies));
        CHECK(only(ReportKind::unordered).second.kind == OperationKind::deallocate);
    }
    SUBCASE("used after it was freed") {
        must(device.deallocate(pool, block, copies));
        copy(block, host, bytes, copies);
        const auto report = only(ReportKind::dead_memory);
        CHECK(report.first.kind == OperationKind::deallocate);
        CHECK(report.second.kind == OperationKind::copy_to_device);
        copy(host, block, bytes, copies);
        CHECK(only(ReportKind::dead_memory).first.kind == OperationKind::deallocate);
        // The pool hands the block out again: its history is forgotten.
        must(device.deallocate(pool, must(device.allocate(pool, bytes, copies)), copies));
        clean();
    }
    SUBCASE("used on another stream before its allocation") {
        copy(block, host, bytes, compute);
        const auto report = only(ReportKind::unordered);
        CHECK(report.first.kind == OperationKind::allocate);
        must(device.deallocate(pool, block, compute));
    }
    SUBCASE("what the pool never handed out") {
        copy(block + bytes, host, 512, copies);
        CHECK(contains(only(ReportKind::dead_memory).text, "not handed out"));
    }
    SUBCASE("freed twice") {
        must(device.deallocate(pool, block, copies));
        const auto again = device.deallocate(pool, block, copies);
        REQUIRE_FALSE(again);
        CHECK(again.error().kind() == ErrorKind::invalid_argument);
        only(ReportKind::misuse);
    }
    SUBCASE("a pool destroyed with memory in use") {
        CHECK_FALSE(device.destroy_pool(pool));
        only(ReportKind::misuse);
        must(device.deallocate(pool, block, copies));
        must(device.destroy_pool(pool));
        must(device.synchronize());
        CHECK(must(device.memory()).free_bytes == must(device.memory()).total_bytes - 4096);
        CHECK_FALSE(device.held_bytes(pool));
    }
}

TEST_CASE_FIXTURE(Fixture, "one chunk under two addresses is one piece of memory") {
    const std::uint64_t size = device.chunk_granularity();
    auto* const range = static_cast<std::byte*>(must(device.reserve(2 * size)));
    const auto chunk = must(device.create_chunk(size));
    const std::array<Mapping<SimulatedDevice::Chunk>, 2> maps{{{range, chunk}, {range + size, chunk}}};
    must(device.map(maps, size));
    copy(range, host, size, copies);
    SUBCASE("read through the other address") {
        read(range + size, size, compute);
        const auto report = only(ReportKind::unordered);
        CHECK(report.at == range + size);
        must(device.record(arrived, copies));
        must(device.wait(compute, arrived));
        read(range + size, size, compute);
        clean();
    }
    SUBCASE("two pieces of one copy that land on the same bytes") {
        const std::array<Copy, 2> pieces{{{range + 8, host, 16}, {range + size, host, 16}}};
        must(device.copy(pieces, copies));
        const auto report = only(ReportKind::unordered);
        CHECK(report.first.sequence == report.second.sequence);
        CHECK(report.bytes == 8);
        CHECK(contains(report.text, "must not overlap"));
    }
    SUBCASE("D6: unmapped under running work; an alias does not matter") {
        must(device.record(arrived, copies));
        must(device.wait(compute, arrived));
        bool ran = false;
        must(device.launch(compute,
                           {.name = "victim", .reads = {{range, size}}, .writes = {}, .body = [&] { ran = true; }}));
        must(device.unmap(range + size, size));
        clean();
        must(device.unmap(range, size));
        bool named = false;
        for (const auto& report : device.reports()) {
            CHECK(report.kind == ReportKind::unordered);
            CHECK(contains(report.text, "the host has to synchronise with stream"));
            named = named || report.first.name == "victim";
        }
        CHECK(named);
        must(device.synchronize());
        CHECK_FALSE(ran);  // its memory is gone
    }
    SUBCASE("unmapped after the last use") {
        read(range, size, copies);
        must(device.synchronize(copies));
        must(device.unmap(range, 2 * size));
        clean();
        CHECK_FALSE(device.launch(copies, {.name = "late", .reads = {{range, 1}}, .writes = {}, .body = {}}));
        CHECK(only(ReportKind::dead_memory).second.name == "late");
    }
    SUBCASE("another chunk under the same address: no trace of the first") {
        must(device.synchronize());
        must(device.unmap(range, 2 * size));
        const auto other = must(device.create_chunk(size));
        const Mapping<SimulatedDevice::Chunk> map{range, other};
        must(device.map({&map, 1}, size));
        read(range, size, copies);
        only(ReportKind::uninitialised);
    }
}

TEST_CASE_FIXTURE(Fixture, "bytes that nothing has written") {
    copy(there, host, 100, copies);
    read(there, 200, copies);
    const auto report = only(ReportKind::uninitialised);
    CHECK(report.at == there + 100);
    CHECK(report.bytes == 100);
    must(device.fill(there, std::byte{0}, bytes, copies));
    read(there, bytes, copies);
    clean();
}

TEST_CASE_FIXTURE(Fixture, "memory that is not there") {
    const auto launch = [&](const void* at, std::uint64_t count) {
        return device.launch(compute, {.name = "stray", .reads = {{at, count}}, .writes = {}, .body = {}}).has_value();
    };
    SUBCASE("past the end, by one byte") {
        must(device.fill(there, std::byte{0}, bytes, compute));
        CHECK(launch(there, bytes));
        CHECK_FALSE(launch(there, bytes + 1));
        only(ReportKind::dead_memory);
    }
    SUBCASE("freed") {
        must(device.deallocate(there));
        CHECK_FALSE(launch(there, 1));
        CHECK(only(ReportKind::dead_memory).second.name == "stray");
        const Copy copy{there, host, 8};
        CHECK_FALSE(device.copy({&copy, 1}, copies));
        only(ReportKind::dead_memory);
        CHECK_FALSE(device.deallocate(there));
        only(ReportKind::misuse);
    }
    SUBCASE("pageable host memory in a kernel") {
        std::vector<std::byte> mine(64);
        CHECK_FALSE(launch(mine.data(), mine.size()));
        only(ReportKind::dead_memory);
    }
    SUBCASE("a null piece") {
        const Copy copy{there, nullptr, 8};
        CHECK_FALSE(device.copy({&copy, 1}, copies));
        only(ReportKind::misuse);
    }
}

TEST_CASE_FIXTURE(Fixture, "host memory of copies in flight") {
    SUBCASE("freed") {
        copy(there, host, bytes, copies);
        CHECK_FALSE(device.deallocate_host(host));
        CHECK(contains(only(ReportKind::unordered).text, "the host has to synchronise with stream 'copies'"));
        must(device.synchronize(copies));
        must(device.deallocate_host(host));
        clean();
    }
    SUBCASE("unpinned") {
        std::vector<std::byte> mine(bytes);
        must(device.pin(mine.data(), mine.size()));
        copy(there, mine.data(), bytes, copies);
        CHECK_FALSE(device.unpin(mine.data()));
        only(ReportKind::unordered);
        must(device.synchronize(copies));
        must(device.unpin(mine.data()));
    }
    SUBCASE("written too early by the host") {
        copy(there, host, bytes, copies);
        must(device.host_write(host, 1));
        const auto report = only(ReportKind::unordered);
        CHECK(report.second.kind == OperationKind::host_write);
        CHECK(report.second.stream == "host");
    }
    SUBCASE("read too early by the host; a completed query is enough") {
        must(device.fill(there, std::byte{1}, bytes, copies));
        copy(host, there, bytes, copies);
        must(device.record(arrived, copies));
        must(device.host_read(host, bytes));
        only(ReportKind::unordered);
        while (!must(device.is_complete(arrived))) {}
        must(device.host_read(host, bytes));
        clean();
        CHECK(host[7] == std::byte{1});
    }
    SUBCASE("behind a flag the host may write until it raises it") {
        const auto flag = must(device.create_flag());
        must(device.wait_flag(copies, flag, 1));
        copy(there, host, bytes, copies);
        must(device.record(arrived, copies));
        must(device.wait(compute, arrived));
        copy(host + bytes, host, bytes, compute);
        must(device.host_write(host, bytes));
        clean();
        must(device.raise_flag(flag, 1));
        must(device.host_write(host, bytes));
        CHECK(only(ReportKind::unordered).first.stream == "compute");  // the last reader
    }
}

TEST_CASE_FIXTURE(Fixture, "what orders, orders: events, chains, host synchronisation, graphs") {
    SUBCASE("a chain over a third stream") {
        const auto middle = must(device.create_stream());
        copy(there, host, bytes, copies);
        must(device.record(arrived, copies));
        must(device.wait(middle, arrived));
        must(device.record(used, middle));
        must(device.wait(compute, used));
        read(there, bytes, compute);
    }
    SUBCASE("an event") {
        copy(there, host, bytes, copies);
        must(device.record(arrived, copies));
        must(device.synchronize(arrived));
        read(there, bytes, compute);
    }
    SUBCASE("a stream") {
        copy(there, host, bytes, copies);
        must(device.synchronize(copies));
        read(there, bytes, compute);
    }
    SUBCASE("the device") {
        copy(there, host, bytes, copies);
        must(device.synchronize());
        read(there, bytes, compute);
    }
    SUBCASE("a stream made after the host knew of the work") {
        copy(there, host, bytes, copies);
        must(device.synchronize(copies));
        read(there, bytes, must(device.create_stream()));
    }
    SUBCASE("the launches of a graph, on whatever streams") {
        must(device.fill(there, std::byte{0}, bytes, copies));
        must(device.synchronize(copies));
        must(device.begin_capture(copies));
        write(there, bytes, copies, "graph's");
        const auto graph = must(device.end_capture(copies));
        must(device.launch(graph, copies));
        must(device.launch(graph, compute));
        clean();
        read(there, bytes, copies);
        const auto report = only(ReportKind::unordered);
        CHECK(report.first.name == "graph's");
        CHECK(report.first.stream == "compute");
        must(device.destroy_graph(graph));
    }
    clean();
}

TEST_CASE_FIXTURE(Fixture, "what does not order: passing time, and the destruction of a stream") {
    const auto passing = must(device.create_stream("passing"));
    copy(there, host, bytes, passing);
    must(device.destroy_stream(passing));
    device.spend(1s);
    const auto next = must(device.create_stream("next"));
    write(there, 8, next);
    CHECK(only(ReportKind::unordered).first.stream == "passing");
    const auto dead = device.record(arrived, passing);
    REQUIRE_FALSE(dead);
    CHECK(dead.error().kind() == ErrorKind::invalid_argument);
    only(ReportKind::misuse);
}

TEST_CASE_FIXTURE(Fixture, "races inside of a graph are found at its launch") {
    must(device.fill(there, std::byte{0}, bytes, copies));
    must(device.synchronize());
    must(device.begin_capture(copies));
    must(device.record(arrived, copies));
    must(device.wait(compute, arrived));
    write(there, 64, copies, "left");
    read(there, 64, compute, "right");
    must(device.record(used, compute));
    must(device.wait(copies, used));
    const auto graph = must(device.end_capture(copies));
    clean();
    must(device.launch(graph, copies));
    const auto report = only(ReportKind::unordered);
    CHECK(report.first.name == "left");
    CHECK(report.second.name == "right");
    CHECK(report.second.stream == "compute");
    must(device.deallocate(there));
    CHECK_FALSE(device.launch(graph, copies));
    CHECK(only(ReportKind::dead_memory).second.name == "left");
}

TEST_CASE("findings are counted beyond those kept; a handler sees each; the checker can be off") {
    auto config = support::small_device();
    config.max_reports = 2;
    for (const bool on : {true, false}) {
        config.checker = on;
        SimulatedDevice device{config};
        int seen = 0;
        device.on_report([&](const SimulatedDevice::Report&) { ++seen; });
        auto* const there = static_cast<std::byte*>(must(device.allocate(4096)));
        for (int i = 0; i < 5; ++i) {
            must(device.launch({}, {.reads = {{there + 100 * i, 50}}, .writes = {}, .body = {}}));
        }
        CHECK(device.report_count() == (on ? 5 : 0));
        CHECK(seen == (on ? 5 : 0));
        CHECK(device.reports().size() == (on ? 2 : 0));
        device.clear_reports();
        CHECK(device.report_count() == 0);
    }
}

TEST_CASE_FIXTURE(Fixture, "a handle of another device is refused, where the numbers are the same too") {
    SimulatedDevice other{support::small_device()};
    const auto stream = must(other.create_stream("copies"));
    const auto event = must(other.create_event(Timing::off));
    const auto pool = must(other.create_pool(other.pool_granularity()));
    const auto chunk = must(other.create_chunk(other.chunk_granularity()));
    const auto flag = must(other.create_flag());
    must(other.begin_capture(stream));
    const auto graph = must(other.end_capture(stream));
    // Ours have the same numbers.
    REQUIRE(stream.number == copies.number);
    REQUIRE(event.index == arrived.index);
    static_cast<void>(must(device.create_pool(device.pool_granularity())));
    static_cast<void>(must(device.create_chunk(device.chunk_granularity())));
    static_cast<void>(must(device.create_flag()));
    must(device.begin_capture(copies));
    static_cast<void>(must(device.end_capture(copies)));
    void* const range = must(device.reserve(device.chunk_granularity()));
    const Mapping<SimulatedDevice::Chunk> mapping{range, chunk};

    const auto refused = [&](const auto& result) {
        REQUIRE_FALSE(result);
        CHECK(result.error().kind() == ErrorKind::invalid_argument);
        CHECK(contains(result.error().message(), "made by another device"));
        CHECK(contains(only(ReportKind::misuse).text, "made by another device"));
    };
    const Copy piece{there, host, bytes};
    refused(device.copy({&piece, 1}, stream));
    refused(device.fill(there, std::byte{1}, bytes, stream));
    refused(device.launch(stream, {.name = "foreign", .reads = {}, .writes = {}, .body = {}}));
    refused(device.record(arrived, stream));
    refused(device.record(event, copies));
    refused(device.wait(copies, event));
    refused(device.wait(stream, arrived));
    refused(device.synchronize(stream));
    refused(device.synchronize(event));
    refused(device.is_complete(event));
    refused(device.elapsed(arrived, event));
    refused(device.is_capturing(stream));
    refused(device.begin_capture(stream));
    refused(device.allocate(pool, 512, copies));
    refused(device.held_bytes(pool));
    refused(device.map({&mapping, 1}, device.chunk_granularity()));
    refused(device.launch(graph, copies));
    refused(device.wait_flag(copies, flag, 1));
    refused(device.raise_flag(flag, 1));
    refused(device.destroy_event(event));
    refused(device.destroy_stream(stream));
    refused(device.destroy_graph(graph));
    CHECK(other.report_count() == 0);

    // The default stream is that of whichever device it is passed to.
    const SimulatedDevice::Stream any{};
    must(device.copy({&piece, 1}, any));
    must(device.synchronize(any));
    must(other.synchronize(any));
    must(other.destroy_stream(stream));
}

}  // namespace checker_test
