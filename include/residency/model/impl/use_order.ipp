// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "residency/config.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<UseOrder> UseOrder::try_from(std::span<const std::uint64_t> step_offsets,
                                                     std::span<const StorageId> storages, std::uint32_t storage_count,
                                                     Cycle cycle) {
    bool runs = !step_offsets.empty() && step_offsets.front() == 0 && step_offsets.back() == storages.size() &&
                step_offsets.size() - 1 <= max_steps;
    for (std::size_t i = 1; runs && i < step_offsets.size(); ++i) { runs = step_offsets[i - 1] <= step_offsets[i]; }
    if (!runs) {
        return Error{ErrorKind::invalid_argument,
                     "the offsets of the steps do not run from 0 to " + std::to_string(storages.size()) + " in order"};
    }
    auto data = std::make_shared<Data>();
    data->cycle = cycle;
    data->step_offsets.assign(1, 0);
    std::vector<std::uint32_t> seen_in(storage_count, UINT32_MAX);
    for (std::uint32_t step = 0; step + 1 < step_offsets.size(); ++step) {
        for (std::uint64_t i = step_offsets[step]; i < step_offsets[step + 1]; ++i) {
            const StorageId id = storages[static_cast<std::size_t>(i)];
            if (index(id) >= storage_count) {
                return Error{ErrorKind::invalid_argument, "step " + std::to_string(step) + " reads storage " +
                                                              std::to_string(index(id)) + " of " +
                                                              std::to_string(storage_count)};
            }
            if (std::exchange(seen_in[index(id)], step) != step) { data->storages.push_back(id); }
        }
        data->step_offsets.push_back(data->storages.size());
    }
    UseOrder order;
    order.finish(std::move(data), storage_count);
    return order;
}

RESIDENCY_INLINE StepIndex UseOrder::use_from(StorageId id, StepIndex step) const noexcept {
    const auto in_pass = uses(id);
    if (in_pass.empty()) { return never; }
    const std::uint64_t n = steps();
    const std::uint64_t pass = step / n;
    if (pass != 0 && !is_cyclic()) { return never; }
    const auto wanted = static_cast<std::uint32_t>(step % n);
    std::size_t first = 0;  // of the uses at or after `wanted`
    for (std::size_t count = in_pass.size(); count > 0;) {
        const std::size_t half = count / 2;
        if (in_pass[first + half] < wanted) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    const bool wraps = first == in_pass.size();
    if (wraps && !is_cyclic()) { return never; }
    const std::uint64_t use = wraps ? in_pass.front() : in_pass[first];
    const std::uint64_t found_pass = wraps ? pass + 1 : pass;
    return found_pass > (never - use) / n ? never : found_pass * n + use;
}

RESIDENCY_INLINE void UseOrder::finish(std::shared_ptr<Data> data, std::uint32_t storage_count) {
    data->use_offsets.assign(std::size_t{storage_count} + 1, 0);
    for (const StorageId id : data->storages) { ++data->use_offsets[index(id) + 1]; }
    for (std::size_t i = 1; i < data->use_offsets.size(); ++i) { data->use_offsets[i] += data->use_offsets[i - 1]; }
    data->uses.resize(data->storages.size());
    std::vector<std::uint64_t> next{data->use_offsets.begin(), data->use_offsets.end() - 1};
    for (std::size_t step = 0; step + 1 < data->step_offsets.size(); ++step) {
        for (std::uint64_t i = data->step_offsets[step]; i < data->step_offsets[step + 1]; ++i) {
            const StorageId id = data->storages[static_cast<std::size_t>(i)];
            data->uses[static_cast<std::size_t>(next[index(id)]++)] = static_cast<std::uint32_t>(step);
        }
    }
    data_ = std::move(data);
}

}}  // namespace residency::RESIDENCY_ABI
