// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/codec/task.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/core/planned/plan_factory.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/packed/bound.hpp"
#include "residency/packed/layout.hpp"
#include "residency/packed/measure_unpacker.hpp"
#include "residency/packed/packer.hpp"
#include "residency/packed/pool.hpp"
#include "residency/packed/stored_catalog.hpp"
#include "residency/packed/unpack_memory.hpp"
#include "residency/packed/unpacking_decider.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides beforehand, for weights that are packed in host memory. Of each storage the device holds its raw bytes, its packed bytes, or
/// nothing: packed::choose_unpacked() decides which stay unpacked, and a PlannedDecider plans the packed bytes of the others, in which the
/// time of unpacking is a part of a step. A lease of a weight that does not stay unpacks it first, on the lease's own stream, to a place
/// that it shares with weights of other steps.
///
/// Storages whose kernels read packed bytes as they are (a form that the unpacker does not take) are never unpacked.
template <VirtualMemoryDevice D>
class PackedDecider final : public UnpackingDecider<D, PlannedDecider<D>>, public GraphDecider {
    using Inner = PlannedDecider<D>;
    using Shared = UnpackingDecider<D, Inner>;

public:
    struct Config {
        /// Unpacks on the device; the caller's, and outlives the Residency. Null: fine where no weight is packed.
        const Unpacker<D>* unpacker = nullptr;
        plan::Options options{};
        /// See PlannedDecider::Config. What a lease unpacks shares its place with no other lease on this number of consecutive steps.
        std::uint32_t leases_at_once = 1;
        std::uint32_t storages_at_once = 0;               ///< see PlannedDecider::Config
        std::optional<plan::Link> link{};                 ///< unset: measured when the Residency is made
        std::optional<double> memory_bytes_per_second{};  ///< unset: measured when the Residency is made
        std::optional<packed::UnpackRate> unpack_rate{};  ///< unset: measured when the Residency is made
        typename pool::Packed<D>::Config pool{};
    };

    explicit PackedDecider(Config config)
        : config_{std::move(config)}, sizes_{std::make_unique<Inner>(inner_config())} {
        inner_ = std::make_unique<Inner>(inner_config());
        memory_.set_stock(config_.pool.stock);
    }

