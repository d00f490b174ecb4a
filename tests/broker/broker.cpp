// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/broker/broker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "residency/budget/budget.hpp"

namespace broker_test {

using residency::Budget;
using residency::BudgetBroker;
using residency::BudgetChange;
using residency::Error;
using residency::ErrorKind;
using residency::Result;

TEST_SUITE_BEGIN("broker");

namespace {

template <class T>
T must(Result<T> result) {
    const std::string message = result ? std::string{} : result.error().message();
    REQUIRE_MESSAGE(result.has_value(), message);
    if constexpr (!std::is_void_v<T>) { return std::move(result).value(); }
}

/// Keeps a cap as a Residency does, without a device.
struct Model {
    residency::ResolvedBudget resolved;
    std::optional<Error> refuses;
    int changes = 0;

    explicit Model(const Budget& budget) { resolved.bytes = budget.amount(); }
    [[nodiscard]] const residency::ResolvedBudget& budget() const { return resolved; }
    [[nodiscard]] Result<BudgetChange> try_set_budget(const Budget& budget) {
        if (refuses) { return *refuses; }
        ++changes;
        BudgetChange change{resolved.bytes, budget.amount(), resolved.bytes, budget.amount()};
        resolved.bytes = budget.amount();
        return change;
    }
};

std::uint64_t free_of(const BudgetBroker& broker) {
    return broker.statistics().total_bytes - broker.statistics().granted_bytes;
}

}  // namespace

TEST_CASE("one model has what it wants of the total, and its budget is its own") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 100, .wanted_bytes = 700}));
    CHECK(client.account().granted_bytes == 700);
    Model model{must(client.try_budget())};
    CHECK(model.budget().bytes == 700);
    const auto end = must(client.try_at_pass_end(model));
    CHECK(end.change.given_back_bytes() == 0);
    CHECK_FALSE(end.deferred);
    CHECK_FALSE(end.more_is_coming);
    CHECK(model.changes == 0);
    CHECK(free_of(broker) == 300);
}

TEST_CASE("floors that do not fit together are refused with the numbers; the broker stays as it was") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto first = must(broker.try_add_model({.name = "first", .floor_bytes = 600, .wanted_bytes = 600}));
    const auto refused = broker.try_add_model({.name = "second", .floor_bytes = 401, .wanted_bytes = 500});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(refused.error().message().find("second") != std::string::npos);
    CHECK(refused.error().detail<residency::BudgetNumbers>()->floor_bytes == 1001);
    CHECK_FALSE(broker.try_add_memory({.name = "memory", .floor_bytes = 401}));
    CHECK_FALSE(first.try_set_claim({0, 1001, 2000}));
    CHECK_FALSE(broker.try_set_total(599));
    CHECK(broker.accounts().size() == 1);
    CHECK(broker.statistics().total_bytes == 1000);
    CHECK(broker.try_add_model({.name = "second", .floor_bytes = 400, .wanted_bytes = 500}));
}

TEST_CASE("who joins later waits until the others' pass ends have made room, and never longer") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto a = must(broker.try_add_model({.name = "a", .floor_bytes = 100, .wanted_bytes = 1000}));
    Model first{must(a.try_budget())};
    CHECK(first.budget().bytes == 1000);
    auto b = must(broker.try_add_model({.name = "b", .floor_bytes = 100, .wanted_bytes = 1000}));
    const auto refused = b.try_budget();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(a.account().asked_back_bytes() == 500);
    const auto end = must(a.try_at_pass_end(first));
    CHECK(end.change.given_back_bytes() == 500 + 14);  // half the hysteresis, 28 / 2, beyond what was asked
    Model second{must(b.try_budget())};
    CHECK(second.budget().bytes == 500);
    CHECK(free_of(broker) == 14);
    for (int i = 0; i < 5; ++i) {
        must(a.try_at_pass_end(first));
        must(b.try_at_pass_end(second));
    }
    CHECK(first.changes == 1);
    CHECK(second.changes == 0);
}

TEST_CASE("a client that leaves makes room for the others") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto a = must(broker.try_add_model({.name = "a", .floor_bytes = 100, .wanted_bytes = 900}));
    std::optional<residency::broker::ModelClient> b{
        must(broker.try_add_model({.name = "b", .priority = 1, .floor_bytes = 100, .wanted_bytes = 900}))};
    Model first{must(a.try_budget())};
    CHECK(first.budget().bytes == 100);
    b.reset();
    must(a.try_at_pass_end(first));
    CHECK(first.budget().bytes == 900);
}

