// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/broker/model_group.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/broker/group_of_models.hpp"
#include "tests/support/child.hpp"

namespace model_group_test {

using namespace group_of_models;
using namespace std::chrono_literals;

TEST_SUITE_BEGIN("broker model group");

TEST_CASE("random switches: every byte is right, graphs stay valid, memory does not grow and stays below the total") {
    for (const std::uint64_t share : {std::uint64_t{10}, std::uint64_t{6}}) {
        CAPTURE(share);
        Fixture f;
        for (int i = 0; i < 3; ++i) { f.capture(f.add(whole * share / 10)); }
        std::mt19937 random{7};
        std::uint64_t most = 0, mappings = 0;
        for (int i = 0; i < 1000; ++i) {
            auto& each = *f.all[random() % 3];
            {
                const auto use = must(f.group.try_activate(each.member));
                CHECK(f.is_awake(each));
                CHECK_FALSE(each.graph->is_stale());
                f.run(each, random() % 2 == 0);
                for (const auto& other : f.all) {
                    if (random() % 2 == 0) { static_cast<void>(must(f.group.try_prepare(other->member))); }
                }
            }
            CHECK(f.group.stock().held_bytes() <= f.broker.statistics().total_bytes);
            if (i == 100) {
                most = used(f.device);
                mappings = f.device.statistics().of(CallKind::map);
            }
            if (i > 100) { CHECK(used(f.device) <= most); }
        }
        CHECK(f.device.statistics().of(CallKind::map) == mappings);  // memory changed hands without the driver
    }
}

TEST_CASE("what was brought ahead does not come again, and goes where others need the memory") {
    for (const std::uint32_t chunks : {1U, 5U}) {  // of a weight
        CAPTURE(chunks);
        Fixture f;
        const auto add = [&]() -> Sleeper& {
            return f.add(uniform_model(f.device, steps / chunks, chunks * chunk), whole);
        };
        auto &one = add(), &two = add(), &three = add();
        { const auto use = must(f.group.try_activate(one.member)); }
        std::uint64_t prepared = 0;
        {
            const auto use = must(f.group.try_activate(one.member));
            f.run(one);
            while (const std::uint64_t more = must(f.group.try_prepare(two.member, 2 * chunk))) {
                CHECK(more <= 2 * chunk);
                prepared += more;
            }
            CHECK(prepared == whole * 3 / 10);
            CHECK(f.group.accounts()[1].held_bytes == prepared);
            CHECK(must(f.group.try_prepare(one.member)) == 0);  // it is awake
        }
        const auto before = two.weights->statistics().total.fetched_bytes;
        {
            const auto use = must(f.group.try_activate(two.member));
            f.run(two);
            CHECK(two.weights->statistics().total.fetched_bytes == before + whole - prepared);
            CHECK(must(f.group.try_prepare(one.member)) > 0);
        }
        {
            const auto use = must(f.group.try_activate(three.member));
            CHECK(f.group.accounts()[0].held_bytes == 0);
            f.run(three);
        }
        const auto use = must(f.group.try_activate(one.member));
        f.run(one);
    }
}

TEST_CASE(
    "who sleeps: the lowest priority, then the one in the place, then the least recently used; pinned ones never") {
    Fixture f{whole * 26 / 10};
    auto &one = f.add(whole), &two = f.add(whole), &three = f.add(whole);  // the third one takes the place of the first
    CHECK_FALSE(f.is_awake(one));
    { const auto use = must(f.group.try_activate(one.member)); }
    CHECK(f.is_awake(two));
    CHECK_FALSE(f.is_awake(three));
    for (int i = 0; i < 40; ++i) {  // the second one is not used for long
        const auto use = must(f.group.try_activate(i % 2 == 0 ? three.member : one.member));
    }
    { const auto use = must(f.group.try_activate(three.member)); }
    { const auto use = must(f.group.try_activate(one.member)); }
    CHECK(f.is_awake(three));
    CHECK_FALSE(f.is_awake(two));

    Fixture g{whole * 26 / 10};
    auto& pinned = g.add(whole, {.name = "pinned", .is_pinned = true});
    auto& low = g.add(whole, {.name = "low", .priority = -1});
    auto& high = g.add(whole, {.name = "high", .priority = 1});
    CHECK(g.is_awake(pinned));
    CHECK_FALSE(g.is_awake(low));
    { const auto use = must(g.group.try_activate(low.member)); }
    CHECK_FALSE(g.is_awake(high));
    const auto refused = g.group.try_make_room(2 * whole);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(message_of(refused).find("\"pinned\" has 81,920 bytes (80 KiB) and is pinned") != std::string::npos);
}

TEST_CASE(
    "a request that others are in the way of: an error at once, or in this thread, instead of a wait without an end") {
    Fixture f;
    auto &one = f.add(whole), &two = f.add(whole);
    auto use = must(f.group.try_activate(one.member));
    for (const auto wait : {std::chrono::nanoseconds{0}, Group::forever}) {
        const auto refused = f.group.try_activate(two.member, wait);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::wrong_state);
        CHECK(refused.error().message().find("to wake \"model 2\"") != std::string::npos);
    }
    const auto again = must(f.group.try_activate(one.member));  // one that is awake may be used twice
    f.run(one);
    use.end();
    CHECK_FALSE(f.group.try_activate(two.member, 0ms));
}

