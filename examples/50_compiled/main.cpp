// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Runs a PyTorch model that residency_export compiled, at one budget after the other, and compares every output with that of the same
// packages without the library. A model for CUDA runs on a GPU, one for the CPU on the simulated device. Exits with 0 if all bits are
// equal, with 1 if not, with 2 for bad input.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "job.hpp"
#include "residency/format/program.hpp"

namespace compiled { namespace {

using examples::mib;

Results run_on(const Job& job) {
    const auto program = residency::format::load_program_file(job.model + "/program.residency");
    if (program.device == "cpu") { return run_simulated(job); }
#ifdef WITH_CUDA
    return run_cuda(job);
#else
    residency::throw_error(
        {residency::ErrorKind::unsupported, "the model was compiled for " + program.device +
                                                ", and this program was built without CUDA: "
                                                "build it with CUDA, or export the model on the CPU"});
#endif
}

int run(const Job& job) {
    const Results results = run_on(job);
    std::printf("%s, on %s, %.1f MiB of weights\n\n", results.compiler.c_str(), results.device.c_str(),
                mib(results.weight_bytes));
    std::printf("  budget     method             held   copied a run   a run takes   of the bound\n");
    bool right = results.reports.empty();
    for (const Row& row : results.rows) {
        right = right && row.is_right;
        char bound[16] = "";
        if (row.bound_milliseconds > 0) {
            std::snprintf(bound, sizeof bound, "%.3f", row.milliseconds / row.bound_milliseconds);
        }
        std::printf("  %-10s %-12s %6.1f MiB   %8.1f MiB   %8.3f ms   %12s%s\n", row.budget.c_str(), row.method.c_str(),
                    mib(row.statistics.held_bytes), mib(row.statistics.last_pass.fetched_bytes), row.milliseconds,
                    bound, row.is_right ? "" : "   DIFFERS");
    }
    for (const std::string& why : results.refused) { std::printf("  refused: %s\n", why.c_str()); }
    std::printf("\noutputs %s\n", right ? "equal those of the packages without the library bit for bit" : "DIFFER");
    for (const std::string& report : results.reports) { std::printf("%s\n", report.c_str()); }
    return right ? 0 : 1;
}

}}  // namespace compiled

int main(int argc, char** argv) {
    CLI::App app{"Runs a PyTorch model that residency_export compiled, inside a budget.", "compiled"};
    compiled::Job job;
    app.add_option("model", job.model, "the folder that residency_export wrote")->required();
    app.add_option("--budget", job.budgets, "budgets, each in turn, such as 8GiB or 50%; 0 is the smallest")
        ->delimiter(',');
    app.add_option("--method", job.methods, "methods, in the order of a round; by default all")->delimiter(',');
    app.add_option("--rounds", job.rounds, "timed runs of each method")->capture_default_str();
    app.add_option(
        "--torch", job.torch_folder,
        "folder of PyTorch's libraries, torch/lib in site-packages; by default where the dynamic linker looks");
    return examples::run_program(app, argc, argv, [&] {
        if (job.budgets.empty()) { job.budgets = {"100%", "75%", "50%", "25%", "0"}; }
        return compiled::run(job);
    });
}
