// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bert.hpp"
#include "examples/support/load.hpp"
#include "job.hpp"
#include "residency/budget/budget.hpp"
#include "residency/error.hpp"
#include "residency/fwd.hpp"

namespace encoder {

/// A batch on a device, and where its activations lie.
template <class Backend>
struct Workspace {
    Batch batch;
    Activations activations;
    float* result = nullptr;  ///< pinned
    std::size_t result_count = 0;

    Workspace(Backend& backend, const Config& c, const std::vector<std::vector<std::int32_t>>& ids) {
        for (const auto& sentence : ids) { batch.tokens += std::uint32_t(sentence.size()); }
        batch.sentences = std::uint32_t(ids.size());
        batch.ids = backend.memory().template pinned<std::int32_t>(batch.tokens);
        batch.positions = backend.memory().template pinned<std::int32_t>(batch.tokens);
        batch.starts = backend.memory().template pinned<std::int32_t>(batch.sentences + 1);
        std::int32_t next = 0;
        for (std::size_t s = 0; s < ids.size(); ++s) {
            batch.starts[s] = next;
            for (std::size_t i = 0; i < ids[s].size(); ++i, ++next) {
                batch.ids[next] = ids[s][i];
                batch.positions[next] = std::int32_t(i);
            }
        }
        batch.starts[ids.size()] = next;
        const std::size_t row = std::size_t{batch.tokens} * c.hidden;
        for (float** each :
             {&activations.state, &activations.query, &activations.key, &activations.value, &activations.context}) {
            *each = backend.memory().template on_device<float>(row);
        }
        activations.inner = backend.memory().template on_device<float>(std::size_t{batch.tokens} * c.inner);
        result_count = std::size_t{batch.sentences} * c.hidden;
        activations.sentences = backend.memory().template on_device<float>(result_count);
        result = backend.memory().template pinned<float>(result_count);
    }
};

/// Some passes of one composition. A budget below its floor is raised to it where `may_raise` says so.
template <class Weights, class Backend>
Outcome run(Backend& backend, const Checkpoint& model, const Workspace<Backend>& work, const residency::Budget& budget,
            bool may_raise, int passes, bool record) {
    Outcome outcome;
    typename Weights::Options options;
    options.budget = budget;
    options.schedule = make_schedule(model, work.batch.tokens, work.batch.sentences);
    if constexpr (requires { options.learn; }) { options.learn = true; }
    if constexpr (requires { options.policies.unpacker; }) { options.policies.unpacker = &backend.unpacker(); }
    options.time_stalls = record;  // for what the page of the run advises
    auto created = Weights::try_create(backend.device(), model.catalog, options);
    if (!created && may_raise && created.error().kind() == residency::ErrorKind::budget) {
        outcome.is_raised = true;
        options.budget = residency::Budget::bytes(0);
        created = Weights::try_create(backend.device(), model.catalog, options);
    }
    Weights weights = residency::unwrap(std::move(created));
    outcome.budget = weights.budget();
    for (int i = 0; i < passes; ++i) {
        if (record && i + 1 == passes) { backend.recorded().begin(weights); }
        auto pass = weights.begin(backend.stream());
        forward(backend, model, weights.schedule(), pass, work.batch, work.activations);
        pass.end();
        backend.memory().copy(work.activations.sentences, work.result, work.result_count, backend.stream());
        outcome.passes.emplace_back(work.result, work.result + work.result_count);
    }
    weights.drain();
    if (record) { backend.recorded().end(weights); }
    outcome.statistics = weights.statistics();
    if (weights.failure()) { residency::throw_error(*weights.failure()); }
    return outcome;
}

/// Through every preset but Planned.
template <class Backend>
std::vector<std::pair<std::string, Outcome>> run_presets(Backend& backend, const Job& job, const Checkpoint& model,
                                                         const Workspace<Backend>& work) {
    using Device = typename Backend::Device;
    std::vector<std::pair<std::string, Outcome>> outcomes;
    outcomes.emplace_back("Scheduled",
                          run<residency::Scheduled<Device>>(backend, model, work, job.budget, true, 4, false));
    outcomes.emplace_back("Cached", run<residency::Cached<Device>>(backend, model, work, job.budget, true, 4, false));
    outcomes.emplace_back("Experts", run<residency::Experts<Device>>(backend, model, work, job.budget, true, 4, false));
    return outcomes;
}

/// With raw weights and with packed ones, in turns. Packs the model first. In packed.hpp.
template <class Backend>
PackedResults run_packed(Backend& backend, const Job& job, const Checkpoint& model, const Workspace<Backend>& work);

/// Loads the model, runs it resident, streamed and through every preset.
template <class Backend>
Results run_all(Backend& backend, const Job& job, const Checkpoint& on_disk) {
    using Device = typename Backend::Device;
    Results results;
    results.device = backend.device().name();
    const auto begin = std::chrono::steady_clock::now();
    Checkpoint model = on_disk;  // pinned memory ends before its device
    model.catalog = examples::load_pinned(backend.device(), model.catalog);
    results.load_seconds = std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
    const Workspace<Backend> work{backend, model.config, job.ids};

    using Planned = residency::Planned<Device>;
    const auto everything = residency::Budget::percent_of_weights(1000);
    results.streamed = run<Planned>(backend, model, work, job.budget, false, 3, true);
    results.resident = run<Planned>(backend, model, work, everything, false, 2, false);
    results.timeline = backend.recorded().save(job.timeline);
    backend.recorded().save_report(job.report, "encoder: sentence embeddings", results.device,
                                   results.streamed.budget.text, results.streamed.statistics);
    if (job.presets) {
        results.presets = run_presets(backend, job, model, work);
        results.presets.emplace(results.presets.begin(), "Planned", results.streamed);
    }
    if (job.packed) { results.packed = run_packed(backend, job, model, work); }
    results.reports = backend.reports();
    return results;
}

}  // namespace encoder
