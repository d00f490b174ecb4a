// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/evict/eviction_policy.hpp"
#include "residency/model/use_order.hpp"

namespace residency::conformance {

/// How check_eviction_policy runs.
struct EvictionSuite {
    std::uint32_t seed = 1;        ///< of the first run
    std::uint32_t runs = 40;       ///< with other sizes, another budget and another order each
    std::uint32_t accesses = 400;  ///< in each run
    /// Returns how many allocations there were. Empty: E4 is not checked.
    std::function<std::uint64_t()> allocations = nullptr;
};

namespace detail {

/// A cache of random storages. It drives one evictor through random accesses, arrivals ahead of use, leases and departures, and checks
/// the contract after each call.
template <evict::EvictionPolicy E>
class EvictionRun {
public:
    EvictionRun(const EvictionSuite& suite, std::uint32_t seed) : suite_{suite}, random_{seed}, when_to_move_{seed} {
        const std::uint32_t storages = 1 + below(60);
        const std::uint32_t layers = 1 + below(8);
        std::uint64_t total = 0;
        std::uint64_t largest = 1;
        for (std::uint32_t i = 0; i < storages; ++i) {
            bytes_.push_back(below(10) == 0 ? 1 + below(4096) : 64 * (1 + below(16)));
            first_steps_.push_back(i * layers / storages);
            total += bytes_.back();
            largest = std::max(largest, bytes_.back());
        }
        std::vector<std::uint64_t> offsets{0};
        std::vector<StorageId> steps;
        for (std::uint32_t step = 0; step < 1 + below(40); ++step) {
            for (std::uint32_t i = 0; i < below(4); ++i) { steps.push_back(StorageId{below(storages)}); }
            offsets.push_back(steps.size());
        }
        order_ = *UseOrder::try_from(offsets, steps, storages, below(2) == 0 ? Cycle::cyclic : Cycle::one_shot);
        capacity_ = largest + (total - largest) * below(100) / 100;
        is_here_.assign(storages, false);
        leases_.assign(storages, 0);
    }

    /// Makes one run, and returns the victims in order. With `moves`, the evictor object is moved now and then.
    std::vector<StorageId> run(std::optional<E>& here, bool moves) {
        REQUIRE_MESSAGE(here->attach(context()), "attach");
        for (std::uint32_t access = 0; access < suite_.accesses && !failed_; ++access) {
            if (moves && when_to_move_() % 20 == 0) {
                E elsewhere{std::move(*here)};
                here.emplace(std::move(elsewhere));
            }
            E& evictor = *here;
            now_ += below(3) == 0 ? below(3) : 0;
            const StorageId id{below(static_cast<std::uint32_t>(bytes_.size()))};
            switch (below(12)) {
                case 0: arrive(evictor, id); break;
                case 1: depart(evictor, id); break;
                case 2: leases_[index(id)] = leases_[index(id)] == 0 && is_here_[index(id)] ? 1 : 0; break;
                case 3: probe(evictor); break;
                default:
                    if (arrive(evictor, id)) {
                        count([&] { evictor.used(id, now_); });
                    }
            }
        }
        probe(*here);
        return victims_;
    }

private:
    [[nodiscard]] evict::Context context() const { return {bytes_, capacity_, &order_, first_steps_}; }
    [[nodiscard]] std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
    [[nodiscard]] bool may_leave(StorageId id) const { return leases_[index(id)] == 0; }

    /// E4: calls the evictor and checks that it allocated nothing.
    template <class Call>
    void count(Call call) {
        const std::uint64_t before = suite_.allocations ? suite_.allocations() : 0;
        call();
        const std::uint64_t after = suite_.allocations ? suite_.allocations() : 0;
        expect(before == after, "E4: inserted, used, removed and victim allocate nothing");
    }
    void expect(bool holds, const char* rule) {
        if (!holds && !failed_) {
            failed_ = true;
            FAIL_CHECK(std::string{rule});
        }
    }

