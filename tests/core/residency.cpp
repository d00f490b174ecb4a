// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/residency.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/core/compositions.hpp"

namespace residency_test {

using namespace streaming;
using compositions::Planned;
using residency::Budget;
using residency::ErrorKind;
using residency::Placement;
using residency::Schedule;
using residency::WeightId;
using CallKind = Device::CallKind;

TEST_SUITE_BEGIN("core residency");

TEST_CASE_TEMPLATE("C8 C13 C14: passes through a small budget give every byte, in order and inside the budget", Weights,
                   OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 8192);
    const Stream stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    const std::uint64_t budget = std::uint64_t{8192} * 4 + 4096;
    {
        auto weights = make<Weights>(device, model, budget, in_order(model));
        for (int i = 0; i < 4; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(*model.verified == 4U * 12 * 8192);
        CHECK(*model.wrong == 0);
        const auto statistics = weights.statistics();
        CHECK(statistics.streaming);
        CHECK(statistics.total.passes == 4);
        CHECK(statistics.total.evictions > 0);
        CHECK(statistics.held_bytes <= budget);
        CHECK(statistics.held_bytes == before - must(device.memory()).free_bytes);
        CHECK(statistics.peak_requested_bytes <= budget);
        CHECK(device.peak_used_bytes() <= budget);
    }
    CHECK(must(device.memory()).free_bytes == before);
    must(device.destroy_stream(stream));
}

TEST_CASE("with more uses outstanding than there are events the host waits for the oldest, and the pass counts that") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 4096);
        auto pass = must(weights.try_begin(stream));
        {
            const auto lease = must(pass.try_acquire(weight(0)));
            verify(device, model, lease, weight(0), stream, std::chrono::seconds{100});
        }
        const std::uint64_t most = 8192;
        for (std::uint64_t use = 1; use < most; ++use) { must(pass.try_acquire(weight(0))).end(); }
        CHECK(weights.statistics().total.host_waits == 0);
        must(pass.try_acquire(weight(0))).end();
        CHECK(weights.statistics().total.host_waits == 1);
        must(pass.try_end());
        CHECK(weights.statistics().last_pass.host_waits == 1);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C13 C18: in steady state no pass waits on the host, creates events or allocates device memory",
                   Weights, OnDemand, Ahead) {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 8192);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 8192 * 5, in_order(model));
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        const auto before = device.statistics();
        const auto waits = weights.statistics().total.host_waits;
        for (int i = 0; i < 3; ++i) {
            run_pass(weights, model, stream);
            must(device.synchronize(stream));  // as a program does that reads a token
        }
        const auto after = device.statistics();
        for (const CallKind kind :
             {CallKind::create_event, CallKind::destroy_event, CallKind::create_stream, CallKind::allocate,
              CallKind::deallocate, CallKind::create_pool, CallKind::synchronize_event, CallKind::synchronize_device}) {
            CHECK_MESSAGE(after.of(kind) == before.of(kind), std::string{residency::simulation::name(kind)});
        }
        CHECK(after.of(CallKind::synchronize_stream) == before.of(CallKind::synchronize_stream) + 3);
        CHECK(weights.statistics().total.host_waits == waits);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("where everything is resident a pass asks nothing of the device, but for the time of one in sixteen",
                   Weights, OnDemand, Ahead, Planned) {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 8192);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 16 << 20, in_order(model));
        for (int i = 0; i < 16; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(weights.statistics().pass_time);
        const auto asked = [&] {
            const auto now = device.statistics();
            std::uint64_t sum = 0;
            for (const CallKind kind : {CallKind::record, CallKind::wait, CallKind::copy}) { sum += now.of(kind); }
            return sum;
        };
        for (int sixteen = 0; sixteen < 2; ++sixteen) {
            const auto before = asked();
            for (int i = 0; i < 16; ++i) { run_pass(weights, model, stream); }
            CHECK(asked() == before + 2);
        }
        must(device.synchronize(stream));
        CHECK(weights.statistics().pass_time);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("the time of a pass is that of one under the budget in force soon after it has changed") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 1 << 20);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 4 << 20, in_order(model));
        for (int i = 0; i < 17; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        const auto streaming = weights.statistics().pass_time;
        must(weights.try_set_budget(Budget::bytes(64 << 20)));
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        must(device.synchronize(stream));
        const auto resident = weights.statistics().pass_time;
        REQUIRE(streaming);
        REQUIRE(resident);
        CHECK(*resident < *streaming);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C1: identity is the id that is passed; a bad one is an error without side effect") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 8192 + 4096, in_order(model));
        auto pass = must(weights.try_begin(stream));
        const auto before = weights.statistics().total;
        const auto copies = device.statistics().copies;
        for (const std::uint32_t bad : {4U, 5U, UINT32_MAX}) {
            const auto refused = pass.try_acquire(weight(bad));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::invalid_argument);
            CHECK(refused.error().message().find(std::to_string(bad)) != std::string::npos);
            CHECK_FALSE(pass.try_acquire({weight(0), weight(bad)}));
            CHECK_FALSE(pass.try_request(weight(bad)));
        }
        CHECK(weights.statistics().total == before);
        CHECK(device.statistics().copies == copies);
        // Out of the declared order, each id still gives its own bytes.
        for (const std::uint32_t i : {3U, 0U, 2U, 2U, 1U, 3U}) {
            auto lease = must(pass.try_acquire(weight(i)));
            verify(device, model, lease, weight(i), stream);
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.verified == 6 * 4096);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C4 C5: tied weights are one copy; scalars and weights without bytes work") {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {0}, {1}, {4096}}, true);  // w0…w3, t0…t3
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 16384);
        auto pass = must(weights.try_begin(stream));
        {
            auto both = must(pass.try_acquire({weight(0), weight(4)}));
            CHECK(both.data(weight(4)) == both.data(weight(0)) + 2048);
            CHECK(both.bytes(weight(4)).size() == 2048);
            verify(device, model, both, weight(0), stream);
            verify(device, model, both, weight(4), stream);
        }
        CHECK(device.statistics().bytes_to_device == 4096);
        {
            auto again = must(pass.try_acquire(weight(4)));
            verify(device, model, again, weight(4), stream);
        }
        CHECK(device.statistics().bytes_to_device == 4096);
        auto empty = must(pass.try_acquire(weight(1)));
        CHECK(empty.data(weight(1)) == nullptr);
        CHECK(empty.bytes(weight(1)).empty());
        CHECK(empty.span<std::byte>(weight(1)).empty());
        auto scalar = must(pass.try_acquire(weight(2)));
        CHECK(scalar.span<unsigned char>(weight(2)).size() == 1);
        verify(device, model, scalar, weight(2), stream);
        auto nothing = must(pass.try_acquire(std::vector<WeightId>{}));
        CHECK(static_cast<bool>(nothing));
        scalar.end();
        empty.end();
        nothing.end();
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 4096 + 2048 + 2048 + 1);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a catalog without bytes, and one without storages, work") {
    CheckedDevice device;
    const Stream stream = must(device.create_stream());
    for (const bool has_storages : {false, true}) {
        const Model model = make_model(device, std::vector<Spec>(has_storages ? 2 : 0));
        auto weights = make<OnDemand>(device, model, 0);
        CHECK_FALSE(weights.statistics().streaming);
        CHECK(weights.statistics().held_bytes == 0);
        auto pass = must(weights.try_begin(stream));
        if (has_storages) {
            const auto lease = must(pass.try_acquire(weight(1)));
            CHECK(lease.bytes(weight(1)).empty());
        }
        must(pass.try_end());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C6: what kernels write to a mutable storage stays through passes that stream everything else") {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {4096}, {4096}, {512, Placement::streamed, true}});
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 4096 + 8192);
        CHECK(weights.statistics().resident_bytes == 512);
        {
            auto pass = must(weights.try_begin(stream));
            auto lease = must(pass.try_acquire(weight(3)));
            verify(device, model, lease, weight(3), stream);
            auto* const at = lease.writable<unsigned char>(weight(3));
            must(device.launch(stream, {.name = "write", .reads = {}, .writes = {{at, 512}}, .body = [at] {
                                            std::memset(at, 7, 512);
                                        }}));
        }
        for (int i = 0; i < 3; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t w = 0; w < 3; ++w) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream);
            }
        }
        CHECK(weights.statistics().total.evictions > 0);
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire(weight(3)));
        const auto* const at = lease.get<unsigned char>(weight(3));
        int sevens = 0;
        must(device.launch(stream, {.name = "read", .reads = {{at, 512}}, .writes = {}, .body = [at, &sevens] {
                                        for (int i = 0; i < 512; ++i) { sevens += at[i] == 7 ? 1 : 0; }
                                    }}));
        must(device.synchronize(stream));
        CHECK(sevens == 512);
        lease.end();
        must(pass.try_end());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("placements: residents arrive once and never leave, host storages cost no device bytes") {
    CheckedDevice device;
    const Model model = make_model(
        device,
        {{4096}, {3000, Placement::resident}, {5000, Placement::host}, {4096}, {100, Placement::resident}, {4096}});
    const Stream stream = must(device.create_stream());
    const std::uint64_t before = must(device.memory()).free_bytes;
    {
        auto weights = make<OnDemand>(device, model, 0);
        const auto built = weights.statistics();
        CHECK(built.resident_bytes == 3100);
        CHECK(built.host_read_bytes == 5000);
        CHECK(built.total.fetched_bytes == 3100);
        CHECK(built.total.calls == 1);
        const std::byte* first = nullptr;
        for (int i = 0; i < 3; ++i) {
            auto pass = must(weights.try_begin(stream));
            for (const std::uint32_t w : {0U, 1U, 2U, 3U, 4U, 5U}) {
                auto lease = must(pass.try_acquire(weight(w)));
                verify(device, model, lease, weight(w), stream);
                if (w == 1 && first == nullptr) { first = lease.data(weight(w)); }
                if (w == 1) { CHECK(lease.data(weight(w)) == first); }
            }
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        const auto statistics = weights.statistics();
        CHECK(statistics.total.fetched_bytes == 3100 + 3 * 3 * 4096);
        CHECK(statistics.total.demand_misses == 9);
        CHECK(before - must(device.memory()).free_bytes == statistics.held_bytes);
        CHECK(statistics.held_bytes <= statistics.budget_bytes);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("a host storage that is not pinned, and bytes that are nowhere, are refused by name") {
    CheckedDevice device;
    std::vector<std::byte> pageable(4096);
    residency::CatalogBuilder builder;
    residency::StorageOptions at_host;
    at_host.placement = Placement::host;
    at_host.source = residency::HostSource{residency::HostBytes::borrow(pageable, residency::HostMemory::pageable), 0};
    builder.add_weight("table", residency::dtype::u8, {4096}, builder.add_storage(4096, at_host));
    const auto refused = OnDemand::try_create(device, must(builder.try_build()), options<OnDemand>(0));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::unsupported);
    CHECK(refused.error().message().find("table") != std::string::npos);

    residency::CatalogBuilder other;
    other.add("nowhere", residency::dtype::u8, {64}, residency::StorageSource{});
    const auto missing = OnDemand::try_create(device, must(other.try_build()), options<OnDemand>(0));
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind() == ErrorKind::unsupported);
    CHECK(missing.error().message().find("nowhere") != std::string::npos);
    CHECK(device.leaks().empty());
}

TEST_CASE("memory that another device has pinned, or none, is refused by name") {
    CheckedDevice device, other;
    std::vector<std::byte> bytes(4096);
    const auto refused = [&] {
        residency::CatalogBuilder builder;
        builder.add("table", residency::dtype::u8, {4096}, bytes, residency::HostMemory::pinned);
        const auto made = OnDemand::try_create(device, must(builder.try_build()), options<OnDemand>(8192));
        return made ? std::string{} : made.error().message();
    };
    const std::string_view message = "\"table\" is said to lie in pinned memory, which this device has not pinned";
    CHECK(refused().starts_with(message));
    must(other.pin(bytes.data(), bytes.size()));
    CHECK(refused().starts_with(message));
    must(other.unpin(bytes.data()));
    must(device.pin(bytes.data(), bytes.size()));
    CHECK(refused().empty());
    must(device.unpin(bytes.data()));
    CHECK(device.leaks().empty());
}

TEST_CASE("C21: streams differ from pass to pass and within one; the default stream is one of them") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, 4096);
    std::vector<Stream> streams{Stream{}};
    for (int i = 0; i < 3; ++i) { streams.push_back(must(device.create_stream())); }
    {
        auto weights = make<OnDemand>(device, model, 8192 + 4096, in_order(model));
        for (std::size_t p = 0; p < 8; ++p) {
            auto pass = must(weights.try_begin(streams[p % 4]));
            for (std::uint32_t w = 0; w < 6; ++w) {
                const Stream on = streams[(p + w) % 4];
                auto lease = must(pass.try_acquire(weight(w), on));
                verify(device, model, lease, weight(w), on, std::chrono::microseconds{w % 2 == 0 ? 50 : 1});
            }
        }
        must(weights.try_drain());
        CHECK(*model.verified == 8 * 6 * 4096);
        CHECK(*model.wrong == 0);
    }
    for (std::size_t i = 1; i < streams.size(); ++i) { must(device.destroy_stream(streams[i])); }
}

