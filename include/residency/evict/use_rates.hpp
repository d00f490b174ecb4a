// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// How often a storage is used, as evict::ExpectedUse and routed::ExpectedUse count it. Kernels run the same code.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Sums of decayed uses, as of a round of the storage's layer. Their mean is the use rate.
struct UseRates {
    double slow = 0;          ///< decays over slow rounds
    double fast = 0;          ///< decays over fast rounds
    std::uint32_t round = 0;  ///< of the layer
};

/// How two rates decay. Every operation is rounded as the host rounds it: a compiler for a GPU would join a product and a sum.
class UseDecay {
public:
    UseDecay() = default;  ///< decays nothing that is of use: see try_make()
    /// Error invalid_argument where 0 < fast_rounds < slow_rounds does not hold; `who` needs it.
    [[nodiscard]] static Result<UseDecay> try_make(double slow_rounds, double fast_rounds, const char* who) {
        if (!residency::detail::is_positive(fast_rounds) || residency::detail::is_nan(slow_rounds) ||
            fast_rounds >= slow_rounds) {
            return Error{ErrorKind::invalid_argument, std::string{who} + " needs 0 < fast_rounds < slow_rounds"};
        }
        UseDecay decay;
        decay.slow_ = Factors{slow_rounds};
        decay.fast_ = Factors{fast_rounds};
        return decay;
    }

    /// The rates as of a later round.
    [[nodiscard]] RESIDENCY_HOST_DEVICE UseRates at(const UseRates& rates, std::uint32_t round) const {
        const std::uint32_t passed = round - rates.round;
        return {product(rates.slow, slow_.after(passed)), product(rates.fast, fast_.after(passed)), round};
    }
    /// The rates as of a round with a use in it. A second use in a round does not count.
    [[nodiscard]] RESIDENCY_HOST_DEVICE UseRates with_use(const UseRates& rates, std::uint32_t round) const {
        if (rates.round == round && rates.slow > 0) { return rates; }
        UseRates now = at(rates, round);
        now.slow = sum(now.slow, slow_.of_use);
        now.fast = sum(now.fast, fast_.of_use);
        return now;
    }
    /// The mean of the two, above 0.
    [[nodiscard]] RESIDENCY_HOST_DEVICE static double rate(const UseRates& rates) {
        const double mean = sum(rates.slow, rates.fast) / 2;
        return mean < least_rate ? least_rate : mean;
    }
    /// Expected rounds until the next use, beside those until the layer's turn.
    [[nodiscard]] RESIDENCY_HOST_DEVICE static double rounds_to_use(double rate) { return sum(1, -rate) / rate; }
    /// Sums and products that stay apart.
    /// @{
    [[nodiscard]] RESIDENCY_HOST_DEVICE static double sum(double a, double b) {
#ifdef __CUDA_ARCH__
        return __dadd_rn(a, b);
#else
        return a + b;
#endif
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE static double product(double a, double b) {
#ifdef __CUDA_ARCH__
        return __dmul_rn(a, b);
#else
        return a * b;
#endif
    }
    /// @}

private:
    static constexpr double least_rate = (std::numeric_limits<double>::min)();

    /// The factors by which one rate decays, by the digits of a number of rounds: kernels look them up.
    struct Factors {
        static constexpr std::uint32_t base = 128, digits = 5;
        double of_use = 0;  // what one use adds
        double of[digits][base] = {};

        Factors() = default;
        explicit Factors(double rounds) noexcept : of_use{1 - std::exp(-1 / rounds)} {
            double value = 1;
            for (auto& of_digit : of) {
                for (std::uint32_t i = 0; i < base; ++i) { of_digit[i] = std::exp(-value * i / rounds); }
                value *= base;
            }
        }
        [[nodiscard]] RESIDENCY_HOST_DEVICE double after(std::uint32_t rounds) const {
            double factor = of[0][rounds % base];
            RESIDENCY_ROLLED
            for (std::uint32_t digit = 1; (rounds /= base) != 0; ++digit) {
                factor = product(factor, of[digit][rounds % base]);
            }
            return factor;
        }
    };

    Factors slow_, fast_;
};

}}}  // namespace residency::RESIDENCY_ABI::evict
