// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/schedule_file.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/model/sample_schedule.hpp"
#include "tests/support/sealed.hpp"
#include "tests/support/temporary_folder.hpp"

namespace schedule_file_test {

using namespace residency;
using namespace std::chrono_literals;

namespace {

using sample_schedule::model;
using sample_schedule::parts;
using sample_schedule::sample;
/// A saved schedule with freely chosen contents.
struct Raw {
    std::uint32_t cycle = 0, steps = 2;
    std::vector<std::uint64_t> weight_offsets{0, 1, 3};
    std::vector<std::uint32_t> weights{0, 1, 2};
    std::vector<std::int64_t> compute_ns{5, -1};
    std::vector<std::uint64_t> name_offsets{0, 1, 2};
    std::string names = "ab";
    std::uint64_t changed_outline = 0;

    [[nodiscard]] std::vector<std::byte> bytes(const Catalog& catalog) const {
        ContainerWriter writer{ContainerKind::schedule, 2, catalog.hash()};
        SectionWriter& head = writer.section(section_tag("HEAD"));
        head.u32(cycle);
        head.u32(steps);
        SectionWriter& ids = writer.section(section_tag("WGTS"));
        ids.array(weight_offsets);
        ids.array(weights);
        writer.section(section_tag("TIME")).array(compute_ns);
        SectionWriter& text = writer.section(section_tag("NAME"));
        text.array(name_offsets);
        text.text(names);
        SectionWriter& outline = writer.section(section_tag("CTLG"));
        std::vector<std::uint64_t> hashes = catalog.outline()->names;
        hashes.front() ^= changed_outline;
        outline.array(hashes);
        outline.array(catalog.outline()->rest);
        return writer.finish();
    }
};

}  // namespace

TEST_CASE("a saved schedule loads equal, from bytes and from a file") {
    const Catalog catalog = model();
    const Schedule schedules[] = {sample(catalog), *ScheduleBuilder{catalog}.step({"head"}).try_build(Cycle::one_shot),
                                  *ScheduleBuilder{catalog}.step(std::span<const WeightId>{}, 1ms).try_build()};
    for (const Schedule& schedule : schedules) {
        const auto loaded = try_load_schedule(save(schedule), catalog);
        REQUIRE(loaded);
        CHECK(*loaded == schedule);
        CHECK(save(*loaded) == save(schedule));
        for (std::uint32_t i = 0; i < schedule.size(); ++i) {
            CHECK(loaded->storages(i).size() == schedule.storages(i).size());
        }
    }
    const test::TemporaryFolder folder;
    const std::string path = folder.path("model.schedule");
    REQUIRE(try_save_file(schedules[0], path).has_value());
    CHECK(*try_load_schedule_file(path, catalog) == schedules[0]);
    const auto absent = try_load_schedule_file(folder.path("absent"), catalog);
    CHECK(absent.error().kind() == ErrorKind::io);
    CHECK(absent.error().message().ends_with("cannot be opened: No such file or directory"));
    const auto unwritten = try_save_file(schedules[0], folder.path("no/folder"));
    CHECK(unwritten.error().kind() == ErrorKind::io);
    CHECK(unwritten.error().message().ends_with("cannot be opened for writing: No such file or directory"));
}

TEST_CASE("C2: a schedule saved for another catalog is refused, one with other sources and placements is not") {
    const Catalog catalog = model();
    const auto bytes = save(sample(catalog));
    const std::array<std::string_view, 1> names{"embed"};
    CHECK(try_load_schedule(bytes, *catalog.try_with_placement(names, Placement::host)).has_value());
    CatalogBuilder longer = parts();
    longer.add("more", dtype::u8, {1});
    CatalogBuilder shorter;
    shorter.add("embed", dtype::u8, {100});
    CatalogBuilder wider = parts();
    wider.add_storage(1);
    CatalogBuilder renamed, resized, moved;
    for (CatalogBuilder* other : {&renamed, &resized, &moved}) {
        if (other == &moved) { other->add("first", dtype::u8, {1}); }
        other->add("embed", dtype::u8, {100});
        other->add(other == &renamed ? "block.0" : "layer.0", dtype::u8, {other == &resized ? 31U : 30U});
    }
    const auto said = [&](CatalogBuilder& other) {
        const auto refused = try_load_schedule(bytes, *other.try_build());
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind() == ErrorKind::mismatch);
        return refused.error().message();
    };
    const std::string start = "schedule: the schedule was saved for another catalog: that one has 6 weights, this one ";
    CHECK(said(longer) == start + "7; that one lacks \"more\"");
    CHECK(said(shorter) == start + "1; those of this one are its first");
    CHECK(said(wider) == start + "6; their storages differ");
    CHECK(said(renamed) == start + "2; that one lacks \"block.0\"");
    CHECK(said(resized) == start + "2; \"layer.0\" has another type, shape or storage there");
    CHECK(said(moved) == start + "3; that one lacks \"first\"");
    CatalogBuilder swapped;
    swapped.add("layer.0", dtype::u8, {30});
    CHECK(said(swapped) == start + "1; \"layer.0\", weight 0 of this one, is weight 1 of that one");
}

