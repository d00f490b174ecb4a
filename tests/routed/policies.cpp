// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The policies of kernels against those of the host.
#include "residency/routed/policies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "residency/evict/expected_use.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/routed/serve.hpp"
#include "tests/routed/on_host.hpp"
#include "tests/routed/support.hpp"

namespace policies_test {

using namespace routed_test;
namespace r = residency::routed;

namespace {

// A power of two: where two experts are equal, evict::ExpectedUse then takes the first one, as kernels do.
constexpr std::uint32_t layers = 5, per_layer = 32, all = layers * per_layer;

/// A cache that a policy of the host decides about, as plainly as it can be written.
template <class Policy>
class Reference {
public:
    Reference(Policy policy, std::uint32_t slots) : policy_{std::move(policy)}, slots_{slots} {
        evict::Context context;
        context.bytes = bytes_;
        context.capacity_bytes = slots;
        must(policy_.attach(context));
    }
    void serve(std::uint32_t layer, const std::vector<std::int32_t>& chosen) {
        ++now_;
        std::vector<bool> is_chosen(all);
        std::vector<StorageId> misses;
        for (const std::int32_t each : chosen) {
            const StorageId id{layer * per_layer + static_cast<std::uint32_t>(each)};
            is_chosen[index(id)] = true;
            if (is_there_[index(id)]) {
                policy_.used(id, now_);
            } else {
                misses.push_back(id);
            }
        }
        if (misses.size() == chosen.size()) {  // the round begins here, too
            policy_.inserted(misses.front(), now_);
            policy_.used(misses.front(), now_);
            policy_.removed(misses.front());
        }
        for (const StorageId id : misses) {
            if (there_ == slots_) {
                const auto leaves =
                    policy_.victim(now_, [&](StorageId candidate) { return !is_chosen[index(candidate)]; });
                REQUIRE(leaves);
                policy_.removed(*leaves);
                is_there_[index(*leaves)] = false;
                --there_;
            }
            policy_.inserted(id, now_);
            policy_.used(id, now_);
            is_there_[index(id)] = true;
            ++there_;
        }
    }
    [[nodiscard]] bool has(std::uint32_t expert) const { return is_there_[expert]; }

private:
    Policy policy_;
    std::uint32_t slots_, there_ = 0;
    StepIndex now_ = 0;
    std::vector<std::uint64_t> bytes_ = std::vector<std::uint64_t>(all, 1);
    std::vector<bool> is_there_ = std::vector<bool>(all);
};

template <class P, class Policy>
void compare(const Policy& policy) {
    for (const std::uint32_t slots : {4U, 11U, 40U, 90U, 119U}) {
        for (std::uint32_t seed = 1; seed <= 4; ++seed) {
            CAPTURE(slots);
            CAPTURE(seed);
            OnHost<P> kernels{equal_layers(layers, per_layer), slots, 1 << 20};
            Reference<Policy> host{policy, slots};
            std::mt19937 random{seed};
            std::uint64_t differences = 0;
            for (int token = 0; token < 400; ++token) {
                for (std::uint32_t layer = 0; layer < layers; ++layer) {
                    if (random() % 40 == 0) { continue; }  // a layer without experts this time
                    const auto chosen = choose_some(random, per_layer, 1 + static_cast<std::uint32_t>(random() % 4));
                    kernels.serve(layer, chosen);
                    host.serve(layer, chosen);
                    for (std::uint32_t expert = 0; expert < all; ++expert) {
                        differences += kernels.has(expert) != host.has(expert) ? 1U : 0U;
                    }
                    REQUIRE(differences == 0);
                }
            }
            CHECK(kernels.state.counters.misses > 0);
        }
    }
}

}  // namespace

TEST_CASE("routed: the policies of kernels decide as those of the host do") {
    SUBCASE("least recently used") { compare<r::Lru>(evict::Lru{}); }
    SUBCASE("least frequently used") { compare<r::Lfu>(evict::Lfu{}); }
    SUBCASE("expected use") {
        std::vector<std::uint32_t> layer_of(all);
        for (std::uint32_t i = 0; i < all; ++i) { layer_of[i] = i / per_layer; }
        compare<r::ExpectedUse>(evict::ExpectedUse{{.layers = layer_of}});
    }
}

TEST_CASE("routed: what would leave before all that is there gets no slot: read in place, or guessed") {
    // Experts 0 and 1 of the first layer have the two slots, and were chosen twice.
    const auto filled = [](auto& cache) {
        for (int i = 0; i < 2; ++i) { cache.serve(0, {0, 1}); }
        REQUIRE(cache.has(0));
        REQUIRE(cache.has(1));
    };
    SUBCASE("what has to be stored takes the slot of the first one to leave") {
        OnHost<r::Lfu> cache{equal_layers(2, 8), 2, 1000};
        filled(cache);
        cache.serve(0, {2});
        CHECK(cache.has(2));
        CHECK(cache.state.counters.in_place == 0);
    }
    SUBCASE("read in place") {
        OnHost<r::Lfu> cache{equal_layers(2, 8), 2, 1000};
        cache.t.reads_in_place = true;
        filled(cache);
        cache.serve(0, {2});
        CHECK_FALSE(cache.has(2));
        CHECK(cache.slots_out[0] == -1);
        CHECK(cache.state.counters.in_place == 1);
        CHECK(cache.state.counters.in_place_bytes == 1000);
        CHECK(cache.state.fills == 0);
    }
    SUBCASE("read in place, but the last one to leave") {
        OnHost<r::Lru> cache{equal_layers(2, 8), 2, 1000};
        cache.t.reads_in_place = true;
        filled(cache);
        cache.serve(0, {2});
        CHECK(cache.has(2));
        CHECK_FALSE(cache.has(0));
        CHECK(cache.state.counters.in_place == 0);
    }
    SUBCASE("a guess") {
        OnHost<r::Lfu> cache{equal_layers(2, 8), 2, 1000};
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
        OnHost<r::Lru> cache{equal_layers(2, 8), 2, 1000};
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

}  // namespace policies_test
