// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// For every storage, the steps that read it: what tells when it is needed next. Steps are counted across passes: step
/// i of pass p of a cyclic order of n steps is p · n + i. An immutable handle that is cheap to copy.
class UseOrder {
public:
    /// Where there is no next use.
    static constexpr std::uint64_t never = UINT64_MAX;

    UseOrder() noexcept = default;
    explicit UseOrder(const Schedule& schedule);
    /// From plain data: step i reads storages[step_offsets[i] … step_offsets[i + 1]), all below `storage_count`; a
    /// storage twice in one step counts once. An error where the offsets do not run from 0 to storages.size() or an id
    /// is too large.
    [[nodiscard]] static Result<UseOrder> try_from(std::span<const std::uint64_t> step_offsets,
                                                   std::span<const StorageId> storages, std::uint32_t storage_count,
                                                   Cycle cycle);

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

    void finish(std::shared_ptr<Data> data, std::uint32_t storage_count);

    std::shared_ptr<const Data> data_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/use_order.ipp"
#endif
