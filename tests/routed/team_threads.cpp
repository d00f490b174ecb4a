// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A decision by several threads of the host, as by those of a block: what one thread decides, and no race.
#include "residency/routed/serve.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "residency/conformance/routed_policy.hpp"
#include "residency/routed/on_host.hpp"

namespace team_test {

namespace r = residency::routed;

namespace {

constexpr std::uint32_t members = 4;

struct Shared {
    std::barrier<> all{members};
    std::array<std::array<r::Candidate, members>, 2> best;
    std::array<bool, members> flags{};
};

/// One of the threads.
struct Member {
    static constexpr std::uint32_t size = members;
    std::uint32_t rank = 0;
    Shared& shared;
    mutable unsigned turn = 0;

    void sync() const { shared.all.arrive_and_wait(); }
    [[nodiscard]] std::uint32_t count_before(bool flag, std::uint32_t& total) const {
        shared.flags[rank] = flag;
        sync();
        const auto begin = shared.flags.begin();
        total = static_cast<std::uint32_t>(std::count(begin, shared.flags.end(), true));
        const auto before = static_cast<std::uint32_t>(std::count(begin, begin + rank, true));
        sync();
        return before;
    }
    [[nodiscard]] r::Candidate first_of(const r::Candidate& own) const {
        auto& best = shared.best[turn++ % 2];  // the other half may still be read
        best[rank] = own;
        sync();
        return *std::ranges::min_element(best,
                                         [](const r::Candidate& a, const r::Candidate& b) { return a.is_before(b); });
    }
    void lower(std::uint32_t& value, std::uint32_t other) const {
        const std::atomic_ref shared_value{value};
        std::uint32_t now = shared_value.load();
        while (other < now && !shared_value.compare_exchange_weak(now, other)) {}
    }
    void add(std::uint64_t& sum, std::uint64_t value) const { std::atomic_ref{sum}.fetch_add(value); }
    [[nodiscard]] bool set_first(std::uint32_t& flag) const { return std::atomic_ref{flag}.exchange(1) == 0; }
    void publish(std::uint32_t& flag) const { std::atomic_ref{flag}.store(1); }
};

/// A cache whose decisions several threads make.
template <class P>
struct Team {
    r::OnHost<P> cache;
    std::vector<std::uint32_t> first;
    Shared shared{};
    r::Scratch scratch{};
    std::vector<std::int32_t> slots{};

    void decide(std::uint32_t layer, const std::vector<std::int32_t>& chosen, bool is_guess) {
        std::vector<const std::byte*> addresses(chosen.size());
        slots.assign(chosen.size(), -1);
        const r::Call call{layer,
                           first[layer],
                           first[layer + 1] - first[layer],
                           static_cast<std::uint32_t>(chosen.size()),
                           r::ChoiceType::i32,
                           chosen.data(),
                           addresses.data(),
                           slots.data(),
                           cache.state.layer};
        std::vector<std::thread> threads;
        for (std::uint32_t rank = 0; rank < members; ++rank) {
            threads.emplace_back([&, rank] {
                const Member member{rank, shared};
                r::Decision<P, Member>{member, scratch, cache.tables, call, is_guess}.make();
            });
        }
        for (std::thread& each : threads) { each.join(); }
        for (std::uint32_t i = 0; is_guess && i < cache.state.guess_fills; ++i) {
            cache.state.guess_next += cache.tables.guess_fills[i].pieces - cache.tables.guess_fills[i].first_piece;
        }
    }
};

}  // namespace

TEST_CASE_TEMPLATE("routed: threads decide together as one does alone", P, r::ExpectedUse, r::Lru) {
    constexpr std::uint32_t layers = 3, per_layer = 24;
    for (const bool in_place : {false, true}) {
        CAPTURE(in_place);
        std::mt19937 random{in_place ? 2U : 1U};
        const std::vector<std::uint32_t> first = residency::conformance::detail::equal_layers(layers, per_layer);
        Team<P> team{r::OnHost<P>{first, 40, 1000}, first};
        r::OnHost<P> alone{first, 40, 1000};
        team.cache.tables.reads_in_place = alone.tables.reads_in_place = in_place;
        const auto choose = [&](std::size_t most) {
            std::vector<std::int32_t> chosen(1 + random() % most);
            for (std::int32_t& each : chosen) {
                each = static_cast<std::int32_t>(random() % (per_layer + 1)) - 1;  // below 0: padding
            }
            return chosen;
        };
        std::uint64_t ahead = 0;
        std::uint32_t layer = 0;
        for (std::uint32_t call = 0; call < 200; ++call) {
            CAPTURE(call);
            layer = (layer + (random() % 10 == 0 ? static_cast<std::uint32_t>(random() % layers) : 1)) % layers;
            if (random() % 5 == 0) {
                const std::vector<std::int32_t> guessed = choose(10);
                team.decide(layer, guessed, true);
                alone.guess(layer, guessed);
            }
            const std::vector<std::int32_t> chosen = choose(random() % 8 == 0 ? 40 : 10);
            ahead += team.cache.state.ahead_of == team.cache.state.call + 1 ? 1 : 0;
            team.decide(layer, chosen, false);
            alone.serve(layer, chosen);
            REQUIRE(std::equal(team.slots.begin(), team.slots.end(), alone.slots().begin()));
            for (std::uint32_t expert = 0; expert < layers * per_layer; ++expert) {
                REQUIRE(team.cache.has(expert) == alone.has(expert));
            }
        }
        CHECK(team.cache.state.counters.misses == alone.state.counters.misses);
        CHECK(team.cache.state.counters.guess_hits == alone.state.counters.guess_hits);
        CHECK(ahead > 100);
    }
}

}  // namespace team_test
