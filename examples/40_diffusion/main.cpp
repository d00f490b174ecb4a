// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A denoiser whose blocks differ in size, run step after step, where compute and copies take about as long: streaming then costs
// little, as copies travel while kernels run. On a GPU where there is one. Exits with 0 if every budget's image equals that of the
// resident run bit for bit, with 1 if not, with 2 for bad input.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>

#include "denoiser.hpp"
#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"

namespace diffusion { namespace {

using examples::mib;

Results run_on([[maybe_unused]] bool on_gpu) {
#ifdef WITH_CUDA
    if (on_gpu) { return run_cuda(); }
#endif
    return run_simulated();
}

int run(const examples::CommonSettings& settings) {
    std::string why_not;
    const bool on_gpu = settings.use_gpu(why_not);
    const Results results = run_on(on_gpu);
    if (!on_gpu && !why_not.empty()) { std::printf("on the simulated device: %s\n\n", why_not.c_str()); }
    std::printf("%zu blocks of %.2f to %.2f MiB, %.1f MiB together; %u steps on %s\n\n", inner.size(),
                mib(results.smallest_bytes), mib(results.largest_bytes), mib(results.bytes), steps,
                results.device.c_str());
    std::printf("  budget       held   copied a step   a step takes   of resident   of the bound\n");
    bool right = results.reports.empty();
    const double resident = results.outcomes.front().milliseconds;
    for (const Outcome& each : results.outcomes) {
        right = right && each.is_right && each.statistics.streaming == (each.percent < 100);
        const std::string budget = each.statistics.streaming ? std::to_string(each.percent) + " %" : "all";
        char bound[16] = "";
        if (each.statistics.bound) {
            std::snprintf(bound, sizeof bound, "%.2f",
                          each.milliseconds * 1e6 / double(each.statistics.bound->count()));
        }
        std::printf("  %-6s %6.1f MiB   %9.1f MiB   %9.3f ms   %11.2f   %12s%s\n", budget.c_str(),
                    mib(each.statistics.held_bytes), mib(each.statistics.last_pass.fetched_bytes), each.milliseconds,
                    each.milliseconds / resident, bound, each.is_right ? "" : "   DIFFERS");
        if (each.percent == 50 && !results.timeline.empty()) { std::printf("\n%s\n", results.timeline.c_str()); }
    }
    std::printf("\nimages %s\n", right ? "equal that of the resident run bit for bit" : "DIFFER");
    for (const std::string& report : results.reports) { std::printf("%s\n", report.c_str()); }
    return right ? 0 : 1;
}

}}  // namespace diffusion

int main(int argc, char** argv) {
    CLI::App app{"Denoises an image while a part of the blocks fits", "diffusion"};
    examples::CommonSettings settings;
    settings.add_device_to(app);
    return examples::run_program(app, argc, argv, [&] { return diffusion::run(settings); });
}
