// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/text_lines.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

namespace lab::trace {

using namespace residency;

namespace detail {

/// One layer's share of the prompt, or of one token.
struct RouteBatch {
    std::uint64_t layer = 0;
    std::vector<std::uint64_t> experts;
};

}  // namespace detail

/// The experts that a router chose, as BigMoeOnEdge writes them: lines "# layer=K expert_bytes=N …", then a heading that names the
/// columns turn, phase (0: prompt), step, layer and expert, then one row a chosen expert. A storage is an expert of a layer with
/// the bytes declared for that layer; its group is the layer. A step is one layer of one token, or, in the prompt, one layer of
/// all of its tokens, in which each expert counts once, where it was chosen first. A line "# … n_expert=N …" says how many experts
/// each layer has; without one it is as many as the last that was chosen asks for. `source` names the text in messages.
[[nodiscard]] inline Result<Trace> try_parse_route(std::string_view text, const std::string& source) {
    constexpr std::uint64_t most = std::uint64_t{1} << 24;
    TextLines lines{text, source};
    std::map<std::uint64_t, std::uint64_t> expert_bytes;  // by layer
    std::optional<std::uint64_t> declared_experts;        // of each layer
    std::optional<std::string_view> line;
    while ((line = lines.next()) && line->starts_with('#')) {
        const auto layer = TextLines::number_of(*line, "layer");
        const auto bytes = TextLines::number_of(*line, "expert_bytes");
        if (layer.has_value() != bytes.has_value() || (layer && *layer >= most)) {
            return lines.wrong(residency::detail::quoted(*line), "a layer and its expert_bytes");
        }
        if (layer && expert_bytes.try_emplace(*layer, *bytes).first->second != *bytes) {
            return lines.wrong(residency::detail::quoted(*line), "the " + std::to_string(expert_bytes[*layer]) +
                                                                     " bytes that layer " + std::to_string(*layer) +
                                                                     " has above");
        }
        if (const auto experts = TextLines::number_of(*line, "n_expert")) {
            if (*experts == 0 || *experts > most || declared_experts.value_or(*experts) != *experts) {
                return lines.wrong(residency::detail::quoted(*line),
                                   declared_experts ? "n_expert=" + std::to_string(*declared_experts) + " as above"
                                                    : "n_expert from 1 to " + std::to_string(most));
            }
            declared_experts = experts;
        }
    }
    const std::uint64_t expert_limit = declared_experts.value_or(most);
    if (!line) { return lines.wrong("the end", "a heading that names the columns"); }
    constexpr std::string_view names[] = {"turn", "phase", "step", "layer", "expert"};
    std::size_t columns[std::size(names)] = {};
    std::vector<std::string_view> parts;
    TextLines::split(*line, ',', parts);
    for (std::size_t i = 0; i < std::size(names); ++i) {
        columns[i] = static_cast<std::size_t>(std::find(parts.begin(), parts.end(), names[i]) - parts.begin());
        if (columns[i] == parts.size()) {
            return lines.wrong(residency::detail::quoted(*line), "a column " + std::string{names[i]});
        }
    }

    // Prompt rows of a layer need not be together: the batches of a prompt, or of a token, are collected before they are added.
    std::vector<detail::RouteBatch> batches;
    std::vector<detail::RouteBatch> pending;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> pending_of;  // turn and token; all of a prompt is one token
    std::uint64_t most_expert = 0;
    while ((line = lines.next())) {
        if (line->starts_with('#')) { continue; }
        TextLines::split(*line, ',', parts);
        std::uint64_t values[std::size(names)] = {};
        for (std::size_t i = 0; i < std::size(names); ++i) {
            const auto value = columns[i] < parts.size() ? TextLines::number(parts[columns[i]]) : std::nullopt;
            if (!value) {
                return lines.wrong(residency::detail::quoted(*line), "a number in the column " + std::string{names[i]});
            }
            values[i] = *value;
        }
        const auto [turn, phase, token, layer, expert] = values;
        if (!expert_bytes.contains(layer)) {
            return lines.wrong("layer " + std::to_string(layer), "one whose expert_bytes are declared");
        }
        if (expert >= expert_limit) {
            return lines.wrong("expert " + std::to_string(expert), "less than " + std::to_string(expert_limit));
        }
        most_expert = (std::max)(most_expert, expert);
        const std::pair now{turn, phase == 0 ? UINT64_MAX : token};
        if (pending_of != now) {
            std::move(pending.begin(), pending.end(), std::back_inserter(batches));
            pending.clear();
            pending_of = now;
        }
        auto batch = std::find_if(pending.begin(), pending.end(),
                                  [&](const detail::RouteBatch& each) { return each.layer == layer; });
        if (batch == pending.end()) { batch = pending.insert(batch, {layer, {}}); }
        if (std::find(batch->experts.begin(), batch->experts.end(), expert) == batch->experts.end()) {
            batch->experts.push_back(expert);
        }
    }
    std::move(pending.begin(), pending.end(), std::back_inserter(batches));

    Trace trace;
    trace.name = source;
    const std::uint64_t experts = declared_experts.value_or(most_expert + 1);
    if (experts * expert_bytes.size() > most) {
        const std::string found =
            std::to_string(expert_bytes.size()) + " layers of " + std::to_string(experts) + " experts";
        return Error{ErrorKind::malformed,
                     residency::detail::quoted(source) + ": " + found + " are more than " + std::to_string(most),
                     FileLocation{source, 0, found, "at most " + std::to_string(most)}};
    }
    std::map<std::uint64_t, std::uint32_t> first_of;  // by layer: the storage of expert 0
    std::uint32_t group = 0;
    for (const auto& [layer, bytes] : expert_bytes) {
        first_of[layer] = static_cast<std::uint32_t>(trace.bytes.size());
        trace.bytes.insert(trace.bytes.end(), static_cast<std::size_t>(experts), bytes);
        trace.groups.insert(trace.groups.end(), static_cast<std::size_t>(experts), group++);
    }
    std::vector<StorageId> step;
    for (const detail::RouteBatch& batch : batches) {
        step.clear();
        for (const std::uint64_t expert : batch.experts) {
            step.push_back(StorageId{first_of[batch.layer] + static_cast<std::uint32_t>(expert)});
        }
        trace.add_step(step);
    }
    if (auto fits = trace.try_check_sums(source); !fits) { return fits.error(); }
    return trace;
}

}  // namespace lab::trace
