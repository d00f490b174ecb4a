// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/common_options.hpp"
#include "benchmarks/lab/parallel.hpp"
#include "benchmarks/lab/trace/text_lines.hpp"

namespace lab {

/// The parts of a text between commas, all of them and with their blanks, which TextLines::split() drops.
inline std::vector<std::string> split_list(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == ',') {
            parts.emplace_back();
        } else {
            parts.back() += c;
        }
    }
    return parts;
}

/// An option for several values with commas, each of which `one` accepts. None of them may be empty. What `into` holds is the
/// default.
inline CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& into,
                             const std::string& description, CLI::Validator one = {}) {
    const auto read = [&into, name, one](const CLI::results_t& given) {
        std::vector<std::string> parts;
        for (const std::string& each : given) {
            for (std::string& part : split_list(each)) {
                if (part.empty() && each.empty()) { throw CLI::ValidationError{name, "1 required TEXT missing"}; }
                if (part.empty()) { throw CLI::ValidationError{name, "an empty entry in \"" + each + "\""}; }
                const std::string wrong = one(part);
                if (!wrong.empty()) { throw CLI::ValidationError{name, wrong}; }
                parts.push_back(std::move(part));
            }
        }
        into = std::move(parts);
        return true;
    };
    std::string defaults;
    for (const std::string& each : into) { defaults += (defaults.empty() ? "" : ",") + each; }
    const std::string accepted = one.get_description();
    return command.add_option(name, read, description)
        ->type_name(accepted.empty() ? "TEXT" : "TEXT:" + accepted)
        ->expected(1, CLI::detail::expected_max_vector_size)
        ->default_str(defaults);
}

/// A whole number in a range.
inline CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
    const std::string range = std::to_string(least) + " to " + std::to_string(most);
    return CLI::Validator{[least, most, range](std::string& text) {
                              const auto value = lab::trace::TextLines::number(text);
                              return value && *value >= least && *value <= most
                                         ? std::string{}
                                         : "found \"" + text + "\", expected a whole number, " + range;
                          },
                          range};
}

/// What every command takes.
inline void add_common_options(CLI::App& command, CommonOptions& into) {
    command.add_option("--threads", into.threads)->check(whole_number(1, most_threads))->capture_default_str();
    auto* json = command.add_flag("--json", into.json, "print JSON");
    command.add_flag("--csv", into.csv, "print comma-separated values")->excludes(json);
}

}  // namespace lab
