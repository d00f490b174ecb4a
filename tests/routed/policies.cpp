// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The policies of kernels against those of the host.
#include "residency/routed/policies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "residency/conformance/routed_policy.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/routed/on_host.hpp"
#include "tests/routed/support.hpp"

namespace policies_test {

using namespace routed_test;
namespace r = residency::routed;

TEST_CASE("routed: the policies of kernels keep their rules, and decide as those of the host do") {
    SUBCASE("least recently used") {
        conformance::check_routed_policy<r::Lru>();
        conformance::check_routed_policy_as<r::Lru, evict::Lru>([](const auto&) { return evict::Lru{}; });
    }
    SUBCASE("least frequently used") {
        conformance::check_routed_policy<r::Lfu>();
        conformance::check_routed_policy_as<r::Lfu, evict::Lfu>([](const auto&) { return evict::Lfu{}; });
    }
    SUBCASE("expected use") {
        conformance::check_routed_policy<r::ExpectedUse>();
        conformance::check_routed_policy_as<r::ExpectedUse, evict::ExpectedUse>(
            [](const auto& layer_of) { return evict::ExpectedUse{{.layers = layer_of}}; });
    }
}

namespace {

/// Says for some experts that no time is the time of their next use.
struct NoNumber : r::Lru {
    [[nodiscard]] static r::Key key(const Numbers&, const OfSlot& slot, std::uint32_t, std::uint32_t, const r::Now&) {
        return {slot.last % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : 1, 0};
    }
};
/// Counts the uses of a slot, whichever expert has it.
struct CountsOn : r::Lfu {
    static void inserted(const Numbers&, OfSlot& slot, const OfExpert&, std::uint32_t, const r::Now& now) {
        slot.last = now.time();
    }
};
/// Takes no default.
struct NoDefault : r::Lru {
    struct Config {
        int most = 0;
    };
    [[nodiscard]] static Result<Numbers> numbers(const Config& config) {
        if (config.most == 0) { return Error{ErrorKind::invalid_argument, "most is 0"}; }
        return Numbers{};
    }
};
/// Every other one that is made forgets faster.
struct CountsMade : r::ExpectedUse {
    [[nodiscard]] static Result<Numbers> numbers(const Config&) {
        static int made = 0;
        return ExpectedUse::numbers({.slow_rounds = ++made % 2 == 0 ? 32.0 : 3.0});
    }
};
/// Decides by how often it was asked.
struct CountsAsked : r::Lru {
    [[nodiscard]] static r::Key key(const Numbers&, const OfSlot&, std::uint32_t, std::uint32_t, const r::Now&) {
        static std::uint32_t asked = 0;
        return {static_cast<double>(++asked % 7), 0};
    }
};

}  // namespace

TEST_CASE("routed: a policy that refuses its own defaults breaks X1" * doctest::should_fail()) {
    conformance::check_routed_policy<NoDefault>({.config = {.most = 1}});
}
TEST_CASE("routed: a policy whose keys are no numbers breaks X2" * doctest::should_fail()) {
    conformance::check_routed_policy<NoNumber>({.runs = 2});
}
TEST_CASE("routed: a policy that remembers who had a slot breaks X3" * doctest::should_fail()) {
    conformance::check_routed_policy<CountsOn>({.runs = 2});
}
TEST_CASE("routed: a policy that counts beside its state breaks X4" * doctest::should_fail()) {
    conformance::check_routed_policy<CountsAsked>({.runs = 2});
}
TEST_CASE("routed: a policy that is not made the same way twice breaks X4 alone" * doctest::should_fail()) {
    conformance::check_routed_policy<CountsMade>({.runs = 2});
}
TEST_CASE("routed: a policy that is another one than the host's" * doctest::should_fail()) {
    conformance::check_routed_policy_as<r::Lfu, evict::Lru>([](const auto&) { return evict::Lru{}; }, {.runs = 2});
}

TEST_CASE_TEMPLATE("conformance: a policy of experts on a device", P, r::ExpectedUse, r::Lru, r::Lfu) {
    Gpu device{support::small_device()};
    conformance::check_routed_policy_on(device, SimulatedServer<P>{},
                                        conformance::RoutedSuite<P>{.runs = 4, .tokens = 20});
}

TEST_CASE("routed: what would leave before all that is there gets no slot: read in place, or guessed") {
    // Experts 0 and 1 of the first layer have the two slots, and were chosen twice.
    const auto filled = [](auto& cache) {
        for (int i = 0; i < 2; ++i) { cache.serve(0, {0, 1}); }
        REQUIRE(cache.has(0));
        REQUIRE(cache.has(1));
    };
    SUBCASE("what has to be stored takes the slot of the first one to leave") {
        r::OnHost<r::Lfu> cache{conformance::detail::equal_layers(2, 8), 2, 1000};
        filled(cache);
        cache.serve(0, {2});
        CHECK(cache.has(2));
        CHECK(cache.state.counters.in_place == 0);
    }
    SUBCASE("read in place") {
        r::OnHost<r::Lfu> cache{conformance::detail::equal_layers(2, 8), 2, 1000};
        cache.tables.reads_in_place = true;
        filled(cache);
        cache.serve(0, {2});
        CHECK_FALSE(cache.has(2));
        CHECK(cache.slots()[0] == -1);
        CHECK(cache.state.counters.in_place == 1);
        CHECK(cache.state.counters.in_place_bytes == 1000);
        CHECK(cache.state.fills == 0);
    }
    SUBCASE("read in place, but the last one to leave") {
        r::OnHost<r::Lru> cache{conformance::detail::equal_layers(2, 8), 2, 1000};
        cache.tables.reads_in_place = true;
        filled(cache);
        cache.serve(0, {2});
        CHECK(cache.has(2));
        CHECK_FALSE(cache.has(0));
        CHECK(cache.state.counters.in_place == 0);
    }
    SUBCASE("a guess") {
        r::OnHost<r::Lfu> cache{conformance::detail::equal_layers(2, 8), 2, 1000};
        filled(cache);
        cache.serve(0, {1});  // what it reads is never taken
        cache.guess(1, {3});
        CHECK_FALSE(cache.has(8 + 3));
        CHECK(cache.state.counters.guesses == 0);
        cache.serve(1, {3});
        CHECK(cache.state.counters.misses == 3);  // and now it takes a slot
        CHECK(cache.state.counters.guess_bytes == 0);
    }
    SUBCASE("a guess, but the last one to leave") {
        r::OnHost<r::Lru> cache{conformance::detail::equal_layers(2, 8), 2, 1000};
        filled(cache);
        cache.serve(0, {1});
        cache.guess(1, {3});
        CHECK(cache.has(8 + 3));
        CHECK_FALSE(cache.has(0));
        cache.serve(1, {3});
        CHECK(cache.state.counters.guess_hits == 1);
        CHECK(cache.state.counters.guess_bytes == 1000);
    }
}

TEST_CASE_TEMPLATE("routed: what was found ahead leaves as what is found in the call", P, r::ExpectedUse, r::Lru,
                   r::Lfu) {
    std::uint64_t used = 0;
    for (std::uint32_t run = 0; run < 40; ++run) {
        CAPTURE(run);
        std::mt19937_64 random{run};
        const std::uint32_t layers = 1 + static_cast<std::uint32_t>(random() % 5), per_layer = 24;
        const std::uint32_t slots = 20 + static_cast<std::uint32_t>(random() % 40);
        r::OnHost<P> ahead{conformance::detail::equal_layers(layers, per_layer), slots, 1000};
        r::OnHost<P> plain{conformance::detail::equal_layers(layers, per_layer), slots, 1000};
        ahead.tables.reads_in_place = plain.tables.reads_in_place = run % 2 == 1;
        std::uint32_t layer = 0;
        for (std::uint32_t call = 0; call < 300; ++call) {
            CAPTURE(call);
            layer = random() % 8 == 0 ? static_cast<std::uint32_t>(random() % layers) : (layer + 1) % layers;
            const auto choose = [&] {
                std::vector<std::int32_t> chosen(1 + random() % 16);
                for (std::int32_t& each : chosen) {
                    each = static_cast<std::int32_t>((std::min)(random() % per_layer, random() % (per_layer + 1))) -
                           (random() % 16 == 0 ? static_cast<std::int32_t>(per_layer) : 0);
                }
                return chosen;
            };
            if (random() % 6 == 0) {
                const std::vector<std::int32_t> guessed = choose();
                ahead.guess(layer, guessed);
                plain.guess(layer, guessed);
            }
            const std::vector<std::int32_t> chosen = choose();
            const auto& state = ahead.state;
            const bool is_found = state.ahead_of == state.call + 1 && state.ahead_layer == layer && state.ahead > 0;
            const std::uint64_t misses = state.counters.misses;
            plain.state.ahead_of = 0;
            ahead.serve(layer, chosen);
            plain.serve(layer, chosen);
            used += is_found && state.counters.misses > misses ? 1 : 0;
            REQUIRE(ahead.slots() == plain.slots());
            REQUIRE(state.counters.hits == plain.state.counters.hits);
            REQUIRE(state.counters.in_place == plain.state.counters.in_place);
        }
    }
    CHECK(used > 1000);
}

}  // namespace policies_test
