// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Two models share a total, and the link: what bounds their passes is the sum of what they stream.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/interop/memory_resource.hpp"
#include "tests/planned/support.hpp"

namespace joint_test {

using namespace planned;
using residency::Budget;
using residency::BudgetBroker;

TEST_SUITE_BEGIN("broker joint");

namespace {

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

/// A model of equal weights, one a step, and its part of the total.
struct Tenant {
    Model model;
    Schedule schedule;
    residency::broker::ModelClient client;
    std::optional<Weights> weights;

    Tenant(Device& device, std::size_t count, std::uint64_t bytes, std::chrono::nanoseconds compute)
        : model{uniform_model(device, count, bytes)} {
        residency::ScheduleBuilder builder{model.catalog};
        for (std::uint32_t i = 0; i < count; ++i) { builder.step({weight(i)}, compute); }
        schedule = must(builder.try_build());
    }
    void join(Device& device, BudgetBroker& broker, std::string name) {
        const auto with = [&](Budget budget) {
            auto result = planned::options(0, schedule);
            result.budget = budget;
            result.policies.pool.chunk_bytes = MiB / 4;
            return result;
        };
        const auto sizes = must(Weights::try_resolve_budget(device, model.catalog, with(Budget::bytes(0))));
        client = must(broker.try_add_model(
            {.name = std::move(name), .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes}));
        weights.emplace(must(Weights::try_create(device, model.catalog, with(must(client.try_budget())))));
    }
    void step(Device& device, Weights::Pass& pass, std::uint32_t at, Stream stream) {
        auto lease = must(pass.try_acquire(weights->schedule()[at]));
        verify(device, model, lease, weight(at), stream, *schedule[at].compute);
    }
    [[nodiscard]] std::chrono::nanoseconds bound() const { return *weights->statistics().bound; }
};

enum class Turns : std::uint8_t {
    host_waits,    ///< a pass of one, the host waits for it, a pass of the other
    back_to_back,  ///< the same without waiting
    side_by_side,  ///< step by step, on two streams
};

/// Both, `rounds` times; the time of a round on the device's clock.
std::chrono::nanoseconds round_of(Device& device, Tenant& a, Tenant& b, std::array<Stream, 2> streams, Turns turns,
                                  int rounds) {
    const auto begin = device.host_time();
    for (int r = 0; r < rounds; ++r) {
        if (turns == Turns::side_by_side) {
            auto first = must(a.weights->try_begin(streams[0]));
            auto second = must(b.weights->try_begin(streams[1]));
            for (std::uint32_t s = 0; s < a.schedule.size() || s < b.schedule.size(); ++s) {
                if (s < a.schedule.size()) { a.step(device, first, s, streams[0]); }
                if (s < b.schedule.size()) { b.step(device, second, s, streams[1]); }
            }
            continue;
        }
        for (Tenant* tenant : {&a, &b}) {
            auto pass = must(tenant->weights->try_begin(streams[0]));
            for (std::uint32_t s = 0; s < tenant->schedule.size(); ++s) { tenant->step(device, pass, s, streams[0]); }
            must(pass.try_end());
            if (turns == Turns::host_waits) { must(device.synchronize(streams[0])); }
        }
    }
    for (const Stream stream : streams) { must(device.synchronize(stream)); }
    return (device.host_time() - begin) / rounds;
}

}  // namespace

TEST_CASE("two models and a growing cache under one total, by the bound of the link that they share") {
    Device::Config config;
    config.memory_bytes = 256 * MiB;
    config.allocation_granularity = config.pool_granularity = config.chunk_granularity = MiB / 4;
    config.link = residency::links::h200_measured;
    CheckedDevice device{config};
    constexpr std::uint64_t total = 40 * MiB;
    const std::array<Stream, 2> streams{must(device.create_stream()), must(device.create_stream())};
    {
        Tenant a{device, 24, MiB, std::chrono::microseconds{2}};
        Tenant b{device, 48, MiB / 2, std::chrono::microseconds{1}};
        BudgetBroker broker{{.total_bytes = total}};
        a.join(device, broker, "a");
        b.join(device, broker, "b");
        auto cache = must(residency::MemoryResource<Device>::try_create(
            device, must(broker.try_add_memory({.name = "KV cache", .priority = 1}))));
        std::vector<void*> pages;
        for (const std::uint64_t cached : {0U, 12U, 24U}) {
            for (int i = 0; pages.size() < cached; ++i) {
                REQUIRE(i < 100);
                if (auto page = cache.try_allocate(MiB, 256, streams[0])) { pages.push_back(*page); }
                must(a.client.try_at_pass_end(*a.weights));
                must(b.client.try_at_pass_end(*b.weights));
            }
            for (const Turns turns : {Turns::host_waits, Turns::back_to_back, Turns::side_by_side}) {
                for (int i = 0; i < 4; ++i) {
                    static_cast<void>(round_of(device, a, b, streams, turns, 1));
                    must(a.client.try_at_pass_end(*a.weights));
                    must(b.client.try_at_pass_end(*b.weights));
                }
                static_cast<void>(round_of(device, a, b, streams, turns, 2));
                const auto took = round_of(device, a, b, streams, turns, 6);
                const auto in_seconds = std::chrono::duration<double>(took).count();
                const double planned = a.weights->plan().predicted_seconds() + b.weights->plan().predicted_seconds();
                const double bound = std::chrono::duration<double>(a.bound() + b.bound()).count();
                CAPTURE(cached);
                CAPTURE(static_cast<int>(turns));
                CAPTURE(in_seconds);
                CAPTURE(planned);
                // Both are bound by the link: no round takes less than the sum of their bounds.
                CHECK(in_seconds >= bound);
                // And none takes more than the sum of what their plans take alone, but for what the link idles while the host
                // waits: little is streamed then, and a small ring is soon full.
                CHECK(in_seconds <= planned * (turns == Turns::host_waits && cached == 0 ? 1.12 : 1.005));
                CHECK(a.weights->statistics().last_pass.fetched_bytes == bytes_of(a.weights->plan()));
                CHECK(b.weights->statistics().last_pass.fetched_bytes == bytes_of(b.weights->plan()));
            }
        }
        CHECK(*a.model.wrong + *b.model.wrong == 0);
        for (void* page : pages) { must(cache.try_deallocate(page, MiB, streams[0])); }
        must(a.weights->try_drain());
        must(b.weights->try_drain());
        CHECK(device.peak_used_bytes() <= total);
        a.weights.reset();
        b.weights.reset();
    }
    for (const Stream stream : streams) { must(device.destroy_stream(stream)); }
}

TEST_SUITE_END();

}  // namespace joint_test
