// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/engine/lease.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/compositions.hpp"

namespace leases_test {

using namespace streaming;
using namespace std::chrono_literals;
using residency::ErrorKind;
using residency::WeightId;

TEST_SUITE_BEGIN("core leases");

TEST_CASE_TEMPLATE("C15: a leased storage stays at its place while everything else comes and goes", Weights, OnDemand,
                   Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 4 * 4096, in_order(model));
        auto pass = must(weights.try_begin(stream));
        auto kept = must(pass.try_acquire(weight(0)));
        const std::byte* const at = kept.data(weight(0));
        for (int round = 0; round < 3; ++round) {
            for (std::uint32_t w = 1; w < 8; ++w) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream);
                REQUIRE(kept.data(weight(0)) == at);
            }
        }
        verify(device, model, kept, weight(0), stream);
        kept.end();
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(weights.statistics().total.evictions > 0);
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 22 * 4096);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("a stream that was destroyed, or is of another device, is refused as such", W, OnDemand,
                   compositions::Planned) {
    Device device{small_config()}, elsewhere{small_config()};
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream()), gone = must(device.create_stream());
    must(device.destroy_stream(gone));
    const Stream foreign = must(elsewhere.create_stream());
    const auto says = [](const residency::Error& error, const char* what) {
        CAPTURE(error.message());
        CHECK(error.kind() == ErrorKind::invalid_argument);
        CHECK(error.message().find(std::string{"the stream is not valid: it "} + what +
                                   " that lives until the last lease on it has ended") != std::string::npos);
    };
    {
        auto weights = make<W>(device, model, 0, in_order(model));
        const auto never_begun = weights.try_begin(gone);
        REQUIRE_FALSE(never_begun);
        says(never_begun.error(), "was destroyed, or never made: pass one");
        const auto begun_elsewhere = weights.try_begin(foreign);
        REQUIRE_FALSE(begun_elsewhere);
        says(begun_elsewhere.error(), "was made by another device: pass one of this device");
        auto pass = must(weights.try_begin(stream));
        const auto refused = pass.try_acquire(weight(0), gone);
        REQUIRE_FALSE(refused);
        says(refused.error(), "was destroyed, or never made: pass one");
        must(pass.try_end());
        run_pass(weights, model, stream);  // with a valid one all is well
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(elsewhere.destroy_stream(foreign));
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C17: a refusal has the same numbers whatever is on the device already", W, OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<W>(device, model, 8 * 4096, in_order(model));
        std::vector<WeightId> ten;
        for (std::uint32_t i = 0; i < 10; ++i) { ten.push_back(weight(i)); }
        for (const std::size_t there : {0U, 2U, 4U}) {
            for (const bool stays_leased : {false, true}) {
                CAPTURE(there);
                CAPTURE(stays_leased);
                auto pass = must(weights.try_begin(stream));
                auto part = must(pass.try_acquire(std::span{ten}.first(there)));
                auto other = must(pass.try_acquire(weight(11)));
                if (!stays_leased) { part.end(); }
                const auto refused = pass.try_acquire(ten);
                REQUIRE_FALSE(refused);
                const auto* numbers = refused.error().template detail<residency::BudgetNumbers>();
                REQUIRE(numbers != nullptr);
                CHECK(numbers->asked_bytes == 10 * 4096);
                CHECK(numbers->held_bytes == 4096);  // what is asked for and leased as well counts once
                CHECK(numbers->budget_bytes == 8 * 4096);
                CHECK(numbers->floor_bytes == weights.statistics().floor_bytes);
                CHECK(
                    refused.error().message().find("40,960 bytes (40 KiB) are asked for together, 4,096 bytes (4 KiB) "
                                                   "are leased beside them") != std::string::npos);
                CHECK(refused.error().message().find("groups of at most 7 storages") != std::string::npos);
                other.end();
                part.end();
                CHECK(pass.try_acquire(std::span{ten}.first(7)));
                must(pass.try_end());
            }
        }
        must(weights.try_drain());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "C16 C17: exhaustion is refused whole, with the numbers, and what is leased stays; it works once leases end") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 3 * 4096);
        auto pass = must(weights.try_begin(stream));
        auto first = must(pass.try_acquire(weight(0)));
        auto second = must(pass.try_acquire(weight(1)));
        const auto before = weights.statistics().total;
        const auto refused = pass.try_acquire({weight(2), weight(3)});
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->asked_bytes == 2 * 4096);
        CHECK(numbers->budget_bytes == 3 * 4096);
        CHECK(numbers->held_bytes == 2 * 4096);
        CHECK(weights.statistics().total.acquires == before.acquires);
        CHECK(weights.statistics().total.fetched_bytes == before.fetched_bytes);
        CHECK(weights.statistics().requested_bytes == 2 * 4096);
        verify(device, model, first, weight(0), stream);
        verify(device, model, second, weight(1), stream);
        first.end();
        auto third = must(pass.try_acquire({weight(2), weight(3)}));
        CHECK(third.covers(weight(2)));
        CHECK(third.covers(weight(3)));
        CHECK_FALSE(third.covers(weight(1)));    // another lease does
        CHECK_FALSE(third.covers(WeightId{6}));  // the model lacks it
        CHECK_FALSE(first.covers(weight(0)));    // it has ended
        verify(device, model, third, weight(2), stream);
        verify(device, model, third, weight(3), stream);
        third.end();
        second.end();
        CHECK_THROWS_AS(static_cast<void>(pass.acquire({weight(0), weight(1), weight(2), weight(3)})),
                        residency::BudgetError);
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 4 * 4096);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("leases move, nest, share storages and end in any order") {
    CheckedDevice device;
    const Model model = uniform_model(device, 5, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 3 * 4096);
        auto pass = must(weights.try_begin(stream));
        auto a = must(pass.try_acquire({weight(0), weight(1)}));
        auto b = must(pass.try_acquire({weight(1), weight(2)}));
        const std::byte* const at = b.data(weight(1));
        CHECK(a.data(weight(1)) == at);
        a.end();
        CHECK_FALSE(static_cast<bool>(a));
        a.end();
        // weight(1) is still b's, weight(0) may leave.
        auto c = must(pass.try_acquire(weight(3)));
        CHECK(b.data(weight(1)) == at);
        verify(device, model, b, weight(1), stream);
        OnDemand::Lease d{std::move(b)};
        CHECK_FALSE(static_cast<bool>(b));
        verify(device, model, d, weight(2), stream);
        d = std::move(c);  // ends what d held
        CHECK_FALSE(static_cast<bool>(c));
        CHECK(static_cast<bool>(d));
        auto& same = d;
        d = std::move(same);
        CHECK(static_cast<bool>(d));
        verify(device, model, d, weight(3), stream);
        auto e = must(pass.try_acquire({weight(0), weight(4)}));
        verify(device, model, e, weight(4), stream);
        std::vector<OnDemand::Lease> many;
        many.push_back(std::move(d));
        many.push_back(std::move(e));
        for (int i = 0; i < 20; ++i) { many.push_back(must(pass.try_acquire(weight(3)))); }
        many.erase(many.begin() + 1);
        many.clear();
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C14: a lease outlives its pass, and its end counts on its own stream although the next pass uses another") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream slow = must(device.create_stream("slow"));
    const Stream fast = must(device.create_stream("fast"));
    {
        auto weights = make<OnDemand>(device, model, 2 * 4096);
        auto pass = must(weights.try_begin(slow));
        auto kept = must(pass.try_acquire(weight(0)));
        must(pass.try_end());
        pass = must(weights.try_begin(fast));
        verify(device, model, kept, weight(0), slow, 5ms);
        kept.end();
        for (std::uint32_t w = 1; w < 4; ++w) {
            auto lease = must(pass.try_acquire(weight(w)));
            verify(device, model, lease, weight(w), fast);
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.verified == 4 * 4096);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(slow));
    must(device.destroy_stream(fast));
}

