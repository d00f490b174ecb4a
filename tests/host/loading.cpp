// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/host/loading.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "../support/child.hpp"
#include "../support/files.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace loading_test {

using namespace residency;

namespace {

std::string random_bytes(std::mt19937& random, std::size_t bytes) {
    std::string text(bytes, '\0');
    for (char& c : text) { c = static_cast<char>(random()); }
    return text;
}

/// Storages at random places of a few files.
struct Model {
    support::TemporaryFolder folder;
    std::vector<std::string> contents;
    std::vector<std::string> expected;  ///< of each storage
    Catalog catalog;

    explicit Model(std::mt19937& random, std::size_t files = 3, std::size_t storages = 40,
                   std::size_t largest = 30000) {
        CatalogBuilder builder;
        std::vector<std::shared_ptr<const SourceFile>> sources;
        for (std::size_t f = 0; f < files; ++f) {
            contents.push_back(random_bytes(random, 4 * largest));
            const auto path = folder.write("file" + std::to_string(f), contents.back());
            sources.push_back(std::make_shared<const SourceFile>(SourceFile{path, contents.back().size()}));
        }
        for (std::size_t i = 0; i < storages; ++i) {
            const std::size_t file = random() % files;
            const std::size_t bytes = random() % 5 == 0 ? random() % 3 : random() % largest;
            const std::size_t offset = random() % (contents[file].size() - bytes);
            expected.push_back(contents[file].substr(offset, bytes));
            builder.add("w" + std::to_string(i), dtype::u8, {bytes}, FileSource{sources[file], offset});
        }
        catalog = builder.try_build().value();
    }
    void check(const Catalog& loaded, HostMemory kind) const {
        REQUIRE(loaded.hash() == catalog.hash());
        for (std::uint32_t i = 0; i < expected.size(); ++i) {
            const auto* source = std::get_if<HostSource>(&loaded.storage(StorageId{i}).source);
            REQUIRE(source != nullptr);
            CHECK(source->host->kind() == kind);
            const std::string got{reinterpret_cast<const char*>(source->host->data()) + source->offset_bytes,
                                  expected[i].size()};
            CHECK(got == expected[i]);
        }
    }
};

}  // namespace

TEST_CASE("loading: every byte arrives, whatever the threads and pieces, and is pinned") {
    const std::uint32_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random{seed};
    for (int round = 0; round < 20; ++round) {
        SimulatedDevice device{};
        const Model model{random};
        host::LoadOptions options;
        options.threads = 1 + random() % 8;
        options.read_bytes = std::uint64_t{4096} << random() % 5;
        options.order = {StorageId{7}, StorageId{3}, StorageId{7}};
        auto loaded = host::try_load(device, model.catalog, options);
        REQUIRE(loaded);
        CHECK(loaded->report.tier == host::Tier::pinned);
        CHECK(loaded->report.reason.empty());
        model.check(loaded->catalog, HostMemory::pinned);
        CHECK(device.device_view(loaded->catalog.host_bytes(StorageId{0})));
        loaded->catalog = {};
        CHECK(device.report_count() == 0);
    }
}

TEST_CASE("loading: the memory taken is that of the weights") {
    std::mt19937 random{1};
    const support::TemporaryFolder folder;
    const std::string bytes = random_bytes(random, 3'000'000);
    const auto file = std::make_shared<const SourceFile>(SourceFile{folder.write("f", bytes), bytes.size()});
    CatalogBuilder builder;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        builder.add("w" + std::to_string(i), dtype::u8, {3000}, FileSource{file, 3000 * i});
    }
    const auto catalog = builder.try_build().value();
    SimulatedDevice device{};
    const auto loaded = host::try_load(device, catalog);
    REQUIRE(loaded);
    CHECK(loaded->report.weight_bytes == bytes.size());
    CHECK(loaded->report.host_bytes == bytes.size());
    CHECK(reinterpret_cast<std::uintptr_t>(loaded->catalog.host_bytes(StorageId{0})) % host::Region::alignment_bytes ==
          0);
    CHECK(loaded->catalog.host_bytes(StorageId{999}) == loaded->catalog.host_bytes(StorageId{0}) + 999 * 3000);
}

