// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// One device fed through its own link and those of its neighbours.
#include "residency/transport/links.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/transport_policy.hpp"
#include "residency/core/engine/copy_scheduler.hpp"
#include "residency/core/engine/storage_state.hpp"
#include "residency/core/engine/transport_interface.hpp"
#include "residency/core/measure/mark_log.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/packed.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/child.hpp"
#include "tests/transport/links.hpp"

namespace links_test {

using residency::Copy;
using residency::StorageId;
using residency::transport::Fetch;

TEST_CASE("a planned model streams by two links, in less time than by one, eager and as a graph") {
    Host host;
    const std::uint64_t budget = host.model.raw_bytes() / 4;
    std::chrono::nanoseconds times[2]{};
    {
        auto one = must(residency::Planned<Device>::try_create(host.device, host.model.raw,
                                                               host.options<residency::Planned<Device>>(budget)));
        CHECK(host.run(one) == 0);
        const auto begin = host.device.host_time();
        CHECK(host.run(one) == 0);
        times[0] = host.device.host_time() - begin;
        CHECK(one.statistics().links.empty());
    }
    auto two = must(Two::try_create(host.device, host.model.raw, host.options<Two>(budget)));
    CHECK(two.statistics().links.at(1).bytes_per_second > 50e9);
    CHECK(host.run(two) == 0);
    const auto begin = host.device.host_time();
    CHECK(host.run(two) == 0);
    times[1] = host.device.host_time() - begin;
    CHECK(times[1] < times[0] * 3 / 4);  // calls are short here
    const auto links = two.statistics().links;
    REQUIRE(links.size() == 2);
    CHECK(links[1].device == "the second GPU");
    CHECK(links[1].reason.empty());
    CHECK(links[1].bytes > links[0].bytes / 4);  // short calls take the own link alone
    std::uint64_t wrong = 0;
    auto graph = must(two.try_capture(host.stream, [&](Two::Pass& pass) {
        for (const Schedule::Step& step : two.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            host.verify(step, lease, wrong);
        }
    }));
    for (int turn = 0; turn < 3; ++turn) {
        must(graph.try_launch(host.stream));
        if (turn == 1) { CHECK(host.run(two) == 0); }
    }
    must(two.try_drain());
    CHECK(wrong == 0);
    host.expect_no_reports();
}

TEST_CASE("Links keeps the contract of transports, with calls that several links bring") {
    Host host;
    residency::conformance::check_transport_policy<Links>(host.device, gpus_of_host::large_calls(), [&host] {
        Links::Config config;
        config.neighbours = {&host.neighbour};
        return std::make_unique<Links>(config);
    });
    host.expect_no_reports();
}

TEST_CASE("packed weights travel packed by both links") {
    Host host;
    host.model.pack(host.device);
    auto weights = must(TwoPacked::try_create(host.device, host.model.packed.catalog,
                                              host.options<TwoPacked>(host.model.raw_bytes() / 2)));
    for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK(weights.statistics().links.at(1).bytes > 0);
    CHECK(weights.statistics().last_pass.fetched_bytes < host.model.packed.packed_bytes);
    host.expect_no_reports();
}

TEST_CASE("a neighbour that cannot help is left out, and the statistics say why") {
    const auto reason_of = [](Host& host, Two::Options options) {
        auto weights = must(Two::try_create(host.device, host.model.raw, std::move(options)));
        for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
        host.expect_no_reports();
        const auto links = weights.statistics().links;
        REQUIRE(links.size() == 2);
        CHECK(links[0].reason.empty());
        CHECK(links[1].bytes == 0);
        return links[1].reason;
    };
    const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    SUBCASE("it has no peer access") {
        auto config = named("alone");
        config.peer_access = false;
        Host host{config};
        CHECK(has(reason_of(host, host.options<Two>(host.model.raw_bytes() / 4)), "peer"));
    }
    SUBCASE("it has no memory for the buffers") {
        auto config = named("small");
        config.memory_bytes = mib;
        Host host{config};
        CHECK_FALSE(reason_of(host, host.options<Two>(host.model.raw_bytes() / 4)).empty());
    }
    SUBCASE("the buffers would be too small") {
        Host host;
        auto options = host.options<Two>(host.model.raw_bytes() / 4);
        options.transport.bounce_bytes = mib;
        CHECK(has(reason_of(host, std::move(options)), "bounce_bytes"));
    }
    SUBCASE("its path brings nothing") {
        Host host;
        auto config = named("slow");
        config.link.to_device_bytes_per_second = 1e8;
        Device slow{config, host.device};
        auto options = host.options<Two>(host.model.raw_bytes() / 4);
        options.transport.neighbours = {&slow};
        CHECK(has(reason_of(host, std::move(options)), "brings nothing"));
    }
}

TEST_CASE("what is named as a neighbour and is none is an error") {
    Host host;
    Device third{named("the third GPU"), host.device};
    const auto refused = [&](std::vector<Device*> neighbours, const char* text) {
        auto options = host.options<Two>(host.model.raw_bytes() / 4);
        options.transport.neighbours = std::move(neighbours);
        const auto made = Two::try_create(host.device, host.model.raw, std::move(options));
        REQUIRE_FALSE(made);
        CHECK(made.error().kind() == ErrorKind::invalid_argument);
        CHECK(made.error().message() == text + std::string{": give each other device whose link is to be used, once"});
    };
    refused({nullptr}, "transport.neighbours[0] is null");
    refused({&third, &host.device}, "transport.neighbours[1] is the device that is fed");
    refused({&host.neighbour, &third, &host.neighbour}, "transport.neighbours[2] is the same device as [0]");
    CHECK(third.leaks().empty());
    CHECK(host.neighbour.leaks().empty());
}

#if RESIDENCY_ASSERTIONS
TEST_CASE("a neighbour that ends before what it feeds is told so, and not after it") {
    const auto outcome = child::run([] {
        Device device{named("the first GPU")};
        auto neighbour = std::make_unique<Device>(named("the second GPU"), device);
        Links links{{.neighbours = {neighbour.get()}}};
        must(links.open(device, {}));
        neighbour.reset();
    });
    CHECK(outcome.aborted);
    CHECK(outcome.text.find("end every Residency before its device and its neighbours") != std::string::npos);
    Device device{named("the first GPU")};
    auto alone = named("the third GPU");
    alone.peer_access = false;
    auto second = std::make_unique<Device>(named("the second GPU"), device);
    auto third = std::make_unique<Device>(alone, device);
    {
        Links links{{.neighbours = {second.get(), third.get()}}};
        must(links.open(device, {}));
        third.reset();  // it has no access, and is not used
        links.close();
    }
    {
        Links links{{.neighbours = {second.get()}}};
        must(links.open(device, {}));
        links.abandon();
    }
}
#endif

TEST_CASE("whichever call of a neighbour fails, every byte arrives by the own link") {
    for (const CallKind kind : {CallKind::copy, CallKind::record, CallKind::wait}) {
        for (const std::uint64_t nth : {1U, 2U, 3U, 7U}) {
            Host host;
            CAPTURE(static_cast<int>(kind));
            CAPTURE(nth);
            auto weights =
                must(Two::try_create(host.device, host.model.raw, host.options<Two>(host.model.raw_bytes() / 4)));
            CHECK(host.run(weights) == 0);
            host.neighbour.fail(kind, nth);
            for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
            host.neighbour.clear_failures();
            CHECK(host.run(weights) == 0);
            host.expect_no_reports();
        }
    }
}

TEST_CASE("C14: copies out of a neighbour that can neither be joined nor awaited come before anything else") {
    namespace core = residency::core;
    for (const bool drains : {false, true}) {
        int refused = 0;
        // Records: of what is due, of each buffer, of all of them, of the arrival.
        for (std::uint64_t nth = 1; nth <= 8; ++nth) {
            CAPTURE(drains);
            CAPTURE(nth);
            Host host;
            std::vector<core::StorageState> states(12);
            residency::Counters counters;
            core::MarkLog<Device> marks;
            core::CopyScheduler<Device> scheduler;
            Links::Config config;
            config.neighbours = {&host.neighbour};
            must(scheduler.open(host.device, host.model.raw,
                                std::make_unique<core::TransportAdapter<Device, Links>>(config), 64, states, counters,
                                marks));
            auto* const to = static_cast<std::byte*>(must(host.device.allocate(8 * mib)));
            std::vector<Fetch> by_both;
            for (std::uint32_t i = 0; i < 4; ++i) { by_both.push_back({StorageId{i}, 0, 2 * mib, to + i * 2 * mib}); }
            const Fetch alone{StorageId{5}, 0, 4096, to};
            host.device.fail(CallKind::record, nth);
            host.device.fail(CallKind::synchronize_stream, 1);
            refused += scheduler.transfer(by_both) ? 0 : 1;
            host.device.clear_failures();
            if (!drains) { must(scheduler.transfer({&alone, 1})); }
            must(scheduler.drain());
            must(host.device.fill(to, std::byte{0}, 4096, host.stream));  // nothing but the drain orders it
            must(host.device.synchronize(host.stream));
            must(host.device.deallocate(to));
            scheduler.close();
            host.expect_no_reports();
        }
        CHECK(refused >= 3);
    }
}

TEST_CASE("a neighbour that is lost leaves the own link") {
    Host host;
    auto weights = must(Two::try_create(host.device, host.model.raw, host.options<Two>(host.model.raw_bytes() / 4)));
    CHECK(host.run(weights) == 0);
    host.neighbour.lose_device();
    for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
    CHECK_FALSE(weights.statistics().links.at(1).reason.empty());
}

TEST_CASE("what a lost neighbour had on its way is said, and brought again, also where no other call meets the loss") {
    for (const bool meets_it : {false, true}) {
        CAPTURE(meets_it);
        Host host;
        auto weights =
            must(Two::try_create(host.device, host.model.raw, host.options<Two>(host.model.raw_bytes() / 2)));
        auto pass = must(weights.try_begin(host.stream));
        REQUIRE(weights.statistics().links.at(1).bytes > 0);
        host.neighbour.lose_device();
        std::uint64_t wrong = 0;
        if (meets_it) {  // when what was on its way counts as arrived
            host.device.spend(std::chrono::seconds{1});
            for (std::uint32_t i = 0; i < 3; ++i) {
                const auto lease = must(pass.try_acquire(weights.schedule()[i]));
                host.verify(weights.schedule()[i], lease, wrong);
            }
        }
        CHECK_FALSE(weights.try_transport_status());
        CHECK_FALSE(pass.try_end());
        CHECK_FALSE(weights.try_drain());
        CHECK(weights.try_transport_status());
        for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
        CHECK_FALSE(weights.statistics().links.at(1).reason.empty());
    }
}

TEST_CASE("C6: what kernels wrote stays as it is when a neighbour is lost and everything else is brought again") {
    Host host;
    std::vector<packed_tests::Model::Spec> specs(12, {2 * mib});
    specs[3].placement = residency::Placement::resident;
    specs[3].is_written = true;
    const packed_tests::Model model{host.device, specs};
    packed_tests::Steps steps(12);
    for (std::uint32_t i = 0; i < 12; ++i) { steps[i] = {i}; }
    auto options = host.options<Two>(model.raw_bytes() / 2);
    options.schedule = packed_tests::schedule_of(model.raw, steps, std::chrono::microseconds{2});
    auto weights = must(Two::try_create(host.device, model.raw, std::move(options)));
    std::uint64_t runs = 0, wrong = 0, miscounted = 0;
    const auto run = [&] {
        auto pass = must(weights.try_begin(host.stream));
        for (const Schedule::Step& step : weights.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            const WeightId id = step.weights.front();
            if (index(id) != 3) {
                packed_tests::verify(host.device, model, lease, step.weights, host.stream, wrong);
                continue;
            }
            auto* const at = reinterpret_cast<std::uint64_t*>(lease.writable<std::byte>(id));
            must(host.device.launch(host.stream, {.name = "count",
                                                  .duration = std::chrono::microseconds{2},
                                                  .reads = {{at, 8}},
                                                  .writes = {{at, 8}},
                                                  .body = [=, &runs, &miscounted] {
                                                      miscounted += runs > 0 && *at != runs ? 1 : 0;
                                                      *at = ++runs;
                                                  }}));
        }
        return pass.try_end();
    };
    must(run());
    must(run());
    host.neighbour.lose_device();  // while it brings bytes
    CHECK_FALSE(weights.try_begin(host.stream));
    wrong = 0;
    must(run());
    must(run());
    must(weights.try_drain());
    CHECK(wrong == 0);
    CHECK(runs == 4);
    CHECK(miscounted == 0);
}

TEST_CASE("once a neighbour is lost, plans are for what is left, from the next one on") {
    const auto rate = [](const auto& weights) { return weights.problem().link.bytes_per_second; };
    Host host;
    Device third{named("the third GPU"), host.device};
    const std::uint64_t budget = host.model.raw_bytes() / 2;
    const auto lose_both = [&](auto& weights) {
        const double all = rate(weights), bound = weights.plan().bound_seconds();
        CHECK(host.run(weights) == 0);
        CHECK(rate(weights) >= all);
        const auto plans = weights.statistics().total.plans_made;
        third.lose_device();
        for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
        CHECK(weights.statistics().total.plans_made > plans);
        CHECK(rate(weights) > all * 0.6);
        CHECK(rate(weights) < all * 0.72);
        host.neighbour.lose_device();
        for (int turn = 0; turn < 8; ++turn) { CHECK(host.run(weights) == 0); }
        const double own = weights.statistics().links.at(0).bytes_per_second;
        CHECK(rate(weights) >= own);
        CHECK(rate(weights) < own * 1.03);
        CHECK(weights.plan().bound_seconds() > 2 * bound);
    };
    SUBCASE("as it learns") {
        auto options = host.options<Two>(budget);
        options.learn = true;
        options.transport.neighbours = {&host.neighbour, &third};
        auto weights = must(Two::try_create(host.device, host.model.raw, std::move(options)));
        lose_both(weights);
    }
    SUBCASE("packed, as it learns") {
        host.model.pack(host.device);
        auto options = host.options<TwoPacked>(budget);
        options.learn = true;
        options.transport.neighbours = {&host.neighbour, &third};
        auto weights = must(TwoPacked::try_create(host.device, host.model.packed.catalog, std::move(options)));
        lose_both(weights);
    }
    SUBCASE("where it does not learn: with the next budget") {
        auto weights = must(Two::try_create(host.device, host.model.raw, host.options<Two>(budget)));
        const double all = rate(weights);
        must(weights.try_drain());
        host.neighbour.lose_device();
        for (int turn = 0; turn < 2; ++turn) { CHECK(host.run(weights) == 0); }
        CHECK(weights.statistics().total.plans_made == 1);
        must(weights.try_set_budget(Budget::bytes(budget / 2)));
        const double own = weights.statistics().links.at(0).bytes_per_second;
        CHECK(rate(weights) == own);
        CHECK(rate(weights) < all * 0.6);
        CHECK(host.run(weights) == 0);
    }
    SUBCASE("the caller's link stays") {
        auto options = host.options<Two>(budget);
        options.learn = true;
        options.policies.link = residency::plan::Link{.bytes_per_second = 100e9};
        auto weights = must(Two::try_create(host.device, host.model.raw, std::move(options)));
        must(weights.try_drain());
        host.neighbour.lose_device();
        for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(weights) == 0); }
        CHECK(rate(weights) == 100e9);
    }
}

