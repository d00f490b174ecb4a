// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Replicas of a model on several devices, which share what one of them brings.
#include "tests/transport/replicas.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
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

namespace replicas_test {

TEST_CASE("replicas in step take each byte once over one of their links") {
    for (const std::size_t count : {2U, 3U}) {
        CAPTURE(count);
        Host host{count};
        const std::size_t handles = host.gpus[0]->leaks().size();
        const auto bytes_of = [&](auto&& run) {
            CHECK(run() == 0);
            const auto bytes = host.host_bytes();
            for (int turn = 0; turn < 3; ++turn) { CHECK(run() == 0); }
            return host.host_bytes() - bytes;
        };
        std::uint64_t alone = 0, together = 0;
        {
            auto one = host.member(0, 0.5);
            alone = bytes_of([&] { return host.run(0, one); });
            CHECK(host.group->members().at(0).shared_bytes == 0);
        }
        CHECK(host.group->members().empty());
        {
            std::vector<Weights> weights;
            for (std::size_t i = 0; i < count; ++i) { weights.push_back(host.member(i, 0.5)); }
            together = bytes_of([&] { return host.run_in_step<Weights>(Host::all_of(weights)); });
            const auto members = host.group->members();
            REQUIRE(members.size() == count);
            std::uint64_t brought = 0, shared = 0;
            for (const auto& member : members) {
                CHECK(member.reason.empty());
                CHECK(member.brought_bytes > alone / 3 * 4 / (count + 1));  // of four passes
                brought += member.brought_bytes;
                shared += member.shared_bytes;
            }
            CHECK(shared > brought * (count - 1) * 9 / 10);
        }
        CHECK(together < alone * 21 / 20);
        host.expect_no_reports();
        CHECK(host.gpus[0]->leaks().size() == handles);
    }
}

TEST_CASE("replicas: members with budgets of their own share what they bring at the same time") {
    for (const double second : {0.0, 0.2, 0.4, 0.48, 0.75, 1.0}) {
        CAPTURE(second);
        Host host{3};
        auto one = host.member(0, 0.5), two = host.member(1, second), three = host.member(2, 0.3);
        for (int turn = 0; turn < 4; ++turn) {
            CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}, {2, &three}}) == 0);
        }
        const auto members = host.group->members();
        CHECK(members[0].shared_bytes + members[1].shared_bytes + members[2].shared_bytes > 0);
        // Another budget, and with it other addresses and another plan, while the others go on.
        must(one.try_set_budget(Budget::bytes(host.model->raw_bytes() / 4)));
        for (int turn = 0; turn < 2; ++turn) {
            CHECK(host.run_in_step<Weights>({{2, &three}, {0, &one}, {1, &two}}) == 0);
        }
        host.expect_no_reports();
    }
}

TEST_CASE("replicas: the plan of one member is that of all, whatever each has measured and learned") {
    auto slower = named("slower");
    slower.link.to_device_bytes_per_second /= 3;
    slower.link.call_latency *= 4;
    for (const bool has_group : {false, true}) {
        CAPTURE(has_group);
        Host host{2, slower};
        const auto make = [&](std::size_t i) {
            auto options = host.options<Weights>(host.model->raw_bytes() / 2);
            options.learn = true;
            options.learn_threshold = 0;
            if (!has_group) { options.transport.group = std::make_shared<Group>(); }
            return must(Weights::try_create(*host.gpus[i], host.model->raw, std::move(options)));
        };
        auto one = make(0), two = make(1);
        std::uint32_t replans = 0;
        for (int turn = 0; turn < 12; ++turn) {
            CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0);
            replans = one.statistics().learning.replans + two.statistics().learning.replans;
        }
        CHECK(replans > 0);
        CHECK((one.plan() == two.plan()) == has_group);
        const auto plans_made = [&] { return one.statistics().total.plans_made + two.statistics().total.plans_made; };
        const std::uint64_t before = plans_made();
        for (int turn = 0; turn < 4; ++turn) { CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0); }
        CHECK(plans_made() == before);
        // One joins after the other one had another budget meanwhile.
        { auto gone = std::move(two); }
        for (const std::uint64_t part : {4U, 2U}) {
            must(one.try_set_budget(Budget::bytes(host.model->raw_bytes() / part)));
            CHECK(host.run(0, one) == 0);
        }
        auto late = make(1);
        for (int turn = 0; turn < 12; ++turn) { CHECK(host.run_in_step<Weights>({{0, &one}, {1, &late}}) == 0); }
        CHECK((one.plan() == late.plan()) == has_group);
        // The one that leaves took its plans with it: the other one goes on, and makes its own.
        { auto gone = std::move(one); }
        must(late.try_set_budget(Budget::bytes(host.model->raw_bytes() / 3)));
        CHECK(host.run(1, late) == 0);
        host.expect_no_reports();
    }
}

