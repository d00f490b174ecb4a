// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Bytes of a model in the memory of neighbours, between device and host.
#include "residency/transport/neighbour_memory.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/transport_policy.hpp"
#include "residency/packed.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/transport/links.hpp"
#include "tests/transport/links.hpp"

namespace links_test {

using residency::LinkUse;
using residency::StorageId;
using residency::transport::Fetch;

namespace {

constexpr double nvlink = 390e9, host_link = 55.5e9;

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Holds so many bytes at its neighbours.
Two::Options holding(const Host& host, std::vector<std::uint64_t> memory_bytes, std::uint64_t budget) {
    auto options = const_cast<Host&>(host).options<Two>(budget);
    options.transport.memory_bytes = std::move(memory_bytes);
    return options;
}
Two make(Host& host, std::vector<std::uint64_t> memory_bytes) {
    return must(Two::try_create(host.device, host.model.raw,
                                holding(host, std::move(memory_bytes), host.model.raw_bytes() * 2 / 3)));
}
LinkUse use_of(const Two& weights, std::size_t neighbour = 1) { return weights.statistics().links.at(neighbour); }
std::uint64_t free_bytes(Device& device) { return must(device.memory()).free_bytes; }
std::chrono::nanoseconds time_of_pass(Host& host, Two& weights) {
    CHECK(host.run(weights) == 0);
    const auto begin = host.device.host_time();
    CHECK(host.run(weights) == 0);
    return host.device.host_time() - begin;
}

}  // namespace

TEST_CASE("a model of 1.5 budgets comes from two cards' memory, eager and as a graph") {
    Host host;
    const std::uint64_t before = free_bytes(host.neighbour);
    std::chrono::nanoseconds by_links{};
    {
        auto weights = make(host, {});
        by_links = time_of_pass(host, weights);
        CHECK(use_of(weights).held_bytes == 0);
        CHECK(use_of(weights).held_reason.empty());
    }
    {
        auto weights = make(host, {32 * mib});
        const auto first = use_of(weights);
        CHECK_MESSAGE(first.held_reason.empty(), first.held_reason);
        CHECK(first.held_bytes > host.model.raw_bytes() / 3);
        CHECK(first.held_bytes < weights.plan().bytes_per_pass());  // the own link brings some at the same time
        CHECK(first.held_bytes_per_second == doctest::Approx(nvlink).epsilon(0.02));
        CHECK(weights.problem().link.bytes_per_second == doctest::Approx(nvlink + host_link).epsilon(0.02));
        CHECK(before - free_bytes(host.neighbour) == first.held_bytes + (std::uint64_t{64} << 20));  // and the buffers
        CHECK(time_of_pass(host, weights) < by_links / 2);
        CHECK(use_of(weights).bytes_from_held > 0);
        std::uint64_t wrong = 0;
        auto graph = must(weights.try_capture(host.stream, [&](Two::Pass& pass) {
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                host.verify(step, lease, wrong);
            }
        }));
        const auto eager = use_of(weights).bytes_from_held;
        const auto read = host.device.statistics().bytes_from_peers;
        for (int turn = 0; turn < 3; ++turn) { must(graph.try_launch(host.stream)); }
        must(weights.try_drain());
        CHECK(host.device.statistics().bytes_from_peers > read + weights.plan().bytes_per_pass());
        CHECK(use_of(weights).bytes_from_held == eager);
        CHECK(host.run(weights) == 0);
        CHECK(wrong == 0);
    }
    CHECK(free_bytes(host.neighbour) == before);
    CHECK(host.neighbour.leaks().empty());
    host.expect_no_reports();
}

