// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Models that take turns, while what is around them changes: budgets, bytes, the mapping, the memory of others, and calls that fail.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
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

TEST_SUITE_END();

}  // namespace model_group_attacks_test
