// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/lab/registry.hpp"
#include "benchmarks/lab/run_job.hpp"
#include "benchmarks/lab/workload.hpp"

namespace lab {

struct Row {
    const Workload* work = nullptr;
    const Card* card = nullptr;
    const Composition* composition = nullptr;  ///< null: everything resident
    std::uint64_t budget_bytes = 0;
    double bound_seconds = 0;
    std::optional<RunCounts> counts;
    std::string refusal;  ///< why there are no counts
};

void print_json(const std::vector<Row>& rows);
void print_csv(const std::vector<Row>& rows);
void print_tables(const std::vector<Row>& rows);
/// Step time against budget, one picture a workload and card.
void draw(const std::vector<Row>& rows, const std::string& folder);
/// The best composition at each budget, and what little budget gives how much of the speed of everything resident.
void advise(const std::vector<Row>& rows);

}  // namespace lab
