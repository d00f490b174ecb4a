// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
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

nlohmann::ordered_json json_of(const Row& row) {
    nlohmann::ordered_json out{{"workload", row.work->name},
                               {"card", row.card->name},
                               {"policy", row.composition == nullptr ? "everything resident" : row.composition->name},
                               {"budget_bytes", row.budget_bytes},
                               {"total_bytes", row.work->total_bytes()},
                               {"bound_seconds", row.bound_seconds}};
    if (!row.counts) {
        out["refused"] = row.refusal;
        return out;
    }
    const RunCounts& counts = *row.counts;
    out["pass_seconds"] = counts.pass_seconds;
    out["compute_seconds"] = counts.compute_seconds;
    out["stall_seconds"] = std::max(0.0, counts.pass_seconds - counts.compute_seconds);
    out["regret"] = counts.pass_seconds / row.bound_seconds - 1;
    out["fetched_bytes"] = counts.fetched_bytes;
    out["requested_bytes"] = counts.requested_bytes;
    out["missed_bytes"] = counts.missed_bytes;
    out["ahead_bytes"] = counts.ahead_bytes;
    out["held_bytes"] = counts.held_bytes;
    out["host_waits"] = counts.host_waits;
    return out;
}
std::vector<std::string> cells_of(const Row& row, bool is_raw) {
    std::vector<std::string> cells;
    if (is_raw) { cells = {row.work->name, row.card->name}; }
    cells.push_back(row.composition == nullptr ? "everything resident"
                                               : row.composition->name + (row.composition->knows_future ? " *" : ""));
    cells.push_back(is_raw ? std::to_string(row.budget_bytes) : human_bytes(row.budget_bytes));
    if (!row.counts) {
        cells.push_back(row.refusal.substr(0, row.refusal.find(':')));
        cells.resize(is_raw ? 12 : 9);
        return cells;
    }
    const RunCounts& counts = *row.counts;
    const double scale = is_raw ? 1 : 1e3;
    const int digits = is_raw ? 9 : 2;
    cells.push_back(fixed(scale * counts.pass_seconds, digits));
    cells.push_back(fixed(scale * row.bound_seconds, digits));
    cells.push_back(fixed(
        is_raw ? counts.pass_seconds / row.bound_seconds - 1 : 100 * (counts.pass_seconds / row.bound_seconds - 1),
        is_raw ? 6 : 1));
    cells.push_back(fixed(scale * std::max(0.0, counts.pass_seconds - counts.compute_seconds), digits));
    const double hits =
        counts.requested_bytes > 0 ? 1 - (counts.missed_bytes + counts.ahead_bytes) / counts.requested_bytes : 1;
    const double ahead = counts.requested_bytes > 0 ? counts.ahead_bytes / counts.requested_bytes : 0;
    cells.push_back(fixed(is_raw ? hits : 100 * hits, is_raw ? 6 : 1));
    cells.push_back(fixed(is_raw ? ahead : 100 * ahead, is_raw ? 6 : 1));
    cells.push_back(is_raw ? fixed(counts.fetched_bytes, 0)
                           : human_bytes(static_cast<std::uint64_t>(counts.fetched_bytes)));
    if (is_raw) { cells.push_back(fixed(counts.compute_seconds, 9)); }
    return cells;
}

}  // namespace

void print_json(const std::vector<Row>& rows) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const Row& row : rows) { out.push_back(json_of(row)); }
    std::cout << out.dump(1) << "\n";
}

void print_csv(const std::vector<Row>& rows) {
    Table table{{"workload", "card", "policy", "budget_bytes", "pass_seconds", "bound_seconds", "regret",
                 "stall_seconds", "hit_share_of_bytes", "ahead_share_of_bytes", "fetched_bytes", "compute_seconds"}};
    for (const Row& row : rows) { table.add(cells_of(row, true)); }
    std::cout << table.comma_separated();
}

void print_tables(const std::vector<Row>& rows) {
    for (std::size_t begin = 0; begin < rows.size();) {
        std::size_t end = begin;
        while (end < rows.size() && rows[end].work == rows[begin].work && rows[end].card == rows[begin].card) { ++end; }
        const Workload& work = *rows[begin].work;
        std::cout << "\n"
                  << work.name << " on " << rows[begin].card->name << ": " << human_bytes(work.total_bytes()) << " in "
                  << work.bytes.size() << " storages, " << work.steps.size() / work.pass_ends.size()
                  << " steps a pass\n";
        Table table{
            {"policy", "budget", "pass ms", "bound ms", "regret %", "stall ms", "hits % of bytes", "ahead %", "moved"}};
        for (; begin < end; ++begin) { table.add(cells_of(rows[begin], false)); }
        std::cout << table.aligned();
    }
    std::cout
        << "\nTimes and bytes are of one pass in the steady state. hits: there from before; ahead: brought before\n"
           "they were asked for; the rest was missed.\n"
           "* knows the whole run\n";
}

