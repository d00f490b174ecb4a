// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "residency/plan/network_simplex.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE bool NetworkSimplex::solve() {
    const auto nodes = static_cast<std::uint32_t>(supplies_.size());
    if (parent_.empty()) {
        start();
    } else {
        refresh_below(nodes);
    }
    const std::uint32_t count = static_cast<std::uint32_t>(arcs_.size());
    const std::uint32_t block = (std::max)(20u, static_cast<std::uint32_t>(std::sqrt(static_cast<double>(count))));
    std::uint32_t next = 0;
    for (;;) {
        // The worst violation of a block of arcs.
        std::int64_t worst = 0;
        std::uint32_t entering = 0, seen = 0, in_block = 0;
        for (; seen < count; ++seen) {
            const Arc& arc = arcs_[next];
            const std::int64_t reduced = arc.cost + potential_[arc.from] - potential_[arc.to];
            const std::int64_t violation = arc.state == State::lower   ? -reduced
                                           : arc.state == State::upper ? reduced
                                                                       : 0;
            if (violation > worst) {
                worst = violation;
                entering = next;
            }
            next = next + 1 == count ? 0 : next + 1;
            if (++in_block == block) {
                if (worst > 0) { break; }
                in_block = 0;
            }
        }
        if (worst == 0) { break; }
        pivot(entering);
    }
    for (std::uint32_t a = first_artificial_; a < arcs_.size(); ++a) {
        if (arcs_[a].flow != 0) { return false; }
    }
    return true;
}

// A star of artificial arcs around a root, which is the last node.
RESIDENCY_INLINE void NetworkSimplex::start() {
    const auto nodes = static_cast<std::uint32_t>(supplies_.size());
    first_artificial_ = static_cast<std::uint32_t>(arcs_.size());
    constexpr std::int64_t dear = std::int64_t{1} << 54;  // beyond any path
    parent_.assign(nodes + 1, nodes);
    parent_[nodes] = nobody;
    pred_.assign(nodes + 1, nobody);
    depth_.assign(nodes + 1, 1);
    depth_[nodes] = 0;
    potential_.assign(nodes + 1, 0);
    child_.assign(nodes + 1, nobody);
    older_.assign(nodes + 1, nobody);
    younger_.assign(nodes + 1, nobody);
    for (std::uint32_t v = 0; v < nodes; ++v) {
        const std::int64_t supply = supplies_[v];
        pred_[v] = static_cast<std::uint32_t>(arcs_.size());
        if (supply >= 0) {
            arcs_.push_back({v, nodes, unbounded, dear, supply, State::tree});
        } else {
            arcs_.push_back({nodes, v, unbounded, dear, -supply, State::tree});
        }
        attach(v, nodes);
    }
    refresh_below(nodes);
}

RESIDENCY_INLINE void NetworkSimplex::attach(std::uint32_t v, std::uint32_t to) {
    parent_[v] = to;
    older_[v] = nobody;
    younger_[v] = child_[to];
    if (child_[to] != nobody) { older_[child_[to]] = v; }
    child_[to] = v;
}

RESIDENCY_INLINE void NetworkSimplex::detach(std::uint32_t v) {
    if (older_[v] != nobody) {
        younger_[older_[v]] = younger_[v];
    } else {
        child_[parent_[v]] = younger_[v];
    }
    if (younger_[v] != nobody) { older_[younger_[v]] = older_[v]; }
}

// Depths and potentials below a node whose own are right.
RESIDENCY_INLINE void NetworkSimplex::refresh_below(std::uint32_t top) {
    stack_.assign(1, top);
    while (!stack_.empty()) {
        const std::uint32_t u = stack_.back();
        stack_.pop_back();
        for (std::uint32_t v = child_[u]; v != nobody; v = younger_[v]) {
            refresh(v, u);
            stack_.push_back(v);
        }
    }
}

RESIDENCY_INLINE void NetworkSimplex::refresh(std::uint32_t v, std::uint32_t above) {
    const Arc& arc = arcs_[pred_[v]];
    depth_[v] = depth_[above] + 1;
    potential_[v] = arc.from == v ? potential_[above] - arc.cost : potential_[above] + arc.cost;
}

RESIDENCY_INLINE void NetworkSimplex::pivot(std::uint32_t entering) {
    Arc& in = arcs_[entering];
    const bool forward = in.state == State::lower;
    const std::uint32_t first = forward ? in.from : in.to, second = forward ? in.to : in.from;
    std::uint32_t a = first, b = second;
    while (a != b) {
        if (depth_[a] >= depth_[b]) {
            a = parent_[a];
        } else {
            b = parent_[b];
        }
    }
    const std::uint32_t join = a;
    // The last arc that blocks, on the way from the join round the cycle.
    std::int64_t delta = in.capacity;
    std::uint32_t leaving = nobody;
    bool on_first = false;
    for (std::uint32_t u = first; u != join; u = parent_[u]) {
        const Arc& arc = arcs_[pred_[u]];
        const std::int64_t room = arc.from == u ? arc.flow : arc.capacity - arc.flow;
        if (room < delta) {
            delta = room;
            leaving = u;
            on_first = true;
        }
    }
    for (std::uint32_t u = second; u != join; u = parent_[u]) {
        const Arc& arc = arcs_[pred_[u]];
        const std::int64_t room = arc.from == u ? arc.capacity - arc.flow : arc.flow;
        if (room <= delta) {
            delta = room;
            leaving = u;
            on_first = false;
        }
    }
    if (delta > 0) {
        in.flow += forward ? delta : -delta;
        for (std::uint32_t u = first; u != join; u = parent_[u]) {
            Arc& arc = arcs_[pred_[u]];
            arc.flow += arc.from == u ? -delta : delta;
        }
        for (std::uint32_t u = second; u != join; u = parent_[u]) {
            Arc& arc = arcs_[pred_[u]];
            arc.flow += arc.from == u ? delta : -delta;
        }
    }
    if (leaving == nobody) {
        in.state = forward ? State::upper : State::lower;
        return;
    }
    in.state = State::tree;
    Arc& out = arcs_[pred_[leaving]];
    out.state = out.flow == 0 ? State::lower : State::upper;
    // Hang the subtree of the leaving arc from the entering one, the path to it turned round.
    std::uint32_t v = on_first ? first : second, above = on_first ? second : first, arc = entering;
    for (;;) {
        const std::uint32_t old_parent = parent_[v], old_arc = pred_[v];
        detach(v);
        attach(v, above);
        pred_[v] = arc;
        if (v == leaving) { break; }
        above = v;
        arc = old_arc;
        v = old_parent;
    }
    const std::uint32_t top = on_first ? first : second;
    refresh(top, parent_[top]);
    refresh_below(top);
}

}}}  // namespace residency::RESIDENCY_ABI::plan
