// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "residency/broker/broker.hpp"
#include "residency/timeline/timeline_recorder.hpp"
#include "tests/core/compositions.hpp"
#include "tests/support/child.hpp"

namespace teardown_test {

using namespace streaming;
using namespace std::chrono_literals;
using residency::ErrorKind;
using CallKind = Device::CallKind;

TEST_SUITE_BEGIN("core teardown and captures");

#if RESIDENCY_ASSERTIONS
TEST_CASE("a device that ends before its Residency is told so") {
    const auto outcome = child::run([] {
        auto device = std::make_unique<Device>(small_config());
        const Model model = uniform_model(*device, 2, 4096);
        const auto first = make<OnDemand>(*device, model, 2 * 4096);
        auto second = make<OnDemand>(*device, model, 2 * 4096);
        second = make<OnDemand>(*device, model, 2 * 4096);
        { const auto third = std::move(second); }
        device.reset();
    });
    CHECK(outcome.aborted);
    CHECK(outcome.text.find("end every Residency before its device") != std::string::npos);
}

TEST_CASE("what is used after it was moved from, or after what it needs, is told so") {
    const auto told = [](auto body, const char* text) {
        const auto outcome = child::run(body);
        CHECK(outcome.aborted);
        CHECK_MESSAGE(outcome.text.find(text) != std::string::npos, outcome.text);
    };
    told(
        [] {
            Device device{small_config()};
            const Model model = uniform_model(device, 2, 4096);
            auto first = make<OnDemand>(device, model, 2 * 4096);
            const auto second = std::move(first);
            static_cast<void>(first.statistics());
        },
        "this Residency was moved from");
    told(
        [] {
            Device device{small_config()};
            const Model model = uniform_model(device, 2, 4096);
            auto recorder = std::make_unique<residency::TimelineRecorder<Device>>(device);
            auto weights = make<OnDemand>(device, model, 2 * 4096);
            must(weights.try_observe(recorder.get()));
            recorder.reset();
        },
        "end the Residency before what observes it");
    told(
        [] {
            residency::BudgetBroker broker{{.total_bytes = 1 << 20}};
            const auto other = std::move(broker);
            static_cast<void>(broker.statistics());
        },
        "moved from");
}
#endif

TEST_CASE_TEMPLATE("C20: torn down with kernels and copies in flight, it waits for them and gives everything back",
                   Weights, OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4096);
    const Stream stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    for (const std::uint64_t budget : {3U * 4096U, 1U << 20}) {  // streaming, and everything resident
        *model.verified = 0;
        {
            auto weights = make<Weights>(device, model, budget, in_order(model));
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t w = 0; w < 6; ++w) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream, 2ms);
            }
            must(pass.try_end());
            CHECK(*model.verified < 6 * 4096);
        }
        CHECK(*model.verified == 6 * 4096);
        CHECK(*model.wrong == 0);
        CHECK(must(device.memory()).free_bytes == before);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C20: moved, it goes on; assigned over, the old one is torn down") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    {
        auto first = make<OnDemand>(device, model, 2 * 4096, in_order(model));
        run_pass(first, model, stream);
        OnDemand second{std::move(first)};
        run_pass(second, model, stream);
        CHECK(second.statistics().total.passes == 2);
        second = make<OnDemand>(device, model, 3 * 4096, in_order(model));
        run_pass(second, model, stream);
        CHECK(second.statistics().total.passes == 1);
        CHECK(before - must(device.memory()).free_bytes <= 3 * 4096);
    }
    CHECK(*model.verified == 3 * 4 * 4096);
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C20: on a device that is lost every call is an error, and teardown leaks rather than touches",
                   Weights, OnDemand, Ahead) {
    CheckedDevice device;
    device.leaks_expected = true;
    const Model model = uniform_model(device, 6, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 3 * 4096, in_order(model));
        run_pass(weights, model, stream);
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire(weight(0)));
        device.lose_device();
        CHECK_FALSE(pass.try_acquire(weight(3)));
        lease.end();
        CHECK(weights.failure().has_value());
        CHECK_FALSE(pass.try_end());
        CHECK_FALSE(weights.try_begin(stream));
        CHECK_FALSE(weights.try_drain());
        CHECK(weights.failure()->kind() == ErrorKind::device);
    }
    const auto statistics = device.statistics();
    CHECK(statistics.of(CallKind::destroy_event) == 0);
    CHECK(statistics.of(CallKind::destroy_pool) == 0);
    CHECK(statistics.of(CallKind::deallocate) == 0);
    CHECK(statistics.of(CallKind::pool_deallocate) <= statistics.of(CallKind::pool_allocate));
    CHECK(statistics.of(CallKind::destroy_stream) == 0);
}

TEST_CASE("C19: a use that could not be recorded is kept as a failure; the bytes stay until the device is drained") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 2 * 4096);
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire(weight(0)));
        verify(device, model, lease, weight(0), stream, 5ms);
        device.fail(CallKind::record, 1);
        lease.end();
        REQUIRE(weights.failure().has_value());
        CHECK(weights.failure()->kind() == ErrorKind::device);
        for (std::uint32_t w = 1; w < 6; ++w) {
            auto next = must(pass.try_acquire(weight(w)));
            verify(device, model, next, weight(w), stream);
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.verified == 6 * 4096);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C14 C19: a use that could not be recorded counts also after a use on another stream") {
    CheckedDevice device;
    const Model model = uniform_model(device, 3, 4096);
    const Stream first = must(device.create_stream()), second = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 2 * 4096);
        {
            auto pass = must(weights.try_begin(first));
            auto lease = must(pass.try_acquire(weight(0)));
            verify(device, model, lease, weight(0), first, 5ms);
            device.fail(CallKind::record, 1);
            lease.end();
            REQUIRE(weights.failure().has_value());
            must(pass.try_end());
        }
        auto pass = must(weights.try_begin(second));
        for (std::uint32_t w = 0; w < 3; ++w) {  // the last one takes the place of the first
            const auto lease = must(pass.try_acquire(weight(w), second));
            verify(device, model, lease, weight(w), second);
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(first));
    must(device.destroy_stream(second));
}

TEST_CASE("C23: a foreign capture is refused with the reason, at the pass and at the lease, and nothing is harmed") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    const Stream captured = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 2 * 4096, in_order(model));
        run_pass(weights, model, stream);
        must(device.begin_capture(captured));
        const auto refused = weights.try_begin(captured);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::unsupported);
        CHECK(refused.error().message().find("captur") != std::string::npos);

        auto pass = must(weights.try_begin(stream));
        const auto before = weights.statistics().total;
        CHECK(pass.try_acquire(weight(0), captured).error().kind() == ErrorKind::unsupported);
        CHECK(pass.try_acquire(weight(0), captured).error().kind() == ErrorKind::unsupported);
        CHECK(weights.statistics().total == before);
        auto lease = must(pass.try_acquire(weight(0)));
        CHECK(lease.try_use_on(captured).error().kind() == ErrorKind::unsupported);
        verify(device, model, lease, weight(0), stream);
        lease.end();
        auto ticket = must(pass.try_request(weight(1)));
        CHECK(ticket.try_lease(captured).error().kind() == ErrorKind::unsupported);
        CHECK_FALSE(static_cast<bool>(ticket));
        must(pass.try_end());
        must(device.destroy_graph(must(device.end_capture(captured))));
        for (int i = 0; i < 2; ++i) { run_pass(weights, model, captured); }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(captured));
}