TEST_CASE("a request waits for as long as it is told to, and leaves the others in their order") {
    Fixture f;
    auto &one = f.add(whole), &two = f.add(whole), &three = f.add(whole);
    auto use = must(f.group.try_activate(one.member));
    std::optional<std::string> error;
    std::thread brief{[&] {
        const auto refused = f.group.try_activate(two.member, 1ms);
        if (!refused && refused.error().kind() == ErrorKind::wrong_state) { error = refused.error().message(); }
    }};
    brief.join();
    REQUIRE(error);
    CHECK(error->find("\"model 1\" has") != std::string::npos);
    CHECK(error->find("wait longer") != std::string::npos);
    // The first request has its turn and waits for the use; the second one's time ends in the queue.
    std::atomic<bool> is_three_awake = false;
    std::thread patient{[&] {
        const auto woken = must(f.group.try_activate(three.member));
        is_three_awake = f.is_awake(three);
    }};
    error.reset();
    while (!error) {
        std::thread{[&] {
            const auto refused = f.group.try_activate(two.member, 1ms);
            if (!refused) { error = refused.error().message(); }
        }}.join();
        // Until `patient` waits, this request is the first one.
        if (error && error->find("other requests still wait") == std::string::npos) { error.reset(); }
    }
    CHECK_FALSE(is_three_awake);
    use.end();
    patient.join();
    CHECK(is_three_awake);
    const auto woken = must(f.group.try_activate(two.member));
    f.run(two);
}

/// Somebody else takes all that is free, without a turn, whenever the model is about to wake.
struct Raced {
    Weights* weights;
    Group* group;
    int races = 1;
    int resumes = 0;
    std::vector<std::uint32_t> taken{};

    residency::Status try_suspend() { return weights->try_suspend(); }
    residency::Status try_resume() {
        ++resumes;
        if (races-- > 0) {
            while (group->stock().free_bytes() > 0) { taken.push_back(must(group->stock().take())); }
        }
        return weights->try_resume();
    }
    residency::Result<std::uint64_t> try_bring_asleep(std::uint64_t most) { return weights->try_bring_asleep(most); }
    const auto* stock() const { return weights->stock(); }
    auto statistics() const { return weights->statistics(); }
    bool is_suspended() const { return weights->is_suspended(); }
    const auto& budget() const { return weights->budget(); }
    void count_group(bool is_in) { weights->count_group(is_in); }
};