TEST_CASE("loading: a file in pieces is loaded as if it were whole") {
    std::mt19937 random{2};
    const support::TemporaryFolder folder;
    const std::string bytes = random_bytes(random, 1'000'000);
    SourceFile whole{folder.file("0"), bytes.size()};
    constexpr std::size_t piece_bytes = 77'777;
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
        const std::string piece = bytes.substr(at, piece_bytes);
        whole.pieces.push_back({folder.write(std::to_string(whole.pieces.size()), piece), piece.size()});
    }
    const auto file = std::make_shared<const SourceFile>(whole);
    CatalogBuilder builder;
    for (std::uint64_t i = 0; i < 10; ++i) {
        builder.add("w" + std::to_string(i), dtype::u8, {100'000}, FileSource{file, 100'000 * i});
    }
    const Catalog catalog = builder.try_build().value();
    SimulatedDevice device{};
    const auto loaded = host::try_load(device, catalog);
    REQUIRE(loaded);
    for (std::uint32_t i = 0; i < 10; ++i) {
        CHECK(std::memcmp(loaded->catalog.host_bytes(StorageId{i}), bytes.data() + std::size_t{100'000} * i, 100'000) ==
              0);
    }
    folder.write("3", "shorter");
    const auto changed = host::try_load(device, catalog);
    REQUIRE_FALSE(changed);
    CHECK(changed.error().kind() == ErrorKind::mismatch);
    CHECK(changed.error().message().find(folder.file("3")) != std::string::npos);
}

namespace {

/// Notes which threads pin.
class PinningDevice : public SimulatedDevice {
public:
    Status pin(void* at, std::uint64_t bytes) {
        {
            const std::lock_guard lock{mutex};
            pinning.insert(std::this_thread::get_id());
        }
        return SimulatedDevice::pin(at, bytes);
    }
    std::mutex mutex;
    std::set<std::thread::id> pinning;
};

}  // namespace

TEST_CASE(
    "loading: large models lie in several blocks, each pinned by itself, and no two of them touch; who reads does not "
    "pin") {
    const support::TemporaryFolder folder;
    const std::uint64_t bytes = std::uint64_t{70} << 20;
    const auto path = folder.write("f", "");
    std::filesystem::resize_file(path, 3 * bytes);
    const auto file = std::make_shared<const SourceFile>(SourceFile{path, 3 * bytes});
    CatalogBuilder builder;
    for (std::uint64_t i = 0; i < 3; ++i) {
        builder.add("w" + std::to_string(i), dtype::u8, {bytes}, FileSource{file, bytes * i});
    }
    const auto catalog = builder.try_build().value();
    PinningDevice device;
    std::set<std::thread::id> reading;
    host::LoadOptions options;
    options.progress = [&](const host::LoadProgress& progress) {
        if (progress.loaded_bytes < progress.total_bytes) { reading.insert(std::this_thread::get_id()); }
        return true;
    };
    const auto loaded = host::try_load(device, catalog, options);
    REQUIRE(loaded);
    CHECK(loaded->report.host_bytes == 3 * bytes);
    CHECK(device.statistics().of(simulation::CallKind::pin) == 3);
    CHECK(device.pinning.size() == 1);
    CHECK(!reading.empty());
    for (const std::thread::id id : reading) { CHECK(!device.pinning.contains(id)); }
    for (std::uint32_t i = 0; i < 3; ++i) {
        for (std::uint32_t k = 0; k < 3; ++k) {
            CHECK(loaded->catalog.host_bytes(StorageId{i}) + bytes != loaded->catalog.host_bytes(StorageId{k}));
        }
    }
}

TEST_CASE("loading: one host copy serves several catalogs and outlives the loader") {
    std::mt19937 random{2};
    const Model model{random};
    SimulatedDevice device{};
    Catalog kept;
    {
        auto loading = host::Loading::try_start(device, model.catalog);
        REQUIRE(loading);
        REQUIRE((*loading)->wait());
        kept = (*loading)->catalog();
        CHECK((*loading)->is_pinned(StorageId{0}));
        CHECK((*loading)->progress().loaded_bytes == (*loading)->progress().total_bytes);
    }
    model.check(kept, HostMemory::pinned);
}