TEST_CASE("use_on: every named stream waits for the bytes, and the bytes wait for every named stream") {
    CheckedDevice device;
    const Model model = uniform_model(device, 5, 4096);
    std::vector<Stream> streams;
    for (int i = 0; i < 4; ++i) { streams.push_back(must(device.create_stream())); }
    {
        auto weights = make<OnDemand>(device, model, 2 * 4096);
        for (int round = 0; round < 4; ++round) {
            auto pass = must(weights.try_begin(streams[0]));
            for (std::uint32_t w = 0; w < 5; ++w) {
                auto lease = must(pass.try_acquire(weight(w), streams[w % 4]));
                for (std::size_t s = 0; s < streams.size(); ++s) {
                    lease.use_on(streams[s]);
                    must(lease.try_use_on(streams[s]));
                    verify(device, model, lease, weight(w), streams[s], s == 2 ? 100us : 1us);
                }
            }
        }
        must(weights.try_drain());
        CHECK(*model.verified == 4 * 5 * 4 * 4096);
        CHECK(*model.wrong == 0);
    }
    for (const Stream stream : streams) { must(device.destroy_stream(stream)); }
}

TEST_CASE("tickets: bytes travel at the request, stay, and become a lease on any stream, once") {
    CheckedDevice device;
    const Model model = uniform_model(device, 5, 4096);
    const Stream stream = must(device.create_stream());
    const Stream other = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 3 * 4096);
        auto pass = must(weights.try_begin(stream));
        auto ticket = must(pass.try_request(weight(0)));
        CHECK(device.statistics().bytes_to_device == 4096);
        auto also = must(pass.try_request(std::vector<WeightId>{weight(1)}));
        CHECK(weights.statistics().total.acquires == 2);
        for (std::uint32_t w = 2; w < 5; ++w) { static_cast<void>(must(pass.try_acquire(weight(w)))); }
        CHECK(device.statistics().bytes_to_device == 5 * 4096);
        OnDemand::Ticket moved{std::move(ticket)};
        CHECK_FALSE(static_cast<bool>(ticket));
        auto lease = must(moved.try_lease(other));
        CHECK_FALSE(static_cast<bool>(moved));
        verify(device, model, lease, weight(0), other);
        CHECK(device.statistics().bytes_to_device == 5 * 4096);
        lease.end();
        // Two tickets on two storages leave one place; dropping one gives its place back.
        auto held = must(pass.try_request(weight(2)));
        CHECK_FALSE(pass.try_acquire({weight(3), weight(4)}));
        also.drop();
        also.drop();
        static_cast<void>(must(pass.try_acquire({weight(3), weight(4)})));
        held = must(pass.try_request(weight(3)));
        auto last = held.lease();
        verify(device, model, last, weight(3), stream);
        last.end();
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 2 * 4096);
    }
    must(device.destroy_stream(stream));
    must(device.destroy_stream(other));
}

TEST_CASE("more uses may be outstanding than events were made for") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 2 * 4096);
        auto pass = must(weights.try_begin(stream));
        for (std::uint32_t i = 0; i < 400; ++i) {
            auto lease = must(pass.try_acquire(weight(i % 4)));
            verify(device, model, lease, weight(i % 4), stream, 300us);
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.verified == 400 * 4096);
        CHECK(*model.wrong == 0);
        // As many again reuse those events.
        const auto events = device.statistics().of(Device::CallKind::create_event);
        pass = must(weights.try_begin(stream));
        for (std::uint32_t i = 0; i < 400; ++i) { static_cast<void>(must(pass.try_acquire(weight(i % 4)))); }
        must(pass.try_end());
        CHECK(device.statistics().of(Device::CallKind::create_event) == events);
    }
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace leases_test
