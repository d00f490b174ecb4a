// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// residency-plan FILE [--budget TEXT]: reads a planning problem as JSON and prints its plan as JSON, so that anyone can check it.
// --help says what of either. Errors: one line on standard error, exit code 2. A --budget above everything is clamped, which a
// line on standard error says.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "examples/support/standard_output.hpp"
#include "json.hpp"
#include "residency/budget/budget.hpp"
#include "residency/model/file.hpp"
#include "residency/model/quoted.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/planner.hpp"

namespace {

namespace plan = residency::plan;
namespace packed = residency::packed;

constexpr std::uint64_t input_limit_bytes = std::uint64_t{1} << 30;

std::string read_text(const std::string& file) {
    const auto bytes = file == "-" ? residency::detail::read_all(*stdin, "standard input", input_limit_bytes)
                                   : residency::detail::read_file(file, input_limit_bytes);
    if (!bytes) { throw Refused{bytes.error().message()}; }
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

// A budget in words, resolved against the raw bytes of the problem; an explicit value never falls back.
std::uint64_t read_budget(const std::string& text, const packed::UnpackProblem& problem) {
    const auto budget = residency::Budget::try_parse(text);
    if (!budget) { throw Refused{budget.error().message()}; }
    if (budget->kind() == residency::BudgetKind::automatic ||
        budget->kind() == residency::BudgetKind::percent_of_free) {
        throw Refused{"budget " + residency::detail::quoted(text) +
                      ": there is no device here, give bytes or a percentage of the weights"};
    }
    residency::BudgetContext context;
    for (std::size_t s = 0; s < problem.unpacked_bytes.size(); ++s) {
        context.streamed_bytes += std::max(problem.unpacked_bytes[s], problem.travels.storage_bytes[s]);
    }
    const auto resolved = budget->try_resolve(context);
    if (!resolved) { throw Refused{resolved.error().message()}; }
    // A share that rounds to nothing is not the zero that asks for the floor.
    return budget->is_zero() ? 0 : std::max<std::uint64_t>(resolved->asked_bytes, 1);
}

bool is_packed(const packed::UnpackProblem& problem) {
    return std::any_of(problem.unpacked_bytes.begin(), problem.unpacked_bytes.end(), [](auto b) { return b > 0; });
}

/// The plan of packed weights, as text.
std::string plan_packed(const packed::UnpackProblem& problem) {
    const auto floor = packed::unpack_floor(problem);
    if (!floor) { throw Refused{floor.error().message()}; }
    const std::uint64_t asked = problem.travels.budget_bytes, budget = asked == 0 ? *floor : asked;
    const auto choice = packed::choose_unpacked(problem, budget, {});
    if (!choice) { throw Refused{choice.error().message() + "; " + std::to_string(*floor) + " are enough"}; }
    const auto made = plan::make_plan(choice->rest);
    if (!made) { throw Refused{made.error().message()}; }
    return text_of(problem, *choice, *made, *floor);
}

/// The name of a file in an error.
std::string shown(const std::string& file) { return file == "-" ? "standard input" : file; }

/// The problem that a file holds. What is wrong in it is told with its name.
packed::UnpackProblem problem_in(const std::string& file, bool has_budget) {
    const std::string text = read_text(file);
    try {
        return read_problem(text, has_budget);
    } catch (const Refused& wrong) { throw Refused{shown(file) + ": " + wrong.what()}; }
}

int refuse(const std::string& what) {
    std::cerr << "residency-plan: " << residency::detail::escaped(what) << '\n';
    return 2;
}

}  // namespace

int main(int count, char** arguments) {
    CLI::App app{"Plans what stays on the device and what streams, and when.", "residency-plan"};
    app.footer(json_description);
    std::string file, budget;
    bool example = false;
    auto* const given = app.add_option("FILE", file, "the problem as JSON; - reads standard input");
    app.add_flag("--example", example, "print a small problem, which this program plans, and nothing else")
        ->excludes(given);
    const auto* const said =
        app.add_option("--budget", budget, "in place of the problem's budget_bytes: bytes, 8GiB, 60%; 0 is the floor");
    try {
        app.parse(count, arguments);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) { return examples::finish_output("residency-plan", app.exit(error)); }
        return refuse(error.what());
    }
    if (example) {
        std::cout << example_problem;
        return examples::finish_output("residency-plan", 0) == 0 ? 0 : 2;
    }
    if (file.empty()) {
        return refuse("FILE is missing: name a problem, or - for standard input; see --help and --example");
    }
    try {
        packed::UnpackProblem input = problem_in(file, said->count() != 0);
        plan::Problem& problem = input.travels;
        if (said->count() != 0) { problem.budget_bytes = read_budget(budget, input); }
        if (is_packed(input)) {
            std::cout << plan_packed(input) << '\n';
            return examples::finish_output("residency-plan", 0) == 0 ? 0 : 2;
        }
        const residency::Result<plan::Plan> made = plan::make_plan(problem);
        if (!made) { throw Refused{shown(file) + ": " + made.error().message()}; }
        if (said->count() != 0 && made->calls().empty() && made->budget_bytes() > made->held_bytes()) {
            std::cerr << "residency-plan: of the budget of " << made->budget_bytes() << " bytes " << made->held_bytes()
                      << " are used: everything is resident, nothing is streamed\n";
        }
        std::cout << text_of(problem, *made) << '\n';
        return examples::finish_output("residency-plan", 0) == 0 ? 0 : 2;  // as every error here
    } catch (const std::exception& error) { return refuse(error.what()); }
}
