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
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/core/planned/chunk_store.hpp"
#include "residency/core/planned/plan_factory.hpp"
#include "residency/core/planned/plan_player.hpp"
#include "residency/core/planned/stock_memory.hpp"
#include "residency/device/device.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/options.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/step_ranges.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The decider of a planned composition, as `type`, by its pool.
template <class Pool>
struct PlannedDeciderOf;

/// Decides beforehand: while accesses follow the schedule, memory holds what the plan in force says. Here is what sessions call between
/// passes: PlanFactory makes plans, and ChunkStore maps their images. Within passes, PlanPlayer replays the plan, and ChunkMissHandler
/// brings what the plan has not brought.
///
/// Divergence costs time, never correctness. Skipped steps cost the bytes that they would have needed: the plan goes on. A lease out of
/// order (of a step that has ended, of an undeclared set, or of a step whose calls wait for open leases) brings what is absent itself;
/// then the plan's calls are verified for as many calls as a pass has: each brings only absent chunks, behind all recorded uses. Two
/// chunks of one slot that are needed together: one of them is mapped elsewhere, and the host waits for that.
///
/// A one-shot plan starts again with each pass, on what the pass before left: all passes but the first are verified. Nothing is brought
/// for a pass that has not begun.
template <VirtualMemoryDevice D>
class PlannedDecider final : public PlanPlayer<D> {
    using Player = PlanPlayer<D>;

public:
    struct Config {
        plan::Options options{};
        /// The number of leases that are open together, on consecutive steps of one pass: 2 if the next step is acquired before the last
        /// lease ends. The floor is the largest sum of this number of consecutive steps. More leases work if there is room, but wait for
        /// the device.
        std::uint32_t leases_at_once = 1;
        /// The number of streamed storages that one acquisition asks for where no step of the schedule says it. The floor holds this number
        /// of the largest storages together. 0: the steps alone set the floor.
        std::uint32_t storages_at_once = 0;
        std::optional<plan::Link> link{};  ///< unset: measured when the Residency is made
        /// The rate at which kernels read device memory; unset: measured when the Residency is made. A step for which the schedule
        /// declares no compute time is assumed to take its bytes over this rate.
        std::optional<double> memory_bytes_per_second{};
        std::optional<plan::Plan> plan{};  ///< used instead of making one
        typename pool::Virtual<D>::Config pool{};
    };

    explicit PlannedDecider(Config config)
        : Player{std::move(config.pool)},
          plan_factory_{std::move(config.options),      config.leases_at_once,  config.link,
                        config.memory_bytes_per_second, std::move(config.plan), config.storages_at_once} {}

