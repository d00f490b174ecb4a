// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace residency::inline RESIDENCY_ABI {

/// For every storage, the steps that read it: what tells when it is needed next. Steps are counted across passes: step
/// i of pass p of a cyclic order of n steps is p · n + i. An immutable handle that is cheap to copy.
class UseOrder {
public:
    /// Where there is no next use.
    static constexpr std::uint64_t never = UINT64_MAX;

    UseOrder() noexcept = default;
    explicit UseOrder(const Schedule& schedule) {
        auto data = std::make_shared<Data>();
        data->cycle = schedule.cycle();
        data->step_offsets.assign(1, 0);
        for (const Schedule::Step& step : schedule.steps()) {
            data->storages.insert(data->storages.end(), step.storages.begin(), step.storages.end());
            data->step_offsets.push_back(data->storages.size());
        }
        finish(std::move(data), schedule.storage_count());
    }
    /// From plain data: step i reads storages[step_offsets[i] … step_offsets[i + 1]), all below `storage_count`; a
    /// storage twice in one step counts once. An error where the offsets do not run from 0 to storages.size() or an id
    /// is too large.
    [[nodiscard]] static Result<UseOrder> try_from(std::span<const std::uint64_t> step_offsets,
                                                   std::span<const StorageId> storages, std::uint32_t storage_count,
                                                   Cycle cycle) {
        if (step_offsets.empty() || step_offsets.front() != 0 || step_offsets.back() != storages.size() ||
            !std::is_sorted(step_offsets.begin(), step_offsets.end()) ||
            step_offsets.size() - 1 > Schedule::max_steps) {
            return Error{ErrorKind::invalid_argument, "the offsets of the steps do not run from 0 to " +
                                                          std::to_string(storages.size()) + " in order"};
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

    /// Steps of one pass.
    [[nodiscard]] std::uint32_t steps() const noexcept {
        return data_ ? static_cast<std::uint32_t>(data_->step_offsets.size() - 1) : 0;
    }
    [[nodiscard]] std::uint32_t storage_count() const noexcept {
        return data_ ? static_cast<std::uint32_t>(data_->use_offsets.size() - 1) : 0;
    }
    [[nodiscard]] bool is_cyclic() const noexcept { return !data_ || data_->cycle == Cycle::cyclic; }
    /// What a step reads, each storage once; `step` counted across passes. Precondition: steps() > 0, and step <
    /// steps() where the order is one-shot.
    [[nodiscard]] std::span<const StorageId> storages_at(std::uint64_t step) const noexcept {
        RESIDENCY_ASSERT(steps() > 0 && (is_cyclic() || step < steps()), "pass a step of the order");
        const auto i = static_cast<std::size_t>(step % steps());
        return std::span<const StorageId>{data_->storages}.subspan(
            static_cast<std::size_t>(data_->step_offsets[i]),
            static_cast<std::size_t>(data_->step_offsets[i + 1] - data_->step_offsets[i]));
    }
    /// The steps of one pass that read a storage, ascending. Precondition: index(id) < storage_count().
    [[nodiscard]] std::span<const std::uint32_t> uses(StorageId id) const noexcept {
        RESIDENCY_ASSERT(index(id) < storage_count(), "pass a storage of the order");
        const auto first = static_cast<std::size_t>(data_->use_offsets[index(id)]);
        return std::span<const std::uint32_t>{data_->uses}.subspan(
            first, static_cast<std::size_t>(data_->use_offsets[index(id) + 1]) - first);
    }

    /// The first step after `step` (counted across passes) that reads the storage, or never. O(log uses); allocates
    /// nothing. Precondition: index(id) < storage_count().
    [[nodiscard]] std::uint64_t next_use(StorageId id, std::uint64_t after_step) const noexcept {
        return after_step == UINT64_MAX ? never : use_from(id, after_step + 1);
    }
    /// The first step from `step` on that reads the storage, `step` included, or never. Otherwise as next_use.
    [[nodiscard]] std::uint64_t use_from(StorageId id, std::uint64_t step) const noexcept {
        const auto in_pass = uses(id);
        if (in_pass.empty()) { return never; }
        const std::uint64_t n = steps();
        const std::uint64_t pass = step / n;
        if (pass != 0 && !is_cyclic()) { return never; }
        const auto found = std::lower_bound(in_pass.begin(), in_pass.end(), static_cast<std::uint32_t>(step % n));
        if (found != in_pass.end()) { return detail::saturating_add(pass * n, *found); }
        if (!is_cyclic()) { return never; }
        const auto next_pass = detail::checked_multiply(pass + 1, n);
        return next_pass ? detail::saturating_add(*next_pass, in_pass.front()) : never;
    }

private:
    struct Data {
        Cycle cycle = Cycle::cyclic;
        std::vector<std::uint64_t> step_offsets;  // steps + 1, into storages
        std::vector<StorageId> storages;
        std::vector<std::uint64_t> use_offsets;  // storages + 1, into uses
        std::vector<std::uint32_t> uses;
    };

    void finish(std::shared_ptr<Data> data, std::uint32_t storage_count) {
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

    std::shared_ptr<const Data> data_;
};

}  // namespace residency::inline RESIDENCY_ABI
