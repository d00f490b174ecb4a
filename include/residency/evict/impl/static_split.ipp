// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>

#include "residency/config.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/model/sort.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace evict {

RESIDENCY_INLINE void StaticSplit::choose(const Context& context, const UseOrder* order) {
    struct Candidate {
        std::uint32_t item;
        std::uint32_t uses;   // per pass
        std::uint32_t first;  // step
    };
    const std::span<const std::uint64_t> bytes = context.bytes;
    std::vector<Candidate> candidates;
    for (std::uint32_t item = 0; item < bytes.size(); ++item) {
        if (bytes[item] == 0) { continue; }
        if (order == nullptr) {
            candidates.push_back({item, 1, item});
        } else if (item < order->storage_count() && !order->uses(StorageId{item}).empty()) {
            const auto uses = order->uses(StorageId{item});
            candidates.push_back({item, static_cast<std::uint32_t>(uses.size()), uses.front()});
        }
    }
    std::uint64_t left = context.capacity_bytes;
    const std::uint64_t ring = keep_what_widens_the_ring(context, order, left);
    left -= (std::min)(left, ring);
    std::erase_if(candidates, [&](const Candidate& candidate) { return stays_[candidate.item] != 0; });
    // The storages that are read most often per pass save most by staying.
    residency::detail::sort(candidates, [](const Candidate& a, const Candidate& b) {
        if (a.uses != b.uses) { return a.uses > b.uses; }
        return a.first != b.first ? a.first < b.first : a.item < b.item;
    });
    for (auto begin = candidates.begin(); begin != candidates.end();) {
        const auto end =
            std::find_if(begin, candidates.end(), [&](const Candidate& c) { return c.uses != begin->uses; });
        const auto total = std::accumulate(begin, end, 0.0, [&](double sum, const Candidate& candidate) {
            return sum + static_cast<double>(bytes[candidate.item]);
        });
        const double share =
            config_.choice == Choice::prefix ? 1.0 : (std::min)(1.0, static_cast<double>(left) / total);
        double credit = 0;
        for (; begin != end; ++begin) {
            const std::uint64_t own = bytes[begin->item];
            credit += share * static_cast<double>(own);
            if (own <= left && credit >= static_cast<double>(own) / 2) {
                stays_[begin->item] = 1;
                left -= own;
                credit -= static_cast<double>(own);
            }
        }
    }
}

RESIDENCY_INLINE std::uint64_t StaticSplit::keep_what_widens_the_ring(const Context& context, const UseOrder* order,
                                                                      std::uint64_t& left) {
    struct Step {
        std::uint64_t bytes;
        std::uint32_t number;
    };
    const std::span<const std::uint64_t> bytes = context.bytes;
    const auto storages = [&](std::uint32_t step) {
        return order != nullptr ? order->storages_at(step) : std::span<const StorageId>{};
    };
    std::vector<Step> steps;
    const std::uint32_t count = order != nullptr ? order->steps() : static_cast<std::uint32_t>(bytes.size());
    for (std::uint32_t step = 0; step < count; ++step) {
        std::uint64_t sum = order == nullptr ? bytes[step] : 0;
        for (const StorageId id : storages(step)) { sum += index(id) < bytes.size() ? bytes[index(id)] : 0; }
        steps.push_back({sum, step});
    }
    residency::detail::sort(steps, [](const Step& a, const Step& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.number < b.number;
    });
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::uint64_t next = i + 1 < steps.size() ? steps[i + 1].bytes : 0;
        const std::uint64_t narrower = saturating_ring(steps[i].bytes - next);
        if (steps[i].bytes > narrower || steps[i].bytes + saturating_ring(next) > left) {
            return saturating_ring(steps[i].bytes);
        }
        if (order == nullptr) { stays_[steps[i].number] = 1; }
        for (const StorageId id : storages(steps[i].number)) {
            if (index(id) < bytes.size()) { stays_[index(id)] = 1; }
        }
        left -= steps[i].bytes;
    }
    return 0;
}

RESIDENCY_INLINE std::uint64_t StaticSplit::saturating_ring(std::uint64_t step_bytes) const noexcept {
    const std::uint64_t times = (std::max)(config_.ring_steps, 1U);
    return step_bytes > UINT64_MAX / 4 / times ? UINT64_MAX / 4 : step_bytes * times;
}

}}}  // namespace residency::RESIDENCY_ABI::evict
