// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

/// What this program cannot work with; says what and where.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// in:  {"link": {"bytes_per_second", "latency_seconds"}, "budget_bytes", "chunk_bytes", "cyclic",
///       "storages": [{"name", "bytes"}], "steps": [{"compute_seconds", "storages": [indices]}]}
///      All of them are needed but compute_seconds, and budget_bytes where `has_budget` says that there is one already; 0 is the
///      floor. Other keys are ignored, a key that is there twice is refused.
residency::plan::Problem read_problem(const std::string& text, bool has_budget);

/// out: {"bound_seconds", "usual_bound_seconds", "floor_bytes", "predicted_seconds", "compute_seconds", "bytes_per_pass",
///       "held_bytes",
///       "resident": [{"storage", "begin", "end", "at": ranges}],
///       "copies": [{"storage", "begin", "end", "to": ranges, "call", "waits_for": {"pass", "step"} or null, "needed_by"}]}
///      Device ranges are [from, to) in [0, held_bytes).
std::string text_of(const residency::plan::Problem& problem, const residency::plan::Plan& plan);
