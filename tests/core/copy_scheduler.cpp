// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What follows from a record that failed, or that was never made.

#include "residency/core/engine/copy_scheduler.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/core/online_parts.hpp"

namespace copy_scheduler_test {

using namespace online_parts;
using CallKind = Device::CallKind;

namespace {

/// A kernel of 10 ms on a stream, and an event after it.
Device::Event long_kernel(Device& device, Stream stream) {
    Device::Kernel kernel;
    kernel.name = "long";
    kernel.duration = std::chrono::milliseconds{10};
    must(device.launch(stream, std::move(kernel)));
    const Device::Event after = must(device.create_event(residency::Timing::off));
    must(device.record(after, stream));
    return after;
}

}  // namespace

TEST_CASE("C14: a use that was only noted is waited for before anything is changed") {
    Parts<> parts{2, 2};
    const Device::Event after = long_kernel(parts.device, parts.stream);
    parts.scheduler.note_use(parts.reader);
    must(parts.scheduler.drain_all());
    CHECK(must(parts.device.is_complete(after)));
    must(parts.device.destroy_event(after));
}

TEST_CASE("C14: a use that was only noted is waited for, also after its consumer stands for another stream") {
    Parts<> parts{2, 2};
    const Device::Event after = long_kernel(parts.device, parts.stream);
    parts.scheduler.note_use(parts.reader);
    const Stream other = must(parts.device.create_stream());
    must(parts.scheduler.begin_pass());
    CHECK(must(parts.scheduler.consumer(other)) == parts.reader);  // reused: it has no outstanding point
    must(parts.scheduler.drain_all());
    CHECK(must(parts.device.is_complete(after)));
    must(parts.device.destroy_event(after));
    must(parts.device.destroy_stream(other));
}

TEST_CASE("C14: a use whose record failed is waited for by every drain") {
    Parts<> parts{2, 2};
    CHECK(parts.bring(0));
    const Device::Event after = long_kernel(parts.device, parts.stream);
    const StorageId id{0};
    parts.device.fail(CallKind::record, 1);
    CHECK_FALSE(parts.scheduler.record_use(parts.reader, {&id, 1}));
    CHECK_FALSE(parts.scheduler.is_unused(id));
    CHECK_FALSE(parts.scheduler.is_free_to_overwrite(id));
    must(parts.scheduler.drain());
    CHECK(must(parts.device.is_complete(after)));
    CHECK(parts.scheduler.is_unused(id));
    must(parts.device.destroy_event(after));
}

TEST_CASE("C13: in a new pass, a stream waits anew for an arrival: its handle may name another stream") {
    Parts<> parts{2, 2};
    const Device::Flag gate = must(parts.device.create_flag());
    must(parts.device.wait_flag(parts.scheduler.copy_stream(), gate, 1));
    CHECK(parts.bring(0));
    const auto arrival = parts.state(0).arrival;
    const auto waits = [&] { return parts.device.statistics().of(CallKind::wait); };
    const auto before = waits();
    must(parts.scheduler.stream_wait_arrival(parts.reader, arrival));
    must(parts.scheduler.stream_wait_arrival(parts.reader, arrival));
    CHECK(waits() == before + 1);
    must(parts.scheduler.begin_pass());
    REQUIRE_FALSE(parts.scheduler.has_arrived(arrival));
    CHECK(must(parts.scheduler.consumer(parts.stream)) == parts.reader);
    must(parts.scheduler.stream_wait_arrival(parts.reader, arrival));
    CHECK(waits() == before + 2);
    must(parts.device.raise_flag(gate, 1));
    must(parts.device.synchronize());
    must(parts.device.destroy_flag(gate));
}

TEST_CASE("C14: a copy whose arrival cannot be recorded has landed when the call returns") {
    Parts<> parts{2, 2};
    CHECK(must(parts.cache.allocate(StorageId{0})));
    const Fetch copy = parts.cache.copy_of(StorageId{0});
    parts.device.fail(CallKind::record, 1);
    CHECK_FALSE(parts.scheduler.transfer({&copy, 1}));
    CHECK(std::memcmp(copy.to, parts.model.catalog.host_bytes(StorageId{0}), page) == 0);
    must(parts.scheduler.await_unrecorded_copies());
}

TEST_CASE(
    "C19: a copy that can neither be recorded nor awaited is waited for before anything else, and then all goes on") {
    Parts<> parts{2, 2};
    CHECK(must(parts.cache.allocate(StorageId{0})));
    const Fetch copy = parts.cache.copy_of(StorageId{0});
    parts.device.fail(CallKind::record, 1);
    parts.device.fail(CallKind::synchronize_stream, 1);
    CHECK_FALSE(parts.scheduler.transfer({&copy, 1}));
    parts.device.fail(CallKind::synchronize_device, 1);
    const auto refused = parts.scheduler.await_unrecorded_copies();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("made to fail") != std::string::npos);  // this failure, not the one before
    must(parts.scheduler.await_unrecorded_copies());
    CHECK(std::memcmp(copy.to, parts.model.catalog.host_bytes(StorageId{0}), page) == 0);
    must(parts.scheduler.transfer({&copy, 1}));
}

TEST_CASE("C14: what reached the device of a transfer that failed comes before whatever waits for the last arrival") {
    Parts<> parts{4, 4};
    std::vector<Fetch> copies;
    for (const std::uint32_t i : {0U, 2U}) {
        CHECK(must(parts.cache.allocate(StorageId{i})));
        copies.push_back(parts.cache.copy_of(StorageId{i}));
    }
    const auto before = parts.scheduler.last_arrival();
    parts.device.fail(CallKind::copy, 1);
    CHECK_FALSE(parts.scheduler.transfer(copies));  // its first half is on its way (D10)
    CHECK(parts.scheduler.last_arrival() > before);
    // As a graph on another stream does: the checker names a write that nothing orders.
    must(parts.scheduler.order_after_everything(parts.reader));
    must(parts.device.fill(copies[0].to, std::byte{1}, page, parts.stream));
    must(parts.scheduler.record_point(parts.reader));
}

}  // namespace copy_scheduler_test
