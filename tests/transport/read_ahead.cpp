// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "residency/transport/staged.hpp"
#include "tests/transport/staged_model.hpp"

namespace read_ahead_test {

using namespace residency;
using staged_model::Model;
using staged_model::storage_count;
using Staged = transport::Staged<SimulatedDevice>;

namespace {

/// Notes which storages are read, in order.
class Reads {
public:
    [[nodiscard]] auto hook() {
        return [this](StorageId id, std::uint64_t, std::uint64_t) {
            const std::lock_guard lock{mutex_};
            ids_.push_back(index(id));
            changed_.notify_all();
            return Status{};
        };
    }
    /// Blocks until there were that many reads; returns all so far.
    [[nodiscard]] std::vector<std::uint32_t> wait_for(std::size_t count) {
        std::unique_lock lock{mutex_};
        changed_.wait_for(lock, std::chrono::seconds{60}, [&] { return ids_.size() >= count; });
        return ids_;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::uint32_t> ids_;
};

/// Memory on the device for fetches, and a way to compare what they brought.
struct Target {
    static constexpr std::size_t bytes = 512 << 10;
    SimulatedDevice& device;
    SimulatedDevice::Stream stream = device.create_stream().value();
    std::byte* at = static_cast<std::byte*>(device.allocate(bytes).value());
    std::byte* back = static_cast<std::byte*>(device.allocate_host(bytes).value());

