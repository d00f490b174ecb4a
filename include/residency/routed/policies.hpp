// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who leaves a cache of experts whose router is on the device. The same code runs in kernels and on the host.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// What a policy may know when it is asked.
struct Now {
    std::uint64_t call = 0;    ///< that runs
    std::uint32_t layer = 0;   ///< that it serves
    std::uint32_t layers = 0;  ///< of the model
    std::uint32_t order = 0;   ///< of what is used in this call, below 4096

    /// Grows with every use.
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

// Rounded as the host rounds: a compiler for a GPU would make one operation of a product and a sum.
[[nodiscard]] RESIDENCY_HOST_DEVICE double plus(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(a, b);
#else
    return a + b;
#endif
}
[[nodiscard]] RESIDENCY_HOST_DEVICE double times(double a, double b) {
#ifdef __CUDA_ARCH__
    return __dmul_rn(a, b);
#else
    return a * b;
#endif
}

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
    /// By what a rate decays in a number of rounds.
    struct Decay {
        static constexpr std::uint32_t size = 128;  ///< of each table
        double of_use = 0;                          ///< what one use adds
        double rounds[size] = {};                   ///< in 0 … size − 1 rounds
        double hundreds[size] = {};                 ///< in 0, size, 2 size … rounds

        /// 0 beyond the tables.
        [[nodiscard]] RESIDENCY_HOST_DEVICE double after(std::uint32_t passed) const {
            if (passed < size) { return rounds[passed]; }
            return passed / size < size ? times(rounds[passed % size], hundreds[passed / size]) : 0.0;
        }
    };
    /// The decay of both rates.
    struct Numbers {
        Decay slow;  ///< of slow_rounds
        Decay fast;  ///< of fast_rounds
    };
    /// Sums of decayed uses, as of a round of the expert's layer.
    struct Rates {
        double slow = 0;          ///< whose mean
        double fast = 0;          ///< is the use rate
        std::uint32_t round = 0;  ///< of the layer
    };
    using OfExpert = Rates;  ///< of its uses, remembered while it has no slot
    using OfSlot = Rates;    ///< that it ranks by

    /// As Policy says.
    /// @{
    [[nodiscard]] static Result<Numbers> numbers(const Config& config) {
        if (!residency::detail::is_positive(config.fast_rounds) || residency::detail::is_nan(config.slow_rounds) ||
            config.fast_rounds >= config.slow_rounds) {
            return Error{ErrorKind::invalid_argument, "routed::ExpectedUse needs 0 < fast_rounds < slow_rounds"};
        }
        Numbers numbers;
        fill(numbers.slow, config.slow_rounds);
        fill(numbers.fast, config.fast_rounds);
        return numbers;
    }
    RESIDENCY_HOST_DEVICE static void inserted(const Numbers& numbers, OfSlot& slot, const OfExpert& expert,
                                               std::uint32_t round, const Now&) {
        slot = with_use(numbers, expert, round);
    }
    RESIDENCY_HOST_DEVICE static void used(const Numbers& numbers, OfSlot& slot, OfExpert& expert, std::uint32_t round,
                                           const Now&) {
        expert = with_use(numbers, expert, round);
        slot = expert;
    }
    // Expected rounds until the next use: d / layers + (1 − p) / p, with d the layers until the expert's is next and p the mean of its rates.
    [[nodiscard]] RESIDENCY_HOST_DEVICE static Key key(const Numbers& numbers, const OfSlot& slot, std::uint32_t layer,
                                                       std::uint32_t round, const Now& now) {
        const Rates rates = at(numbers, slot, round);
        const double mean = times(plus(rates.slow, rates.fast), 0.5);
        const double p = mean < 1e-300 ? 1e-300 : mean;
        const std::uint32_t ahead = layer > now.layer ? layer - now.layer : layer + now.layers - now.layer;
        return {plus(static_cast<double>(ahead) / now.layers, plus(1.0, -p) / p), -rates.slow};
    }
    /// @}

private:
    static void fill(Decay& decay, double rounds) {
        decay.of_use = 1 - std::exp(-1 / rounds);
        for (std::uint32_t i = 0; i < Decay::size; ++i) {
            decay.rounds[i] = std::exp(-static_cast<double>(i) / rounds);
            decay.hundreds[i] = std::exp(-static_cast<double>(i) * Decay::size / rounds);
        }
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE static Rates at(const Numbers& numbers, const Rates& rates,
                                                        std::uint32_t round) {
        const std::uint32_t passed = round - rates.round;
        return {times(rates.slow, numbers.slow.after(passed)), times(rates.fast, numbers.fast.after(passed)), round};
    }
    // A second use in a round does not count.
    [[nodiscard]] RESIDENCY_HOST_DEVICE static Rates with_use(const Numbers& numbers, const Rates& rates,
                                                              std::uint32_t round) {
        if (rates.round == round && rates.slow > 0) { return rates; }
        Rates now = at(numbers, rates, round);
        now.slow = plus(now.slow, numbers.slow.of_use);
        now.fast = plus(now.fast, numbers.fast.of_use);
        return now;
    }
};

/// Who leaves a cache of experts, in code that kernels run.
///
///  1. `P::numbers(config)`                              what it computes with, or an error; on the host
///  2. `P::inserted(numbers, of_slot, of_expert, round, now)`   an expert got the slot by a guess; `round` is its layer's
///  3. `P::used(numbers, of_slot, of_expert, round, now)`       an expert was chosen
///  4. `P::key(numbers, of_slot, layer, round, now)`     the expert with the largest key leaves
///
/// OfSlot and OfExpert begin as default-constructed; each is written by one thread at a time.
template <class P>
concept Policy =
    std::is_trivially_copyable_v<typename P::Numbers> && std::is_trivially_copyable_v<typename P::OfSlot> &&
    std::is_trivially_copyable_v<typename P::OfExpert> &&
    requires(const typename P::Config& config, const typename P::Numbers& numbers, typename P::OfSlot& slot,
             typename P::OfExpert& expert, std::uint32_t value, const Now& now) {
        { P::numbers(config) } -> std::same_as<Result<typename P::Numbers>>;
        P::inserted(numbers, slot, expert, value, now);
        P::used(numbers, slot, expert, value, now);
        { P::key(numbers, slot, value, value, now) } -> std::same_as<Key>;
    };
static_assert(Policy<Lru> && Policy<Lfu> && Policy<ExpectedUse>);

}}}  // namespace residency::RESIDENCY_ABI::routed
