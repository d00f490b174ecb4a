// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Assertions on, whatever the build says.
#define RESIDENCY_ASSERTIONS 1
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "residency/error.hpp"

using namespace residency;

namespace {

struct Outcome {
    bool aborted = false;
    std::string text;  // what went to standard error
};

/// Runs `body` in a child process.
template <class Body>
Outcome run_in_child(Body body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    Outcome outcome;
    char buffer[256];
    for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
        outcome.text.append(buffer, static_cast<std::size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    outcome.aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    return outcome;
}

}  // namespace

TEST_CASE("a broken precondition aborts, and says which one, where and what to do") {
    const Outcome outcome = run_in_child([] { RESIDENCY_ASSERT(1 + 1 == 3, "learn to count"); });
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
    const auto value_of_error = run_in_child([] {
        const Result<int> result{Error{ErrorKind::io, "no value"}};
        static_cast<void>(result.value());
    });
    CHECK(value_of_error.aborted);
    CHECK(value_of_error.text.find("has_value() said true") != std::string::npos);

    const auto error_of_value = run_in_child([] {
        const Result<int> result{1};
        static_cast<void>(result.error());
    });
    CHECK(error_of_value.aborted);
    CHECK(error_of_value.text.find("has_value() said false") != std::string::npos);

    const auto error_of_success = run_in_child([] { static_cast<void>(Status{}.error()); });
    CHECK(error_of_success.aborted);
}
