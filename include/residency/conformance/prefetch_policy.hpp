// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/model/use_order.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency::conformance {

/// How check_prefetch_policy runs. `prepare` is called before each proposal, for prefetchers that take hints: with the prefetcher,
/// the number of storages, the present step, and a number that is the same in every repetition of a run.
template <prefetch::PrefetchPolicy P>
struct PrefetchSuite {
    std::uint32_t seed = 1;     ///< of the first run
    std::uint32_t runs = 40;    ///< with other sizes and another order each
    std::uint32_t steps = 120;  ///< in each run
    /// Returns how many allocations there were. Empty: the first half of R1 is not checked.
    std::function<std::uint64_t()> allocations = nullptr;
    /// Called before each proposal; may be empty.
    std::function<void(P&, std::uint32_t storages, StepIndex now, std::uint32_t number)> prepare = nullptr;
};

namespace detail {

struct Proposal {
    StorageId storage;
    StepIndex needed_at;
    friend bool operator==(const Proposal&, const Proposal&) = default;
};

template <prefetch::PrefetchPolicy P>
std::vector<Proposal> prefetch_run(const PrefetchSuite<P>& suite, std::uint32_t seed, std::optional<P>& here,
                                   bool moves) {
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
    const std::uint32_t storages = 1 + below(50);
    std::vector<std::uint64_t> bytes;
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < storages; ++i) {
        bytes.push_back(1 + below(4096));
        total += bytes.back();
    }
    std::vector<std::uint64_t> offsets{0};
    std::vector<StorageId> uses;
    const std::uint32_t steps = 1 + below(40);
    for (std::uint32_t step = 0; step < steps; ++step) {
        for (std::uint32_t i = below(4); i > 0; --i) { uses.push_back(StorageId{below(storages)}); }
        offsets.push_back(uses.size());
    }
    const UseOrder order =
        *UseOrder::try_from(offsets, uses, storages, below(2) == 0 ? Cycle::cyclic : Cycle::one_shot);
    REQUIRE_MESSAGE(here->attach({bytes, total / 2, &order}), "attach");

    std::vector<Proposal> all;
    std::vector<Proposal> now_proposed;
    now_proposed.reserve(std::size_t{storages} + 1);
    StepIndex now = 0;
    for (std::uint32_t i = 0; i < suite.steps; ++i, now += below(8) == 0 ? below(30) : 1) {
        if (suite.prepare) { suite.prepare(*here, storages, now, static_cast<std::uint32_t>(random())); }
        if (moves && i % 7 == 3) {
            P elsewhere{std::move(*here)};
            here.emplace(std::move(elsewhere));
        }
        const std::size_t patience = below(3) == 0 ? below(4) : storages + 1;
        now_proposed.clear();
        bool went_on_after_no = false;
        bool is_valid = true;
        const auto sink = [&](StorageId id, StepIndex needed_at) {
            went_on_after_no = went_on_after_no || now_proposed.size() > patience;
            is_valid = is_valid && index(id) < storages && now_proposed.size() <= storages;
            if (now_proposed.size() <= storages) { now_proposed.push_back({id, needed_at}); }
            return is_valid && now_proposed.size() <= patience;
        };
        const std::uint64_t before = suite.allocations ? suite.allocations() : 0;
        here->propose(now, sink);
        const std::uint64_t after = suite.allocations ? suite.allocations() : 0;
        CHECK_MESSAGE(before == after, "R1: propose allocates nothing");
        CHECK_MESSAGE(!went_on_after_no, "propose ends when the sink says false");
        CHECK_MESSAGE(is_valid, "R1, R2: proposals are storages of the catalog, no more than there are");
        for (std::size_t a = 0; a < now_proposed.size(); ++a) {
            for (std::size_t b = 0; b < a; ++b) {
                CHECK_MESSAGE(now_proposed[a].storage != now_proposed[b].storage,
                              "R2: the same storage is offered at most once a call");
            }
        }
        all.insert(all.end(), now_proposed.begin(), now_proposed.end());
        if constexpr (P::interruptible) {
            if (below(4) == 0) {
                here->clear();
                bool offered = false;
                const auto none_expected = [&](StorageId, StepIndex) { return offered = true, false; };
                here->propose(now, none_expected);
                CHECK_MESSAGE(!offered, "R4: after clear() nothing is offered that earlier guesses led to");
            }
        }
    }
    return all;
}

}  // namespace detail

/// Checks the rules R1–R5 of prefetch::PrefetchPolicy on random runs, and reports through doctest with the seed of the run. `make`
/// returns a prefetcher as a user would configure it.
template <prefetch::PrefetchPolicy P>
void check_prefetch_policy(const PrefetchSuite<P>& suite = {}, const std::function<P()>& make = [] { return P{}; }) {
    static_assert(std::is_nothrow_move_constructible_v<P>, "R5: policies are nothrow movable");
    static_assert(std::is_default_constructible_v<P>, "R5: policies are default constructible");
    std::optional<P> reused{make()};
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run;
        CAPTURE(seed);
        std::optional<P> fresh{make()};
        const auto proposals = detail::prefetch_run(suite, seed, fresh, false);
        CHECK_MESSAGE(
            proposals == detail::prefetch_run(suite, seed, reused, true),
            "R3, R5: the same calls give the same proposals, also after another attach and from one that is moved");
    }
}

}  // namespace residency::conformance