    [[nodiscard]] Status prepare(const D& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Requirements&) override {
        schedule_ = schedule;
        return plan_factory_.prepare(catalog, schedule, store_.chunk_bytes(device),
                                     store_.is_held() ? &store_.plan() : nullptr);
    }
    [[nodiscard]] BudgetLimits limits() const noexcept override {
        const plan::ChunkFloor& sizes = plan_factory_.sizes();
        BudgetLimits limits;
        limits.floor_bytes = sizes.floor_bytes;
        limits.floor_step = sizes.step;
        limits.floor_steps = limits.leases_at_once = plan_factory_.leases_at_once();
        limits.floor_storages = sizes.is_at_once ? (std::max)(plan_factory_.storages_at_once(), 1U) : 0;
        limits.resident_from_bytes = sizes.everything_bytes;
        limits.ceiling_bytes = sizes.everything_bytes + sizes.unread_bytes;
        return limits;
    }
    [[nodiscard]] bool holds_residents() const noexcept override { return true; }
    /// Measures the link and the device's memory if they are not known. Blocks.
    [[nodiscard]] Status open(const DeciderContext<D>& context, const pool::Requirements&,
                              std::uint64_t cap_bytes) override;
    /// That of the image of a plan, over the assumed link where none is known.
    [[nodiscard]] Result<std::vector<StorageId>> storage_order(const Catalog& catalog,
                                                               std::uint64_t cap_bytes) override;
    /// Puts a plan for what was prepared last in force, which is made unless it was made before for this budget. Chunks that stay on
    /// their slots keep their bytes.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> first_steps, StepIndex now,
                                   std::uint64_t cap_bytes) override;
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override;
    /// Maps the image again if a failed call left parts of it unmapped. Blocks then.
    [[nodiscard]] Status repair() override;
    [[nodiscard]] Status suspend() override {
        this->forget_ahead();
        Status released;
        if (context_.copy_scheduler != nullptr && context_.copy_scheduler->transport().holds()) {
            has_released_held_ = true;
            released = context_.copy_scheduler->transport().release_held();
        }
        auto suspended = store_.suspend();
        return suspended ? std::move(released) : std::move(suspended);
    }
    /// Under the cap of the plan in force, that plan goes on, with addresses and mapping as they were.
    [[nodiscard]] Status resume(std::uint64_t cap_bytes, StepIndex now) override;
    [[nodiscard]] Result<std::uint64_t> bring_asleep(std::uint64_t most_bytes) override;
    void close() noexcept override { store_.close(); }
    void abandon() noexcept override { store_.abandon(); }

    [[nodiscard]] Status append_present(StorageId id, std::vector<transport::Fetch>& fetches) override {
        if (auto repaired = repair(); !repaired) { return repaired; }
        const std::uint64_t bytes = plan().storage_bytes(index(id));
        if (bytes == 0) { return {}; }
        const std::uint64_t begin = plan().storage_offset(index(id)), chunk_bytes = plan().chunk_bytes();
        for (const std::uint32_t chunk : store_.contents().chunks(id)) {
            if (!store_.table().is_there(chunk)) { continue; }
            store_.contents().append_pieces(plan(), (std::max)(begin, chunk * chunk_bytes),
                                            (std::min)(begin + bytes, (chunk + 1) * chunk_bytes), fetches);
        }
        return {};
    }
    [[nodiscard]] Status bring_residents(std::span<const StorageId> ids) override;
    [[nodiscard]] MemoryUse memory_use() const override {
        const std::uint64_t held = store_.held_bytes();
        return {held, held, store_.peak_held_bytes()};
    }
    [[nodiscard]] std::optional<std::chrono::nanoseconds> bound() const noexcept override {
        return std::chrono::nanoseconds{std::llround(plan().bound_seconds() * 1e9)};
    }
    [[nodiscard]] bool makes_plans() const noexcept override { return !plan_factory_.is_given(); }
    [[nodiscard]] bool correct_link(double bytes_per_second) noexcept override {
        if (context_.copy_scheduler->transport().has_newer_plan() && leased() == no_storage) { return true; }
        constexpr double spread = 1.01;  // of measurements of one link
        plan::Link link = problem().link;
        if (!is_link_measured_ || bytes_per_second <= link.bytes_per_second * spread) { return false; }
        if (plans_for_held()) { held_scale_ *= bytes_per_second / link.bytes_per_second; }
        link.bytes_per_second = bytes_per_second;
        set_measured_link(link);
        return true;
    }
    [[nodiscard]] bool lose_links(double share, double least) noexcept override {
        if (!is_link_measured_) { return false; }
        plan::Link link = problem().link;
        const double all = link.bytes_per_second;
        link.bytes_per_second = std::clamp(least, all * share, all);
        set_measured_link(link);
        return link.bytes_per_second < all;
    }
    /// The plans made from now on are for that link, which correct_link() and lose_links() may correct.
    void set_measured_link(const plan::Link& link) noexcept {
        plan_factory_.set_link(link);
        is_link_measured_ = true;
        known_plans_ = {};  // are for another link
    }
    [[nodiscard]] std::span<const double> planned_step_seconds() const noexcept override {
        return plan_factory_.problem().compute_seconds;
    }
    /// What the plan in force solves.
    [[nodiscard]] const plan::Problem& problem() const noexcept { return plan_factory_.problem(); }
    /// Where memory comes from; null: from the device.
    [[nodiscard]] pool::ChunkStock<D>* stock() const noexcept { return store_.stock(); }
    [[nodiscard]] std::unique_ptr<MemorySource> stock_memory(D& device) const override {
        return stock() != nullptr ? std::make_unique<StockMemory<D>>(device, *stock()) : nullptr;
    }
    [[nodiscard]] std::optional<std::uint64_t> stock_free_bytes() const override {
        return stock() != nullptr ? std::optional{stock()->free_bytes()} : std::nullopt;
    }
    /// The plan in force.
    [[nodiscard]] const plan::Plan& plan() const noexcept { return store_.plan(); }
    /// Counts the changes of addresses: while it is the same, every storage has the same address, leased or not.
    [[nodiscard]] std::uint64_t address_generation() const noexcept { return store_.address_generation(); }
    /// The ranges of steps into which a pass of the plan in force falls (plan::step_ranges). Computed when it is asked for first;
    /// valid until another plan comes into force.
    [[nodiscard]] std::span<const StepRange> ranges() const;

    [[nodiscard]] GraphDecider* graphs() noexcept override { return this; }
    [[nodiscard]] const GraphDecider* graphs() const noexcept override { return this; }
    /// Brings memory to the state at the cut of the plan. A graph holds calls [cut, n) of its pass and [0, cut) of the next one, so that it
    /// begins and ends in this state.
    [[nodiscard]] Status begin_capture() override;
    [[nodiscard]] std::uint64_t mapping_generation() const noexcept override {
        return store_.mapping_generation() + held_generation_;
    }

