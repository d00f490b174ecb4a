// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "residency/model/sort.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/simulate.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE Timeline timeline(const PlanData& plan, const Link& link, std::span<const double> compute) {
    Timeline line;
    line.compute.assign(compute.begin(), compute.end());
    line.compute.resize(plan.steps, 0.0);
    line.calls.reserve(plan.calls.size());
    for (const Call& call : plan.calls) {
        std::uint64_t bytes = 0;
        for (std::uint32_t k = call.copies_begin; k < call.copies_end; ++k) { bytes += plan.copies[k].bytes(); }
        line.calls.push_back({(plan.captured ? link.node_latency_seconds : link.latency_seconds) +
                                  static_cast<double>(bytes) / link.bytes_per_second,
                              call.needed_by, call.wait.step, call.wait.pass != 0});
    }
    return line;
}

RESIDENCY_INLINE double seconds_of(TimelineSolver& solver, const Timeline& line, const PlanData& plan, double tolerance,
                                   double give_up) {
    if (!plan.cyclic) { return solver.captured(line, 0); }
    return plan.captured ? solver.captured(line, plan.cut) : solver.period(line, tolerance, give_up);
}

RESIDENCY_INLINE double simulate(const PlanData& plan, const Link& link, std::span<const double> compute) {
    const Timeline line = timeline(plan, link, compute);
    TimelineSolver solver;
    return seconds_of(solver, line, plan, 1e-12);
}

}}}  // namespace residency::RESIDENCY_ABI::plan

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

RESIDENCY_INLINE void finalize_times(PlanData& data, const Timeline& line) {
    TimelineSolver solver;
    if (data.captured && data.cyclic) {
        double least = 0;
        for (std::uint32_t cut = 0; cut <= data.calls.size() && cut <= tuning::cut_most; ++cut) {
            if (cut > 0 && data.calls[cut - 1].wait.exists() && data.calls[cut - 1].wait.pass == 0) { break; }
            const double seconds = solver.captured(line, cut);
            if (cut == 0 || seconds < least) {
                least = seconds;
                data.cut = cut;
            }
        }
    }
    data.predicted_seconds = seconds_of(solver, line, data, 1e-12);
}

RESIDENCY_INLINE void finalize_times(PlanData& data, const Problem& problem) {
    finalize_times(data, timeline(data, problem.link, problem.compute_seconds));
}

RESIDENCY_INLINE bool is_better(const PlanData& a, const PlanData& b) {
    if (std::abs(a.predicted_seconds - b.predicted_seconds) > 1e-9 * b.predicted_seconds) {
        return a.predicted_seconds < b.predicted_seconds;
    }
    return a.bytes_per_pass < b.bytes_per_pass;
}

RESIDENCY_INLINE std::vector<std::uint32_t> copy_nodes(const PlanData& plan, const Options& options) {
    if (options.source_offsets.size() != plan.storage_offsets.size()) { return {}; }
    std::vector<std::uint32_t> order;  // storages with bytes, in the order of the image
    for (std::uint32_t s = 0; s < plan.storage_bytes.size(); ++s) {
        if (plan.storage_bytes[s] != 0) { order.push_back(s); }
    }
    residency::detail::sort(
        order, [&](std::uint32_t a, std::uint32_t b) { return plan.storage_offsets[a] < plan.storage_offsets[b]; });
    const auto end = [&](std::uint32_t s) { return plan.storage_offsets[s] + plan.storage_bytes[s]; };
    const auto follows = [&](std::uint32_t a, std::uint32_t b) {
        return end(a) == plan.storage_offsets[b] &&
               options.source_offsets[a] + plan.storage_bytes[a] == options.source_offsets[b];
    };
    const auto nodes_of = [&](const Copy& copy) {
        auto k =
            static_cast<std::size_t>(std::upper_bound(order.begin(), order.end(), copy.image_begin,
                                                      [&](std::uint64_t at, std::uint32_t s) { return at < end(s); }) -
                                     order.begin());
        std::uint32_t nodes = 0;
        for (; k < order.size() && plan.storage_offsets[order[k]] < copy.image_end; ++k) {
            nodes += nodes == 0 || !follows(order[k - 1], order[k]) ? 1U : 0U;
        }
        return nodes;
    };
    std::vector<std::uint32_t> result;
    result.reserve(plan.calls.size());
    for (const Call& call : plan.calls) {
        std::uint32_t nodes = 0;
        for (std::uint32_t c = call.copies_begin; c < call.copies_end; ++c) { nodes += nodes_of(plan.copies[c]); }
        result.push_back(nodes);
    }
    return result;
}

RESIDENCY_INLINE bool has_neighbours(const Problem& problem, const Options& options) {
    if (options.source_offsets.size() != problem.storages()) { return false; }
    std::vector<std::uint64_t> begins;
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (problem.storage_bytes[s] != 0) { begins.push_back(options.source_offsets[s]); }
    }
    residency::detail::sort(begins, std::less<>{});
    for (std::uint32_t s = 0; s < problem.storages(); ++s) {
        if (problem.storage_bytes[s] != 0 &&
            std::binary_search(begins.begin(), begins.end(), options.source_offsets[s] + problem.storage_bytes[s])) {
            return true;
        }
    }
    return false;
}

RESIDENCY_INLINE void count_nodes(PlanData& plan, const Problem& problem, const Options& options) {
    if (!plan.captured) { return; }
    const std::vector<std::uint32_t> nodes = copy_nodes(plan, options);
    if (std::all_of(nodes.begin(), nodes.end(), [](std::uint32_t n) { return n <= 1; })) { return; }
    Timeline line = timeline(plan, problem.link, problem.compute_seconds);
    for (std::size_t k = 0; k < nodes.size(); ++k) {
        line.calls[k].seconds += ((std::max)(nodes[k], 1U) - 1) * problem.link.node_latency_seconds;
    }
    finalize_times(plan, line);
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
