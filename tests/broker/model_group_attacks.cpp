// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Models that take turns, while what is around them changes: budgets, bytes, the mapping, the memory of others, and calls that fail.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/broker/group_of_models.hpp"

namespace model_group_attacks_test {

using namespace group_of_models;

namespace {

/// A whole model sleeps, and what fits beside another one that is awake was brought ahead.
struct Prepared {
    Prepared() {
        const auto use = must(f.group.try_activate(other.member));
        while (const std::uint64_t more = must(f.group.try_prepare(sleeper.member))) { bytes += more; }
        CHECK(bytes == whole * 3 / 10);
    }
    Fixture f;
    Sleeper &sleeper = f.add(whole), &other = f.add(whole);
    std::uint64_t bytes = 0;
};

/// Some of the weights, each in a step.
residency::Schedule some_steps(const streaming::Model& model, std::mt19937& random) {
    residency::ScheduleBuilder builder{model.catalog};
    builder.step({weight(0)});
    for (std::uint32_t i = 1; i < model.catalog.storages().size(); ++i) {
        if (random() % 4 != 0) { builder.step({weight(i)}); }
    }
    return must(builder.try_build(residency::Cycle::cyclic));
}
/// Other bytes at the source.
void replace_all(Device& device, Sleeper& each, std::uint32_t value) {
    must(each.weights->try_refresh_all([&] {
        for (std::uint32_t i = 0; i < each.model.catalog.storages().size(); ++i) {
            const residency::StorageId id{i};
            const auto bytes = each.model.catalog.storage(id).bytes;
            auto* const at = const_cast<std::byte*>(each.model.catalog.host_bytes(id));
            must(device.host_write(at, bytes));
            std::memset(at, static_cast<int>((value + i) % 251), static_cast<std::size_t>(bytes));
        }
    }));
}
/// A pass that reads weights in any order, also such as no step reads.
void astray(Fixture& f, Sleeper& each, std::mt19937& random) {
    auto pass = must(each.weights->try_begin(f.stream));
    for (int i = 0; i < 4; ++i) {
        const auto id = weight(static_cast<std::uint32_t>(random() % each.model.catalog.storages().size()));
        const auto lease = pass.try_acquire(id);
        if (lease) { verify(f.device, each.model, *lease, id, f.stream); }
    }
    must(pass.try_end());
    must(f.device.synchronize(f.stream));
}

/// Two models of six chunks, of which the second one streams, and a cache share eight. Calls may fail.
class Program {
public:
    Program() {
        for (Sleeper* each : {&one_, &two_}) {
            f_.capture(*each);
            const auto use = must(f_.group.try_activate(each->member));
            f_.run(*each, true);
        }
        must(f_.device.synchronize());
    }
    [[nodiscard]] CheckedDevice& device() noexcept { return f_.device; }
    [[nodiscard]] std::uint64_t errors() const noexcept { return errors_; }

