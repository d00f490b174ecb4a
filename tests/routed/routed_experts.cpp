// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/routed/routed_experts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/broker/broker.hpp"
#include "tests/routed/support.hpp"
#include "tests/support/child.hpp"

namespace routed_experts_test {

using namespace routed_test;
using residency::routed::ExpectedUse;
using residency::routed::Lfu;
using residency::routed::Lru;

template <class P>
using Cache = RoutedExperts<Gpu, P>;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class P = ExpectedUse>
typename Cache<P>::Options options(const SimulatedServer<P>& server, const char* budget, std::uint32_t choices) {
    typename Cache<P>::Options result;
    result.budget = Budget::parse(budget);
    result.server = &server;
    result.choices = choices;
    result.pool.chunk_bytes = 4096;
    return result;
}

/// Tokens that choose 4 of 12 experts in each of two layers.
template <class P>
void decode_tokens(Fixture& f, Cache<P>& cache, std::mt19937& random, int tokens) {
    for (int token = 0; token < tokens; ++token) {
        for (std::uint32_t layer = 0; layer < 2; ++layer) {
            const auto chosen = choose_experts(random, 12, 4);
            f.choose(chosen);
            f.read(layer, must(cache.try_serve(layer, {f.choices, 4}, f.stream)), chosen);
        }
    }
}

}  // namespace

TEST_CASE_TEMPLATE("routed: what is chosen is read right, at every budget", P, ExpectedUse, Lru, Lfu) {
    for (const char* const budget : {"0", "25%", "60%", "100%"}) {
        for (const bool in_place : {false, true}) {
            CAPTURE(budget);
            CAPTURE(in_place);
            Fixture f{{12, 7, 16}};
            const SimulatedServer<P> server;
            auto chosen_options = options(server, budget, 4);
            chosen_options.read_in_place = in_place;
            Cache<P> cache{f.gpu(), f.catalog, f.experts, chosen_options};
            CHECK(cache.budget().bytes <= 64U << 20U);
            std::mt19937 random{3};
            std::uint64_t chosen_in_all = 0;
            for (int token = 0; token < 60; ++token) {
                for (std::uint32_t layer = 0; layer < 3; ++layer) {
                    const auto chosen = choose_experts(random, static_cast<std::uint32_t>(f.experts[layer].size()), 4);
                    f.choose(chosen);
                    const auto served = must(cache.try_serve(layer, {f.choices, 4}, f.stream));
                    f.read(layer, served, chosen);
                    chosen_in_all += 4;
                }
            }
            const auto statistics = must(cache.try_statistics());
            CHECK(f.wrong == 0);
            CHECK(f.reads == 180);
            CHECK(statistics.total.calls == 180);
            CHECK(statistics.total.hits + statistics.total.misses == chosen_in_all);
            CHECK(statistics.total.demand_bytes == (statistics.total.misses - statistics.total.in_place) * f.bytes);
            CHECK(statistics.total.in_place == f.in_place);
            CHECK(statistics.held_bytes <= cache.budget().bytes);
            CHECK(statistics.churns == (cache.slots() < 35 && cache.slots() < 36));
            if (!in_place) { CHECK(f.in_place == 0); }
            if (cache.slots() == 35) { CHECK(statistics.total.misses <= 35); }
        }
    }
}

TEST_CASE("routed: a token is one graph, which stays valid over changes of the budget") {
    Fixture f{{8, 8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "50%", 6)};
    std::array<std::vector<std::int32_t>, 2> chosen;
    must(f.gpu().begin_capture(f.stream));
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
        const auto served = must(cache.try_serve(layer, {f.choices + layer * 3, 3}, f.stream));
        Gpu::Kernel kernel;
        kernel.body = [&f, layer, served, &wanted = chosen[layer]] {
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                const auto* right = f.bytes_of(layer, static_cast<std::uint32_t>(wanted[i]));
                f.wrong += std::memcmp(served.addresses[i], right, static_cast<std::size_t>(f.bytes)) != 0 ? 1U : 0U;
            }
            ++f.reads;
        };
        must(f.gpu().launch(f.stream, std::move(kernel)));
    }
    const auto graph = must(f.gpu().end_capture(f.stream));
    std::mt19937 random{5};
    const auto run = [&](int tokens) {
        for (int token = 0; token < tokens; ++token) {
            must(f.gpu().synchronize(f.stream));
            chosen = {choose_experts(random, 8, 3), choose_experts(random, 8, 3)};
            std::vector<std::int32_t> both{chosen[0]};
            both.insert(both.end(), chosen[1].begin(), chosen[1].end());
            f.choose(both);
            must(f.gpu().launch(graph, f.stream));
        }
    };
    run(30);
    for (const char* const budget : {"100%", "0", "70%", "40%"}) {
        const BudgetChange change = must(cache.try_set_budget(Budget::parse(budget)));
        CHECK(change.held_bytes <= change.budget_bytes);
        CHECK(change.budget_bytes == cache.budget().bytes);
        run(30);
        CHECK(must(cache.try_statistics()).held_bytes <= cache.budget().bytes);
    }
    CHECK(f.wrong == 0);
    CHECK(f.reads == 300);
    must(f.gpu().destroy_graph(graph));
}