    [[nodiscard]] Status prepare(const D& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Requirements& requirements) override;
    /// Measures the link, the device's memory and the unpacker if they are not known. Blocks.
    [[nodiscard]] Status open(const DeciderContext<D>& context, const pool::Requirements& requirements,
                              std::uint64_t cap_bytes) override;
    /// Under an open lease, what stays unpacked does not change.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> first_steps, StepIndex now,
                                   std::uint64_t cap_bytes) override {
        context_.order = order;
        context_.first_steps = first_steps;
        is_consistent_ = false;
        return change(cap_bytes, is_leased(),
                      [&](std::uint64_t rest) { return inner_->set_order(order, first_steps, now, rest); });
    }
    /// Error wrong_state: a lease is open, and the budget changes what stays unpacked.
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override {
        auto changed = change(cap_bytes, false, [&](std::uint64_t rest) { return inner_->set_cap(rest, now); });
        if (!changed && !is_consistent_) { static_cast<void>(repair().has_value()); }
        return changed;
    }
    [[nodiscard]] Status repair() override {
        auto repaired = Shared::repair();
        return repaired ? write_table() : std::move(repaired);
    }
    [[nodiscard]] Status resume(std::uint64_t cap_bytes, StepIndex now) override {
        const bool is_same = is_consistent_;
        if (is_same && cap_bytes == cap_bytes_) {
            auto resumed = this->put_in_force(memory_.layout(), cap_bytes,
                                              [&](std::uint64_t rest) { return inner_->resume(rest, now); });
            // Where this fails, the next lease does it.
            if (resumed) { static_cast<void>(memory_.write_table(inner_->address_generation()).has_value()); }
            return resumed;
        }
        return change(cap_bytes, false, [&](std::uint64_t rest) {
            return is_same ? inner_->resume(rest, now)
                           : inner_->set_order(context_.order, context_.first_steps, now, rest);
        });
    }

    [[nodiscard]] Status ensure(std::span<const StorageId> wanted, const AccessPoint& access,
                                LeaseToken& token) override;

    /// Seconds that no choice with any plan of copies beats under the cap in force: packed::exact_bound(). Precondition: it was opened.
    [[nodiscard]] double exact_bound() const {
        return stored_.unpacks ? packed::exact_bound(unpack_problem(*context_.device), cap_bytes_)
                               : plan().bound_seconds();
    }
    [[nodiscard]] bool correct_link(double bytes_per_second) noexcept override {
        if (!inner_->correct_link(bytes_per_second)) { return false; }
        sizes_->set_measured_link(inner_->problem().link);
        return true;
    }
    [[nodiscard]] bool lose_links(double share, double least) noexcept override {
        if (!inner_->lose_links(share, least)) { return false; }
        sizes_->set_measured_link(inner_->problem().link);
        return true;
    }
    /// The times of the kernels alone: unpacking runs before what is timed.
    [[nodiscard]] std::span<const double> planned_step_seconds() const noexcept override { return kernel_seconds_; }
    [[nodiscard]] const pool::ChunkStock<D>* stock() const noexcept { return inner_->stock(); }
    [[nodiscard]] std::unique_ptr<MemorySource> stock_memory(D& device) const override {
        return inner_->stock_memory(device);
    }
    [[nodiscard]] std::optional<std::uint64_t> stock_free_bytes() const override { return inner_->stock_free_bytes(); }
    /// The plan of the bytes that travel.
    [[nodiscard]] const plan::Plan& plan() const noexcept { return inner_->plan(); }
    [[nodiscard]] const plan::Problem& problem() const noexcept { return inner_->problem(); }
    [[nodiscard]] std::uint64_t address_generation() const noexcept {
        return inner_->address_generation() + memory_.generation();
    }
    /// As PlannedDecider says; of the steps of a range, one at most unpacks to places that other steps use too.
    [[nodiscard]] std::span<const StepRange> ranges() const;
    /// Which weights stay unpacked, and where the others are unpacked.
    [[nodiscard]] const packed::UnpackLayout& layout() const noexcept { return memory_.layout(); }

    [[nodiscard]] GraphDecider* graphs() noexcept override { return this; }
    [[nodiscard]] const GraphDecider* graphs() const noexcept override { return this; }
    [[nodiscard]] Status begin_capture() override;
    [[nodiscard]] Status end_capture(bool is_recorded) override {
        memory_.forget_unpacked();
        memory_.forget_lost();
        return inner_->end_capture(is_recorded);
    }
    [[nodiscard]] Status before_graph() override { return inner_->before_graph(); }
    void graph_launched() override {
        memory_.forget_unpacked();
        inner_->graph_launched();
    }
    [[nodiscard]] std::uint64_t mapping_generation() const noexcept override {
        return inner_->mapping_generation() + memory_.generation();
    }

