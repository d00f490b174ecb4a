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
#include "residency/routed/policies.hpp"
#include "residency/routed/serve.hpp"
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
    auto numbers = P::numbers({});
    if (!numbers) { return numbers.error(); }
    std::vector<routed::Source> sources(experts, {nullptr, routed::piece_bytes});
    std::vector<std::uint32_t> slot_of(experts, routed::none), rounds(first_expert.size());
    std::vector<routed::Slot> slot(experts);
    std::vector<typename P::OfExpert> of_expert(experts);
    std::vector<typename P::OfSlot> of_slot(experts);
    std::vector<routed::Fill> fills(routed::most_choices);
    routed::State state;
    routed::Mistake mistake;
    state.slots = static_cast<std::uint32_t>((std::min)(slots, std::uint64_t{experts}));
    routed::Tables<P> tables;
    tables.layers = static_cast<std::uint32_t>(first_expert.size() - 1);
    tables.first_expert = first_expert.data();
    tables.sources = sources.data();
    tables.slot_of = slot_of.data();
    tables.slot = slot.data();
    tables.rounds = rounds.data();
    tables.of_expert = of_expert.data();
    tables.of_slot = of_slot.data();
    tables.numbers = &*numbers;
    tables.fills = tables.guess_fills = fills.data();
    tables.state = &state;
    tables.mistake = &mistake;

    routed::Scratch scratch;
    std::vector<std::int32_t> choices, slots_of_choices(routed::most_choices);
    std::vector<const std::byte*> addresses(routed::most_choices);
    CacheCounts counts;
    std::uint64_t missed_before = 0;
    for (std::size_t i = 0; i < trace.steps(); ++i) {
        const auto step = trace.step(i);
        if (step.empty()) { continue; }
        if (i <= first_counted) { missed_before = state.counters.misses; }
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
        const routed::Call call{layer,
                                static_cast<std::uint32_t>(choices.size()),
                                routed::ChoiceType::i32,
                                choices.data(),
                                addresses.data(),
                                slots_of_choices.data()};
        const routed::OneThread one;
        routed::Decision<P, routed::OneThread>{one, scratch, tables, call, false}.make();
        if (i >= first_counted) { counts.requests += step.size(); }
    }
    counts.requested_bytes = counts.requests;
    counts.misses = counts.missed_bytes = state.counters.misses - missed_before;
    return counts;
}

}  // namespace lab::trace
