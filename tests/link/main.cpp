// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Units built with other settings, and two shared objects with hidden visibility, in one program: each keeps its own
// definitions, and what one throws another catches. That the program links is half of the test.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "all_headers.hpp"
#include "tests/link/unit.hpp"
#include "tests/support/child.hpp"

TEST_CASE("units built alike share one inline namespace; every setting that changes a definition has its own") {
    CHECK(std::string{plain_unit().abi} == same_unit().abi);
    CHECK(std::string{plain_unit().abi} == hidden_unit_a().abi);
    const std::set<std::string> names{plain_unit().abi, checked_unit().abi, per_thread_unit().abi,
                                      no_exceptions_unit().abi, compiled_unit().abi};
    CHECK(names.size() == 5);
}

TEST_CASE("every unit works beside the others") {
    for (const Unit& unit : {plain_unit(), same_unit(), checked_unit(), per_thread_unit(), no_exceptions_unit(),
                             compiled_unit(), hidden_unit_a(), hidden_unit_b()}) {
        CAPTURE(unit.abi);
        CHECK(unit.round_trip(42) == 42);
    }
}

TEST_CASE("an error that is unwrapped is thrown; without exceptions it is printed, and the program ends") {
    CHECK(plain_unit().unwrap(false) == 7);
    CHECK_THROWS_AS(static_cast<void>(plain_unit().unwrap(true)), residency::IoError);
    CHECK(no_exceptions_unit().unwrap(false) == 7);
    const auto ended = child::run([] { static_cast<void>(no_exceptions_unit().unwrap(true)); });
    CHECK(ended.aborted);
    CHECK(ended.text == "residency: no such file\n");
}

TEST_CASE("an exception thrown in a shared object with hidden visibility is caught by its type, numbers included") {
    for (const Unit& unit : {same_unit(), hidden_unit_a(), hidden_unit_b()}) {
        bool caught = false;
        try {
            unit.throw_budget_error();
        } catch (const residency::BudgetError& error) {
            caught = true;
            const auto* numbers = error.error().detail<residency::BudgetNumbers>();
            REQUIRE(numbers != nullptr);
            CHECK(numbers->step == 3);
        }
        CHECK(caught);
    }
}