private:
    using Shared::cap_bytes_;
    using Shared::catalog_;
    using Shared::context_;
    using Shared::inner_;  // prepared with what the layout leaves
    using Shared::is_consistent_;
    using Shared::limits_;
    using Shared::memory_;
    using Shared::stored_;

    [[nodiscard]] typename Inner::Config inner_config() const {
        typename Inner::Config config;
        config.options = config_.options;
        config.leases_at_once = config_.leases_at_once;
        config.storages_at_once = config_.storages_at_once;
        config.link = config_.link;
        config.memory_bytes_per_second = config_.memory_bytes_per_second;
        config.pool = config_.pool;
        return config;
    }
    /// The steps of `schedule` over the stored catalog, whose storages are what travels.
    [[nodiscard]] Result<Schedule> stored_schedule(const Schedule& schedule) const;
    /// The problem of unpacking for the schedule that was prepared last.
    [[nodiscard]] packed::UnpackProblem unpack_problem(const D& device) const;
    /// Gives the inner decider what a choice leaves to plan.
    [[nodiscard]] Status prepare_rest(const packed::UnpackChoice& choice);
    [[nodiscard]] bool is_leased() const noexcept {
        for (std::size_t s = 0; s < stored_.forms.size(); ++s) {
            const Storage& storage = catalog_.storages()[s];
            if (storage.bytes > 0 && storage.placement != Placement::host && context_.states[s].leases > 0) {
                return true;
            }
        }
        return false;
    }
    /// The layout for a budget. `keeps_stays`: with what stays unpacked now.
    [[nodiscard]] Result<packed::UnpackChoice> choose(std::uint64_t cap_bytes, bool keeps_stays);
    /// The best choice of all, which takes plans to find. One that was made is known, so that a budget that comes again takes none.
    [[nodiscard]] Result<packed::UnpackChoice> choose_freely(packed::UnpackProblem problem, std::uint64_t cap_bytes);
    /// The tasks know today's addresses. Blocks where they did not.
    [[nodiscard]] Status write_table() {
        if (memory_.table_generation() == inner_->address_generation()) { return {}; }
        if (auto drained = context_.copy_scheduler->drain_device(); !drained) { return drained; }
        return memory_.write_table(inner_->address_generation());
    }
    /// Another layout and another cap of the inner decider, by `apply(rest_bytes)`. On failure nothing has changed, or !is_consistent_. Blocks.
    /// Precondition: the streams are drained.
    template <class Apply>
    [[nodiscard]] Status change(std::uint64_t cap_bytes, bool keeps_stays, Apply&& apply);
    /// On failure nothing is held, if the device takes it back.
    [[nodiscard]] Status restore() override;
    /// Error: two of these storages are unpacked to the same place.
    [[nodiscard]] Status check_places(std::span<const StorageId> wanted, const AccessPoint& access);

    Config config_;
    std::unique_ptr<Inner> sizes_;  // never open: prepared with everything packed, for its problem and its limits
    Schedule given_;                // prepared last
    Schedule stored_schedule_;      // the same of what travels, with the times of the kernels
    std::vector<double> kernel_seconds_;
    Schedule rest_schedule_;                 // prepared for the inner decider
    mutable std::vector<StepRange> ranges_;  // empty: not asked for yet

    static constexpr std::size_t most_choices = 8;
    struct KnownChoice {
        packed::UnpackProblem problem;
        std::uint64_t cap_bytes = 0;
        packed::UnpackChoice choice;
    };
    std::vector<KnownChoice> known_choices_;  // at most so many: the one that was wanted last at the end
};

template <VirtualMemoryDevice D>
struct PlannedDeciderOf<pool::Packed<D>> {
    using type = PackedDecider<D>;
};

template <VirtualMemoryDevice D>
Result<Schedule> PackedDecider<D>::stored_schedule(const Schedule& schedule) const {
    const double rate = config_.memory_bytes_per_second.value_or(plan::default_memory_bytes_per_second);
    ScheduleBuilder builder{stored_.catalog};
    std::vector<WeightId> weights;
    for (const Schedule::Step& step : schedule) {
        weights.clear();
        std::uint64_t bytes = 0;
        for (const StorageId id : step.storages) {
            weights.push_back(WeightId{index(id)});
            const Storage& storage = catalog_.storage(id);
            const bool is_read_packed = stored_.forms[index(id)].parts != nullptr && !stored_.forms[index(id)].unpacks;
            if (storage.placement != Placement::host) {
                bytes += is_read_packed ? stored_.catalog.storage(id).bytes : storage.bytes;
            }
        }
        builder.step(
            std::span<const WeightId>{weights},
            step.compute.value_or(std::chrono::nanoseconds{std::llround(static_cast<double>(bytes) / rate * 1e9)}),
            step.name);
    }
    return builder.try_build(schedule.cycle());
}

