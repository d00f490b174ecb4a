// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "residency/packed/layout.hpp"
#include "residency/plan/plan.hpp"

/// What this program cannot work with; says what and where.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// What is read and what is printed, for --help.
extern const char* const json_description;
/// A small problem as JSON, with all that one may have.
extern const char* const example_problem;

/// From the JSON of json_description. All that is missing is named in one message. `has_budget`: budget_bytes may be missing.
/// Where no storage is packed, no unpacked_bytes is above 0.
residency::packed::UnpackProblem read_problem(const std::string& text, bool has_budget);

/// The JSON of json_description.
std::string text_of(const residency::plan::Problem& problem, const residency::plan::Plan& plan);
/// The same of packed weights: `plan` is that of the choice, `floor_bytes` the smallest budget for which there is one.
std::string text_of(const residency::packed::UnpackProblem& problem, const residency::packed::UnpackChoice& choice,
                    const residency::plan::Plan& plan, std::uint64_t floor_bytes);
