// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// A plan reduced to its times: a max-plus system. Calls are in copy-stream order, needed_by never decreases.
struct Timeline {
    struct Call {
        double seconds = 0;  ///< latency + bytes / rate
        std::uint32_t needed_by = 0;
        std::uint32_t wait_step = none;  ///< none: no wait
        bool wait_previous = false;      ///< the step of the pass before
    };
    std::vector<Call> calls;
    std::vector<double> compute;  ///< seconds, one a step
};

/// Steady period and makespans of a timeline. Keeps its working memory between calls.
class TimelineSolver {
public:
    /// The steady period of a pass repeated for ever, to `tolerance` (relative). Policy iteration in the manner of Howard for the
    /// greatest cycle mean, with a pass of simulation as the improvement step. Stops early, and returns a lower bound above
    /// `give_up`, once the period is known to be greater than that.
    double period(const Timeline& line, double tolerance, double give_up = 1e300) {
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

    /// Seconds from the start of a graph to its end: calls [cut, m), then calls [0, cut) of the next pass, beside the steps.
    /// Precondition: calls [0, cut) wait for the previous pass or for nothing.
    double captured(const Timeline& line, std::size_t cut) {
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

    /// Seconds of one pass that starts with nothing on its way: first start to last end of a step.
    double once(const Timeline& line) {
        const std::size_t n = line.compute.size();
        before_.assign(n, 0.0);
        double link = 0, compute = 0;
        std::size_t k = 0;
        for (std::size_t i = 0; i < n; ++i) {
            for (; k < line.calls.size() && line.calls[k].needed_by <= i; ++k) {
                const Timeline::Call& call = line.calls[k];
                if (call.wait_step != none && !call.wait_previous) { link = (std::max)(link, before_[call.wait_step]); }
                link += call.seconds;
            }
            if (k > 0) { compute = (std::max)(compute, link); }
            compute += line.compute[i];
            before_[i] = compute;
        }
        return compute;
    }

    /// Steps and calls simulated so far: a measure of work that is the same on every machine.
    [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }

private:
    // Nodes of the policy graph: step i is i, call k is n + k. Sets the state to the values of the policy's best cycle.
    double jump(const Timeline& line, double& link, double& compute) {
        const std::size_t n = line.compute.size(), m = line.calls.size();
        mark_.assign(n + m, 0);
        value_.resize(n + m);
        shift_.resize(n + m);
        // The last call that comes before each step, in the order of simulation.
        last_call_.resize(n);
        std::size_t k = 0;
        for (std::size_t i = 0; i < n; ++i) {
            for (; k < m && line.calls[k].needed_by <= i; ++k) {}
            last_call_[i] = static_cast<std::uint32_t>(k);
        }
        const auto step_back = [&](std::size_t node, double& weight, int& passes) -> std::size_t {
            passes = 0;
            if (node < n) {
                weight = line.compute[node];
                if (step_waits_[node]) {
                    if (last_call_[node] != 0) { return n + last_call_[node] - 1; }
                    passes = 1;
                    return n + m - 1;
                }
                if (node != 0) { return node - 1; }
                passes = 1;
                return n - 1;
            }
            const std::size_t call = node - n;
            weight = line.calls[call].seconds;
            if (call_waits_[call]) {
                passes = line.calls[call].wait_previous ? 1 : 0;
                return line.calls[call].wait_step;
            }
            if (call != 0) { return node - 1; }
            passes = 1;
            return n + m - 1;
        };
        double best = -1;
        std::size_t anchor = 0;
        std::uint32_t colour = 0;
        for (const std::size_t start : {n - 1, n + m - 1}) {
            if (mark_[start] != 0) { continue; }
            ++colour;
            double sum = 0;
            int passes_sum = 0;
            std::size_t node = start;
            while (mark_[node] == 0) {
                mark_[node] = colour;
                value_[node] = sum;
                shift_[node] = passes_sum;
                double weight = 0;
                int passes = 0;
                node = step_back(node, weight, passes);
                sum += weight;
                passes_sum += passes;
            }
            if (mark_[node] != colour) { continue; }
            const double mean = (sum - value_[node]) / (std::max)(1, passes_sum - shift_[node]);
            if (mean > best) {
                best = mean;
                anchor = node;
            }
        }
        // Values relative to the anchor, whose simulated time is kept: value(v) = value(pred) + weight − mean · passes.
        const double base = anchor < n ? before_[anchor] : call_end_[anchor - n];
        mark_.assign(n + m, 0);
        mark_[anchor] = 1;
        value_[anchor] = base;
        stack_.clear();
        const auto settle = [&](std::size_t node) {
            const std::size_t start = node;
            stack_.clear();
            while (mark_[node] == 0) {
                mark_[node] = 2;
                stack_.push_back(static_cast<std::uint32_t>(node));
                double weight = 0;
                int passes = 0;
                node = step_back(node, weight, passes);
            }
            if (mark_[node] == 2) {  // another cycle: keep the simulated times of this chain
                value_[node] = node < n ? before_[node] : call_end_[node - n];
                mark_[node] = 1;
            }
            for (std::size_t at = stack_.size(); at-- > 0;) {
                const std::size_t v = stack_[at];
                if (mark_[v] == 1) { continue; }
                double weight = 0;
                int passes = 0;
                const std::size_t from = step_back(v, weight, passes);
                value_[v] = value_[from] + weight - best * passes;
                mark_[v] = 1;
            }
            return value_[start];
        };
        for (std::size_t i = 0; i < n; ++i) { before_[i] = settle(i); }
        compute = before_[n - 1];
        link = settle(n + m - 1);
        return best;
    }

    std::vector<double> before_, after_, call_end_, value_;
    std::vector<std::uint8_t> call_waits_, step_waits_;
    std::vector<std::uint32_t> mark_, stack_, last_call_;
    std::vector<int> shift_;
    std::uint64_t nodes_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan
