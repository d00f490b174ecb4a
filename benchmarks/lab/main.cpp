// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include <CLI/CLI.hpp>

#include <iostream>

#include "benchmarks/lab/cache.hpp"
#include "benchmarks/lab/fail.hpp"
#include "benchmarks/lab/router.hpp"
#include "benchmarks/lab/run_command.hpp"
#include "examples/support/standard_output.hpp"
#include "residency/model/quoted.hpp"

int main(int argc, char** argv) {
    CLI::App app{"Compares policies on traces, against each other and against the bounds", "residency-lab"};
    app.require_subcommand(1);
    lab::add_cache_command(app);
    lab::add_router_command(app);
    lab::add_run_command(app);
    try {
        app.parse(argc, argv);
    } catch (const lab::Failed&) { return 2; } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) { return app.exit(error); }
        std::cerr << "residency-lab: " << residency::detail::escaped(error.what()) << "\n";
        return 2;
    }
    return examples::finish_output("residency-lab", 0);
}
