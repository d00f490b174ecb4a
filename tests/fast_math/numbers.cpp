// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Compiled with -ffast-math, where comparisons do not find NaNs and infinities: what is no number is refused there too.
#include "residency/model/number.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/evict/expected_use.hpp"
#include "residency/plan/planner.hpp"
#include "residency/planned.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace numbers_test {

using residency::ErrorKind;
using residency::WeightId;
namespace plan = residency::plan;

namespace {

// A value that the compiler does not know; not as a result, which clang would take to be a number.
void write_bits(double& number, std::uint64_t bits) {
    const volatile std::uint64_t hidden = bits;
    number = std::bit_cast<double>(static_cast<std::uint64_t>(hidden));
}

const std::uint64_t nan_bits = 0x7FF8'0000'0000'0000, infinity_bits = 0x7FF0'0000'0000'0000;
const std::uint64_t bits_of_no_numbers[] = {nan_bits, nan_bits | 1ULL << 63, 0x7FF0'0000'0000'0001, infinity_bits,
                                            infinity_bits | 1ULL << 63};

plan::Problem problem_of_three() {
    plan::Problem problem;
    problem.storage_bytes = {std::uint64_t{4} << 20, std::uint64_t{4} << 20, std::uint64_t{4} << 20};
    problem.step_offsets = {0, 1, 2, 3};
    problem.step_storages = {0, 1, 2};
    problem.compute_seconds = {1e-3, 1e-3, 1e-3};
    problem.budget_bytes = std::uint64_t{8} << 20;
    return problem;
}

TEST_CASE("fast_math: what is no number is found by its bits") {
    namespace detail = residency::detail;
    for (const std::uint64_t bits : bits_of_no_numbers) {
        CAPTURE(bits);
        double x = 0;
        write_bits(x, bits);
        CHECK_FALSE(detail::is_finite(x));
        CHECK_FALSE(detail::is_positive(x));
        CHECK_FALSE(detail::is_not_negative(x));
        CHECK_FALSE(detail::is_share(x));
        CHECK(detail::is_nan(x) == ((bits << 1) != infinity_bits << 1));
    }
    for (const double number : {0.0, -0.0, 1e-300, 1.0, 1e300}) {
        CAPTURE(number);
        CHECK(detail::is_finite(number));
        CHECK(detail::is_finite(-number));
        CHECK_FALSE(detail::is_nan(number));
        CHECK(detail::is_positive(number) == (number > 0));
        CHECK(detail::is_not_negative(number));
        CHECK(detail::is_share(number) == (number <= 1));
    }
    CHECK_FALSE(detail::is_positive(-1));
    CHECK_FALSE(detail::is_not_negative(-1));
    CHECK_FALSE(detail::is_share(-1.0));
}

TEST_CASE("fast_math: a problem with what is no number is refused") {
    REQUIRE(plan::make_plan(problem_of_three(), {}).has_value());
    for (const std::uint64_t bits : bits_of_no_numbers) {
        CAPTURE(bits);
        for (double* (*const part)(plan::Problem&) : {
                 +[](plan::Problem& problem) { return &problem.link.bytes_per_second; },
                 +[](plan::Problem& problem) { return &problem.link.latency_seconds; },
                 +[](plan::Problem& problem) { return &problem.link.node_latency_seconds; },
                 +[](plan::Problem& problem) { return &problem.compute_seconds[1]; },
             }) {
            plan::Problem problem = problem_of_three();
            write_bits(*part(problem), bits);
            const auto made = plan::make_plan(problem, {});
            REQUIRE_FALSE(made.has_value());
            CHECK(made.error().kind() == ErrorKind::invalid_argument);
        }
    }
}

TEST_CASE("fast_math: a rate of the link that is no number is refused when the Residency is made") {
    residency::SimulatedDevice gpu;
    const std::vector<std::byte> bytes(std::size_t{1} << 20);
    residency::CatalogBuilder builder;
    builder.add("a", residency::dtype::u8, {bytes.size()}, std::span{bytes});
    builder.add("b", residency::dtype::u8, {bytes.size()}, std::span{bytes});
    const residency::Catalog catalog = std::move(builder).build();
    const residency::Schedule schedule =
        residency::ScheduleBuilder{catalog}.step({WeightId{0}}).step({WeightId{1}}).build();
    for (const std::uint64_t bits : bits_of_no_numbers) {
        residency::Planned<residency::SimulatedDevice>::Options options{
            .budget = residency::Budget::bytes(std::uint64_t{8} << 20), .schedule = schedule};
        write_bits(options.policies.link.emplace().bytes_per_second, bits);
        const auto made = residency::Planned<residency::SimulatedDevice>::try_create(gpu, catalog, std::move(options));
        REQUIRE_FALSE(made.has_value());
        CHECK(made.error().kind() == ErrorKind::invalid_argument);
    }
}

TEST_CASE("fast_math: hints and rounds that are no numbers are refused") {
    residency::prefetch::Hinted hinted;
    residency::evict::ExpectedUse::Config fast_config, slow_config;
    write_bits(fast_config.fast_rounds, nan_bits);
    write_bits(slow_config.slow_rounds, nan_bits);
    residency::evict::ExpectedUse evictor{fast_config}, slow{slow_config};
    CHECK_FALSE(evictor.attach({}).has_value());
    CHECK_FALSE(slow.attach({}).has_value());
    const std::uint64_t storage_bytes[] = {1};
    REQUIRE(hinted.attach({.bytes = storage_bytes}).has_value());
    const volatile std::uint32_t hidden = 0x7FC0'0000;
    residency::prefetch::Hint hints[] = {{residency::StorageId{0}, 1}};
    hints[0].probability = std::bit_cast<float>(static_cast<std::uint32_t>(hidden));
    CHECK_FALSE(hinted.hint(hints).has_value());
    CHECK(hinted.hint({{residency::StorageId{0}, 1}}).has_value());
}

}  // namespace

}  // namespace numbers_test
