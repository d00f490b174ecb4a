// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/run.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/lab/bound.hpp"
#include "benchmarks/lab/chart.hpp"
#include "benchmarks/lab/check_budgets.hpp"
#include "benchmarks/lab/generators.hpp"
#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/parallel.hpp"
#include "benchmarks/lab/registry.hpp"
#include "benchmarks/lab/table.hpp"
#include "residency/format/open.hpp"
#include "residency/model/file.hpp"
#include "residency/trace/perfetto.hpp"

namespace lab {

namespace {

struct Options {
    std::vector<std::string> workloads, policies;
    std::vector<std::string> cards{"h200_measured"};
    std::vector<std::string> budgets{"10%", "25%", "50%", "75%", "90%"};
    std::string model, trace, format, pictures, timeline, link;
    std::string device{"simulated"};
    std::uint32_t passes = 4;
    unsigned threads = std::max(1U, std::thread::hardware_concurrency());
    bool json = false;
    bool csv = false;
    bool advise = false;
};

[[noreturn]] void fail(const residency::Error& error) {
    std::cerr << "residency-lab: " << error.message() << "\n";
    throw CLI::RuntimeError{1};
}

/// No GPU where one is asked for: one line, and 2.
[[noreturn]] void fail_without_gpu(const residency::Error& error, const std::string& option) {
    std::cerr << "residency-lab: " << option << " needs a GPU: " << error.message() << "\n";
    throw CLI::RuntimeError{2};
}

/// The cards that are asked for, with the link that is asked for.
std::vector<Card> chosen_cards(const Options& options, Gpu* gpu) {
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

struct Row {
    const Workload* work = nullptr;
    const Card* card = nullptr;
    const Composition* composition = nullptr;  ///< null: everything resident
    std::uint64_t budget_bytes = 0;
    double bound_seconds = 0;
    std::optional<RunCounts> counts;
    std::string refusal;  ///< why there are no counts
};

/// A model file's weights one after the other, as one token's pass, a storage a step.
Workload workload_of_file(const std::string& path) {
    const auto model = residency::format::try_read_model(path);
    if (!model) { fail(model.error()); }
    Workload work;
    work.name = std::filesystem::path{path}.filename().string();
    std::vector<std::string> names(model->storages.size());
    for (const auto& weight : model->weights) {
        if (names[weight.storage].empty()) { names[weight.storage] = weight.name; }
    }
    for (std::size_t i = 0; i < model->storages.size(); ++i) {
        const std::string name = names[i].empty() ? "storage " + std::to_string(i) : names[i];
        const auto id =
            work.add(name, model->storages[i].bytes, static_cast<std::uint32_t>(i), model->storages[i].is_mutable);
        work.steps.push_back({{id}, static_cast<double>(model->storages[i].bytes)});
    }
    generate::end_pass(work);
    return work;
}

/// A recorded trace whose order is not known beforehand; a pass ends where the layers begin again, or after 64 steps without layers.
Workload workload_of_trace(const std::string& path, const std::string& format) {
    const auto trace = read_trace(path, format);
    if (!trace) { fail(trace.error()); }
    Workload work;
    work.name = std::filesystem::path{path}.filename().string();
    work.is_known = false;
    for (std::size_t i = 0; i < trace->bytes.size(); ++i) {
        work.add(std::to_string(i), trace->bytes[i], trace->groups.empty() ? 0 : trace->groups[i]);
    }
    std::uint32_t layer = 0;
    for (std::size_t i = 0; i < trace->steps(); ++i) {
        const auto step = trace->step(i);
        const std::uint32_t next = trace->groups.empty() || step.empty() ? layer : trace->groups[index(step.front())];
        const bool begins = trace->groups.empty() ? i % 64 == 0 : next < layer;
        if (begins && !work.steps.empty()) { generate::end_pass(work); }
        layer = next;
        // Layers mean a router: what it chooses is known one layer after the other.
        work.steps.push_back({{step.begin(), step.end()}, 0, !trace->groups.empty()});
    }
    generate::end_pass(work);
    return work;
}

const char* reason(const residency::Error& error) {
    return error.kind() == residency::ErrorKind::budget ? "below its floor" : "failed";
}

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

/// Step time against budget, one picture a workload and card.
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

/// The best composition at each budget, and what little budget gives how much of the speed of everything resident.
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

void run(Options options) {
    check_budgets(options.budgets);
    const bool is_on_gpu = options.device == "cuda";
    if (is_on_gpu) {
        if (options.link.empty()) { options.link = "measured"; }
        options.threads = 1;  // runs share the link
    }
    std::shared_ptr<Gpu> gpu;
    if (is_on_gpu || options.link == "measured") {
        auto opened = open_gpu();
        if (!opened) { fail_without_gpu(opened.error(), is_on_gpu ? "--device cuda" : "--link measured"); }
        gpu = std::move(*opened);
    }
    const std::vector<Card> used_cards = chosen_cards(options, gpu.get());
    std::vector<Workload> works;
    works.reserve(generators().size() + 2);
    if (!options.model.empty()) { works.push_back(workload_of_file(options.model)); }
    if (!options.trace.empty()) { works.push_back(workload_of_trace(options.trace, options.format)); }
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
                for (const std::uint64_t budget : *budgets) {
                    rows.push_back({&work, &card, &each, budget, 0, {}, {}});
                }
            }
            rows.push_back({&work,
                            &card,
                            nullptr,
                            work.total_bytes() + work.total_bytes() / 16 + (std::uint64_t{256} << 20),
                            0,
                            {},
                            {}});
        }
    }
    residency::trace::Perfetto timeline;
    {
        Progress progress{"run", rows.size()};
        for_each_in_parallel(rows.size(), options.threads, [&](std::size_t i) {
            Row& row = rows[i];
            const Composition& composition = row.composition != nullptr ? *row.composition : resident;
            const bool is_drawn = !options.timeline.empty() && i == 0;
            auto counts = composition.run({.work = *row.work,
                                           .card = *row.card,
                                           .budget_bytes = row.budget_bytes,
                                           .passes = options.passes,
                                           .timeline = is_drawn ? &timeline : nullptr,
                                           .gpu = is_on_gpu ? gpu.get() : nullptr});
            if (counts) {
                row.counts = *counts;
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
    }
    if (!options.timeline.empty()) {
        if (auto saved = timeline.try_save(options.timeline); !saved) { fail(saved.error()); }
    }
    if (!options.pictures.empty()) { draw(rows, options.pictures); }
    if (options.json) {
        nlohmann::ordered_json out = nlohmann::ordered_json::array();
        for (const Row& row : rows) { out.push_back(json_of(row)); }
        std::cout << out.dump(1) << "\n";
    } else if (options.csv) {
        Table table{{"workload", "card", "policy", "budget_bytes", "pass_seconds", "bound_seconds", "regret",
                     "stall_seconds", "hit_share_of_bytes", "ahead_share_of_bytes", "fetched_bytes",
                     "compute_seconds"}};
        for (const Row& row : rows) { table.add(cells_of(row, true)); }
        std::cout << table.comma_separated();
    } else if (options.advise) {
        advise(rows);
    } else {
        print_tables(rows);
    }
}

}  // namespace

void add_run_command(CLI::App& app) {
    auto options = std::make_shared<Options>();
    std::vector<std::string> workloads;
    std::vector<std::string> policies;
    std::vector<std::string> card_names;
    for (const Generator& each : generators()) { workloads.push_back(each.name); }
    for (const Composition& each : compositions()) { policies.push_back(each.name); }
    for (const Card& each : cards()) { card_names.push_back(each.name); }
    CLI::App* command = app.add_subcommand("run", "compositions on the simulated device or a GPU, against the bound");
    command->add_option("--workload", options->workloads, "several with commas; a selection by default")
        ->delimiter(',')
        ->check(CLI::IsMember(workloads));
    command->add_option("--model", options->model, "a model file: its weights in order, once a pass")
        ->check(CLI::ExistingFile);
    auto* format = command->add_option("--format", options->format, "of the trace")
                       ->check(CLI::IsMember({"route", "oracle", "csv", "residency"}));
    command->add_option("--trace", options->trace, "a recorded trace, its order not known beforehand")
        ->check(CLI::ExistingFile)
        ->needs(format);
    command->add_option("--policy", options->policies, "several with commas; a selection by default")
        ->delimiter(',')
        ->check(CLI::IsMember(policies));
    command->add_option("--card", options->cards, "a GPU and its link")
        ->delimiter(',')
        ->check(CLI::IsMember(card_names))
        ->capture_default_str();
    std::vector<std::string> links{"measured"};
    for (const residency::LinkModel& each : residency::links::all) { links.emplace_back(each.name); }
    command->add_option("--link", options->link, "instead of the card's own; measured: of the GPU here, at start")
        ->check(CLI::IsMember(links));
    auto* device =
        command->add_option("--device", options->device, "cuda: real copies over the measured link of the GPU here")
            ->check(CLI::IsMember({"simulated", "cuda"}))
            ->capture_default_str();
    command->add_option("--budget", options->budgets, "8GiB, or 25% of all weights; several with commas")
        ->delimiter(',')
        ->capture_default_str();
    command->add_option("--passes", options->passes, "to measure, where the order is known")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_option("--threads", options->threads)->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--pictures", options->pictures, "a folder for SVG pictures of pass time against budget");
    command
        ->add_option("--timeline", options->timeline,
                     "a file for the last pass of the first row, for ui.perfetto.dev; of the simulated device")
        ->excludes(device);
    command->add_flag("--advise", options->advise, "which composition and which budget, and what to expect");
    auto* json = command->add_flag("--json", options->json, "print JSON");
    command->add_flag("--csv", options->csv, "print comma-separated values")->excludes(json);
    command->callback([options] { run(*options); });
}

}  // namespace lab