TEST_CASE("others take what was made free for a model that wakes: more is made free, as long as there is more") {
    Fixture f{2 * whole};
    auto& one = f.add(whole);
    must(f.group.try_make_room(whole));
    auto model = uniform_model(f.device, steps, chunk);
    Weights weights = must(Weights::try_create(f.device, model.catalog, f.options(model, whole)));
    Raced raced{&weights, &f.group};
    auto member = must(f.group.try_add(raced, {.name = "raced"}));
    must(weights.try_suspend());  // by hand: the group sees it with the next request
    {
        const auto use = must(f.group.try_activate(member));
        CHECK(raced.races < 0);
        CHECK_FALSE(raced.taken.empty());
        CHECK_FALSE(f.is_awake(one));
        CHECK_FALSE(weights.is_suspended());
        run_pass(weights, model, f.stream);
        must(f.device.synchronize(f.stream));
        CHECK(*model.wrong == 0);
    }
    // What is no lack of memory is not tried again.
    must(weights.try_suspend());
    raced.resumes = 0;
    const auto its = must(f.group.stock().take());
    f.group.stock().give_back(std::exchange(raced.taken.back(), its));  // is mapped in the place of one that it had
    f.device.fail(CallKind::map, 1);
    CHECK_FALSE(f.group.try_activate(member));
    f.device.clear_failures();
    CHECK(raced.resumes == 1);
    // Nobody is left who could sleep: an error, with all as it was.
    must(weights.try_suspend());
    raced.races = 1;
    const auto refused = f.group.try_activate(member);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(weights.is_suspended());
    for (const std::uint32_t number : raced.taken) { f.group.stock().give_back(number); }
    { const auto use = must(f.group.try_activate(member)); }
    member = {};
}

TEST_CASE(
    "C1: what a model of a group measures takes no memory beside the group's; auto is what the group has room for") {
    Fixture f{2 * whole};
    auto& one = f.add(whole);
    f.run(one);
    static_cast<void>(f.add(whole));
    f.all.back()->member = {};
    f.all.pop_back();  // its chunks stay with the stock, which holds the broker's total now
    REQUIRE(f.group.stock().held_bytes() == 2 * whole);
    auto model = uniform_model(f.device, steps, chunk);
    auto options = f.options(model, whole);
    options.policies.link.reset();
    options.policies.memory_bytes_per_second.reset();
    options.budget = Budget::automatic();
    {
        Weights weights = must(Weights::try_create(f.device, model.catalog, std::move(options)));
        CHECK(weights.budget().bytes == whole);
        CHECK(weights.problem().link.bytes_per_second != residency::plan::Link{}.bytes_per_second);
        CHECK(f.device.peak_used_bytes() <= f.broker.statistics().total_bytes);
        run_pass(weights, model, f.stream);
        must(f.device.synchronize(f.stream));
        CHECK(*model.wrong == 0);
    }
}

#if RESIDENCY_ASSERTIONS
TEST_CASE("a model that ends before it leaves its group says so") {
    const auto outcome = child::run([] {
        Fixture f;
        f.add(whole).weights.reset();
    });
    CHECK(outcome.aborted);
    CHECK(outcome.text.find("end the ModelGroup::Member of a model before the model") != std::string::npos);
}
#endif

TEST_CASE("requests of several threads wait for their turn, the higher priority first") {
    Fixture f;
    auto &low = f.add(whole, {.name = "low"}), &high = f.add(whole, {.name = "high", .priority = 1}),
         &first = f.add(whole, {.name = "first"});
    std::vector<std::string> order;
    std::mutex mutex;
    std::array<std::string, 3> failure;
    auto use = std::make_optional(must(f.group.try_activate(first.member)));
    const auto ask = [&](std::size_t at, Sleeper& each, const char* name) {
        return std::thread{[&, at, name] {
            auto own = f.group.try_activate(each.member);
            if (!own) {
                failure[at] = own.error().message();
                return;
            }
            const std::scoped_lock lock{mutex};
            order.emplace_back(name);
        }};
    };
    // The first one of these waits for the use, and has its turn; of the others, the higher priority is next.
    std::thread a = ask(0, low, "low");
    std::thread b = ask(1, high, "high");
    use.reset();
    a.join();
    b.join();
    for (const std::string& each : failure) { CHECK(each.empty()); }
    CHECK(order.size() == 2);

    // Many at once: nothing waits for ever, and every byte is right.
    std::vector<std::thread> threads;
    std::atomic<std::uint64_t> wrong{0};
    for (std::size_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 40; ++i) {
                auto& each = *f.all[(t + static_cast<std::size_t>(i)) % 3];
                auto own = f.group.try_activate(each.member);
                wrong += own && !each.weights->is_suspended() ? 0U : 1U;
                static_cast<void>(f.group.try_prepare(f.all[t]->member));
            }
        });
    }
    for (auto& thread : threads) { thread.join(); }
    CHECK(wrong == 0);
    const auto last = must(f.group.try_activate(low.member));
    f.run(low);
}

