// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/evict/expected_use.hpp"
#include "residency/evict/queues.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "residency/error.hpp"

namespace expected_use_test {

using namespace residency;

namespace {

/// The definition, evaluated for every storage at every question.
class Naive {
public:
    Naive(std::vector<std::uint32_t> layers, std::uint32_t count)
        : layer_of{std::move(layers)},
          slow(layer_of.size()),
          fast(layer_of.size()),
          here(layer_of.size()),
          fresh(layer_of.size()),
          used_in(layer_of.size(), -1),
          round(count),
          current{count - 1} {}

    void inserted(std::uint32_t id) {
        here[id] = true;
        fresh[id] = true;
    }
    void used(std::uint32_t id, std::uint64_t now) {
        const std::uint32_t layer = layer_of[id];
        const auto layers = static_cast<std::uint32_t>(round.size());
        if (layer != current || (layers == 1 && now != last)) {
            ++round[layer];
            for (std::uint32_t i = 0; i < layer_of.size(); ++i) {
                if (layer_of[i] == layer) {
                    slow[i] *= std::exp(-1.0 / 32);
                    fast[i] *= std::exp(-1.0 / 2);
                    // One brought ahead ranks as if it had been used when it came.
                    guess_slow[i] *= std::exp(-1.0 / 32);
                    guess_fast[i] *= std::exp(-1.0 / 2);
                }
            }
            current = layer;
        }
        last = now;
        if (used_in[id] != round[layer]) {
            slow[id] += 1 - std::exp(-1.0 / 32);
            fast[id] += 1 - std::exp(-1.0 / 2);
            used_in[id] = round[layer];
        }
        fresh[id] = false;
    }
    void arrived_ahead(std::uint32_t id) {
        inserted(id);
        const bool counted = used_in[id] == round[layer_of[id]] && slow[id] > 0;
        guess_slow[id] = slow[id] + (counted ? 0 : 1 - std::exp(-1.0 / 32));
        guess_fast[id] = fast[id] + (counted ? 0 : 1 - std::exp(-1.0 / 2));
    }
    [[nodiscard]] double time(std::uint32_t id) const {
        const auto layers = static_cast<std::uint32_t>(round.size());
        const std::uint32_t distance = (layer_of[id] + layers - current - 1) % layers + 1;
        const double p = fresh[id] ? (guess_slow[id] + guess_fast[id]) / 2 : (slow[id] + fast[id]) / 2;
        return static_cast<double>(distance) / layers + (1 - p) / p;
    }

    std::vector<std::uint32_t> layer_of;
    std::vector<double> slow, fast;
    std::vector<double> guess_slow = slow, guess_fast = fast;
    std::vector<bool> here, fresh;
    std::vector<std::int64_t> used_in;
    std::vector<std::int64_t> round;
    std::uint32_t current;
    std::uint64_t last = UINT64_MAX;
};

void check_against_naive(std::uint32_t seed, std::uint32_t layers, bool in_turn) {
    CAPTURE(seed);
    CAPTURE(layers);
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
    const std::uint32_t experts = 1 + below(20);
    const std::uint32_t storages = layers * experts;
    std::vector<std::uint32_t> groups;
    for (std::uint32_t i = 0; i < storages; ++i) { groups.push_back(i / experts); }
    const std::vector<std::uint64_t> bytes(storages, 1);
    evict::ExpectedUse evictor;
    REQUIRE(evictor.attach({bytes, storages, nullptr, layers == 1 ? std::vector<std::uint32_t>{} : groups}));
    Naive naive{groups, layers};
    const std::uint32_t capacity = 1 + below(storages);
    std::uint32_t held = 0;

    const auto make_room = [&](std::uint64_t now, std::uint32_t leased) {
        while (held >= capacity) {
            const auto may_leave = [&](StorageId id) { return (index(id) + now) % 5 >= leased; };
            const auto victim = evictor.victim(now, may_leave);
            double longest = -1;
            for (std::uint32_t i = 0; i < storages; ++i) {
                if (naive.here[i] && may_leave(StorageId{i})) { longest = std::max(longest, naive.time(i)); }
            }
            REQUIRE(victim.has_value() == (longest >= 0));
            if (!victim) { return; }
            REQUIRE(naive.here[index(*victim)]);
            REQUIRE(may_leave(*victim));
            REQUIRE(naive.time(index(*victim)) == doctest::Approx(longest).epsilon(1e-9));
            evictor.removed(*victim);
            naive.here[index(*victim)] = false;
            --held;
        }
    };
    std::uint64_t now = 0;
    for (std::uint32_t step = 0; step < 600; ++step, ++now) {
        const std::uint32_t layer = in_turn ? step % layers : below(layers);
        for (std::uint32_t i = 1 + below(3); i > 0; --i) {
            const std::uint32_t id = layer * experts + below(1 + below(experts));
            if (!naive.here[id]) {
                make_room(now, 0);
                evictor.inserted(StorageId{id}, now);
                naive.arrived_ahead(id);
                ++held;
            }
            evictor.used(StorageId{id}, now);
            naive.used(id, now);
        }
        if (below(4) == 0) {
            const std::uint32_t id = below(storages);
            if (!naive.here[id]) {
                make_room(now, 2);
                if (held < capacity) {
                    evictor.inserted(StorageId{id}, now);
                    naive.arrived_ahead(id);
                    ++held;
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("the victim has the longest expected time to its use") {
    for (std::uint32_t seed = 1; seed <= 30; ++seed) {
        check_against_naive(seed, 1 + seed % 7, true);
        check_against_naive(seed, 1 + seed % 7, false);
    }
}

TEST_CASE("what it cannot work with is refused") {
    const std::vector<std::uint64_t> bytes{1, 2};
    const std::vector<std::uint32_t> groups{0};
    evict::ExpectedUse evictor;
    CHECK(evictor.attach({bytes, 3, nullptr, groups}).error().kind() == ErrorKind::mismatch);
    evict::ExpectedUse inverted{{.slow_rounds = 4, .fast_rounds = 32}};
    CHECK(inverted.attach({bytes, 3}).error().kind() == ErrorKind::invalid_argument);
    const std::vector<std::uint32_t> far{0, 65536};
    const auto refused = evictor.attach({bytes, 3, nullptr, far});
    CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    CHECK(refused.error().message().find("storage 1 is in layer 65536") != std::string::npos);
    for (const evict::S3Fifo::Config wrong :
         {evict::S3Fifo::Config{.small_percent = 101}, evict::S3Fifo::Config{.ghost_percent = 200},
          evict::S3Fifo::Config{.promotion_uses = 4}}) {
        evict::S3Fifo queues{wrong};
        CHECK(queues.attach({bytes, 3}).error().kind() == ErrorKind::invalid_argument);
    }
    CHECK(evictor.attach({}));
    CHECK_FALSE(evictor.victim(0, evict::AllMayLeave{}).has_value());
}

TEST_CASE("rates that have decayed to nothing do no harm") {
    const std::vector<std::uint64_t> bytes(3, 1);
    evict::ExpectedUse evictor;
    REQUIRE(evictor.attach({bytes, 3}));
    evictor.inserted(StorageId{0}, 0);
    evictor.inserted(StorageId{1}, 0);
    evictor.inserted(StorageId{2}, 0);
    for (std::uint64_t now = 0; now < 100000; ++now) { evictor.used(StorageId{1}, now); }
    const auto victim = evictor.victim(100000, [](StorageId id) { return index(id) != 0; });
    CHECK(victim == StorageId{2});
}

}  // namespace expected_use_test
