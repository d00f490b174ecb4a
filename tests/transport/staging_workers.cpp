// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/staging_workers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "residency/simulation/simulated_device.hpp"
#include "tests/transport/staged_model.hpp"

namespace staging_workers_test {

using namespace residency;
using Ring = transport::StagingRing<SimulatedDevice>;
using Workers = transport::StagingWorkers<SimulatedDevice>;
using staged_model::Model;

namespace {

constexpr std::uint64_t slot_bytes = 16384;

/// What the workers of a transport use, and one job for a whole storage.
struct Fixture {
    SimulatedDevice& device;
    const Model& model;
    transport::WeightSources sources;
    transport::ReadFailures error;
    Ring ring;
    Workers workers;
    SimulatedDevice::Stream stream = device.create_stream().value();

    Fixture(SimulatedDevice& d, const Model& m, transport::StagedConfig config, unsigned threads)
        : device{d}, model{m}, ring{d}, workers{d, ring, sources, error} {
        config.file_access = host::FileAccess::cached;
        REQUIRE(sources.open(model.catalog, config));
        REQUIRE(ring.open(3, slot_bytes + transport::ReadCoalescer::page_bytes));
        REQUIRE(workers.start(threads, slot_bytes));
    }
    Fixture(const Fixture&) = delete;
    Fixture& operator=(const Fixture&) = delete;
    ~Fixture() {
        workers.stop();
        static_cast<void>(device.destroy_stream(stream).has_value());
    }
    /// Queues a job that brings a storage to the start of the slot that is free for longest.
    std::pair<std::uint32_t, std::uint32_t> queue(StorageId id) {
        auto job = workers.take_job();
        const Ring::Taken taken = ring.take();
        job->slot = taken.slot;
        job->generation = taken.generation;
        job->last_copy = taken.last_copy;
        const std::uint64_t bytes = model.ranges[index(id)].second;
        CHECK(job->reads.add(sources.of(id), {id, 0, bytes}).bytes == bytes);
        workers.queue(std::move(job));
        return {taken.slot, taken.generation};
    }
    /// Waits for the flag, and for nothing else.
    void wait(std::pair<std::uint32_t, std::uint32_t> queued) {
        REQUIRE(device.wait_flag(stream, ring.flag(queued.first), queued.second));
        REQUIRE(device.synchronize(stream));
    }
    [[nodiscard]] bool holds(std::uint32_t slot, StorageId id) const {
        const auto [from, bytes] = model.ranges[index(id)];
        static_cast<void>(device.host_read(ring.memory(slot), bytes).has_value());
        return std::memcmp(ring.memory(slot), model.contents.data() + from, bytes) == 0;
    }
};

}  // namespace

TEST_CASE("StagingWorkers: every flag rises in the order of its generations, and the bytes are there") {
    std::mt19937 random{1};
    for (const unsigned threads : {1U, 4U}) {
        SimulatedDevice device;
        {
            const Model model{random, device, {Model::Source::file, Model::Source::pageable}, 10000};
            Fixture fixture{device, model, {}, threads};
            for (std::uint32_t i = 0; i < 200; ++i) {
                const StorageId id{static_cast<std::uint32_t>(random() % 5)};
                const auto queued = fixture.queue(id);
                fixture.wait(queued);
                CHECK(fixture.holds(queued.first, id));
                fixture.ring.give_back(queued.first);
            }
            CHECK(fixture.workers.filled_slots() == 200);
            CHECK(fixture.error.status());
        }
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
        for (const auto& leak : device.leaks()) { FAIL_CHECK("left: " << leak.what); }
    }
}

TEST_CASE("StagingWorkers: a slot is not written before its last copy is over") {
    std::mt19937 random{2};
    SimulatedDevice device;
    {
        const Model model{random, device, {Model::Source::file}, 10000};
        std::atomic<int> reads = 0;
        transport::StagedConfig config;
        config.before_read = [&reads](StorageId, std::uint64_t, std::uint64_t) -> Status {
            ++reads;
            return {};
        };
        Fixture fixture{device, model, config, 2};
        for (std::uint32_t i = 0; i < 3; ++i) { fixture.wait(fixture.queue(StorageId{i})); }
        const auto hold = device.create_flag().value();
        const auto event = fixture.ring.take_event().value();
        REQUIRE(device.wait_flag(fixture.stream, hold, 1));
        REQUIRE(device.record(event, fixture.stream));
        fixture.ring.give_back(1, event);
        const auto queued = fixture.queue(StorageId{3});
        CHECK(queued == std::pair<std::uint32_t, std::uint32_t>{1, 2});
        std::this_thread::sleep_for(std::chrono::milliseconds{20});
        CHECK(reads == 3);
        CHECK(fixture.holds(1, StorageId{1}));
        REQUIRE(device.raise_flag(hold, 1));
        fixture.wait(queued);
        CHECK(reads == 4);
        CHECK(fixture.holds(1, StorageId{3}));
        REQUIRE(device.destroy_flag(hold));
    }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

TEST_CASE("StagingWorkers: what is withdrawn in time is not read, and its flag rises all the same") {
    std::mt19937 random{3};
    SimulatedDevice device;
    {
        const Model model{random, device, {Model::Source::file}, 10000};
        std::atomic<bool> may_go = false;
        std::atomic<int> reads = 0;
        transport::StagedConfig config;
        config.before_read = [&](StorageId, std::uint64_t, std::uint64_t) -> Status {
            ++reads;
            while (!may_go) { std::this_thread::yield(); }
            return {};
        };
        Fixture fixture{device, model, config, 1};
        const auto first = fixture.queue(StorageId{0});
        const auto second = fixture.queue(StorageId{1});
        while (reads == 0) { std::this_thread::yield(); }
        fixture.workers.withdraw(second.first, second.second);
        may_go = true;
        fixture.wait(first);
        fixture.wait(second);
        CHECK(reads == 1);
        CHECK(fixture.holds(first.first, StorageId{0}));
        fixture.workers.stop();
        CHECK(fixture.workers.filled_slots() == 1);
    }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

TEST_CASE("StagingWorkers: what cannot be read is all ones, and the first error stays until it is taken") {
    std::mt19937 random{4};
    SimulatedDevice device;
    {
        const Model model{random, device, {Model::Source::file}, 10000};
        std::atomic<int> reads = 0;
        transport::StagedConfig config;
        config.before_read = [&reads](StorageId, std::uint64_t, std::uint64_t) -> Status {
            const int nth = ++reads;
            if (nth == 2) { return Error{ErrorKind::io, "a bad sector"}; }
            if (nth == 3) { return Error{ErrorKind::io, "another"}; }
            return {};
        };
        Fixture fixture{device, model, config, 1};
        for (std::uint32_t i = 0; i < 4; ++i) {
            const auto queued = fixture.queue(StorageId{i});
            fixture.wait(queued);
            const auto* const at = fixture.ring.memory(queued.first);
            const std::uint64_t bytes = model.ranges[i].second;
            const bool is_read = i == 0 || i == 3;
            CHECK(fixture.holds(queued.first, StorageId{i}) == is_read);
            const bool is_ones = std::all_of(at, at + bytes, [](std::byte byte) { return byte == std::byte{0xff}; });
            CHECK(is_ones == !is_read);
            fixture.ring.give_back(queued.first);
        }
        CHECK(reads == 4);
        CHECK(fixture.error.status().error().message() == "a bad sector");
        std::vector<StorageId> lacking;
        fixture.error.take(lacking);
        CHECK(lacking == std::vector{StorageId{1}, StorageId{2}});
        CHECK(fixture.error.status());
    }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

TEST_CASE(
    "StagingWorkers: a wait for the last copy and a flag that fail are tried again, and nothing is written before") {
    using residency::simulation::CallKind;
    std::mt19937 random{5};
    SimulatedDevice device;
    {
        const Model model{random, device, {Model::Source::file}, 10000};
        Fixture fixture{device, model, {}, 1};
        for (std::uint32_t i = 0; i < 3; ++i) { fixture.wait(fixture.queue(StorageId{i})); }
        const auto event = fixture.ring.take_event().value();
        REQUIRE(device.record(event, fixture.stream));
        fixture.ring.give_back(0, event);
        for (int nth = 1; nth <= 100; ++nth) {
            device.fail(CallKind::synchronize_event, 1);
            device.fail(CallKind::raise_flag, 1);
        }
        const auto queued = fixture.queue(StorageId{4});
        REQUIRE(device.wait_flag(fixture.stream, fixture.ring.flag(queued.first), queued.second));
        REQUIRE(device.synchronize(fixture.stream));
        CHECK(fixture.holds(queued.first, StorageId{4}));
        CHECK(fixture.error.status());
    }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

}  // namespace staging_workers_test
