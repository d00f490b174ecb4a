// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/budget/budget.hpp"

#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>

#include "residency/model/quoted.hpp"

namespace budget_test {

using namespace residency;

static_assert(std::regular<Budget>);
static_assert(std::is_trivially_copyable_v<Budget>);
static_assert(Budget{} == Budget::automatic());
// A fraction is no whole per cent: it is not cut off.
template <class Percent>
concept IsPercent = requires(Percent percent) {
    Budget::percent_of_weights(percent);
    Budget::percent_of_free(percent);
};
static_assert(IsPercent<std::uint64_t> && IsPercent<int> && !IsPercent<double> && !IsPercent<float>);
static_assert(Budget::bytes(60) != Budget::percent_of_weights(60));

namespace {

/// 900 bytes streamed, 100 resident; step 3 needs 200.
BudgetContext model() {
    BudgetContext context;
    context.streamed_bytes = 900;
    context.resident_bytes = 100;
    context.floor_bytes = 300;
    context.floor_step = 3;
    context.floor_step_name = "layer.3";
    context.free_device_bytes = 2000;
    return context;
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("well-formed text") {
    struct Row {
        std::string_view text;
        Budget budget;
        std::string_view canonical;
    };
    const Row rows[] = {
        {"0", Budget::bytes(0), "0"},
        {"1", Budget::bytes(1), "1"},
        {"007", Budget::bytes(7), "7"},
        {"8589934592", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"18446744073709551615", Budget::bytes(UINT64_MAX), "18446744073709551615"},
        {"8GiB", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"1024MiB", Budget::bytes(std::uint64_t{1} << 30), "1GiB"},
        {"3KiB", Budget::bytes(3072), "3KiB"},
        {"1000KiB", Budget::bytes(1024000), "1000KiB"},
        {"1000000KiB", Budget::bytes(1024000000), "1024MB"},
        {"2TiB", Budget::bytes(std::uint64_t{2} << 40), "2TiB"},
        {"16777215TiB", Budget::bytes(std::uint64_t{16777215} << 40), "16777215TiB"},
        {"0GiB", Budget::bytes(0), "0"},
        {"8500MB", Budget::bytes(8500000000), "8500MB"},
        {"3kB", Budget::bytes(3000), "3kB"},
        {"7GB", Budget::bytes(7000000000), "7GB"},
        {"1TB", Budget::bytes(1000000000000), "1TB"},
        {"60%", Budget::percent_of_weights(60), "60%"},
        {"0%", Budget::percent_of_weights(0), "0%"},
        {"250%", Budget::percent_of_weights(250), "250%"},
        {"60%free", Budget::percent_of_free(60), "60%free"},
        {"100%free", Budget::percent_of_free(100), "100%free"},
        {"auto", Budget::automatic(), "auto"},
        // A letter is a power of 1024, as Docker, systemd and Slurm have it; with B it is one of 1000.
        {"8G", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"8K", Budget::bytes(8192), "8KiB"},
        {"8M", Budget::bytes(std::uint64_t{8} << 20), "8MiB"},
        {"8T", Budget::bytes(std::uint64_t{8} << 40), "8TiB"},
        {"8g", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"8GB", Budget::bytes(8000000000), "8GB"},
        {"8KB", Budget::bytes(8000), "8kB"},
        // upper and lower case
        {"8gib", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"8GIB", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"8Gib", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"8kib", Budget::bytes(8192), "8KiB"},
        {"8kb", Budget::bytes(8000), "8kB"},
        {"7gb", Budget::bytes(7000000000), "7GB"},
        {"60%FREE", Budget::percent_of_free(60), "60%free"},
        // one blank before the unit
        {"8 GiB", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"8 g", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"60 %", Budget::percent_of_weights(60), "60%"},
        {"60 %free", Budget::percent_of_free(60), "60%free"},
        // points; rounded down to bytes
        {"1.5GiB", Budget::bytes(std::uint64_t{3} << 29), "1536MiB"},
        {"1.50 GiB", Budget::bytes(std::uint64_t{3} << 29), "1536MiB"},
        {"0.5G", Budget::bytes(std::uint64_t{1} << 29), "512MiB"},
        {"8.0GiB", Budget::bytes(std::uint64_t{8} << 30), "8GiB"},
        {"0.001kB", Budget::bytes(1), "1"},
        {"0.0019kB", Budget::bytes(1), "1"},
        {"0.1KiB", Budget::bytes(102), "102"},
        {"1.000001kB", Budget::bytes(1000), "1kB"},
        {"0.000001TiB", Budget::bytes(1099511), "1099511"},
        {"16777215.999999TiB", Budget::bytes((std::uint64_t{16777215} << 40) + 1099510528264), "18446744073708452104"},
        {"0.0GiB", Budget::bytes(0), "0"},
        {"12.5%", Budget::percent_of_weights(12, 500000), "12.5%"},
        {"12.500%", Budget::percent_of_weights(12, 500000), "12.5%"},
        {"0.5%", Budget::percent_of_weights(0, 500000), "0.5%"},
        {"0.000001%", Budget::percent_of_weights(0, 1), "0.000001%"},
        {"99.999999%free", Budget::percent_of_free(99, 999999), "99.999999%free"},
        {"0.0%", Budget::percent_of_weights(0), "0%"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto parsed = Budget::try_parse(row.text);
        REQUIRE(parsed);
        CHECK(*parsed == row.budget);
        CHECK(parsed->text() == row.canonical);
        CHECK(*Budget::try_parse(parsed->text()) == row.budget);
    }
}

TEST_CASE("C10: malformed text is an error with its place, never ignored") {
    struct Row {
        std::string_view text;
        std::uint64_t place;
        std::string_view message;
    };
    using namespace std::string_view_literals;
    const Row rows[] = {
        // empty, and spaces
        {"", 0, "found the end, expected digits, or auto"},
        {" ", 0, "found \" \""},
        {" 8", 0, "found \" 8\""},
        {"8 ", 1, "found \" \""},
        {"8  GiB", 1, "found \"  GiB\""},
        {"8\tGiB", 1, "found \"\\x09GiB\""},
        {"8 GiB ", 1, "found \" GiB \""},
        {"1. 5GiB", 2, "found \" 5GiB\", expected a digit after the point"},
        {"8\n", 1, "found \"\\x0a\""},
        {"\t8", 0, "found \"\\x098\""},
        {"60  %", 2, "found \"  %\""},
        {"60% free", 2, "found \"% free\""},
        {" auto", 0, "found \" auto\""},
        {"auto ", 0, "found \"auto \""},
        // signs
        {"-1", 0, "no budget is negative"},
        {"-2", 0, "no budget is negative"},
        {"-0", 0, "no budget is negative"},
        {"-8GiB", 0, "no budget is negative"},
        {"+8", 0, "found \"+8\""},
        {"8-", 1, "found \"-\""},
        {"\xe2\x88\x92"
         "8",
         0, "expected digits"},
        // other notations
        {"0x10", 1, "found \"x10\""},
        {"1e9", 1, "found \"e9\""},
        {"8.5", 3, "found the end, expected a unit after a number with a point"},
        {"8.5.5GiB", 3, "found \".5GiB\""},
        {"8.GiB", 2, "found \"GiB\", expected a digit after the point"},
        {"8.", 2, "found the end, expected a digit after the point"},
        {"8.1234567GiB", 8, "found \"7GiB\", expected at most 6 digits after the point"},
        {"8.0000000%", 8, "found \"0%\", expected at most 6 digits after the point"},
        {"1.5e3%", 3, "found \"e3%\""},
        {"0.0001kB", 0, "found less than one byte"},
        {"8,5GiB", 1, "found \",5GiB\""},
        {"1_000", 1, "found \"_000\""},
        {"1'000", 1, "found \"'000\""},
        {".5", 0, "expected digits"},
        {"\xd9\xa8", 0, "expected digits"},
        {"inf", 0, "expected digits"},
        {"nan", 0, "expected digits"},
        // units: another case, another unit, none, twice
        {"8B", 1, "found \"B\", expected the end, or a unit"},
        {"8Gi", 1, "found \"Gi\""},
        {"8Gbit", 1, "found \"Gbit\""},
        {"8P", 1, "found \"P\""},
        {"8GiB\xcc\x80", 1, "found \"GiB"},
        {"8\xe2\x80\x8bGiB", 1, "expected the end, or a unit"},
        {"8PiB", 1, "found \"PiB\""},
        {"8GiBs", 1, "found \"GiBs\""},
        {"8GiBGiB", 1, "found \"GiBGiB\""},
        {"GiB", 0, "expected digits"},
        // percentages
        {"%", 0, "expected digits"},
        {"%free", 0, "expected digits"},
        {"60%%", 2, "found \"%%\""},
        {"60% Free", 2, "found \"% Free\""},
        {"100.000001%free", 0, "found 100.000001%free, expected at most 100%free"},
        {"60%freeze", 2, "found \"%freeze\""},
        {"60percent", 2, "found \"percent\""},
        {"101%free", 0, "found 101%free, expected at most 100%free"},
        // auto
        {"AUTO", 0, "expected digits"},
        {"Auto", 0, "expected digits"},
        {"automatic", 0, "expected digits"},
        {"auto\0"sv, 0, "expected digits"},
        // NUL and trailing text
        {"\0"sv, 0, "found \"\\x00\""},
        {"8\0"sv, 1, "found \"\\x00\""},
        {"8GiB\0"sv, 1, "found \"GiB\\x00\""},
        {"8GiB;", 1, "found \"GiB;\""},
        {"8GiB 9GiB", 1, "found \"GiB 9GiB\""},
        // overflow
        {"18446744073709551616", 0, "found a number beyond 64 bits"},
        {"18446744073709551620", 0, "found a number beyond 64 bits"},
        {"99999999999999999999999", 0, "found a number beyond 64 bits"},
        {"16777216TiB", 0, "found a number of bytes beyond 64 bits"},
        {"18446744073709551615KiB", 0, "found a number of bytes beyond 64 bits"},
        {"18446744073709552kB", 0, "found a number of bytes beyond 64 bits"},
        {"16777216.0TiB", 0, "found a number of bytes beyond 64 bits"},
        {"18446744073709551.616kB", 0, "found a number of bytes beyond 64 bits"},
        {"99999999999999999999%", 0, "found a number beyond 64 bits"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto parsed = Budget::try_parse(row.text);
        REQUIRE_FALSE(parsed.has_value());
        CHECK(parsed.error().kind() == ErrorKind::malformed);
        CAPTURE(parsed.error().message());
        CHECK(contains(parsed.error().message(), row.message));
        CHECK(contains(parsed.error().message(), "budget " + detail::quoted(row.text) + " at byte "));
        REQUIRE(parsed.error().detail<FileLocation>() != nullptr);
        CHECK(parsed.error().detail<FileLocation>()->offset == row.place);
    }
}

TEST_CASE("random budgets come back from their text") {
    constexpr std::uint64_t seed = 3;
    MESSAGE("seed ", seed);
    std::mt19937_64 engine{seed};
    for (int round = 0; round < 2000; ++round) {
        const std::uint64_t amount = engine() >> (engine() % 64) << (engine() % 2 * 10);
        CAPTURE(amount);
        for (const Budget budget :
             {Budget::bytes(amount), Budget::percent_of_weights(amount), Budget::percent_of_free(amount % 101),
              Budget::percent_of_weights(amount, static_cast<std::uint32_t>(engine() % 1000000)),
              Budget::percent_of_free(amount % 100, static_cast<std::uint32_t>(engine() % 1000000))}) {
            REQUIRE(*Budget::try_parse(budget.text()) == budget);
        }
    }
}

TEST_CASE("a share is exact, rounded down, and does not overflow") {
    CHECK(Budget::percent_of_weights(12, 500000).share_of(1000) == 125);
    CHECK(Budget::percent_of_weights(0, 1).share_of(99999999) == 0);
    CHECK(Budget::percent_of_weights(0, 1).share_of(100000000) == 1);
    CHECK(Budget::percent_of_weights(33, 333333).share_of(300) == 99);
    CHECK(Budget::percent_of_weights(50, 500000).share_of(199) == 100);  // 100.495: the parts alone are 99.5 and 0.995
    CHECK(Budget::percent_of_free(99, 999999).share_of(UINT64_MAX) == 18446743889242110877U);
    CHECK(Budget::percent_of_weights(100).share_of(UINT64_MAX) == UINT64_MAX);
    CHECK(Budget::percent_of_weights(100, 1).share_of(UINT64_MAX) == UINT64_MAX);
    CHECK(Budget::percent_of_weights(UINT64_MAX, 999999).share_of(UINT64_MAX) == UINT64_MAX);
    constexpr std::uint64_t seed = 4;
    MESSAGE("seed ", seed);
    std::mt19937_64 engine{seed};
    for (int round = 0; round < 2000; ++round) {  // small enough for 64 bits at once
        const std::uint64_t whole = engine() % 10000000000U;
        const auto millionths = static_cast<std::uint32_t>(engine() % 1000000);
        const std::uint64_t percent = engine() % 1000;
        CAPTURE(whole);
        CAPTURE(percent);
        CAPTURE(millionths);
        REQUIRE(Budget::percent_of_weights(percent, millionths).share_of(whole) ==
                whole * (percent * 1000000 + millionths) / 100000000);
    }
}

TEST_CASE("a share that rounds to nothing is not the zero that asks for the floor") {
    for (const char* text : {"0.0001%", "0.0001%free"}) {
        const auto resolved = Budget::try_parse(text)->try_resolve(model());
        REQUIRE_FALSE(resolved);
        CHECK(contains(resolved.error().message(), "below the smallest that works, 300 bytes"));
    }
}

TEST_CASE("C9 to C12: what a budget becomes") {
    struct Row {
        std::string_view text;
        std::uint64_t bytes, asked_bytes;
        BudgetAdjustment adjustment;
        bool streaming;
    };
    using enum BudgetAdjustment;
    const Row rows[] = {
        {"300", 300, 300, none, true},  // the floor
        {"301", 301, 301, none, true},
        {"999", 999, 999, none, true},                  // one below the total
        {"1000", 1000, 1000, none, false},              // the total
        {"1001", 1000, 1001, clamped_to_total, false},  // one above
        {"8GiB", 1000, std::uint64_t{8} << 30, clamped_to_total, false},
        {"18446744073709551615", 1000, UINT64_MAX, clamped_to_total, false},
        {"0", 300, 0, zero_to_floor, true},
        {"0GiB", 300, 0, zero_to_floor, true},
        {"0%", 300, 0, zero_to_floor, true},
        {"0%free", 300, 0, zero_to_floor, true},
        {"30%", 300, 300, none, true},
        {"60%", 600, 600, none, true},
        {"100%", 1000, 1000, none, false},
        {"101%", 1000, 1010, clamped_to_total, false},
        {"60.25%", 602, 602, none, true},
        {"18446744073709551615%", 1000, UINT64_MAX, clamped_to_total, false},
        {"20%free", 400, 400, none, true},
        {"50%free", 1000, 1000, none, false},
        {"100%free", 1000, 2000, clamped_to_total, false},
        {"auto", 1000, 2000, clamped_to_total, false},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto resolved = Budget::try_parse(row.text)->try_resolve(model());
        REQUIRE(resolved);
        CHECK(resolved->bytes == row.bytes);
        CHECK(resolved->asked_bytes == row.asked_bytes);
        CHECK(resolved->adjustment == row.adjustment);
        CHECK(resolved->is_clamped() == (row.adjustment == clamped_to_total));
        CHECK(resolved->is_streaming() == row.streaming);
        CHECK(resolved->floor_bytes == 300);
        CHECK(resolved->total_bytes == 1000);
        CHECK(resolved->origin == BudgetOrigin::load_time);
        CHECK(contains(resolved->text, "the load-time budget " + Budget::try_parse(row.text)->text()));
        CHECK(contains(resolved->text, "everything is resident") == !row.streaming);
    }
}

TEST_CASE("C9: an explicit budget below the floor is refused with the numbers") {
    for (const std::string_view text : {"299", "1", "29%", "1%", "14%free", "0%free"}) {
        CAPTURE(text);
        const auto resolved = Budget::try_parse(text)->try_resolve(model());
        CHECK(resolved.has_value() == (text == "0%free"));
        if (resolved) { continue; }
        CHECK(resolved.error().kind() == ErrorKind::budget);
        const auto* numbers = resolved.error().detail<BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->floor_bytes == 300);
        CHECK(numbers->held_bytes == 100);
        CHECK(numbers->asked_bytes < 300);
        CHECK(numbers->step == 3);
    }
    const auto refused = Budget::percent_of_weights(10).try_resolve(model(), BudgetOrigin::stored);
    CHECK(refused.error().message() ==
          "the stored budget 10% = 100 bytes is below the smallest that works, 300 bytes: step 3 (\"layer.3\") needs "
          "200 bytes at "
          "once beside 100 bytes of residents; give 300 or more, or 0 for the smallest");
    // The value that the message names works.
    CHECK(Budget::try_parse("300")->try_resolve(model())->bytes == 300);

    BudgetContext unnamed = model();
    unnamed.floor_step_name.clear();
    CHECK(contains(Budget::bytes(1).try_resolve(unnamed).error().message(), "step 3 needs 200 bytes at once"));
    unnamed.floor_step_bytes = 150;
    CHECK(contains(Budget::bytes(1).try_resolve(unnamed).error().message(),
                   "step 3 needs 150 bytes at once, 200 bytes as the pool rounds, beside 100 bytes of residents"));
    unnamed.floor_step = UINT32_MAX;
    unnamed.floor_step_bytes = 0;
    CHECK(contains(Budget::bytes(1).try_resolve(unnamed).error().message(),
                   "the largest request needs 200 bytes at once"));
    unnamed.floor_weight = "head";
    CHECK(contains(Budget::bytes(1).try_resolve(unnamed).error().message(),
                   "the largest weight, \"head\", needs 200 bytes at once"));
}

TEST_CASE("a share that is small but not zero is not taken for zero") {
    BudgetContext context = model();
    context.streamed_bytes = 20;
    context.resident_bytes = 10;
    context.floor_bytes = 20;
    const auto resolved = Budget::percent_of_weights(1).try_resolve(context);
    REQUIRE_FALSE(resolved.has_value());
    CHECK(resolved.error().detail<BudgetNumbers>()->asked_bytes == 0);
}

TEST_CASE("nothing to stream") {
    BudgetContext context = model();
    context.streamed_bytes = 0;
    context.resident_bytes = 500;
    context.floor_bytes = 500;
    context.floor_step = UINT32_MAX;
    context.floor_step_name.clear();
    const auto refused = Budget::percent_of_weights(60).try_resolve(context);
    REQUIRE_FALSE(refused.has_value());
    CHECK(contains(refused.error().message(),
                   "no weight can be streamed, the residents take 500 bytes; give 500 or more"));
    for (const std::string_view text : {"0", "500", "100%", "8GiB", "auto"}) {
        const auto resolved = Budget::try_parse(text)->try_resolve(context);
        REQUIRE(resolved);
        CHECK(resolved->bytes == 500);
        CHECK_FALSE(resolved->is_streaming());
    }
    context.resident_bytes = 0;
    context.floor_bytes = 0;
    CHECK(Budget::bytes(0).try_resolve(context)->bytes == 0);
    CHECK(Budget::bytes(5).try_resolve(context)->bytes == 0);
    CHECK(Budget::percent_of_weights(50).try_resolve(context)->bytes == 0);
}

TEST_CASE("the step that needs everything: the floor is the total") {
    BudgetContext context = model();
    context.floor_bytes = 1000;
    CHECK_FALSE(Budget::bytes(999).try_resolve(context).has_value());
    CHECK_FALSE(Budget::bytes(0).try_resolve(context)->is_streaming());
    CHECK_FALSE(Budget::bytes(1000).try_resolve(context)->is_streaming());
}

TEST_CASE("C11: only an automatic budget falls back to the floor") {
    BudgetContext context = model();
    context.free_device_bytes = 300;
    for (const std::uint64_t reserve : {std::uint64_t{1}, std::uint64_t{300}}) {
        context.reserve_bytes = reserve;
        const auto resolved = Budget::automatic().try_resolve(context);
        REQUIRE(resolved);
        CHECK(resolved->bytes == 300);
        CHECK(resolved->asked_bytes == 300 - reserve);
        CHECK(resolved->adjustment == BudgetAdjustment::raised_to_floor);
        CHECK(contains(resolved->text, "is raised to the smallest that works, 300 bytes"));
        CHECK_FALSE(Budget::percent_of_free(99).try_resolve(context).has_value());
        CHECK_FALSE(Budget::percent_of_free(99).try_resolve(context, BudgetOrigin::stored).has_value());
        CHECK(Budget::percent_of_free(99).try_resolve(context, BudgetOrigin::automatic)->bytes == 300);
    }
}

TEST_CASE("a floor that is not free is refused, with what is") {
    BudgetContext context = model();
    for (const std::uint64_t free : {std::uint64_t{0}, std::uint64_t{299}}) {
        context.free_device_bytes = free;
        const auto refused = Budget::automatic().try_resolve(context);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(contains(refused.error().message(), "the device has " + std::to_string(free) + " bytes free"));
        const auto* numbers = refused.error().detail<BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->floor_bytes == 300);
        CHECK(numbers->free_bytes == free);
    }
}

TEST_CASE("automatic leaves the reserve free") {
    BudgetContext context = model();
    context.free_device_bytes = 900;
    context.reserve_bytes = 250;
    CHECK(Budget::automatic().try_resolve(context)->bytes == 650);
    CHECK(contains(Budget::automatic().try_resolve(context)->text,
                   "the 900 bytes that are free less a reserve of 250 bytes"));
    context.reserve_bytes = 900;
    CHECK(Budget::automatic().try_resolve(context)->bytes == 300);
    context.reserve_bytes = UINT64_MAX;
    CHECK(Budget::automatic().try_resolve(context)->bytes == 300);
    CHECK(Budget::percent_of_free(50).try_resolve(context)->bytes == 450);
}

TEST_CASE("without a device, what depends on its free memory is an error") {
    BudgetContext context = model();
    context.free_device_bytes = std::nullopt;
    for (const Budget budget : {Budget::automatic(), Budget::percent_of_free(50), Budget::percent_of_free(0)}) {
        const auto resolved = budget.try_resolve(context, BudgetOrigin::automatic);
        REQUIRE_FALSE(resolved.has_value());
        CHECK(resolved.error().kind() == ErrorKind::budget);
        CHECK(contains(resolved.error().message(), "there is no device; give bytes (at least 300)"));
    }
    CHECK(Budget::percent_of_weights(50).try_resolve(context)->bytes == 500);
}

TEST_CASE("C11: load-time beats stored beats automatic") {
    struct Row {
        std::optional<Budget> load_time, stored;
        Budget winner;
        BudgetOrigin origin;
    };
    const Row rows[] = {
        {Budget::bytes(400), Budget::bytes(500), Budget::bytes(400), BudgetOrigin::load_time},
        {Budget::bytes(400), std::nullopt, Budget::bytes(400), BudgetOrigin::load_time},
        {std::nullopt, Budget::bytes(500), Budget::bytes(500), BudgetOrigin::stored},
        {std::nullopt, std::nullopt, Budget::bytes(600), BudgetOrigin::automatic},
        {Budget::bytes(0), Budget::bytes(500), Budget::bytes(0), BudgetOrigin::load_time},
        {Budget::automatic(), Budget::bytes(500), Budget::automatic(), BudgetOrigin::load_time},
    };
    for (const Row& row : rows) {
        const BudgetSources sources{row.load_time, row.stored, Budget::bytes(600)};
        const auto [winner, origin] = sources.winner();
        CHECK(winner == row.winner);
        CHECK(origin == row.origin);
        const auto resolved = sources.try_resolve(model());
        REQUIRE(resolved);
        CHECK(resolved->origin == row.origin);
        CHECK(resolved->bytes == winner.try_resolve(model(), origin)->bytes);
        CHECK(contains(resolved->text, "the " + std::string{name_of(origin)} + " budget"));
    }
    CHECK(BudgetSources{}.winner().first == Budget::automatic());

    // A winner that fails is not replaced by a loser that would do.
    const BudgetSources failing{Budget::bytes(1), Budget::bytes(500), Budget::bytes(600)};
    CHECK(contains(failing.try_resolve(model()).error().message(), "the load-time budget 1 is below"));
    const BudgetSources stored{std::nullopt, Budget::bytes(1), Budget::bytes(600)};
    CHECK(contains(stored.try_resolve(model()).error().message(), "the stored budget 1 is below"));
    const BudgetSources automatic{std::nullopt, std::nullopt, Budget::bytes(1)};
    CHECK(automatic.try_resolve(model())->adjustment == BudgetAdjustment::raised_to_floor);
}

TEST_CASE("the granularity rounds the budget down, the floor and the total up") {
    BudgetContext context = model();
    context.granularity_bytes = 64;
    const auto check = [&](std::uint64_t asked) { return Budget::bytes(asked).try_resolve(context); };
    CHECK_FALSE(check(300).has_value());
    CHECK_FALSE(check(319).has_value());
    CHECK(check(319).error().detail<BudgetNumbers>()->floor_bytes == 320);
    CHECK(check(320)->bytes == 320);
    CHECK(check(0)->bytes == 320);
    CHECK(check(383)->bytes == 320);
    CHECK(contains(check(383)->text, "the load-time budget 383 is rounded down to 320 bytes"));
    CHECK(check(1000)->bytes == 960);
    CHECK(check(1000)->is_streaming());
    CHECK(check(1024)->bytes == 1024);
    CHECK_FALSE(check(1024)->is_streaming());
    CHECK(check(1025)->bytes == 1024);
    CHECK(check(1025)->is_clamped());
}

TEST_CASE("C10: all of the weights is everything, with what they are rounded up to") {
    BudgetContext context = model();
    const std::uint64_t weights = context.streamed_bytes + context.resident_bytes;
    context.everything_bytes = weights + 500;
    context.granularity_bytes = 64;
    for (const std::uint64_t percent : {100U, 101U, 400U}) {
        CAPTURE(percent);
        const auto resolved = Budget::percent_of_weights(percent).try_resolve(context);
        REQUIRE(resolved);
        CHECK(resolved->bytes == resolved->total_bytes);
        CHECK_FALSE(resolved->is_streaming());
    }
    CHECK(Budget::percent_of_weights(99).try_resolve(context)->is_streaming());
    context.floor_bytes = weights + 300;
    CHECK(Budget::percent_of_weights(100).try_resolve(context)->bytes >= context.floor_bytes);
}

TEST_CASE("sizes of 64 bits") {
    BudgetContext context;
    context.streamed_bytes = UINT64_MAX - 10;
    context.resident_bytes = 11;
    context.floor_bytes = 100;
    CHECK(Budget::percent_of_weights(100).try_resolve(context)->bytes == UINT64_MAX);
    CHECK(Budget::percent_of_weights(50).try_resolve(context)->bytes == UINT64_MAX / 2);
    CHECK(Budget::percent_of_weights(99).try_resolve(context)->is_streaming());
    context.resident_bytes = 100;  // the sum no longer fits
    CHECK(Budget::bytes(UINT64_MAX).try_resolve(context)->total_bytes == UINT64_MAX);
}

TEST_CASE("a resolved budget never exceeds what was asked, unless that was zero or automatic") {
    constexpr std::uint64_t seed = 5;
    MESSAGE("seed ", seed);
    std::mt19937_64 engine{seed};
    const auto below = [&](std::uint64_t bound) { return engine() % bound; };
    int resolved_count = 0;
    for (int round = 0; round < 20000; ++round) {
        BudgetContext context;
        context.streamed_bytes = below(1000);
        context.resident_bytes = below(100);
        context.floor_bytes = context.resident_bytes + below(context.streamed_bytes + 1);
        context.granularity_bytes = std::uint64_t{1} << below(6);
        context.reserve_bytes = below(200);
        if (below(4) != 0) { context.free_device_bytes = below(2000); }
        const Budget budgets[] = {Budget::bytes(below(1500)), Budget::percent_of_weights(below(150)),
                                  Budget::percent_of_free(below(101)), Budget::automatic()};
        const Budget budget = budgets[below(4)];
        const auto resolved = budget.try_resolve(context);
        if (!resolved) { continue; }
        ++resolved_count;
        REQUIRE(resolved->bytes % context.granularity_bytes == 0);
        REQUIRE(resolved->bytes >= context.floor_bytes);
        REQUIRE(resolved->bytes <= resolved->total_bytes);
        const bool may_exceed = resolved->adjustment == BudgetAdjustment::zero_to_floor ||
                                resolved->adjustment == BudgetAdjustment::raised_to_floor;
        REQUIRE((resolved->bytes <= resolved->asked_bytes || may_exceed));
        if (resolved->adjustment == BudgetAdjustment::raised_to_floor) { REQUIRE(budget == Budget::automatic()); }
        if (resolved->adjustment == BudgetAdjustment::zero_to_floor) { REQUIRE(budget.amount() == 0); }
    }
    CHECK(resolved_count > 5000);
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("the throwing forms throw what the others return") {
    CHECK(Budget::parse("8GiB") == Budget::bytes(std::uint64_t{8} << 30));
    CHECK_THROWS_AS(static_cast<void>(Budget::parse("8  GiB")), FormatError);
    CHECK_THROWS_AS(static_cast<void>(Budget::bytes(1).resolve(model())), BudgetError);
    CHECK_THROWS_AS(static_cast<void>(BudgetSources{Budget::bytes(1), std::nullopt, {}}.resolve(model())), BudgetError);
}
#endif

}  // namespace budget_test