    explicit Target(SimulatedDevice& d) : device{d} {
        REQUIRE(device.fill(at, std::byte{0}, bytes, stream));
        REQUIRE(device.synchronize(stream));
    }
    Target(const Target&) = delete;
    Target& operator=(const Target&) = delete;
    ~Target() {
        static_cast<void>(device.synchronize().has_value());
        static_cast<void>(device.deallocate(at).has_value());
        static_cast<void>(device.deallocate_host(back).has_value());
        static_cast<void>(device.destroy_stream(stream).has_value());
    }
    /// Blocks. Whether the fetches have brought the model's bytes.
    [[nodiscard]] bool has(const Model& model, const std::vector<transport::Fetch>& fetches) const {
        const Copy home{back, at, bytes};
        REQUIRE(device.copy({&home, 1}, stream));
        REQUIRE(device.synchronize(stream));
        static_cast<void>(device.host_read(back, bytes).has_value());
        return std::ranges::all_of(fetches, [&](const transport::Fetch& fetch) {
            const std::size_t from = model.ranges[index(fetch.storage)].first + fetch.offset_bytes;
            return std::memcmp(back + (static_cast<std::byte*>(fetch.to) - at), model.contents.data() + from,
                               fetch.bytes) == 0;
        });
    }
};

/// Fetches one whole storage to `to`.
std::vector<transport::Fetch> whole(const Model& model, std::uint32_t storage, std::byte* to) {
    return {{StorageId{storage}, 0, model.ranges[storage].second, to}};
}

}  // namespace

TEST_CASE("read-ahead: what is announced is read, in order, before any of its copies is enqueued") {
    std::mt19937 random{1};
    for (const auto access : {host::FileAccess::cached, host::FileAccess::direct}) {
        SimulatedDevice device{};
        Reads reads;
        {
            const Model model{random, device, {Model::Source::file}, 15000};
            const Target place{device};
            Staged::Config config;
            config.slot_bytes = 16384;
            config.ring_bytes = 16 * 16384;
            config.threads = 1;
            config.file_access = access;
            config.before_read = reads.hook();
            Staged staged{config};
            REQUIRE(staged.open(device, model.catalog));
            const std::uint64_t copies = device.statistics().copies;
            std::vector<std::uint32_t> announced;
            for (std::uint32_t i = 0; i < storage_count; ++i) {
                if (model.ranges[i].second == 0) { continue; }
                if (!staged.read_ahead(whole(model, i, place.at))) { break; }
                announced.push_back(i);
            }
            // One slot each; the ring keeps two for what is not announced.
            REQUIRE(announced.size() == 14);
            CHECK(reads.wait_for(announced.size()) == announced);
            CHECK(device.statistics().copies == copies);
            CHECK(staged.statistics().ahead_bytes > 0);

            for (const std::uint32_t i : announced) {
                REQUIRE(staged.enqueue(whole(model, i, place.at), place.stream));
                CHECK(place.has(model, whole(model, i, place.at)));
            }
            CHECK(reads.wait_for(announced.size()) == announced);  // nothing was read twice
            CHECK(staged.statistics().withdrawn_bytes == 0);
            CHECK(staged.statistics().ahead_bytes == staged.statistics().staged_bytes);
            staged.close();
        }
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
    }
}

TEST_CASE("read-ahead: a call larger than the ring is read as far as it goes, and on as slots come free") {
    std::mt19937 random{2};
    SimulatedDevice device{};
    Reads reads;
    {
        const Model model{random, device, {Model::Source::file}, 15000};
        const Target place{device};
        Staged::Config config;
        config.slot_bytes = 16384;
        config.ring_bytes = 4 * 16384;
        config.threads = 1;
        config.file_access = host::FileAccess::cached;
        config.before_read = reads.hook();
        Staged staged{config};
        REQUIRE(staged.open(device, model.catalog));
        std::vector<transport::Fetch> large;
        std::size_t used = 0;
        for (std::uint32_t i = 0; i < storage_count; ++i) {
            if (model.ranges[i].second == 0) { continue; }
            large.push_back({StorageId{i}, 0, model.ranges[i].second, place.at + used});
            used += model.ranges[i].second;
        }
        REQUIRE(used > config.ring_bytes);
        REQUIRE(staged.read_ahead(large));
        CHECK_FALSE(staged.read_ahead(whole(model, 0, place.at)));
        const std::uint64_t ahead = staged.statistics().ahead_bytes;
        CHECK(ahead > 2 * config.slot_bytes);
        CHECK(ahead <= 3 * config.slot_bytes);
        REQUIRE(staged.enqueue(large, place.stream));
        CHECK(staged.read_ahead(whole(model, 0, place.at)));
        CHECK(place.has(model, large));
        CHECK(staged.statistics().withdrawn_bytes == 0);
        staged.close();
    }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

TEST_CASE("read-ahead: what is announced may be left out, and others come between") {
    const std::uint32_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random{seed};
    using Source = Model::Source;
    std::uint64_t ahead_bytes = 0, withdrawn_bytes = 0;
    for (int round = 0; round < 24; ++round) {
        SimulatedDevice device{};
        {
            const Model model{random, device,
                              round % 2 == 0 ? std::vector{Source::file}
                                             : std::vector{Source::file, Source::pageable, Source::pinned}};
            const Target place{device};
            Staged::Config config;
            config.slot_bytes = std::uint64_t{4096} << random() % 4;
            config.ring_bytes = config.slot_bytes * (1 + random() % 11);
            config.threads = 1 + random() % 4;
            config.file_access = random() % 2 == 0 ? host::FileAccess::direct : host::FileAccess::cached;
            Staged staged{config};
            REQUIRE(staged.open(device, model.catalog));
            const auto some = [&] {
                std::vector<transport::Fetch> fetches;
                std::size_t used = 0;
                for (std::size_t i = 0, count = 1 + random() % 6; i < count; ++i) {
                    const auto id = static_cast<std::uint32_t>(random() % storage_count);
                    const std::size_t bytes = model.ranges[id].second;
                    if (bytes == 0) { continue; }
                    const std::size_t offset = random() % bytes;
                    const std::size_t part = 1 + random() % (bytes - offset);
                    if (used + part > Target::bytes) { break; }
                    fetches.push_back({StorageId{id}, offset, part, place.at + used});
                    used += part;
                }
                return fetches;
            };
            std::deque<std::vector<transport::Fetch>> announced;
            for (int step = 0; step < 60; ++step) {
                switch (random() % 7) {
                    case 0:
                    case 1:
                    case 2:
                        if (auto next = some(); !next.empty() && staged.read_ahead(next)) {
                            announced.push_back(std::move(next));
                        }
                        break;
                    case 3:
                    case 4:
                    case 5:
                        if (announced.empty()) { break; }
                        if (random() % 4 == 0) { announced.pop_front(); }  // left out
                        if (announced.empty()) { break; }
                        REQUIRE(staged.enqueue(announced.front(), place.stream));
                        if (random() % 2 == 0) { CHECK(place.has(model, announced.front())); }
                        announced.pop_front();
                        break;
                    default: {
                        const auto other = some();
                        REQUIRE(staged.enqueue(other, place.stream));
                        CHECK(place.has(model, other));
                        break;
                    }
                }
            }
            REQUIRE(staged.status());
            REQUIRE(device.synchronize());
            ahead_bytes += staged.statistics().ahead_bytes;
            withdrawn_bytes += staged.statistics().withdrawn_bytes;
            staged.close();
        }
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
        for (const auto& leak : device.leaks()) { FAIL_CHECK("left: " << leak.what); }
    }
    CHECK(ahead_bytes > 0);
    CHECK(withdrawn_bytes > 0);
}

TEST_CASE("read-ahead: a read that fails ahead is known before the copy is enqueued") {
    std::mt19937 random{3};
    SimulatedDevice device{};
    {
        const Model model{random, device, {Model::Source::file}, 15000};
        const Target place{device};
        Staged::Config config;
        config.threads = 1;
        config.before_read = [](StorageId, std::uint64_t, std::uint64_t) -> Status {
            return Error{ErrorKind::io, "a bad sector"};
        };
        Staged staged{config};
        REQUIRE(staged.open(device, model.catalog));
        REQUIRE(staged.read_ahead(whole(model, 0, place.at)));
        while (staged.status()) {}
        const std::uint64_t copies = device.statistics().copies;
        CHECK(staged.enqueue(whole(model, 0, place.at), place.stream).error().message() == "a bad sector");
        CHECK_FALSE(staged.read_ahead(whole(model, 1, place.at)));
        CHECK(device.statistics().copies == copies);
        staged.close();
    }
    for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
}

}  // namespace read_ahead_test
