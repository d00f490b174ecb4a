// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Runs a PyTorch model that residency_export compiled, at one budget after the other, and compares every output with that of the same
// packages without the library. A model for CUDA runs on a GPU, one for the CPU on the simulated device. Exits with 0 if all bits are
// equal, with 1 if not, with 2 for bad input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "job.hpp"
#include "residency/error.hpp"
#include "residency/format/program.hpp"
#include "residency/model/file.hpp"
#include "waits.hpp"

namespace compiled { namespace {

using examples::mib;
using examples::text_of;

Results run_on(const Job& job) {
    const auto program = residency::format::load_program_folder(job.model);
    if (program.device == "cpu") {
        if (job.graph) {
            residency::throw_error(
                {residency::ErrorKind::unsupported,
                 "--graph: the model was compiled for the CPU, whose kernels run at once; leave it out, "
                 "or export the model for a GPU"});
        }
        return run_simulated(job);
    }
#ifdef WITH_CUDA
    return run_cuda(job);
#else
    residency::throw_error(
        {residency::ErrorKind::unsupported, "the model was compiled for " + program.device +
                                                ", and this program was built without CUDA: "
                                                "build it with CUDA, or export the model on the CPU"});
#endif
}

std::string mib_text(std::uint64_t bytes) { return text_of(mib(bytes), "%.1f MiB"); }

const char* name(Way way) {
    switch (way) {
        case Way::eager: return "eager";
        case Way::graph: return "graph";
        case Way::chosen: break;
    }
    return "chosen";
}

nlohmann::ordered_json json_of(const Row& row) {
    const Why& why = *row.why;
    return {{"milliseconds", why.milliseconds},
            {"waits", why.waits},
            {"waited_milliseconds", why.waited_milliseconds},
            {"longest_milliseconds", why.longest_milliseconds},
            {"step", why.step},
            {"cause", why.waits > 0 ? to_string(why.cause) : ""},
            {"ring_pieces", why.ring_pieces},
            {"piece_bytes", why.piece_bytes},
            {"text", in_words(row)}};
}

void write_json(const std::string& path, const Results& results) {
    nlohmann::ordered_json json{{"device", results.device},
                                {"compiler", results.compiler},
                                {"weight_bytes", results.weight_bytes},
                                {"runs", nlohmann::ordered_json::array()}};
    for (const Row& row : results.rows) {
        json["runs"].push_back({{"budget", row.budget},
                                {"method", row.method},
                                {"way", name(row.way)},
                                {"graph", row.is_graph},
                                {"right", row.is_right},
                                {"milliseconds", row.milliseconds},
                                {"alone_milliseconds", row.alone_milliseconds},
                                {"bound_milliseconds", row.bound_milliseconds},
                                {"planned_milliseconds", row.planned_milliseconds},
                                {"budget_bytes", row.statistics.budget_bytes},
                                {"held_bytes", row.statistics.held_bytes},
                                {"driver_bytes", row.driver_bytes},
                                {"copied_bytes", row.statistics.last_pass.fetched_bytes},
                                {"leases", row.statistics.last_pass.acquires},
                                {"calls", row.statistics.last_pass.calls}});
        if (row.why) { json["runs"].back()["why"] = json_of(row); }
    }
    json["switches"] = nlohmann::ordered_json::array();
    for (const Switch& each : results.switches) {
        json["switches"].push_back({{"budget", each.budget},
                                    {"from", each.from},
                                    {"to", each.to},
                                    {"plans", each.plans},
                                    {"copied_bytes", each.copied_bytes},
                                    {"steady_bytes", each.steady_bytes},
                                    {"difference_bytes", each.difference_bytes},
                                    {"milliseconds", each.milliseconds}});
    }
    if (results.first) {
        json["first"] = {{"method", results.first->method},
                         {"open_milliseconds", results.first->open_milliseconds},
                         {"run_milliseconds", results.first->run_milliseconds},
                         {"hashes", results.first->hashes}};
    }
    for (const TotalChange& each : results.totals) {
        json["totals"].push_back({{"before_bytes", each.before_bytes},
                                  {"total_bytes", each.total_bytes},
                                  {"rounds", each.rounds},
                                  {"milliseconds", each.milliseconds},
                                  {"steady_milliseconds", each.steady_milliseconds},
                                  {"changing_milliseconds", each.changing_milliseconds},
                                  {"new_bytes", each.new_bytes},
                                  {"link_milliseconds", each.link_milliseconds},
                                  {"right", each.is_right}});
    }
    json["refused"] = results.refused;
    json["left_out"] = results.left_out;
    const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    residency::unwrap(residency::detail::write_file(path, std::as_bytes(std::span{text})));
}

/// Changes of a total, or how long the first run took: whether outputs were right.
bool print_other(const Results& results) {
    bool right = true;
    for (const TotalChange& each : results.totals) {
        std::printf(
            "  total of %s to %s: %.3f ms more than %llu rounds take, %.3f ms of them on the host; %s new, "
            "%.3f ms of the link%s\n",
            mib_text(each.before_bytes).c_str(), mib_text(each.total_bytes).c_str(),
            each.milliseconds - each.steady_milliseconds, static_cast<unsigned long long>(each.rounds),
            each.changing_milliseconds, mib_text(each.new_bytes).c_str(), each.link_milliseconds,
            each.is_right ? "" : "; DIFFERS");
        right = right && each.is_right;
    }
    if (const auto& first = results.first) {
        std::printf("from the folder to the first outputs of %s: %.3f ms, %.3f ms of them to open it\n",
                    first->method.c_str(), first->open_milliseconds + first->run_milliseconds,
                    first->open_milliseconds);
    }
    return right;
}

/// The table, and what belongs to its rows: whether all outputs were right.
bool print_rows(const Results& results) {
    examples::Table table;
    table.row({"", "held", "driver", "copied a run", "a run takes", "of the least"});
    bool right = true;
    for (const Row& row : results.rows) {
        right = right && row.is_right;
        table.row({row.method + (row.budget == "none" ? " alone" : ", " + row.budget) +
                       (row.way == Way::chosen ? "" : std::string{", "} + name(row.way)),
                   mib_text(row.statistics.held_bytes), row.driver_bytes > 0 ? mib_text(row.driver_bytes) : "",
                   mib_text(row.statistics.last_pass.fetched_bytes), text_of(row.milliseconds, "%.3f ms"),
                   row.bound_milliseconds > 0 ? text_of(row.milliseconds / row.least(), "%.3f") : "",
                   !row.is_right                            ? "DIFFERS"
                   : row.way == Way::chosen && row.is_graph ? "as a graph"
                                                            : ""});
    }
    table.print();
    std::printf("\n");
    for (const std::string& text : results.budgets) { std::printf("  %s\n", text.c_str()); }
    for (const Switch& each : results.switches) {
        const std::uint64_t more = each.copied_bytes - (std::min)(each.copied_bytes, each.steady_bytes);
        std::printf("  %s, %s to %s: %s more than a run copies, where they hold %s that differ; %llu plans\n",
                    each.budget.c_str(), each.from.c_str(), each.to.c_str(), mib_text(more).c_str(),
                    mib_text(each.difference_bytes).c_str(), static_cast<unsigned long long>(each.plans));
    }
    for (const Row& row : results.rows) {
        if (row.why) {
            std::printf("  %s, %s, %s: %s\n", row.method.c_str(), row.budget.c_str(), name(row.way),
                        in_words(row).c_str());
        }
    }
    for (const std::string& why : results.refused) { std::printf("  refused: %s\n", why.c_str()); }
    for (const std::string& text : results.left_out) { std::printf("  %s\n", text.c_str()); }
    return right;
}

int run(const Job& job, const std::string& json) {
    const Results results = run_on(job);
    const bool has_rows = !results.rows.empty();
    if (has_rows) {
        std::printf("%s, on %s, %.1f MiB of weights\n\n", results.compiler.c_str(), results.device.c_str(),
                    mib(results.weight_bytes));
    }
    const bool right = (has_rows ? print_rows(results) : print_other(results)) && results.reports.empty();
    if (has_rows) {
        std::printf("\noutputs %s\n", right ? "equal those of the packages without the library bit for bit" : "DIFFER");
    }
    for (const std::string& report : results.reports) { std::printf("%s\n", report.c_str()); }
    if (!job.timeline.empty()) {
        std::printf("timeline  %s (%s; open it at ui.perfetto.dev)\n", job.timeline.c_str(), results.timeline.c_str());
    }
    if (!job.report.empty()) { std::printf("report    %s (for a browser)\n", job.report.c_str()); }
    if (!json.empty()) { write_json(json, results); }
    return right ? 0 : 1;
}

}}  // namespace compiled