TEST_CASE("the more a neighbour holds, the faster passes are planned for and run; its budget is kept") {
    Host host;
    double rate = 0;
    auto time = std::chrono::nanoseconds::max();
    for (const std::uint64_t budget : {0U, 3U, 8U, 14U, 40U}) {
        CAPTURE(budget);
        auto weights = make(host, {budget * mib + 1000});
        CHECK(use_of(weights).held_bytes <= budget * mib + 1000);
        const double planned = weights.problem().link.bytes_per_second;
        CHECK(planned > rate);
        if (budget >= 3 && budget <= 14) {
            // All links bring what is not held: two of them at most.
            CHECK(use_of(weights).held_bytes == budget * mib);
            const auto pass = static_cast<double>(weights.plan().bytes_per_pass());
            CHECK(planned < 2 * host_link * pass / (pass - static_cast<double>(budget * mib)) * 1.02);
            CHECK(planned > 1.65 * host_link * pass / (pass - static_cast<double>(budget * mib)));
        }
        rate = planned;
        const auto now = time_of_pass(host, weights);
        CHECK(now < time);
        time = now;
    }
    host.expect_no_reports();
}

TEST_CASE("several neighbours hold what one alone has no budget for") {
    Host host;
    Device third{named("the third GPU"), host.device};
    auto options = holding(host, {4 * mib, 20 * mib}, host.model.raw_bytes() * 2 / 3);
    options.transport.neighbours = {&host.neighbour, &third};
    auto weights = must(Two::try_create(host.device, host.model.raw, std::move(options)));
    for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK(use_of(weights, 1).held_bytes > 0);
    CHECK(use_of(weights, 1).held_bytes <= 4 * mib);
    CHECK(use_of(weights, 2).held_bytes > 4 * mib);
    CHECK(use_of(weights, 1).bytes_from_held > 0);
    CHECK(use_of(weights, 2).bytes_from_held > use_of(weights, 1).bytes_from_held);
    third.lose_device();
    for (int turn = 0; turn < 3; ++turn) { static_cast<void>(weights.try_begin(host.stream).has_value()); }
    CHECK(host.run(weights) == 0);
    must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 2)));
    CHECK(use_of(weights, 1).held_bytes == 4 * mib);
    CHECK(use_of(weights, 2).held_bytes == 0);
    CHECK(host.run(weights) == 0);
    host.expect_no_reports();
}

namespace {

/// Links whose neighbours hold parts of random calls from the beginning.
class Holding : public Links {
public:
    using Links::Links;
    [[nodiscard]] residency::Status open(Device& device, const residency::Catalog& catalog) {
        if (auto opened = Links::open(device, catalog); !opened) { return opened; }
        std::mt19937 random{static_cast<std::uint32_t>(catalog.hash())};
        std::vector<std::vector<Fetch>> calls(20);
        std::vector<std::span<const Fetch>> spans;
        for (auto& call : calls) {
            for (std::uint32_t i = 0; i < 1 + random() % 4; ++i) {
                const StorageId id{static_cast<std::uint32_t>(random() % catalog.storages().size())};
                const std::uint64_t bytes = catalog.storage(id).bytes;
                if (bytes == 0) { continue; }
                const std::uint64_t begin = random() % bytes;
                call.push_back({id, begin, 1 + random() % (bytes - begin), nullptr});
            }
            spans.emplace_back(call);
        }
        hold(spans);
        return {};
    }
};

}  // namespace

TEST_CASE("Links keeps the contract of transports while neighbours hold parts of what it brings") {
    Host host;
    Device third{named("the third GPU"), host.device};
    const std::uint64_t read = host.device.statistics().bytes_from_peers;
    residency::conformance::check_transport_policy<Holding>(host.device, gpus_of_host::large_calls(), [&] {
        Links::Config config;
        config.neighbours = {&host.neighbour, &third};
        config.bounce_bytes = 0;  // all that comes from peers is held
        config.memory_bytes = {2 * mib, 40 * mib};
        return std::make_unique<Holding>(config);
    });
    CHECK(host.device.statistics().bytes_from_peers > read + 10 * mib);
    host.expect_no_reports();
}