TEST_CASE("a KV cache of the same broker: idle models fall asleep for it, and wake when it has gone") {
    Fixture f{whole * 26 / 10};
    auto &one = f.add(whole), &two = f.add(whole);
    auto cache = must(f.broker.try_add_memory({.name = "KV cache", .priority = 1}));
    CHECK(f.is_awake(one));
    CHECK_FALSE(cache.try_take(whole));  // it is asked for now
    {
        const auto use = must(f.group.try_activate(two.member));
        f.run(two);
    }
    CHECK_FALSE(f.is_awake(one));
    must(cache.try_take(whole));
    CHECK(f.group.stock().held_bytes() + whole <= f.broker.statistics().total_bytes);
    const auto refused = [&] {
        const auto use = must(f.group.try_activate(two.member));
        return f.group.try_activate(one.member, 0ms);
    }();
    CHECK_FALSE(refused);
    cache.give_back(whole);
    const auto both = std::array{must(f.group.try_activate(one.member)), must(f.group.try_activate(two.member))};
    f.run(one);
    f.run(two);
}

TEST_CASE(
    "what a cache waits for: the group gives it back at once where it is asked to, and nobody falls asleep in vain") {
    Fixture f;
    auto &one = f.add(whole), &two = f.add(whole);
    auto cache = must(f.broker.try_add_memory({.name = "KV cache", .priority = 1}));
    { const auto use = must(f.group.try_activate(one.member)); }
    CHECK_FALSE(cache.try_take(whole * 6 / 10));
    const auto refused = f.group.try_activate(two.member);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::budget);
    CHECK(refused.error().message().find(
              " of it back, for other clients or a lower total (the group's floor_bytes are its own)") !=
          std::string::npos);
    CHECK(f.is_awake(one));  // it would not have helped
    {
        const auto use = must(f.group.try_activate(one.member));
        must(f.group.try_give_back());
        CHECK(f.is_awake(one));  // it is used
        CHECK_FALSE(cache.try_take(whole * 6 / 10));
    }
    must(f.group.try_give_back());
    CHECK_FALSE(f.is_awake(one));
    must(cache.try_take(whole * 6 / 10));
    cache.give_back(whole * 6 / 10);
    const auto use = must(f.group.try_activate(two.member));
    f.run(two);
}

TEST_CASE("a group of chunks without bytes, and a model that is a member already, are refused") {
    Fixture f;
    auto& one = f.add(whole, {.name = "one"});
    const auto again = f.group.try_add(*one.weights, {.name = "another"});
    REQUIRE_FALSE(again);
    CHECK(again.error().kind() == ErrorKind::invalid_argument);
    CHECK(again.error().message().find("is a member of this group already, as \"one\"") != std::string::npos);
    const auto empty = Group::try_create(f.device, f.broker, {.name = "empty", .chunk_bytes = 0});
    REQUIRE_FALSE(empty);
    CHECK(empty.error().message().find("chunk_bytes") != std::string::npos);
}

TEST_CASE("any call fails once in a switch: every model is as it was or asleep, and works afterwards") {
    std::uint64_t failed = 0;
    for (const auto kind : {CallKind::synchronize_stream, CallKind::map, CallKind::unmap, CallKind::create_chunk,
                            CallKind::destroy_chunk, CallKind::copy, CallKind::record, CallKind::reserve,
                            CallKind::release, CallKind::wait, CallKind::is_complete}) {
        for (std::uint64_t nth = 1; nth <= 3; ++nth) {
            CAPTURE(kind);
            CAPTURE(nth);
            Fixture f;
            auto &one = f.add(whole), &two = f.add(whole * 6 / 10);
            f.capture(one);
            f.run(one);
            { const auto use = must(f.group.try_activate(two.member)); }
            f.device.fail(kind, nth);
            {
                const auto use = f.group.try_activate(one.member);
                failed += use ? 0U : 1U;
                CHECK((use.has_value() == f.is_awake(one)));
                static_cast<void>(f.group.try_prepare(two.member));
            }
            f.device.clear_failures();
            for (auto* each : {&one, &two, &one}) {
                const auto use = must(f.group.try_activate(each->member));
                f.run(*each);
            }
            const auto use = must(f.group.try_activate(one.member));
            if (!one.graph->is_stale()) { f.run(one, true); }
        }
    }
    CHECK(failed > 0);
}

