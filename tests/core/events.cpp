// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What a handler of events is told, by every composition. Kernels compare every byte meanwhile.
#include "residency/core/measure/event.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "residency/evict/expected_use.hpp"
#include "tests/core/compositions.hpp"
#include "tests/support/child.hpp"

namespace events_test {

using namespace streaming;
using compositions::Planned;
using residency::Budget;
using residency::ErrorKind;
using residency::Event;
using residency::EventKind;
using residency::StorageId;
using Experts = residency::Experts<residency::SimulatedDevice>;
using CallKind = Device::CallKind;

namespace {

constexpr std::uint64_t bytes = 4096;

/// An event, copied: what it points to lives during the call only.
struct Told {
    EventKind kind;
    std::chrono::nanoseconds at;
    std::uint64_t pass, lease, bytes;
    residency::StepRange steps;
    StorageId storage;
    std::string weight, step, error;
    std::vector<residency::transport::Fetch> copies;
    residency::Counters counters;
    residency::BudgetChange change;
};

struct Listener {
    std::vector<Told> told;

    auto handler() {
        return [this](const Event& event) {
            told.push_back({event.kind,
                            event.at,
                            event.pass,
                            event.lease,
                            event.bytes,
                            event.steps,
                            event.storage,
                            std::string{event.weight()},
                            std::string{event.step_name()},
                            event.error != nullptr ? event.error->message() : std::string{},
                            {event.copies.begin(), event.copies.end()},
                            event.counters != nullptr ? *event.counters : residency::Counters{},
                            event.change != nullptr ? *event.change : residency::BudgetChange{}});
        };
    }
    [[nodiscard]] std::uint64_t count(EventKind kind) const {
        std::uint64_t sum = 0;
        for (const Told& event : told) { sum += event.kind == kind ? 1U : 0U; }
        return sum;
    }
    [[nodiscard]] std::uint64_t bytes_of(EventKind kind) const {
        std::uint64_t sum = 0;
        for (const Told& event : told) { sum += event.kind == kind ? event.bytes : 0; }
        return sum;
    }
    [[nodiscard]] const Told& last(EventKind kind) const {
        for (std::size_t i = told.size(); i-- > 0;) {
            if (told[i].kind == kind) { return told[i]; }
        }
        FAIL("no event " << residency::to_string(kind));
        std::abort();
    }
};

template <class Weights>
typename Weights::Options listened(Listener& listener, std::uint64_t budget, residency::Schedule schedule) {
    auto result = options<Weights>(budget, std::move(schedule));
    result.on_event = listener.handler();
    if constexpr (requires { result.policies.link; }) {
        result.policies.pool.chunk_bytes = bytes;
        result.policies.link = residency::plan::Link{25e9, 2e-6, 2e-6};
        result.policies.memory_bytes_per_second = 4e12;
        result.learn = false;
    }
    return result;
}

/// What begins ends, one copy and one wait at a time; time does not go back; what arrives was sent.
void check_order(const Listener& listener) {
    std::chrono::nanoseconds now{};
    std::map<std::uint64_t, bool> open;
    std::map<StorageId, std::uint64_t> sent, arrived;
    bool in_pass = false, in_copy = false, in_wait = false;
    for (const Told& event : listener.told) {
        CHECK(event.at >= now);
        now = event.at;
        switch (event.kind) {
            case EventKind::pass_began: CHECK_FALSE(std::exchange(in_pass, true)); break;
            case EventKind::pass_ended: CHECK(std::exchange(in_pass, false)); break;
            case EventKind::lease_began: CHECK_FALSE(std::exchange(open[event.lease], true)); break;
            case EventKind::lease_ended: CHECK(std::exchange(open[event.lease], false)); break;
            case EventKind::copy_began: CHECK_FALSE(std::exchange(in_copy, true)); break;
            case EventKind::copy_ended:
                CHECK(std::exchange(in_copy, false));
                for (const auto& copy : event.copies) { sent[copy.storage] += copy.bytes; }
                break;
            case EventKind::wait_began: CHECK_FALSE(std::exchange(in_wait, true)); break;
            case EventKind::wait_ended: CHECK(std::exchange(in_wait, false)); break;
            case EventKind::arrived:
                arrived[event.storage] += event.bytes;
                CHECK(arrived[event.storage] <= sent[event.storage]);
                break;
            default: break;
        }
    }
    CHECK_FALSE(in_pass);
    CHECK_FALSE(in_copy);
    CHECK_FALSE(in_wait);
    for (const auto& [lease, is_open] : open) { CHECK_FALSE(is_open); }
}

}  // namespace

TEST_SUITE_BEGIN("core events");

TEST_CASE_TEMPLATE("a handler is told every pass, lease, copy, arrival and eviction, as the counters count them",
                   Weights, OnDemand, Ahead, compositions::Hinted, Experts, Planned) {
    auto config = small_config();
    config.link.to_device_bytes_per_second = 1e8;  // streams wait
    CheckedDevice device{config};
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    Listener listener;
    {
        auto weights =
            must(Weights::try_create(device, model.catalog, listened<Weights>(listener, 5 * bytes, in_order(model))));
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        const auto total = weights.statistics().total;
        CHECK(total.fetched_bytes > 3 * 3 * bytes);
        CHECK(listener.bytes_of(EventKind::copy_began) == total.fetched_bytes);
        CHECK(listener.bytes_of(EventKind::copy_ended) == total.fetched_bytes);
        CHECK(listener.bytes_of(EventKind::arrived) == total.fetched_bytes);
        CHECK(listener.count(EventKind::copy_ended) == total.calls);
        CHECK(listener.bytes_of(EventKind::evicted) == total.evicted_bytes);
        CHECK(listener.count(EventKind::evicted) == total.evictions);
        CHECK(listener.count(EventKind::lease_began) == total.acquires);
        CHECK(listener.count(EventKind::lease_ended) == total.acquires);
        CHECK(listener.count(EventKind::wait_began) > 0);
        CHECK(listener.count(EventKind::pass_began) == 3);
        CHECK(listener.count(EventKind::pass_ended) == 3);
        CHECK(listener.count(EventKind::failed) == 0);
        CHECK(listener.count(EventKind::diverged) == 0);
        CHECK(listener.last(EventKind::pass_ended).counters == weights.statistics().last_pass);
        CHECK(listener.last(EventKind::pass_ended).pass == 2);
        CHECK(listener.last(EventKind::lease_began).steps == residency::StepRange{7, 8});
        CHECK(listener.last(EventKind::lease_began).weight == "w7");
        check_order(listener);
    }
    const std::size_t events = listener.told.size();
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
    CHECK(listener.told.size() == events);  // the destructor tells nothing
}

TEST_CASE_TEMPLATE("a handler costs the device no call but questions, and changes nothing that is decided", Weights,
                   OnDemand, Ahead, Experts, Planned) {
    std::array<Device::Statistics, 2> device_statistics;
    std::array<residency::Counters, 2> counters;
    for (const bool is_listened : {false, true}) {
        CheckedDevice device;
        const Model model = uniform_model(device, 8, bytes);
        const Stream stream = must(device.create_stream());
        Listener listener;
        {
            auto options = listened<Weights>(listener, 5 * bytes, in_order(model));
            if (!is_listened) { options.on_event = nullptr; }
            auto weights = must(Weights::try_create(device, model.catalog, std::move(options)));
            for (int i = 0; i < 4; ++i) { run_pass(weights, model, stream); }
            must(weights.try_drain());
            counters[is_listened ? 1 : 0] = weights.statistics().total;
        }
        must(device.destroy_stream(stream));
        device_statistics[is_listened ? 1 : 0] = device.statistics();
        CHECK(listener.told.empty() != is_listened);
    }
    CHECK(counters[0] == counters[1]);
    for (std::size_t kind = 0; kind < device_statistics[0].calls.size(); ++kind) {
        CAPTURE(kind);
        // After more questions the library may know that a copy has arrived, and makes no stream wait for it.
        if (kind == static_cast<std::size_t>(CallKind::is_complete)) { continue; }
        if (kind == static_cast<std::size_t>(CallKind::wait) ||
            kind == static_cast<std::size_t>(CallKind::is_capturing)) {
            CHECK(device_statistics[1].calls[kind] <= device_statistics[0].calls[kind]);
            continue;
        }
        CHECK(device_statistics[0].calls[kind] == device_statistics[1].calls[kind]);
    }
}

TEST_CASE_TEMPLATE("a divergence, a change of the budget and an error that a call returns are told", Weights, OnDemand,
                   Ahead, Experts, Planned) {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    Listener listener;
    {
        auto weights =
            must(Weights::try_create(device, model.catalog, listened<Weights>(listener, 5 * bytes, in_order(model))));
        {
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weight(3)));
            CHECK(listener.last(EventKind::diverged).weight == "w3");
            CHECK(listener.count(EventKind::diverged) == 1);
            verify(device, model, lease, weight(3), stream);

            CHECK_FALSE(weights.try_begin(stream));
            CHECK(listener.last(EventKind::failed).error.find("a pass is already open") != std::string::npos);
            CHECK_FALSE(pass.try_acquire(weight(99)));
            CHECK(listener.last(EventKind::failed).error.find("99") != std::string::npos);
            CHECK(listener.count(EventKind::failed) == 2);
        }
        const auto change = must(weights.try_set_budget(Budget::bytes(6 * bytes)));
        CHECK(listener.last(EventKind::budget_changed).change == change);
        CHECK(listener.last(EventKind::budget_changed).bytes == change.budget_bytes);
        CHECK_FALSE(weights.try_set_budget(Budget::bytes(1)));
        CHECK(listener.count(EventKind::failed) == 3);
        CHECK(listener.count(EventKind::budget_changed) == 1);
        check_order(listener);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE_TEMPLATE("a copy that the device refuses ends with the error, and does not arrive", Weights, OnDemand,
                   Planned) {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    Listener listener;
    {
        auto weights =
            must(Weights::try_create(device, model.catalog, listened<Weights>(listener, 5 * bytes, in_order(model))));
        run_pass(weights, model, stream);
        must(weights.try_drain());
        auto pass = must(weights.try_begin(stream));
        device.fail(CallKind::copy, 1);
        for (std::uint32_t w = 0; w < 8; ++w) {
            auto lease = pass.try_acquire(weight(w));
            if (lease) { verify(device, model, *lease, weight(w), stream); }
        }
        device.clear_failures();
        must(pass.try_end());
        must(weights.try_drain());
        std::uint64_t refused = 0;
        for (const Told& event : listener.told) {
            if (event.kind == EventKind::copy_ended && !event.error.empty()) { refused += event.bytes; }
        }
        CHECK(refused > 0);
        CHECK(listener.bytes_of(EventKind::arrived) + refused == listener.bytes_of(EventKind::copy_began));
        check_order(listener);
    }
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}

TEST_CASE("what no call can return is told: the use of a lease that could not be recorded") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    Listener listener;
    {
        auto weights =
            must(OnDemand::try_create(device, model.catalog, listened<OnDemand>(listener, 5 * bytes, in_order(model))));
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire(weight(0)));
        verify(device, model, lease, weight(0), stream);
        device.fail(CallKind::record, 1);
        lease.end();
        device.clear_failures();
        REQUIRE(weights.failure());
        CHECK(listener.count(EventKind::failed) == 1);
        CHECK(listener.last(EventKind::failed).error == weights.failure()->message());
        must(pass.try_end());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a ticket is told as a lease once it is one") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, bytes);
    const Stream stream = must(device.create_stream());
    Listener listener;
    {
        auto weights =
            must(OnDemand::try_create(device, model.catalog, listened<OnDemand>(listener, 3 * bytes, in_order(model))));
        auto pass = must(weights.try_begin(stream));
        auto ticket = must(pass.try_request(weight(0)));
        CHECK(listener.count(EventKind::lease_began) == 0);
        auto lease = must(std::move(ticket).try_lease(stream));
        CHECK(listener.count(EventKind::lease_began) == 1);
        CHECK(listener.count(EventKind::wait_began) == 1);
        verify(device, model, lease, weight(0), stream);
        lease.end();
        static_cast<void>(must(pass.try_request(weight(1))));  // and one that never is
        must(pass.try_end());
        check_order(listener);
        CHECK(listener.count(EventKind::lease_ended) == 1);
    }
    must(device.destroy_stream(stream));
}

