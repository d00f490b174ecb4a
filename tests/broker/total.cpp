// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/broker/broker.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "residency/simulation/simulated_device.hpp"

namespace total_test {

using residency::Budget;
using residency::BudgetBroker;
using residency::ErrorKind;
using residency::SimulatedDevice;

TEST_SUITE_BEGIN("broker total");

namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what a total becomes") {
    struct Row {
        std::string_view text;
        std::uint64_t bytes, asked_bytes;
        std::string_view line;
    };
    const Row rows[] = {
        {"1", 1, 1, "the total 1"},
        {"1000", 1000, 1000, "the total 1kB = 1,000 bytes"},
        {"2KiB", 2048, 2048, "the total 2KiB = 2,048 bytes (2 KiB)"},
        {"6000", 6000, 6000, "the total 6kB = 6,000 bytes (5.859 KiB)"},
        {"6001", 6000, 6001,
         "the total 6001 is clamped to the 6,000 bytes (5.859 KiB) that are free: others hold 4,000 bytes (3.906 KiB) "
         "of "
         "the device's 10,000 bytes (9.766 KiB)"},
        {"8GiB", 6000, std::uint64_t{8} << 30, "clamped to the 6,000 bytes"},
        {"18446744073709551615", 6000, UINT64_MAX, "clamped"},
        {"50%free", 3000, 3000, "the total 50%free = 3,000 bytes (2.93 KiB)"},
        {"12.5%free", 750, 750, "the total 12.5%free = 750 bytes"},
        {"100%free", 6000, 6000, "the total 100%free = 6,000 bytes"},
        {"auto", 5500, 5500, "the total auto = 5,500 bytes"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto resolved = residency::broker::resolve_total(*Budget::try_parse(row.text), {6000, 10000}, 500);
        REQUIRE(resolved);
        CHECK(resolved->bytes == row.bytes);
        CHECK(resolved->asked_bytes == row.asked_bytes);
        CHECK(resolved->is_clamped == (row.bytes != row.asked_bytes));
        CAPTURE(resolved->text);
        CHECK(contains(resolved->text, row.line));
    }
}

TEST_CASE("what no total can be") {
    struct Row {
        std::string_view text;
        std::uint64_t free_bytes;
        std::string_view message;
    };
    const Row rows[] = {
        {"0", 6000, "the total 0 has room for nobody"},
        {"0GiB", 6000, "the total 0 has room for nobody"},
        {"0%free", 6000, "the total 0%free has room for nobody"},
        {"1%free", 50, "the total 1%free has room for nobody"},
        {"60%", 6000, "the total 60% is a share of the weights"},
        {"60%", 6000, "such as 60%free"},
        {"0%", 6000, "is a share of the weights"},
        {"250%", 6000, "such as 100%free"},
        {"auto", 500, "of the 500 bytes that are free 500 bytes are to be left"},
        {"auto", 0, "the total auto is nothing"},
        {"1000", 0, "the total 1kB cannot be had: nothing is free, others hold 10,000 bytes (9.766 KiB)"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        const auto refused =
            residency::broker::resolve_total(*Budget::try_parse(row.text), {row.free_bytes, 10000}, 500);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind() == ErrorKind::budget);
        CAPTURE(refused.error().message());
        CHECK(contains(refused.error().message(), row.message));
    }
}

TEST_CASE("a broker takes its total as text, from the device that it is for") {
    SimulatedDevice::Config config;
    config.memory_bytes = std::uint64_t{64} << 20;
    config.allocation_granularity = 4096;
    SimulatedDevice device{config};
    const auto total = [&](std::string_view text) { return BudgetBroker::try_create(device, text, {}, 4096); };
    CHECK(total("8MiB")->statistics().total_bytes == std::uint64_t{8} << 20);
    CHECK(total("25%free")->statistics().total_bytes == std::uint64_t{16} << 20);
    CHECK(total("auto")->statistics().total_bytes == (std::uint64_t{64} << 20) - 4096);
    CHECK(total("1TiB")->statistics().total_bytes == std::uint64_t{64} << 20);
    CHECK(total("60%").error().kind() == ErrorKind::budget);
    for (const std::string_view text : {"", "8  MiB", "-1", "8MB ", "auto8", "101%free"}) {
        CAPTURE(text);
        const auto refused = total(text);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind() == ErrorKind::malformed);
        CHECK(contains(refused.error().message(),
                       "the total of a broker: budget \"" + std::string{text} + "\" at byte "));
        CHECK(refused.error().detail<residency::FileLocation>() != nullptr);
    }

    // A later total sees what the clients hold as free, not as gone.
    auto broker = std::move(*total("32MiB"));
    auto memory = *broker.try_add_memory({.name = "cache", .floor_bytes = 1000});
    void* const at = *device.allocate(std::uint64_t{16} << 20);
    REQUIRE(memory.try_take(std::uint64_t{16} << 20));
    REQUIRE(broker.try_set_total(device, "50%free"));
    CHECK(broker.statistics().total_bytes == std::uint64_t{32} << 20);
    REQUIRE(broker.try_set_total(device, Budget::automatic(), 0));
    CHECK(broker.statistics().total_bytes == std::uint64_t{64} << 20);
    CHECK(broker.try_set_total(device, "999").error().kind() == ErrorKind::budget);  // below the floors
    CHECK(broker.try_set_total(device, "1  kB").error().kind() == ErrorKind::malformed);
    CHECK(broker.statistics().total_bytes == std::uint64_t{64} << 20);
    REQUIRE(device.deallocate(at));
#if RESIDENCY_EXCEPTIONS
    CHECK(BudgetBroker::create(device, "8MiB").statistics().total_bytes == std::uint64_t{8} << 20);
    CHECK_THROWS_AS(static_cast<void>(BudgetBroker::create(device, "8  MiB")), residency::FormatError);
#endif
}

TEST_SUITE_END();

}  // namespace total_test