TEST_CASE("C32: replaced weights reach what neighbours hold of them") {
    Host host;
    auto weights = make(host, {32 * mib});
    CHECK(host.run(weights) == 0);
    std::uint64_t wrong = 0;
    auto graph = must(weights.try_capture(host.stream, [&](Two::Pass& pass) {
        for (const Schedule::Step& step : weights.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            host.verify(step, lease, wrong);
        }
    }));
    std::mt19937_64 random{9};
    const auto replace = [&] {
        for (std::byte& byte : host.model.memory->bytes()) { byte ^= static_cast<std::byte>(1 + random() % 255); }
        must(host.device.host_write(host.model.memory->bytes().data(), host.model.memory->bytes().size()));
    };
    must(weights.try_refresh_all(replace));
    CHECK(host.run(weights) == 0);
    CHECK_FALSE(graph.is_stale());
    must(graph.try_launch(host.stream));
    must(weights.try_drain());
    CHECK(wrong == 0);
    // What cannot be brought there is not held any more.
    host.neighbour.fail(CallKind::copy, 1);
    must(weights.try_refresh_all(replace));
    host.neighbour.clear_failures();
    CHECK_FALSE(use_of(weights).held_reason.empty());
    CHECK(graph.is_stale());
    for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK(wrong == 0);
    host.expect_no_reports();
}

TEST_CASE(
    "C32: what a neighbour reads that was left out, and could not be waited for, is waited for before it is replaced") {
    for (const bool holds : {false, true}) {
        for (const int times : {1, 2}) {
            CAPTURE(holds);
            CAPTURE(times);
            Host host;
            auto weights = make(host, holds ? std::vector<std::uint64_t>{32 * mib} : std::vector<std::uint64_t>{});
            CHECK(host.run(weights) == 0);
            const auto replace = [&] {
                for (std::byte& byte : host.model.memory->bytes()) { byte ^= std::byte{1}; }
                must(host.device.host_write(host.model.memory->bytes().data(), host.model.memory->bytes().size()));
            };
            // By its link a piece is on its way when a record fails; to its memory half of a copy (D10).
            host.neighbour.fail(holds ? CallKind::copy : CallKind::record, 1);
            for (int i = 0; i < times;
                 ++i) {  // before it refreshes, it drains, which asks both for its link and for its memory
                host.neighbour.fail(CallKind::synchronize_stream, holds ? 3 : 1);
            }
            if (holds) {
                CHECK(weights.try_refresh_all(replace).has_value() == (times == 1));
            } else {
                std::uint64_t wrong = 0;
                auto pass = must(weights.try_begin(host.stream));
                for (const Schedule::Step& step : weights.schedule()) {
                    const auto lease = must(pass.try_acquire(step));
                    host.verify(step, lease, wrong);
                }
                must(pass.try_end());
                CHECK(weights.try_refresh_all(replace).has_value() == (times == 1));
                CHECK(wrong == 0);
            }
            host.neighbour.clear_failures();
            must(weights.try_refresh_all(replace));
            CHECK_FALSE((holds ? use_of(weights).held_reason : use_of(weights).reason).empty());
            for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
            host.expect_no_reports();
        }
    }
}

TEST_CASE("C31: a suspended model holds nothing at its neighbours; then it holds again, and its graphs are stale") {
    Host host;
    auto weights = make(host, {32 * mib});
    CHECK(host.run(weights) == 0);
    std::uint64_t wrong = 0;
    const auto capture = [&] {
        return must(weights.try_capture(host.stream, [&](Two::Pass& pass) {
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                host.verify(step, lease, wrong);
            }
        }));
    };
    auto graph = capture();
    must(graph.try_launch(host.stream));
    const std::uint64_t held = use_of(weights).held_bytes, free = free_bytes(host.neighbour);
    must(weights.try_suspend());
    CHECK(use_of(weights).held_bytes == 0);
    CHECK(free_bytes(host.neighbour) == free + held);
    SUBCASE("with the same budget") {
        must(weights.try_resume());
        CHECK(use_of(weights).held_bytes == held);
    }
    SUBCASE("with another budget") {
        must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 2)));
        must(weights.try_resume());
        CHECK(use_of(weights).held_bytes > held);
    }
    SUBCASE("where the neighbour has no memory any more") {
        auto* const taken = must(host.neighbour.allocate(free_bytes(host.neighbour) / 4096 * 4096));
        must(weights.try_resume());
        CHECK(use_of(weights).held_bytes == 0);
        must(host.neighbour.deallocate(taken));
    }
    CHECK(graph.is_stale());
    CHECK(host.run(weights) == 0);
    graph = capture();
    must(graph.try_launch(host.stream));
    must(weights.try_drain());
    CHECK(wrong == 0);
    host.expect_no_reports();
}