TEST_CASE("a growing cache squeezes weights out, a shrinking one lets them back") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 200, .wanted_bytes = 1000}));
    auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
    Model model{must(client.try_budget())};
    CHECK(model.budget().bytes == 1000);
    const auto refused = cache.try_take(300);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(refused.error().detail<residency::BudgetNumbers>()->asked_bytes == 300);
    CHECK(refused.error().message().find(
              "300 bytes are asked back from others: ask again after their next pass ends") != std::string::npos);
    auto other = must(broker.try_add_memory({.name = "other"}));
    const auto never = other.try_take(1001);
    REQUIRE_FALSE(never);
    CHECK(never.error().message().find("that is more than the whole total: raise it, or ask for less") !=
          std::string::npos);
    other.ask(0);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 688);  // 12 more than asked: half of 800 / 32
    must(cache.try_take(300));
    must(cache.try_take(12));  // what is free
    CHECK_FALSE(cache.try_take(1));
    cache.give_back(312);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 1000);
    // The floor is not taken from anybody.
    CHECK_FALSE(cache.try_take(801));
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 200);
    CHECK_FALSE(cache.try_take(801));
    must(cache.try_take(800));
}

TEST_CASE("memory: headroom, asking ahead, withdrawing, limit and floor") {
    BudgetBroker broker{{.total_bytes = 1000, .hysteresis = 0}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 200, .wanted_bytes = 2000}));
    auto cache = must(broker.try_add_memory(
        {.name = "cache", .priority = 1, .floor_bytes = 50, .headroom_bytes = 100, .limit_bytes = 400}));
    Model model{must(client.try_budget())};
    CHECK(model.budget().bytes == 900);
    CHECK(cache.account().granted_bytes == 100);
    must(cache.try_take(70));
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 830);
    CHECK(cache.account().granted_bytes == 170);
    cache.ask(300);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 700);
    must(cache.try_take(230));
    const auto above = cache.try_take(101);
    REQUIRE_FALSE(above);
    CHECK(above.error().detail<residency::BudgetNumbers>()->budget_bytes == 400);
    CHECK_FALSE(cache.try_take(UINT64_MAX));
    CHECK(cache.account().wanted_bytes == 400);  // the limit
    cache.give_back(300);
    CHECK(cache.account().wanted_bytes == 300);  // still asked for
    cache.ask(0);
    CHECK(cache.account().wanted_bytes == 100);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 900);
    // What was refused is wanted until it is withdrawn. Of what is granted it may have all but the bytes that it has.
    must(cache.try_take(20));
    const auto refused = cache.try_take(230);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().find(" and holds 20 bytes; its share") != std::string::npos);
    CHECK(refused.error().message().find(" 80 bytes are free") != std::string::npos);
    CHECK(client.account().asked_back_bytes() == 150);
    cache.give_back(20);
    cache.ask(0);
    CHECK(client.account().asked_back_bytes() == 0);
}

TEST_CASE("memory above its share is asked back, never revoked") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto cache = must(broker.try_add_memory({.name = "cache"}));
    must(cache.try_take(900));
    auto client = must(broker.try_add_model({.name = "m", .priority = 1, .floor_bytes = 200, .wanted_bytes = 600}));
    CHECK(cache.asked_back_bytes() == 500);
    CHECK(cache.account().granted_bytes == 900);
    CHECK_FALSE(client.try_budget());
    CHECK_FALSE(cache.try_take(1));
    cache.give_back(100);
    Model model{must(client.try_budget())};
    CHECK(model.budget().bytes == 200);
    cache.give_back(400);
    CHECK(cache.asked_back_bytes() == 0);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 600);
}

TEST_CASE("hysteresis: targets that go up and down a little change nothing twice") {
    BudgetBroker broker{{.total_bytes = 10000, .hysteresis = 0.1}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 1000, .wanted_bytes = 9500}));  // 850
    auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
    Model model{must(client.try_budget())};
    CHECK(model.budget().bytes == 9500);
    for (int i = 0; i < 100; ++i) {
        static_cast<void>(cache.try_take(900).has_value());  // more than the 500 that are free
        must(client.try_at_pass_end(model));
        if (cache.account().used_bytes == 0) { must(cache.try_take(900)); }
        must(client.try_at_pass_end(model));
        cache.give_back(900);
        must(client.try_at_pass_end(model));
    }
    CHECK(model.changes == 1);
    // Growing a little at every pass: one change for 425 bytes, not one each.
    for (int i = 0; i < 400; ++i) {
        if (!cache.try_take(20)) {
            must(client.try_at_pass_end(model));
            must(cache.try_take(20));
        }
    }
    CHECK(cache.account().used_bytes == 8000);
    CHECK(model.changes <= 2 + 8000 / 425);
    CHECK(model.changes >= 8000 / 900);
    // And all comes back.
    cache.give_back(8000);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes >= 9500 - 850);
}

