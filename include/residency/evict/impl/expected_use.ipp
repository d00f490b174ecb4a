// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "residency/config.hpp"
#include "residency/evict/expected_use.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

RESIDENCY_INLINE Status ExpectedUse::attach(const Context& context) {
    const auto decay = UseDecay::try_make(config_.slow_rounds, config_.fast_rounds, "evict::ExpectedUse");
    if (!decay) { return decay.error(); }
    const std::size_t storages = context.bytes.size();
    const std::span<const std::uint32_t> given =
        config_.layers.empty() ? context.first_steps : std::span<const std::uint32_t>{config_.layers};
    if (!given.empty() && given.size() < storages) {
        return Error{ErrorKind::mismatch, "evict::ExpectedUse: layers are given for " + std::to_string(given.size()) +
                                              " storages of " + std::to_string(storages)};
    }
    constexpr std::uint32_t most_layers = 1U << 16U;
    for (std::size_t i = 0; i < (std::min)(storages, given.size()); ++i) {
        if (given[i] >= most_layers) {
            return Error{ErrorKind::invalid_argument, "evict::ExpectedUse: storage " + std::to_string(i) +
                                                          " is in layer " + std::to_string(given[i]) +
                                                          ": number the layers from 0, below " +
                                                          std::to_string(most_layers)};
        }
    }
    layer_of_.assign(storages, 0);
    if (!given.empty()) { std::copy_n(given.begin(), storages, layer_of_.begin()); }
    const std::uint32_t layers = storages == 0 ? 1 : *std::max_element(layer_of_.begin(), layer_of_.end()) + 1;
    layers_.assign(layers, Layer{});
    leaf_of_.assign(storages, 0);
    for (std::size_t i = 0; i < storages; ++i) { leaf_of_[i] = layers_[layer_of_[i]].leaves++; }
    std::size_t nodes = 0;
    for (Layer& layer : layers_) {
        layer.first_node = nodes;
        nodes += 2 * std::size_t{layer.leaves};
    }
    nodes_.assign(nodes, Node{});
    history_.assign(storages, UseRates{});
    ranked_.assign(storages, UseRates{});
    heap_.attach(layers);
    position_ = 0;
    current_ = layers - 1;
    last_step_ = (std::numeric_limits<StepIndex>::max)();
    decay_ = *decay;
    crossing_ = 1 / config_.fast_rounds - 1 / config_.slow_rounds;
    return {};
}

RESIDENCY_INLINE void ExpectedUse::begin_round(std::uint32_t layer) noexcept {
    ++layers_[layer].round;
    const auto layers = static_cast<std::uint32_t>(layers_.size());
    do {
        ++position_;
        current_ = current_ + 1 == layers ? 0 : current_ + 1;
        rank(current_);
    } while (current_ != layer);
}

RESIDENCY_INLINE void ExpectedUse::rank(std::uint32_t layer) noexcept {
    Layer& own = layers_[layer];
    if (own.leaves == 0) { return; }
    refresh(own, 1);
    const StorageId winner = nodes_[own.first_node + 1].winner;
    if (winner != no_storage) {
        heap_.put(StorageId{layer}, time_to_use(layer, rate(winner, own.round)));
    } else if (heap_.contains(StorageId{layer})) {
        heap_.remove(StorageId{layer});
    }
}

RESIDENCY_INLINE void ExpectedUse::set_leaf(StorageId id, bool is_here) noexcept {
    const std::uint32_t layer = layer_of_[index(id)];
    const Layer& own = layers_[layer];
    refresh(own, 1);
    std::uint32_t node = own.leaves + leaf_of_[index(id)];
    nodes_[own.first_node + node] = {is_here ? id : no_storage, never};
    for (node /= 2; node > 0; node /= 2) { play(own, node); }
    rank(layer);
}

RESIDENCY_INLINE void ExpectedUse::refresh(const Layer& layer, std::uint32_t node) noexcept {
    if (nodes_[layer.first_node + node].expires > layer.round) { return; }
    refresh(layer, 2 * node);
    refresh(layer, 2 * node + 1);
    play(layer, node);
}

RESIDENCY_INLINE void ExpectedUse::play(const Layer& layer, std::uint32_t node) noexcept {
    const Node& left = nodes_[layer.first_node + std::size_t{2} * node];
    const Node& right = nodes_[layer.first_node + std::size_t{2} * node + 1];
    Node& result = nodes_[layer.first_node + node];
    const std::uint32_t expires = (std::min)(left.expires, right.expires);
    if (left.winner == no_storage || right.winner == no_storage) {
        result = {left.winner == no_storage ? right.winner : left.winner, expires};
        return;
    }
    const UseRates a = decay_.at(ranked_[index(left.winner)], layer.round);
    const UseRates b = decay_.at(ranked_[index(right.winner)], layer.round);
    const double lead = (b.slow + b.fast) - (a.slow + a.fast);
    const bool left_wins = lead > 0 || (lead == 0 && a.slow <= b.slow);
    const double slow_excess = left_wins ? a.slow - b.slow : b.slow - a.slow;  // the winner's, which lasts longer
    const double fast_lead = left_wins ? b.fast - a.fast : a.fast - b.fast;
    std::uint32_t crossing = never;
    if (slow_excess > 0 && fast_lead > 0) {
        const double rounds = std::floor(std::log(fast_lead / slow_excess) / crossing_) + 1;
        const double limit = static_cast<double>(never - 1 - layer.round);
        crossing = layer.round + static_cast<std::uint32_t>(std::clamp(rounds, 1.0, limit));
    }
    result = {left_wins ? left.winner : right.winner, (std::min)(expires, crossing)};
}

}}}  // namespace residency::RESIDENCY_ABI::evict
