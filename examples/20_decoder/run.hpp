// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "checkpoint.hpp"
#include "cold_start.hpp"
#include "engine.hpp"
#include "generate_text.hpp"
#include "job.hpp"
#include "packed.hpp"
#include "residency/budget/budget.hpp"
#include "workspace.hpp"

namespace decoder {

/// Loads the model, while it chooses a first token, then lets it write the same text within each budget.
template <class Backend>
Results run_all(Backend& backend, const Job& job, const Checkpoint& on_disk) {
    Results results;
    results.device = backend.device().name();
    const auto prompt = std::uint32_t(job.prompt.size());
    const std::uint32_t positions = prompt + job.new_tokens;
    Workspace<Backend> work{backend, on_disk, prompt, positions, job.packed};
    results.workspace_bytes = work.device_bytes;
    // Refuse a budget before any time is spent on another one.
    for (const auto& budget : job.budgets) {
        if (!job.packed) { static_cast<void>(Engine<Backend>::resolve(backend, on_disk, work, budget, positions)); }
    }
    // The first token comes from raw weights, which are there first. Their floor is another one.
    const residency::Budget first = job.packed ? residency::Budget::bytes(0) : job.budgets.front();
    results.cold = start_cold(backend, {job.folder, job.prompt, positions, first, job.load_first, job.packed}, work);
    Checkpoint& model = results.cold.model;
    Checkpoint packed;  // empty, or the same model packed
    if (job.packed) {
        packed = model;
        packed.catalog = pack_weights(backend.device(), on_disk.catalog, model.catalog, results.packed.emplace());
        if (!job.with_resident && !model.config.tied) { model.catalog = packed.catalog; }  // the raw bytes can go
        for (const auto& budget : job.budgets) {
            static_cast<void>(PackedEngine<Backend>::resolve(backend, packed, work, budget, positions));
        }
    }
    auto link = link_now(backend);
    const auto run = [&](const residency::Budget& budget, const std::string& asked, bool is_packed, bool graphs,
                         bool record) {
        const TextJob<Backend> text{is_packed ? packed : model, work, job, budget, link, graphs, record};
        Outcome outcome = is_packed ? generate_packed(backend, text) : generate_text<Engine<Backend>>(backend, text);
        outcome.asked = asked;
        link = link_now(backend);
        if (link) { outcome.link_rates.push_back(link->bytes_per_second); }
        results.outcomes.push_back(std::move(outcome));
    };
    if (job.with_resident) {
        run(residency::Budget::percent_of_weights(100'000), "resident", false, job.graphs, false);
    }
    for (std::size_t i = 0; i < job.budgets.size(); ++i) {
        const residency::Budget& budget = job.budgets[i];
        if (job.also_eager) { run(budget, budget.text() + " eager", job.packed, false, false); }
        run(budget, budget.text(), job.packed, job.graphs, i + 1 == job.budgets.size());
    }
    results.timeline = backend.recorded().save(job.timeline);
    backend.recorded().save_report(job.report, "decoder: " + job.folder, results.device, results.outcomes.back().asked,
                                   results.outcomes.back().statistics);
    results.reports = backend.reports();
    results.cold.model = on_disk;  // pinned memory ends before its device
    return results;
}

}  // namespace decoder