void draw(const std::vector<Row>& rows, const std::string& folder) {
    std::filesystem::create_directories(folder);
    for (std::size_t begin = 0; begin < rows.size();) {
        std::size_t end = begin;
        while (end < rows.size() && rows[end].work == rows[begin].work && rows[end].card == rows[begin].card) { ++end; }
        const double total = static_cast<double>(rows[begin].work->total_bytes());
        Chart chart{rows[begin].work->name + " on " + rows[begin].card->name, "budget, % of all weights",
                    "time of a pass, ms"};
        std::vector<std::pair<double, double>> bound;
        for (std::size_t i = begin; i < end;) {
            const Composition* composition = rows[i].composition;
            std::vector<std::pair<double, double>> points;
            for (; i < end && rows[i].composition == composition; ++i) {
                const double share = 100 * static_cast<double>(rows[i].budget_bytes) / total;
                if (composition == nullptr) { continue; }
                if (rows[i].counts) { points.emplace_back(share, 1e3 * rows[i].counts->pass_seconds); }
                if (std::none_of(bound.begin(), bound.end(), [&](const auto& each) { return each.first == share; })) {
                    bound.emplace_back(share, 1e3 * rows[i].bound_seconds);
                }
            }
            if (composition != nullptr) { chart.add(composition->name, std::move(points)); }
        }
        std::sort(bound.begin(), bound.end());
        chart.add("bound", std::move(bound), true);
        const std::string text = chart.svg();
        const std::string path = folder + "/" + rows[begin].work->name + "." + rows[begin].card->name + ".svg";
        if (auto written = residency::detail::write_file(path, std::as_bytes(std::span{text})); !written) {
            fail(written.error());
        }
        begin = end;
    }
}

void advise(const std::vector<Row>& rows) {
    for (std::size_t begin = 0; begin < rows.size();) {
        std::size_t end = begin;
        while (end < rows.size() && rows[end].work == rows[begin].work && rows[end].card == rows[begin].card) { ++end; }
        const Workload& work = *rows[begin].work;
        double resident_seconds = 0;
        std::vector<const Row*> best;
        for (std::size_t i = begin; i < end; ++i) {
            const Row& row = rows[i];
            if (!row.counts) { continue; }
            if (row.composition == nullptr) {
                resident_seconds = row.counts->pass_seconds;
                continue;
            }
            if (row.composition->knows_future) { continue; }
            const auto same = std::find_if(best.begin(), best.end(),
                                           [&](const Row* each) { return each->budget_bytes == row.budget_bytes; });
            if (same == best.end()) {
                best.push_back(&row);
            } else if (row.counts->pass_seconds < (*same)->counts->pass_seconds) {
                *same = &row;
            }
        }
        std::sort(best.begin(), best.end(),
                  [](const Row* a, const Row* b) { return a->budget_bytes < b->budget_bytes; });
        std::cout << "\nadvice for " << work.name << " on " << rows[begin].card->name
                  << " (everything resident: " << human_bytes(work.total_bytes()) << ", "
                  << fixed(1e3 * resident_seconds, 2) << " ms a pass)\n";
        Table table{{"budget", "composition", "pass ms", "times resident", "above the bound %"}};
        for (const Row* row : best) {
            table.add({human_bytes(row->budget_bytes), row->composition->name,
                       fixed(1e3 * row->counts->pass_seconds, 2),
                       fixed(row->counts->pass_seconds / resident_seconds, 2),
                       fixed(100 * (row->counts->pass_seconds / row->bound_seconds - 1), 1)});
        }
        std::cout << table.aligned();
        for (const double factor : {1.05, 1.25, 2.0}) {
            const auto enough = std::find_if(best.begin(), best.end(), [&](const Row* row) {
                return row->counts->pass_seconds <= factor * resident_seconds;
            });
            if (enough == best.end()) { continue; }
            std::cout << "within " << fixed(factor, 2)
                      << " x of everything resident: " << human_bytes((*enough)->budget_bytes) << " with "
                      << (*enough)->composition->name << "\n";
        }
        begin = end;
    }
}

}  // namespace lab