    template <class MayLeave>
    std::optional<StorageId> ask(E& evictor, MayLeave allowed) {
        std::optional<StorageId> victim;
        bool passed_absent = false;
        count([&] {
            victim = evictor.victim(now_, [&](StorageId id) {
                passed_absent = passed_absent || !is_here_[index(id)];
                return allowed(id);
            });
        });
        bool any = false;
        for (std::uint32_t i = 0; i < bytes_.size(); ++i) { any = any || (is_here_[i] && allowed(StorageId{i})); }
        expect(!passed_absent, "E1: only storages on the device are looked at");
        expect(!victim || (index(*victim) < bytes_.size() && is_here_[index(*victim)] && allowed(*victim)),
               "E1: a victim is on the device and may leave");
        expect(victim.has_value() == any, "E2: there is a victim if and only if a storage on the device may leave");
        return failed_ ? std::nullopt : victim;
    }
    /// Makes room as a cache does, then tells the evictor of the arrival. False: leases leave no room.
    bool arrive(E& evictor, StorageId id) {
        if (is_here_[index(id)]) { return true; }
        if (bytes_[index(id)] > capacity_) { return false; }
        while (here_bytes_ + bytes_[index(id)] > capacity_) {
            const auto victim = ask(evictor, [&](StorageId other) { return may_leave(other); });
            if (!victim) { return false; }
            victims_.push_back(*victim);
            depart(evictor, *victim);
        }
        is_here_[index(id)] = true;
        here_bytes_ += bytes_[index(id)];
        count([&] { evictor.inserted(id, now_); });
        return true;
    }
    void depart(E& evictor, StorageId id) {
        if (!is_here_[index(id)] || !may_leave(id)) { return; }
        is_here_[index(id)] = false;
        here_bytes_ -= bytes_[index(id)];
        count([&] { evictor.removed(id); });
    }
    /// E1–E3 without a departure: asks for a victim again and again, of fewer and fewer candidates, down to none.
    void probe(E& evictor) {
        std::vector<bool> passed(bytes_.size(), false);
        for (;;) {
            const auto victim = ask(evictor, [&](StorageId id) { return may_leave(id) && !passed[index(id)]; });
            if (!victim) { break; }
            passed[index(*victim)] = true;
            victims_.push_back(*victim);
        }
        for (std::uint32_t i = 0; i < bytes_.size() && !failed_; ++i) {
            expect(!is_here_[i] || leases_[i] != 0 || passed[i],
                   "E3: a storage stays on the device until it is removed");
        }
    }

    const EvictionSuite& suite_;
    std::mt19937 random_;
    std::mt19937 when_to_move_;
    std::vector<std::uint64_t> bytes_;
    std::vector<std::uint32_t> first_steps_;
    UseOrder order_;
    std::uint64_t capacity_ = 0;
    std::uint64_t here_bytes_ = 0;
    std::vector<bool> is_here_;
    std::vector<std::uint32_t> leases_;
    StepIndex now_ = 0;
    std::vector<StorageId> victims_;
    bool failed_ = false;
};

}  // namespace detail

/// Checks the rules E1–E6 of evict::EvictionPolicy on random runs, and reports through doctest with the seed of the run. `make`
/// returns an evictor as a user would configure it.
///
///     TEST_CASE("my evictor") { residency::conformance::check_eviction_policy<MyEvictor>(); }
template <evict::EvictionPolicy E>
void check_eviction_policy(const EvictionSuite& suite = {}, const std::function<E()>& make = [] { return E{}; }) {
    static_assert(std::is_nothrow_move_constructible_v<E>, "E6: policies are nothrow movable");
    static_assert(std::is_default_constructible_v<E>, "E6: policies are default constructible");
    std::optional<E> reused{make()};
    for (std::uint32_t run = 0; run < suite.runs; ++run) {
        const std::uint32_t seed = suite.seed + run;
        CAPTURE(seed);
        std::optional<E> fresh{make()};
        const auto victims = detail::EvictionRun<E>{suite, seed}.run(fresh, false);
        const auto again = detail::EvictionRun<E>{suite, seed}.run(reused, true);
        CHECK_MESSAGE(victims == again,
                      "E5, E6: the same calls give the same victims, also after another attach and from an evictor "
                      "that is moved");
    }
}

}  // namespace residency::conformance