TEST_CASE(
    "routed: batches: repeated choices are one expert, padding is left out, what has no slot is read from the host") {
    Fixture f{{16}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "100%", 64)};
    must(cache.try_set_budget(Budget::bytes(cache.budget().floor_bytes)));
    std::mt19937 random{9};
    for (int round = 0; round < 20; ++round) {
        std::vector<std::int32_t> chosen(64);
        for (auto& each : chosen) { each = random() % 9 == 0 ? -1 : static_cast<std::int32_t>(random() % 16); }
        f.choose(chosen);
        f.read(0, must(cache.try_serve(0, {f.choices, 64}, f.stream)), chosen);
    }
    const auto all = must(cache.try_statistics());
    CHECK(f.wrong == 0);
    CHECK(all.total.hits + all.total.misses <= 20 * 16);
    CHECK(all.total.misses == 16);

    Fixture few{{16}};
    auto small = options(server, "0", 4);
    Cache<ExpectedUse> tight{few.gpu(), few.catalog, few.experts, small};
    REQUIRE(tight.slots() == 4);
    const std::vector<std::int32_t> four{3, 9, 1, 12};
    few.choose(four);
    few.read(0, must(tight.try_serve(0, {few.choices, 4}, few.stream)), four);
    must(few.gpu().synchronize());
    CHECK(few.wrong == 0);
    CHECK(few.in_place == 0);
}

TEST_CASE("routed: 64-bit choices") {
    Fixture f{{8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "100%", 2)};
    const std::array<std::int64_t, 2> chosen{5, 2};
    std::memcpy(f.staged, chosen.data(), sizeof chosen);
    const Copy copy{f.choices, f.staged, sizeof chosen};
    must(f.gpu().copy({&copy, 1}, f.stream));
    const std::vector<std::int32_t> same{5, 2};
    f.read(0, must(cache.try_serve(0, {reinterpret_cast<const std::int64_t*>(f.choices), 2}, f.stream)), same);
    must(f.gpu().synchronize());
    CHECK(f.reads == 1);
    CHECK(f.wrong == 0);
}

TEST_CASE("routed: a wrong choice is told by the next call, once, and nothing outside is read") {
    Fixture f{{8, 5}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "50%", 3)};
    f.choose(std::vector<std::int32_t>{1, 5, 2});
    const auto served = must(cache.try_serve(1, {f.choices, 3}, f.stream));
    f.read(1, served, std::vector<std::int32_t>{1, 0, 2});
    must(f.gpu().synchronize());
    CHECK(f.wrong == 0);
    const auto refused = cache.try_serve(0, {f.choices, 3}, f.stream);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    CHECK(contains(refused.error().message(),
                   "layer 1: choice 1 of an earlier call or guess was expert 5, and the layer has 5 experts"));
    f.choose(std::vector<std::int32_t>{1, 4, 2});
    f.read(1, must(cache.try_serve(1, {f.choices, 3}, f.stream)), std::vector<std::int32_t>{1, 4, 2});
    CHECK(cache.try_statistics());
    CHECK(f.wrong == 0);
}

TEST_CASE("routed: what cannot work is refused with what to do") {
    Fixture f{{8, 5}};
    const SimulatedServer<> server;
    const auto refusal = [&](const auto& change) {
        auto tried = options(server, "50%", 3);
        auto experts = f.experts;
        change(tried, experts);
        auto made = Cache<ExpectedUse>::try_create(f.gpu(), f.catalog, experts, tried);
        return made ? std::string{} : made.error().message();
    };
    CHECK(contains(refusal([](auto& o, auto&) { o.server = nullptr; }), "needs Options::server"));
    CHECK(contains(refusal([](auto& o, auto&) { o.choices = 0; }), "give the experts per token times the tokens"));
    CHECK(contains(refusal([](auto& o, auto&) { o.choices = 1025; }), "1 to 1024"));
    CHECK(contains(refusal([](auto&, auto& e) { e.clear(); }), "at least one layer"));
    CHECK(contains(refusal([](auto&, auto& e) { e[1].clear(); }), "layer 1 has 0 experts"));
    CHECK(contains(refusal([](auto&, auto& e) { e[1][2] = e[0][0]; }), "layer 1, expert 2"));
    CHECK(contains(refusal([](auto&, auto& e) { e[0][3] = WeightId{99}; }), "the catalog has no weight 99"));
    CHECK(contains(refusal([](auto& o, auto&) { o.evictor.fast_rounds = 40; }), "0 < fast_rounds < slow_rounds"));
    const std::string below = refusal([](auto& o, auto&) { o.budget = Budget::bytes(1000); });
    CHECK(contains(below, "the smallest"));

    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "50%", 3)};
    CHECK(contains(cache.try_serve(2, {f.choices, 3}, f.stream).error().message(),
                   "there is no layer 2 of experts: there are 2"));
    CHECK(contains(cache.try_serve(0, {f.choices, 4}, f.stream).error().message(), "4 choices: give 1 to 3"));
    CHECK(contains(cache.try_serve(0, {f.choices, 0}, f.stream).error().message(), "0 choices"));
    CHECK(contains(cache.try_guess(0, {static_cast<const std::int32_t*>(nullptr), 1}, f.stream).error().message(),
                   "null address"));
    CHECK_FALSE(cache.try_set_budget(Budget::bytes(1000)));
    CHECK(cache.slots() > 0);

    std::vector<std::byte> pageable(4096);
    CatalogBuilder builder;
    builder.add("e", dtype::u8, {4096}, HostSource{HostBytes::borrow(pageable, HostMemory::pageable), 0});
    const auto not_pinned =
        Cache<ExpectedUse>::try_create(f.gpu(), builder.build(), {{WeightId{0}}}, options(server, "100%", 1));
    REQUIRE_FALSE(not_pinned);
    CHECK(not_pinned.error().kind() == ErrorKind::unsupported);
    CHECK(contains(not_pinned.error().message(),
                   "allocate_host(), or is pinned where it lies (pin()), as HostMemory::pinned"));
}

