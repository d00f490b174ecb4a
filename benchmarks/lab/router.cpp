// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/router.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/fail.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/options.hpp"
#include "benchmarks/lab/parallel.hpp"
#include "benchmarks/lab/records.hpp"
#include "benchmarks/lab/registry.hpp"
#include "benchmarks/lab/table.hpp"
#include "benchmarks/lab/trace/replay.hpp"
#include "benchmarks/lab/trace/replay_routed.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/model/use_order.hpp"

namespace lab {

namespace {

using lab::trace::CacheCounts;
using lab::trace::Trace;

struct RouterOptions : CommonOptions {
    std::string trace;
    std::string format{"route"};
    std::vector<std::string> shares{"6", "12.5", "25"};
    std::vector<std::string> policies{"lru", "lru/layer", "lfu/layer", "s3fifo", "expecteduse", "kernels", "belady"};
};

struct RouterRow {
    std::string policy;
    const Evictor* evictor;
    bool is_by_layer;
    double share;  ///< of all experts, in percent
    CacheCounts counts;
};

/// What the kernels of a RoutedExperts decide, by its default policy.
const Evictor kernels_evictor{"kernels", false, {}, [](const StepsJob& job) {
                                  return lab::trace::replay_routed<residency::routed::ExpectedUse>(
                                      job.trace, job.capacity_bytes, job.first_counted);
                              }};
const Evictor& evictor_of(const std::string& name) {
    if (name == kernels_evictor.name) { return kernels_evictor; }
    return *std::find_if(evictors().begin(), evictors().end(), [&](const Evictor& each) { return each.name == name; });
}

/// The steps of a trace up to where the layers come round again: the prompt, in a router's.
std::size_t first_round(const Trace& trace) {
    std::uint32_t layer = 0;
    for (std::size_t i = 0; i < trace.steps(); ++i) {
        if (trace.step(i).empty()) { continue; }
        const std::uint32_t next = trace.groups.empty() ? 0 : trace.groups[index(trace.step(i).front())];
        if (i > 0 && next <= layer) { return i; }
        layer = next;
    }
    return 0;
}

/// A trace and its future, each expert one byte, so that the capacity counts experts.
struct Part {
    Trace trace;
    residency::UseOrder future;
    std::size_t first_counted = 0;
};
Part part_of(Trace trace, std::size_t first_counted) {
    std::fill(trace.bytes.begin(), trace.bytes.end(), 1);
    auto future = trace.try_order();
    if (!future) { fail(future.error()); }
    return {std::move(trace), std::move(*future), first_counted};
}
/// Each layer's steps as a trace of its own.
std::vector<Part> layers_of(const Trace& trace, std::size_t first_counted) {
    std::vector<Trace> traces;
    std::vector<std::size_t> first;
    for (std::size_t i = 0; i < trace.steps(); ++i) {
        if (trace.step(i).empty()) { continue; }
        const std::uint32_t layer = trace.groups.empty() ? 0 : trace.groups[index(trace.step(i).front())];
        if (layer >= traces.size()) {
            traces.resize(layer + 1);
            first.resize(layer + 1);
        }
        traces[layer].add_step(trace.step(i));
        if (i < first_counted) { first[layer] = traces[layer].steps(); }
    }
    std::vector<Part> parts;
    for (std::size_t layer = 0; layer < traces.size(); ++layer) {
        traces[layer].bytes = trace.bytes;
        parts.push_back(part_of(std::move(traces[layer]), first[layer]));
    }
    return parts;
}

residency::Result<CacheCounts> counts_of(const RouterRow& row, const Part& whole, const std::vector<Part>& layers) {
    const auto experts = static_cast<double>(whole.trace.bytes.size());
    const auto replay = [&](const Part& part, double capacity) -> residency::Result<CacheCounts> {
        if (part.trace.accesses.empty()) { return CacheCounts{}; }
        return row.evictor->steps({part.trace, part.future, static_cast<std::uint64_t>(capacity), part.first_counted});
    };
    if (!row.is_by_layer) { return replay(whole, std::round(experts * row.share / 100)); }
    CacheCounts sum;
    for (const Part& layer : layers) {
        const auto counts = replay(layer, std::ceil(experts / static_cast<double>(layers.size()) * row.share / 100));
        if (!counts) { return counts.error(); }
        sum.requests += counts->requests;
        sum.requested_bytes += counts->requested_bytes;
        sum.misses += counts->misses;
        sum.missed_bytes += counts->missed_bytes;
    }
    return sum;
}

/// 0 to 100.
std::optional<double> share_of(const std::string& text) {
    const auto share = decimal(text);
    return share && *share <= 100 ? share : std::nullopt;
}

double hits(const CacheCounts& counts) {
    return counts.requests == 0 ? 0
                                : 100 - 100 * static_cast<double>(counts.misses) / static_cast<double>(counts.requests);
}

const std::vector<std::string> router_columns{"policy", "percent_of_experts", "requests", "misses", "hit_percent"};

void print_json(const std::vector<RouterRow>& rows) {
    std::vector<std::vector<Value>> records;
    for (const RouterRow& row : rows) {
        records.push_back({row.policy, row.share, row.counts.requests, row.counts.misses, hits(row.counts)});
    }
    std::cout << json_records(router_columns, records) << "\n";
}
void print_csv(const std::vector<RouterRow>& rows) {
    Table table{router_columns};
    for (const RouterRow& row : rows) {
        table.add({row.policy, fixed(row.share, 2), std::to_string(row.counts.requests),
                   std::to_string(row.counts.misses), fixed(hits(row.counts), 4)});
    }
    std::cout << table.comma_separated();
}
void print_table(const Trace& trace, const std::vector<RouterRow>& rows, std::size_t shares) {
    std::cout << trace.name << ": " << trace.bytes.size() << " experts; " << rows.front().counts.requests
              << " choices after the first round of all layers, which fills the cache\n";
    std::vector<std::string> heading{"hits, %, where so many of all experts fit:"};
    for (std::size_t i = 0; i < shares; ++i) { heading.push_back(fixed(rows[i].share, 1) + " %"); }
    Table table{heading};
    for (std::size_t begin = 0; begin < rows.size(); begin += shares) {
        std::vector<std::string> cells{rows[begin].policy + (rows[begin].evictor->knows_future ? " *" : "")};
        for (std::size_t i = begin; i < begin + shares; ++i) { cells.push_back(fixed(hits(rows[i].counts), 1)); }
        table.add(std::move(cells));
    }
    std::cout << table.aligned()
              << "/layer: each layer has its share for itself\nkernels: what RoutedExperts decides on the device\n* "
                 "knows the whole trace\n";
}

void run_router(const RouterOptions& options) {
    const auto trace = read_trace(options.trace, options.format);
    if (!trace) { fail(trace.error()); }
    const std::size_t first_counted = first_round(*trace);
    const Part whole = part_of(*trace, first_counted);
    std::vector<Part> layers;
    std::vector<RouterRow> rows;
    for (const std::string& policy : options.policies) {
        const std::string name = policy.substr(0, policy.find('/'));
        const bool is_by_layer = name != policy;
        if (is_by_layer && layers.empty()) { layers = layers_of(*trace, first_counted); }
        for (const std::string& share : options.shares) {
            rows.push_back({policy, &evictor_of(name), is_by_layer, share_of(share).value_or(0), {}});
        }
    }
    std::optional<residency::Error> failure;
    {
        Progress progress{"router", rows.size()};
        failure = first_failure_in_parallel(rows.size(), options.threads, [&](std::size_t i) {
            auto counts = counts_of(rows[i], whole, layers);
            if (counts) { rows[i].counts = *counts; }
            progress.add(1);
            return counts ? std::nullopt : std::optional{counts.error().in(rows[i].policy)};
        });
    }
    if (failure) { fail(*failure); }
    if (options.json) { return print_json(rows); }
    if (options.csv) { return print_csv(rows); }
    print_table(*trace, rows, options.shares.size());
}

}  // namespace

void add_router_command(CLI::App& app) {
    auto options = std::make_shared<RouterOptions>();
    std::vector<std::string> names{kernels_evictor.name};
    for (const Evictor& each : evictors()) {
        names.push_back(each.name);
        names.push_back(each.name + "/layer");
    }
    CLI::App* command = app.add_subcommand(
        "router", "the experts that a router chose: what is there, by policy and share of all experts");
    command->footer(trace_formats);
    command->add_option("--trace", options->trace, "the file, perhaps compressed")
        ->required()
        ->check(CLI::ExistingFile);
    command->add_option("--format", options->format, "of the file")
        ->check(CLI::IsMember({"route", "npy", "residency"}))
        ->capture_default_str();
    add_list(*command, "--share", options->shares, "percent of all experts that fit; several with commas",
             CLI::Validator{[](std::string& text) {
                                return share_of(text) ? std::string{}
                                                      : "found \"" + text + "\", expected a number from 0 to 100";
                            },
                            "0 to 100"});
    add_list(*command, "--policy", options->policies,
             "several with commas; NAME/layer: each layer has its share for itself", CLI::IsMember(names));
    add_common_options(*command, *options);
    command->callback([options] { run_router(*options); });
}

}  // namespace lab
