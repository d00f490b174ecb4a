// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint.hpp"
#include "engine.hpp"
#include "job.hpp"
#include "pass_times.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/plan/problem.hpp"
#include "workspace.hpp"

namespace decoder {

/// What copies to a real device do just now, the median of three measurements. A simulated one does what it says.
template <class Backend>
std::optional<residency::plan::Link> link_now(Backend& backend) {
    if constexpr (Backend::learns) {
        std::vector<residency::plan::Link> links;
        for (int i = 0; i < 3; ++i) { links.push_back(residency::measure_link(backend.device())); }
        std::ranges::sort(links, {}, &residency::plan::Link::bytes_per_second);
        return links[1];
    } else {
        return std::nullopt;
    }
}

/// A text within one budget.
template <class Backend>
struct TextJob {
    const Checkpoint& model;
    const Workspace<Backend>& work;
    const Job& job;
    residency::Budget budget;
    std::optional<residency::plan::Link> link;
    bool graphs = true;                                  ///< launch passes of one token as a graph
    bool record = false;                                 ///< the last step is for the timeline
    const std::vector<std::uint64_t>* follow = nullptr;  ///< the tokens to go on with, instead of those that are chosen
};

/// The whole text, by an engine of that type.
template <class Engine, class Backend>
Outcome generate_text(Backend& backend, const TextJob<Backend>& text) {
    const auto& [model, work, job, budget, link, graphs, record, follow] = text;
    const auto prompt = std::uint32_t(job.prompt.size());
    const bool time_stalls = record && !job.report.empty();
    Engine engine{backend, model, work, budget, prompt, prompt + job.new_tokens, graphs, {}, link, time_stalls};
    Outcome outcome;
    outcome.budget = engine.sizes().total;
    if (link) { outcome.link_rates.push_back(link->bytes_per_second); }
    PassTimes times{link ? link->bytes_per_second : 0};
    bool was_read = false;         // the logits, after the pass before
    std::uint32_t since_link = 0;  // passes; the first after the link was measured does not count
    const auto measure_link = [&] {
        since_link = 0;
        if (job.link_every == 0) { return; }
        if (const auto now = link_now(backend)) {
            times.add_link(now->bytes_per_second);
            outcome.link_rates.push_back(now->bytes_per_second);
        }
    };
    const auto count = [&](const typename Engine::Step& pass) {
        times.add(pass.time, !pass.is_disturbed && !was_read && (job.link_every == 0 || since_link != 0));
        if (since_link++ == job.link_every) { measure_link(); }
    };
    const auto timing = [&] {
        measure_link();
        Timing result{engine, times};
        times = PassTimes{times.rate()};
        return result;
    };
    typename Engine::Step step;
    for (std::uint32_t i = 0; i < job.prompt_passes; ++i) {
        engine.rewind();
        step = engine.step(job.prompt, record && job.new_tokens == 1 && i + 1 == job.prompt_passes);
        count(step);
    }
    outcome.prompt = timing();
    outcome.statistics = engine.statistics();
    const auto& ends = model.config.ends;
    // GPUs that tell each other nothing choose tokens of their own, and meet in every pass all the same.
    const bool may_end = follow == nullptr && (model.part.of == 1 || model.part.sums);
    while (true) {
        outcome.tokens.push_back(step.token);
        outcome.graph_steps += step.is_graph ? 1U : 0U;
        was_read = outcome.logits.size() < job.kept_logits;
        if (was_read) { outcome.logits.push_back(work.logits(model.config)); }
        const std::size_t left = (follow == nullptr ? job.new_tokens : follow->size()) - outcome.tokens.size();
        const bool is_end = may_end && std::find(ends.begin(), ends.end(), step.token) != ends.end();
        if (left == 0 || is_end) { break; }
        const bool is_recorded = record && left == 1;
        const std::uint64_t next = follow == nullptr ? step.token : (*follow)[outcome.tokens.size() - 1];
        step = engine.step({&next, 1}, is_recorded);
        count(step);
        if (!is_recorded) { outcome.statistics = engine.statistics(); }  // of a pass as they all are
    }
    outcome.step = timing();
    engine.finish();
    outcome.cache_bytes = engine.cache_bytes();
    outcome.peak_bytes = engine.peak_bytes();
    outcome.budget_changes = engine.budget_changes();
    outcome.is_within_budget =
        (std::max)(outcome.peak_bytes, outcome.statistics.held_bytes + outcome.cache_bytes) <= outcome.budget.bytes;
    return outcome;
}

/// The whole text, by an engine for a model that is packed (packed.hpp).
template <class Backend>
Outcome generate_packed(Backend& backend, const TextJob<Backend>& text);

}  // namespace decoder