TEST_CASE("what a neighbour's memory gives back late, the next suspension gives back") {
    Host host;
    auto weights = make(host, {32 * mib});
    CHECK(host.run(weights) == 0);
    host.neighbour.fail(CallKind::deallocate, 1);
    CHECK_FALSE(weights.try_suspend());
    host.neighbour.clear_failures();
    must(weights.try_suspend());
    CHECK(use_of(weights).held_bytes == 0);
    must(weights.try_resume());
    CHECK(use_of(weights).held_bytes > 0);
    CHECK(host.run(weights) == 0);
    host.expect_no_reports();
}

TEST_CASE("a neighbour that cannot hold bytes says why") {
    const auto reason_of = [](Host& host, std::uint64_t memory_bytes) {
        auto weights = make(host, {memory_bytes});
        for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
        host.expect_no_reports();
        CHECK(use_of(weights).bytes_from_held == 0);
        CHECK(use_of(weights).held_bytes == 0);
        CHECK(weights.problem().link.bytes_per_second < 2.02 * host_link);
        return use_of(weights).held_reason;
    };
    SUBCASE("it has no peer access") {
        auto config = named("alone");
        config.peer_access = false;
        Host host{config};
        CHECK(has(reason_of(host, 32 * mib), "have no access to each other's memory"));
    }
    SUBCASE("its budget is too small") {
        Host host;
        CHECK(has(reason_of(host, 4095), "its budget is less than one allocation takes: 4096 bytes"));
    }
    SUBCASE("it has no memory") {
        Host host;
        auto* const taken = must(host.neighbour.allocate(free_bytes(host.neighbour) / 4096 * 4096));
        CHECK(has(reason_of(host, 32 * mib), "it has no memory for more than 0 bytes"));
        must(host.neighbour.deallocate(taken));
    }
}

TEST_CASE("a neighbour with less memory than its budget holds less, and the plan is for that") {
    Host host;
    auto* const taken = must(host.neighbour.allocate(free_bytes(host.neighbour) - 74 * mib));  // 64 MiB are for buffers
    auto weights = make(host, {32 * mib});
    for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK(has(use_of(weights).held_reason, "it has no memory for more than "));
    CHECK(use_of(weights).held_bytes > 4 * mib);
    CHECK(use_of(weights).held_bytes < 10 * mib);
    CHECK(weights.problem().link.bytes_per_second < 4 * host_link);
    // When it is asked again, it has more.
    must(host.neighbour.deallocate(taken));
    must(weights.try_suspend());
    must(weights.try_resume());
    CHECK(use_of(weights).held_reason.empty());
    CHECK(host.run(weights) == 0);
    host.expect_no_reports();
}

TEST_CASE("a neighbour whose link brings nothing, or that has no buffers, holds bytes all the same") {
    Host host;
    auto config = named("slow");
    config.link.to_device_bytes_per_second = 1e8;
    Device slow{config, host.device};
    auto options = holding(host, {32 * mib}, host.model.raw_bytes() * 2 / 3);
    SUBCASE("a slow link") { options.transport.neighbours = {&slow}; }
    SUBCASE("no buffers") { options.transport.bounce_bytes = 0; }
    auto weights = must(Two::try_create(host.device, host.model.raw, std::move(options)));
    for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK_FALSE(use_of(weights).reason.empty());
    CHECK(use_of(weights).bytes == 0);
    CHECK(use_of(weights).bytes_from_held > 0);
    CHECK(weights.problem().link.bytes_per_second > nvlink);
    host.expect_no_reports();
}