TEST_CASE("loading: storages become ready one by one, in the order asked for") {
    std::mt19937 random{3};
    const Model model{random, 1, 20, 60000};
    SimulatedDevice device{};
    host::LoadOptions options;
    options.threads = 1;
    options.read_bytes = 4096;
    auto loading = host::Loading::try_start(device, model.catalog, options);
    REQUIRE(loading);
    const Catalog catalog = (*loading)->catalog();
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) {
        REQUIRE((*loading)->wait(StorageId{i}));
        CHECK((*loading)->is_loaded(StorageId{i}));
        const auto& source = std::get<HostSource>(catalog.storage(StorageId{i}).source);
        CHECK(std::string{reinterpret_cast<const char*>(source.host->data()) + source.offset_bytes,
                          model.expected[i].size()} == model.expected[i]);
    }
    CHECK((*loading)->wait());
}

TEST_CASE("loading: the order of the schedule is that of loading, and of the memory") {
    std::mt19937 random{9};
    const support::TemporaryFolder folder;
    const std::string bytes = random_bytes(random, 40 * 10000);
    const auto file = std::make_shared<const SourceFile>(SourceFile{folder.write("f", bytes), bytes.size()});
    CatalogBuilder builder;
    for (std::uint64_t i = 0; i < 40; ++i) {
        builder.add("w" + std::to_string(i), dtype::u8, {10000}, FileSource{file, 10000 * i});
    }
    const Catalog catalog = builder.try_build().value();
    std::vector<std::uint32_t> steps(39);  // the last one is not read
    std::iota(steps.begin(), steps.end(), 0U);
    std::shuffle(steps.begin(), steps.end(), random);
    ScheduleBuilder schedule{catalog};
    for (const std::uint32_t step : steps) { schedule.step({WeightId{step}, WeightId{steps.front()}}); }
    SimulatedDevice device{};
    host::LoadOptions options;
    options.threads = 1;
    options.read_bytes = 4096;
    options.order = {StorageId{steps.back()}};
    options.schedule = schedule.try_build().value();
    std::vector<std::uint32_t> expected{steps.back()};
    expected.insert(expected.end(), steps.begin(), steps.end() - 1);
    expected.push_back(39);
    // Told after every piece: what is there by then is a beginning of the order.
    std::shared_ptr<host::Loading> loading;
    std::mutex mutex;
    std::uint64_t told = 0;
    options.progress = [&](const host::LoadProgress&) {
        const std::lock_guard lock{mutex};
        std::size_t there = 0;
        while (there < expected.size() && loading->is_loaded(StorageId{expected[there]})) { ++there; }
        for (std::size_t i = there; i < expected.size(); ++i) {
            // A piece may end in the next one of the file.
            if (expected[i] != expected[there > 0 ? there - 1 : 0] + 1) {
                CHECK_FALSE(loading->is_loaded(StorageId{expected[i]}));
            }
        }
        ++told;
        return true;
    };
    {
        const std::lock_guard lock{mutex};
        loading = host::Loading::try_start(device, catalog, options).value();
    }
    REQUIRE(loading->wait());
    CHECK(told > 40);
    for (std::size_t i = 1; i < expected.size(); ++i) {
        CHECK(loading->catalog().host_bytes(StorageId{expected[i]}) >
              loading->catalog().host_bytes(StorageId{expected[i - 1]}));
    }
    CatalogBuilder other;
    other.add("w", dtype::u8, {4}, FileSource{file, 0});
    CHECK(host::try_load(device, other.try_build().value(), options).error().kind() == ErrorKind::mismatch);
}

TEST_CASE("loading: pinned after loading, nothing is pinned before all is read, and all is then") {
    std::mt19937 random{10};
    const Model model{random, 2, 30, 100000};
    SimulatedDevice device{};
    host::LoadOptions options;
    options.threads = 2;
    options.read_bytes = 4096;
    options.pinning = host::Pinning::after_loading;
    std::uint64_t early = 0, told = 0;
    options.progress = [&](const host::LoadProgress& progress) {
        if (progress.loaded_bytes < progress.total_bytes) {
            early += device.statistics().of(simulation::CallKind::pin);
            ++told;
        }
        return true;
    };
    const auto loaded = host::try_load(device, model.catalog, options);
    REQUIRE(loaded);
    CHECK(told > 0);
    CHECK(early == 0);
    CHECK(device.statistics().of(simulation::CallKind::pin) > 0);
    CHECK(loaded->report.tier == host::Tier::pinned);
    model.check(loaded->catalog, HostMemory::pinned);
    device.fail(simulation::CallKind::pin, 1, ErrorKind::out_of_memory);
    options.tier = host::Tier::pinned;
    CHECK(host::try_load(device, model.catalog, options).error().kind() == ErrorKind::out_of_memory);
}

