// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A mixture of experts at Mixtral's widths, 4 of its layers, on a GPU where there is one; at a thirty-second of the widths on the
// simulated device. 8 experts a layer, 2 of them for each token, fused in one tensor in the file and split here, so that each travels
// alone. The router's guess for the next layer is the prefetcher's hint. Half of the experts fit. Exits with 0 if every composition's
// tokens equal those of the resident run bit for bit, with 1 if not, with 2 for bad input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "mixture.hpp"

namespace experts {
namespace {

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
    const Sizes& sizes = results.sizes;
    if (!on_gpu && !why_not.empty()) { std::printf("on the simulated device: %s\n\n", why_not.c_str()); }
    std::printf(
        "%u layers of %u experts of %.2f MiB, %u a token; %.0f MiB of them, half of that is the budget; %u tokens on "
        "%s\n\n",
        sizes.layers, experts_a_layer, mib(2 * sizes.expert()), chosen, mib(results.streamed_bytes), sizes.tokens,
        results.device.c_str());
    std::printf("%-20s %10s %14s %8s %11s %8s %12s\n", "", "held", "copied a token", "hits", "prefetched", "missed",
                "a token");
    const Outcome& resident = results.outcomes.front();
    bool right = std::all_of(resident.output.begin(), resident.output.end(), [](float v) { return std::isfinite(v); });
    for (const Outcome& each : results.outcomes) {
        const residency::Counters& total = each.statistics.total;
        right =
            right && std::memcmp(each.output.data(), resident.output.data(), each.output.size() * sizeof(float)) == 0;
        std::printf("%-20s %6.0f MiB %10.1f MiB %8llu %11llu %8llu %9.3f ms\n", each.name.c_str(),
                    mib(each.statistics.held_bytes), mib(total.fetched_bytes) / sizes.tokens,
                    static_cast<unsigned long long>(total.hits), static_cast<unsigned long long>(total.prefetch_hits),
                    static_cast<unsigned long long>(total.demand_misses), each.milliseconds);
    }
    const Outcome& hinted = results.outcomes[1];
    std::printf(
        "\nthe router guessed %.0f %% of the experts a layer ahead; tokens %s those of the resident run bit for bit\n",
        100.0 * double(hinted.guessed) / (sizes.tokens * (sizes.layers - 1) * chosen), right ? "equal" : "DIFFER FROM");
    for (const std::string& report : results.reports) { std::printf("%s\n", report.c_str()); }
    // Whether a guess arrives in time is a matter of time, which is the same each time on the simulated device only.
    const bool hints_helped = on_gpu || hinted.statistics.total.prefetch_hits > 0;
    return right && hints_helped && results.reports.empty() ? 0 : 1;
}

}  // namespace
}  // namespace experts

int main(int argc, char** argv) {
    CLI::App app{"Generates tokens with a mixture of experts of which half fits", "experts"};
    examples::CommonSettings settings;
    settings.add_device_to(app);
    return examples::run_program(app, argc, argv, [&] { return experts::run(settings); });
}