TEST_CASE("a graph of which a neighbour was lost is stale; captured again it uses what is left") {
    Host host;
    auto weights = must(Two::try_create(host.device, host.model.raw, host.options<Two>(host.model.raw_bytes() / 2)));
    std::uint64_t wrong = 0;
    const auto capture = [&] {
        return weights.try_capture(host.stream, [&](Two::Pass& pass) {
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                host.verify(step, lease, wrong);
            }
        });
    };
    auto graph = must(capture());
    must(graph.try_launch(host.stream));
    must(weights.try_drain());
    const auto is_refused = [&] {
        const auto launched = graph.try_launch(host.stream);
        REQUIRE_FALSE(launched);
        CHECK(launched.error().kind() == ErrorKind::stale);
        CHECK(launched.error().message().find("a neighbour whose link the graph uses was lost") != std::string::npos);
        CHECK(graph.is_stale());
        graph = must(capture());
    };
    SUBCASE("its launch finds out") {
        host.neighbour.lose_device();
        is_refused();
    }
    SUBCASE("its launch finds out, after a launch that lost bytes") {
        must(graph.try_launch(host.stream));
        host.neighbour.lose_device();
        is_refused();
        wrong = 0;
    }
    SUBCASE("an eager pass finds out") {
        host.neighbour.lose_device();
        CHECK_FALSE(weights.try_begin(host.stream));  // the graph may have lost bytes
        CHECK(graph.is_stale());
        is_refused();
    }
    SUBCASE("a capture finds out, and fails") {
        host.neighbour.lose_device();
        CHECK_FALSE(capture());
        CHECK(graph.is_stale());
        is_refused();
    }
    SUBCASE("a launch that fails for another reason") {
        host.device.fail(CallKind::launch_graph, 1);
        const auto launched = graph.try_launch(host.stream);
        REQUIRE_FALSE(launched);
        CHECK(launched.error().kind() == ErrorKind::device);
    }
    CHECK_FALSE(graph.is_stale());
    for (int turn = 0; turn < 3; ++turn) {
        must(graph.try_launch(host.stream));
        CHECK(host.run(weights) == 0);
    }
    must(weights.try_drain());
    CHECK(wrong == 0);
}