TEST_CASE("a file that is no schedule is named as such") {
    const auto said = [](std::span<const std::byte> bytes) {
        return try_load_schedule(bytes, model(), "\"a.json\"").error().message();
    };
    const std::string text(100, '{');
    CHECK(said(std::as_bytes(std::span{text})) ==
          "\"a.json\" at byte 0: found other bytes, expected a file that Residency saved (schedule, plan, trace, "
          "program): this is none");
    const auto earlier = ContainerWriter{ContainerKind::schedule, 1, 0}.finish();
    CHECK(said(earlier) ==
          "\"a.json\": a schedule that an earlier version of the library saved, in version 1; save it again");
}

TEST_CASE("C7: every prefix and every changed byte of a saved schedule is refused") {
    const Catalog catalog = model();
    const auto good = save(sample(catalog));
    for (std::size_t size = 0; size < good.size(); ++size) {
        const std::vector<std::byte> prefix{good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)};
        REQUIRE_FALSE(try_load_schedule(prefix, catalog).has_value());
    }
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (const int mask : {0x01, 0x80, 0xff}) {
            auto changed = good;
            changed[at] ^= static_cast<std::byte>(mask);
            REQUIRE_FALSE(try_load_schedule(changed, catalog).has_value());
        }
    }
}

TEST_CASE("C7: damage under a right checksum is refused, or loads as a valid schedule") {
    const Catalog catalog = model();
    const Schedule schedule = sample(catalog);
    const auto good = save(schedule);
    std::uint32_t refused = 0;
    std::uint32_t accepted = 0;
    const auto check = [&](const std::vector<std::byte>& bytes) {
        const auto loaded = try_load_schedule(bytes, catalog);
        if (!loaded) {
            ++refused;
            return;
        }
        ++accepted;
        // A valid schedule has one saved form, so these bytes are it.
        REQUIRE(save(*loaded) == bytes);
        for (const auto& step : *loaded) {
            for (const WeightId id : step.weights) { REQUIRE(catalog.contains(id)); }
            for (const StorageId id : step.storages) { REQUIRE(catalog.contains(id)); }
        }
    };
    for (std::size_t at = 0; at + 8 < good.size(); ++at) {
        for (int value = 0; value < 256; value += at < 40 ? 1 : 5) {
            auto changed = good;
            changed[at] = static_cast<std::byte>(value);
            test::seal(changed);
            check(changed);
        }
    }
    constexpr std::uint32_t seed = 7;
    MESSAGE("seed ", seed);
    std::mt19937 engine{seed};
    const auto below = [&](std::size_t bound) { return static_cast<std::uint32_t>(engine() % bound); };
    for (int round = 0; round < 5000; ++round) {
        auto changed = good;
        for (std::uint32_t changes = 1 + below(5); changes-- > 0;) {
            changed[136 + below(changed.size() - 144)] = static_cast<std::byte>(below(8));
        }
        test::seal(changed);
        check(changed);
    }
    CHECK(refused > 1000);
    CHECK(accepted > 100);
}

