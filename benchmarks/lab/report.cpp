// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/chart.hpp"
#include "benchmarks/lab/fail.hpp"
#include "benchmarks/lab/table.hpp"
#include "residency/model/file.hpp"

namespace lab {

namespace {

/// Every field of a row, in the order of the columns. One that has no value in a row is not in its JSON, and empty in its line.
constexpr const char* fields[] = {"workload",
                                  "card",
                                  "policy",
                                  "budget_bytes",
                                  "pass_seconds",
                                  "bound_seconds",
                                  "regret",
                                  "stall_seconds",
                                  "hit_share_of_bytes",
                                  "ahead_share_of_bytes",
                                  "fetched_bytes",
                                  "compute_seconds",
                                  "requested_bytes",
                                  "missed_bytes",
                                  "ahead_bytes",
                                  "held_bytes",
                                  "host_waits",
                                  "total_bytes",
                                  "knows_whole_run",
                                  "asked_budget",
                                  "refused",
                                  "over_planned"};

double stall(const RunCounts& counts) { return std::max(0.0, counts.pass_seconds - counts.compute_seconds); }
double hits(const RunCounts& counts) {
    return counts.requested_bytes > 0 ? 1 - (counts.missed_bytes + counts.ahead_bytes) / counts.requested_bytes : 1;
}
double ahead(const RunCounts& counts) {
    return counts.requested_bytes > 0 ? counts.ahead_bytes / counts.requested_bytes : 0;
}
std::string name_of(const Row& row) {
    return row.composition == nullptr ? "everything resident" : row.composition->name;
}
/// A schedule is given where the order is known; Belady is given the run itself.
bool knows_whole_run(const Row& row) {
    return row.composition != nullptr && row.composition->knows_future &&
           (row.work->is_known || row.composition->name == "belady");
}

nlohmann::ordered_json json_of(const Row& row) {
    nlohmann::ordered_json values{{"workload", row.work->name},
                                  {"card", row.card->name},
                                  {"policy", name_of(row)},
                                  {"budget_bytes", row.budget_bytes},
                                  {"total_bytes", row.work->total_bytes()},
                                  {"knows_whole_run", knows_whole_run(row)}};
    if (row.counts || !row.packs()) { values["bound_seconds"] = row.bound_seconds; }
    if (row.over_planned) { values["over_planned"] = *row.over_planned; }
    if (!row.asked_budget.empty()) { values["asked_budget"] = row.asked_budget; }
    if (row.counts) {
        const RunCounts& counts = *row.counts;
        values["pass_seconds"] = counts.pass_seconds;
        values["compute_seconds"] = counts.compute_seconds;
        values["stall_seconds"] = stall(counts);
        values["regret"] = counts.pass_seconds / row.bound_seconds - 1;
        values["hit_share_of_bytes"] = hits(counts);
        values["ahead_share_of_bytes"] = ahead(counts);
        values["fetched_bytes"] = counts.fetched_bytes;
        values["requested_bytes"] = counts.requested_bytes;
        values["missed_bytes"] = counts.missed_bytes;
        values["ahead_bytes"] = counts.ahead_bytes;
        values["held_bytes"] = counts.held_bytes;
        values["host_waits"] = counts.host_waits;
    } else {
        values["refused"] = row.refusal;
    }
    nlohmann::ordered_json out;
    for (const char* field : fields) {
        if (values.contains(field)) { out[field] = std::move(values[field]); }
    }
    return out;
}
std::vector<std::string> cells_of(const Row& row) {
    std::vector<std::string> cells{name_of(row) + (knows_whole_run(row) ? " *" : ""),
                                   human_bytes(row.budget_bytes) + (row.is_at_floor()  ? " (floor)"
                                                                    : row.is_clamped() ? " (all)"
                                                                                       : "")};
    if (!row.counts) {
        cells.push_back("did not run");
        cells.resize(11);
        return cells;
    }
    const RunCounts& counts = *row.counts;
    cells.push_back(fixed(1e3 * counts.pass_seconds, 2));
    cells.push_back(fixed(1e3 * row.bound_seconds, 2));
    cells.push_back(fixed(100 * (counts.pass_seconds / row.bound_seconds - 1), 1));
    cells.push_back(fixed(1e3 * stall(counts), 2));
    cells.push_back(fixed(100 * hits(counts), 1));
    cells.push_back(fixed(100 * ahead(counts), 1));
    cells.push_back(human_bytes(static_cast<std::uint64_t>(counts.fetched_bytes)));
    cells.push_back(human_bytes(counts.held_bytes));
    cells.push_back(row.over_planned ? fixed(*row.over_planned, 3) : "");
    return cells;
}

}  // namespace

std::vector<std::span<const Row>> by_work_and_card(std::span<const Row> rows) {
    std::vector<std::span<const Row>> groups;
    while (!rows.empty()) {
        const auto other = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
            return row.work != rows.front().work || row.card != rows.front().card;
        });
        groups.push_back(rows.first(static_cast<std::size_t>(other - rows.begin())));
        rows = rows.subspan(groups.back().size());
    }
    return groups;
}

