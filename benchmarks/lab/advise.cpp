// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/lab/bound.hpp"
#include "benchmarks/lab/report.hpp"
#include "benchmarks/lab/table.hpp"
#include "residency/plan/advice.hpp"
#include "residency/plan/floor.hpp"

namespace lab {

namespace {

constexpr residency::plan::Options quick{.effort = residency::plan::Effort::quick};

/// The rows of one workload on one card.
struct Group {
    std::span<const Row> rows;
    std::vector<const Row*> best;  ///< of what knows no future, at each budget, by budget
    double resident_seconds = 0;   ///< measured, with everything resident
};
Group group_of(std::span<const Row> rows) {
    Group group{rows, {}, 0};
    for (const Row& row : rows) {
        if (!row.counts) { continue; }
        if (row.composition == nullptr) {
            group.resident_seconds = row.counts->pass_seconds;
            continue;
        }
        if (row.composition->knows_future) { continue; }
        const auto same = std::find_if(group.best.begin(), group.best.end(),
                                       [&](const Row* each) { return each->asked_budget == row.asked_budget; });
        if (same == group.best.end()) {
            group.best.push_back(&row);
        } else if (row.counts->pass_seconds < (*same)->counts->pass_seconds) {
            *same = &row;
        }
    }
    std::sort(group.best.begin(), group.best.end(),
              [](const Row* a, const Row* b) { return a->budget_bytes < b->budget_bytes; });
    return group;
}

/// What never leaves, and the largest step.
std::uint64_t smallest_bytes(const Workload& work) { return work.resident_bytes() + work.largest_step_bytes(); }

/// What was measured at the budgets that were asked for.
void print_measured(const Group& group, std::span<const double> factors) {
    if (group.best.empty()) {
        const auto refused = std::find_if(group.rows.begin(), group.rows.end(),
                                          [](const Row& row) { return row.composition != nullptr && !row.counts; });
        std::cout << "nothing runs with any of these budgets"
                  << (refused == group.rows.end() ? "" : ": " + refused->composition->name + ": " + refused->refusal)
                  << "\n";
        return;
    }
    Table table{{"budget", "composition", "pass ms", "times resident", "above the bound %"}};
    for (const Row* row : group.best) {
        table.add({human_bytes(row->budget_bytes), row->composition->name, fixed(1e3 * row->counts->pass_seconds, 2),
                   fixed(row->counts->pass_seconds / group.resident_seconds, 2),
                   fixed(100 * (row->counts->pass_seconds / row->bound_seconds - 1), 1)});
    }
    std::cout << table.aligned();
    for (const double factor : factors) {
        const auto enough = std::find_if(group.best.begin(), group.best.end(), [&](const Row* row) {
            return row->counts->pass_seconds <= factor * group.resident_seconds;
        });
        std::cout << "within " << fixed(factor, 2) << " x of everything resident: "
                  << (enough == group.best.end()
                          ? "none of these budgets"
                          : human_bytes((*enough)->budget_bytes) + " with " + (*enough)->composition->name)
                  << "\n";
    }
}

/// What follows from the bounds and from plans, where the order is known.
void print_planned(const Group& group, std::span<const double> factors, std::optional<double> wanted_seconds) {
    const Workload& work = *group.rows.front().work;
    const Card& card = *group.rows.front().card;
    residency::plan::Problem problem = problem_of(work, card, 0, work.steps.size());
    problem.link.latency_seconds = std::chrono::duration<double>(card.link.call_latency).count();
    const auto ends = residency::plan::chunk_floor(problem);
    if (!ends) {
        std::cout << "no plan: " << ends.error().message() << "\n";
        return;
    }
    std::cout << "floor: the smallest budget that works with a plan is " << human_bytes(ends->floor_bytes) << " ("
              << ends->floor_bytes << " bytes)";
    if (ends->step != residency::plan::none) { std::cout << ", for step " << ends->step; }
    std::cout << "; nothing works with less than " << human_bytes(smallest_bytes(work)) << "\n";
    std::set<std::string> said;
    for (const Row& row : group.rows) {
        if (row.composition == nullptr || !said.insert(row.asked_budget).second) { continue; }
        problem.budget_bytes = row.asked_bytes;
        const auto advice = residency::plan::advise(problem, wanted_seconds, quick);
        std::cout << "at " << row.asked_budget << ": " << (advice ? advice->text : advice.error().message()) << "\n";
    }
    const auto print_speed = [&](double seconds, const std::string& what) {
        const auto budget = residency::plan::budget_for(problem, seconds, quick);
        std::cout << what << ": ";
        if (!budget) {
            std::cout << "offloading will not help here: " << budget.error().message() << "\n";
        } else if (budget->sufficient_bytes >= (std::max)(ends->everything_bytes, ends->floor_bytes)) {
            std::cout << "offloading will not help here: it takes all " << human_bytes(budget->sufficient_bytes)
                      << "\n";
        } else {
            std::cout << "a budget of " << human_bytes(budget->sufficient_bytes) << " (" << budget->sufficient_bytes
                      << " bytes) is enough, less than " << human_bytes(budget->necessary_bytes) << " is not\n";
        }
    };
    if (wanted_seconds) {
        print_speed(*wanted_seconds, "for " + fixed(1e3 * *wanted_seconds, 3) + " ms a pass");
    } else if (group.resident_seconds > 0) {
        for (const double factor : factors) {
            print_speed(factor * group.resident_seconds, "for " + fixed(factor, 2) + " x of everything resident, " +
                                                             fixed(1e3 * factor * group.resident_seconds, 2) +
                                                             " ms a pass");
        }
    }
}

/// Where the order is not known there is no plan: what can be said is by bytes.
void print_unplanned(const Group& group, std::optional<double> wanted_seconds) {
    const Workload& work = *group.rows.front().work;
    const std::uint64_t floor = smallest_bytes(work);
    std::cout << "floor: nothing works with less than " << human_bytes(floor) << " (" << floor
              << " bytes), in whole segments of the memory pool\n";
    if (floor >= work.total_bytes()) {
        std::cout << "offloading will not help here: nothing less than everything works\n";
    }
    if (!wanted_seconds) { return; }
    const std::string wanted = "for " + fixed(1e3 * *wanted_seconds, 3) + " ms a pass: ";
    const auto enough = std::find_if(group.best.begin(), group.best.end(),
                                     [&](const Row* row) { return row->counts->pass_seconds <= *wanted_seconds; });
    if (group.resident_seconds > *wanted_seconds) {
        std::cout << wanted << "offloading will not help here: with everything resident it takes "
                  << fixed(1e3 * group.resident_seconds, 3) << " ms\n";
    } else if (enough == group.best.end()) {
        std::cout << wanted << "none of these budgets is enough\n";
    } else {
        std::cout << wanted << human_bytes((*enough)->budget_bytes) << " with " << (*enough)->composition->name << "\n";
    }
}

}  // namespace

void advise(const std::vector<Row>& rows, std::optional<double> wanted_seconds) {
    constexpr double factors[] = {1.05, 1.25, 2.0};
    for (const std::span<const Row> together : by_work_and_card(rows)) {
        const Group group = group_of(together);
        const Workload& work = *together.front().work;
        std::cout << "\nadvice for " << work.name << " on " << together.front().card->name
                  << " (everything resident: " << human_bytes(work.total_bytes()) << ", "
                  << fixed(1e3 * group.resident_seconds, 2) << " ms a pass)\n";
        print_measured(group, factors);
        if (work.is_known) {
            print_planned(group, factors, wanted_seconds);
        } else {
            print_unplanned(group, wanted_seconds);
        }
    }
}

}  // namespace lab