TEST_CASE(
    "replicas: plans of several schedules, one of which another member makes anew: nothing is planned or adopted again "
    "and again") {
    Host host;
    const auto make = [&](std::size_t i) {
        auto options = host.options<Weights>(host.model->raw_bytes() / 2);
        return must(Weights::try_create(*host.gpus[i], host.model->raw, std::move(options)));
    };
    auto one = make(0), two = make(1);
    const Schedule first = host.schedule();
    packed_tests::Steps reversed(layers);
    for (std::uint32_t i = 0; i < layers; ++i) { reversed[i] = {layers - 1 - i}; }
    const Schedule second = packed_tests::schedule_of(host.model->raw, reversed, std::chrono::microseconds{2});
    const Schedule slower = packed_tests::schedule_of(host.model->raw, reversed, std::chrono::microseconds{400});
    for (Weights* each : {&one, &two}) { must(each->try_set_schedule(second)); }
    CHECK(one.plan() == two.plan());
    must(one.try_set_schedule(first));
    must(two.try_set_schedule(slower));  // the same steps as the second one's, with another plan
    const auto adopted = [&] { return one.statistics().learning.replans; };
    CHECK(host.run(0, one) == 0);
    const auto before = adopted();
    for (int turn = 0; turn < 3; ++turn) { CHECK(host.run(0, one) == 0); }
    CHECK(adopted() == before);
    // Back there, it takes that plan, and has it from then on.
    for (int turn = 0; turn < 3; ++turn) {
        must(one.try_set_schedule(second));
        CHECK(one.plan() == two.plan());
        CHECK(host.run(0, one) == 0);
        must(one.try_set_schedule(first));
    }
    host.expect_no_reports();
}

TEST_CASE("replicas: members whose images differ, since kernels write there, have plans of their own") {
    Host host;
    std::vector<packed_tests::Model::Spec> specs(layers, {.elements = mib, .is_noise = true});
    specs[3].is_written = true;
    host.model = std::make_unique<packed_tests::Model>(*host.gpus[0], specs);
    auto one = host.member(0, 0.5), two = host.member(1, 0.75);
    const auto run = [&] { CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0); };
    run();
    must(two.try_set_budget(
        Budget::bytes(host.model->raw_bytes() / 2)));  // as the first one's, in the image that it has
    run();
    const auto plans_made = [&] { return one.statistics().total.plans_made + two.statistics().total.plans_made; };
    const std::uint64_t before = plans_made();
    for (int turn = 0; turn < 4; ++turn) { run(); }
    CHECK(plans_made() == before);
    host.expect_no_reports();
}

TEST_CASE("replicas: packed weights travel packed, once") {
    Host host{2, named("last"), false};
    auto options = host.options<PackedWeights>(host.model->raw_bytes() / 2);
    auto one = must(PackedWeights::try_create(*host.gpus[0], host.model->packed.catalog, options));
    auto two = must(PackedWeights::try_create(*host.gpus[1], host.model->packed.catalog, std::move(options)));
    const auto run = [&] { return host.run_in_step<PackedWeights>({{0, &one}, {1, &two}}); };
    CHECK(run() == 0);
    const auto bytes = host.host_bytes();
    CHECK(run() == 0);
    CHECK(host.host_bytes() - bytes < one.statistics().last_pass.fetched_bytes * 11 / 10);
    CHECK(one.statistics().last_pass.fetched_bytes < host.model->packed.packed_bytes);
    host.expect_no_reports();
}