template <VirtualMemoryDevice D>
packed::UnpackProblem PackedDecider<D>::unpack_problem(const D& device) const {
    packed::UnpackProblem problem;
    problem.travels = sizes_->problem();
    problem.travels.compute_seconds = kernel_seconds_;
    problem.travels.image_offsets.clear();  // those of an image of everything packed
    problem.keeps_image = stored_.has_written;
    problem.leases_at_once = config_.leases_at_once;
    problem.storages_at_once = config_.storages_at_once;
    const packed::UnpackRate rate = config_.unpack_rate.value_or(packed::UnpackRate{});
    problem.unpacked_bytes_per_second = rate.bytes_per_second;
    problem.launch_seconds = rate.launch_seconds;
    const auto* const stock = config_.pool.stock;
    problem.granule_bytes = stock != nullptr ? stock->chunk_bytes() : device.allocation_granularity();
    for (std::size_t s = 0; s < stored_.forms.size(); ++s) {
        const Storage& storage = catalog_.storages()[s];
        problem.unpacked_bytes.push_back(stored_.forms[s].unpacks ? stored_.forms[s].raw_bytes : 0);
        problem.must_stay.push_back(storage.placement == Placement::resident);
        if (stored_.forms[s].unpacks) {
            problem.table_bytes += stored_.forms[s].parts->size() * sizeof(codec::UnpackTask);
        }
    }
    problem.step_offsets.push_back(0);
    for (const Schedule::Step& step : stored_schedule_) {
        for (const StorageId id : step.storages) { problem.step_storages.push_back(index(id)); }
        problem.step_offsets.push_back(static_cast<std::uint32_t>(problem.step_storages.size()));
    }
    if (stored_schedule_.empty()) { problem.step_offsets.push_back(0); }
    return problem;
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::prepare(const D& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Requirements& requirements) {
    if (config_.unpack_rate && context_.device == nullptr) {  // not opened yet: it is the caller's
        auto plausible = packed::check_given(*config_.unpack_rate, "policies.unpack_rate");
        if (!plausible) { return plausible; }
    }
    if (auto stored = this->store(catalog, config_.unpacker, packed::StoredIn::image); !stored) {
        return stored.error();
    }
    given_ = schedule;
    auto stored = stored_schedule(schedule);
    if (!stored) { return stored.error(); }
    stored_schedule_ = std::move(*stored);
    kernel_seconds_.clear();
    for (const Schedule::Step& step : stored_schedule_) {
        kernel_seconds_.push_back(std::chrono::duration<double>(*step.compute).count());
    }
    if (stored_schedule_.empty()) { kernel_seconds_.push_back(0); }
    if (auto prepared = sizes_->prepare(device, stored_.catalog, stored_schedule_, requirements); !prepared) {
        return prepared;
    }
    limits_ = sizes_->limits();
    if (!stored_.unpacks) { return {}; }
    const packed::UnpackProblem problem = unpack_problem(device);
    const auto floor = packed::unpack_floor(problem);
    if (!floor) { return floor.error(); }
    limits_.floor_bytes = *floor;
    const auto everything = packed::unpack_everything(problem);
    if (!everything) { return everything.error(); }
    const std::uint64_t unread_bytes = limits_.ceiling_bytes - limits_.resident_from_bytes;
    limits_.resident_from_bytes = *everything;
    limits_.ceiling_bytes = *everything + unread_bytes;
    return {};
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::prepare_rest(const packed::UnpackChoice& choice) {
    if (!stored_.unpacks) { return inner_->prepare(*context_.device, stored_.catalog, stored_schedule_, {}); }
    std::vector<WeightId> away;
    for (std::uint32_t s = 0; s < choice.layout.stays.size(); ++s) {
        if (choice.layout.stays[s]) { away.push_back(WeightId{s}); }
    }
    auto catalog = stored_.catalog.try_with_placement(std::span<const WeightId>{away}, Placement::host);
    if (!catalog) { return catalog.error(); }
    std::vector<std::optional<std::chrono::nanoseconds>> compute;
    compute.reserve(stored_schedule_.size());
    for (std::uint32_t i = 0; i < stored_schedule_.size(); ++i) {
        compute.push_back(std::chrono::nanoseconds{std::llround(choice.rest.compute(i) * 1e9)});
    }
    auto schedule = stored_schedule_.try_with_compute(compute);
    if (!schedule) { return schedule.error(); }
    rest_schedule_ = std::move(*schedule);
    return inner_->prepare(*context_.device, *catalog, rest_schedule_, {});
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::open(const DeciderContext<D>& context, const pool::Requirements& requirements,
                              std::uint64_t cap_bytes) {
    context_ = context;
    context_.catalog = stored_.catalog;
    std::optional<plan::Link> measured;
    if (!config_.link) {
        auto link = context.link ? Result<plan::Link>{*context.link}
                                 : core::try_measure_link(*context.device, cap_bytes, *context.memory);
        if (!link) { return link.error(); }
        measured = *link;
    }
    if (!config_.memory_bytes_per_second) {
        auto rate = core::try_measure_memory(*context.device, cap_bytes, *context.memory);
        if (!rate) { return rate.error(); }
        config_.memory_bytes_per_second = *rate;
    }
    if (stored_.unpacks && !config_.unpack_rate) {
        auto rate =
            packed::try_measure_unpacker(*context.device, *config_.unpacker, stored_.forms, cap_bytes, *context.memory);
        if (!rate) { return rate.error(); }
        config_.unpack_rate = *rate;
    }
    // Again, with what was measured.
    sizes_ = std::make_unique<Inner>(inner_config());
    inner_ = std::make_unique<Inner>(inner_config());
    if (measured) {
        for (Inner* each : {sizes_.get(), inner_.get()}) { each->set_measured_link(*measured); }
    }
    if (auto prepared = prepare(*context.device, catalog_, given_, requirements); !prepared) { return prepared; }
    auto opened =
        change(cap_bytes, false, [&](std::uint64_t rest) { return inner_->open(context_, requirements, rest); });
    // What neighbours hold comes faster than what was measured, so that other weights are to stay unpacked.
    if (!opened || !measured || sizes_->problem().link == *measured) { return opened; }
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
    return set_cap(cap_bytes, 0);
}

template <VirtualMemoryDevice D>
Result<packed::UnpackChoice> PackedDecider<D>::choose(std::uint64_t cap_bytes, bool keeps_stays) {
    if (!stored_.unpacks) { return packed::UnpackChoice{}; }
    packed::UnpackProblem problem = unpack_problem(*context_.device);
    // What kernels wrote lies in an image whose storages keep their sizes.
    const bool is_written = stored_.has_written && inner_->memory_use().held_bytes > 0;
    if (!keeps_stays && !is_written) { return choose_freely(std::move(problem), cap_bytes); }
    if (is_written) { problem.travels.image_offsets = inner_->plan().data().storage_offsets; }
    auto kept = packed::keep_unpacked(problem, memory_.layout().stays, cap_bytes);
    if (kept || !is_written || kept.error().kind() != ErrorKind::budget) { return kept; }
    return Error{ErrorKind::budget,
                 kept.error().message() +
                     " with the weights that stay unpacked now, which do not change while the device "
                     "holds what kernels wrote: suspend(), set the budget, and resume()"};
}

template <VirtualMemoryDevice D>
Result<packed::UnpackChoice> PackedDecider<D>::choose_freely(packed::UnpackProblem problem, std::uint64_t cap_bytes) {
    for (auto known = known_choices_.begin(); known != known_choices_.end(); ++known) {
        if (known->cap_bytes != cap_bytes || !(known->problem == problem)) { continue; }
        std::rotate(known, known + 1, known_choices_.end());
        return known_choices_.back().choice;
    }
    auto choice = packed::choose_unpacked(problem, cap_bytes, config_.options);
    if (!choice) { return choice; }
    ++context_.counters->plans_made;
    if (known_choices_.size() == most_choices) { known_choices_.erase(known_choices_.begin()); }
    known_choices_.push_back({std::move(problem), cap_bytes, *choice});
    return choice;
}

template <VirtualMemoryDevice D>
template <class Apply>
Status PackedDecider<D>::change(std::uint64_t cap_bytes, bool keeps_stays, Apply&& apply) {
    auto choice = choose(cap_bytes, keeps_stays);
    if (!choice) { return choice.error(); }
    if (!(choice->layout == memory_.layout()) && is_leased()) {
        return Error{ErrorKind::wrong_state,
                     "a lease is open, and another budget unpacks weights elsewhere: end the lease first"};
    }
    auto changed = this->put_in_force(choice->layout, cap_bytes, [&](std::uint64_t rest_bytes) {
        is_consistent_ = false;
        ranges_.clear();
        auto prepared = prepare_rest(*choice);
        return prepared ? apply(rest_bytes) : std::move(prepared);
    });
    if (!changed) { return changed; }
    if (!(sizes_->problem().link == problem().link)) { sizes_->set_measured_link(problem().link); }
    // Where this fails, the next lease does it.
    static_cast<void>(memory_.write_table(inner_->address_generation()).has_value());
    return {};
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::restore() {
    auto restored = Shared::restore();
    if (!restored && !is_consistent_ && !stored_.has_written && !is_leased()) {
        static_cast<void>(this->suspend().has_value());
        static_cast<void>(memory_.give_back().has_value());
    }
    return restored;
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::begin_capture() {
    if (auto repaired = repair(); !repaired) { return repaired; }
    ranges_.clear();
    if (auto begun = inner_->begin_capture(); !begun) { return begun; }
    memory_.forget_unpacked();
    memory_.forget_lost();
    auto written = memory_.write_table(inner_->address_generation());
    if (!written) { static_cast<void>(inner_->end_capture(false).has_value()); }
    return written;
}

template <VirtualMemoryDevice D>
std::span<const StepRange> PackedDecider<D>::ranges() const {
    const std::span<const StepRange> whole = inner_->ranges();
    if (!memory_.unpacks()) { return whole; }
    if (!ranges_.empty()) { return ranges_; }
    for (const StepRange& range : whole) {
        StepRange next{range.first, range.first};
        bool has_shared = false;
        for (std::uint32_t step = range.first; step < range.last; ++step) {
            const bool is_shared = memory_.has_overlapping_place(stored_schedule_.storages(step));
            const bool is_full = is_shared && has_shared;
            if (next.last > next.first && (is_full || config_.leases_at_once > 1)) {
                ranges_.push_back(next);
                next.first = step;
                has_shared = false;
            }
            next.last = step + 1;
            has_shared = has_shared || is_shared;
        }
        ranges_.push_back(next);
    }
    return ranges_;
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::check_places(std::span<const StorageId> wanted, const AccessPoint& access) {
    const auto [one, other] = memory_.find_clash(wanted);
    if (one == no_storage) { return {}; }
    const std::string message =
        catalog_.describe(one) + " and " + catalog_.describe(other) + " are unpacked to the same place";
    if (!access.is_range()) {
        return Error{ErrorKind::unsupported, message +
                                                 ", since no step of the schedule reads both: acquire one after the "
                                                 "other, or let a step read both"};
    }
    std::vector<StorageId> fitting;
    std::uint32_t last = access.first_step();
    for (; last <= access.step; ++last) {
        for (const StorageId id : stored_schedule_.storages(last)) {
            if (std::find(fitting.begin(), fitting.end(), id) == fitting.end()) { fitting.push_back(id); }
        }
        if (memory_.find_clash(fitting).first != no_storage) { break; }
    }
    return Error{ErrorKind::budget,
                 message + "; steps [" + std::to_string(access.first_step()) + ", " + std::to_string(last) +
                     ") would fit; Residency::ranges() says into which ranges a pass falls",
                 BudgetNumbers{memory_.unpacked_bytes(wanted), cap_bytes_, 0, limits_.floor_bytes, last}};
}

template <VirtualMemoryDevice D>
Status PackedDecider<D>::ensure(std::span<const StorageId> wanted, const AccessPoint& access, LeaseToken& token) {
    if (this->needs_repair()) {
        if (auto repaired = repair(); !repaired) { return repaired; }
    }
    if (stored_.unpacks) {
        for (const StorageId id : wanted) {
            if (!stored_.forms[index(id)].unpacks || memory_.layout().offset[index(id)] != packed::UnpackLayout::none) {
                continue;
            }
            return Error{ErrorKind::unsupported,
                         "no step of the schedule reads " + catalog_.describe(id) +
                             ", which is packed: there is no place to unpack it; let a step of the schedule read it"};
        }
        if (!access.names_steps || access.is_range()) {
            if (auto free = check_places(wanted, access); !free) { return free; }
        }
    }
    if (auto there = inner_->ensure(wanted, access, token); !there) { return there; }
    auto written = write_table();
    if (!written) { inner_->forget(token); }
    return written;
}

}}}  // namespace residency::RESIDENCY_ABI::core
