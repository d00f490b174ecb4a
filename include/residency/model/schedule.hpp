// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/checked.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What follows the last step of a schedule.
enum class Cycle : std::uint8_t {
    cyclic,    ///< the first one again
    one_shot,  ///< nothing
};

/// One step of a pass as a run recorded it.
struct StepRecord {
    std::vector<WeightId> weights;
    std::optional<std::chrono::nanoseconds> compute;
    std::string name;
};

/// Bytes, and the step that needs them (UINT32_MAX if none does).
struct StepBytes {
    std::uint64_t bytes = 0;
    std::uint32_t step = UINT32_MAX;
};

/// The steps of a pass in order: a hint for planning, never a source of identity. An immutable handle that is cheap to
/// copy; a default-constructed one has no steps. Two are equal if their contents are.
class Schedule {
public:
    /// What must be there together for one launch or group of launches. Views into the schedule.
    struct Step {
        std::span<const WeightId> weights;    ///< without repetition, as declared
        std::span<const StorageId> storages;  ///< of those weights, without repetition, in order of first mention
        std::optional<std::chrono::nanoseconds> compute;  ///< estimated duration on the device
        std::string_view name;                            ///< may be empty
        std::uint32_t position = 0;                       ///< in the schedule
    };

    static constexpr std::uint32_t max_steps = std::uint32_t{1} << 28;
    static constexpr std::uint32_t version = 1;  ///< of the saved form

    Schedule() noexcept = default;

    /// What a run recorded, as a schedule. An error, naming the step, where the catalog lacks a weight.
    [[nodiscard]] static Result<Schedule> try_recorded(const Catalog& catalog, std::span<const StepRecord> records,
                                                       Cycle cycle = Cycle::cyclic);
    /// A saved schedule. `source` names the bytes in messages. An error with the place where they are malformed, a
    /// mismatch where it was saved for another catalog.
    [[nodiscard]] static Result<Schedule> try_load(std::span<const std::byte> bytes, const Catalog& catalog,
                                                   std::string source = "schedule");
    /// The same from a file. Blocks.
    [[nodiscard]] static Result<Schedule> try_load_file(const std::string& path, const Catalog& catalog);
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] static Schedule recorded(const Catalog& catalog, std::span<const StepRecord> records,
                                           Cycle cycle = Cycle::cyclic) {
        return unwrap(try_recorded(catalog, records, cycle));
    }
    [[nodiscard]] static Schedule load(std::span<const std::byte> bytes, const Catalog& catalog) {
        return unwrap(try_load(bytes, catalog));
    }
    [[nodiscard]] static Schedule load_file(const std::string& path, const Catalog& catalog) {
        return unwrap(try_load_file(path, catalog));
    }
#endif

    [[nodiscard]] std::span<const Step> steps() const noexcept {
        return data_ ? std::span<const Step>{data_->steps} : std::span<const Step>{};
    }
    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(steps().size()); }
    [[nodiscard]] bool empty() const noexcept { return data_ == nullptr; }
    [[nodiscard]] const Step* begin() const noexcept { return steps().data(); }
    [[nodiscard]] const Step* end() const noexcept { return steps().data() + steps().size(); }
    /// Precondition: position < size().
    [[nodiscard]] const Step& operator[](std::uint32_t position) const noexcept {
        RESIDENCY_ASSERT(position < size(), "pass the position of a step");
        return data_->steps[position];
    }
    /// Precondition: position < size().
    [[nodiscard]] std::span<const StorageId> storages(std::uint32_t position) const noexcept {
        return (*this)[position].storages;
    }

    [[nodiscard]] Cycle cycle() const noexcept { return data_ ? data_->cycle : Cycle::cyclic; }
    [[nodiscard]] bool is_cyclic() const noexcept { return cycle() == Cycle::cyclic; }
    /// Catalog::hash of the catalog that it belongs to.
    [[nodiscard]] std::uint64_t catalog_hash() const noexcept { return data_ ? data_->catalog_hash : 0; }
    /// Storages of that catalog.
    [[nodiscard]] std::uint32_t storage_count() const noexcept { return data_ ? data_->storage_count : 0; }

    /// The same steps with these durations. An error where the count differs or one is negative.
    [[nodiscard]] Result<Schedule> try_with_compute(std::span<const std::chrono::nanoseconds> compute) const;
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] Schedule with_compute(std::span<const std::chrono::nanoseconds> compute) const {
        return unwrap(try_with_compute(compute));
    }
