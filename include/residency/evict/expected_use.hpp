// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/ranked.hpp"
#include "residency/evict/use_rates.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

/// Evicts the storage with the largest expected time to its next use. For orders that are known only in part, such as a router's:
/// the layers take turns, but which of a layer's storages are used is not known. The expected time, in rounds of all layers, is
///
///     d / layers + (1 − p) / p
///
/// with d the layers until the storage's layer is next (1 … layers), and p the mean of two use rates that decay over slow and fast
/// rounds of its layer. The rates of a storage are remembered while it is not on the device. A prefetched storage ranks as if it
/// had been used. A round of a layer begins with its first use after another layer's or, where there is one layer only, with each
/// step.
///
/// Within a layer the rates cross each other as they decay, so each layer has a kinetic tournament (Basch, Guibas & Hershberger
/// 1999) of its storages, and a heap ranks the layers: O(log n) amortised, beside layers that are skipped.
class ExpectedUse {
public:
    /// How fast it forgets.
    struct Config {
        double slow_rounds = 32;  ///< rounds in which the slow rate falls to 1/e
        double fast_rounds = 2;   ///< rounds in which the fast rate falls to 1/e; fewer than slow_rounds
        std::vector<std::uint32_t>
            layers{};  ///< the layer of each storage; empty: the context's first_steps, a layer for each first reading step, or without them one layer
    };

    ExpectedUse() noexcept : ExpectedUse{Config{}} {}
    /// Decides by `config`.
    explicit ExpectedUse(Config config) noexcept : config_{std::move(config)} {}

    /// Errors: invalid_argument where 0 < fast_rounds < slow_rounds does not hold; mismatch where storages have no layer.
    [[nodiscard]] Status attach(const Context& context);
    /// What EvictionPolicy asks for.
    /// @{
    void inserted(StorageId id, StepIndex) noexcept {
        const std::uint32_t round = layers_[layer_of_[index(id)]].round;
        ranked_[index(id)] = decay_.with_use(history_[index(id)], round);
        set_leaf(id, true);
    }
    void used(StorageId id, StepIndex now) noexcept {
        const std::uint32_t layer = layer_of_[index(id)];
        if (layer != current_ || (layers_.size() == 1 && now != last_step_)) { begin_round(layer); }
        last_step_ = now;
        UseRates& rates = history_[index(id)];
        rates = decay_.with_use(rates, layers_[layer].round);
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
    /// @}

private:
    static constexpr std::uint32_t never = UINT32_MAX;

    /// The storage with the smallest p of those below, and the first round in which another one may have it.
    struct Node {
        StorageId winner = no_storage;
        std::uint32_t expires = never;
    };
    /// Nodes 1 … 2 · leaves − 1 of its tournament are stored from first_node on. Node i has the children 2 i and 2 i + 1.
    struct Layer {
        std::size_t first_node = 0;
        std::uint32_t leaves = 0;
        std::uint32_t round = 0;
    };
    struct ShorterTime {
        bool operator()(double a, double b) const noexcept { return a > b; }
    };
    /// Finds the storage with the smallest p among those of a layer that may leave.
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

    [[nodiscard]] double rate(StorageId id, std::uint32_t round) const noexcept {
        return UseDecay::rate(decay_.at(ranked_[index(id)], round));
    }
    /// Expected rounds until the next use of a storage of the layer, counted from the first round on, so that they change only when
    /// the layer's turn comes.
    [[nodiscard]] double time_to_use(std::uint32_t layer, double rate) const noexcept {
        const auto layers = static_cast<std::uint32_t>(layers_.size());
        const std::uint32_t ahead = layer > current_ ? layer - current_ : layer + layers - current_;
        return static_cast<double>(position_ + ahead) / layers + UseDecay::rounds_to_use(rate);
    }

    /// Begins a round of the layer. The layers between the last one and this one were skipped.
    void begin_round(std::uint32_t layer) noexcept;
    /// Ranks the layer anew in heap_.
    void rank(std::uint32_t layer) noexcept;
    /// Adds a storage to the tournament of its layer, or removes it.
    void set_leaf(StorageId id, bool is_here) noexcept;
    /// Plays the expired games below a node again.
    void refresh(const Layer& layer, std::uint32_t node) noexcept;
    /// Decides a node from its two children, and when that expires.
    void play(const Layer& layer, std::uint32_t node) noexcept;

    Config config_;
    std::vector<std::uint32_t> layer_of_;  // by storage
    std::vector<std::uint32_t> leaf_of_;   // by storage: its leaf in the tournament of its layer
    std::vector<UseRates> history_;        // by storage: the rates of its uses
    std::vector<UseRates> ranked_;         // by storage: the rates that it ranks by
    std::vector<Layer> layers_;
    std::vector<Node> nodes_;
    RankedHeap<double, ShorterTime>
        heap_;  // the layers, as if they were storages, by the time to the use of their winners
    UseDecay decay_;
    double crossing_ = 0;         // difference of the two rates of decay, per round
    std::uint64_t position_ = 0;  // turns of layers so far
    std::uint32_t current_ = 0;   // the layer whose turn was last
    StepIndex last_step_ = 0;     // of the last use
};
static_assert(EvictionPolicy<ExpectedUse>);

}}}  // namespace residency::RESIDENCY_ABI::evict

#if RESIDENCY_HEADER_ONLY
#include "residency/evict/impl/expected_use.ipp"
#endif
