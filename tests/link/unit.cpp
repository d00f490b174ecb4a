// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// One unit: every header, and a few uses that leave symbols behind. Built several times, with another UNIT and other
// settings each time; all of them are linked into one program.
#include "tests/link/unit.hpp"

#include "all_headers.hpp"

#define TEXT(x) #x
#define EXPANDED_TEXT(x) TEXT(x)

namespace {

int round_trip(int number) {
    const residency::Result<int> result{residency::Error{
        residency::ErrorKind::budget, "refused", residency::BudgetNumbers{.step = static_cast<unsigned>(number)}}};
    RESIDENCY_ASSERT(!result, "holds an error");
    return static_cast<int>(result.error().in("context").detail<residency::BudgetNumbers>()->step);
}

void throw_budget_error() {
#if RESIDENCY_EXCEPTIONS
    residency::throw_error(
        residency::Error{residency::ErrorKind::budget, "refused", residency::BudgetNumbers{.step = 3}});
#endif
}

int unwrap(bool fails) {
    return residency::unwrap(fails ? residency::Result<int>{residency::Error{residency::ErrorKind::io, "no such file"}}
                                   : residency::Result<int>{7});
}

}  // namespace

Unit UNIT() { return {EXPANDED_TEXT(RESIDENCY_ABI), &round_trip, &throw_budget_error, &unwrap}; }