#endif

    /// The largest sum over the streamed storages of one step, each rounded by `round_bytes(bytes)`: with the
    /// residents, the floor. UINT64_MAX where a sum does not fit. Precondition: the schedule belongs to the catalog.
    template <class Rounding>
        requires std::is_invocable_r_v<std::uint64_t, Rounding&, std::uint64_t>
    [[nodiscard]] StepBytes largest_step_bytes(const Catalog& catalog, Rounding round_bytes) const {
        RESIDENCY_ASSERT(empty() || catalog.hash() == catalog_hash(),
                         "pass the catalog that the schedule was made for");
        StepBytes largest;
        for (const Step& step : steps()) {
            std::uint64_t sum = 0;
            for (const StorageId id : step.storages) {
                const Storage& storage = catalog.storage(id);
                if (storage.placement != Placement::streamed || storage.bytes == 0) { continue; }
                sum = detail::saturating_add(sum, round_bytes(storage.bytes));
            }
            if (sum > largest.bytes) { largest = {sum, step.position}; }
        }
        return largest;
    }

    /// The saved form: container.hpp's, kind schedule. Precondition: not empty().
    [[nodiscard]] std::vector<std::byte> save() const;
    /// Writes it to a file, whole or not at all. Blocks.
    [[nodiscard]] Status try_save_file(const std::string& path) const;
#if RESIDENCY_EXCEPTIONS
    void save_file(const std::string& path) const { unwrap(try_save_file(path)); }
#endif

    friend bool operator==(const Schedule& a, const Schedule& b) noexcept {
        return a.data_ == b.data_ || (a.data_ && b.data_ && a.data_->catalog_hash == b.data_->catalog_hash &&
                                      content_of(*a.data_) == content_of(*b.data_));
    }

private:
    friend class ScheduleBuilder;

    /// What is declared and saved.
    struct Content {
        Cycle cycle = Cycle::cyclic;
        std::vector<std::uint64_t> weight_offsets{0};  // steps + 1, into weights
        std::vector<WeightId> weights;
        std::vector<std::int64_t> compute_ns;        // -1: unknown
        std::vector<std::uint64_t> name_offsets{0};  // steps + 1, into names
        std::vector<char> names;
        friend bool operator==(const Content&, const Content&) = default;
    };
    struct Data : Content {
        std::uint64_t catalog_hash = 0;
        std::uint32_t storage_count = 0;
        std::vector<std::uint64_t> storage_offsets;  // steps + 1, into storages
        std::vector<StorageId> storages;
        std::vector<Step> steps;
    };
    [[nodiscard]] static const Content& content_of(const Data& data) noexcept { return data; }

    Schedule(std::uint64_t catalog_hash, std::uint32_t storage_count, std::vector<std::uint64_t> storage_offsets,
             std::vector<StorageId> storages, Content content);

    template <class T>
    [[nodiscard]] static std::span<const T> slice(const std::vector<T>& values,
                                                  const std::vector<std::uint64_t>& offsets, std::size_t i) noexcept {
        return std::span<const T>{values}.subspan(static_cast<std::size_t>(offsets[i]),
                                                  static_cast<std::size_t>(offsets[i + 1] - offsets[i]));
    }
    /// Precondition: the ids are the catalog's, none twice in a step.
    [[nodiscard]] static Schedule make(const Catalog& catalog, Content content);

    std::shared_ptr<const Data> data_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/model/impl/schedule.ipp"
#endif