TEST_CASE("replicas: members that run apart have right bytes") {
    Host host{3};
    auto one = host.member(0, 0.5), two = host.member(1, 0.5);
    std::mt19937 random{3};
    SUBCASE("one begins late, one ends early") {
        CHECK(host.run(0, one) == 0);
        CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0);
        {
            auto late = host.member(2, 0.6);
            CHECK(host.run_in_step<Weights>({{0, &one}, {2, &late}, {1, &two}}) == 0);
            CHECK(host.group->members().size() == 3);
        }
        CHECK(host.group->members().size() == 2);
        CHECK(host.run(1, two) == 0);
    }
    SUBCASE("passes begin whenever, and are as long as they are") {
        for (int turn = 0; turn < 6; ++turn) {
            std::uint64_t wrong = 0;
            auto pass = must(one.try_begin(host.streams[0]));
            auto other = must(two.try_begin(host.streams[1]));
            std::uint32_t at[2] = {0, 0};
            const std::uint32_t ends[2] = {1 + static_cast<std::uint32_t>(random()) % layers,
                                           1 + static_cast<std::uint32_t>(random()) % layers};
            while (at[0] < ends[0] || at[1] < ends[1]) {
                const std::size_t m = at[0] == ends[0] ? 1 : at[1] == ends[1] ? 0 : random() % 2;
                auto& weights = m == 0 ? one : two;
                const auto& step = weights.schedule()[at[m]++];
                const auto lease = must((m == 0 ? pass : other).try_acquire(step));
                host.verify(m, step, lease, wrong);
            }
            must(pass.try_end());
            must(other.try_end());
            must(one.try_drain());
            must(two.try_drain());
            CHECK(wrong == 0);
        }
    }
    SUBCASE("one ends in the middle of a pass, while another one reads its ring") {
        auto gone = std::make_unique<Weights>(host.member(2, 0.5));
        std::uint64_t wrong = 0;
        {
            auto pass = must(one.try_begin(host.streams[0]));
            {
                auto lost = must(gone->try_begin(host.streams[2]));
                for (std::uint32_t i = 0; i < layers / 2; ++i) {
                    { const auto lease = must(lost.try_acquire(gone->schedule()[i])); }
                    const auto lease = must(pass.try_acquire(one.schedule()[i]));
                    host.verify(0, one.schedule()[i], lease, wrong);
                }
            }
            gone.reset();
            for (std::uint32_t i = layers / 2; i < layers; ++i) {
                const auto lease = must(pass.try_acquire(one.schedule()[i]));
                host.verify(0, one.schedule()[i], lease, wrong);
            }
            must(pass.try_end());
        }
        must(one.try_drain());
        CHECK(wrong == 0);
        CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0);
    }
    host.expect_no_reports();
}

TEST_CASE("replicas: a device that is lost: its member fails, the others say what they lost, once, and go on") {
    for (const bool in_flight : {false, true}) {
        for (const std::size_t lost : {1U, 2U}) {  // the first one has the host bytes
            CAPTURE(in_flight);
            CAPTURE(lost);
            Host host{3};
            std::vector<Weights> weights;
            for (std::size_t i = 0; i < 3; ++i) { weights.push_back(host.member(i, 0.5)); }
            CHECK(host.run_in_step<Weights>(Host::all_of(weights)) == 0);
            std::uint64_t wrong = 0;
            std::size_t failed = 0;
            {
                std::vector<Weights::Pass> passes;
                for (std::size_t i = 0; i < 3; ++i) { passes.push_back(must(weights[i].try_begin(host.streams[i]))); }
                for (std::uint32_t s = 0; s < layers; ++s) {
                    if (in_flight && s == layers / 2) { host.gpus[lost]->lose_device(); }
                    for (std::size_t i = 0; i < 3; ++i) {
                        auto lease = passes[i].try_acquire(weights[i].schedule()[s]);
                        CHECK((lease.has_value() || i == lost));
                        if (lease && !(in_flight && i == lost && s >= layers / 2)) {
                            host.verify(i, weights[i].schedule()[s], *lease, wrong);
                        }
                    }
                }
                if (!in_flight) {
                    for (std::size_t i = 0; i < 3; ++i) { must(host.gpus[i]->synchronize()); }
                    host.gpus[lost]->lose_device();
                }
                for (std::size_t i = 0; i < 3; ++i) {
                    const bool ended = passes[i].try_end().has_value(), drained = weights[i].try_drain().has_value();
                    failed += i != lost && !(ended && drained) ? 1 : 0;
                }
            }
            if (in_flight) {
                CHECK(failed == 2);  // both had bytes from there
            } else {
                CHECK(wrong == 0);
            }
            wrong = 0;
            std::vector<std::pair<std::size_t, Weights*>> left;
            for (std::size_t i = 0; i < 3; ++i) {
                if (i != lost) { left.emplace_back(i, &weights[i]); }
            }
            for (int turn = 0; turn < 3; ++turn) { CHECK(host.run_in_step<Weights>(left) == 0); }
            const auto members = host.group->members();
            CHECK_FALSE(members.at(lost).reason.empty());
            CHECK(members.at(0).reason.empty());
            CHECK(members.at(3 - lost).reason.empty());
            CHECK(members.at(3 - lost).shared_bytes > 0);
        }
    }
}

