// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What each separately built unit offers to the program. Nothing of the library is in these types: its own types differ
// where the settings of two units differ.
struct Unit {
    const char* abi;                ///< the inline namespace that the unit was built with
    int (*round_trip)(int number);  ///< the number, through an Error and its detail
    void (*throw_budget_error)();   ///< throws residency::BudgetError
    int (*unwrap)(bool fails);      ///< 7 out of a Result, or the end of it that the unit has for an error
};

#define UNIT_EXPORT __attribute__((visibility("default")))

UNIT_EXPORT Unit plain_unit();
UNIT_EXPORT Unit same_unit();           // built like plain_unit
UNIT_EXPORT Unit checked_unit();        // assertions on
UNIT_EXPORT Unit per_thread_unit();     // per-thread default streams
UNIT_EXPORT Unit no_exceptions_unit();  // without exceptions and run-time types
UNIT_EXPORT Unit compiled_unit();       // declarations of what residency::compiled defines
UNIT_EXPORT Unit hidden_unit_a();       // like plain_unit, in a shared object with hidden visibility
UNIT_EXPORT Unit hidden_unit_b();       // the same in another
