// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a plan predicts, the simulated device measures: the steady period of passes, eager and as a graph.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"
#include "tests/support/sanitized.hpp"

namespace prediction_test {

using namespace planned;

namespace {

/// Chunks of 4 KiB take as long as 2 MiB on a real link; the host takes no time.
Device::Config slow_link() {
    auto config = small_config();
    config.link.to_device_bytes_per_second /= 512;
    config.call_cost = config.copy_cost = config.copy_piece_cost = config.launch_cost = std::chrono::nanoseconds{0};
    return config;
}

struct Case {
    Model model;
    std::vector<std::chrono::nanoseconds> compute;
    Schedule schedule;
    std::uint64_t budget = 0;
};
/// `plain`: each storage is read in one step, so that the image lies as the host bytes do.
Case random_case(Device& device, std::mt19937_64& random, bool plain) {
    Case made;
    const std::size_t storages = 4 + random() % 40;
    const std::uint64_t usual = chunk * (1 + random() % 12);
    std::vector<Spec> specs;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < storages; ++i) {
        specs.push_back({random() % 3 == 0 ? 256 * (4 + random() % 200) : usual});
        total += specs.back().bytes;
    }
    made.model = make_model(device, specs);
    // Compute and copies take about as long, give or take a factor of 5.
    const double ratio = std::exp(std::uniform_real_distribution<double>{-1.6, 1.6}(random));
    const double seconds_a_byte = ratio / slow_link().link.to_device_bytes_per_second;
    residency::ScheduleBuilder builder{made.model.catalog};
    for (std::uint32_t i = 0; i < storages;) {
        std::vector<WeightId> step;
        std::uint64_t bytes = 0;
        for (std::uint64_t k = 1 + random() % 3; k > 0 && i < storages; --k) {
            bytes += specs[i].bytes;
            step.push_back(WeightId{i++});
        }
        if (!plain && random() % 4 == 0) { step.push_back(WeightId{static_cast<std::uint32_t>(random() % storages)}); }
        const double noise = std::uniform_real_distribution<double>{0.3, 2.0}(random);
        made.compute.emplace_back(static_cast<std::int64_t>(1e9 * noise * seconds_a_byte * static_cast<double>(bytes)) +
                                  1);
        builder.step(std::span<const WeightId>{step}, made.compute.back());
    }
    made.schedule = must(builder.try_build());
    made.budget = total * (15 + random() % 83) / 100;
    return made;
}

template <class Pass>
void run_timed(Device& device, const Case& made, Pass& pass, Stream stream) {
    for (const auto& step : made.schedule) {
        auto lease = must(pass.try_acquire(step));
        Device::Kernel kernel;
        kernel.name = step.position + 1 == made.schedule.size() ? "last" : "step";
        kernel.duration = made.compute[step.position];
        for (const auto id : step.weights) {
            const auto bytes = lease.bytes(id);
            kernel.reads.push_back({bytes.data(), bytes.size()});
        }
        must(device.launch(stream, std::move(kernel)));
    }
}

/// Seconds from the end of a pass to the end of the next, the mean of the last dozen.
template <class OnePass>
double measured_period(Device& device, const OnePass& one_pass) {
    std::vector<std::int64_t> ends;
    device.observe([&ends](const Device::ExecutedOperation& operation) {
        if (operation.name == std::string_view{"last"}) { ends.push_back(operation.end_ns); }
    });
    constexpr int passes = 36, counted = 12;
    for (int i = 0; i < passes; ++i) { one_pass(); }
    must(device.synchronize());
    device.observe({});
    REQUIRE(ends.size() == passes);
    return 1e-9 * static_cast<double>(ends.back() - ends[passes - 1 - counted]) / counted;
}

}  // namespace

TEST_SUITE_BEGIN("planned prediction");

TEST_CASE("eager passes take what the plan predicts, within 0.5 %") {
    double worst = 0;
    std::uint64_t streaming = 0;
    for (std::uint64_t seed = 1; seed <= support::random_cases(80); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        CheckedDevice device{slow_link()};
        const Stream stream = must(device.create_stream());
        {
            const Case made = random_case(device, random, seed % 2 == 0);
            auto chosen = options(made.budget, made.schedule);
            chosen.policies.link = link_of(slow_link().link);
            auto created = Weights::try_create(device, made.model.catalog, chosen);
            if (!created) {
                chosen.budget = residency::Budget::bytes(0);
                created = Weights::try_create(device, made.model.catalog, std::move(chosen));
            }
            Weights weights = must(std::move(created));
            streaming += weights.statistics().streaming ? 1 : 0;
            const double period = measured_period(device, [&] {
                auto pass = must(weights.try_begin(stream));
                run_timed(device, made, pass, stream);
            });
            const double predicted = weights.plan().predicted_seconds();
            const double error = period / predicted - 1;
            worst = std::max(worst, std::abs(error));
            CHECK_MESSAGE(std::abs(error) <= 0.005,
                          "measured " << period << ", predicted " << predicted << ", error " << error);
            CHECK(weights.statistics().total.demand_misses == 0);
            CHECK(weights.plan().bound_seconds() <= period * 1.0001);
        }
        must(device.destroy_stream(stream));
    }
    MESSAGE("largest error " << worst << ", " << streaming << " that stream");
    CHECK(streaming >= support::random_cases(50));
}

TEST_CASE("graphs take what their plan predicts, within 0.5 %") {
    double worst = 0;
    std::uint64_t streaming = 0;
    for (std::uint64_t seed = 1; seed <= support::random_cases(60); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed + 1000};
        CheckedDevice device{slow_link()};
        const Stream stream = must(device.create_stream());
        {
            const Case made = random_case(device, random, true);
            auto chosen = options(made.budget, made.schedule);
            chosen.policies.link = link_of(slow_link().link);
            auto created = Weights::try_create(device, made.model.catalog, chosen);
            if (!created) {
                chosen.budget = residency::Budget::bytes(0);
                created = Weights::try_create(device, made.model.catalog, std::move(chosen));
            }
            Weights weights = must(std::move(created));
            streaming += weights.statistics().streaming ? 1 : 0;
            auto graph = must(weights.try_capture(stream, [&](auto& pass) { run_timed(device, made, pass, stream); }));
            const double period = measured_period(device, [&] { must(graph.try_launch(stream)); });
            const double predicted = weights.plan().predicted_seconds();
            const double error = period / predicted - 1;
            worst = std::max(worst, std::abs(error));
            CHECK_MESSAGE(std::abs(error) <= 0.005, "measured " << period << ", predicted " << predicted << ", error "
                                                                << error << ", cut " << weights.plan().cut() << " of "
                                                                << weights.plan().calls().size());
        }
        must(device.destroy_stream(stream));
    }
    MESSAGE("largest error " << worst << ", " << streaming << " that stream");
    CHECK(streaming >= support::random_cases(40));
}

TEST_SUITE_END();

}  // namespace prediction_test