    void run() {
        turn(one_, two_);
        turn(two_, one_);
        take();
        turn(one_, two_);
        take();
        turn(two_, one_);
        cache_.give_back(std::exchange(taken_, 0));
        seen(one_.weights->try_set_budget(Budget::bytes(5 * chunk)));
        turn(one_, two_);
        seen(two_.weights->try_refresh_all([] {}));
        turn(two_, one_);
        seen(one_.weights->try_set_budget(Budget::bytes(6 * chunk)));
        turn(one_, two_);
        turn(two_, one_);
    }
    /// Nothing fails any more: all of it works.
    void expect_working() {
        for (int i = 0; i < 2; ++i) {
            for (Sleeper* each : {&one_, &two_}) {
                const auto use = must(f_.group.try_activate(each->member));
                f_.run(*each);
                if (!each->graph->is_stale()) { f_.run(*each, true); }
                check();
            }
        }
        take();
        { const auto use = must(f_.group.try_activate(one_.member)); }
        take();
        CHECK(taken_ == 2 * chunk);
        check();
        cache_.give_back(std::exchange(taken_, 0));
        CHECK_FALSE(two_.graph->is_stale());
    }

private:
    template <class R>
    void seen(const R& result) {
        errors_ += result ? 0U : 1U;
    }
    /// The second time, the group has given back.
    void take() {
        if (taken_ == 0 && cache_.try_take(2 * chunk)) { taken_ = 2 * chunk; }
    }
    void turn(Sleeper& each, Sleeper& next) {
        {
            const auto use = f_.group.try_activate(each.member);
            seen(use);
            REQUIRE((!use || f_.is_awake(each)));
            check();
            if (use) {
                seen(one_pass(each));
                if (!each.graph->is_stale()) { seen(each.graph->try_launch(f_.stream)); }
            }
            seen(f_.group.try_prepare(next.member));
            check();
        }
        check();
    }
    [[nodiscard]] residency::Status one_pass(Sleeper& each) {
        auto pass = each.weights->try_begin(f_.stream);
        if (!pass) { return pass.error(); }
        for (const auto& step : each.weights->schedule()) {
            auto lease = pass->try_acquire(step);
            if (!lease) { return lease.error(); }
            verify(f_.device, each.model, *lease, step.weights.front(), f_.stream);
        }
        return pass->try_end();
    }
    void check() {
        const auto accounts = f_.group.accounts();
        std::uint64_t held = 0;
        for (std::size_t i = 0; i < f_.all.size(); ++i) {
            held += f_.all[i]->weights->statistics().held_bytes;
            CHECK(accounts[i].is_awake == f_.is_awake(*f_.all[i]));
        }
        CHECK(held == f_.group.stock().used_bytes());
        CHECK(f_.group.stock().held_bytes() + taken_ <= f_.broker.statistics().total_bytes);
        CHECK(f_.broker.statistics().granted_bytes <= f_.broker.statistics().total_bytes);
        const auto memory = f_.device.memory();  // which may be what fails
        if (memory) { CHECK(memory->total_bytes - memory->free_bytes == f_.group.stock().held_bytes()); }
    }