TEST_CASE("a model without a floor is refused, with what to give") {
    BudgetBroker broker{{.total_bytes = 1000}};
    const auto refused = broker.try_add_model({.name = "draft", .wanted_bytes = 500});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    CHECK(
        refused.error().message() ==
        "\"draft\" cannot join without a floor: give floor_bytes, the smallest budget that works, and wanted_bytes as "
        "try_resolve_budget of the model has them for a budget of 0: floor_bytes and resident_from_bytes");
    // One that is wrong is told at the end of a pass.
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 0, .wanted_bytes = 0}));
    must(client.try_budget());
    Model model{Budget::bytes(100)};
    const auto more = client.try_at_pass_end(model);
    REQUIRE_FALSE(more);
    CHECK(more.error().message() ==
          "\"m\" has a budget of 100 bytes, and 0 bytes were granted: the model takes the budget of its client, whose "
          "floor_bytes are the smallest that works for it");
    CHECK(must(broker.try_add_memory({.name = "cache"})).account().floor_bytes == 0);  // memory needs none
}

TEST_CASE("hysteresis holds where it is more than moves at once, and what has begun to grow comes to its target") {
    BudgetBroker broker{{.total_bytes = 10000, .hysteresis = 0.1, .most_moved_bytes = 200}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 0, .wanted_bytes = 10000}));  // 1000
    auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
    Model model{must(client.try_budget())};
    const auto rest = [&] {
        int before;
        do {
            before = model.changes;
            const std::uint64_t budget = model.budget().bytes;
            must(client.try_at_pass_end(model));
            CHECK(std::max(budget, model.budget().bytes) - std::min(budget, model.budget().bytes) <= 200);
        } while (model.changes != before);
    };
    cache.ask(1000);
    rest();
    CHECK(model.budget().bytes <= 9000);
    const int changes = model.changes;
    for (int i = 0; i < 50; ++i) {
        cache.ask(1400);
        rest();
        cache.ask(1000);
        rest();
    }
    CHECK(model.changes <= changes + 3);  // 400, in pieces of 200, and what hysteresis adds
    // By the hysteresis or more: all the way, not to within the hysteresis.
    cache.ask(0);
    rest();
    CHECK(model.budget().bytes == 10000);
}

TEST_CASE("a small growth completes a model only where enough stays free") {
    BudgetBroker broker{{.total_bytes = 10000, .hysteresis = 0.1}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 0, .wanted_bytes = 5000}));
    auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
    Model model{must(client.try_budget())};
    CHECK_FALSE(cache.try_take(5100));
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 4650);
    must(cache.try_take(5100));
    cache.give_back(101);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 4650);  // 351 are missing, and 351 are free
    cache.give_back(499);
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 5000);  // 850 were free
}

TEST_CASE("no more moves at a pass end than was stated, and the next ones go on") {
    BudgetBroker broker{{.total_bytes = 10000, .most_moved_bytes = 1500}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 1000, .wanted_bytes = 10000}));
    auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
    Model model{must(client.try_budget())};
    CHECK_FALSE(cache.try_take(5000));
    int ends = 0;
    std::uint64_t before = model.budget().bytes;
    while (!cache.try_take(5000)) {
        must(client.try_at_pass_end(model));
        CHECK(before - model.budget().bytes <= 1500);
        CHECK(before > model.budget().bytes);
        before = model.budget().bytes;
        REQUIRE(++ends < 10);
    }
    CHECK(ends == 4);
    cache.give_back(5000);
    for (ends = 0; must(client.try_at_pass_end(model)).more_is_coming; ++ends) { REQUIRE(ends < 10); }
    CHECK(ends == 3);
    CHECK(model.budget().bytes == 10000);
    CHECK(broker.statistics().peak_granted_bytes <= 10000);
}