void print_json(const std::vector<Row>& rows) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const Row& row : rows) { out.push_back(json_of(row)); }
    std::cout << out.dump(1) << "\n";
}

void print_csv(const std::vector<Row>& rows) {
    Table table{{std::begin(fields), std::end(fields)}};
    for (const Row& row : rows) {
        const nlohmann::ordered_json values = json_of(row);
        std::vector<std::string> cells;
        for (const char* field : fields) {
            const auto found = values.find(field);
            cells.push_back(found == values.end() ? ""
                            : found->is_string()  ? found->get<std::string>()
                                                  : found->dump());
        }
        table.add(std::move(cells));
    }
    std::cout << table.comma_separated();
}

void print_tables(const std::vector<Row>& rows) {
    for (const std::span<const Row> group : by_work_and_card(rows)) {
        const Workload& work = *group.front().work;
        std::cout << "\n"
                  << work.name << " on " << group.front().card->name << ": " << human_bytes(work.total_bytes())
                  << " in " << work.bytes.size() << " storages, " << work.steps.size() / work.pass_ends.size()
                  << " steps a pass\n";
        if (!work.passes_end.empty()) {
            std::cout << work.pass_ends.size() << " passes: one ends " << work.passes_end << "\n";
        }
        Table table{{"policy", "budget", "a pass, ms", "bound, ms", "over the bound, %", "stalls, ms", "bytes there, %",
                     "bytes ahead, %", "bytes copied", "bytes held", "x planned"}};
        for (const Row& row : group) { table.add(cells_of(row)); }
        std::cout << table.aligned();
        for (const Row& row : group) {
            if (!row.counts) {
                std::cout << name_of(row) << " with " << human_bytes(row.budget_bytes) << " did not run, "
                          << row.refusal << "\n";
            }
        }
    }
    std::cout << "\nTimes and bytes are of one pass in the steady state.\n"
                 "  bound           no plan of copies takes less time at that budget\n"
                 "  stalls          by which a pass is longer than its kernels\n"
                 "  bytes there     of those that the steps read: on the device from before\n"
                 "  bytes ahead     brought before they were asked for; the rest was missed\n"
                 "  bytes held      of device memory\n"
                 "  x planned       the time over that of raw weights by a plan with the same budget\n"
                 "Of a plan, which moves parts of storages, both are by the bytes that it moves.\n"
                 "* knows the whole run\n";
    if (std::any_of(rows.begin(), rows.end(), [](const Row& row) {
            return row.composition != nullptr && row.composition->knows_future && !row.work->is_known &&
                   !knows_whole_run(row);
        })) {
        std::cout << "scheduled, staticsplit: there is no schedule where the order is not known; residency-lab cache "
                     "gives them the whole trace\n";
    }
    if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.packs(); })) {
        std::cout << "packed: the bound is of packed weights, which may stay raw; bytes copied are packed ones\n";
    }
    if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_at_floor(); })) {
        std::cout
            << "(floor): a budget of 0 is the smallest that works, which depends on the composition's memory pool\n";
    }
    if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_clamped(); })) {
        std::cout << "(all): more was asked for than everything takes, and no more than that is used\n";
    }
}

void draw(const std::vector<Row>& rows, const std::string& folder) {
    for (const std::span<const Row> group : by_work_and_card(rows)) {
        const std::string& work = group.front().work->name;
        const std::string& card = group.front().card->name;
        const double total = static_cast<double>(group.front().work->total_bytes());
        Chart chart{work + " on " + card, "budget, % of all weights", "time of a pass, ms (logarithmic scale)"};
        std::vector<std::pair<double, double>> bound;
        for (std::size_t i = 0; i < group.size();) {
            const Composition* composition = group[i].composition;
            std::vector<std::pair<double, double>> points;
            for (; i < group.size() && group[i].composition == composition; ++i) {
                const double share = 100 * static_cast<double>(group[i].budget_bytes) / total;
                if (composition == nullptr) {
                    if (group[i].counts) {
                        chart.add_level("everything resident", 1e3 * group[i].counts->pass_seconds);
                    }
                    continue;
                }
                if (group[i].counts) { points.emplace_back(share, 1e3 * group[i].counts->pass_seconds); }
                if (composition->packs) { continue; }  // its bound is another
                if (std::none_of(bound.begin(), bound.end(), [&](const auto& each) { return each.first == share; })) {
                    bound.emplace_back(share, 1e3 * group[i].bound_seconds);
                }
            }
            if (composition != nullptr) { chart.add(composition->name, std::move(points)); }
        }
        std::sort(bound.begin(), bound.end());
        chart.add("bound", std::move(bound), true);
        const std::string text = chart.svg();
        const std::string path = folder + "/" + work + "." + card + ".svg";
        if (auto written = residency::detail::write_file(path, std::as_bytes(std::span{text})); !written) {
            fail(written.error());
        }
    }
}

}  // namespace lab