private:
    using Player::context_;
    using Player::store_;

    struct KnownPlan {
        plan::Plan plan;
        std::shared_ptr<std::vector<StepRange>> ranges;  // of a pass; empty: not asked for yet
    };

    /// Whether plans are for the rate at which the transport brings what it holds, and what it does not.
    [[nodiscard]] bool plans_for_held() const noexcept {
        return is_link_measured_ && context_.copy_scheduler != nullptr && context_.copy_scheduler->transport().holds();
    }
    /// The link at which the transport brings a plan, once it holds what it can of it.
    [[nodiscard]] plan::Link link_of(const plan::Plan& plan) const;
    /// Makes a plan for the link, or, where the transport holds bytes, for the rate at which it brings what the plan brings.
    [[nodiscard]] Result<plan::Plan> make_plan(std::uint64_t cap_bytes, const CurrentPlan& current);
    /// Puts a plan for what was prepared last into force. Where less can be held than it counts on, another one follows. Blocks.
    [[nodiscard]] Status find_and_adopt(std::uint64_t cap_bytes);
    /// The transport holds what it can of the plan in force. Blocks. Precondition: the streams are drained.
    void hold_calls();

    /// A storage with an open lease whose bytes the plan in force places; no_storage: there is none.
    [[nodiscard]] StorageId leased() const {
        for (std::uint32_t i = 0; i < context_.states.size(); ++i) {
            if (context_.states[i].leases > 0 && plan().storage_bytes(i) > 0) { return StorageId{i}; }
        }
        return no_storage;
    }
    /// What the next plan follows.
    [[nodiscard]] CurrentPlan current_plan() const;
    /// A plan for what was prepared last: one that was made before, or a new one.
    [[nodiscard]] Result<KnownPlan> find_or_make(std::uint64_t cap_bytes);
    /// Puts a plan into force that was made for `cap_bytes` device bytes. Streams are drained. Blocks.
    [[nodiscard]] Status adopt(KnownPlan next, std::uint64_t cap_bytes);

    PlanFactory plan_factory_;
    bool is_link_measured_ = false;
    double held_scale_ = 1;              // what copies were seen to reach, over what the transport says
    bool has_released_held_ = false;     // since the plan came into force
    std::uint64_t held_generation_ = 0;  // counts how often graphs lost what they copy from
    Schedule schedule_;                  // prepared last
    PlanCache known_plans_;
    std::uint64_t cap_bytes_ = 0;  // device bytes that the plan in force was made for
    std::shared_ptr<std::vector<StepRange>>
        ranges_;  // of the plan in force, shared with known_plans_; empty: not asked for yet
};