TEST_CASE("loading: the limits that bind are told with their numbers when memory cannot be pinned") {
    std::mt19937 random{11};
    const Model model{random};
    SimulatedDevice device{};
    host::LoadOptions options;
    options.limits = host::MemoryLimits{};
    options.limits->available_bytes = std::uint64_t{1} << 40;
    options.limits->locked_bytes = 65536;
    device.fail(simulation::CallKind::pin, 1, ErrorKind::out_of_memory);
    const auto pageable = host::try_load(device, model.catalog, options);
    REQUIRE(pageable);
    CHECK(pageable->report.tier == host::Tier::pageable);
    CHECK(pageable->report.reason.find("RLIMIT_MEMLOCK is 65,536 bytes (64 KiB)") != std::string::npos);
    CHECK(pageable->report.limits.locked_bytes == 65536);
    options.tier = host::Tier::pinned;
    device.fail(simulation::CallKind::pin, 1, ErrorKind::out_of_memory);
    const auto refused = host::try_load(device, model.catalog, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find("RLIMIT_MEMLOCK is 65,536 bytes (64 KiB)") != std::string::npos);
    // A limit on locked memory alone decides nothing: drivers need not count what they pin against it.
    options.limits->group_limit_bytes = 100;
    options.limits->group = "/some/group";
    const auto too_small = host::try_load(device, model.catalog, options);
    REQUIRE_FALSE(too_small);
    CHECK(too_small.error().message().find("/some/group has used 0 bytes of its limit of 100 bytes") !=
          std::string::npos);
    REQUIRE(too_small.error().detail<DeviceFailure>() != nullptr);
    CHECK(device.statistics().of(simulation::CallKind::pin) == 2);  // it was not tried
}

TEST_CASE("loading: progress is told, and can stop it") {
    std::mt19937 random{4};
    const Model model{random, 2, 30, 100000};
    SimulatedDevice device{};
    std::atomic<int> calls = 0;
    host::LoadOptions options;
    options.read_bytes = 4096;
    options.threads = 2;
    options.progress = [&](const host::LoadProgress& progress) {
        CHECK(progress.loaded_bytes > 0);
        ++calls;
        return true;
    };
    REQUIRE(host::try_load(device, model.catalog, options));
    CHECK(calls > 0);
    options.threads = 1;
    options.progress = [](const host::LoadProgress&) { return false; };
    const auto stopped = host::try_load(device, model.catalog, options);
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().kind() == ErrorKind::cancelled);
}

TEST_CASE("loading: limits that bind decide the tier, and are told with the numbers") {
    std::mt19937 random{5};
    const Model model{random};
    SimulatedDevice device{};
    host::LoadOptions options;
    options.limits = host::MemoryLimits{1000, 500, 100, "/some/group", 64};
    auto loading = host::Loading::try_start(device, model.catalog, options);
    REQUIRE(loading);
    REQUIRE((*loading)->wait());
    const auto report = (*loading)->report();
    CHECK(report.tier == host::Tier::file);
    CHECK(report.reason.find("/some/group") != std::string::npos);
    CHECK(report.reason.find("500") != std::string::npos);
    CHECK((*loading)->catalog() == model.catalog);
    for (const auto tier : {host::Tier::pinned, host::Tier::pageable}) {
        options.tier = tier;
        const auto refused = host::try_load(device, model.catalog, options);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::out_of_memory);
        CHECK(refused.error().message().find("RLIMIT_MEMLOCK is 64") != std::string::npos);
    }
    options.limits.reset();
    options.tier = host::Tier::pageable;
    const auto pageable = host::try_load(device, model.catalog, options);
    REQUIRE(pageable);
    CHECK(pageable->report.tier == host::Tier::pageable);
    model.check(pageable->catalog, HostMemory::pageable);
}

TEST_CASE("loading: memory that cannot be pinned is used as it is, or an error where pinned was asked for") {
    std::mt19937 random{6};
    const Model model{random};
    for (const bool insist : {false, true}) {
        SimulatedDevice device{};
        device.fail(simulation::CallKind::pin, 1, ErrorKind::out_of_memory);
        host::LoadOptions options;
        if (insist) { options.tier = host::Tier::pinned; }
        const auto loaded = host::try_load(device, model.catalog, options);
        REQUIRE(loaded.has_value() == !insist);
        if (insist) {
            CHECK(loaded.error().kind() == ErrorKind::out_of_memory);
            CHECK(loaded.error().message().find("RLIMIT_MEMLOCK") != std::string::npos);
        } else {
            CHECK(loaded->report.tier == host::Tier::pageable);
            CHECK_FALSE(loaded->report.reason.empty());
            model.check(loaded->catalog, HostMemory::pageable);
        }
    }
}

