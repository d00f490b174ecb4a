// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Assertions on, whatever the build says.
#define RESIDENCY_ASSERTIONS 1
#include <doctest/doctest.h>

#include <string>

#include "residency/error.hpp"
#include "tests/support/child.hpp"

using namespace residency;

TEST_CASE("a broken precondition aborts, and says which one, where and what to do") {
    const child::Outcome outcome = child::run([] { RESIDENCY_ASSERT(1 + 1 == 3, "learn to count"); });
    CHECK(outcome.aborted);
    CHECK(outcome.text.find("assertions.cpp:") != std::string::npos);
    CHECK(outcome.text.find("1 + 1 == 3: learn to count") != std::string::npos);
}

TEST_CASE("a precondition that holds does nothing, and its condition is evaluated once") {
    int evaluated = 0;
    RESIDENCY_ASSERT(++evaluated == 1, "count evaluations");
    CHECK(evaluated == 1);
}

TEST_CASE("asking a result for what it does not hold aborts") {
    const auto value_of_error = child::run([] {
        const Result<int> result{Error{ErrorKind::io, "no value"}};
        static_cast<void>(result.value());
    });
    CHECK(value_of_error.aborted);
    CHECK(value_of_error.text.find("has_value() returned true") != std::string::npos);

    const auto error_of_value = child::run([] {
        const Result<int> result{1};
        static_cast<void>(result.error());
    });
    CHECK(error_of_value.aborted);
    CHECK(error_of_value.text.find("has_value() returned false") != std::string::npos);

    const auto error_of_success = child::run([] { static_cast<void>(Status{}.error()); });
    CHECK(error_of_success.aborted);
}