template <VirtualMemoryDevice D>
struct PlannedDeciderOf<pool::Virtual<D>> {
    using type = PlannedDecider<D>;
};

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::open(const DeciderContext<D>& context, const pool::Requirements&, std::uint64_t cap_bytes) {
    context_ = context;
    if (!plan_factory_.knows_link()) {
        auto link = context.link ? Result<plan::Link>{*context.link}
                                 : core::try_measure_link(*context.device, cap_bytes, *context.memory);
        if (!link) { return link.error(); }
        set_measured_link(*link);
    }
    if (!plan_factory_.knows_memory_rate()) {
        auto rate = core::try_measure_memory(*context.device, cap_bytes, *context.memory);
        if (!rate) { return rate.error(); }
        plan_factory_.set_memory_rate(*rate);
    }
    return find_and_adopt(cap_bytes);
}

template <VirtualMemoryDevice D>
Result<std::vector<StorageId>> PlannedDecider<D>::storage_order(const Catalog& catalog, std::uint64_t cap_bytes) {
    if (!plan_factory_.knows_link()) { plan_factory_.set_link({}); }
    if (!plan_factory_.knows_memory_rate()) { plan_factory_.set_memory_rate(plan::default_memory_bytes_per_second); }
    const auto plan = plan_factory_.make(catalog, cap_bytes, {});
    if (!plan) { return plan.error(); }
    std::vector<StorageId> order;
    order.reserve(catalog.storages().size());
    for (std::uint32_t i = 0; i < catalog.storages().size(); ++i) { order.push_back(StorageId{i}); }
    residency::detail::sort(order, [&](StorageId a, StorageId b) {
        const std::uint64_t of_a = plan->storage_offset(index(a)), of_b = plan->storage_offset(index(b));
        return of_a != of_b ? of_a < of_b : index(a) < index(b);
    });
    return order;
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::set_order(const UseOrder* order, std::span<const std::uint32_t> first_steps, StepIndex now,
                                    std::uint64_t cap_bytes) {
    context_.order = order;
    context_.first_steps = first_steps;
    return set_cap(cap_bytes, now);
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::set_cap(std::uint64_t cap_bytes, StepIndex) {
    auto adopted = find_and_adopt(cap_bytes);
    if (!adopted) { static_cast<void>(repair().has_value()); }
    return adopted;
}

template <VirtualMemoryDevice D>
plan::Link PlannedDecider<D>::link_of(const plan::Plan& plan) const {
    std::vector<bool> is_brought(plan.chunks());
    for (const plan::Call& call : plan.calls()) {
        for (const plan::Copy& copy : plan.copies(call)) {
            for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) { is_brought[chunk] = true; }
        }
    }
    const auto chunks = static_cast<std::uint64_t>(std::count(is_brought.begin(), is_brought.end(), true));
    const std::uint64_t bytes = (std::min)(chunks * plan.chunk_bytes(), plan.bytes_per_pass());
    const transport::CallRate reached = context_.copy_scheduler->transport().rate_of(bytes);
    plan::Link link = problem().link;
    link.bytes_per_second = held_scale_ * reached.bytes_per_second;
    if (reached.latency_seconds > 0) { link.latency_seconds = reached.latency_seconds; }
    return link;
}

template <VirtualMemoryDevice D>
Result<plan::Plan> PlannedDecider<D>::make_plan(std::uint64_t cap_bytes, const CurrentPlan& current) {
    constexpr int most_rounds = 4;
    constexpr double tolerance = 0.01;
    auto made = plan_factory_.make(context_.catalog, cap_bytes, current);
    if (!plans_for_held()) { return made; }
    const plan::Link before = problem().link;
    for (int round = 1; made && round < most_rounds; ++round) {
        // A faster link is worth a larger ring, of which as much cannot be held.
        const plan::Link link = link_of(*made);
        if (std::abs(link.bytes_per_second / problem().link.bytes_per_second - 1) <= tolerance) { break; }
        plan_factory_.set_link(link);
        made = plan_factory_.make(context_.catalog, cap_bytes, current);
    }
    if (!made) { plan_factory_.set_link(before); }
    return made;
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::find_and_adopt(std::uint64_t cap_bytes) {
    // Plans for other budgets may count on what others have: room in a neighbour's memory, or a plan of the group.
    if (cap_bytes != cap_bytes_ && (plans_for_held() || context_.copy_scheduler->transport().shares_plans())) {
        known_plans_ = {};
    }
    for (bool is_again = false;; is_again = true) {
        const plan::Link before = problem().link;
        auto next = find_or_make(cap_bytes);
        if (!next) { return next.error(); }
        if (auto adopted = adopt(std::move(*next), cap_bytes); !adopted) {
            if (plans_for_held()) { plan_factory_.set_link(before); }
            return adopted;
        }
        const double hoped = plans_for_held() ? link_of(plan()).bytes_per_second : 0;
        hold_calls();
        if (is_again || hoped == 0 || link_of(plan()).bytes_per_second >= hoped * 0.99) { return {}; }
        known_plans_ = {};  // count on more
    }
}

template <VirtualMemoryDevice D>
void PlannedDecider<D>::hold_calls() {
    TransportInterface<D>& transport = context_.copy_scheduler->transport();
    held_generation_ += std::exchange(has_released_held_, false) ? 1U : 0U;
    if (!transport.holds()) { return; }
    std::vector<std::span<const transport::Fetch>> calls;
    for (std::uint32_t k = 0; k < plan().calls().size(); ++k) { calls.push_back(store_.contents().call(k)); }
    transport.hold(calls);
}

template <VirtualMemoryDevice D>
auto PlannedDecider<D>::find_or_make(std::uint64_t cap_bytes) -> Result<KnownPlan> {
    const CurrentPlan current = current_plan();
    const bool keeps_image = current.leased != no_storage;
    std::vector<std::uint64_t> image;
    if (current.plan != nullptr) { image = current.plan->data().storage_offsets; }
    PlanCache::Key key{schedule_, cap_bytes, plan_factory_.is_captured()};
    TransportInterface<D>& transport = context_.copy_scheduler->transport();
    const plan::Problem& problem = plan_factory_.problem();
    const bool may_share = !keeps_image && !plan_factory_.is_given() && plan_factory_.storages_at_once() == 0;
    auto common = may_share ? transport.common_plan(problem, cap_bytes, key.captured) : std::nullopt;
    if (common) {
        known_plans_.forget(key);
        KnownPlan next{std::move(*common), std::make_shared<std::vector<StepRange>>()};
        known_plans_.add({std::move(key), std::move(image), next.plan, next.ranges, problem.link});
        return next;
    }
    if (const auto* known = known_plans_.find(key, image, keeps_image, plan_factory_.problem())) {
        if (plans_for_held()) { plan_factory_.set_link(known->link); }
        return KnownPlan{known->plan, known->ranges};
    }
    auto made = make_plan(cap_bytes, current);
    if (!made) { return made.error(); }
    KnownPlan next{std::move(*made), std::make_shared<std::vector<StepRange>>()};
    if (plan_factory_.is_given()) { return next; }
    ++context_.counters->plans_made;
    // Under a lease the image stays, so that the plan may not be the best.
    if (!keeps_image) { known_plans_.add({std::move(key), std::move(image), next.plan, next.ranges, problem.link}); }
    if (may_share) { transport.tell_plan(problem, cap_bytes, next.plan); }
    return next;
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::resume(std::uint64_t cap_bytes, StepIndex) {
    if (cap_bytes != cap_bytes_ || !store_.has_image() || !is_for_problem(plan(), plan_factory_.problem())) {
        // What was brought ahead lies where the plan before has it.
        if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
        if (auto given = suspend(); !given) { return given; }
        return find_and_adopt(cap_bytes);
    }
    if (auto woken = store_.wake(); !woken) { return woken; }
    hold_calls();
    this->start(problem(), cap_bytes_);
    return {};
}

template <VirtualMemoryDevice D>
Result<std::uint64_t> PlannedDecider<D>::bring_asleep(std::uint64_t most_bytes) {
    if (cap_bytes_ == 0 || !is_for_problem(plan(), plan_factory_.problem())) { return std::uint64_t{0}; }
    return store_.bring_asleep(plan().residents(), most_bytes);
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::bring_residents(std::span<const StorageId> ids) {
    std::vector<std::uint32_t> absent;
    for (const StorageId id : ids) {
        for (const std::uint32_t chunk : store_.contents().chunks(id)) {
            if (!store_.table().is_there(chunk)) { absent.push_back(chunk); }
        }
    }
    residency::detail::sort(absent);
    absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
    return store_.load(absent);
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::begin_capture() {
    if (auto repaired = repair(); !repaired) { return repaired; }
    if (this->is_streaming() && !plan().is_cyclic()) {
        return Error{ErrorKind::unsupported,
                     "a one-shot schedule streams other bytes in each pass: a graph is captured of a cyclic one, "
                     "or where everything is resident"};
    }
    if (!plan().is_captured() && this->is_streaming()) {
        if (plan_factory_.is_given()) {
            return Error{ErrorKind::unsupported,
                         "the plan that was given is not one for captured passes: make it with "
                         "plan::Options::captured"};
        }
        plan_factory_.set_captured(true);
        if (auto adopted = set_cap(cap_bytes_, 0); !adopted) {
            plan_factory_.set_captured(false);
            return adopted;
        }
    }
    if (auto reached = this->before_graph(); !reached) { return reached; }
    this->capture_begins();
    return {};
}

template <VirtualMemoryDevice D>
std::span<const StepRange> PlannedDecider<D>::ranges() const {
    std::vector<StepRange>& ranges = *ranges_;
    if (!ranges.empty()) { return ranges; }
    if (plan_factory_.leases_at_once() > 1 && this->is_streaming()) {
        for (std::uint32_t step = 0; step < plan().steps(); ++step) { ranges.push_back({step, step + 1}); }
    } else {
        const plan::Problem& problem = plan_factory_.problem();
        ranges = plan::step_ranges(plan(), problem.link, problem.compute_seconds);
    }
    return ranges;
}

template <VirtualMemoryDevice D>
CurrentPlan PlannedDecider<D>::current_plan() const {
    CurrentPlan result;
    if (!store_.is_held()) { return result; }
    result.plan = &plan();
    result.budget_bytes = cap_bytes_;
    result.held_bytes = store_.held_bytes();
    result.present = store_.presence();
    result.leased = leased();
    return result;
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::adopt(KnownPlan next, std::uint64_t cap_bytes) {
    this->forget_ahead();
    if (auto adopted = store_.adopt(std::move(next.plan)); !adopted) { return adopted; }
    ranges_ = std::move(next.ranges);
    cap_bytes_ = cap_bytes;
    this->start(problem(), cap_bytes_);
    return {};
}

template <VirtualMemoryDevice D>
Status PlannedDecider<D>::repair() {
    if (this->mode() != PlanMode::unmapped) { return {}; }
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
    return adopt({plan::Plan{plan()}, ranges_}, cap_bytes_);
}

}}}  // namespace residency::RESIDENCY_ABI::core
