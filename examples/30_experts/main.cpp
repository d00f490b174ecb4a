// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A mixture of experts at Mixtral's widths, 4 of its layers, on a GPU where there is one; at a thirty-second of the widths on the
// simulated device. 8 experts a layer, fused in one tensor in the file and split here, so that each travels alone; 2 of them for each
// batch of tokens, known when the router before them has run, and one that every token reads. Half of the experts fit. The router's guess for the
// next layer is the prefetcher's hint: what is guessed travels while the GPU computes. Exits with 0 if the results of every composition
// equal those of the resident run bit for bit, with 1 if not, with 2 for bad input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "mixture.hpp"

namespace experts { namespace {

using examples::mib;

Results run_on([[maybe_unused]] bool on_gpu, bool packed) {
#ifdef WITH_CUDA
    if (on_gpu) { return run_cuda(packed); }
#endif
    return run_simulated(packed);
}

void print(const Outcome& each, std::uint32_t passes) {
    const auto text = [](std::uint64_t count) { return std::to_string(count); };
    const residency::Counters& all = each.counters;
    std::printf("%-22s %6.0f MiB %10.1f MiB %8s %11s %8s ", each.name.c_str(), mib(each.held_bytes),
                mib(all.fetched_bytes) / passes, text(all.hits).c_str(), text(all.prefetch_hits).c_str(),
                text(all.demand_misses).c_str());
    std::printf(each.milliseconds > 0 ? "%9.3f ms\n" : "   not known\n", each.milliseconds);
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Whether everything is as it has to be.
bool report(const Comparison& all, const Sizes& sizes) {
    std::printf("\n%-22s %10s %14s %8s %11s %8s %12s\n",
                (std::to_string(all.batch) + (all.batch == 1 ? " token" : " tokens") + " a pass").c_str(), "held",
                "copied a pass", "hits", "prefetched", "missed", "a pass");
    const auto& expected = all.resident.output;
    bool right = std::ranges::all_of(expected, [](float value) { return std::isfinite(value); });
    std::vector<const Outcome*> outcomes{&all.resident, &all.hinted,  &all.unhinted,
                                         &all.cached,   &all.guessed, &all.routed};
    for (const Outcome& each : all.packed) { outcomes.push_back(&each); }
    for (const Outcome* each : outcomes) {
        print(*each, sizes.passes);
        right = right && equal_bits(each->output, expected);
    }
    const residency::Counters& hinted = all.hinted.counters;
    std::printf(
        "the router guessed %.0f %% of the experts a layer ahead; of %llu that were absent, %llu came in time\n"
        "hints made a pass %.2f times as fast: guesses travel while the GPU computes, and all that "
        "it computes takes %.0f %% of a pass without hints\n"
        "results %s those of the resident run bit for bit\n",
        100.0 * double(all.hinted.guessed) / (sizes.passes * (sizes.layers - 1) * chosen),
        static_cast<unsigned long long>(hinted.prefetch_hits + hinted.demand_misses),
        static_cast<unsigned long long>(hinted.prefetch_hits), all.unhinted.milliseconds / all.hinted.milliseconds,
        100 * all.resident.milliseconds / all.unhinted.milliseconds, right ? "equal" : "DIFFER FROM");
    return right;
}

/// What packing brought, without hints in both. Whether it moved fewer bytes.
bool report_packed(const Comparison& all, const Results& results) {
    const residency::Counters &raw = all.unhinted.counters, &packed = all.packed.back().counters;
    const auto per_miss = [](const residency::Counters& counters) {
        return double(counters.fetched_bytes) / double(std::max<std::uint64_t>(counters.demand_misses, 1));
    };
    std::printf(
        "packed, experts have %.2f of the bytes: a miss moved %.2f of a raw one's, there were %llu instead of %llu, "
        "and "
        "a pass took %.2f of the time\n",
        double(results.packed_bytes) / double(results.packed_raw_bytes), per_miss(packed) / per_miss(raw),
        static_cast<unsigned long long>(packed.demand_misses), static_cast<unsigned long long>(raw.demand_misses),
        all.packed.back().milliseconds / all.unhinted.milliseconds);
    return packed.fetched_bytes < raw.fetched_bytes;
}

int run(const examples::CommonSettings& settings, bool packed) {
    std::string why_not;
    const bool on_gpu = settings.use_gpu(why_not);
    const Results results = run_on(on_gpu, packed);
    const Sizes& sizes = results.sizes;
    if (!on_gpu && !why_not.empty()) { std::printf("on the simulated device: %s\n\n", why_not.c_str()); }
    std::printf(
        "%u layers of %u experts of %.2f MiB, %u of each layer in a pass; %.0f MiB of them, half of that is the "
        "budget; %u passes on %s\n",
        sizes.layers, experts_a_layer, mib(2 * sizes.expert()), chosen, mib(results.streamed_bytes), sizes.passes,
        results.device.c_str());
    bool right = results.reports.empty();
    for (const Comparison& each : results.comparisons) {
        right = report(each, sizes) && right;
        if (packed) { right = report_packed(each, results) && right; }
    }
    for (const std::string& found : results.reports) { std::printf("%s\n", found.c_str()); }
    // Whether a guess arrives in time is a matter of time, which is the same each time on the simulated device only.
    const bool hints_helped = on_gpu || results.comparisons.back().hinted.counters.prefetch_hits > 0;
    return right && hints_helped ? 0 : 1;
}

}}  // namespace experts

int main(int argc, char** argv) {
    CLI::App app{"A mixture of experts of which half fits, with a router's hints and without", "experts"};
    examples::CommonSettings settings;
    settings.add_device_to(app);
    bool packed = false;
    app.add_flag("--packed", packed, "also with experts that travel and are cached packed");
    return examples::run_program(app, argc, argv, [&] { return experts::run(settings, packed); });
}
