// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "benchmarks/lab/fail.hpp"
#include "benchmarks/lab/input.hpp"
#include "residency/error.hpp"

namespace lab {

/// A budget that says nothing ends the program before anything is read: one line, and 2.
inline void check_budgets(const std::vector<std::string>& texts) {
    auto budgets = parse_budgets(texts, 0);
    if (budgets && texts.empty()) {
        budgets = residency::Error{residency::ErrorKind::invalid_argument,
                                   "budget \"\": found nothing, expected bytes "
                                   "or a percentage of the weights"};
    }
    if (!budgets) { fail(budgets.error()); }
}

}  // namespace lab