TEST_CASE("replicas: bytes that a ring never had, since its device was lost, are an error and never used as they are") {
    Host host;
    const auto other = host.model->raw.host_bytes(residency::StorageId{3});
    Replicas one{{.group = host.group}}, two{{.group = host.group}};
    must(one.open(*host.gpus[0], host.model->raw));
    must(two.open(*host.gpus[1], host.model->raw));
    auto* const to = static_cast<std::byte*>(must(host.gpus[0]->allocate(2 * mib)));
    const residency::transport::Fetch fetch{residency::StorageId{3}, 0, 2 * mib, to, true};
    must(one.enqueue({&fetch, 1}, host.streams[0]));
    REQUIRE(host.group->members()[1].brought_bytes > 0);
    host.gpus[1]->lose_device();  // what was on its way there is dropped, and who waits for it goes on
    must(host.gpus[0]->synchronize());
    CHECK_FALSE(one.status());
    std::vector<residency::StorageId> again;
    one.take_failure(again);
    CHECK(again.size() == layers);
    CHECK(one.status());
    must(one.enqueue({&fetch, 1}, host.streams[0]));
    must(host.gpus[0]->synchronize());
    CHECK(one.status());
    CHECK(std::memcmp(to, other, 2 * mib) == 0);
    one.close();
    two.abandon();
    two.close();
    must(host.gpus[0]->deallocate(to));
}

TEST_CASE("replicas: whichever call of a member fails, the others have every byte") {
    for (const CallKind kind : {CallKind::copy, CallKind::record, CallKind::wait, CallKind::is_complete}) {
        for (const std::uint64_t nth : {1U, 2U, 8U, 21U}) {
            CAPTURE(static_cast<int>(kind));
            CAPTURE(nth);
            Host host;
            auto one = host.member(0, 0.5), two = host.member(1, 0.5);
            CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0);
            host.gpus[1]->fail(kind, nth);
            CHECK(host.run(0, one) == 0);
            host.gpus[1]->clear_failures();
            for (int turn = 0; turn < 2; ++turn) { CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0); }
            host.expect_no_reports();
        }
    }
}

TEST_CASE(
    "C14: replicas: what a member reads of a ring, and could not be waited for, is read before the ring is filled "
    "again") {
    int refused = 0;
    enum class End : std::uint8_t { is_filled_again, ends, ends_without_waiting };
    for (const End end : {End::is_filled_again, End::ends, End::ends_without_waiting}) {
        for (std::uint64_t nth = 1; nth <= 12; ++nth) {
            CAPTURE(static_cast<int>(end));
            CAPTURE(nth);
            Host host;
            Replicas one{{.group = host.group}}, two{{.group = host.group}};
            must(one.open(*host.gpus[0], host.model->raw));
            must(two.open(*host.gpus[1], host.model->raw));
            std::array<std::byte*, 2> to{};
            for (std::size_t i = 0; i < 2; ++i) {
                to[i] = static_cast<std::byte*>(must(host.gpus[i]->allocate(2 * mib)));
            }
            const auto enqueue = [&](Replicas& member, std::size_t i, std::uint32_t storage) {
                const residency::transport::Fetch fetch{residency::StorageId{storage}, 0, 2 * mib, to[i], true};
                return member.enqueue({&fetch, 1}, host.streams[i]);
            };
            host.gpus[0]->fail(CallKind::record, nth);
            host.gpus[0]->fail(CallKind::synchronize_stream, 1);
            bool is_taken = true;
            for (std::uint32_t i = 0; i < 4 && is_taken; ++i) { is_taken = enqueue(one, 0, i).has_value(); }
            refused += is_taken ? 0 : 1;
            host.gpus[0]->clear_failures();
            if (end == End::is_filled_again) {
                for (std::uint32_t i = 4; i < layers; ++i) { must(enqueue(two, 1, i)); }
            }
            for (std::uint64_t i = 1; end == End::ends_without_waiting && i <= 8; ++i) {
                host.gpus[0]->fail(CallKind::synchronize_event, i);
                host.gpus[0]->fail(CallKind::synchronize_device, i);
            }
            two.close();
            host.gpus[0]->clear_failures();
            must(host.gpus[0]->synchronize());
            one.close();
            host.expect_no_reports();
            for (std::size_t i = 0; i < 2; ++i) { must(host.gpus[i]->deallocate(to[i])); }
        }
    }
    CHECK(refused > 4);
}