TEST_CASE("whichever call fails of a neighbour that holds bytes, every byte arrives, and nothing is left behind") {
    for (const CallKind kind : {CallKind::allocate, CallKind::copy, CallKind::create_stream, CallKind::create_event,
                                CallKind::synchronize_stream, CallKind::fill, CallKind::deallocate}) {
        for (const std::uint64_t nth : {1U, 2U, 3U, 5U}) {
            Host host;
            CAPTURE(static_cast<int>(kind));
            CAPTURE(nth);
            host.neighbour.fail(kind, nth);
            {
                auto weights = make(host, {32 * mib});
                for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
                must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 2)));
                CHECK(host.run(weights) == 0);
                host.neighbour.clear_failures();
                CHECK(host.run(weights) == 0);
            }
            host.expect_no_reports();
            if (kind != CallKind::deallocate) { CHECK(host.neighbour.leaks().empty()); }
        }
    }
}

TEST_CASE("a neighbour that holds bytes and is lost leaves the links; what was on its way is brought again") {
    Host host;
    auto options = holding(host, {32 * mib}, host.model.raw_bytes() * 2 / 3);
    SUBCASE("with its link") {}
    SUBCASE("without") { options.transport.bounce_bytes = 0; }
    SUBCASE("as it learns") { options.learn = true; }
    auto weights = must(Two::try_create(host.device, host.model.raw, std::move(options)));
    std::uint64_t wrong = 0;
    CHECK(host.run(weights) == 0);
    auto graph = must(weights.try_capture(host.stream, [&](Two::Pass& pass) {
        for (const Schedule::Step& step : weights.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            host.verify(step, lease, wrong);
        }
    }));
    {
        auto pass = must(weights.try_begin(host.stream));
        REQUIRE(use_of(weights).bytes_from_held > 0);
        host.neighbour.lose_device();
        CHECK_FALSE(weights.try_transport_status());
        CHECK_FALSE(pass.try_end());
        CHECK_FALSE(weights.try_drain());
    }
    CHECK(weights.try_transport_status());
    CHECK(graph.is_stale());
    for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK_FALSE(use_of(weights).held_reason.empty());
    must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 2)));
    CHECK(use_of(weights).held_bytes == 0);
    CHECK(weights.problem().link.bytes_per_second < host_link * 1.03);
    CHECK(host.run(weights) == 0);
    CHECK(wrong == 0);
}

TEST_CASE("another budget and another schedule: neighbours hold what the plan in force brings") {
    Host host;
    auto weights = make(host, {32 * mib});
    CHECK(host.run(weights) == 0);
    const std::uint64_t held = use_of(weights).held_bytes;
    must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 2)));
    CHECK(host.run(weights) == 0);
    CHECK(use_of(weights).held_bytes > held);
    must(weights.try_set_budget(Budget::bytes(2 * host.model.raw_bytes())));  // nothing streams
    CHECK(host.run(weights) == 0);
    CHECK(use_of(weights).held_bytes == 0);
    must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 2)));
    packed_tests::Steps steps;
    for (std::uint32_t i = 0; i < 9; ++i) { steps.push_back({11 - i, i}); }
    const auto turned = packed_tests::schedule_of(host.model.raw, steps, std::chrono::microseconds{4});
    const auto first = host.schedule();
    for (int turn = 0; turn < 3; ++turn) {
        must(weights.try_set_schedule(turn % 2 == 0 ? turned : first));
        const auto before = use_of(weights).bytes_from_held;
        for (int i = 0; i < 2; ++i) { CHECK(host.run(weights) == 0); }
        CHECK(use_of(weights).bytes_from_held > before);
    }
    const auto plans = weights.statistics().total.plans_made;
    must(weights.try_set_schedule(turned));  // was in force before: nothing is planned
    CHECK(weights.statistics().total.plans_made == plans);
    CHECK(host.run(weights) == 0);
    host.expect_no_reports();
}