TEST_CASE("C23: residents that have arrived are known to be there when a foreign capture of another stream begins") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream()), captured = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 1 << 20, in_order(model));
        run_pass(weights, model, stream);
        must(device.synchronize());
        must(device.begin_capture(captured));
        run_pass(weights, model, captured);
        const auto graph = must(device.end_capture(captured));
        const auto verified = *model.verified;
        must(device.launch(graph, captured));
        must(device.synchronize());
        CHECK(*model.verified == verified + std::uint64_t{4} * 4096);
        CHECK(*model.wrong == 0);
        must(device.destroy_graph(graph));
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(captured));
}

TEST_CASE("C23: a foreign capture does not begin where copies that failed have to be made good, and is not harmed") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream()), captured = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 1 << 20, in_order(model));
        {
            auto pass = must(weights.try_begin(stream));
            device.fail(CallKind::record, 1);
            device.fail(CallKind::synchronize_stream, 1);
            CHECK_FALSE(pass.try_acquire(weight(0)));
            device.clear_failures();
            must(pass.try_end());
        }
        must(device.begin_capture(captured));
        const auto refused = weights.try_begin(captured);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::unsupported);
        CHECK(refused.error().message().find("outside of the capture") != std::string::npos);
        must(device.destroy_graph(must(device.end_capture(captured))));
        run_pass(weights, model, stream);
        must(device.synchronize());
        must(device.begin_capture(captured));
        run_pass(weights, model, captured);
        must(device.destroy_graph(must(device.end_capture(captured))));
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(captured));
}

TEST_CASE("C23: where everything is resident and has arrived, a capture works and its replay reads the right bytes") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 1 << 20, in_order(model));
        run_pass(weights, model, stream);
        must(weights.try_drain());
        *model.verified = 0;
        must(device.begin_capture(stream));
        run_pass(weights, model, stream);
        const auto graph = must(device.end_capture(stream));
        CHECK(*model.verified == 0);
        for (int i = 0; i < 3; ++i) { must(device.launch(graph, stream)); }
        must(device.synchronize(stream));
        CHECK(*model.verified == 3 * 4 * 4096);
        CHECK(*model.wrong == 0);
        must(device.destroy_graph(graph));
        run_pass(weights, model, stream);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C23: a capture before the bytes have arrived is refused, and works afterwards") {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {4096}, {512, residency::Placement::resident}});
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 1 << 20, in_order(model));
        must(device.begin_capture(stream));
        auto pass = must(weights.try_begin(stream));
        CHECK(pass.try_acquire(weight(0)).error().kind() == ErrorKind::unsupported);
        must(pass.try_end());
        must(device.destroy_graph(must(device.end_capture(stream))));
        for (int i = 0; i < 2; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C23: nothing that a graph of the caller's reads leaves its place where the device has no room for more") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, std::uint64_t{1} << 40, in_order(model));
        const auto run = [&](std::uint32_t from, std::uint32_t to) {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t i = from; i < to; ++i) {
                verify(device, model, must(pass.try_acquire(weight(i))), weight(i), stream);
            }
            must(pass.try_end());
        };
        run(0, 4);
        must(weights.try_drain());
        must(device.begin_capture(stream));
        run(0, 4);
        const auto graph = must(device.end_capture(stream));
        device.fail(Device::CallKind::pool_allocate, 1, ErrorKind::out_of_memory);
        {
            auto pass = must(weights.try_begin(stream));
            const auto refused = pass.try_acquire(weight(4));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::out_of_memory);
            CHECK(refused.error().message().find("captured by the caller") != std::string::npos);
            must(pass.try_end());
        }
        run(4, 8);  // there is room again
        must(device.launch(graph, stream));
        must(device.synchronize(stream));
        CHECK(*model.verified == (4 + 4 + 4) * 4096);
        CHECK(weights.statistics().total.evictions == 0);
        must(device.destroy_graph(graph));
        // Another budget, and the caller captures anew; from here on what has to leave does.
        must(weights.try_set_budget(residency::Budget::bytes(std::uint64_t{1} << 41)));
        run(0, 8);
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace teardown_test
