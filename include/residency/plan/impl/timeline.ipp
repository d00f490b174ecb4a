// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

// Policy iteration in the manner of Howard for the greatest cycle mean; each step simulates a pass, which improves the policy.
RESIDENCY_INLINE double TimelineSolver::period(const Timeline& line, double tolerance, double give_up) {
    const std::size_t n = line.compute.size();
    const std::size_t m = line.calls.size();
    before_.assign(n, 0.0);
    after_.resize(n);
    call_end_.resize(m);
    call_waits_.resize(m);
    step_waits_.resize(n);
    double link = 0, compute = 0, upper = 0;
    for (int pass = 0; pass < 64; ++pass) {
        nodes_ += n + m;
        const double link_before = link, compute_before = compute;
        std::size_t k = 0;
        for (std::size_t i = 0; i < n; ++i) {
            for (; k < m && line.calls[k].needed_by <= i; ++k) {
                const Timeline::Call& call = line.calls[k];
                bool waits = false;
                if (call.wait_step != none) {
                    const double at = call.wait_previous ? before_[call.wait_step] : after_[call.wait_step];
                    waits = at > link;
                    link = waits ? at : link;
                }
                call_waits_[k] = waits;
                link += call.seconds;
                call_end_[k] = link;
            }
            const bool waits = link > compute;
            step_waits_[i] = waits;
            compute = (waits ? link : compute) + line.compute[i];
            after_[i] = compute;
        }
        if (m == 0) { return compute - compute_before; }
        double low = link - link_before, high = low;
        for (std::size_t i = 0; i < n; ++i) {
            const double d = after_[i] - before_[i];
            low = (std::min)(low, d);
            high = (std::max)(high, d);
        }
        upper = high;
        if (pass > 0 && high - low <= tolerance * high) { return high; }
        std::swap(before_, after_);
        if (pass < 1) { continue; }
        nodes_ += n + m;
        const double mean = jump(line, link, compute);
        if (mean > give_up) { return mean; }
    }
    return upper;
}

RESIDENCY_INLINE double TimelineSolver::captured(const Timeline& line, std::size_t cut) {
    const std::size_t n = line.compute.size();
    const std::size_t m = line.calls.size();
    nodes_ += n + m;
    before_.assign(n, 0.0);
    double link = 0, compute = 0;
    std::size_t k = 0;
    for (std::size_t i = 0; i < n; ++i) {
        for (; k < m && line.calls[k].needed_by <= i; ++k) {
            if (k < cut) { continue; }
            const Timeline::Call& call = line.calls[k];
            if (call.wait_step != none && !call.wait_previous) { link = (std::max)(link, before_[call.wait_step]); }
            link += call.seconds;
        }
        if (k > cut) { compute = (std::max)(compute, link); }
        compute += line.compute[i];
        before_[i] = compute;
    }
    for (k = 0; k < cut; ++k) {
        const Timeline::Call& call = line.calls[k];
        if (call.wait_step != none) { link = (std::max)(link, before_[call.wait_step]); }
        link += call.seconds;
    }
    return (std::max)(link, compute);
}

// The node that a step or a call followed in the pass simulated last: the policy of the iteration.
RESIDENCY_INLINE TimelineSolver::Predecessor TimelineSolver::predecessor(const Timeline& line, std::size_t node) const {
    const std::size_t n = line.compute.size(), m = line.calls.size();
    if (node < n) {
        const double weight = line.compute[node];
        if (step_waits_[node]) {
            return last_call_[node] != 0 ? Predecessor{n + last_call_[node] - 1, weight, 0}
                                         : Predecessor{n + m - 1, weight, 1};
        }
        return node != 0 ? Predecessor{node - 1, weight, 0} : Predecessor{n - 1, weight, 1};
    }
    const Timeline::Call& call = line.calls[node - n];
    if (call_waits_[node - n]) { return {call.wait_step, call.seconds, call.wait_previous ? 1 : 0}; }
    return node != n ? Predecessor{node - 1, call.seconds, 0} : Predecessor{n + m - 1, call.seconds, 1};
}

RESIDENCY_INLINE double TimelineSolver::simulated(std::size_t node) const {
    const std::size_t n = before_.size();
    return node < n ? before_[node] : call_end_[node - n];
}

// Returns the mean of the policy's best cycle, in seconds per pass, and moves the state to the values of that cycle.
RESIDENCY_INLINE double TimelineSolver::jump(const Timeline& line, double& link, double& compute) {
    const std::size_t n = line.compute.size(), m = line.calls.size();
    mark_.assign(n + m, 0);
    value_.resize(n + m);
    shift_.resize(n + m);
    last_call_.resize(n);
    std::size_t k = 0;
    for (std::size_t i = 0; i < n; ++i) {
        for (; k < m && line.calls[k].needed_by <= i; ++k) {}
        last_call_[i] = static_cast<std::uint32_t>(k);
    }
    double best = -1;
    std::size_t anchor = 0;
    std::uint32_t colour = 0;
    for (const std::size_t start : {n - 1, n + m - 1}) {
        if (mark_[start] != 0) { continue; }
        ++colour;
        double sum = 0;
        int passes = 0;
        std::size_t node = start;
        while (mark_[node] == 0) {
            mark_[node] = colour;
            value_[node] = sum;
            shift_[node] = passes;
            const Predecessor from = predecessor(line, node);
            sum += from.weight;
            passes += from.passes;
            node = from.node;
        }
        if (mark_[node] != colour) { continue; }
        const double mean = (sum - value_[node]) / (std::max)(1, passes - shift_[node]);
        if (mean > best) {
            best = mean;
            anchor = node;
        }
    }
    // The anchor keeps its simulated time; a node has the value of its predecessor + weight − mean · passes.
    mark_.assign(n + m, 0);
    mark_[anchor] = 1;
    value_[anchor] = simulated(anchor);
    for (std::size_t i = 0; i < n; ++i) { before_[i] = value_from(line, i, best); }
    compute = before_[n - 1];
    link = value_from(line, n + m - 1, best);
    return best;
}

// The value of a node, and of all those that it follows. A chain that ends in another cycle than the best keeps its simulated times.
RESIDENCY_INLINE double TimelineSolver::value_from(const Timeline& line, std::size_t node, double mean) {
    const std::size_t start = node;
    stack_.clear();
    while (mark_[node] == 0) {
        mark_[node] = 2;
        stack_.push_back(static_cast<std::uint32_t>(node));
        node = predecessor(line, node).node;
    }
    if (mark_[node] == 2) {
        value_[node] = simulated(node);
        mark_[node] = 1;
    }
    for (std::size_t at = stack_.size(); at-- > 0;) {
        const std::size_t v = stack_[at];
        if (mark_[v] == 1) { continue; }
        const Predecessor from = predecessor(line, v);
        value_[v] = value_[from.node] + from.weight - mean * from.passes;
        mark_[v] = 1;
    }
    return value_[start];
}

}}}  // namespace residency::RESIDENCY_ABI::plan