TEST_CASE("a model that cannot change now is put off; one that fails keeps its budget and its bytes") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 200, .wanted_bytes = 1000}));
    auto cache = must(broker.try_add_memory({.name = "cache", .priority = 1}));
    Model model{must(client.try_budget())};
    cache.ask(400);
    model.refuses = Error{ErrorKind::wrong_state, "a lease is open"};
    const auto deferred = must(client.try_at_pass_end(model));
    CHECK(deferred.deferred);
    CHECK(deferred.more_is_coming);
    CHECK(client.account().granted_bytes == 1000);
    CHECK_FALSE(cache.try_take(400));
    model.refuses = Error{ErrorKind::device, "broken"};
    const auto failed = client.try_at_pass_end(model);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().kind() == ErrorKind::device);
    CHECK(client.account().granted_bytes == 1000);
    model.refuses.reset();
    must(client.try_at_pass_end(model));
    must(cache.try_take(400));
    cache.give_back(400);
    cache.ask(0);
    // A growth that fails gives back what was granted for it.
    model.refuses = Error{ErrorKind::out_of_memory, "somebody else has it"};
    const std::uint64_t before = model.budget().bytes;
    CHECK_FALSE(client.try_at_pass_end(model));
    CHECK(client.account().granted_bytes == before);
    must(cache.try_take(1000 - before));
}

TEST_CASE("a budget that was changed behind the broker's back: smaller is taken note of, larger refused") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 200, .wanted_bytes = 500}));
    CHECK(client.try_at_pass_end(*std::make_unique<Model>(Budget::bytes(0))).error().kind() == ErrorKind::wrong_state);
    Model model{must(client.try_budget())};
    model.resolved.bytes = 501;
    const auto refused = client.try_at_pass_end(model);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::wrong_state);
    CHECK(refused.error().message().find("501") != std::string::npos);
    model.resolved.bytes = 300;
    must(client.try_at_pass_end(model));
    CHECK(model.budget().bytes == 500);
}

TEST_CASE("another total: larger at once, smaller as the clients give back") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto a = must(broker.try_add_model({.name = "a", .floor_bytes = 100, .wanted_bytes = 2000}));
    Model model{must(a.try_budget())};
    must(broker.try_set_total(1500));
    must(a.try_at_pass_end(model));
    CHECK(model.budget().bytes == 1500);
    must(broker.try_set_total(700));
    CHECK(broker.statistics().granted_bytes == 1500);
    must(a.try_at_pass_end(model));
    CHECK(broker.statistics().granted_bytes <= 700);
    CHECK(model.budget().bytes >= 700 - 1900 / 64);
    must(broker.try_set_total(9000));  // of which it wants less than is free
    must(a.try_at_pass_end(model));
    CHECK(model.budget().bytes == 2000);
    CHECK(a.account().granted_bytes == 2000);
}

TEST_CASE("a client that is moved into itself stays") {
    BudgetBroker broker{{.total_bytes = 1000}};
    auto client = must(broker.try_add_model({.name = "m", .floor_bytes = 100, .wanted_bytes = 700}));
    auto& same = client;
    client = std::move(same);
    CHECK(client.account().granted_bytes == 700);
    CHECK(broker.accounts().size() == 1);
}

TEST_CASE("another floor is granted before hysteresis") {
    BudgetBroker broker{{.total_bytes = 1000, .hysteresis = 0.5}};
    auto a = must(broker.try_add_model({.name = "a", .floor_bytes = 100, .wanted_bytes = 1000}));
    auto b = must(broker.try_add_model({.name = "b", .priority = 1, .floor_bytes = 100, .wanted_bytes = 900}));
    Model first{must(a.try_budget())};
    Model second{must(b.try_budget())};
    CHECK(first.budget().bytes == 100);
    CHECK(second.budget().bytes == 900);
    must(a.try_set_claim({0, 110, 1000}));
    must(b.try_at_pass_end(second));
    must(a.try_at_pass_end(first));
    CHECK(first.budget().bytes >= 110);
    CHECK(broker.statistics().peak_granted_bytes <= 1000);
}

