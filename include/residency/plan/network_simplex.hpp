// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Minimum-cost flow in whole numbers, by the primal network simplex method (Cunningham 1976). The basis is strongly feasible after
/// every pivot, so that the method ends. Costs may change between solves; the basis is kept.
class NetworkSimplex {
public:
    /// `supplies`: one for each node, their sum is zero.
    explicit NetworkSimplex(std::vector<std::int64_t> supplies) : supplies_{std::move(supplies)} {}

    /// Adds an arc that carries a flow from 0 to `capacity`. Returns its index. The costs along any path sum to less than 2^54.
    std::uint32_t add_arc(std::uint32_t from, std::uint32_t to, std::int64_t capacity, std::int64_t cost) {
        arcs_.push_back({from, to, capacity, cost, 0, State::lower});
        return static_cast<std::uint32_t>(arcs_.size() - 1);
    }
    void set_cost(std::uint32_t arc, std::int64_t cost) { arcs_[arc].cost = cost; }
    [[nodiscard]] std::int64_t flow(std::uint32_t arc) const { return arcs_[arc].flow; }

    /// False where no flow meets the supplies.
    [[nodiscard]] bool solve();

private:
    enum class State : std::uint8_t { lower, upper, tree };  // flow 0, flow = capacity, in the basis
    struct Arc {
        std::uint32_t from, to;
        std::int64_t capacity, cost, flow;
        State state;
    };
    static constexpr std::uint32_t nobody = UINT32_MAX;
    static constexpr std::int64_t unbounded = INT64_MAX / 4;

    void start();
    void attach(std::uint32_t v, std::uint32_t to);
    void detach(std::uint32_t v);
    void refresh_below(std::uint32_t top);
    void refresh(std::uint32_t v, std::uint32_t above);
    void pivot(std::uint32_t entering);

    std::vector<std::int64_t> supplies_;
    std::vector<Arc> arcs_;
    std::uint32_t first_artificial_ = 0;
    // The tree of the basis, by node: parent, arc to it, depth; first child and the siblings on either side.
    std::vector<std::uint32_t> parent_, pred_, depth_, child_, older_, younger_;
    std::vector<std::uint32_t> stack_;
    std::vector<std::int64_t> potential_;  // by node
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/network_simplex.ipp"
#endif
