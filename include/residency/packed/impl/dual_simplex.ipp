// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "residency/packed/dual_simplex.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace packed {

RESIDENCY_INLINE void DualSimplex::add_row(std::span<const Term> terms, double most) {
    const auto slack = static_cast<std::uint32_t>(value_.size());
    const std::size_t r = basis_.size();
    matrix_.resize((r + 1) * columns(), 0.0);
    std::vector<double> factors(columns(), 0.0);
    for (const auto& [column, factor] : terms) { factors[column] += factor; }
    Given given{{}, most};
    double rest = most;
    for (std::uint32_t column = 0; column < columns(); ++column) {
        const double factor = factors[column];
        if (factor == 0) { continue; }
        given.terms.emplace_back(column, factor);
        rest -= factor * value_[column];
        if (row_of_[column] == nowhere) {
            row(r)[place_of_[column]] -= factor;
        } else {
            const double* const other = row(row_of_[column]);
            double* const own = row(r);
            for (std::size_t k = 0; k < columns(); ++k) { own[k] -= factor * other[k]; }
        }
    }
    value_.push_back(rest);
    most_.push_back((std::numeric_limits<double>::infinity)());
    row_of_.push_back(static_cast<std::uint32_t>(r));
    place_of_.push_back(nowhere);
    basis_.push_back(slack);
    given_.push_back(std::move(given));
}

RESIDENCY_INLINE std::size_t DualSimplex::leaving(bool is_careful) const {
    std::size_t best = rows();
    double worst = tiny_value;
    for (std::size_t r = 0; r < rows(); ++r) {
        const double by = missed(basis_[r]);
        if (is_careful ? by > tiny_value && (best == rows() || basis_[r] < basis_[best]) : by > worst) {
            worst = by;
            best = r;
        }
    }
    return best;
}

RESIDENCY_INLINE std::size_t DualSimplex::entering(std::size_t r, bool is_careful) {
    const double direction = value_[basis_[r]] < 0 ? 1.0 : -1.0;
    const double* const a = row(r);
    // A variable at 0 can grow, one at its other bound can fall.
    const auto helps = [&](std::size_t k) {
        if (std::abs(a[k]) <= tiny_pivot) { return false; }
        return (direction * a[k] > 0) == (value_[beside_[k]] <= 0);
    };
    double least = (std::numeric_limits<double>::infinity)();
    for (std::size_t k = 0; k < columns(); ++k) {
        if (helps(k)) { least = (std::min)(least, (std::abs(reduced_[k]) + tiny_cost) / std::abs(a[k])); }
    }
    std::size_t best = columns();
    for (std::size_t k = 0; k < columns(); ++k) {
        if (!helps(k) || std::abs(reduced_[k]) / std::abs(a[k]) > least) { continue; }
        const bool is_better =
            best == columns() || (is_careful ? beside_[k] < beside_[best] : std::abs(a[k]) > std::abs(a[best]));
        if (is_better) { best = k; }
    }
    return best;
}

RESIDENCY_INLINE void DualSimplex::pivot(std::size_t r, std::size_t k) {
    const std::uint32_t out = basis_[r], in = beside_[k];
    double* const a = row(r);
    const double bound = value_[out] < 0 ? 0.0 : most_[out];
    const double step = (bound - value_[out]) / a[k];
    for (std::size_t i = 0; i < rows(); ++i) {
        if (i != r && row(i)[k] != 0) { value_[basis_[i]] += step * row(i)[k]; }
    }
    value_[in] += step;
    value_[out] = bound;
    idle_ = std::abs(reduced_[k]) > tiny_cost ? 0 : idle_ + 1;
    // in = (out - the others) / a[k]
    const double inverse = 1 / a[k];
    filled_.clear();
    for (std::size_t c = 0; c < columns(); ++c) {
        if (a[c] == 0) { continue; }
        a[c] = c == k ? inverse : -a[c] * inverse;
        filled_.push_back(static_cast<std::uint32_t>(c));
    }
    const auto eliminate = [&](double* other) {
        const double factor = other[k];
        if (factor == 0) { return; }
        other[k] = 0;
        for (const std::uint32_t c : filled_) { other[c] += factor * a[c]; }
    };
    for (std::size_t i = 0; i < rows(); ++i) {
        if (i != r) { eliminate(row(i)); }
    }
    eliminate(reduced_.data());
    basis_[r] = in;
    beside_[k] = out;
    row_of_[in] = static_cast<std::uint32_t>(r);
    place_of_[in] = nowhere;
    row_of_[out] = nowhere;
    place_of_[out] = static_cast<std::uint32_t>(k);
    ++pivots_;
}

RESIDENCY_INLINE double DualSimplex::least(const std::vector<double>& multipliers, bool has_cost) const {
    std::vector<double> factors(columns(), 0.0);
    if (has_cost) { factors = cost_; }
    double sum = 0;
    for (std::size_t i = 0; i < given_.size(); ++i) {
        if (multipliers[i] <= 0) { continue; }
        sum -= multipliers[i] * given_[i].most;
        for (const auto& [column, factor] : given_[i].terms) { factors[column] += multipliers[i] * factor; }
    }
    for (std::size_t c = 0; c < columns(); ++c) { sum += (std::min)(0.0, factors[c]) * most_[c]; }
    return sum;
}

RESIDENCY_INLINE double DualSimplex::proven() const {
    std::vector<double> multipliers(given_.size(), 0.0);
    for (std::size_t k = 0; k < columns(); ++k) {
        if (beside_[k] >= columns()) { multipliers[beside_[k] - columns()] = reduced_[k]; }
    }
    return least(multipliers, true);
}

RESIDENCY_INLINE bool DualSimplex::is_proven_impossible(std::size_t r) {
    const double direction = value_[basis_[r]] < 0 ? 1.0 : -1.0;
    std::vector<double> multipliers(given_.size(), 0.0);
    for (std::size_t k = 0; k < columns(); ++k) {
        if (beside_[k] >= columns()) { multipliers[beside_[k] - columns()] = -direction * row(r)[k]; }
    }
    if (basis_[r] >= columns()) { multipliers[basis_[r] - columns()] = 1; }
    return least(multipliers, false) > 0;
}

RESIDENCY_INLINE bool DualSimplex::solve(std::uint64_t pivots) {
    idle_ = 0;
    for (;;) {
        const bool is_careful = idle_ > patience;
        const std::size_t r = leaving(is_careful);
        if (r == rows()) { return true; }
        if (pivots_ >= pivots) { return false; }
        const std::size_t k = entering(r, is_careful);
        if (k == columns()) {
            is_impossible_ = is_proven_impossible(r);
            return false;
        }
        pivot(r, k);
    }
}

RESIDENCY_INLINE void DualSimplex::drop_loose_rows() {
    std::size_t kept = 0;
    for (std::size_t r = 0; r < rows(); ++r) {
        const std::uint32_t variable = basis_[r];
        if (variable >= columns() && value_[variable] > loose) {  // its slack alone knows of the row
            given_[variable - columns()] = {};
            continue;
        }
        if (kept != r) {
            std::copy_n(row(r), columns(), row(kept));
            basis_[kept] = variable;
            row_of_[variable] = static_cast<std::uint32_t>(kept);
        }
        ++kept;
    }
    basis_.resize(kept);
    matrix_.resize(kept * columns());
}

RESIDENCY_INLINE void DualSimplex::rebuild() {
    const std::vector<Given> rows = std::exchange(given_, {});
    basis_.clear();
    matrix_.clear();
    value_.assign(columns(), 0.0);
    most_.resize(columns());
    row_of_.assign(columns(), nowhere);
    place_of_.resize(columns());
    std::iota(place_of_.begin(), place_of_.end(), 0U);
    beside_ = place_of_;
    reduced_ = cost_;
    for (const Given& row : rows) {
        if (!row.terms.empty() || row.most < 0) { add_row(row.terms, row.most); }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::packed