TEST_CASE("routed: right guesses become hits; what of a guess has not come is brought by the call") {
    for (const std::uint32_t pieces : {UINT32_MAX, 1U}) {
        Fixture f{{16, 16}};
        const SimulatedServer<> server{std::chrono::microseconds{5}, pieces};
        Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "100%", 4)};
        const std::vector<std::int32_t> first{0, 1}, second{4, 5};
        f.choose(first);
        f.read(0, must(cache.try_serve(0, {f.choices, 2}, f.stream)), first);
        f.choose(second);
        must(cache.try_guess(1, {f.choices, 2}, f.stream));
        must(cache.try_join(f.stream));
        f.read(1, must(cache.try_serve(1, {f.choices, 2}, f.stream)), second);
        const auto total = must(cache.try_statistics()).total;
        CHECK(f.wrong == 0);
        CHECK(total.guesses == 2);
        if (pieces == 1) {  // one piece of the first one
            CHECK(total.guess_hits == 0);
            CHECK(total.misses == 4);
            CHECK(total.guess_bytes == routed::piece_bytes);
            CHECK(total.demand_bytes == 4 * f.bytes - routed::piece_bytes);
        } else {
            CHECK(total.guess_hits == 2);
            CHECK(total.misses == 2);
            CHECK(total.guess_bytes == 2 * f.bytes);
            CHECK(total.demand_bytes == 2 * f.bytes);
        }
    }
}

TEST_CASE("routed: a guess that is given with a call is that which is made behind it") {
    std::array<routed::Counters, 2> counters;
    for (const bool is_beside : {false, true}) {
        Fixture f{{12, 12, 12}};
        const SimulatedServer<> server;
        Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "30%", 3)};
        std::mt19937 random{5};
        for (int token = 0; token < 40; ++token) {
            for (std::uint32_t layer = 0; layer < 3; ++layer) {
                const auto chosen = choose_experts(random, 12, 3), guessed = choose_experts(random, 12, 3);
                const std::uint32_t after = (layer + 1) % 3;
                routed::Served served;
                auto both = chosen;
                both.insert(both.end(), guessed.begin(), guessed.end());
                f.choose(both);
                const routed::Choices choices{f.choices, 3}, likely{f.choices + 3, 3};
                if (is_beside) {
                    served = must(cache.try_serve(layer, choices, f.stream, routed::Guess{after, likely}));
                } else {
                    served = must(cache.try_serve(layer, choices, f.stream));
                    must(cache.try_guess(after, likely, f.stream));
                }
                must(cache.try_join(f.stream));
                f.read(layer, served, chosen);
            }
        }
        counters[is_beside ? 1 : 0] = must(cache.try_statistics()).total;
        CHECK(f.wrong == 0);
        const auto refused = cache.try_serve(0, {f.choices, 3}, f.stream, routed::Guess{9, {f.choices, 3}});
        REQUIRE_FALSE(refused);
        CHECK(contains(refused.error().message(), "the guess beside layer 0"));
    }
    CHECK(counters[0].guesses > 0);
    CHECK(counters[0].guesses == counters[1].guesses);
    CHECK(counters[0].guess_hits == counters[1].guess_hits);
    CHECK(counters[0].demand_bytes == counters[1].demand_bytes);
}

