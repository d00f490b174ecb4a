// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

/// A linear program whose rows are found one after the other: least cost · x for 0 <= x <= most and rows a · x <= b, by the dual simplex
/// method on a dense dictionary (Lemke 1954; bounds as in Dantzig's). No cost is negative, so that x = 0 is a first basis, and a row that is
/// added later leaves the basis as it is. What it says of the least cost it proves from the rows as they were given: rounding in the
/// dictionary makes proven() smaller, and never wrong. Coefficients are of the order of 1.
class DualSimplex {
public:
    /// A column and its coefficient.
    using Term = std::pair<std::uint32_t, double>;

    /// Columns come before rows. Returns its number. Precondition: cost >= 0; most > 0, and finite.
    std::uint32_t add_column(double cost, double most) {
        const auto column = static_cast<std::uint32_t>(value_.size());
        value_.push_back(0);
        most_.push_back(most);
        cost_.push_back(cost);
        reduced_.push_back(cost);
        beside_.push_back(column);
        row_of_.push_back(nowhere);
        place_of_.push_back(column);
        return column;
    }
    /// Adds Σ coefficient · column <= most. A column may come repeatedly.
    void add_row(std::span<const Term> terms, double most);
    /// Finds the least cost under the rows. False: no x meets them, which is proven where is_impossible(); or rounding is in the way, or
    /// there were more than `pivots` pivots in all.
    [[nodiscard]] bool solve(std::uint64_t pivots);
    /// A bound of the least cost from below, by the duals of the basis.
    [[nodiscard]] double proven() const;
    [[nodiscard]] bool is_impossible() const noexcept { return is_impossible_; }
    /// Forgets the rows that the solution meets with room to spare. solve() has returned true.
    void drop_loose_rows();
    /// Begins again at x = 0 with the rows as they were given, without the rounding of the pivots so far. solve() has to follow.
    void rebuild();

    [[nodiscard]] double value(std::uint32_t column) const { return value_[column]; }
    [[nodiscard]] std::size_t rows() const noexcept { return basis_.size(); }
    [[nodiscard]] std::uint64_t pivots() const noexcept { return pivots_; }
    /// The cost of the solution.
    [[nodiscard]] double objective() const {
        double sum = 0;
        for (std::size_t c = 0; c < cost_.size(); ++c) { sum += cost_[c] * value_[c]; }
        return sum;
    }

private:
    static constexpr std::uint32_t nowhere = UINT32_MAX;
    static constexpr double tiny_value = 1e-12;    // by which a variable may miss its bounds
    static constexpr double tiny_pivot = 1e-7;     // below it no pivot
    static constexpr double tiny_cost = 1e-13;     // of ratios that are taken for equal
    static constexpr double loose = 1e-6;          // the room to spare of rows that are forgotten
    static constexpr std::uint32_t patience = 64;  // pivots without a gain, after which the order of Bland holds

    [[nodiscard]] std::size_t columns() const noexcept { return cost_.size(); }
    [[nodiscard]] double* row(std::size_t r) { return matrix_.data() + r * columns(); }
    [[nodiscard]] double missed(std::uint32_t variable) const {
        const double x = value_[variable];
        return x < 0 ? -x : x - most_[variable];
    }
    [[nodiscard]] std::size_t leaving(bool is_careful) const;
    [[nodiscard]] std::size_t entering(std::size_t r, bool is_careful);
    void pivot(std::size_t r, std::size_t k);
    /// The least of costs · x + Σ multiplier · (row · x - most) for x inside its bounds, by slack. At most the least cost where no
    /// multiplier is negative.
    [[nodiscard]] double least(const std::vector<double>& multipliers, bool has_cost) const;
    /// No x meets the row `r` of the dictionary and the bounds.
    [[nodiscard]] bool is_proven_impossible(std::size_t r);

    struct Given {
        std::vector<Term> terms;
        double most = 0;
    };

    // By variable: columns, then the slacks of rows.
    std::vector<double> value_, most_;
    std::vector<std::uint32_t> row_of_;    // nowhere: it stands beside the basis, at one of its bounds
    std::vector<std::uint32_t> place_of_;  // of those beside the basis
    // basis_[r] = constant + Σ row(r)[k] · beside_[k]
    std::vector<std::uint32_t> basis_, beside_;
    std::vector<double> matrix_, cost_, reduced_;
    std::vector<std::uint32_t> filled_;  // places with a coefficient in the row of the pivot
    std::uint64_t pivots_ = 0;
    std::uint32_t idle_ = 0;
    bool is_impossible_ = false;
    std::vector<Given> given_;  // by slack; empty where the row was dropped
};

}}}  // namespace residency::RESIDENCY_ABI::packed

#if RESIDENCY_HEADER_ONLY
#include "residency/packed/impl/dual_simplex.ipp"
#endif