int main(int argc, char** argv) {
    CLI::App app{"Runs a PyTorch model that residency_export compiled, inside a budget.", "compiled"};
    compiled::Job job;
    std::string json;
    app.add_option("model", job.model, "the folder that residency_export wrote")->required();
    app.add_option("--budget", job.budgets,
                   "budgets, each in turn, such as 8GiB or 50%; 0 is the smallest, stored what the export was given")
        ->delimiter(',');
    app.add_option("--method", job.methods, "methods, in the order of a round; by default all")->delimiter(',');
    app.add_option("--rounds", job.rounds, "timed runs of each method")->capture_default_str();
    app.add_flag("--eager", job.eager, "each method eagerly too; otherwise as a graph, where that takes less time");
    app.add_flag("--graph", job.graph, "on a GPU: each method as a graph too");
    app.add_option("--timeline", job.timeline,
                   "file for a timeline: a run of each method at the last budget, by kernel and module");
    app.add_option("--report", job.report, "file for a page with the same timeline, the figures, and what to change");
    app.add_flag("--waits", job.waits,
                 "say of each row that streams which step waited, and why; otherwise of those above 1.02 of the least");
    auto* first = app.add_flag("--first", job.first, "only: how long it takes from the folder to the first outputs");
    auto* beside =
        app.add_option("--beside", job.beside, "a second folder: both models take turns inside one total, see --total");
    app.add_option("--total", job.totals,
                   "for --beside: totals, each in turn, such as 8GiB: what each change costs, beyond the runs")
        ->delimiter(',')
        ->needs(beside);
    first->excludes(beside);
    app.add_option("--json", json, "file for the figures of the table");
    app.add_option(
        "--torch", job.torch_folder,
        "folder of PyTorch's libraries, torch/lib in site-packages; by default where the dynamic linker looks");
    app.add_option("--shims", job.executorch_shims,
                   "for a program of ExecuTorch, its libaoti_cuda_shims.so, in place of PyTorch's libraries");
    return examples::run_program(app, argc, argv, [&] {
        if (!job.beside.empty() && job.totals.size() < 2) {
            residency::throw_error({residency::ErrorKind::invalid_argument,
                                    "--beside: give two totals at least, such as --total 8GiB,12GiB"});
        }
        if (job.budgets.empty()) { job.budgets = {"100%", "75%", "50%", "25%", "0"}; }
        return compiled::run(job, json);
    });
}
