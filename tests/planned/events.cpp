// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a handler of events is told of captured passes, and of storages that share chunks.
#include "residency/core/measure/event.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace events_test {

using namespace planned;
using residency::Event;
using residency::EventKind;
using residency::Status;

TEST_SUITE_BEGIN("planned events");

TEST_CASE("a capture tells nothing of its pass; each launch tells that it was launched, with what a pass counts") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 2 * chunk);
    const Stream stream = must(device.create_stream());
    std::vector<EventKind> kinds;
    std::vector<residency::Counters> launched;
    std::vector<std::uint64_t> passes;
    {
        auto with = options(14 * chunk, in_order(model));
        with.on_event = [&](const Event& event) {
            kinds.push_back(event.kind);
            if (event.kind == EventKind::graph_launched) {
                launched.push_back(*event.counters);
                passes.push_back(event.pass);
            }
        };
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        run_pass(weights, model, stream);
        must(weights.try_drain());
        auto graph = must(weights.try_capture(stream, [&](auto& pass) {
            kinds.clear();
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        }));
        CHECK(kinds.empty());
        const auto before = weights.statistics().total;
        for (int i = 0; i < 3; ++i) { must(graph.try_launch(stream)); }
        const auto counted = weights.statistics().total - before;
        REQUIRE(launched.size() == 3);
        CHECK(launched[0] + launched[1] + launched[2] == counted);
        CHECK(launched[0].fetched_bytes == bytes_of(weights.plan()));
        CHECK(passes == std::vector<std::uint64_t>{1, 2, 3});
        for (const EventKind kind : kinds) { CHECK((kind == EventKind::graph_launched || kind == EventKind::arrived)); }

        kinds.clear();
        run_pass(weights, model, stream);  // eager passes are told again
        CHECK(kinds.front() == EventKind::pass_began);
        CHECK(kinds.back() == EventKind::pass_ended);

        // What fails in a capture is told, and later passes as well.
        const auto refused = weights.try_capture(
            stream, [](auto&) { return Status{residency::Error{residency::ErrorKind::cancelled, "no"}}; });
        CHECK_FALSE(refused);
        CHECK(kinds.back() == EventKind::failed);
        run_pass(weights, model, stream);
        CHECK(kinds.back() == EventKind::pass_ended);
        must(weights.try_drain());

        // An error that passes through several calls is told once: of a lease in the capture, and of a launch whose end is not recorded.
        const auto failures = [&] { return std::count(kinds.begin(), kinds.end(), EventKind::failed); };
        kinds.clear();
        CHECK_FALSE(weights.try_capture(stream, [](auto& pass) -> Status {
            auto lease = pass.try_acquire({residency::WeightId{99}});
            return lease ? Status{} : Status{lease.error()};
        }));
        CHECK(failures() == 1);
        graph = must(weights.try_capture(stream, [&](auto& pass) {
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        }));
        bool has_lost_end = false, is_over = false;
        for (std::uint64_t nth = 1; !is_over; ++nth) {
            must(weights.try_drain());
            kinds.clear();
            device.fail(Device::CallKind::record, nth);
            const auto done = graph.try_launch(stream);
            device.clear_failures();
            has_lost_end = has_lost_end || (!done && weights.failure());
            CHECK(failures() == (done ? 0 : 1));
            is_over = done.has_value() && nth > 3;
        }
        CHECK(has_lost_end);
    }
    must(device.synchronize());
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("a pass that the caller captures tells nothing, and the next one does") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, chunk);
    const Stream stream = must(device.create_stream());
    std::uint64_t told = 0;
    {
        auto with = options(16 * chunk, in_order(model));
        with.on_event = [&](const Event&) { ++told; };
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        run_pass(weights, model, stream);
        must(weights.try_drain());
        told = 0;
        must(device.begin_capture(stream));
        run_pass(weights, model, stream);
        const auto graph = must(device.end_capture(stream));
        CHECK(told == 0);
        must(device.launch(graph, stream));
        must(device.synchronize(stream));
        must(device.destroy_graph(graph));
        run_pass(weights, model, stream);
        CHECK(told >= 2 + 2 * 4);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("of a chunk that leaves, each storage in it is told with its bytes there") {
    CheckedDevice device;
    const Model model = uniform_model(device, 24, chunk / 2 - 256);  // two in a chunk, and some across
    const Stream stream = must(device.create_stream());
    std::vector<std::uint64_t> evicted(24), sent(24);
    std::uint64_t most = 0;
    {
        auto with = options(6 * chunk, in_order(model));
        with.on_event = [&](const Event& event) {
            if (event.kind == EventKind::evicted) {
                evicted[index(event.storage)] += event.bytes;
                most = std::max(most, event.bytes);
            }
            for (const auto& copy : event.copies) {
                if (event.kind == EventKind::copy_ended) { sent[index(copy.storage)] += copy.bytes; }
            }
        };
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        for (int i = 0; i < 4; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(weights.statistics().total.evictions > 0);
    }
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < evicted.size(); ++i) {
        CHECK(evicted[i] <= sent[i]);                      // what leaves came before
        CHECK(sent[i] <= evicted[i] + (chunk / 2 - 256));  // and no more of it is there than it has
        sum += evicted[i];
    }
    CHECK(sum > 0);
    CHECK(most <= chunk / 2 - 256);
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_SUITE_END();

}  // namespace events_test
