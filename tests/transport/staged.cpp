// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/staged.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/files.hpp"
#include "tests/transport/staged_model.hpp"

namespace staged_test {

using namespace residency;
using Simulated = SimulatedDevice;
using Staged = transport::Staged<Simulated>;

static_assert(transport::TransportPolicy<Staged, Simulated>);

namespace {

using staged_model::Model;
using staged_model::storage_count;

/// Sends random pieces to the device and reads them back in the order of the stream.
void exercise(std::mt19937& random, Simulated& device, const Model& model, Staged& staged, int rounds,
              bool expect_equal = true) {
    const auto stream = device.create_stream().value();
    const std::size_t place_bytes = 256 << 10;
    auto* const place = static_cast<std::byte*>(device.allocate(place_bytes).value());
    auto* const back = static_cast<std::byte*>(device.allocate_host(place_bytes).value());
    for (int round = 0; round < rounds; ++round) {
        std::vector<transport::Fetch> fetches;
        std::vector<std::string> expected;
        std::size_t used = 0;
        for (std::size_t i = 0, count = 1 + random() % 12; i < count; ++i) {
            const auto id = static_cast<std::uint32_t>(random() % storage_count);
            const auto [start, whole] = model.ranges[id];
            if (whole == 0) { continue; }
            const std::size_t offset = random() % whole;
            const std::size_t bytes = 1 + random() % (whole - offset);
            if (used + bytes > place_bytes) { break; }
            // Sometimes two fetches of neighbours.
            const std::size_t first = random() % 2 == 0 ? bytes : random() % bytes;
            if (first != 0) { fetches.push_back({StorageId{id}, offset, first, place + used}); }
            if (first != bytes) {
                fetches.push_back({StorageId{id}, offset + first, bytes - first, place + used + first});
            }
            expected.push_back(model.contents.substr(start + offset, bytes));
            used += bytes;
        }
        REQUIRE(staged.enqueue(fetches, stream));
        if (used == 0) { continue; }
        const Copy home{back, place, used};
        REQUIRE(device.copy({&home, 1}, stream));
        REQUIRE(device.synchronize(stream));
        static_cast<void>(device.host_read(back, used).has_value());
        std::string whole;
        for (const auto& piece : expected) { whole += piece; }
        const bool equal = std::memcmp(back, whole.data(), used) == 0;
        CHECK(equal == expect_equal);
    }
    REQUIRE(device.synchronize());
    REQUIRE(device.deallocate(place));
    REQUIRE(device.deallocate_host(back));
    REQUIRE(device.destroy_stream(stream));
}

}  // namespace

TEST_CASE("staged: what went which way is counted, by the kind of source") {
    using Source = Model::Source;
    const std::vector<std::vector<Source>> mixes{
        {Source::file}, {Source::pageable}, {Source::pinned}, {Source::file, Source::pageable, Source::pinned}};
    for (std::size_t kind = 0; kind < mixes.size(); ++kind) {
        std::mt19937 random{1};
        Simulated device{};
        const Model model{random, device, mixes[kind]};
        Staged staged;
        REQUIRE(staged.open(device, model.catalog));
        exercise(random, device, model, staged, 10);
        const auto statistics = staged.statistics();
        CHECK(statistics.tier == (kind == 1   ? host::Tier::pageable
                                  : kind == 2 ? host::Tier::pinned
                                              : host::Tier::file));
        CHECK((statistics.straight_bytes > 0) == (kind >= 2));
        CHECK((statistics.staged_bytes > 0) == (kind != 2));
        CHECK((statistics.file_bytes == statistics.staged_bytes) == (kind != 1 && kind != 3));
        staged.close();
    }
}

TEST_CASE("staged: neighbours in a file are one read, as far as a slot goes") {
    constexpr std::uint64_t bytes = 1000;
    constexpr std::uint32_t count = 64;
    for (const auto access : {host::FileAccess::cached, host::FileAccess::direct}) {
        for (const std::uint64_t gap : {0U, 24U, 64U, 65U, 4096U, 4097U}) {
            Simulated device{};
            std::mt19937 random{3};
            std::string contents(count * (bytes + gap) + 123, ' ');
            for (char& c : contents) { c = static_cast<char>(random()); }
            const support::TemporaryFolder folder;
            const auto file =
                std::make_shared<const SourceFile>(SourceFile{folder.write("weights", contents), contents.size()});
            CatalogBuilder builder;
            for (std::uint64_t i = 0; i < count; ++i) {
                builder.add("w" + std::to_string(i), dtype::u8, {bytes}, FileSource{file, 123 + i * (bytes + gap)});
            }
            const auto catalog = builder.try_build().value();
            Staged::Config config;
            config.slot_bytes = 16384;
            config.ring_bytes = 65536;
            config.file_access = access;
            Staged staged{config};
            REQUIRE(staged.open(device, catalog));
            const auto stream = device.create_stream().value();
            auto* const place = static_cast<std::byte*>(device.allocate(count * bytes).value());
            auto* const back = static_cast<std::byte*>(device.allocate_host(count * bytes).value());
            std::vector<transport::Fetch> forwards;
            std::vector<transport::Fetch> halves;
            for (std::uint32_t i = 0; i < count; ++i) {
                forwards.push_back({StorageId{i}, 0, bytes, place + i * bytes});
                halves.push_back({StorageId{i}, 0, 400, place + i * bytes});
                halves.push_back({StorageId{i}, 400, bytes - 400, place + i * bytes + 400});
            }
            const std::vector<transport::Fetch> backwards{forwards.rbegin(), forwards.rend()};
            const std::vector<transport::Fetch>* const orders[] = {&forwards, &backwards, &halves};
            for (const auto* fetches : orders) {
                const std::uint64_t before = staged.statistics().file_reads;
                const std::uint64_t copies_before = device.statistics().copies;
                REQUIRE(staged.enqueue(*fetches, stream));
                const Copy home{back, place, count * bytes};
                REQUIRE(device.copy({&home, 1}, stream));
                REQUIRE(device.synchronize(stream));
                REQUIRE(staged.status());
                static_cast<void>(device.host_read(back, count * bytes).has_value());
                for (std::uint64_t i = 0; i < count; ++i) {
                    CHECK(std::memcmp(back + i * bytes, contents.data() + 123 + i * (bytes + gap), bytes) == 0);
                }
                const std::uint64_t reads = staged.statistics().file_reads - before;
                const std::uint64_t copies = device.statistics().copies - copies_before - 1;
                const bool joined = gap <= (access == host::FileAccess::direct ? 4096U : 64U) && fetches != &backwards;
                // What does not fit into a slot goes on in the next slot.
                CHECK(reads >= (joined ? count * bytes / config.slot_bytes + 1 : count));
                CHECK(reads <= (joined ? count * (bytes + gap) / config.slot_bytes + 2 : 2 * count));
                if (gap == 0 && joined) { CHECK(copies == reads); }
            }
            REQUIRE(device.synchronize());
            staged.close();
            for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
            REQUIRE(device.deallocate(place));
            REQUIRE(device.deallocate_host(back));
            REQUIRE(device.destroy_stream(stream));
        }
    }
}

TEST_CASE("staged: neighbours in memory are of one storage") {
    Simulated device{};
    CatalogBuilder builder;
    for (const char letter : {'a', 'b'}) {
        builder.add(std::string{letter}, dtype::u8, {1000},
                    HostSource{HostBytes::own(std::vector<std::byte>(1000, std::byte(letter))), 0});
    }
    const auto catalog = builder.try_build().value();
    Staged staged;
    REQUIRE(staged.open(device, catalog));
    const auto stream = device.create_stream().value();
    auto* const place = static_cast<std::byte*>(device.allocate(1000).value());
    auto* const back = static_cast<std::byte*>(device.allocate_host(1000).value());
    const transport::Fetch fetches[] = {{StorageId{0}, 0, 500, place}, {StorageId{1}, 500, 500, place + 500}};
    REQUIRE(staged.enqueue(fetches, stream));
    const Copy home{back, place, 1000};
    REQUIRE(device.copy({&home, 1}, stream));
    REQUIRE(device.synchronize(stream));
    static_cast<void>(device.host_read(back, 1000).has_value());
    CHECK(back[499] == std::byte('a'));
    CHECK(back[500] == std::byte('b'));
    staged.close();
    REQUIRE(device.deallocate(place));
    REQUIRE(device.deallocate_host(back));
    REQUIRE(device.destroy_stream(stream));
}

TEST_CASE("staged: what fails among neighbours fails all of their read, of which nothing is counted") {
    Simulated device{};
    const support::TemporaryFolder folder;
    const auto file =
        std::make_shared<const SourceFile>(SourceFile{folder.write("weights", std::string(4000, 'w')), 4000});
    CatalogBuilder builder;
    for (std::uint64_t i = 0; i < 4; ++i) {
        builder.add("w" + std::to_string(i), dtype::u8, {1000}, FileSource{file, i * 1000});
    }
    const auto catalog = builder.try_build().value();
    Staged::Config config;
    config.before_read = [](StorageId id, std::uint64_t, std::uint64_t) -> Status {
        if (id == StorageId{2}) { return Error{ErrorKind::io, "this one not"}; }
        return {};
    };
    Staged staged{config};
    REQUIRE(staged.open(device, catalog));
    const auto stream = device.create_stream().value();
    auto* const place = static_cast<std::byte*>(device.allocate(4000).value());
    auto* const back = static_cast<std::byte*>(device.allocate_host(4000).value());
    std::vector<transport::Fetch> fetches;
    for (std::uint32_t i = 0; i < 4; ++i) { fetches.push_back({StorageId{i}, 0, 1000, place + i * 1000}); }
    REQUIRE(staged.enqueue(fetches, stream));
    const Copy home{back, place, 4000};
    REQUIRE(device.copy({&home, 1}, stream));
    REQUIRE(device.synchronize(stream));
    static_cast<void>(device.host_read(back, 4000).has_value());
    CHECK(std::all_of(back, back + 4000, [](std::byte byte) { return byte == std::byte{0xff}; }));
    REQUIRE_FALSE(staged.status());
    CHECK(staged.status().error().kind() == ErrorKind::io);
    const auto statistics = staged.statistics();
    CHECK(statistics.file_reads == 0);
    CHECK(statistics.file_bytes == 0);
    CHECK(statistics.staged_bytes == 4000);
    staged.close();
    REQUIRE(device.deallocate(place));
    REQUIRE(device.deallocate_host(back));
    REQUIRE(device.destroy_stream(stream));
}

TEST_CASE("staged: the first pass streams while the model is still loading, and goes straight afterwards") {
    const std::uint32_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random{seed};
    for (int round = 0; round < 10; ++round) {
        Simulated device{};
        {
            const Model model{random, device, {Model::Source::file}, 200000};
            host::LoadOptions options;
            options.read_bytes = 4096;
            options.threads = 1;
            auto loading = host::Loading::try_start(device, model.catalog, options);
            REQUIRE(loading);
            Staged::Config config;
            config.slot_bytes = 16384;
            config.ring_bytes = 65536;
            config.loading = *loading;
            Staged staged{config};
            REQUIRE(staged.open(device, (*loading)->catalog()));
            exercise(random, device, model, staged, 10);
            REQUIRE((*loading)->wait());
            const auto before = staged.statistics();
            exercise(random, device, model, staged, 5);
            CHECK(staged.statistics().staged_bytes == before.staged_bytes);
            CHECK(staged.statistics().tier == host::Tier::pinned);
            staged.close();
        }
        for (const auto& report : device.reports()) { FAIL_CHECK(report.text); }
    }
}

TEST_CASE("staged: a file that is changed or truncated while it is streamed is an error, not its bytes") {
    for (const auto access : {host::FileAccess::cached, host::FileAccess::direct}) {
        for (const bool truncate : {false, true}) {
            std::mt19937 random{2};
            Simulated device{};
            const Model model{random, device, {Model::Source::file}};
            Staged::Config config;
            config.file_access = access;
            Staged staged{config};
            REQUIRE(staged.open(device, model.catalog));
            exercise(random, device, model, staged, 3);
            if (truncate) {
                std::filesystem::resize_file(model.file->path, 100);
            } else {
                support::write_all(model.file->path, std::string(model.contents.size(), 'z'));
                std::filesystem::last_write_time(model.file->path,
                                                 std::filesystem::file_time_type::clock::now() + std::chrono::hours{1});
            }
            exercise(random, device, model, staged, 1, false);
            REQUIRE_FALSE(staged.status());
            CHECK(staged.status().error().kind() == ErrorKind::io);
            CHECK(staged.status().error().message().find("changed while it was in use") != std::string::npos);
            const auto stream = device.create_stream().value();
            const transport::Fetch fetch{StorageId{0}, 0, 1, nullptr};
            CHECK(staged.enqueue({&fetch, 1}, stream).error().kind() == ErrorKind::io);
            staged.close();
        }
    }
}

TEST_CASE(
    "staged: files are read past the page cache where memory has no room for them, by the limits of the process") {
    std::mt19937 random{6};
    Simulated device{};
    const Model model{random, device, {Model::Source::file}};
    std::uint64_t bytes = 0;
    for (const auto& range : model.ranges) { bytes += range.second; }
    for (const bool is_enough : {true, false}) {
        Staged::Config config;
        config.limits = host::MemoryLimits{};
        config.limits->group_limit_bytes = bytes + 1000;
        config.limits->group_used_bytes = is_enough ? 1000 : 1001;
        Staged staged{config};
        REQUIRE(staged.open(device, model.catalog));
        // If the file system has no direct reads, what was read is dropped from the cache instead.
        const bool can_be_direct =
            host::WeightFile::try_open(*model.file, host::FileAccess::direct).value().is_direct();
        CHECK(staged.statistics().direct_io == (!is_enough && can_be_direct));
        staged.close();
    }
}

TEST_CASE("staged: a load that is cancelled is an error for who streams from it") {
    std::mt19937 random{3};
    Simulated device{};
    const Model model{random, device, {Model::Source::file}, 400000};
    host::LoadOptions options;
    options.read_bytes = 4096;
    options.threads = 1;
    options.progress = [](const host::LoadProgress&) { return false; };
    auto loading = host::Loading::try_start(device, model.catalog, options);
    REQUIRE(loading);
    REQUIRE_FALSE((*loading)->wait());
    Staged::Config config;
    config.loading = *loading;
    Staged staged{config};
    REQUIRE(staged.open(device, (*loading)->catalog()));
    const auto stream = device.create_stream().value();
    auto* const place = static_cast<std::byte*>(device.allocate(model.ranges[23].second).value());
    const transport::Fetch fetch{StorageId{23}, 0, model.ranges[23].second, place};
    REQUIRE(staged.enqueue({&fetch, 1}, stream));
    REQUIRE(device.synchronize(stream));
    REQUIRE_FALSE(staged.status());
    CHECK(staged.status().error().kind() == ErrorKind::cancelled);
    staged.close();
}

TEST_CASE("staged: what it cannot stream is refused when it is opened") {
    std::mt19937 random{4};
    Simulated device{};
    const Model model{random, device, {Model::Source::file}};
    CatalogBuilder builder;
    builder.add("w", dtype::u8, {4});
    const auto bare = builder.try_build().value();
    CHECK(Staged{}.open(device, bare).error().kind() == ErrorKind::unsupported);
    auto loading = host::Loading::try_start(device, model.catalog);
    REQUIRE(loading);
    Staged::Config config;
    config.loading = *loading;
    CHECK(Staged{config}.open(device, bare).error().kind() == ErrorKind::mismatch);
    REQUIRE((*loading)->wait());
    std::filesystem::resize_file(model.file->path, 100);
    CHECK(Staged{}.open(device, model.catalog).error().kind() == ErrorKind::mismatch);
    std::filesystem::remove(model.file->path);
    CHECK(Staged{}.open(device, model.catalog).error().kind() == ErrorKind::io);

    // A file of the same size that is not the one that the catalog was made from.
    const std::string path = model.folder.write("same", "contents");
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours{1});
    const auto opened = host::WeightFile::try_open({path, 8}, host::FileAccess::cached);
    REQUIRE(opened);
    CatalogBuilder known;
    known.add("w", dtype::u8, {8},
              FileSource{std::make_shared<const SourceFile>(SourceFile{path, 8, opened->identity()}), 0});
    const auto catalog = known.try_build().value();
    CHECK(Staged{}.open(device, catalog));
    support::write_all(path, "CONTENTS");
    const Status changed = Staged{}.open(device, catalog);
    REQUIRE_FALSE(changed);
    CHECK(changed.error().kind() == ErrorKind::mismatch);
    CHECK(changed.error().message().find("changed since the catalog was made") != std::string::npos);
}

}  // namespace staged_test