TEST_CASE("routed: guesses, right and wrong, change no byte that is read") {
    for (const char* const budget : {"0", "30%", "80%"}) {
        for (const std::uint32_t pieces : {UINT32_MAX, 5U, 0U}) {
            CAPTURE(budget);
            CAPTURE(pieces);
            Fixture f{{12, 12, 12}};
            const SimulatedServer<> server{std::chrono::microseconds{5}, pieces};
            Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, budget, 4)};
            std::mt19937 random{11};
            must(cache.try_guess(1, {f.choices, 4}, f.stream));  // before anything was served: nothing comes of it
            for (int token = 0; token < 60; ++token) {
                for (std::uint32_t layer = 0; layer < 3; ++layer) {
                    const auto chosen = choose_experts(random, 12, 4);
                    f.choose(chosen);
                    const auto served = must(cache.try_serve(layer, {f.choices, 4}, f.stream));
                    auto guessed = chosen;
                    for (auto& each : guessed) { each = static_cast<std::int32_t>(random() % 12); }
                    f.choose(guessed);
                    must(cache.try_guess((layer + 1) % 3, {f.choices, 4}, f.stream));
                    must(cache.try_join(f.stream));  // the simulated device knows no kernel that ends early
                    f.read(layer, served, chosen);
                }
            }
            const auto total = must(cache.try_statistics()).total;
            CHECK(f.wrong == 0);
            CHECK(total.hits + total.misses == 60 * 3 * 4);
            if (pieces == 0) { CHECK(total.guess_bytes == 0); }
        }
    }
}

TEST_CASE("routed: guesses that were wrong rest, but for one after each 17 calls, until they are right again") {
    Fixture f{{64, 64}, 4096};
    const SimulatedServer<Lru> server;
    Cache<Lru> cache{f.gpu(), f.catalog, f.experts, options<Lru>(server, "20%", 2)};
    // Layer 1 chooses what left long ago; the guess is that, or what is not chosen either before it has left.
    const auto guesses_in = [&](int tokens, std::int32_t off) {
        const auto before = must(cache.try_statistics()).total;
        for (int token = 0; token < tokens; ++token) {
            const std::vector<std::int32_t> first{0}, second{token % 64}, guess{(token + off) % 64};
            f.choose(first);
            f.read(0, must(cache.try_serve(0, {f.choices, 1}, f.stream)), first);
            f.choose(guess);
            must(cache.try_guess(1, {f.choices, 1}, f.stream));
            must(cache.try_join(f.stream));
            f.choose(second);
            f.read(1, must(cache.try_serve(1, {f.choices, 1}, f.stream)), second);
        }
        return must(cache.try_statistics()).total.guesses - before.guesses;
    };
    CHECK(guesses_in(32, 0) == 32);  // right ones
    const auto wrong = guesses_in(340, 32);
    CHECK(wrong > 40);  // before they rest
    CHECK(wrong < 80);
    CHECK(guesses_in(340, 32) == 20);  // they rest
    static_cast<void>(guesses_in(17 * 40, 0));
    CHECK(guesses_in(64, 0) == 64);
    CHECK(f.wrong == 0);
}

TEST_CASE("routed: guesses that bring many pieces for nothing are tried after each 97 calls") {
    routed::OnHost<Lru> cache{{0, 64, 128}, 32, 40 * routed::piece_bytes};
    const auto guesses_in = [&](int tokens) {
        const std::uint64_t before = cache.state.counters.guesses;
        for (int token = 0; token < tokens; ++token) {
            cache.serve(0, {0});
            cache.guess(1, {(token + 32) % 64});
            cache.serve(1, {token % 64});
        }
        return cache.state.counters.guesses - before;
    };
    static_cast<void>(guesses_in(2000));  // until they rest
    CHECK(cache.state.guess_gain.value() < 0);
    CHECK(guesses_in(97 * 10) == 10);
}

TEST_CASE("routed: a guess lists what can come before the next call; where that is little, guesses rest") {
    constexpr std::uint64_t expert_bytes = 10 * routed::piece_bytes;
    const auto guesses_each = [&](std::uint32_t pieces_before_the_call) {
        Fixture f{{64, 64}, expert_bytes};
        const SimulatedServer<Lru> server{std::chrono::microseconds{5}, pieces_before_the_call};
        Cache<Lru> cache{f.gpu(), f.catalog, f.experts, options<Lru>(server, "40%", 4)};
        // Layer 1 chooses what left long ago, and that is guessed.
        int token = 0;
        const auto guesses_in = [&](int tokens) {
            const auto before = must(cache.try_statistics()).total;
            for (const int end = token + tokens; token < end; ++token) {
                const std::vector<std::int32_t> first{0};
                std::vector<std::int32_t> second;
                for (int i = 0; i < 4; ++i) { second.push_back((4 * token + i) % 64); }
                f.choose(first);
                f.read(0, must(cache.try_serve(0, {f.choices, 1}, f.stream)), first);
                f.choose(second);
                must(cache.try_guess(1, {f.choices, 4}, f.stream));
                must(cache.try_join(f.stream));
                f.read(1, must(cache.try_serve(1, {f.choices, 4}, f.stream)), second);
            }
            return must(cache.try_statistics()).total.guesses - before.guesses;
        };
        CHECK(guesses_in(1) == 4);  // nothing is known yet
        static_cast<void>(guesses_in(200));
        const auto guesses = guesses_in(2 * 17);
        CHECK(f.wrong == 0);
        return guesses;
    };
    CHECK(guesses_each(UINT32_MAX) == 4 * 2 * 17);  // all come
    CHECK(guesses_each(25) == 3 * 2 * 17);          // the third one in part
    CHECK(guesses_each(6) == 2 * 17);
    CHECK(guesses_each(2) == 2);  // a token in 17 is tried
}