TEST_CASE("replicas: a device without peer access or memory for its ring has its own link") {
    const auto check = [](Host& host, const char* text) {
        auto one = host.member(0, 0.5), two = host.member(1, 0.5);
        for (int turn = 0; turn < 2; ++turn) { CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0); }
        const auto members = host.group->members();
        CHECK(members[1].reason.find(text) != std::string::npos);
        CHECK(members[0].brought_bytes > 0);
        host.expect_no_reports();
        return members;
    };
    SUBCASE("no access") {
        auto config = named("alone");
        config.peer_access = false;
        Host host{2, config};
        const auto members = check(host, "no access");
        CHECK(members[0].shared_bytes + members[1].shared_bytes == 0);
    }
    SUBCASE("no memory") {
        auto config = named("small");
        config.memory_bytes = 64 * mib;
        Host host{2, config};
        host.lent_bytes = 80 * mib;
        check(host, "80 MiB");
    }
}

TEST_CASE("replicas: what cannot be a member is refused") {
    Host host;
    auto one = host.member(0, 0.5);
    const auto refused = [&](std::size_t gpu, const residency::Catalog& catalog, Weights::Options options,
                             ErrorKind kind, const char* text) {
        const auto made = Weights::try_create(*host.gpus[gpu], catalog, std::move(options));
        REQUIRE_FALSE(made);
        CHECK(made.error().kind() == kind);
        CAPTURE(made.error().message());
        CHECK(made.error().message().find(text) != std::string::npos);
    };
    const auto options = [&] { return host.options(host.model->raw_bytes() / 2); };
    refused(0, host.model->raw, options(), ErrorKind::invalid_argument, "a member on this device already");
    auto none = options();
    none.transport.group = nullptr;
    refused(1, host.model->raw, none, ErrorKind::invalid_argument, "transport.group is missing");
    auto small = options();
    small.transport.lent_bytes = 2 * mib;
    refused(1, host.model->raw, small, ErrorKind::invalid_argument, "give at least 4 MiB");
    const packed_tests::Model copy{*host.gpus[0], std::vector<packed_tests::Model::Spec>(layers, {mib, true})};
    refused(1, copy.raw, options(), ErrorKind::mismatch, "lies elsewhere in host memory");
    CHECK(host.group->members().size() == 1);
    auto graph = one.try_capture(host.streams[0], [&](Weights::Pass& pass) {
        for (const Schedule::Step& step : one.schedule()) { must(pass.try_acquire(step)).end(); }
    });
    REQUIRE_FALSE(graph);
    CHECK(graph.error().kind() == ErrorKind::unsupported);
    CHECK(host.run(0, one) == 0);
}

TEST_CASE("C32: replicas bring the new bytes of a source that was replaced, though a ring had the old ones") {
    Host host;
    auto one = host.member(0, 0.3), two = host.member(1, 0.3);
    CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0);
    must(one.try_refresh_all([&] {
        return two.try_refresh_all([&]() -> residency::Status {
            for (const auto& bytes : host.model->contents) {
                auto* const at = const_cast<std::byte*>(bytes.data());
                if (auto written = host.gpus[0]->host_write(at, bytes.size()); !written) { return written; }
                std::reverse(at, at + bytes.size());
            }
            return {};
        });
    }));
    for (int turn = 0; turn < 2; ++turn) { CHECK(host.run_in_step<Weights>({{0, &one}, {1, &two}}) == 0); }
    host.expect_no_reports();
}

TEST_CASE("Replicas keeps the contract of transports") {
    Host host;
    residency::conformance::check_transport_policy<Replicas>(*host.gpus[0], gpus_of_host::large_calls(), [] {
        return std::make_unique<Replicas>(Replicas::Config{.group = std::make_shared<Group>()});
    });
    host.expect_no_reports();
}

}  // namespace replicas_test