    Fixture f_{8 * chunk};
    Sleeper &one_ = f_.add(uniform_model(f_.device, 6, chunk), 6 * chunk),
            &two_ = f_.add(uniform_model(f_.device, 6, chunk), 5 * chunk);
    residency::broker::MemoryClient cache_ = must(f_.broker.try_add_memory({.name = "KV cache", .priority = 1}));
    std::uint64_t taken_ = 0, errors_ = 0;
};

}  // namespace

TEST_SUITE_BEGIN("broker model group attacks");

TEST_CASE("brought ahead, then another budget: what was brought is not taken for what is there") {
    for (const std::uint64_t tenths : {4U, 6U, 9U}) {
        CAPTURE(tenths);
        Prepared p;
        must(p.sleeper.weights->try_set_budget(Budget::bytes(whole * tenths / 10)));
        const auto use = must(p.f.group.try_activate(p.sleeper.member));
        p.f.run(p.sleeper);
        p.f.run(p.sleeper);
        CHECK(p.sleeper.weights->statistics().held_bytes <= whole * tenths / 10);
    }
}

TEST_CASE("C32: brought ahead, then replaced at its source: passes read the new bytes") {
    Prepared p;
    const auto& catalog = p.sleeper.model.catalog;
    must(p.sleeper.weights->try_refresh_all([&] {
        for (std::uint32_t i = 0; i < steps; ++i) {
            auto* const bytes = const_cast<std::byte*>(catalog.host_bytes(residency::StorageId{i}));
            must(p.f.device.host_write(bytes, chunk));
            std::memset(bytes, static_cast<int>(i), chunk);
        }
    }));
    {
        const auto use = must(p.f.group.try_activate(p.sleeper.member));
        p.f.run(p.sleeper);
    }
    const auto use = must(p.f.group.try_activate(p.other.member));
    p.f.run(p.other);
}

TEST_CASE("a model with chunks away from home sleeps, is brought ahead and wakes") {
    Fixture f;
    // The last four weights are of no step.
    auto model = uniform_model(f.device, steps + 4, chunk);
    residency::ScheduleBuilder builder{model.catalog};
    for (std::uint32_t i = 0; i < steps; ++i) { builder.step({weight(i)}); }
    auto& sleeper = f.add(std::move(model), whole * 7 / 10, {}, must(builder.try_build()));
    auto& other = f.add(whole);
    for (int round = 0; round < 3; ++round) {
        {
            const auto use = must(f.group.try_activate(sleeper.member));
            auto pass = must(sleeper.weights->try_begin(f.stream));
            for (const std::uint32_t i : {0U, 1U, steps + 1U, 2U, steps + 3U, 7U}) {
                auto lease = must(pass.try_acquire(weight(i)));
                verify(f.device, sleeper.model, lease, weight(i), f.stream);
            }
            must(pass.try_end());
        }
        {
            const auto use = must(f.group.try_activate(other.member));
            f.run(other);
            while (must(f.group.try_prepare(sleeper.member)) > 0) {}
        }
        const auto use = must(f.group.try_activate(sleeper.member));
        f.run(sleeper);
    }
}

TEST_CASE("a smaller budget, chosen while it sleeps, is what it needs room for") {
    Fixture f{whole};
    auto& one = f.add(whole);
    auto cache = must(f.broker.try_add_memory({.name = "KV cache", .priority = 1}));
    auto& two = f.add(whole / 2);  // the first one sleeps
    CHECK_FALSE(cache.try_take(whole * 4 / 10));
    {
        const auto use = must(f.group.try_activate(two.member));
        f.run(two);
    }
    must(cache.try_take(whole * 4 / 10));
    const auto refused = f.group.try_activate(one.member);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    must(one.weights->try_set_budget(Budget::bytes(whole / 2)));
    const auto use = must(f.group.try_activate(one.member));
    f.run(one);
}

TEST_CASE("nobody falls asleep for a request that fails all the same") {
    Fixture f{whole * 26 / 10};
    auto &one = f.add(whole), &two = f.add(whole, {.name = "pinned", .is_pinned = true});
    auto& three = f.add(whole / 2);
    const auto expect_awake = [&] {
        for (const auto* each : {&one, &two, &three}) { CHECK(f.is_awake(*each)); }
    };
    CHECK_FALSE(f.group.try_make_room(whole * 17 / 10));
    expect_awake();
    {
        const auto use = must(f.group.try_activate(one.member));
        CHECK_FALSE(f.group.try_make_room(whole, std::chrono::nanoseconds{0}));
        expect_awake();
    }
    must(f.group.try_make_room(whole * 16 / 10));
    CHECK_FALSE(f.is_awake(one));
    CHECK_FALSE(f.is_awake(three));
}

TEST_CASE("C31: what kernels wrote survives the switches") {
    Fixture f;
    std::vector<Spec> specs(steps, Spec{chunk});
    specs[3] = {2 * chunk, residency::Placement::resident, true};
    auto &one = f.add(make_model(f.device, specs), whole * 8 / 10), &two = f.add(whole);
    std::byte now{0};
    for (int round = 0; round < 20; ++round) {
        {
            const auto use = must(f.group.try_activate(one.member));
            auto pass = must(one.weights->try_begin(f.stream));
            for (const auto& step : one.weights->schedule()) {
                auto lease = must(pass.try_acquire(step));
                const auto bytes = lease.bytes(step.weights.front());
                if (step.weights.front() != weight(3)) {
                    verify(f.device, one.model, lease, step.weights.front(), f.stream);
                    continue;
                }
                auto* const at = const_cast<std::byte*>(bytes.data());
                Device::Kernel kernel;
                kernel.name = "write";
                kernel.reads = kernel.writes = {{at, bytes.size()}};
                kernel.body = [at, count = bytes.size(), was = now, is_first = round == 0,
                               wrong = one.model.wrong.get()] {
                    if (!is_first && std::count(at, at + count, was) != static_cast<std::ptrdiff_t>(count)) {
                        ++*wrong;
                    }
                    std::memset(at, std::to_integer<int>(was) + 1, count);
                };
                must(f.device.launch(f.stream, std::move(kernel)));
            }
            must(pass.try_end());
            now = static_cast<std::byte>(std::to_integer<int>(now) + 1);
        }
        const auto use = must(f.group.try_activate(two.member));
        f.run(two);
        static_cast<void>(must(f.group.try_prepare(one.member)));
    }
    must(f.device.synchronize());
    CHECK(*one.model.wrong == 0);
}

TEST_CASE("a cache that grows and shrinks beside switches: no instant above the total, and every byte is right") {
    for (const std::int32_t priority : {-1, 0, 1}) {
        CAPTURE(priority);
        Fixture f{whole * 2};
        for (const std::uint64_t tenths : {10U, 6U, 8U}) { f.capture(f.add(whole * tenths / 10)); }
        auto cache = must(f.broker.try_add_memory({.name = "KV cache", .priority = priority}));
        std::mt19937 random{11};
        std::uint64_t taken = 0, most_taken = 0, awake = 0;
        for (int i = 0; i < 600; ++i) {
            if (random() % 3 == 0) {
                const std::uint64_t bytes = 1 + random() % (whole / 3);
                if (taken + bytes <= whole * 9 / 10 && cache.try_take(bytes)) { taken += bytes; }
                most_taken = std::max(most_taken, taken);
            } else if (random() % 4 == 0) {
                const std::uint64_t bytes = random() % 3 == 0 ? taken : random() % (taken + 1);
                cache.give_back(bytes);
                taken -= bytes;
            }
            auto& each = *f.all[random() % 3];
            const auto use = f.group.try_activate(each.member);
            REQUIRE(f.group.stock().held_bytes() + taken <= f.broker.statistics().total_bytes);
            REQUIRE(used(f.device) <= f.group.stock().held_bytes());
            if (!use) {
                CHECK(use.error().kind() == ErrorKind::budget);
                continue;
            }
            ++awake;
            CHECK_FALSE(each.graph->is_stale());
            f.run(each, random() % 2 == 0);
            static_cast<void>(must(f.group.try_prepare(f.all[random() % 3]->member)));
        }
        CHECK(awake > 300);
        if (priority > 0) { CHECK(most_taken > whole / 2); }
        cache.give_back(taken);
        for (const auto& each : f.all) {
            const auto use = must(f.group.try_activate(each->member));
            f.run(*each, true);
        }
    }
}

TEST_CASE("C19 C31: each call fails once, at any place: memory is accounted for, and every model works afterwards") {
    std::uint64_t points = 0, seen = 0;
    for (std::size_t k = 0; k < residency::simulation::call_kinds; ++k) {
        const auto kind = static_cast<CallKind>(k);
        // Not the library's.
        if (kind == CallKind::launch_kernel || kind == CallKind::host_access) { continue; }
        for (std::uint64_t nth = 1;; nth += nth < 12 ? 1 : 1 + nth / 4) {
            const std::string where = std::string{residency::simulation::name(kind)} + " " + std::to_string(nth);
            CAPTURE(where);
            Program program;
            auto& device = program.device();
            const auto before = device.statistics().of(kind);
            device.fail(kind, nth);
            program.run();
            const std::uint64_t calls = device.statistics().of(kind) - before;
            device.clear_failures();
            program.expect_working();
            if (calls < nth) { break; }
            ++points;
            seen += program.errors() > 0 ? 1U : 0U;
        }
    }
    MESSAGE(points << " failures, " << seen << " of them reported");
    CHECK(points > 100);
    CHECK(seen > 40);
}

TEST_CASE("random programs: budgets, schedules, weights and memory of others change between switches") {
    std::uint64_t switches = 0, stale = 0, launched = 0, refused = 0, prepared = 0;
    for (std::uint32_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        std::mt19937 random{seed};
        Fixture f{whole * (11 + random() % 12) / 10};
        f.learns = seed % 2 == 0;
        const bool is_mixed = random() % 2 == 0;
        for (int i = 0; i < 3; ++i) {
            std::vector<Spec> specs(steps, Spec{chunk});
            for (std::uint32_t w = 0; is_mixed && w < steps; ++w) { specs[w].bytes = 1 + random() % (2 * chunk); }
            auto model = make_model(f.device, specs);
            auto schedule = random() % 2 == 0 ? in_order(model) : some_steps(model, random);
            f.add(std::move(model), whole * (6 + random() % 5) / 10,
                  {.name = {}, .priority = random() % 3 == 0 ? 1 : 0}, std::move(schedule));
        }
        auto cache = must(f.broker.try_add_memory(
            {.name = "KV cache", .priority = random() % 2 == 0 ? 1 : 0, .limit_bytes = whole / 4}));
        std::uint64_t taken = 0;
        for (int op = 0; op < 60; ++op) {
            CAPTURE(op);
            auto& each = *f.all[random() % 3];
            if (random() % 4 == 0) {
                const std::uint64_t bytes = 1 + random() % (whole / 8);
                if (cache.try_take(bytes)) { taken += bytes; }
            } else if (random() % 4 == 0) {
                cache.give_back(std::exchange(taken, 0));
            }
            if (random() % 4 == 0) {  // awake or asleep
                const auto changed = each.weights->try_set_budget(Budget::bytes(whole * (5 + random() % 6) / 10));
                refused += changed ? 0U : 1U;
            }
            if (random() % 5 == 0) { replace_all(f.device, each, static_cast<std::uint32_t>(random())); }
            const auto use = f.group.try_activate(each.member);
            REQUIRE(f.group.stock().held_bytes() + taken <= f.broker.statistics().total_bytes);
            REQUIRE(used(f.device) == f.group.stock().held_bytes());
            if (!use) {
                REQUIRE((use.error().kind() == ErrorKind::budget || use.error().kind() == ErrorKind::out_of_memory));
                ++refused;
                continue;
            }
            ++switches;
            if (random() % 6 == 0) {
                each.graph.reset();
                const auto changed = each.weights->try_set_schedule(random() % 2 == 0 ? in_order(each.model)
                                                                                      : some_steps(each.model, random));
                refused += changed ? 0U : 1U;  // it may need more than it has, and others have the rest
            }
            if (random() % 3 == 0) { astray(f, each, random); }
            if (!each.graph && random() % 2 == 0) { f.capture(each); }
            stale += each.graph && each.graph->is_stale() ? 1U : 0U;
            if (each.graph && each.graph->is_stale()) { each.graph.reset(); }
            launched += each.graph ? 1U : 0U;
            f.run(each, each.graph.has_value());
            if (random() % 2 == 0) { f.run(each); }
            const auto brought = f.group.try_prepare(f.all[random() % 3]->member, (1 + random() % 9) * chunk);
            prepared += must(brought);
        }
        cache.give_back(taken);
    }
    MESSAGE(switches << " switches, " << launched << " launches, " << stale << " stale graphs, " << refused
                     << " refusals, " << prepared << " bytes ahead");
    CHECK(switches > 1500);
    CHECK(launched > 300);
    CHECK(prepared > 0);
}

TEST_CASE("C20: the device breaks in a switch: errors, and an end") {
    Fixture f;
    f.device.leaks_expected = true;
    auto &one = f.add(whole), &two = f.add(whole);
    auto cache = must(f.broker.try_add_memory({.name = "KV cache", .priority = 1}));
    {
        const auto use = must(f.group.try_activate(one.member));
        f.run(one);
        CHECK(must(f.group.try_prepare(two.member)) > 0);
    }
    CHECK_FALSE(cache.try_take(whole / 2));
    f.device.lose_device();
    CHECK_FALSE(f.group.try_activate(two.member));
    CHECK_FALSE(one.weights->try_begin(f.stream));
    CHECK_FALSE(f.group.try_activate(two.member));
    CHECK_FALSE(f.group.try_make_room(whole));
    static_cast<void>(f.group.try_prepare(one.member).has_value());
}

TEST_CASE("a model that leaves its group asleep or brought ahead works on its own, and others have the rest") {
    Fixture f;
    auto &one = f.add(whole), &two = f.add(whole * 6 / 10);
    f.capture(one);
    {
        const auto use = must(f.group.try_activate(two.member));
        CHECK(must(f.group.try_prepare(one.member)) > 0);
    }
    one.member = {};
    CHECK(f.group.accounts().size() == 1);
    CHECK_FALSE(one.weights->try_resume());  // there is no room, and nobody makes any
    two.member = {};
    must(two.weights->try_suspend());
    must(one.weights->try_resume());
    f.run(one);
    f.run(one, true);
    one.member = must(f.group.try_add(*one.weights, {.name = "again"}));
    two.member = must(f.group.try_add(*two.weights, {.name = "asleep"}));
    for (auto* each : {&two, &one}) {
        const auto use = must(f.group.try_activate(each->member));
        f.run(*each);
    }
}

TEST_SUITE_END();

}  // namespace model_group_attacks_test