TEST_CASE("routed: a prefill reads all experts, and leaves the cache but for a few slots") {
    for (const char* const budget : {"0", "20%", "50%", "100%"}) {
        for (const std::uint32_t ring : {0U, 1U, 3U, 6U}) {
            CAPTURE(budget);
            CAPTURE(ring);
            Fixture f{{12, 7, 16}};
            const SimulatedServer<> server;
            Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, budget, 3)};
            std::mt19937 random{3};
            const auto decode = [&](int tokens) {
                for (int token = 0; token < tokens; ++token) {
                    for (std::uint32_t layer = 0; layer < 3; ++layer) {
                        const auto chosen =
                            choose_experts(random, static_cast<std::uint32_t>(f.experts[layer].size()), 3);
                        f.choose(chosen);
                        f.read(layer, must(cache.try_serve(layer, {f.choices, 3}, f.stream)), chosen);
                    }
                }
            };
            decode(30);
            const auto before = must(cache.try_statistics()).total;
            must(cache.try_begin_prefill(ring));
            CHECK_FALSE(cache.try_begin_prefill());
            CHECK_FALSE(cache.try_serve(0, {f.choices, 3}, f.stream));
            CHECK_FALSE(cache.try_set_budget(Budget::parse("0")));
            CHECK_FALSE(cache.try_acquire(1, 99, f.stream));
            std::uint64_t read = 0;
            for (int pass = 0; pass < 2; ++pass) {
                for (std::uint32_t layer = 0; layer < 3; ++layer) {
                    std::uint32_t expert = 0;
                    for (std::uint32_t group = 0; group < cache.prefill_groups(layer); ++group) {
                        const auto there = must(cache.try_acquire(layer, group, f.stream));
                        CHECK(there.first == expert);
                        expert = there.last;
                        Gpu::Kernel kernel;
                        kernel.name = "products";
                        kernel.duration = std::chrono::microseconds{random() % 3 == 0 ? 300 : 3};
                        kernel.body = [&f, &read, layer, there] {
                            for (std::uint32_t i = there.first; i < there.last; ++i) {
                                f.wrong += std::memcmp(there.addresses[i], f.bytes_of(layer, i),
                                                       static_cast<std::size_t>(f.bytes)) != 0
                                               ? 1U
                                               : 0U;
                                ++read;
                            }
                        };
                        must(f.gpu().launch(f.stream, std::move(kernel)));
                    }
                    CHECK(expert == f.experts[layer].size());
                    if (layer == 1 && pass == 1) { break; }  // a prompt that ends early
                }
            }
            const auto no_group = cache.try_acquire(0, 99, f.stream);
            REQUIRE_FALSE(no_group);
            CHECK(contains(no_group.error().message(), "layer 0 has no group 99: there are "));
            must(cache.try_end_prefill());
            CHECK_FALSE(cache.try_end_prefill());
            CHECK_FALSE(cache.try_acquire(0, 0, f.stream));
            CHECK(read == 35 + 19);
            CHECK(f.wrong == 0);
            CHECK(must(cache.try_statistics()).total.misses == before.misses);
            decode(30);
            const auto after = must(cache.try_statistics()).total;
            CHECK(f.wrong == 0);
            if (cache.slots() == 35) { CHECK(after.misses <= 35 + (before.misses < 35 ? 16U : 0U)); }
        }
    }
}

TEST_CASE("routed: the budget holds with chunks that are larger than experts") {
    for (int percent = 20; percent <= 100; percent += 5) {
        Fixture f{{16, 16, 16}};
        const SimulatedServer<> server;
        auto chosen = options(server, (std::to_string(percent) + "%").c_str(), 4);
        chosen.pool.chunk_bytes = std::uint64_t{2} << 20;
        auto made = Cache<ExpectedUse>::try_create(f.gpu(), f.catalog, f.experts, chosen);
        if (!made) { continue; }  // below the floor of such chunks
        CHECK(must(made->try_statistics()).held_bytes <= made->budget().bytes);
        CHECK((made->slots() == 48) == (percent == 100));
    }
}

TEST_CASE("routed: C19: a larger budget that fails anywhere leaves no slot that the host does not know") {
    using residency::simulation::CallKind;
    for (const CallKind kind :
         {CallKind::synchronize_stream, CallKind::synchronize_device, CallKind::copy, CallKind::allocate_host,
          CallKind::deallocate_host, CallKind::create_chunk, CallKind::map}) {
        for (std::uint64_t nth = 1; nth <= 6; ++nth) {
            Fixture f{{12, 12}, 30'000};
            const SimulatedServer<> server;
            Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "30%", 4)};
            std::mt19937 random{6};
            const auto decode = [&](int tokens) { decode_tokens(f, cache, random, tokens); };
            f.gpu().fail(kind, nth);
            const bool is_larger = cache.try_set_budget(Budget::parse("100%")).has_value();
            f.gpu().clear_failures();
            if (!is_larger) { CHECK(cache.slots() < 24); }
            decode(20);
            CHECK(must(cache.try_statistics()).held_bytes <= cache.budget().bytes);
            must(cache.try_set_budget(Budget::parse("0")));
            decode(20);
            must(cache.try_set_budget(Budget::parse("100%")));
            decode(20);
            CHECK(must(cache.try_statistics()).slots == 24);
            CHECK(f.wrong == 0);
        }
    }
}

