// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "engine.hpp"
#include "examples/10_encoder/load.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/statistics.hpp"
#include "workspace.hpp"

namespace decoder {

/// What to do, whatever the device.
struct Job {
    std::vector<std::uint64_t> prompt;
    std::uint32_t new_tokens = 16;
    std::vector<residency::Budget> budgets;
    bool with_resident = true;  ///< run everything resident too, to compare with
    bool keep_logits = true;    ///< of every pass
    bool graphs = true;
    std::string timeline;  ///< the file to write
};

/// What one budget came to.
struct Outcome {
    std::string asked;
    residency::ResolvedBudget budget;  ///< of weights and cache together
    residency::Statistics statistics;  ///< of the weights
    std::uint64_t cache_bytes = 0, peak_bytes = 0, budget_changes = 0;
    std::chrono::nanoseconds prefill_time{}, step_time{};  ///< step_time: the median
    std::chrono::nanoseconds latency_floor{};              ///< below which no step is, the latency of copies counted
    std::uint32_t graph_steps = 0;
    std::vector<std::uint64_t> tokens;
    std::vector<std::vector<float>> logits;  ///< after each pass, of the last position
};

struct Results {
    std::string device;
    double load_seconds = 0;
    std::uint64_t workspace_bytes = 0;
    std::vector<Outcome> outcomes;     ///< the resident one first, where there is one
    std::vector<std::string> reports;  ///< of the simulated device's checker
    std::string timeline;              ///< what is in the file
};

/// The same job on either device. Throws residency::Exception.
[[nodiscard]] Results run_simulated(const Job& job, const Checkpoint& model);
[[nodiscard]] Results run_cuda(const Job& job, const Checkpoint& model);
/// Whether there is a GPU and a driver for it, and this program was built for one; otherwise why not.
[[nodiscard]] bool has_gpu(std::string& why_not);

/// The whole text within one budget. `record`: the last step is for the timeline.
template <class Backend>
Outcome generate_text(Backend& backend, const Checkpoint& model, const Workspace<Backend>& work, const Job& job,
                      const residency::Budget& budget, bool record) {
    const auto prompt = std::uint32_t(job.prompt.size());
    Engine<Backend> engine{backend, model, work, budget, prompt, prompt + job.new_tokens, job.graphs};
    Outcome outcome;
    outcome.asked = budget.text();
    outcome.budget = engine.sizes().total;
    std::vector<std::chrono::nanoseconds> all, undisturbed;
    std::vector<std::uint64_t> tokens = job.prompt;
    const auto& ends = model.config.ends;
    for (std::uint32_t i = 0; i < job.new_tokens; ++i) {
        const bool is_recorded = record && i + 1 == job.new_tokens;
        const auto step = engine.step(tokens, is_recorded);
        tokens.assign(1, step.token);
        outcome.tokens.push_back(step.token);
        outcome.graph_steps += step.is_graph ? 1U : 0U;
        if (i == 0) {
            outcome.prefill_time = step.time;
        } else {
            all.push_back(step.time);
            if (!step.is_disturbed) { undisturbed.push_back(step.time); }
        }
        if (!is_recorded || i == 0) { outcome.statistics = engine.statistics(); }  // of a pass as they all are
        if (job.keep_logits) { outcome.logits.push_back(work.logits(model.config)); }
        if (std::find(ends.begin(), ends.end(), step.token) != ends.end()) { break; }
    }
    engine.finish();
    outcome.latency_floor = std::chrono::nanoseconds{std::int64_t(engine.latency_floor_seconds() * 1e9)};
    auto& times = undisturbed.empty() ? all : undisturbed;
    if (!times.empty()) {
        std::sort(times.begin(), times.end());
        outcome.step_time = times[times.size() / 2];
    }
    outcome.cache_bytes = engine.cache_bytes();
    outcome.peak_bytes = engine.peak_bytes();
    outcome.budget_changes = engine.budget_changes();
    return outcome;
}

/// Loads the model, and lets it write the same text within each budget.
template <class Backend>
Results run_all(Backend& backend, const Job& job, const Checkpoint& on_disk) {
    Results results;
    results.device = backend.device().name();
    const auto begin = std::chrono::steady_clock::now();
    Checkpoint model = on_disk;  // pinned memory ends before its device
    model.catalog = encoder::load_pinned(backend.device(), model.catalog);
    results.load_seconds = std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
    const auto prompt = std::uint32_t(job.prompt.size());
    const Workspace<Backend> work{backend, model, prompt, prompt + job.new_tokens};
    results.workspace_bytes = work.device_bytes;
    // Refuse a budget before any time is spent on another one.
    for (const auto& budget : job.budgets) {
        static_cast<void>(Engine<Backend>::resolve(backend, model, work, budget, prompt + job.new_tokens));
    }
    if (job.with_resident) {
        const auto everything = residency::Budget::percent_of_weights(100'000);
        results.outcomes.push_back(generate_text(backend, model, work, job, everything, false));
        results.outcomes.back().asked = "resident";
    }
    for (std::size_t i = 0; i < job.budgets.size(); ++i) {
        results.outcomes.push_back(
            generate_text(backend, model, work, job, job.budgets[i], i + 1 == job.budgets.size()));
    }
    results.timeline = backend.save_timeline(job.timeline);
    results.reports = backend.reports();
    return results;
}

}  // namespace decoder
