// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
    std::string asked_budget;                  ///< in words
    std::uint64_t asked_bytes = 0;             ///< 0: the floor
    std::uint64_t budget_bytes = 0;            ///< what it ran with; the bytes asked for where it did not run
    double bound_seconds = 0;                  ///< inside budget_bytes, of what is packed if it is
    std::optional<double> over_planned;        ///< its time over that of raw weights by a plan, where that ran too
    std::optional<RunCounts> counts;
    std::string refusal;  ///< why there are no counts

    [[nodiscard]] bool packs() const { return composition != nullptr && composition->packs; }
    /// Zero was asked, and the floor of the composition was taken.
    [[nodiscard]] bool is_at_floor() const { return counts && asked_bytes == 0; }
    /// More was asked than everything takes.
    [[nodiscard]] bool is_clamped() const {
        return counts && composition != nullptr && !counts->is_streaming && asked_bytes > counts->budget_bytes;
    }
};

/// The rows of each workload on each card, which stand together.
std::vector<std::span<const Row>> by_work_and_card(std::span<const Row> rows);

void print_json(const std::vector<Row>& rows);
void print_csv(const std::vector<Row>& rows);
void print_tables(const std::vector<Row>& rows);
/// Step time against budget, one picture a workload and card, in a folder that is there.
void draw(const std::vector<Row>& rows, const std::string& folder);
/// The best composition at each budget; and, before running, the floor, what to expect at each budget, the budget for
/// `wanted_seconds` a pass (or, without, for some multiples of what everything resident takes), and where offloading will not help.
void advise(const std::vector<Row>& rows, std::optional<double> wanted_seconds);

}  // namespace lab