TEST_CASE("routed: C19: a larger budget that fails, and can not be undone, leaves no slot without memory") {
    using residency::simulation::CallKind;
    int failed = 0;
    for (const CallKind kind : {CallKind::synchronize_stream, CallKind::copy, CallKind::allocate_host,
                                CallKind::deallocate_host, CallKind::any}) {
        for (std::uint64_t nth = 1; nth <= 8; ++nth) {
            for (const char* const next : {"30%", "60%", "0"}) {
                CAPTURE(static_cast<int>(kind));
                CAPTURE(nth);
                CAPTURE(next);
                Fixture f{{12, 12}, 30'000};
                const SimulatedServer<> server;
                Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "30%", 4)};
                for (std::uint64_t more = 0; more < 40; ++more) { f.gpu().fail(kind, nth + more); }
                failed += cache.try_set_budget(Budget::parse("100%")).has_value() ? 0 : 1;
                f.gpu().clear_failures();
                must(cache.try_set_budget(Budget::parse(next)));
                CHECK(must(cache.try_statistics()).held_bytes <= cache.budget().bytes);
                std::mt19937 random{6};
                decode_tokens(f, cache, random, 20);
                CHECK(f.wrong == 0);
            }
        }
    }
    CHECK(failed > 30);
}

TEST_CASE(
    "routed: C19: what a larger budget can not give back that fails is pending: a broker counts it, and gets it") {
    using residency::simulation::CallKind;
    int pending = 0;
    for (const CallKind kind : {CallKind::synchronize_stream, CallKind::copy, CallKind::allocate_host,
                                CallKind::destroy_chunk, CallKind::any}) {
        for (std::uint64_t nth = 1; nth <= 8; ++nth) {
            CAPTURE(static_cast<int>(kind));
            CAPTURE(nth);
            Fixture f{{12, 12}, 30'000};
            const auto used = [&] {
                const auto memory = must(f.gpu().memory());
                return memory.total_bytes - memory.free_bytes;
            };
            const std::uint64_t others = used();
            const SimulatedServer<> server;
            auto given = options(server, "0", 4);
            const auto sizes = Cache<ExpectedUse>::resolve_budget(f.gpu(), f.catalog, f.experts, given);
            BudgetBroker broker{{.total_bytes = sizes.resident_from_bytes}};
            auto memory = broker.add_memory({.name = "KV cache"});
            must(memory.try_take(sizes.resident_from_bytes - sizes.floor_bytes));
            auto client = broker.add_model(
                {.name = "experts", .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
            given.budget = client.budget();
            Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, given};
            memory.give_back(sizes.resident_from_bytes - sizes.floor_bytes);

            // The change fails, and so does what undoes it.
            for (std::uint64_t more = 0; more < 40; ++more) { f.gpu().fail(kind, nth + more); }
            if (kind == CallKind::destroy_chunk) { f.gpu().fail(CallKind::map, 1); }
            const bool is_larger = client.try_at_pass_end(cache).has_value();
            f.gpu().clear_failures();
            CHECK(used() - others <= cache.budget().bytes + cache.pending_bytes());
            CHECK(used() - others <= client.account().used_bytes);
            CHECK(broker.statistics().granted_bytes <= sizes.resident_from_bytes);
            pending += !is_larger && cache.pending_bytes() != 0 ? 1 : 0;
            if (nth % 2 == 0) {
                static_cast<void>(must(cache.try_statistics()));
            } else {
                must(cache.try_reclaim_pending());
            }
            CHECK(cache.pending_bytes() == 0);
            CHECK(used() - others <= cache.budget().bytes);
            must(client.try_at_pass_end(cache));
            CHECK(cache.slots() == 24);
            CHECK(used() - others <= client.account().used_bytes);
        }
    }
    CHECK(pending > 6);
}

TEST_CASE(
    "routed: C19: a smaller budget or a prefill that fails anywhere leaves the cache as it was, or as it was to be") {
    using residency::simulation::CallKind;
    for (const bool is_prefill : {false, true}) {
        CAPTURE(is_prefill);
        // The hits of a run in which calls of some kind fail, and the slots at its end; any: none does.
        int failed = 0;
        const auto outcome = [&](bool is_changed, CallKind kind, std::uint64_t nth, std::uint64_t in_a_row) {
            Fixture f{{12, 12}, 30'000};
            const SimulatedServer<> server;
            Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "70%", 4)};
            std::mt19937 random{6};
            const auto decode = [&](int tokens) { decode_tokens(f, cache, random, tokens); };
            decode(20);
            for (std::uint64_t more = 0; kind != CallKind::any && more < in_a_row; ++more) {
                f.gpu().fail(kind, nth + more);
            }
            if (is_changed) {
                const bool is_done = is_prefill ? cache.try_begin_prefill(6).has_value()
                                                : cache.try_set_budget(Budget::parse("30%")).has_value();
                failed += is_done ? 0 : 1;
            }
            f.gpu().clear_failures();
            if (is_prefill && is_changed) { static_cast<void>(cache.try_end_prefill().has_value()); }
            if (in_a_row == 3) {  // as long as host and device may count other slots
                decode(5);
                CHECK(cache.pending_bytes() == 0);
            }
            must(cache.try_reclaim_pending());  // where the undoing failed, too
            decode(20);
            const auto statistics = must(cache.try_statistics());
            CHECK(f.wrong == 0);
            CHECK(statistics.held_bytes <= cache.budget().bytes);
            return std::pair{statistics.total.hits, cache.slots()};
        };
        const auto before = outcome(false, CallKind::any, 0, 0), after = outcome(true, CallKind::any, 0, 0);
        CHECK(before.first != after.first);
        for (const CallKind kind : {CallKind::synchronize_stream, CallKind::synchronize_device, CallKind::copy,
                                    CallKind::allocate_host, CallKind::deallocate_host, CallKind::unmap}) {
            for (std::uint64_t nth = 1; nth <= 8; ++nth) {
                for (std::uint64_t in_a_row = 1; in_a_row <= 3; ++in_a_row) {
                    CAPTURE(static_cast<int>(kind));
                    CAPTURE(nth);
                    CAPTURE(in_a_row);
                    const auto with_failures = outcome(true, kind, nth, in_a_row);
                    // A change that has come to the device, and is undone, has emptied slots.
                    const bool is_undone = !is_prefill && with_failures.second == before.second &&
                                           with_failures.first < before.first && with_failures.first > after.first;
                    CHECK((in_a_row == 3 || with_failures == before || with_failures == after || is_undone));
                }
            }
        }
        CHECK(failed >= 18);
    }
}

TEST_CASE("routed: several guesses before a call count each; one that comes too late brings nothing") {
    Fixture f{{8, 8, 8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "100%", 2)};
    const std::vector<std::int32_t> first{1, 2}, second{3, 4};
    f.choose(first);
    must(cache.try_serve(0, {f.choices, 2}, f.stream));
    must(cache.try_guess(1, {f.choices, 2}, f.stream));
    must(cache.try_join(f.stream));
    f.choose(second);
    must(cache.try_guess(2, {f.choices, 2}, f.stream));
    must(cache.try_join(f.stream));
    f.choose(first);
    f.read(1, must(cache.try_serve(1, {f.choices, 2}, f.stream)), first);
    f.choose(second);
    f.read(2, must(cache.try_serve(2, {f.choices, 2}, f.stream)), second);
    const auto total = must(cache.try_statistics()).total;
    CHECK(total.guess_hits == 4);
    CHECK(total.guess_bytes == 4 * f.bytes);
    CHECK(total.demand_bytes == 2 * f.bytes);
    CHECK(f.wrong == 0);
}

#if RESIDENCY_ASSERTIONS
TEST_CASE("routed: what is moved from, and groups of a prefill that has not begun, are preconditions with a sentence") {
    Fixture f{{8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "100%", 2)};
    const auto too_early = child::run([&] { static_cast<void>(cache.prefill_groups(0)); });
    CHECK(too_early.aborted);
    CHECK(contains(too_early.text, "call begin_prefill() before prefill_groups()"));
    Cache<ExpectedUse> moved{std::move(cache)};
    const auto gone = child::run([&] { static_cast<void>(cache.slots()); });  // NOLINT(bugprone-use-after-move)
    CHECK(gone.aborted);
    CHECK(contains(gone.text, "this RoutedExperts was moved from"));
    CHECK(moved.slots() == 8);
}
#endif

TEST_CASE("routed: in a capture, what waits for the device is refused by its name") {
    Fixture f{{8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "50%", 2)};
    const auto refused = [&](const char* call, auto attempt) {
        CAPTURE(call);
        must(f.gpu().begin_capture(f.stream));
        const auto result = attempt();
        CHECK_FALSE(f.gpu().end_capture(f.stream));
        REQUIRE_FALSE(result);
        CHECK(contains(result.error().message(), std::string{call} + "() waits for the device: "));
        CHECK(contains(result.error().message(), "call what waits for the device outside of captures"));
    };
    refused("try_statistics", [&] { return cache.try_statistics(); });
    refused("try_set_budget", [&] { return cache.try_set_budget(Budget::percent_of_weights(100)); });
    refused("try_begin_prefill", [&] { return cache.try_begin_prefill(); });
    must(cache.try_begin_prefill());
    refused("try_end_prefill", [&] { return cache.try_end_prefill(); });
    must(cache.try_end_prefill());
    CHECK(f.gpu().reports().empty());
}

TEST_CASE("routed: a capture that ends without the join of its guesses says what joins them") {
    Fixture f{{8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "50%", 2)};
    f.choose(std::vector<std::int32_t>{0});
    must(cache.try_serve(0, {f.choices, 1}, f.stream));
    must(f.gpu().begin_capture(f.stream));
    must(cache.try_guess(0, {f.choices, 1}, f.stream));
    const auto not_joined = f.gpu().end_capture(f.stream);
    REQUIRE_FALSE(not_joined);
    CHECK(contains(not_joined.error().message(), "such as RoutedExperts::join() after guesses"));
    f.gpu().clear_reports();
}

TEST_CASE("routed: a kernel that reads where the experts are, and does not wait for that, is reported") {
    Fixture f{{8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "100%", 2)};
    const auto other = must(f.gpu().create_stream());
    const std::vector<std::int32_t> chosen{1, 2};
    f.choose(chosen);
    const auto served = must(cache.try_serve(0, {f.choices, 2}, f.stream));
    const auto launch = [&](Gpu::Stream on) {
        Gpu::Kernel kernel;
        kernel.name = "products";
        kernel.reads = {{served.addresses, 2 * sizeof(void*)}, {served.slots, 2 * sizeof(std::int32_t)}};
        must(f.gpu().launch(on, std::move(kernel)));
        must(f.gpu().synchronize());
    };
    launch(f.stream);
    CHECK(f.gpu().report_count() == 0);
    static_cast<void>(must(cache.try_serve(0, {f.choices, 2}, f.stream)));
    launch(other);
    CHECK(f.gpu().report_count() == 2);
    f.gpu().clear_reports();
    must(f.gpu().destroy_stream(other));
}

TEST_CASE("routed: choices in memory that the device does not see are refused and reported") {
    Fixture f{{8}};
    const SimulatedServer<> server;
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, options(server, "50%", 2)};
    const std::vector<std::int32_t> on_host{1, 2};
    const auto served = cache.try_serve(0, {on_host.data(), 2}, f.stream);
    REQUIRE_FALSE(served);
    constexpr const char* why = "neither device memory nor pinned host memory";
    CHECK(contains(served.error().message(), std::string{why} + ": allocate it by the device"));
    CHECK(contains(served.error().message(), "serve() of layer 0 and its choices"));
    REQUIRE(f.gpu().report_count() == 1);
    CHECK(contains(f.gpu().reports()[0].text, why));
    f.gpu().clear_reports();
}