#if RESIDENCY_EXCEPTIONS
TEST_CASE("a handler that throws is not called again, and the program goes on") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, bytes);
    const Stream stream = must(device.create_stream());
    int calls = 0;
    {
        auto with = options<OnDemand>(5 * bytes, in_order(model));
        with.on_event = [&](const Event&) {
            ++calls;
            throw std::runtime_error{"the disk is full"};
        };
        auto weights = must(OnDemand::try_create(device, model.catalog, std::move(with)));
        for (int i = 0; i < 2; ++i) { run_pass(weights, model, stream); }
        REQUIRE(weights.failure());
        CHECK(weights.failure()->kind() == ErrorKind::cancelled);
        CHECK(weights.failure()->message().find("the disk is full") != std::string::npos);
        CHECK(weights.statistics().total.passes == 2);
    }
    CHECK(calls == 1);
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}
#endif

#if RESIDENCY_ASSERTIONS
TEST_CASE("a handler that calls the Residency that it is told of is stopped by an assertion") {
    const auto outcome = child::run([] {
        Device device{small_config()};
        const Model model = uniform_model(device, 8, bytes);
        const Stream stream = must(device.create_stream());
        OnDemand* own = nullptr;
        auto with = options<OnDemand>(5 * bytes, in_order(model));
        with.on_event = [&](const Event& event) {
            if (event.kind == EventKind::pass_began) {
                static_cast<void>(own->try_set_budget(Budget::bytes(8 * bytes)));
            }
        };
        auto weights = must(OnDemand::try_create(device, model.catalog, std::move(with)));
        own = &weights;
        static_cast<void>(weights.try_begin(stream));
    });
    CHECK(outcome.aborted);
    CHECK(outcome.text.find("must not call the Residency that it is told of") != std::string::npos);
}
#endif

TEST_CASE("every kind of event has a name of its own") {
    std::map<std::string, int> names;
    for (std::size_t kind = 0; kind < residency::event_kinds; ++kind) {
        ++names[std::string{residency::to_string(static_cast<EventKind>(kind))}];
    }
    CHECK(names.size() == residency::event_kinds);
    CHECK(names.count("") == 0);
}

}  // namespace events_test
