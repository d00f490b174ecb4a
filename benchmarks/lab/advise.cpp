// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/lab/bound.hpp"
#include "benchmarks/lab/packing.hpp"
#include "benchmarks/lab/parallel.hpp"
#include "benchmarks/lab/report.hpp"
#include "benchmarks/lab/table.hpp"
#include "residency/packed/bound.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/advice.hpp"
#include "residency/plan/floor.hpp"
#include "residency/plan/planner.hpp"

namespace lab {

namespace {

constexpr residency::plan::Options quick{.effort = residency::plan::Effort::quick};

/// Every time and every budget of the advice, in tables and in sentences.
std::string milliseconds(double seconds) { return fixed(1e3 * seconds, 3); }
std::string exact_bytes(std::uint64_t bytes) { return human_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)"; }

/// The rows of one workload on one card.
struct Group {
    std::span<const Row> rows;
    std::vector<const Row*> best;  ///< of what knows no future, at each budget, by budget
    double resident_seconds = 0;   ///< measured, with everything resident

    /// With a budget nothing is faster than with everything resident, which takes what the host takes as well.
    [[nodiscard]] double bound_seconds(const Row& row) const { return std::max(row.bound_seconds, resident_seconds); }
    [[nodiscard]] double pass_seconds(const Row& row) const {
        return std::max(row.counts->pass_seconds, resident_seconds);
    }
    [[nodiscard]] const Row* best_at(const std::string& asked_budget) const {
        const auto found =
            std::find_if(best.begin(), best.end(), [&](const Row* each) { return each->asked_budget == asked_budget; });
        return found == best.end() ? nullptr : *found;
    }
};
Group group_of(std::span<const Row> rows) {
    Group group{rows, {}, 0};
    for (const Row& row : rows) {
        if (!row.counts) { continue; }
        if (row.composition == nullptr) {
            group.resident_seconds = row.counts->pass_seconds;
            continue;
        }
        if (row.composition->knows_future || row.composition->packs) { continue; }
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
    Table table{{"budget", "best composition", "a pass, ms", "x everything resident", "over the bound, %"}};
    for (const Row* row : group.best) {
        const double seconds = group.pass_seconds(*row);
        table.add({human_bytes(row->budget_bytes), row->composition->name, milliseconds(seconds),
                   fixed(seconds / group.resident_seconds, 2),
                   fixed(100 * (seconds / group.bound_seconds(*row) - 1), 1)});
    }
    std::cout << table.aligned();
    for (const double factor : factors) {
        const auto enough = std::find_if(group.best.begin(), group.best.end(), [&](const Row* row) {
            return row->counts->pass_seconds <= factor * group.resident_seconds;
        });
        std::cout << "within " << fixed(factor, 2) << " x everything resident: "
                  << (enough == group.best.end()
                          ? "none of these budgets"
                          : human_bytes((*enough)->budget_bytes) + " with " + (*enough)->composition->name)
                  << "\n";
    }
}

/// One budget in a sentence: what was measured there, which is what the table says.
std::string sentence(const Group& group, const Row& asked, const residency::plan::ChunkFloor& ends) {
    const std::uint64_t everything = (std::max)(ends.everything_bytes, ends.floor_bytes);
    if (asked.asked_bytes >= everything) {
        return "offloading will not help here: everything fits, in " + exact_bytes(everything);
    }
    if (asked.asked_bytes != 0 && asked.asked_bytes < ends.floor_bytes) {
        return exact_bytes(asked.asked_bytes) + " are too few: the floor is " + exact_bytes(ends.floor_bytes);
    }
    const Row* const best = group.best_at(asked.asked_budget);
    if (best == nullptr) { return "nothing runs: " + asked.composition->name + ": " + asked.refusal; }
    const double seconds = group.pass_seconds(*best);
    return best->composition->name + " takes " + milliseconds(seconds) + " ms a pass, " +
           fixed(seconds / group.resident_seconds, 2) + " x everything resident; no plan of copies takes less than " +
           milliseconds(group.bound_seconds(*best)) + " ms";
}

/// The problem of unpacking: every storage is packed as its workload says, or as bf16 weights usually are.
residency::packed::UnpackProblem packed_problem(const Workload& work, const Card& card,
                                                const residency::plan::Problem& raw) {
    residency::packed::UnpackProblem problem;
    problem.travels = raw;
    problem.granule_bytes = raw.chunk_bytes;
    problem.step_offsets = raw.step_offsets;
    problem.step_storages = raw.step_storages;
    const Packing packing;
    problem.unpacked_bytes_per_second = packing.unpack_rate(card);
    problem.launch_seconds = residency::packed::UnpackRate{}.launch_seconds;
    for (std::uint32_t s = 0; s < raw.storages(); ++s) {
        const std::uint64_t packed = packing.packed_bytes(work, s);
        const bool is_packed = packed < raw.storage_bytes[s];
        problem.unpacked_bytes.push_back(is_packed ? raw.storage_bytes[s] : 0);
        problem.must_stay.push_back(work.resident[s]);
        if (is_packed) { problem.travels.storage_bytes[s] = packed; }
    }
    return problem;
}

/// What packing brings at one budget: the plan of raw weights, the one of packed weights, and what none of those beats.
std::string packed_sentence(const Group& group, residency::plan::Problem raw, std::uint64_t budget_bytes) {
    const Workload& work = *group.rows.front().work;
    const auto problem = packed_problem(work, *group.rows.front().card, raw);
    std::uint64_t raw_bytes = 0, packed_bytes = 0;
    for (std::uint32_t s = 0; s < raw.storages(); ++s) {
        raw_bytes += raw.storage_bytes[s];
        packed_bytes += problem.travels.storage_bytes[s];
    }
    if (packed_bytes == raw_bytes) { return "nothing of this model gets smaller"; }
    const auto choice = residency::packed::choose_unpacked(problem, budget_bytes, quick);
    if (!choice) { return choice.error().message(); }
    const auto at_least = [&](double seconds) { return std::max(seconds, group.resident_seconds); };
    raw.budget_bytes = budget_bytes;
    const auto plan = residency::plan::make_plan(raw, quick);
    const double seconds = at_least(choice->seconds);
    std::string text = "a plan takes " + milliseconds(seconds) + " ms a pass";
    if (plan) {
        const double before = at_least(plan->predicted_seconds());
        text += ", that of raw weights " + milliseconds(before) + " ms, " + fixed(before / seconds, 2) + " x as much";
    } else {
        text += ", and no plan of raw weights fits";
    }
    return text + "; no plan takes less than " +
           milliseconds(at_least(residency::packed::exact_bound(problem, budget_bytes))) + " ms (" +
           fixed(static_cast<double>(packed_bytes) / static_cast<double>(raw_bytes), 2) + " of the bytes, " +
           (work.packed_shares.empty() ? "assumed, as of trained bf16 weights" : "measured in the file") +
           "; unpacked at " + fixed(problem.unpacked_bytes_per_second / 1e9, 0) + " GB/s, assumed)";
}

/// What a switch to this model costs where it sleeps in between (ModelGroup): what its first pass brings.
std::string switch_sentence(residency::plan::Problem problem, std::uint64_t budget_bytes) {
    problem.budget_bytes = budget_bytes;
    const auto plan = residency::plan::make_plan(problem, quick);
    if (!plan) { return plan.error().message(); }
    std::uint64_t bytes = plan->bytes_per_pass();
    for (const residency::plan::Copy& copy : plan->residents()) { bytes += copy.image_end - copy.image_begin; }
    double compute = 0;
    for (const double step : problem.compute_seconds) { compute += step; }
    const double link = static_cast<double>(bytes) / problem.link.bytes_per_second;
    return "its first pass brings " + exact_bytes(bytes) + ", at least " + milliseconds(std::max(link, compute)) +
           " ms from waking to its end";
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
    std::cout << "floor: the smallest budget that works with a plan is " << exact_bytes(ends->floor_bytes);
    if (ends->step != residency::plan::none) { std::cout << ", for step " << ends->step; }
    std::cout << "; nothing works with less than " << human_bytes(smallest_bytes(work)) << "\n";

    const auto budget_for = [&](double seconds) -> std::string {
        if (seconds < group.resident_seconds) {
            return "offloading will not help here: with everything resident it takes " +
                   milliseconds(group.resident_seconds) + " ms";
        }
        const auto budget = residency::plan::budget_for(problem, seconds, quick);
        if (!budget) { return "offloading will not help here: " + budget.error().message(); }
        if (budget->sufficient_bytes >= (std::max)(ends->everything_bytes, ends->floor_bytes)) {
            return "offloading will not help here: it takes all " + exact_bytes(budget->sufficient_bytes);
        }
        return "a budget of " + exact_bytes(budget->sufficient_bytes) + " is enough, less than " +
               human_bytes(budget->necessary_bytes) + " is not";
    };
    std::set<std::string> said;
    for (const Row& row : group.rows) {
        if (row.composition == nullptr || !said.insert(row.asked_budget).second) { continue; }
        std::cout << "at " << row.asked_budget << ": " << sentence(group, row, *ends) << "\n";
        const std::uint64_t bytes = row.asked_bytes == 0 ? ends->floor_bytes : row.asked_bytes;
        const std::uint64_t everything = (std::max)(ends->everything_bytes, ends->floor_bytes);
        if (bytes >= ends->floor_bytes) {
            std::cout << "a switch to it, at " << row.asked_budget << ": "
                      << switch_sentence(problem, std::min(bytes, everything)) << "\n";
        }
        if (bytes >= everything) { continue; }
        std::cout << "packed, at " << row.asked_budget << ": " << packed_sentence(group, problem, bytes) << "\n";
    }
    if (wanted_seconds) {
        std::cout << "for " << milliseconds(*wanted_seconds) << " ms a pass: " << budget_for(*wanted_seconds) << "\n";
        return;
    }
    for (const double factor : factors) {
        const double seconds = factor * group.resident_seconds;
        std::cout << "for " << fixed(factor, 2) << " x everything resident, " << milliseconds(seconds)
                  << " ms a pass: " << budget_for(seconds) << "\n";
    }
}

/// Where the order is not known there is no plan: what can be said is by bytes.
void print_unplanned(const Group& group, std::optional<double> wanted_seconds) {
    const Workload& work = *group.rows.front().work;
    const std::uint64_t floor = smallest_bytes(work);
    std::cout << "floor: nothing works with less than " << exact_bytes(floor)
              << ", in whole segments of the memory pool\n";
    if (floor >= work.total_bytes()) {
        std::cout << "offloading will not help here: nothing less than everything works\n";
    }
    if (!wanted_seconds) { return; }
    const std::string wanted = "for " + milliseconds(*wanted_seconds) + " ms a pass: ";
    const auto enough = std::find_if(group.best.begin(), group.best.end(),
                                     [&](const Row* row) { return row->counts->pass_seconds <= *wanted_seconds; });
    if (group.resident_seconds > *wanted_seconds) {
        std::cout << wanted << "offloading will not help here: with everything resident it takes "
                  << milliseconds(group.resident_seconds) << " ms\n";
    } else if (enough == group.best.end()) {
        std::cout << wanted << "none of these budgets is enough\n";
    } else {
        std::cout << wanted << human_bytes((*enough)->budget_bytes) << " with " << (*enough)->composition->name << "\n";
    }
}

}  // namespace

void advise(const std::vector<Row>& rows, std::optional<double> wanted_seconds) {
    constexpr double factors[] = {1.05, 1.25, 2.0};
    const auto groups = by_work_and_card(rows);
    Progress progress{"advise", groups.size()};
    for (const std::span<const Row> together : groups) {
        const Group group = group_of(together);
        const Workload& work = *together.front().work;
        std::cout << "\nadvice for " << work.name << " on " << together.front().card->name
                  << " (everything resident: " << human_bytes(work.total_bytes()) << ", "
                  << milliseconds(group.resident_seconds) << " ms a pass)\n";
        print_measured(group, factors);
        if (work.is_known) {
            print_planned(group, factors, wanted_seconds);
        } else {
            print_unplanned(group, wanted_seconds);
        }
        progress.add(1);
    }
}

}  // namespace lab