TEST_CASE("loading: an order that names what the catalog does not have is refused") {
    std::mt19937 random{8};
    const Model model{random};
    SimulatedDevice device{};
    host::LoadOptions options;
    options.order = {StorageId{3}, StorageId{40}};
    const auto loaded = host::try_load(device, model.catalog, options);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().kind() == ErrorKind::mismatch);
    CHECK(loaded.error().message() == "LoadOptions::order: the catalog of 40 storages has no storage 40");
}

#if RESIDENCY_ASSERTIONS
TEST_CASE("loading: a device that ends before what it pinned, and an id of another catalog, are told so") {
    std::mt19937 random{7};
    const Model model{random};
    const auto early = child::run([&] {
        auto device = std::make_unique<SimulatedDevice>();
        const auto loaded = host::try_load(*device, model.catalog);
        REQUIRE(loaded);
        device.reset();
    });
    CHECK(early.aborted);
    CHECK_MESSAGE(early.text.find("every catalog whose bytes it pinned") != std::string::npos, early.text);
    const auto strange = child::run([&] {
        SimulatedDevice device{};
        const auto loading = host::Loading::try_start(device, model.catalog);
        REQUIRE(loading);
        static_cast<void>((*loading)->is_loaded(StorageId{1000000}));
    });
    CHECK(strange.aborted);
    CHECK_MESSAGE(strange.text.find("a storage of the catalog") != std::string::npos, strange.text);
}
#endif

TEST_CASE("loading: files that are gone, or not the ones that the catalog was made from, are errors") {
    std::mt19937 random{7};
    SimulatedDevice device{};
    {
        const Model model{random};
        support::write_all(model.folder.file("file1"), "short");
        const auto loaded = host::try_load(device, model.catalog);
        REQUIRE_FALSE(loaded);
        CHECK(loaded.error().kind() == ErrorKind::mismatch);
        CHECK(loaded.error().message().find("file1") != std::string::npos);
    }
    {
        const Model model{random};
        std::filesystem::remove(model.folder.file("file1"));
        CHECK(host::try_load(device, model.catalog).error().kind() == ErrorKind::io);
    }
    CatalogBuilder builder;
    builder.add("w", dtype::u8, {4});
    CHECK(host::try_load(device, builder.try_build().value()).error().kind() == ErrorKind::unsupported);
    CHECK(host::try_load(device, Catalog{}));
}

TEST_CASE("loading: a file that shrinks or is written to while it is read is an error") {
    std::mt19937 random{8};
    const support::TemporaryFolder folder;
    const std::string bytes = random_bytes(random, 100000);
    const SourceFile source{folder.write("f", bytes), bytes.size()};
    std::vector<std::byte> out(1000);
    for (const auto access : {host::FileAccess::cached, host::FileAccess::direct}) {
        support::write_all(source.path, bytes);
        auto file = host::WeightFile::try_open(source, access);
        REQUIRE(file);
        auto region = host::Region::try_map(1 << 20, true);
        REQUIRE(region);
        CHECK(file->try_read(4096, (*region)->span().first(8192)));
        CHECK(file->try_read(98304, (*region)->span().first(4096), 1696));
        CHECK(std::string{reinterpret_cast<const char*>((*region)->data()), 1696} == bytes.substr(98304, 1696));
        std::filesystem::resize_file(source.path, 50000);
        const auto beyond = file->try_read(65536, (*region)->span().first(4096));
        REQUIRE_FALSE(beyond);
        CHECK(beyond.error().kind() == ErrorKind::io);
        CHECK(beyond.error().message().find("changed while it was in use") != std::string::npos);
        CHECK_FALSE(file->try_read(0, (*region)->span().first(4096)));
        support::write_all(source.path, bytes);
        std::filesystem::last_write_time(source.path,
                                         std::filesystem::file_time_type::clock::now() + std::chrono::hours{1});
        const auto touched = file->try_read(0, (*region)->span().first(4096));
        REQUIRE_FALSE(touched);
        CHECK(touched.error().message().find("written to") != std::string::npos);
    }
}

}  // namespace loading_test
