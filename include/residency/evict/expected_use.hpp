// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/ranked_heap.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// For orders known only in part, such as a router's: the layers come round in turn, which of a layer's storages are used does
/// not. The largest expected time to the next use leaves, in rounds of all layers:
///
///     d / layers + (1 − p) / p
///
/// with d the layers until the storage's layer comes round (1 … layers) and p the mean of two use rates that decay over slow and
/// fast rounds of its layer. Rates are remembered while a storage is away; one brought ahead of its use ranks as if it had it.
/// A round of a layer begins with its first use after another layer's, or, where there is one layer
/// only, with each moment.
///
/// In a layer the rates cross each other as they decay, so each layer has a kinetic tournament (Basch, Guibas & Hershberger
/// 1999) of its storages, and the layers have a heap: O(log n) amortised, beside layers that are skipped.
class ExpectedUse {
public:
    struct Config {
        double slow_rounds = 32;              ///< in which the slow rate falls to 1/e
        double fast_rounds = 2;               ///< in which the fast rate does; smaller than slow_rounds
        std::vector<std::uint32_t> layers{};  ///< of each storage; empty: the context's groups, or else one layer
    };

    ExpectedUse() noexcept : ExpectedUse{Config{}} {}
    explicit ExpectedUse(Config config) noexcept : config_{std::move(config)} {}

