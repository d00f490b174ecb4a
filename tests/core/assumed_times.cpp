// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Compute times that nobody declared, and the rate of device memory that they are made of.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "residency/core/measure/measure_link.hpp"
#include "residency/core/planned/plan_factory.hpp"
#include "tests/support/streaming.hpp"

namespace assumed_times_test {

using namespace streaming;
using residency::Placement;
using residency::core::PlanFactory;

TEST_CASE("C29: a step without a time takes its bytes over the memory's rate, host-placed ones none") {
    Device device{small_config()};
    const Model model = make_model(device, {{4096}, {8192, Placement::resident}, {4096, Placement::host}, {1000}});
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0)}).step({weight(0), weight(1)}).step({weight(1), weight(2)});
    builder.step({weight(3)}, std::chrono::microseconds{7});
    const auto schedule = must(builder.try_build());
    const residency::plan::Link link{1e9, 0, 0};
    const std::vector<double> expected{4096 / 2e9, 12288 / 2e9, 8192 / 2e9, 7e-6};
    const auto is_expected = [&](const PlanFactory& factory) {
        REQUIRE(factory.problem().compute_seconds.size() == expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            CAPTURE(i);
            CHECK(factory.problem().compute_seconds[i] == doctest::Approx(expected[i]));
        }
    };
    for (const std::uint32_t leases_at_once : {1U, 2U}) {  // what overlaps is computed once
        PlanFactory known{{}, leases_at_once, link, 2e9, std::nullopt};
        must(known.prepare(model.catalog, schedule, 4096, nullptr));
        is_expected(known);
        PlanFactory measured{{}, leases_at_once, std::nullopt, std::nullopt, std::nullopt};
        must(measured.prepare(model.catalog, schedule, 4096, nullptr));
        measured.set_link(link);
        measured.set_memory_rate(2e9);
        is_expected(measured);
    }
}

TEST_CASE(
    "C29: the rate of device memory is measured, both directions of a copy counted, inside the bytes it is given") {
    auto config = small_config();
    config.link.on_device_bytes_per_second = 0.7e12;
    config.allocation_granularity = 64 << 10;
    CheckedDevice device{config};
    const auto before = device.peak_used_bytes();
    const double rate = must(residency::try_measure_memory(device, std::uint64_t{32} << 20));
    CHECK(rate == doctest::Approx(1.4e12).epsilon(0.1));
    CHECK(device.peak_used_bytes() - before <= std::uint64_t{32} << 20);
    // Without room nothing is measured, and nothing is taken.
    const auto events = device.statistics().of(Device::CallKind::create_event);
    CHECK(must(residency::try_measure_memory(device, 100)) == residency::plan::default_memory_bytes_per_second);
    CHECK(device.statistics().of(Device::CallKind::create_event) == events);
    for (const auto kind : {Device::CallKind::allocate, Device::CallKind::create_stream, Device::CallKind::copy}) {
        device.fail(kind, 1);
        CHECK_FALSE(residency::try_measure_memory(device, std::uint64_t{1} << 20));
    }
}

}  // namespace assumed_times_test