TEST_CASE("the end of a pass joins every stream of it into its own") {
    CheckedDevice device;
    const Model model = uniform_model(device, 2, 4096);
    const Stream first = must(device.create_stream());
    const Stream second = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 8192);
        auto pass = must(weights.try_begin(first));
        {
            auto lease = must(pass.try_acquire(weight(0), second));
            verify(device, model, lease, weight(0), second, std::chrono::milliseconds{3});
        }
        must(pass.try_end());
        must(device.synchronize(first));
        CHECK(*model.verified == 4096);
        REQUIRE(weights.statistics().pass_time);
        CHECK(*weights.statistics().pass_time >= std::chrono::milliseconds{3});
    }
    must(device.destroy_stream(first));
    must(device.destroy_stream(second));
}

TEST_CASE("a pass that is open refuses another; one that ended refuses everything; it can be moved and begun again") {
    CheckedDevice device;
    const Model model = uniform_model(device, 3, 4096);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 0, in_order(model));
        auto pass = must(weights.try_begin(stream));
        const auto second = weights.try_begin(stream);
        REQUIRE_FALSE(second);
        CHECK(second.error().kind() == ErrorKind::wrong_state);
        CHECK(weights.try_set_schedule(in_order(model)).error().kind() == ErrorKind::wrong_state);

        OnDemand::Pass moved = std::move(pass);
        {
            const auto lease = must(moved.try_acquire(weight(0)));
            CHECK(lease.data(weight(0)) != nullptr);
        }
        CHECK(pass.try_acquire(weight(0)).error().kind() == ErrorKind::wrong_state);
        must(moved.try_end());
        must(moved.try_end());
        CHECK(moved.try_acquire(weight(0)).error().kind() == ErrorKind::wrong_state);
        CHECK(moved.try_acquire(weight(0), stream).error().kind() == ErrorKind::wrong_state);
        CHECK(moved.try_acquire({weight(0), weight(1)}).error().kind() == ErrorKind::wrong_state);
        CHECK(moved.try_request(weight(0)).error().kind() == ErrorKind::wrong_state);
        CHECK_THROWS_AS(static_cast<void>(moved.acquire(weight(0))), residency::WrongState);
        CHECK(weights.statistics().total.passes == 1);
        {
            auto third = weights.begin(stream);
            static_cast<void>(third.acquire(weights.schedule()[0]));
            CHECK_THROWS_AS(static_cast<void>(weights.begin(stream)), residency::WrongState);
        }
        CHECK(weights.statistics().total.passes == 2);
        moved = weights.begin(stream);
        moved = OnDemand::Pass{};
        CHECK(weights.statistics().total.passes == 3);
        CHECK_FALSE(weights.failure().has_value());
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C24: the statistics tell hits, demand misses and prefetch hits apart, in number and in bytes") {
    CheckedDevice device;
    const Model model = make_model(device, {{4096}, {1000}, {2000}});
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnDemand>(device, model, 8192);
        CHECK(weights.statistics().streaming);
        auto pass = must(weights.try_begin(stream));
        static_cast<void>(must(pass.try_acquire({weight(0), weight(1)})));
        static_cast<void>(must(pass.try_acquire(weight(1))));
        must(pass.try_end());
        auto counters = weights.statistics().last_pass;
        CHECK(counters.passes == 1);
        CHECK(counters.acquires == 2);
        CHECK(counters.demand_misses == 2);
        CHECK(counters.missed_bytes == 5096);
        CHECK(counters.hits == 1);
        CHECK(counters.hit_bytes == 1000);
        CHECK(counters.calls == 1);
        CHECK(counters.fetched_bytes == 5096);
        CHECK(counters.prefetch_hits == 0);
        pass = must(weights.try_begin(stream));
        static_cast<void>(must(pass.try_acquire({weight(0), weight(1), weight(2)})));
        must(pass.try_end());
        counters = weights.statistics().last_pass;
        CHECK(counters.hits == 2);
        CHECK(counters.demand_misses == 1);
        CHECK(counters.missed_bytes == 2000);
        CHECK(weights.statistics().total.acquires == 3);
        CHECK(weights.statistics().requested_bytes == 4096 + 1024 + 2048);
    }
    {
        const Model cycle = uniform_model(device, 4, 4096);
        auto weights = make<Ahead>(device, cycle, 3 * 4096, in_order(cycle));
        for (int i = 0; i < 3; ++i) { run_pass(weights, cycle, stream); }
        must(weights.try_drain());
        const auto last = weights.statistics().last_pass;
        CHECK(last.demand_misses == 0);
        CHECK(last.hits + last.prefetch_hits == 4);
        CHECK(last.prefetch_hits >= 1);
        CHECK(last.hit_bytes + last.prefetch_hit_bytes == 4 * 4096);
        CHECK(last.evictions >= 1);
        CHECK(last.evicted_bytes == last.evictions * 4096);
        CHECK(*cycle.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C26: a kernel that reads after its lease has ended is named by the checker; poison makes its bytes wrong") {
    Device device{small_config()};
    const Model model = uniform_model(device, 4, 4096);
    const Stream stream = must(device.create_stream());
    const Stream other = must(device.create_stream());
    {
        auto chosen = options<OnDemand>(8192);
        chosen.poison = true;
        auto weights = must(OnDemand::try_create(device, model.catalog, std::move(chosen)));
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire(weight(0)));
        const std::byte* const at = lease.data(weight(0));
        lease.end();
        for (std::uint32_t w = 1; w < 4; ++w) { static_cast<void>(must(pass.try_acquire(weight(w)))); }
        CHECK(device.reports().empty());
        must(pass.try_end());
        // A misuse, on purpose: nothing orders this read before the bytes were taken.
        const auto launched = device.launch(other, {.name = "stray", .reads = {{at, 4096}}, .writes = {}, .body = {}});
        static_cast<void>(launched.has_value());
        REQUIRE_FALSE(device.reports().empty());
        CHECK(device.reports().front().text.find("stray") != std::string::npos);
        must(device.synchronize());
    }
    must(device.destroy_stream(other));
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "small weights that are neighbours on both sides travel in one copy, pass after pass, where the pool is one "
    "range") {
    CheckedDevice device;
    const Model model = uniform_model(device, 48, 1024);
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{model.catalog};
    for (std::uint32_t first = 0; first < 48; first += 8) {
        std::vector<WeightId> step;
        for (std::uint32_t i = first; i < first + 8; ++i) { step.push_back(weight(i)); }
        builder.step(step);
    }
    const Schedule schedule = must(builder.try_build());
    const auto copies_a_pass = [&]<class Weights>(Weights weights) {
        for (int i = 0; i < 5; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        const auto before = device.statistics().copies;
        run_pass(weights, model, stream);
        must(weights.try_drain());
        return device.statistics().copies - before;
    };
    // A step's weights, which may lie at the end and at the beginning.
    CHECK(copies_a_pass(make<compositions::OnSlab>(device, model, 20480, schedule)) <= 12);
    // Allocations of their own.
    CHECK(copies_a_pass(make<OnDemand>(device, model, 20480, schedule)) == 48);
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

TEST_SUITE_END();

}  // namespace residency_test