    /// Error invalid_argument: 0 < fast_rounds < slow_rounds does not hold. Error mismatch: groups for fewer storages.
    [[nodiscard]] Status attach(const Context& context) {
        if (!(config_.fast_rounds > 0 && config_.fast_rounds < config_.slow_rounds)) {
            return Error{ErrorKind::invalid_argument, "evict::ExpectedUse needs 0 < fast_rounds < slow_rounds"};
        }
        const std::size_t storages = context.bytes.size();
        const std::span<const std::uint32_t> given =
            config_.layers.empty() ? context.groups : std::span<const std::uint32_t>{config_.layers};
        if (!given.empty() && given.size() < storages) {
            return Error{ErrorKind::mismatch, "evict::ExpectedUse: layers are given for " +
                                                  std::to_string(given.size()) + " storages of " +
                                                  std::to_string(storages)};
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
        history_.assign(storages, Rates{});
        ranked_.assign(storages, Rates{});
        heap_.attach(layers);
        position_ = 0;
        current_ = layers - 1;
        last_moment_ = (std::numeric_limits<StepIndex>::max)();
        slow_decay_.fill(config_.slow_rounds);
        fast_decay_.fill(config_.fast_rounds);
        crossing_ = 1 / config_.fast_rounds - 1 / config_.slow_rounds;
        return {};
    }
    void inserted(StorageId id, StepIndex) noexcept {
        const std::uint32_t round = layers_[layer_of_[index(id)]].round;
        ranked_[index(id)] = with_use(history_[index(id)], round);
        set_leaf(id, true);
    }
    void used(StorageId id, StepIndex now) noexcept {
        const std::uint32_t layer = layer_of_[index(id)];
        if (layer != current_ || (layers_.size() == 1 && now != last_moment_)) { begin_round(layer); }
        last_moment_ = now;
        Rates& rates = history_[index(id)];
        rates = with_use(rates, layers_[layer].round);
        ranked_[index(id)] = rates;
        set_leaf(id, true);
    }
    void removed(StorageId id) noexcept { set_leaf(id, false); }
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(StepIndex, MayLeave&& may_leave) noexcept {
        std::optional<StorageId> found;
        double found_time = 0;
        heap_.traverse([&](StorageId layer_id, double time) {
            if (found && time <= found_time) { return false; }
            const std::uint32_t layer = index(layer_id);
            Search<std::remove_reference_t<MayLeave>> search{*this, layers_[layer], may_leave};
            search.visit(1, no_storage);
            if (search.found == no_storage) { return true; }
            const double own = time_to_use(layer, search.rate);
            if (!found || own > found_time) {
                found = search.found;
                found_time = own;
            }
            return true;
        });
        return found;
    }

private:
    static constexpr std::uint32_t never = UINT32_MAX;

    /// Sums of decayed uses, as of a round of the storage's layer; their mean is p.
    struct Rates {
        double slow = 0;
        double fast = 0;
        std::uint32_t round = 0;
    };
    /// The storage with the smallest p of those below, and the round from which on another may have it.
    struct Node {
        StorageId winner = no_storage;
        std::uint32_t expires = never;
    };
    /// Nodes 1 … 2 · leaves − 1 of its tournament lie from first_node on; node i has the children 2 i and 2 i + 1.
    struct Layer {
        std::size_t first_node = 0;
        std::uint32_t leaves = 0;
        std::uint32_t round = 0;
    };
    struct Decay {
        static constexpr std::uint32_t size = 128;
        double in_rounds = 1;
        double of_use = 0;  // what one use adds
        double factors[size] = {};

        void fill(double rounds) noexcept {
            in_rounds = rounds;
            of_use = 1 - std::exp(-1 / rounds);
            for (std::uint32_t i = 0; i < size; ++i) { factors[i] = std::exp(-static_cast<double>(i) / rounds); }
        }
        [[nodiscard]] double after(std::uint32_t rounds) const noexcept {
            return rounds < size ? factors[rounds] : std::exp(-static_cast<double>(rounds) / in_rounds);
        }
    };
    struct ShorterTime {
        bool operator()(double a, double b) const noexcept { return a > b; }
    };
    /// The storage of a layer that has the smallest p of those that may leave.
    template <class MayLeave>
    struct Search {
        const ExpectedUse& policy;
        const Layer& layer;
        MayLeave& may_leave;
        StorageId found = no_storage;
        double rate = 0;

        void visit(std::uint32_t node, StorageId refused) noexcept {
            const StorageId winner = policy.nodes_[layer.first_node + node].winner;
            if (winner == no_storage) { return; }
            const double own = policy.rate(winner, layer.round);
            if (found != no_storage && own >= rate) { return; }
            if (winner != refused && may_leave(winner)) {
                found = winner;
                rate = own;
            } else if (node < layer.leaves) {
                visit(2 * node, winner);
                visit(2 * node + 1, winner);
            }
        }
    };

    [[nodiscard]] Rates at(const Rates& rates, std::uint32_t round) const noexcept {
        const std::uint32_t passed = round - rates.round;
        return {rates.slow * slow_decay_.after(passed), rates.fast * fast_decay_.after(passed), round};
    }
    /// The same with a use in that round, which counts once.
    [[nodiscard]] Rates with_use(const Rates& rates, std::uint32_t round) const noexcept {
        if (rates.round == round && rates.slow > 0) { return rates; }
        Rates now = at(rates, round);
        now.slow += slow_decay_.of_use;
        now.fast += fast_decay_.of_use;
        return now;
    }
    [[nodiscard]] double rate(StorageId id, std::uint32_t round) const noexcept {
        const Rates rates = at(ranked_[index(id)], round);
        return (std::max)((rates.slow + rates.fast) / 2, (std::numeric_limits<double>::min)());
    }
    /// Expected rounds until a storage of the layer is used, counted from the beginning of time, so that it changes only when
    /// the layer comes round.
    [[nodiscard]] double time_to_use(std::uint32_t layer, double rate) const noexcept {
        const auto layers = static_cast<std::uint32_t>(layers_.size());
        const std::uint32_t ahead = layer > current_ ? layer - current_ : layer + layers - current_;
        return static_cast<double>(position_ + ahead) / layers + (1 - rate) / rate;
    }

    /// The layers from the present one to this one have come round: all but this one were skipped.
    void begin_round(std::uint32_t layer) noexcept {
        ++layers_[layer].round;
        const auto layers = static_cast<std::uint32_t>(layers_.size());
        do {
            ++position_;
            current_ = current_ + 1 == layers ? 0 : current_ + 1;
            rank(current_);
        } while (current_ != layer);
    }
    void rank(std::uint32_t layer) noexcept {
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
    void set_leaf(StorageId id, bool is_here) noexcept {
        const std::uint32_t layer = layer_of_[index(id)];
        const Layer& own = layers_[layer];
        refresh(own, 1);
        std::uint32_t node = own.leaves + leaf_of_[index(id)];
        nodes_[own.first_node + node] = {is_here ? id : no_storage, never};
        for (node /= 2; node > 0; node /= 2) { play(own, node); }
        rank(layer);
    }
    void refresh(const Layer& layer, std::uint32_t node) noexcept {
        if (nodes_[layer.first_node + node].expires > layer.round) { return; }
        refresh(layer, 2 * node);
        refresh(layer, 2 * node + 1);
        play(layer, node);
    }
    void play(const Layer& layer, std::uint32_t node) noexcept {
        const Node& left = nodes_[layer.first_node + std::size_t{2} * node];
        const Node& right = nodes_[layer.first_node + std::size_t{2} * node + 1];
        Node& result = nodes_[layer.first_node + node];
        const std::uint32_t expires = (std::min)(left.expires, right.expires);
        if (left.winner == no_storage || right.winner == no_storage) {
            result = {left.winner == no_storage ? right.winner : left.winner, expires};
            return;
        }
        const Rates a = at(ranked_[index(left.winner)], layer.round);
        const Rates b = at(ranked_[index(right.winner)], layer.round);
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

    Config config_;
    std::vector<std::uint32_t> layer_of_;  // by storage
    std::vector<std::uint32_t> leaf_of_;   // by storage: in its layer
    std::vector<Rates> history_;           // by storage: its uses
    std::vector<Rates> ranked_;            // by storage: what it ranks by
    std::vector<Layer> layers_;
    std::vector<Node> nodes_;
    RankedHeap<double, ShorterTime>
        heap_;  // the layers by the time to the use of their winner, as if they were storages
    Decay slow_decay_, fast_decay_;
    double crossing_ = 0;
    std::uint64_t position_ = 0;  // layers that have come round
    std::uint32_t current_ = 0;   // the layer that came round last
    StepIndex last_moment_ = 0;
};
static_assert(EvictionPolicy<ExpectedUse>);

}}}  // namespace residency::RESIDENCY_ABI::evict
