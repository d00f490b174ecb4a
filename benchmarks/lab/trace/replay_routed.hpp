// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/lab/trace/replay.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/routed/on_host.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/tables.hpp"

namespace lab::trace {

/// Replays a router's trace through the code that kernels of a RoutedExperts run: `slots` experts fit. The steps before `first_counted`
/// fill the cache and are not counted. Errors: unsupported where the experts of a layer are not numbered one after another, or a layer or
/// a step has more than kernels take.
template <routed::Policy P>
[[nodiscard]] Result<CacheCounts> replay_routed(const Trace& trace, std::uint64_t slots, std::size_t first_counted) {
    const auto experts = static_cast<std::uint32_t>(trace.bytes.size());
    std::vector<std::uint32_t> first_expert;
    for (std::uint32_t i = 0; i < experts; ++i) {
        const std::uint32_t layer = trace.groups.empty() ? 0 : trace.groups[i];
        if (layer + 1 < first_expert.size() || layer > first_expert.size()) {
            return Error{ErrorKind::unsupported, "the experts of a layer have to be numbered one after another"};
        }
        if (layer == first_expert.size()) { first_expert.push_back(i); }
    }
    first_expert.push_back(experts);
    for (std::size_t layer = 0; layer + 1 < first_expert.size(); ++layer) {
        if (first_expert[layer + 1] - first_expert[layer] > routed::most_experts) {
            return Error{ErrorKind::unsupported, "kernels take " + std::to_string(routed::most_experts) +
                                                     " experts a layer, and layer " + std::to_string(layer) +
                                                     " has more"};
        }
    }
    routed::OnHost<P> cache{first_expert, static_cast<std::uint32_t>((std::min)(slots, std::uint64_t{experts})),
                            routed::piece_bytes};
    std::vector<std::int32_t> choices;
    CacheCounts counts;
    std::uint64_t missed_before = 0;
    for (std::size_t i = 0; i < trace.steps(); ++i) {
        const auto step = trace.step(i);
        if (step.empty()) { continue; }
        if (i <= first_counted) { missed_before = cache.state.counters.misses; }
        const std::uint32_t layer = trace.groups.empty() ? 0 : trace.groups[index(step.front())];
        choices.clear();
        for (const StorageId id : step) {
            if (trace.groups.empty() || trace.groups[index(id)] == layer) {
                choices.push_back(static_cast<std::int32_t>(index(id) - first_expert[layer]));
            }
        }
        if (choices.size() != step.size() || choices.size() > routed::most_choices) {
            return Error{ErrorKind::unsupported,
                         "a step has to name experts of one layer, at most " + std::to_string(routed::most_choices)};
        }
        cache.serve(layer, choices);
        if (i >= first_counted) { counts.requests += step.size(); }
    }
    counts.requested_bytes = counts.requests;
    counts.misses = counts.missed_bytes = cache.state.counters.misses - missed_before;
    return counts;
}

}  // namespace lab::trace
