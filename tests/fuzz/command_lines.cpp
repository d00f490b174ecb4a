// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The tools' own files, so that what they keep to themselves is called too.
#define main inspect_main
#include "examples/tools/residency_inspect/main.cpp"
#undef main
#define main pack_main
#include "examples/tools/residency_pack/main.cpp"
#undef main

#include <cstring>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string_view>

#include "../support/fuzz.hpp"
#include "benchmarks/lab/input.hpp"
#include "benchmarks/lab/options.hpp"

namespace {

using support::fuzz_failed;

/// Takes what a tool prints, and gives back the streams at the end. Sanitizers write to the terminal all the same.
class Streams {
public:
    Streams() {
        out_ = std::exchange(stdout, ::open_memstream(&out_text_, &out_bytes_));
        error_ = std::exchange(stderr, ::open_memstream(&error_text_, &error_bytes_));
        cout_ = std::cout.rdbuf(text_.rdbuf());
        cerr_ = std::cerr.rdbuf(text_.rdbuf());
    }
    Streams(const Streams&) = delete;
    Streams& operator=(const Streams&) = delete;
    ~Streams() { take_errors(); }

    /// What went to the standard error so far. The streams are given back.
    std::string take_errors() {
        if (out_ == nullptr) { return {}; }
        std::fclose(std::exchange(stdout, std::exchange(out_, nullptr)));
        std::fclose(std::exchange(stderr, error_));
        std::cout.rdbuf(cout_);
        std::cerr.rdbuf(cerr_);
        std::string errors{error_text_, error_bytes_};
        std::free(out_text_);
        std::free(error_text_);
        return errors;
    }

private:
    char *out_text_ = nullptr, *error_text_ = nullptr;
    std::size_t out_bytes_ = 0, error_bytes_ = 0;
    std::FILE *out_ = nullptr, *error_ = nullptr;
    std::ostringstream text_;
    std::streambuf *cout_ = nullptr, *cerr_ = nullptr;
};

/// Whatever it is given, it ends well or with one line.
void inspect(std::vector<std::string> arguments) {
    std::vector<char*> values;
    for (std::string& each : arguments) { values.push_back(each.data()); }
    Streams streams;
    const int result = run(static_cast<int>(values.size()), values.data());
    const std::string errors = streams.take_errors();
    if (result != 0 && result != exit_bad_file) { fuzz_failed("another exit code", errors); }
    if (result != 0 && (!errors.starts_with("residency-inspect: ") || errors.find('\n') != errors.size() - 1)) {
        fuzz_failed("a refusal is not one line", errors);
    }
}

/// Forms for weights: what is no rule throws what CLI11 shows.
void pack_rules(const std::vector<std::string>& arguments) {
    for (const std::string& text : arguments) {
        try {
            const Rule rule = parse_rule(text);
            for (const std::string& name : arguments) {
                const bool is_named = matches(rule.pattern, name);
                if (rule.pattern.find('*') == std::string::npos && is_named != (rule.pattern == name)) {
                    fuzz_failed("a pattern without * is not a name", text);
                }
                if (!matches(rule.pattern + "*", rule.pattern + name)) { fuzz_failed("a pattern is not itself", text); }
            }
        } catch (const CLI::ValidationError& wrong) { static_cast<void>(wrong); }
    }
}

/// The options that all commands of the laboratory are made of.
void lab_options(std::vector<std::string> arguments) {
    CLI::App app{"laboratory", "residency-lab"};
    lab::CommonOptions common;
    std::vector<std::string> policies{"lru"}, budgets{"10%"};
    lab::add_common_options(app, common);
    lab::add_list(app, "--policy", policies, "several", CLI::IsMember({"lru", "belady"}));
    lab::add_list(app, "--budget", budgets, "several");
    std::size_t column = 2;
    app.add_option("--object-column", column)->check(lab::whole_number(1, 1000));
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    const Streams streams;
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& wrong) {
        static_cast<void>(app.exit(wrong));
        return;
    }
    if (common.threads < 1 || common.threads > lab::most_threads) { fuzz_failed("no number of threads", ""); }
    if (column < 1 || column > 1000) { fuzz_failed("no column", ""); }
    for (const std::string& each : policies) {
        if (each != "lru" && each != "belady") { fuzz_failed("another policy", each); }
    }
    const auto asked = lab::parse_budgets(budgets, 1'000'000);
    if (!asked) { return support::check_message(asked.error()); }
    for (const lab::AskedBudget& each : *asked) {
        const auto number = lab::decimal(each.text);
        if (number && each.text.find('.') == std::string::npos && *number < 1e15 &&
            static_cast<std::uint64_t>(*number) != each.bytes) {
            fuzz_failed("a number of bytes is another", each.text);
        }
    }
}

}  // namespace

/// A command, one argument a line: the name of the tool first.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    static const bool is_there = [] {
        std::filesystem::current_path(RESIDENCY_FIXTURES_DIR);
        return true;
    }();
    std::vector<std::string> arguments{{}};
    for (std::size_t i = 0; i < bytes && is_there; ++i) {
        if (data[i] == '\n') {
            arguments.emplace_back();
        } else if (data[i] != 0) {  // which ends an argument
            arguments.back() += static_cast<char>(data[i]);
        }
    }
    const std::string tool = arguments.front();
    if (tool == "residency-inspect") { inspect(std::move(arguments)); }
    if (tool == "residency-pack") { pack_rules({arguments.begin() + 1, arguments.end()}); }
    if (tool == "residency-lab") { lab_options({arguments.begin() + 1, arguments.end()}); }
    return 0;
}