TEST_CASE("routed: a broker shares a total with it") {
    Fixture f{{16, 16}};
    const SimulatedServer<> server;
    BudgetBroker broker{{.total_bytes = 12U << 20U}};
    auto given = options(server, "0", 4);
    const auto sizes = Cache<ExpectedUse>::resolve_budget(f.gpu(), f.catalog, f.experts, given);
    auto client = broker.add_model(
        {.name = "experts", .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
    given.budget = client.budget();
    Cache<ExpectedUse> cache{f.gpu(), f.catalog, f.experts, given};
    auto memory = broker.add_memory({.name = "KV cache", .priority = 1});
    const std::uint32_t before = cache.slots();
    CHECK(before == 32);
    static_cast<void>(memory.try_take(8U << 20U));  // refused at first, and wanted
    for (int i = 0; i < 40; ++i) { static_cast<void>(client.at_pass_end(cache)); }
    CHECK(memory.try_take(8U << 20U));
    CHECK(cache.slots() < before);
    std::mt19937 random{2};
    for (int token = 0; token < 20; ++token) {
        const auto chosen = choose_experts(random, 16, 4);
        f.choose(chosen);
        f.read(0, must(cache.try_serve(0, {f.choices, 4}, f.stream)), chosen);
    }
    CHECK(cache.try_statistics());
    CHECK(f.wrong == 0);
}

TEST_CASE("routed: C19: any call of the device fails once, nothing is left behind and every byte is right") {
    using residency::simulation::CallKind;
    std::uint64_t points = 0;
    for (std::uint8_t kind = 0; kind < static_cast<std::uint8_t>(CallKind::any); ++kind) {
        const auto which = static_cast<CallKind>(kind);
        for (std::uint64_t nth = 1; nth < 80; ++nth) {
            Fixture f{{6, 6}, 30'000};
            Gpu& gpu = f.gpu();
            const SimulatedServer<> server;
            const std::uint64_t before = gpu.statistics().of(which);
            gpu.fail(which, nth);
            {
                auto made = Cache<ExpectedUse>::try_create(gpu, f.catalog, f.experts, options(server, "60%", 2));
                std::mt19937 random{4};
                for (int token = 0; made && token < 3; ++token) {
                    for (std::uint32_t layer = 0; layer < 2; ++layer) {
                        serve_two(f, *made, random, layer, [&](std::uint32_t expert, const std::byte* at) {
                            f.wrong += std::memcmp(at, f.bytes_of(layer, expert), 30'000) != 0 ? 1U : 0U;
                            ++f.reads;
                        });
                    }
                    static_cast<void>(made->try_set_budget(Budget::parse(token == 0 ? "100%" : "0")).has_value());
                }
            }
            const bool is_over = gpu.statistics().of(which) - before < nth;
            gpu.clear_failures();
            CHECK(f.wrong == 0);
            if (is_over) {
                CHECK(f.reads == 12);
                break;
            }
            ++points;
        }
    }
    MESSAGE(points << " failures");
    CHECK(points > 50);
}

}  // namespace routed_experts_test
