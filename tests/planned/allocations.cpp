// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/allocations.hpp"

#include <doctest/doctest.h>

#include "residency/fwd.hpp"
#include "tests/planned/support.hpp"

namespace allocations_test {

using namespace planned;

namespace {

/// What the simulated device allocates for its books is not counted.
class UncountedDevice : public CheckedDevice {
    template <class Call>
    static auto uncounted(const Call& call) {
        const auto before = test::allocations();
        auto result = call();
        test::allocation_count.store(before);
        return result;
    }

public:
    using CheckedDevice::CheckedDevice;
    auto record(Event event, Stream stream) {
        return uncounted([&] { return Device::record(event, stream); });
    }
    auto wait(Stream stream, Event event) {
        return uncounted([&] { return Device::wait(stream, event); });
    }
    auto is_complete(Event event) {
        return uncounted([&] { return Device::is_complete(event); });
    }
    auto copy(std::span<const residency::Copy> copies, Stream stream) {
        return uncounted([&] { return Device::copy(copies, stream); });
    }
    auto is_capturing(Stream stream) {
        return uncounted([&] { return Device::is_capturing(stream); });
    }
    auto launch(Graph graph, Stream stream) {
        return uncounted([&] { return Device::launch(graph, stream); });
    }
    auto launch(Stream stream, Kernel kernel) {
        return uncounted([&] { return Device::launch(stream, std::move(kernel)); });
    }
    auto synchronize(Stream stream) {
        return uncounted([&] { return Device::synchronize(stream); });
    }
    auto synchronize(Event event) {
        return uncounted([&] { return Device::synchronize(event); });
    }
    auto synchronize() {
        return uncounted([&] { return Device::synchronize(); });
    }
};
using OnUncounted = residency::Planned<UncountedDevice>;

}  // namespace

TEST_SUITE_BEGIN("planned allocations");

TEST_CASE("C18: a steady pass, eager or a graph, allocates nothing and creates no event") {
    auto config = small_config();
    UncountedDevice device{config};
    const Model model = uniform_model(device, 24, 3 * chunk + 1000);
    const Stream stream = must(device.create_stream()), side = must(device.create_stream());
    for (const std::uint64_t chunks : {5U, 20U, 50U, 1000U}) {
        CAPTURE(chunks);
        OnUncounted::Options chosen;
        chosen.budget = residency::Budget::bytes(chunks * chunk);
        chosen.schedule = in_order(model);
        chosen.policies.pool.chunk_bytes = chunk;
        chosen.policies.link = residency::plan::Link{};
        auto weights = must(OnUncounted::try_create(device, model.catalog, std::move(chosen)));
        const Schedule& schedule = weights.schedule();
        const auto read = [&](const OnUncounted::Lease& lease, std::uint32_t w, Stream on) {
            const auto bytes = lease.bytes(weight(w));
            Device::Kernel kernel;
            kernel.reads = {{bytes.data(), bytes.size()}};
            return device.launch(on, std::move(kernel)).has_value();
        };
        const auto one_pass = [&] {
            bool fine = true;
            auto pass = weights.try_begin(stream);
            for (std::uint32_t s = 0; s < schedule.size(); ++s) {
                auto lease = pass->try_acquire(schedule[s]);
                fine = fine && lease.has_value() && lease->try_use_on(side).has_value() && read(*lease, s, stream) &&
                       read(*lease, s, side);
            }
            fine = fine && pass->try_end().has_value() && device.synchronize(stream).has_value();
            return fine;
        };
        for (int i = 0; i < 30; ++i) { REQUIRE(one_pass()); }
        auto events = device.statistics().of(Device::CallKind::create_event);
        auto before = test::allocations();
        bool fine = true;
        for (int i = 0; i < 10; ++i) { fine = fine && one_pass(); }
        auto after = test::allocations();
        CHECK(fine);
        CHECK(after - before == 0);
        CHECK(device.statistics().of(Device::CallKind::create_event) == events);

        auto graph = must(weights.try_capture(stream, [&](auto& pass) {
            for (std::uint32_t s = 0; s < schedule.size(); ++s) {
                auto lease = must(pass.try_acquire(schedule[s]));
                REQUIRE(read(lease, s, stream));
            }
        }));
        const auto replay = [&] {
            return graph.try_launch(stream).has_value() && device.synchronize(stream).has_value();
        };
        for (int i = 0; i < 30; ++i) { REQUIRE(replay()); }
        events = device.statistics().of(Device::CallKind::create_event);
        before = test::allocations();
        for (int i = 0; i < 10; ++i) { fine = fine && replay(); }
        after = test::allocations();
        CHECK(fine);
        CHECK(after - before == 0);
        CHECK(device.statistics().of(Device::CallKind::create_event) == events);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(side));
}

TEST_SUITE_END();

}  // namespace allocations_test
