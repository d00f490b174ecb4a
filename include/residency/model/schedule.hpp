// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/use_order.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// One step of a pass as a run recorded it.
struct StepRecord {
    std::vector<WeightId> weights;  ///< what the step read
    std::optional<std::chrono::nanoseconds>
        compute;       ///< duration on the device, without the copies; none: not measured
    std::string name;  ///< may be empty
};

/// The steps of a pass in order, every weight of them one of the catalog with catalog_hash(). A hint for planning, never a source
/// of identity. Immutable; copies are cheap and share the data. A default-constructed schedule has no steps. Two schedules are
/// equal if their contents are. ScheduleBuilder makes one; model/schedule_file.hpp saves and loads one.
class Schedule {
public:
    /// One launch or group of launches; its weights must be on the device together. Views into the schedule.
    struct Step {
        std::span<const WeightId> weights;    ///< as declared, each once
        std::span<const StorageId> storages;  ///< of those weights, each once, in the order of first mention
        std::optional<std::chrono::nanoseconds> compute;  ///< estimated duration on the device, without the copies
        std::string_view name;                            ///< may be empty
        std::uint32_t position = 0;                       ///< in the schedule
    };

    static constexpr std::uint32_t max_steps = UseOrder::max_steps;  ///< of a schedule

    Schedule() noexcept = default;

    /// A schedule of what a run recorded. A record without weights and duration is no step. Error mismatch, naming the step: the
    /// catalog lacks a weight.
    [[nodiscard]] static Result<Schedule> try_recorded(const Catalog& catalog, std::span<const StepRecord> records,
                                                       Cycle cycle = Cycle::cyclic);
    /// As above, with a list.
    [[nodiscard]] static Result<Schedule> try_recorded(const Catalog& catalog,
                                                       std::initializer_list<StepRecord> records,
                                                       Cycle cycle = Cycle::cyclic) {
        return try_recorded(catalog, std::span{records.begin(), records.size()}, cycle);
    }
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] static Schedule recorded(const Catalog& catalog, std::span<const StepRecord> records,
                                           Cycle cycle = Cycle::cyclic) {
        return unwrap(try_recorded(catalog, records, cycle));
    }
    [[nodiscard]] static Schedule recorded(const Catalog& catalog, std::initializer_list<StepRecord> records,
                                           Cycle cycle = Cycle::cyclic) {
        return unwrap(try_recorded(catalog, records, cycle));
    }
    /// @}
#endif

    /// In their order.
    [[nodiscard]] std::span<const Step> steps() const noexcept {
        return data_ ? std::span<const Step>{data_->steps} : std::span<const Step>{};
    }
    /// Number of steps.
    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(steps().size()); }
    /// Whether there are none.
    [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
    /// The steps, for range-for.
    /// @{
    [[nodiscard]] const Step* begin() const noexcept { return steps().data(); }
    [[nodiscard]] const Step* end() const noexcept { return steps().data() + steps().size(); }
    /// @}
    /// Precondition: position < size().
    [[nodiscard]] const Step& operator[](std::uint32_t position) const noexcept {
        RESIDENCY_ASSERT(position < size(), "pass the position of a step");
        return data_->steps[position];
    }
    /// Precondition: position < size().
    [[nodiscard]] std::span<const StorageId> storages(std::uint32_t position) const noexcept {
        return (*this)[position].storages;
    }

    /// Whether passes follow one another.
    [[nodiscard]] Cycle cycle() const noexcept { return data_ ? data_->cycle : Cycle::cyclic; }
    /// Whether cycle() is Cycle::cyclic.
    [[nodiscard]] bool is_cyclic() const noexcept { return cycle() == Cycle::cyclic; }
    /// Catalog::hash of the catalog that it was made for.
    [[nodiscard]] std::uint64_t catalog_hash() const noexcept { return data_ ? data_->catalog_hash : 0; }
    /// Catalog::outline of it; null: that of a catalog without weights.
    [[nodiscard]] const CatalogOutline* catalog_outline() const noexcept {
        return data_ ? data_->outline.get() : nullptr;
    }
    /// Number of storages of that catalog.
    [[nodiscard]] std::uint32_t storage_count() const noexcept { return data_ ? data_->storage_count : 0; }
    /// The steps that read each storage.
    [[nodiscard]] UseOrder use_order() const { return use_order(size()); }
    /// The steps that read each storage in a pass that ends after `steps` steps. Precondition: steps <= size().
    [[nodiscard]] UseOrder use_order(std::uint32_t steps) const;

    /// A copy of this schedule with these durations, one for each step; none: not known. Error invalid_argument: not one for each step, a
    /// negative one, or none for a step without weights.
    [[nodiscard]] Result<Schedule> try_with_compute(
        std::span<const std::optional<std::chrono::nanoseconds>> compute) const;
    /// As above, with a list.
    [[nodiscard]] Result<Schedule> try_with_compute(
        std::initializer_list<std::optional<std::chrono::nanoseconds>> compute) const {
        return try_with_compute(std::span{compute.begin(), compute.size()});
    }
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] Schedule with_compute(std::span<const std::optional<std::chrono::nanoseconds>> compute) const {
        return unwrap(try_with_compute(compute));
    }
    [[nodiscard]] Schedule with_compute(std::initializer_list<std::optional<std::chrono::nanoseconds>> compute) const {
        return unwrap(try_with_compute(compute));
    }
    /// @}
#endif

    /// Whether the contents are equal.
    friend bool operator==(const Schedule& a, const Schedule& b) noexcept {
        return a.data_ == b.data_ || (a.data_ && b.data_ && a.data_->catalog_hash == b.data_->catalog_hash &&
                                      content_of(*a.data_) == content_of(*b.data_));
    }

private:
    friend class ScheduleBuilder;

    /// What a caller declares.
    struct Content {
        Cycle cycle = Cycle::cyclic;
        std::vector<std::uint64_t> weight_offsets{0};  // steps + 1, into weights
        std::vector<WeightId> weights;                 // of all steps, one after the other
        std::vector<std::int64_t> compute_ns;          // of each step; -1: unknown
        std::vector<std::uint64_t> name_offsets{0};    // steps + 1, into names
        std::vector<char> names;                       // of all steps, one after the other
        friend bool operator==(const Content&, const Content&) = default;
    };
    struct Data : Content {
        std::uint64_t catalog_hash = 0;
        std::shared_ptr<const CatalogOutline> outline;
        std::uint32_t storage_count = 0;
        std::vector<std::uint64_t> storage_offsets;  // steps + 1, into storages
        std::vector<StorageId> storages;             // of all steps, one after the other
        std::vector<Step> steps;                     // views into the other members
    };
    [[nodiscard]] static const Content& content_of(const Data& data) noexcept { return data; }

    Schedule(std::uint64_t catalog_hash, std::shared_ptr<const CatalogOutline> outline, std::uint32_t storage_count,
             std::vector<std::uint64_t> storage_offsets, std::vector<StorageId> storages, Content content);

    template <class T>
    [[nodiscard]] static std::span<const T> slice(const std::vector<T>& values,
                                                  const std::vector<std::uint64_t>& offsets, std::size_t i) noexcept {
        const auto first = static_cast<std::size_t>(offsets[i]);
        return {values.data() + first, static_cast<std::size_t>(offsets[i + 1]) - first};
    }
    /// Precondition: the ids are the catalog's, none twice in a step.
    [[nodiscard]] static Schedule make(const Catalog& catalog, Content content);

    std::shared_ptr<const Data> data_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/schedule.ipp"
#endif