TEST_CASE("random clients: conserved, never exceeded, and at rest everybody comes to the target") {
    for (unsigned seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random{seed};
        const auto below = [&](std::uint64_t n) { return n == 0 ? 0 : random() % n; };
        const std::uint64_t total = 1000 + below(100000);
        const double hysteresis = static_cast<double>(below(4)) / 16;
        BudgetBroker broker{{.total_bytes = total, .hysteresis = hysteresis, .most_moved_bytes = 1 + below(2 * total)}};
        struct Entry {
            residency::broker::ModelClient client;
            std::optional<Model> model;
        };
        std::vector<std::optional<Entry>> models(4);
        std::vector<std::optional<residency::broker::MemoryClient>> memories(3);
        const auto check = [&] {
            std::uint64_t granted = 0, targets = 0;
            for (const auto& account : broker.accounts()) {
                REQUIRE(account.used_bytes <= account.granted_bytes);
                granted += account.granted_bytes;
                targets += account.target_bytes;
            }
            for (const auto& entry : models) {
                if (!entry || !entry->model) { continue; }
                REQUIRE(entry->model->budget().bytes <= entry->client.account().granted_bytes);
                REQUIRE(entry->model->budget().bytes >= entry->client.account().floor_bytes);
            }
            REQUIRE(granted == broker.statistics().granted_bytes);
            REQUIRE(granted <= total);
            REQUIRE(targets <= total);
        };
        for (int i = 0; i < 600; ++i) {
            auto& entry = models[below(models.size())];
            auto& memory = memories[below(memories.size())];
            switch (below(10)) {
                case 0: {
                    if (entry && below(4) == 0) { entry.reset(); }
                    if (entry) { break; }
                    const std::uint64_t floor = below(total / 5);
                    auto joined = broker.try_add_model({.name = "model",
                                                        .priority = static_cast<std::int32_t>(below(3)),
                                                        .floor_bytes = floor,
                                                        .wanted_bytes = floor + below(total)});
                    if (joined) { entry.emplace(Entry{std::move(*joined), {}}); }
                    break;
                }
                case 1: {
                    if (memory && below(4) == 0) { memory.reset(); }
                    if (memory) { break; }
                    auto joined = broker.try_add_memory({.name = "memory",
                                                         .priority = static_cast<std::int32_t>(below(3)),
                                                         .floor_bytes = below(total / 10),
                                                         .headroom_bytes = below(total / 10),
                                                         .limit_bytes = below(total)});
                    if (joined) { memory.emplace(std::move(*joined)); }
                    break;
                }
                case 2:
                    if (memory) { memory->ask(below(total)); }
                    break;
                case 3:
                case 4:
                    if (memory) { static_cast<void>(memory->try_take(below(total / 8)).has_value()); }
                    break;
                case 5:
                    if (memory) { memory->give_back(below(memory->account().used_bytes + 1)); }
                    break;
                default: {
                    if (!entry) { break; }
                    if (!entry->model) {
                        if (auto budget = entry->client.try_budget()) { entry->model.emplace(*budget); }
                        break;
                    }
                    if (below(4) == 0) { entry->model->refuses = Error{ErrorKind::wrong_state, "a lease is open"}; }
                    must(entry->client.try_at_pass_end(*entry->model));
                    entry->model->refuses.reset();
                }
            }
            check();
        }
        // At rest: memory above its share is given back, models end passes.
        for (int round = 0; round < 3000; ++round) {
            for (auto& memory : memories) {
                if (memory) { memory->give_back(memory->asked_back_bytes()); }
            }
            bool due = false;
            for (auto& entry : models) {
                if (!entry) { continue; }
                if (!entry->model) {
                    if (auto budget = entry->client.try_budget()) { entry->model.emplace(*budget); }
                    due = true;
                    continue;
                }
                due = must(entry->client.try_at_pass_end(*entry->model)).more_is_coming || due;
            }
            check();
            if (!due && round > 2) { break; }
        }
        std::vector<int> changes;
        for (auto& entry : models) { changes.push_back(entry ? entry->model->changes : 0); }
        for (std::size_t i = 0; i < models.size(); ++i) {
            if (!models[i]) { continue; }
            must(models[i]->client.try_at_pass_end(*models[i]->model));
            CHECK(models[i]->model->changes == changes[i]);  // it has come to rest
            const auto account = models[i]->client.account();
            const auto step = static_cast<double>(account.wanted_bytes - account.floor_bytes) * hysteresis + 1;
            CHECK(static_cast<double>(account.granted_bytes) > static_cast<double>(account.target_bytes) - step - 1);
        }
        for (auto& memory : memories) {
            if (!memory) { continue; }
            CHECK(memory->account().granted_bytes == memory->account().target_bytes);
        }
    }
}

TEST_CASE("memory whose limit is below its floor is refused, with both numbers") {
    BudgetBroker broker{{.total_bytes = 1000}};
    const auto refused = broker.try_add_memory({.name = "cache", .floor_bytes = 50, .limit_bytes = 40});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    CHECK(refused.error().message() ==
          "\"cache\" cannot join: its limit_bytes, 40 bytes, are below its floor_bytes, 50 bytes, which it is granted "
          "in any case: raise the limit, or lower the floor");
    auto cache = must(broker.try_add_memory({.name = "cache", .floor_bytes = 50, .limit_bytes = 50}));
    const auto more = cache.try_take(51);
    REQUIRE_FALSE(more);
    CHECK(more.error().message().find("its limit is 50 bytes: raise MemoryOptions::limit_bytes") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace broker_test
