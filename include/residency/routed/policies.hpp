// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who leaves a cache of experts whose router is on the device. The same code runs in kernels and on the host.

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/evict/use_rates.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// What a policy may know when it is asked.
struct Now {
    std::uint64_t call = 0;    ///< that runs
    std::uint32_t layer = 0;   ///< that it serves
    std::uint32_t layers = 0;  ///< of the model
    std::uint32_t order = 0;   ///< of what is used in this call, below 4096
    double share = 0;          ///< of one layer in a round: 1 / layers

    /// Grows with every call, and in one with what has a slot: first those that had it, in the order of their choices, then those that got it.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint64_t time() const { return call * 4096 + order; }
};

/// How soon an expert may leave: the one with the larger key leaves first.
struct Key {
    double first = 0;   ///< counts
    double second = 0;  ///< where the first ones are equal

    /// Whether this one leaves before the other.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool is_over(const Key& other) const {
        return first > other.first || (first == other.first && second > other.second);
    }
};

/// The least recently used expert leaves.
struct Lru {
    struct Config {};    ///< nothing to choose
    struct Numbers {};   ///< none
    struct OfExpert {};  ///< nothing is remembered
    /// What an expert in a slot ranks by.
    struct OfSlot {
        std::uint64_t last = 0;  ///< use
    };

    /// As Policy says.
    /// @{
    [[nodiscard]] static Result<Numbers> numbers(const Config&) { return Numbers{}; }
    RESIDENCY_HOST_DEVICE static void inserted(const Numbers&, OfSlot& slot, const OfExpert&, std::uint32_t,
                                               const Now& now) {
        slot.last = now.time();
    }
    RESIDENCY_HOST_DEVICE static void used(const Numbers&, OfSlot& slot, OfExpert&, std::uint32_t, const Now& now) {
        slot.last = now.time();
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE static Key key(const Numbers&, const OfSlot& slot, std::uint32_t, std::uint32_t,
                                                       const Now&) {
        return {-static_cast<double>(slot.last), 0};
    }
    /// @}
};

/// The expert with the fewest uses since it came leaves; among equals the least recently used one.
struct Lfu {
    struct Config {};    ///< nothing to choose
    struct Numbers {};   ///< none
    struct OfExpert {};  ///< nothing is remembered
    /// What an expert in a slot ranks by.
    struct OfSlot {
        std::uint64_t uses = 0;  ///< since the expert came
        std::uint64_t last = 0;  ///< use
    };

    /// As Policy says.
    /// @{
    [[nodiscard]] static Result<Numbers> numbers(const Config&) { return Numbers{}; }
    RESIDENCY_HOST_DEVICE static void inserted(const Numbers&, OfSlot& slot, const OfExpert&, std::uint32_t,
                                               const Now& now) {
        slot = {0, now.time()};
    }
    RESIDENCY_HOST_DEVICE static void used(const Numbers&, OfSlot& slot, OfExpert&, std::uint32_t, const Now& now) {
        slot = {slot.uses + 1, now.time()};
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE static Key key(const Numbers&, const OfSlot& slot, std::uint32_t, std::uint32_t,
                                                       const Now&) {
        return {-static_cast<double>(slot.uses), -static_cast<double>(slot.last)};
    }
    /// @}
};

/// The expert with the largest expected time to its next use leaves: the numbers of evict::ExpectedUse. A round of a layer begins when
/// it is served.
struct ExpectedUse {
    /// How fast it forgets.
    struct Config {
        double slow_rounds = 32;  ///< rounds in which the slow rate falls to 1/e
        double fast_rounds = 2;   ///< rounds in which the fast rate falls to 1/e; fewer than slow_rounds
    };
    using Numbers = evict::UseDecay;   ///< of both rates
    using OfExpert = evict::UseRates;  ///< of its uses, remembered while it has no slot
    using OfSlot = evict::UseRates;    ///< that it ranks by

    /// As Policy says.
    /// @{
    [[nodiscard]] static Result<Numbers> numbers(const Config& config) {
        return Numbers::try_make(config.slow_rounds, config.fast_rounds, "routed::ExpectedUse");
    }
    RESIDENCY_HOST_DEVICE static void inserted(const Numbers& numbers, OfSlot& slot, const OfExpert& expert,
                                               std::uint32_t round, const Now&) {
        slot = numbers.with_use(expert, round);
    }
    RESIDENCY_HOST_DEVICE static void used(const Numbers& numbers, OfSlot& slot, OfExpert& expert, std::uint32_t round,
                                           const Now&) {
        expert = numbers.with_use(expert, round);
        slot = expert;
    }
    // d / layers + (1 − p) / p rounds, with d the layers until the expert's is next.
    [[nodiscard]] RESIDENCY_HOST_DEVICE static Key key(const Numbers& numbers, const OfSlot& slot, std::uint32_t layer,
                                                       std::uint32_t round, const Now& now) {
        const evict::UseRates rates = numbers.at(slot, round);
        const std::uint32_t ahead = layer > now.layer ? layer - now.layer : layer + now.layers - now.layer;
        return {Numbers::sum(Numbers::product(ahead, now.share), Numbers::rounds_to_use(Numbers::rate(rates))),
                -rates.slow};
    }
    /// @}
};

/// Who leaves a cache of experts, in code that kernels run.
///
///  1. `P::numbers(config)`                              what it computes with, or an error; on the host
///  2. `P::inserted(numbers, of_slot, of_expert, round, now)`   an expert got the slot, chosen or guessed; `round` counts its layer's calls
///  3. `P::used(numbers, of_slot, of_expert, round, now)`       an expert was chosen, also one that got its slot just now
///  4. `P::key(numbers, of_slot, layer, round, now)`     the expert with the largest key leaves
///
/// 2 to 4 are also tried on copies, which nobody keeps: of an expert that might get a slot, or is read in host memory; and of what other threads
/// write meanwhile: they end for any numbers. OfSlot and OfExpert
/// begin as default-constructed; each is written by one thread at a time, and threads make the calls 2 and 3 of one serve() in any order.
/// conformance::check_routed_policy checks:
///
///  - X1  numbers() takes the default Config.
///  - X2  No number of a key is NaN, which leaves neither first nor last; the first is below 1e308, that of a free slot. Minus infinity
///        leaves last.
///  - X3  inserted() writes all that key() reads of a slot: nothing is left of the expert that had it before.
///  - X4  Nothing else is remembered: no variable of its own, no clock, no chance.
template <class P>
concept Policy =
    std::is_trivially_copyable_v<typename P::Numbers> && std::is_trivially_copyable_v<typename P::OfSlot> &&
    std::is_trivially_copyable_v<typename P::OfExpert> && std::default_initializable<typename P::OfSlot> &&
    std::default_initializable<typename P::OfExpert> && std::default_initializable<typename P::Config> &&
    requires(const typename P::Config& config, const typename P::Numbers& numbers, typename P::OfSlot& slot,
             typename P::OfExpert& expert, const typename P::OfSlot& kept, const typename P::OfExpert& known,
             std::uint32_t value, const Now& now) {
        { P::numbers(config) } -> std::same_as<Result<typename P::Numbers>>;
        P::inserted(numbers, slot, known, value, now);
        P::used(numbers, slot, expert, value, now);
        { P::key(numbers, kept, value, value, now) } -> std::same_as<Key>;
    };
static_assert(Policy<Lru> && Policy<Lfu> && Policy<ExpectedUse>);

}}}  // namespace residency::RESIDENCY_ABI::routed
