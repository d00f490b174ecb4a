// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/copy_nodes.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan { namespace detail {

RESIDENCY_INLINE std::uint64_t copy_nodes(const PlanData& plan, const Options& options) {
    if (options.source_offsets.size() != plan.storage_offsets.size()) { return 0; }
    std::vector<std::uint32_t> order;  // storages with bytes, in the order of the image
    for (std::uint32_t s = 0; s < plan.storage_bytes.size(); ++s) {
        if (plan.storage_bytes[s] != 0) { order.push_back(s); }
    }
    residency::detail::sort(
        order, [&](std::uint32_t a, std::uint32_t b) { return plan.storage_offsets[a] < plan.storage_offsets[b]; });
    const auto end = [&](std::size_t k) { return plan.storage_offsets[order[k]] + plan.storage_bytes[order[k]]; };
    const auto continues = [&](std::size_t k) {  // the storage before
        return end(k - 1) == plan.storage_offsets[order[k]] &&
               options.source_offsets[order[k - 1]] + plan.storage_bytes[order[k - 1]] ==
                   options.source_offsets[order[k]];
    };
    std::uint64_t nodes = 0;
    for (const Copy& copy : plan.copies) {
        auto k =
            static_cast<std::size_t>(std::upper_bound(order.begin(), order.end(), copy.image_begin,
                                                      [&](std::uint64_t at, std::uint32_t s) {
                                                          return at < plan.storage_offsets[s] + plan.storage_bytes[s];
                                                      }) -
                                     order.begin());
        for (bool is_first = true; k < order.size() && plan.storage_offsets[order[k]] < copy.image_end; ++k) {
            nodes += is_first || !continues(k) ? 1U : 0U;
            is_first = false;
        }
    }
    return nodes;
}

RESIDENCY_INLINE double seconds_with_nodes(const PlanData& plan, const Problem& problem, const Options& options) {
    if (!plan.captured) { return plan.predicted_seconds; }
    const std::uint64_t nodes = copy_nodes(plan, options), calls = plan.calls.size();
    return plan.predicted_seconds +
           static_cast<double>(nodes > calls ? nodes - calls : 0) * problem.link.node_latency_seconds;
}

}}}}  // namespace residency::RESIDENCY_ABI::plan::detail
