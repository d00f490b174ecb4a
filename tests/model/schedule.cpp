// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/schedule.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/stable_hash.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace residency;
using namespace std::chrono_literals;

static_assert(std::regular<Schedule>);
static_assert(std::is_nothrow_copy_constructible_v<Schedule>);

namespace {

CatalogBuilder parts() {
    CatalogBuilder builder;
    builder.add("embed", dtype::u8, {100});
    builder.add("layer.0", dtype::u8, {30});
    builder.add("layer.1", dtype::u8, {40});
    builder.tie("head", "embed");
    builder.add("empty", dtype::u8, {0});
    builder.add("state", dtype::u8, {1000}, {}, true);
    return builder;
}
Catalog model() { return *parts().try_build(); }
Schedule sample(const Catalog& catalog) {
    return *ScheduleBuilder{catalog}
                .step({"embed"}, 10us, "in")
                .step({"layer.0", "state"})
                .step({"layer.0", "layer.1", "empty"}, 0ns, "mid")
                .step({"head", "embed"}, 3ns)
                .try_build();
}
/// Puts the right checksum at the end again.
void seal(std::vector<std::byte>& bytes) {
    const std::size_t end = bytes.size() - 8;
    StableHash hash;
    hash.bytes(std::span{bytes}.first(end));
    for (std::size_t i = 0; i < 8; ++i) { bytes[end + i] = static_cast<std::byte>(hash.value() >> (8 * i) & 0xff); }
}

/// A saved schedule with freely chosen contents.
struct Raw {
    std::uint32_t cycle = 0, steps = 2;
    std::vector<std::uint64_t> weight_offsets{0, 1, 3};
    std::vector<std::uint32_t> weights{0, 1, 2};
    std::vector<std::int64_t> compute_ns{5, -1};
    std::vector<std::uint64_t> name_offsets{0, 1, 2};
    std::string names = "ab";

    [[nodiscard]] std::vector<std::byte> bytes(std::uint64_t catalog_hash) const {
        ContainerWriter writer{ContainerKind::schedule, 1, catalog_hash};
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
        return writer.finish();
    }
};

}  // namespace

TEST_CASE("an empty schedule") {
    const Schedule none;
    CHECK(none.empty());
    CHECK(none.size() == 0);
    CHECK(none.begin() == none.end());
    CHECK(none.catalog_hash() == 0);
    CHECK(none == Schedule{});
    CHECK(none != sample(model()));
    CHECK(none.largest_step_bytes(Catalog{}, [](std::uint64_t bytes) { return bytes; }).step == UINT32_MAX);
    CHECK(none.try_with_compute({})->empty());
}

TEST_CASE("steps can be walked, and outlive the handle they came from") {
    const Catalog catalog = model();
    Schedule copy;
    {
        const Schedule schedule = sample(catalog);
        copy = schedule;
    }
    CHECK(copy.catalog_hash() == catalog.hash());
    CHECK(copy.storage_count() == 5);
    std::uint32_t position = 0;
    std::string names;
    for (const auto& step : copy) {
        CHECK(step.position == position++);
        names += step.name;
        names += ',';
    }
    CHECK(names == "in,,mid,,");
    CHECK(copy.storages(3).size() == 1);
}

TEST_CASE("equality is that of the contents") {
    const Catalog catalog = model();
    const auto build = [&](std::string_view first, ScheduleBuilder::Compute compute, std::string_view name,
                           Cycle cycle) {
        return *ScheduleBuilder{catalog}.step({first}, compute, name).try_build(cycle);
    };
    const Schedule base = build("embed", 1ns, "x", Cycle::cyclic);
    CHECK(base == build("embed", 1ns, "x", Cycle::cyclic));
    CHECK(base != build("head", 1ns, "x", Cycle::cyclic));
    CHECK(base != build("embed", 2ns, "x", Cycle::cyclic));
    CHECK(base != build("embed", std::nullopt, "x", Cycle::cyclic));
    CHECK(base != build("embed", 1ns, "y", Cycle::cyclic));
    CHECK(base != build("embed", 1ns, "x", Cycle::one_shot));
    CatalogBuilder other = parts();
    other.add("more", dtype::u8, {1});
    CHECK(base != *ScheduleBuilder{*other.try_build()}.step({"embed"}, 1ns, "x").try_build());
}

TEST_CASE("durations can be replaced") {
    const Schedule schedule = sample(model());
    const std::array<std::chrono::nanoseconds, 4> compute{1ns, 2ns, 3ns, 4ns};
    const auto timed = schedule.try_with_compute(compute);
    REQUIRE(timed);
    for (std::uint32_t i = 0; i < 4; ++i) {
        CHECK((*timed)[i].compute == compute[i]);
        CHECK((*timed)[i].name == schedule[i].name);
        CHECK((*timed)[i].weights.size() == schedule[i].weights.size());
        CHECK((*timed)[i].storages.size() == schedule[i].storages.size());
    }
    CHECK_FALSE(schedule[1].compute.has_value());
    CHECK(schedule.try_with_compute(std::span{compute}.first(3)).error().message() ==
          "3 durations for a schedule of 4 steps");
    const std::array<std::chrono::nanoseconds, 4> negative{1ns, 2ns, -3ns, 4ns};
    CHECK(schedule.try_with_compute(negative).error().message() == "step 2: a negative duration");
}

TEST_CASE("a run's record becomes a schedule") {
    const Catalog catalog = model();
    const std::vector<StepRecord> records{{{WeightId{0}, WeightId{0}}, 10us, "in"},
                                          {{WeightId{1}, WeightId{2}}, std::nullopt, {}}};
    const auto schedule = Schedule::try_recorded(catalog, records, Cycle::one_shot);
    REQUIRE(schedule);
    CHECK(
        *schedule ==
        *ScheduleBuilder{catalog}.step({"embed"}, 10us, "in").step({"layer.0", "layer.1"}).try_build(Cycle::one_shot));
    const std::vector<StepRecord> bad{records[0], {{WeightId{9}}, std::nullopt, {}}};
    CHECK(Schedule::try_recorded(catalog, bad).error().message() == "step 1: the catalog of 6 weights has no weight 9");
    CHECK_FALSE(Schedule::try_recorded(catalog, {}).has_value());
}

TEST_CASE("the largest step counts streamed storages once, each rounded") {
    const Catalog catalog = model();
    const Schedule schedule = sample(catalog);
    const auto exact = [](std::uint64_t bytes) { return bytes; };
    const auto by_64 = [](std::uint64_t bytes) {
        CHECK(bytes != 0);
        return (bytes + 63) / 64 * 64;
    };
    StepBytes largest = schedule.largest_step_bytes(catalog, exact);
    CHECK(largest.bytes == 100);
    CHECK(largest.step == 0);
    largest = schedule.largest_step_bytes(catalog, by_64);
    CHECK(largest.bytes == 128);
    CHECK(largest.step == 0);
    const std::array<std::string_view, 1> names{"head"};
    largest = schedule.largest_step_bytes(*catalog.try_with_placement(names, Placement::resident), exact);
    CHECK(largest.bytes == 70);
    CHECK(largest.step == 2);
    largest = schedule.largest_step_bytes(*catalog.try_with_placement(names, Placement::host),
                                          [](std::uint64_t) { return UINT64_MAX; });
    CHECK(largest.bytes == UINT64_MAX);
    const std::array<std::string_view, 3> all{"head", "layer.0", "layer.1"};
    largest = schedule.largest_step_bytes(*catalog.try_with_placement(all, Placement::resident), exact);
    CHECK(largest.bytes == 0);
    CHECK(largest.step == UINT32_MAX);
}

TEST_CASE("a saved schedule loads equal, from bytes and from a file") {
    const Catalog catalog = model();
    const Schedule schedules[] = {sample(catalog), *ScheduleBuilder{catalog}.step({"head"}).try_build(Cycle::one_shot),
                                  *ScheduleBuilder{catalog}.step(std::span<const WeightId>{}).try_build()};
    for (const Schedule& schedule : schedules) {
        const auto loaded = Schedule::try_load(schedule.save(), catalog);
        REQUIRE(loaded);
        CHECK(*loaded == schedule);
        CHECK(loaded->save() == schedule.save());
        for (std::uint32_t i = 0; i < schedule.size(); ++i) {
            CHECK(loaded->storages(i).size() == schedule.storages(i).size());
        }
    }
    const test::TemporaryFolder folder;
    const std::string path = folder.path("model.schedule");
    REQUIRE(schedules[0].try_save_file(path).has_value());
    CHECK(*Schedule::try_load_file(path, catalog) == schedules[0]);
    CHECK(Schedule::try_load_file(folder.path("absent"), catalog).error().kind() == ErrorKind::io);
    CHECK(schedules[0].try_save_file(folder.path("no/folder")).error().kind() == ErrorKind::io);
}

