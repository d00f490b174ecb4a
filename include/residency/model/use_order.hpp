// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What follows the last step of an order.
enum class Cycle : std::uint8_t {
    cyclic,    ///< the first step again
    one_shot,  ///< nothing
};

/// For every storage, the steps that read it, in ascending order: it tells when a storage is needed next. Immutable; copies are
/// cheap and share the data. Schedule::use_order() makes one of a schedule.
class UseOrder {
public:
    /// Where there is no next use.
    static constexpr StepIndex never = UINT64_MAX;
    static constexpr std::uint32_t max_steps = std::uint32_t{1} << 28;  ///< of an order

    UseOrder() noexcept = default;
    /// From plain data: step i reads storages[step_offsets[i] … step_offsets[i + 1]), with ids below `storage_count`. A storage
    /// twice in one step counts once. Error invalid_argument: the offsets do not run from 0 to storages.size(), there are more than
    /// max_steps steps, or an id is too large.
    [[nodiscard]] static Result<UseOrder> try_from(std::span<const std::uint64_t> step_offsets,
                                                   std::span<const StorageId> storages, std::uint32_t storage_count,
                                                   Cycle cycle);

    /// Steps of one pass.
    [[nodiscard]] std::uint32_t steps() const noexcept {
        return data_ ? static_cast<std::uint32_t>(data_->step_offsets.size() - 1) : 0;
    }
    /// Storages that the order knows.
    [[nodiscard]] std::uint32_t storage_count() const noexcept {
        return data_ ? static_cast<std::uint32_t>(data_->use_offsets.size() - 1) : 0;
    }
    /// Whether passes follow one another.
    [[nodiscard]] bool is_cyclic() const noexcept { return !data_ || data_->cycle == Cycle::cyclic; }
    /// The storages that a step reads, each once. Preconditions: steps() > 0; step < steps() where the order is one-shot.
    [[nodiscard]] std::span<const StorageId> storages_at(StepIndex step) const noexcept {
        RESIDENCY_ASSERT(steps() > 0 && (is_cyclic() || step < steps()), "pass a step of the order");
        const auto i = static_cast<std::size_t>(step % steps());
        return slice(data_->storages, data_->step_offsets, i);
    }
    /// The steps of one pass that read a storage, ascending. Precondition: index(id) < storage_count().
    [[nodiscard]] std::span<const std::uint32_t> uses(StorageId id) const noexcept {
        RESIDENCY_ASSERT(index(id) < storage_count(), "pass a storage of the order");
        return slice(data_->uses, data_->use_offsets, index(id));
    }

    /// The first step after `after_step` that reads the storage, or never. O(log uses). Allocates nothing.
    /// Precondition: index(id) < storage_count().
    [[nodiscard]] StepIndex next_use(StorageId id, StepIndex after_step) const noexcept {
        return after_step == UINT64_MAX ? never : use_from(id, after_step + 1);
    }
    /// The first step from `step` on, `step` included, that reads the storage, or never. O(log uses). Allocates nothing.
    /// Precondition: index(id) < storage_count().
    [[nodiscard]] StepIndex use_from(StorageId id, StepIndex step) const noexcept;

private:
    struct Data {
        Cycle cycle = Cycle::cyclic;
        std::vector<std::uint64_t> step_offsets;  // steps + 1, into storages
        std::vector<StorageId> storages;          // of all steps, one after the other
        std::vector<std::uint64_t> use_offsets;   // storages + 1, into uses
        std::vector<std::uint32_t> uses;          // steps of one pass, by storage
    };

    template <class T>
    [[nodiscard]] static std::span<const T> slice(const std::vector<T>& values,
                                                  const std::vector<std::uint64_t>& offsets, std::size_t i) noexcept {
        const auto first = static_cast<std::size_t>(offsets[i]);
        return {values.data() + first, static_cast<std::size_t>(offsets[i + 1]) - first};
    }
    /// Makes the uses of the steps in `data`.
    void finish(std::shared_ptr<Data> data, std::uint32_t storage_count);

    std::shared_ptr<const Data> data_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/use_order.ipp"
#endif
