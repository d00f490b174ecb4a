// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "benchmarks/lab/bound.hpp"
#include "benchmarks/lab/check_budgets.hpp"
#include "benchmarks/lab/fail.hpp"
#include "benchmarks/lab/generators.hpp"
#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/input_workload.hpp"
#include "benchmarks/lab/parallel.hpp"
#include "benchmarks/lab/registry.hpp"
#include "benchmarks/lab/report.hpp"
#include "benchmarks/lab/table.hpp"
#include "residency/model/file.hpp"
#include "residency/timeline/perfetto.hpp"

namespace lab {

namespace {

/// Makes the folder for pictures and tries the file for a timeline, so that no run is lost for want of them.
void check_outputs(const RunOptions& options) {
    const auto refuse = [](const std::string& path, const std::string& why) {
        fail({residency::ErrorKind::io, path + ": " + why, residency::FileLocation{path, 0, {}, {}}});
    };
    if (!options.pictures.empty()) {
        std::error_code failure;
        std::filesystem::create_directories(options.pictures, failure);
        if (failure) { refuse(options.pictures, "cannot be made: " + failure.message()); }
        if (access(options.pictures.c_str(), W_OK | X_OK) != 0) { refuse(options.pictures, "cannot be written to"); }
    }
    if (!options.timeline.empty()) {
        std::error_code ignored;
        const bool was_there = std::filesystem::exists(std::filesystem::symlink_status(options.timeline, ignored));
        if (!residency::detail::FileHandle{std::fopen(options.timeline.c_str(), "ab")}) {
            refuse(options.timeline, "cannot be opened for writing");
        }
        if (!was_there) { static_cast<void>(std::remove(options.timeline.c_str())); }
    }
}

/// The cards that are asked for, with the link that is asked for.
std::vector<Card> chosen_cards(const RunOptions& options, Gpu* gpu) {
    std::vector<Card> chosen;
    for (const Card& each : cards()) {
        if (std::count(options.cards.begin(), options.cards.end(), each.name) > 0) { chosen.push_back(each); }
    }
    if (options.link.empty()) { return chosen; }
    residency::LinkModel link;
    if (options.link == "measured") {
        auto measured = measured_link(*gpu);
        if (!measured) { fail(measured.error()); }
        link = *measured;
        std::cerr << "measured link: " << fixed(link.to_device_bytes_per_second / 1e9, 2) << " GB/s, "
                  << fixed(static_cast<double>(link.call_latency.count()) / 1e3, 2) << " us a call\n";
    } else {
        link = *residency::links::find(options.link);
    }
    for (Card& each : chosen) {
        each.link = link;
        each.name += "+" + options.link;
    }
    return chosen;
}

const char* reason(const residency::Error& error) {
    return error.kind() == residency::ErrorKind::budget ? "below its floor" : "failed";
}

}  // namespace

void run(RunOptions options) {
    check_budgets(options.budgets);
    const bool is_on_gpu = options.device == "cuda";
    if (is_on_gpu && !options.timeline.empty()) {
        fail(
            {residency::ErrorKind::invalid_argument, "--timeline is of the simulated device: leave out --device cuda"});
    }
    if (is_on_gpu && (options.packing.share || options.packing.unpack_bytes_per_second)) {
        fail({residency::ErrorKind::invalid_argument,
              "--packed-share and --unpack-gbps are of the simulated device: leave out --device cuda"});
    }
    check_outputs(options);
    if (is_on_gpu) {
        if (options.link.empty()) { options.link = "measured"; }
        options.threads = 1;  // runs share the link
    }
    std::shared_ptr<Gpu> gpu;
    if (is_on_gpu || options.link == "measured") {
        auto opened = open_gpu();
        if (!opened) {
            fail((is_on_gpu ? "--device cuda needs a GPU: " : "--link measured needs a GPU: ") +
                 opened.error().message());
        }
        gpu = std::move(*opened);
    }
    const std::vector<Card> used_cards = chosen_cards(options, gpu.get());
    std::vector<Workload> works;
    works.reserve(generators().size() + 2);
    const auto add = [&](residency::Result<Workload> read) {
        if (!read) { fail(read.error()); }
        works.push_back(std::move(*read));
    };
    const bool packs = std::any_of(compositions().begin(), compositions().end(), [&](const Composition& each) {
        return each.packs && std::count(options.policies.begin(), options.policies.end(), each.name) > 0;
    });
    if (!options.model.empty()) { add(workload_of_file(options.model, options.advise || packs)); }
    if (!options.trace.empty()) { add(workload_of_trace(options.trace, options.format)); }
    const bool is_given = !works.empty();
    for (const Generator& each : generators()) {
        const bool is_chosen = options.workloads.empty()
                                   ? each.is_default && !is_given
                                   : std::count(options.workloads.begin(), options.workloads.end(), each.name) > 0;
        if (is_chosen) { works.push_back(each.make(each.name)); }
    }
    const Composition resident{.name = "everything resident", .run = run_planned};
    std::vector<Row> rows;
    for (const Workload& work : works) {
        const auto budgets = parse_budgets(options.budgets, work.total_bytes());
        if (!budgets) { fail(budgets.error()); }
        for (const Card& card : used_cards) {
            for (const Composition& each : compositions()) {
                const bool is_chosen = options.policies.empty() ? each.is_default
                                                                : std::count(options.policies.begin(),
                                                                             options.policies.end(), each.name) > 0;
                if ((!is_chosen && each.name != "belady") || (each.needs_order && !work.is_known) ||
                    (each.needs_guesses && work.is_known)) {
                    continue;
                }
                for (const AskedBudget& budget : *budgets) {
                    // A share that rounds to nothing is not the zero that asks for the floor.
                    const std::uint64_t asked = budget.is_zero ? 0 : std::max<std::uint64_t>(budget.bytes, 1);
                    rows.push_back({&work, &card, &each, budget.text, asked, asked, 0, {}, {}, {}});
                }
            }
            const std::uint64_t all = work.total_bytes();
            rows.push_back(
                {&work, &card, nullptr, {}, all + all / 16 + (std::uint64_t{256} << 20), all, 0, {}, {}, {}});
        }
    }
    residency::PerfettoTrace timeline;
    const auto run_row = [&](const Row& row, residency::PerfettoTrace* drawn) {
        const Composition& composition = row.composition != nullptr ? *row.composition : resident;
        return composition.run({.work = *row.work,
                                .card = *row.card,
                                .budget_bytes = row.asked_bytes,
                                .passes = options.passes,
                                .timeline = drawn,
                                .gpu = is_on_gpu ? gpu.get() : nullptr,
                                .packing = options.packing});
    };
    {
        Progress progress{"run", rows.size()};
        for_each_in_parallel(rows.size(), options.threads, [&](std::size_t i) {
            Row& row = rows[i];
            auto counts = run_row(row, !options.timeline.empty() && i == 0 ? &timeline : nullptr);
            if (counts) {
                row.counts = *counts;
                const bool is_changed = row.asked_bytes == 0 || row.is_clamped();
                if (is_changed) { row.budget_bytes = counts->budget_bytes; }
            } else {
                row.refusal = reason(counts.error()) + (": " + counts.error().message());
            }
            progress.add(1);
        });
        // The bound of a budget is the same for every composition.
        std::vector<std::size_t> firsts;
        std::vector<std::size_t> first_of(rows.size());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const auto same = std::find_if(firsts.begin(), firsts.end(), [&](std::size_t other) {
                return rows[other].work == rows[i].work && rows[other].card == rows[i].card &&
                       rows[other].budget_bytes == rows[i].budget_bytes;
            });
            first_of[i] = same == firsts.end() ? i : *same;
            if (same == firsts.end()) { firsts.push_back(i); }
        }
        for_each_in_parallel(firsts.size(), options.threads, [&](std::size_t i) {
            Row& row = rows[firsts[i]];
            row.bound_seconds = bound_of(*row.work, *row.card, row.budget_bytes);
        });
        for (std::size_t i = 0; i < rows.size(); ++i) { rows[i].bound_seconds = rows[first_of[i]].bound_seconds; }
        for (Row& row : rows) {
            if (!row.counts || row.composition == nullptr) { continue; }
            row.bound_seconds = row.counts->packed_bound_seconds.value_or(row.bound_seconds);
            const auto planned = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
                return other.work == row.work && other.card == row.card && other.composition != nullptr &&
                       other.composition->name == "planned" && other.asked_budget == row.asked_budget;
            });
            if (planned == rows.end() || !planned->counts) { continue; }
            row.over_planned = row.counts->pass_seconds / planned->counts->pass_seconds;
        }
    }
    if (options.json) {
        print_json(rows);
    } else if (options.csv) {
        print_csv(rows);
    } else if (options.advise) {
        advise(rows, options.wanted_seconds);
    } else {
        print_tables(rows);
    }
    std::cout.flush();
    if (!options.timeline.empty()) {
        // A row that was refused has no passes: the first that ran, then, which runs again.
        const auto first =
            std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.counts.has_value(); });
        if (first == rows.end()) {
            fail({residency::ErrorKind::budget, "--timeline: no row ran, there is nothing to draw"});
        }
        if (first != rows.begin()) {
            std::cerr << "timeline: of " << (first->composition != nullptr ? first->composition->name : resident.name)
                      << " with " << human_bytes(first->budget_bytes) << ", the first row that ran\n";
            timeline = {};
            static_cast<void>(run_row(*first, &timeline));
        }
        if (auto saved = timeline.try_save(options.timeline); !saved) { fail(saved.error()); }
    }
    if (!options.pictures.empty()) { draw(rows, options.pictures); }
}

}  // namespace lab