TEST_CASE("C7: each rule of the contents is checked, with the place") {
    const Catalog catalog = model();
    REQUIRE(try_load_schedule(Raw{}.bytes(catalog), catalog).has_value());
    struct Row {
        std::string what;
        Raw raw;
        std::string_view message;
    };
    const Row rows[] = {
        {"cycle", {.cycle = 2}, "found cycle 2, expected 0 (cyclic) or 1 (one-shot)"},
        {"no steps", {.steps = 0}, "found 0 steps"},
        {"too many steps", {.steps = UINT32_MAX}, "found 4294967295 steps"},
        {"more steps than offsets", {.steps = 3}, "found 3 offsets, expected one more than the 3 steps"},
        {"fewer steps than offsets", {.steps = 1}, "found 3 offsets, expected one more than the 1 steps"},
        {"no offsets", {.weight_offsets = {}}, "found 0 offsets"},
        {"first offset", {.weight_offsets = {1, 1, 3}}, "offsets out of order"},
        {"last offset", {.weight_offsets = {0, 1, 2}}, "offsets out of order"},
        {"beyond", {.weight_offsets = {0, 4, 3}}, "offsets out of order"},
        {"unsorted", {.weight_offsets = {0, UINT64_MAX, 3}}, "offsets out of order"},
        {"a bad id", {.weights = {0, 1, 6}}, "found weight 6 in step 1, expected ids below 6"},
        {"twice in a step", {.weights = {0, 1, 1}}, "found weight 1 in step 1"},
        {"durations missing", {.compute_ns = {1}}, "found 1 durations, expected 2"},
        {"negative duration", {.compute_ns = {1, -2}}, "found a negative duration"},
        {"name offsets", {.name_offsets = {0, 3, 2}}, "offsets out of order"},
        {"names missing", {.names = "a"}, "offsets out of order"},
        {"other weights", {.changed_outline = 1}, "its weights are not those of the catalog that it names"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.what);
        const auto loaded = try_load_schedule(row.raw.bytes(catalog), catalog, "raw");
        REQUIRE_FALSE(loaded.has_value());
        CHECK(loaded.error().kind() == ErrorKind::malformed);
        REQUIRE(loaded.error().detail<FileLocation>() != nullptr);
        CHECK(loaded.error().detail<FileLocation>()->source == "raw");
        CAPTURE(loaded.error().message());
        CHECK(loaded.error().message().find(row.message) != std::string::npos);
    }
    const auto plan = ContainerWriter{ContainerKind::plan, 1, catalog.hash()}.finish();
    CHECK(try_load_schedule(plan, catalog).error().message().find("found a plan, expected a schedule") !=
          std::string::npos);
    const auto bare = ContainerWriter{ContainerKind::schedule, 2, catalog.hash()}.finish();
    CHECK(try_load_schedule(bare, catalog).error().message().find("found no section CTLG") != std::string::npos);
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("the throwing forms throw what the others return") {
    const Catalog catalog = model();
    const auto bytes = save(sample(catalog));
    CHECK(load_schedule(bytes, catalog) == sample(catalog));
    CHECK_THROWS_AS(static_cast<void>(load_schedule(bytes, Catalog{})), MismatchError);
    CHECK_THROWS_AS(static_cast<void>(load_schedule({}, catalog)), FormatError);
    CHECK_THROWS_AS(static_cast<void>(load_schedule_file("/no/such/file", catalog)), IoError);
}
#endif

}  // namespace schedule_file_test