TEST_CASE("a short call leaves out the neighbours one after the other, not all at once") {
    Host host;
    Device third{named("the third GPU"), host.device};
    Links links{{.neighbours = {&host.neighbour, &third}}};
    must(links.open(host.device, host.model.raw));
    // The rates are those assumed, 55 GB/s: of 2.5 MB by three links a neighbour would get 0.47 MB, by two 0.7.
    constexpr std::uint64_t bytes = 2'500'000;
    auto* const to = must(host.device.allocate(bytes));
    const Copy copy{to, host.model.raw.host_bytes(residency::StorageId{0}), bytes};
    must(links.copy({&copy, 1}, host.stream));
    CHECK(links.links()[1].bytes > Links::least_bytes);
    CHECK(links.links()[2].bytes == 0);
    links.set_rate(0, 20e9, {});  // now it is the slower one
    must(links.copy({&copy, 1}, host.stream));
    CHECK(links.links()[2].bytes > Links::least_bytes);
    must(host.device.synchronize(host.stream));
    CHECK(std::memcmp(to, copy.from, bytes) == 0);
    links.close();
    must(host.device.deallocate(to));
    host.expect_no_reports();
}

TEST_CASE("copies of any sizes, in any order, arrive as they are") {
    Host host;
    std::mt19937 random{7};
    Links::Config config;
    config.neighbours = {&host.neighbour};
    config.bounce_bytes = 4 * mib;
    Links links{config};
    must(links.open(host.device, host.model.raw));
    constexpr std::uint64_t bytes = 32 * mib;
    auto* const from = static_cast<std::byte*>(must(host.device.allocate_host(bytes)));
    auto* const to = static_cast<std::byte*>(must(host.device.allocate(bytes)));
    auto* const back = static_cast<std::byte*>(must(host.device.allocate_host(bytes)));
    for (int turn = 0; turn < 8; ++turn) {
        for (std::uint64_t i = 0; i < bytes; ++i) { from[i] = static_cast<std::byte>(random()); }
        must(host.device.host_write(from, bytes));
        std::vector<Copy> copies;
        for (std::uint64_t at = 0; at < bytes;) {
            const std::uint64_t size =
                std::min<std::uint64_t>(bytes - at, 1 + random() % (turn % 2 == 0 ? 70000 : 9 * mib));
            copies.push_back({to + at, from + at, size});
            at += size;
        }
        std::shuffle(copies.begin(), copies.end(), random);
        for (std::size_t first = 0; first < copies.size();) {
            const std::size_t count = std::min<std::size_t>(copies.size() - first, 1 + random() % 40);
            must(links.copy(std::span{copies}.subspan(first, count), host.stream));
            first += count;
        }
        must(host.device.copy({{back, to, bytes}}, host.stream));
        must(host.device.synchronize(host.stream));
        CHECK(std::memcmp(back, from, bytes) == 0);
    }
    links.close();
    host.expect_no_reports();
    must(host.device.deallocate_host(back));
    must(host.device.deallocate_host(from));
    must(host.device.deallocate(to));
}

}  // namespace links_test