TEST_CASE("packed weights lie packed at a neighbour") {
    Host host;
    host.model.pack(host.device);
    auto options = host.options<TwoPacked>(host.model.raw_bytes() / 2);
    options.transport.memory_bytes = {32 * mib};
    auto weights = must(TwoPacked::try_create(host.device, host.model.packed.catalog, std::move(options)));
    for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
    const auto use = weights.statistics().links.at(1);
    CHECK(use.bytes_from_held > 0);
    CHECK(use.held_bytes < host.model.packed.packed_bytes);
    CHECK(weights.problem().link.bytes_per_second > nvlink);
    must(weights.try_suspend());
    CHECK(weights.statistics().links.at(1).held_bytes == 0);
    must(weights.try_resume());
    CHECK(host.run(weights) == 0);
    must(weights.try_set_budget(Budget::bytes(host.model.raw_bytes() / 3)));
    CHECK(host.run(weights) == 0);
    CHECK(weights.statistics().links.at(1).held_bytes > 0);
    host.expect_no_reports();
}

TEST_CASE("C6: what kernels write is never held by a neighbour") {
    Host host;
    std::vector<packed_tests::Model::Spec> specs(12, {2 * mib});
    specs[3].placement = residency::Placement::resident;
    specs[3].is_written = true;
    const packed_tests::Model model{host.device, specs};
    Links links{{.neighbours = {&host.neighbour}, .bounce_bytes = 0, .memory_bytes = {40 * mib}}};
    must(links.open(host.device, model.raw));
    links.memory().set_rate(0, nvlink);
    std::vector<std::span<const Fetch>> calls;
    std::vector<Fetch> fetches;
    auto* const to = static_cast<std::byte*>(must(host.device.allocate(4 * mib)));
    for (std::uint32_t i = 2; i < 5; ++i) { fetches.push_back({StorageId{i}, 0, 4 * mib, to}); }
    calls.emplace_back(fetches);
    links.hold(calls);
    CHECK(links.links()[1].held_bytes <= 8 * mib);
    CHECK(links.links()[1].held_bytes > 3 * mib);
    for (std::uint32_t i = 0; i < 3; ++i) {
        const auto before = links.links()[1].bytes_from_held;
        must(links.enqueue(std::span{fetches}.subspan(i, 1), host.stream));
        CHECK((links.links()[1].bytes_from_held > before) == (i != 1));
    }
    must(host.device.synchronize(host.stream));
    links.close();
    must(host.device.deallocate(to));
    CHECK(host.neighbour.leaks().empty());
    host.expect_no_reports();
}

TEST_CASE("more budgets than neighbours are an error; without a plan nothing is held, and that is said") {
    Host host;
    const auto made = Two::try_create(host.device, host.model.raw, holding(host, {mib, mib}, host.model.raw_bytes()));
    REQUIRE_FALSE(made);
    CHECK(made.error().kind() == ErrorKind::invalid_argument);
    CHECK(made.error().message() ==
          "transport.memory_bytes has 2 budgets, and there are 1 neighbours: give one for each neighbour at most, in "
          "their order");
    using Online = residency::Residency<residency::evict::Lru, residency::prefetch::None,
                                        residency::pool::StreamOrdered<Device>, Links>;
    Online::Options options;
    options.budget = Budget::bytes(40 * mib);
    options.transport.neighbours = {&host.neighbour};
    options.transport.memory_bytes = {32 * mib};
    auto online = must(Online::try_create(host.device, host.model.raw, std::move(options)));
    CHECK(online.statistics().links.at(1).held_bytes == 0);
    CHECK(has(online.statistics().links.at(1).held_reason, "no plan has said yet what to hold"));
}

}  // namespace links_test
