// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/run_command.hpp"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/lab/generators.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/options.hpp"
#include "benchmarks/lab/registry.hpp"
#include "benchmarks/lab/run.hpp"
#include "residency/device/link.hpp"

namespace lab {

namespace {

constexpr std::uint64_t most_passes = 1000000;

}  // namespace

void add_run_command(CLI::App& app) {
    auto options = std::make_shared<RunOptions>();
    std::vector<std::string> workloads;
    std::vector<std::string> policies;
    std::vector<std::string> card_names;
    for (const Generator& each : generators()) { workloads.push_back(each.name); }
    for (const Composition& each : compositions()) { policies.push_back(each.name); }
    for (const Card& each : cards()) { card_names.push_back(each.name); }
    CLI::App* command = app.add_subcommand("run", "compositions on the simulated device or a GPU, against the bound");
    command->footer(trace_formats);
    add_list(*command, "--workload", options->workloads, "several with commas; a selection by default",
             CLI::IsMember(workloads));
    command->add_option("--model", options->model, "a model file: its weights in order, once a pass")
        ->check(CLI::ExistingFile);
    auto* format = command->add_option("--format", options->format, "of the trace")
                       ->check(CLI::IsMember({"route", "oracle", "csv", "residency"}));
    command->add_option("--trace", options->trace, "a recorded trace, its order not known beforehand")
        ->check(CLI::ExistingFile)
        ->needs(format);
    add_list(*command, "--policy", options->policies, "several with commas; a selection by default",
             CLI::IsMember(policies));
    const auto add_packing = [&](const char* name, std::optional<double>& value, double scale, double most,
                                 const char* what) {
        const auto read = [&value, name, scale, most](const std::string& text) {
            const auto number = decimal(text);
            if (!number || *number <= 0 || *number > most) {
                throw CLI::ValidationError{name, "found \"" + text.substr(0, 20) +
                                                     "\", expected a number above 0, at most " +
                                                     std::to_string(static_cast<int>(most))};
            }
            value = *number * scale;
        };
        command->add_option_function<std::string>(name, read, what)->type_name("TEXT:above 0");
    };
    add_packing("--packed-share", options->packing.share, 1, 1,
                "packed bytes over raw ones, for packed; as in the file's weights, or 0.67");
    add_packing("--unpack-gbps", options->packing.unpack_bytes_per_second, 1e9, 1e6,
                "raw bytes that are unpacked, in GB/s, for packed; 0.3 of the card's memory, 1300 at most");
    add_list(*command, "--card", options->cards, "a GPU and its link; several with commas", CLI::IsMember(card_names));
    std::vector<std::string> links{"measured"};
    for (const residency::LinkModel& each : residency::links::all) { links.emplace_back(each.name); }
    command->add_option("--link", options->link, "instead of the card's own; measured: of the GPU here, at start")
        ->check(CLI::IsMember(links));
    command->add_option("--device", options->device, "cuda: real copies over the measured link of the GPU here")
        ->check(CLI::IsMember({"simulated", "cuda"}))
        ->capture_default_str();
    add_list(*command, "--budget", options->budgets,
             "8GiB, or 25% of all weights; 0: the smallest that works; several with commas");
    command->add_option("--passes", options->passes, "to measure, where the order is known")
        ->check(whole_number(1, most_passes))
        ->capture_default_str();
    command->add_option("--pictures", options->pictures, "a folder for SVG pictures of pass time against budget");
    command->add_option(
        "--timeline", options->timeline,
        "a file for the last pass of the first row that runs, for ui.perfetto.dev; of the simulated device");
    auto* advised = command->add_flag("--advise", options->advise,
                                      "the floor, which composition and which budget, what to expect, and where "
                                      "offloading will not help");
    const auto read_wanted = [options](const std::string& text) {
        const auto milliseconds = decimal(text);
        if (!milliseconds || *milliseconds <= 0 || text.size() > 20) {
            throw CLI::ValidationError{"--wanted-ms", "found \"" + text + "\", expected milliseconds, such as 12.5"};
        }
        options->wanted_seconds = *milliseconds / 1e3;
    };
    command
        ->add_option_function<std::string>("--wanted-ms", read_wanted,
                                           "milliseconds of a pass that --advise finds a budget for")
        ->type_name("TEXT:above 0")
        ->needs(advised);
    add_common_options(*command, *options);
    advised->excludes("--json")->excludes("--csv");
    command->callback([options] { run(*options); });
}

}  // namespace lab
