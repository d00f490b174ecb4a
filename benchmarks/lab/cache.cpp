// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cache.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/check_budgets.hpp"
#include "benchmarks/lab/fail.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/options.hpp"
#include "benchmarks/lab/parallel.hpp"
#include "benchmarks/lab/records.hpp"
#include "benchmarks/lab/registry.hpp"
#include "benchmarks/lab/table.hpp"
#include "residency/model/use_order.hpp"

namespace lab {

namespace {

using lab::trace::CacheCounts;

constexpr std::uint64_t most_columns = 1000;

struct CacheOptions : CommonOptions {
    std::string trace, format;
    std::vector<std::string> budgets{"10%", "25%", "50%", "75%", "90%"};
    std::vector<std::string> policies;
    lab::trace::CsvColumns columns;
    std::string separator{"auto"};
};

/// The choices of --separator; auto: as the reader finds.
struct Separator {
    const char* name;
    std::optional<char> separator;
};
constexpr std::array separators{Separator{"auto", std::nullopt}, Separator{"comma", ','}, Separator{"tab", '\t'},
                                Separator{"semicolon", ';'}, Separator{"blank", ' '}};
std::vector<std::string> separator_names() {
    std::vector<std::string> names;
    for (const Separator& each : separators) { names.emplace_back(each.name); }
    return names;
}

struct CacheRow {
    const Evictor* evictor;  ///< null: everything resident
    std::uint64_t budget_bytes;
    CacheCounts counts;
};

/// What is left when nothing that came ever leaves: the first use of each storage.
CacheCounts everything_resident(const lab::trace::Trace& trace) {
    CacheCounts counts;
    std::vector<bool> seen(trace.bytes.size(), false);
    for (const residency::StorageId id : trace.accesses) {
        const std::uint64_t bytes = trace.bytes[index(id)];
        ++counts.requests;
        counts.requested_bytes += bytes;
        if (!seen[index(id)]) {
            seen[index(id)] = true;
            ++counts.misses;
            counts.missed_bytes += bytes;
        }
    }
    return counts;
}

const std::vector<std::string> cache_columns{"policy",          "budget_bytes", "requests",
                                             "requested_bytes", "misses",       "missed_bytes"};

void print_json(const std::vector<CacheRow>& rows) {
    std::vector<std::vector<Value>> records;
    for (const CacheRow& row : rows) {
        records.push_back({row.evictor->name, row.budget_bytes, row.counts.requests, row.counts.requested_bytes,
                           row.counts.misses, row.counts.missed_bytes});
    }
    std::cout << json_records(cache_columns, records) << "\n";
}
void print_csv(const std::vector<CacheRow>& rows) {
    Table table{cache_columns};
    for (const CacheRow& row : rows) {
        table.add({row.evictor->name, std::to_string(row.budget_bytes), std::to_string(row.counts.requests),
                   std::to_string(row.counts.requested_bytes), std::to_string(row.counts.misses),
                   std::to_string(row.counts.missed_bytes)});
    }
    std::cout << table.comma_separated();
}
void print_table(const lab::trace::Trace& trace, const std::vector<CacheRow>& rows) {
    std::cout << trace.name << ": " << trace.accesses.size() << " accesses, " << trace.bytes.size() << " storages, "
              << human_bytes(trace.total_bytes()) << "\n";
    Table table{{"policy", "budget", "hits, % of requests", "hits, % of bytes", "misses", "bytes missed"}};
    for (const CacheRow& row : rows) {
        const CacheCounts& counts = row.counts;
        const auto share = [](std::uint64_t missed, std::uint64_t of) {
            return of == 0 ? std::string{"-"}
                           : fixed(100 - 100 * static_cast<double>(missed) / static_cast<double>(of), 2);
        };
        const std::string name = row.evictor == nullptr ? "everything resident"
                                                        : row.evictor->name + (row.evictor->knows_future ? " *" : "");
        table.add({name, row.evictor == nullptr ? "-" : human_bytes(row.budget_bytes),
                   share(counts.misses, counts.requests), share(counts.missed_bytes, counts.requested_bytes),
                   std::to_string(counts.misses), human_bytes(counts.missed_bytes)});
    }
    std::cout << table.aligned()
              << "* knows the whole trace; residency-lab run has no schedule of a trace, so that only belady knows it "
                 "there\n";
}

void run_cache(const CacheOptions& options) {
    check_budgets(options.budgets);
    lab::trace::CsvColumns columns = options.columns;
    for (const Separator& each : separators) {
        if (each.name == options.separator) { columns.separator = each.separator; }
    }
    const auto trace = read_trace(options.trace, options.format, columns);
    if (!trace) { fail(trace.error()); }
    const auto budgets = parse_budgets(options.budgets, trace->total_bytes());
    if (!budgets) { fail(budgets.error()); }
    std::vector<const Evictor*> chosen;
    for (const std::string& name : options.policies) {
        const auto found =
            std::find_if(evictors().begin(), evictors().end(), [&](const Evictor& each) { return each.name == name; });
        chosen.push_back(&*found);
    }
    const bool is_table = !options.json && !options.csv;
    if (is_table &&
        std::none_of(chosen.begin(), chosen.end(), [](const Evictor* each) { return each->name == "belady"; })) {
        for (const Evictor& each : evictors()) {
            if (each.name == "belady") { chosen.push_back(&each); }
        }
    }
    std::vector<CacheRow> rows;
    for (const Evictor* each : chosen) {
        for (const AskedBudget& budget : *budgets) {
            rows.push_back({each, budget.is_share ? std::min(budget.bytes, trace->total_bytes()) : budget.bytes, {}});
        }
    }
    const bool is_empty = trace->accesses.empty();  // nothing is asked for, nothing misses
    residency::UseOrder future;
    if (!is_empty &&
        std::any_of(chosen.begin(), chosen.end(), [](const Evictor* each) { return each->knows_future; })) {
        auto order = trace->try_access_order();
        if (!order) { fail(order.error()); }
        future = std::move(*order);
    }

    std::optional<residency::Error> failure;
    {
        Progress progress{"cache", rows.size() * trace->accesses.size()};
        failure = first_failure_in_parallel(is_empty ? 0 : rows.size(), options.threads, [&](std::size_t i) {
            std::size_t done = 0;
            const auto tick = [&](std::size_t accesses) { progress.add(accesses - std::exchange(done, accesses)); };
            auto counts = rows[i].evictor->cache({*trace, future, rows[i].budget_bytes, tick});
            if (counts) { rows[i].counts = *counts; }
            return counts ? std::nullopt : std::optional{counts.error().in(rows[i].evictor->name)};
        });
    }
    if (failure) { fail(*failure); }
    if (options.json) { return print_json(rows); }
    if (options.csv) { return print_csv(rows); }
    rows.push_back({nullptr, 0, everything_resident(*trace)});
    print_table(*trace, rows);
}

}  // namespace

void add_cache_command(CLI::App& app) {
    auto options = std::make_shared<CacheOptions>();
    std::vector<std::string> names;
    for (const Evictor& each : evictors()) { names.push_back(each.name); }
    options->policies = names;
    CLI::App* command = app.add_subcommand("cache", "demand caching alone: what misses, by policy and budget");
    command->footer(trace_formats);
    command->add_option("--trace", options->trace, "the file, perhaps compressed")
        ->required()
        ->check(CLI::ExistingFile);
    command->add_option("--format", options->format, "of the file")
        ->required()
        ->check(CLI::IsMember({"route", "oracle", "csv", "npy", "residency"}));
    add_list(
        *command, "--budget", options->budgets,
        "128MiB, or 25% of all storages that the trace names (of a route with n_expert, all experts of its layers); "
        "several with commas");
    add_list(*command, "--policy", options->policies, "several with commas; all by default", CLI::IsMember(names))
        ->default_str("");
    command->add_option("--object-column", options->columns.object, "of a csv, from 1")
        ->check(whole_number(1, most_columns))
        ->capture_default_str();
    command->add_option("--bytes-column", options->columns.bytes, "of a csv, from 1; 0: one byte each")
        ->check(whole_number(0, most_columns))
        ->capture_default_str();
    command
        ->add_option("--separator", options->separator,
                     "of a csv's columns; auto: what its first line has between them")
        ->check(CLI::IsMember(separator_names()))
        ->capture_default_str();
    add_common_options(*command, *options);
    command->callback([options] { run_cache(*options); });
}

}  // namespace lab