TEST_CASE("C2: a schedule saved for another catalog is refused, one with other sources and placements is not") {
    const Catalog catalog = model();
    const auto bytes = sample(catalog).save();
    const std::array<std::string_view, 1> names{"embed"};
    CHECK(Schedule::try_load(bytes, *catalog.try_with_placement(names, Placement::host)).has_value());
    CatalogBuilder other = parts();
    other.add("more", dtype::u8, {1});
    const auto refused = Schedule::try_load(bytes, *other.try_build());
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().kind() == ErrorKind::mismatch);
    CHECK(refused.error().message().find("made for the catalog with hash " + std::to_string(catalog.hash())) !=
          std::string::npos);
}

TEST_CASE("C7: every prefix and every changed byte of a saved schedule is refused") {
    const Catalog catalog = model();
    const auto good = sample(catalog).save();
    for (std::size_t size = 0; size < good.size(); ++size) {
        const std::vector<std::byte> prefix{good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)};
        REQUIRE_FALSE(Schedule::try_load(prefix, catalog).has_value());
    }
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (const int mask : {0x01, 0x80, 0xff}) {
            auto changed = good;
            changed[at] ^= static_cast<std::byte>(mask);
            REQUIRE_FALSE(Schedule::try_load(changed, catalog).has_value());
        }
    }
}

TEST_CASE("C7: damage under a right checksum is refused, or loads as a valid schedule") {
    const Catalog catalog = model();
    const Schedule schedule = sample(catalog);
    const auto good = schedule.save();
    std::uint32_t refused = 0;
    std::uint32_t accepted = 0;
    const auto check = [&](const std::vector<std::byte>& bytes) {
        const auto loaded = Schedule::try_load(bytes, catalog);
        if (!loaded) {
            ++refused;
            return;
        }
        ++accepted;
        // A valid schedule has one saved form, so these bytes are it.
        REQUIRE(loaded->save() == bytes);
        for (const auto& step : *loaded) {
            for (const WeightId id : step.weights) { REQUIRE(catalog.contains(id)); }
            for (const StorageId id : step.storages) { REQUIRE(catalog.contains(id)); }
        }
    };
    for (std::size_t at = 0; at + 8 < good.size(); ++at) {
        for (int value = 0; value < 256; value += at < 40 ? 1 : 5) {
            auto changed = good;
            changed[at] = static_cast<std::byte>(value);
            seal(changed);
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
        seal(changed);
        check(changed);
    }
    CHECK(refused > 1000);
    CHECK(accepted > 100);
}

TEST_CASE("C7: each rule of the contents is checked, with the place") {
    const Catalog catalog = model();
    REQUIRE(Schedule::try_load(Raw{}.bytes(catalog.hash()), catalog).has_value());
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
    };
    for (const Row& row : rows) {
        CAPTURE(row.what);
        const auto loaded = Schedule::try_load(row.raw.bytes(catalog.hash()), catalog, "raw");
        REQUIRE_FALSE(loaded.has_value());
        CHECK(loaded.error().kind() == ErrorKind::malformed);
        REQUIRE(loaded.error().detail<Place>() != nullptr);
        CHECK(loaded.error().detail<Place>()->source == "raw");
        CAPTURE(loaded.error().message());
        CHECK(loaded.error().message().find(row.message) != std::string::npos);
    }
    const auto plan = ContainerWriter{ContainerKind::plan, 1, catalog.hash()}.finish();
    CHECK(Schedule::try_load(plan, catalog).error().message().find("found a plan, expected a schedule") !=
          std::string::npos);
    const auto bare = ContainerWriter{ContainerKind::schedule, 1, catalog.hash()}.finish();
    CHECK(Schedule::try_load(bare, catalog).error().message().find("found no section HEAD") != std::string::npos);
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("the throwing forms throw what the others return") {
    const Catalog catalog = model();
    const auto bytes = sample(catalog).save();
    CHECK(Schedule::load(bytes, catalog) == sample(catalog));
    CHECK_THROWS_AS(static_cast<void>(Schedule::load(bytes, Catalog{})), MismatchError);
    CHECK_THROWS_AS(static_cast<void>(Schedule::load({}, catalog)), FormatError);
    CHECK_THROWS_AS(static_cast<void>(Schedule::load_file("/no/such/file", catalog)), IoError);
    CHECK_THROWS_AS(static_cast<void>(ScheduleBuilder{catalog}.build()), InvalidArgument);
}
#endif