TEST_CASE("any call fails once while a model wakes with another budget: it wakes with the one before, too") {
    std::uint64_t failed = 0, others = 0;
    for (const std::uint64_t other : {whole * 4 / 10, whole * 8 / 10}) {
        for (std::uint64_t nth = 1; nth <= 12; ++nth) {
            CAPTURE(other);
            CAPTURE(nth);
            Fixture f;
            // Of unequal storages, so that another budget is for another image.
            std::vector<Spec> specs;
            for (std::uint64_t i = 0; i < steps; ++i) { specs.push_back(Spec{700 + i * 2311 % 6000}); }
            auto& one = f.add(make_model(f.device, specs), whole * 6 / 10);
            f.run(one);
            const auto image = one.weights->plan().data().storage_offsets;
            must(one.weights->try_suspend());
            must(one.weights->try_set_budget(Budget::bytes(other)));
            f.device.fail(CallKind::any, nth);
            failed += one.weights->try_resume() ? 0U : 1U;
            f.device.clear_failures();
            if (one.weights->is_suspended()) {
                must(one.weights->try_bring_asleep(whole));
                must(one.weights->try_set_budget(Budget::bytes(whole * 6 / 10)));
                must(one.weights->try_bring_asleep(whole));
                must(one.weights->try_resume());
            }
            others += one.weights->plan().data().storage_offsets != image ? 1U : 0U;
            f.run(one);
        }
    }
    CHECK(failed > 0);
    CHECK(others > 0);
}

TEST_CASE("a model ends while it sleeps, or while it is prepared; one whose budget changes has stale graphs") {
    Fixture f;
    auto &one = f.add(whole), &two = f.add(whole), &three = f.add(whole);
    f.capture(one);
    {
        const auto use = must(f.group.try_activate(three.member));
        CHECK(must(f.group.try_prepare(two.member)) > 0);
        two.member = {};
        two.weights.reset();
    }
    must(one.weights->try_set_budget(Budget::bytes(whole / 2)));
    {
        const auto use = must(f.group.try_activate(one.member));
        CHECK(one.graph->is_stale());
        one.graph.reset();
        f.run(one);
    }
    three.member = {};
    three.weights.reset();
    must(one.weights->try_set_budget(Budget::bytes(whole)));
    const auto use = must(f.group.try_activate(one.member));
    f.run(one);
}

TEST_CASE("a model that the group has no room for is refused by its budget, with the numbers, and leaves nothing") {
    const auto check = [](const auto& refused, std::uint64_t free) {
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::budget);
        CHECK(refused.error().message().find("the stock of chunks has ") != std::string::npos);
        CHECK(refused.error().message().find("make_room") != std::string::npos);
        const auto* const numbers = refused.error().template detail<residency::BudgetNumbers>();
        REQUIRE(numbers != nullptr);
        CHECK(numbers->free_bytes == free);
        CHECK(numbers->floor_bytes == chunk);
    };
    Fixture f{whole};
    const auto model = uniform_model(f.device, steps, chunk);
    auto options = f.options(model, whole);
    options.budget = Budget::automatic();  // before make_room() the group has taken nothing of its broker
    check(Weights::try_create(f.device, model.catalog, options), 0);
    f.add(whole / 2);
    check(Weights::try_create(f.device, model.catalog, f.options(model, whole)), whole / 2);
    CHECK(f.group.stock().used_bytes() == whole / 2);
}

TEST_CASE("a model whose memory is not of the stock is refused") {
    Fixture f;
    const streaming::Model model = uniform_model(f.device, steps, chunk);
    auto options = f.options(model, whole);
    options.policies.pool.stock = nullptr;
    options.policies.pool.chunk_bytes = chunk;
    auto foreign = must(Weights::try_create(f.device, model.catalog, std::move(options)));
    const auto refused = f.group.try_add(foreign, {.name = "foreign"});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    CHECK(refused.error().message().find("policies.pool.stock = &group.stock()") != std::string::npos);
}

TEST_SUITE_END();

}  // namespace model_group_test
