// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/copy_scheduler.hpp"
#include "residency/core/decider.hpp"
#include "residency/core/speculation_stats.hpp"
#include "residency/core/statistics.hpp"
#include "residency/core/storage_state.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/use_order.hpp"
#include "residency/pool/memory_pool.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Decides as accesses come: asks the evictor who leaves, the prefetcher what comes next, and the pool for an address. Works on
/// whole storages.
template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
class OnlineDecider final : public Decider<typename Pool::Device> {
public:
    using Device = typename Pool::Device;
    struct Config {
        Evictor evictor{};
        Prefetcher prefetcher{};
        typename Pool::Config pool{};
    };

    explicit OnlineDecider(Config config)
        : evictor_{std::move(config.evictor)},
          prefetcher_{std::move(config.prefetcher)},
          pool_{std::move(config.pool)} {}

    /// What the pool needs for these. Called before open(), and again with another schedule.
    [[nodiscard]] Status prepare(const Device& device, const Catalog& catalog, const Schedule& schedule,
                                 const pool::Needs& needs) override;
    [[nodiscard]] BudgetLimits limits() const noexcept override { return limits_; }
    [[nodiscard]] bool holds_residents() const noexcept override { return false; }

    [[nodiscard]] Status open(const DeciderContext<Device>& context, const pool::Needs& needs,
                              std::uint64_t cap_bytes) override;

    /// The future is another one from now on; what is on the device stays. Called between passes.
    [[nodiscard]] Status set_order(const UseOrder* order, std::span<const std::uint32_t> groups, StepIndex now,
                                   std::uint64_t) override;
    /// Another budget. What is recorded is complete; what is leased stays where it is, and counts. As many storages leave as have to, by
    /// the evictor's order; of the others those that lie on memory that is given back are copied within the device. Blocks. On failure
    /// the old budget is in force, with less brought than before, or no pool where the device refuses its memory.
    [[nodiscard]] Status set_cap(std::uint64_t cap_bytes, StepIndex now) override;
    /// Goes on with a change of budget where leases have ended and their uses are complete. Does not block.
    [[nodiscard]] Status reclaim_pending() override;
    [[nodiscard]] bool has_pending() const noexcept override { return has_pending_; }
    /// Resets policy history for a new one-shot pass; device contents stay.
    [[nodiscard]] Status prepare_pass(const PassStart& start) override {
        if (start.in_foreign_capture) { is_captured_outside_ = true; }
        return start.repeats_one_shot ? attach_again(0) : Status{};
    }

    /// Makes these storages there or on their way, all or none. They are distinct.
    [[nodiscard]] Result<LeaseToken> ensure(std::span<const StorageId> wanted, const AccessPoint& access) override;

    void released(const LeaseToken& token, bool) noexcept override {
        --leases_;
        pump(token.step_index);
    }
    void forget(const LeaseToken&) noexcept override { --leases_; }
    void pass_began(StepIndex now) noexcept override {
        if constexpr (Prefetcher::interruptible) { pump(now); }
    }
    void pass_ended() noexcept override {}
    [[nodiscard]] bool is_speculative() const noexcept override { return Prefetcher::interruptible; }
    [[nodiscard]] bool send_speculative([[maybe_unused]] StepIndex now) noexcept override {
        if constexpr (Prefetcher::interruptible) {
            pump(now);
            return !has_nothing_to_bring() && std::ranges::any_of(pieces_, [&](EventPoint piece) {
                return !context_.copy_scheduler->has_arrived(piece);
            });
        } else {
            return false;
        }
    }

    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept override {
        if (everything_fits_ && !has_pending_) { return false; }
        return std::ranges::any_of(
            storages, [&](StorageId id) { return context_.states[index(id)].placement == Placement::streamed; });
    }
    [[nodiscard]] bool is_streaming() const noexcept override { return !everything_fits_; }
    [[nodiscard]] MemoryUse memory_use() const override {
        if (!is_open_) { return {0, 0, peak_requested_}; }
        return {pool_.held_bytes(), pool_.requested_bytes(), peak_requested_};
    }

    /// Precondition: drained.
    void close() noexcept override;
    void abandon() noexcept override {
        if (is_open_) { pool_.abandon(); }
        is_open_ = false;
    }

    [[nodiscard]] Evictor& evictor() noexcept { return evictor_; }
    [[nodiscard]] Prefetcher& prefetcher() noexcept { return prefetcher_; }

private:
    /// A guess that is brought in pieces.
    struct Partial {
        StorageId storage = no_storage;
        std::uint64_t sent_bytes = 0;
        bool displaces = false;  ///< others had to leave for it
    };
    static constexpr std::size_t pieces_in_flight = 2;
    /// Moments for which a guess without a time is kept from being evicted for another guess.
    static constexpr StepIndex guess_lifetime = 2;

    [[nodiscard]] Status attach();
    [[nodiscard]] Status open_pool(std::uint64_t cap_bytes);
    [[nodiscard]] Status attach_again(StepIndex now);
    [[nodiscard]] bool is_streamed_here(StorageId id) const noexcept {
        const StorageState& state = context_.states[index(id)];
        return state.placement == Placement::streamed && state.address != nullptr && raw_bytes_[index(id)] > 0;
    }
    [[nodiscard]] bool is_absent(StorageId id) const noexcept {
        const StorageState& state = context_.states[index(id)];
        return state.placement == Placement::streamed && state.address == nullptr && raw_bytes_[index(id)] > 0;
    }

    [[nodiscard]] Status fetch_missing(std::span<const StorageId> wanted, std::uint64_t missing_bytes, StepIndex now);

    void push_fetch(StorageId id, std::uint64_t from) {
        fetches_.push_back({id, from, raw_bytes_[index(id)] - from, context_.states[index(id)].address + from,
                            !Pool::one_range && from == 0});
    }
    void arrive(const transport::Fetch& fetch, EventPoint arrival) noexcept;

    /// Gives a storage an address, evicting as needed. Null: nothing that may leave is left. An error: the device failed.
    template <class MayLeave>
    [[nodiscard]] Result<std::byte*> place(StorageId id, StepIndex now, const MayLeave& may_leave);
    /// A guess that was wrong, before anything that the evictor would have leave.
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> next_victim(StepIndex now, const MayLeave& may_leave) noexcept {
        if (everything_fits_) { return std::nullopt; }
        if constexpr (Prefetcher::interruptible) {
            if (const auto wrong = speculation_.victim(may_leave)) { return wrong; }
        }
        return evictor_.victim(now, may_leave);
    }
    /// The pool has no room although the sum says so, as one that fragments may: from here on storages leave.
    [[nodiscard]] Status start_streaming(StepIndex now);
    /// Exhaustion is a normal outcome: all that may leave has left, so wait until it really has, and try once more.
    template <class MayLeave>
    [[nodiscard]] Result<std::byte*> recover_and_place(StorageId id, std::uint64_t asked, StepIndex now,
                                                       const MayLeave& may_leave);

    [[nodiscard]] Status evict(StorageId id);
    [[nodiscard]] Status vacate(StorageId id);

    [[nodiscard]] Status move_or_evict(StorageId id);
    /// What lies on memory that has to go is not leased again where it is: passes that the host enqueues ahead would keep it there for
    /// ever. It moves, or leaves, in the order of the copy stream.
    [[nodiscard]] Status move_before_use(std::span<const StorageId> wanted);
    /// Everything that is allocated; what is leased is pinned.
    [[nodiscard]] std::vector<pool::Place> allocated() const;
    /// What is too much for the new cap leaves, what has to move does, and the rest of the memory is given back. Blocks.
    [[nodiscard]] Status make_room(StepIndex now);
    /// False: there is no place for it.
    [[nodiscard]] Result<bool> move(StorageId id, bool may_block);
    /// Who reads what was moved waits for it.
    [[nodiscard]] Status moves_arrive();
    /// Takes everything from the evictor, in the order in which it would have it leave.
    void list_leaving(StepIndex now);
    [[nodiscard]] Status attach_in_order(StepIndex now);

    /// Undoes the placements since placed_ was cleared: nothing has been copied to them.
    void take_back() noexcept;
    void leave(StorageId id) noexcept;

    [[nodiscard]] bool has_nothing_to_bring() const noexcept {
        return !is_open_ || (here_ == streamed_ && partial_.storage == no_storage);
    }
    /// Brings ahead what the prefetcher proposes. Best effort: nothing here fails a pass.
    void pump(StepIndex now) noexcept;

    [[nodiscard]] auto needed_later_than(StepIndex needed_by, StepIndex now) const noexcept {
        return [this, needed_by, now](StorageId id) {
            const StorageState& state = context_.states[index(id)];
            if (state.leases > 0 || state.partially_resident) { return false; }  // hollow: about to be sent
            if constexpr (requires { evictor_.stays(id); }) {
                if (evictor_.stays(id)) { return false; }
            }
            if (context_.order == nullptr || needed_by == UseOrder::never) {
                return !state.prefetched || state.needed_by < now;
            }
            return context_.order->next_use(id, now) > needed_by;
        };
    }

    void pump_storages(StepIndex now) noexcept;
    /// Room for a storage, with what has been collected sent off before the copy stream is made to wait for anything.
    [[nodiscard]] bool bring_ahead(StorageId id, StepIndex needed_by, StepIndex now) noexcept;
    void flush_ahead() noexcept;

    /// Before an access: which guesses were right, and, where something is missing, which pieces came in time.
    void judge_guesses(std::span<const StorageId> wanted, StepIndex now) noexcept;
    /// Guesses travel in pieces, at most two in flight, so that a demand miss waits for two pieces and no more.
    void pump_pieces(StepIndex now) noexcept;
    /// A guess whose moment has passed unused: where memory is short, better ones have its place and its time on the link.
    [[nodiscard]] bool is_stale(const Partial& guess, StepIndex now) const noexcept;
    [[nodiscard]] bool next_guess(StepIndex now) noexcept;

    static constexpr std::byte poison_byte{0xDB};

    [[no_unique_address]] Evictor evictor_;
    [[no_unique_address]] Prefetcher prefetcher_;
    Pool pool_;
    DeciderContext<Device> context_;
    std::vector<std::uint64_t> raw_bytes_;       // by storage
    std::vector<std::uint64_t> occupied_bytes_;  // by storage, as the pool rounds
    pool::Needs needs_;
    std::uint64_t cap_ = 0;
    BudgetLimits limits_;
    std::uint64_t peak_requested_ = 0;
    std::uint64_t streamed_ = 0;  // storages with bytes that stream
    std::uint64_t here_ = 0;      // of these, those with an address
    /// When the prefetcher was last asked.
    struct Settled {
        StepIndex now = UINT64_MAX;
        std::uint64_t changes = 0;
        std::uint64_t leases = 0;
    };
    Settled settled_;
    std::uint64_t changes_ = 0;  // storages that came or left
    std::uint64_t leases_ = 0;   // open leases and tickets
    bool collects_ahead_ = false;
    bool everything_fits_ = false;
    bool is_captured_outside_ = false;
    bool is_open_ = false;
    std::vector<StorageId> missing_;
    std::vector<StorageId> placed_;
    std::vector<transport::Fetch> fetches_;
    std::vector<std::uint64_t> marks_;  // by storage: the epoch in which it was wanted
    std::uint64_t epoch_ = 0;
    bool has_pending_ = false;  // a change of the budget waits for leases or for uses
    bool has_left_ = false;     // something that had to, since left_
    EventPoint left_ = 0;       // of the copy stream: what had to leave has left
    std::vector<StorageId> leaving_, moved_;
    SpeculationStats speculation_;  // by an interruptible prefetcher
    Partial partial_;
    EventPoint pieces_[pieces_in_flight] = {};
    std::size_t next_piece_ = 0;
};

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::prepare(const Device& device, const Catalog& catalog,
                                                         const Schedule& schedule, const pool::Needs& needs) {
    limits_ = {};
    if (needs.storages.empty()) { return {}; }
    limits_.floor_bytes = pool_.floor_bytes(device, needs);
    limits_.ceiling_bytes = pool_.ceiling_bytes(device, needs);
    pool::Needs of_step = needs;
    std::vector<std::uint64_t> sizes;
    for (const Schedule::Step& step : schedule) {
        sizes.clear();
        for (const StorageId id : step.storages) {
            const Storage& storage = catalog.storage(id);
            if (storage.placement != Placement::streamed || storage.bytes == 0) { continue; }
            sizes.push_back(storage.bytes);
        }
        of_step.step = sizes;
        const std::uint64_t floor = pool_.floor_bytes(device, of_step);
        if (floor > limits_.floor_bytes || (floor == limits_.floor_bytes && limits_.floor_step == UINT32_MAX)) {
            limits_.floor_bytes = floor;
            limits_.floor_step = step.position;
        }
    }
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::open(const DeciderContext<Device>& context, const pool::Needs& needs,
                                                      std::uint64_t cap_bytes) {
    context_ = context;
    const std::size_t storages = context.states.size();
    raw_bytes_.resize(storages);
    occupied_bytes_.resize(storages);
    marks_.assign(storages, 0);
    missing_.reserve(storages);
    fetches_.reserve(storages);
    placed_.reserve(storages);
    if constexpr (Prefetcher::interruptible) { speculation_.attach(storages); }
    needs_ = needs;
    if (auto opened = open_pool(cap_bytes); !opened) { return opened; }
    streamed_ = needs.storages.size();
    for (std::size_t i = 0; i < storages; ++i) {
        raw_bytes_[i] = context.catalog.storages()[i].bytes;
        occupied_bytes_[i] = pool_.occupied(raw_bytes_[i]);
    }
    return attach();
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::set_order(const UseOrder* order, std::span<const std::uint32_t> groups,
                                                           StepIndex now, std::uint64_t) {
    context_.order = order;
    context_.groups = groups;
    return attach_again(now);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::set_cap(std::uint64_t cap_bytes, StepIndex now) {
    is_captured_outside_ = false;
    if (!is_open_) {
        if (auto opened = open_pool(cap_bytes); !opened) { return opened; }
        return attach_again(now);
    }
    settled_ = {};
    const std::uint64_t cap_before = cap_;
    const bool fitted_before = everything_fits_;
    if (std::exchange(everything_fits_, false)) {
        if (auto attached = attach_again(now); !attached) { return attached; }
    }
    auto changed = pool_.resize(cap_bytes, allocated());
    if (changed) {
        cap_ = cap_bytes;
        has_pending_ = true;
        changed = make_room(now);
        if (changed) {
            everything_fits_ = cap_ >= limits_.ceiling_bytes;
        } else {
            cap_ = cap_before;
            static_cast<void>(moves_arrive().has_value());
            static_cast<void>(pool_.resize(cap_before, allocated()).has_value());
        }
    } else {
        everything_fits_ = fitted_before;
    }
    if (auto attached = attach_in_order(now); !attached) { return attached; }
    return changed;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::reclaim_pending() {
    if (!has_pending_ || !is_open_) { return {}; }
    if (auto polled = context_.copy_scheduler->poll(); !polled) { return polled; }
    bool is_left = false;
    Status done;
    for (std::uint32_t i = 0; done && i < context_.states.size(); ++i) {
        const StorageId id{i};
        if (!is_streamed_here(id) || !pool_.must_move(context_.states[i].address)) { continue; }
        if (context_.states[i].leases > 0 || !context_.copy_scheduler->is_unused(id)) {
            is_left = true;
            continue;
        }
        done = move_or_evict(id);
    }
    if (has_left_) {
        if (auto arrived = moves_arrive(); !arrived) { return arrived; }
    }
    if (!done) { return done; }
    if (!context_.copy_scheduler->has_arrived(left_)) { return {}; }
    if (auto settled = pool_.settle(); !settled) { return settled; }
    has_pending_ = is_left;
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Result<LeaseToken> OnlineDecider<Evictor, Prefetcher, Pool>::ensure(std::span<const StorageId> wanted,
                                                                    const AccessPoint& access) {
    const StepIndex now = access.step_index;
    if (has_pending_) {
        if (auto moved = move_before_use(wanted); !moved) { return moved.error(); }
    }
    missing_.clear();
    std::uint64_t missing_bytes = 0;
    for (const StorageId id : wanted) {
        StorageState& state = context_.states[index(id)];
        state.demand_missed = (state.address == nullptr || state.partially_resident) && raw_bytes_[index(id)] > 0;
        if (state.demand_missed) {
            missing_.push_back(id);
            missing_bytes += occupied_bytes_[index(id)];
        }
    }
    if constexpr (Prefetcher::interruptible) { judge_guesses(wanted, now); }
    if (!missing_.empty()) {
        if (auto fetched = fetch_missing(wanted, missing_bytes, now); !fetched) { return fetched.error(); }
    }
    for (const StorageId id : wanted) { context_.count_access(id, raw_bytes_[index(id)]); }
    if (!everything_fits_) {
        for (const StorageId id : wanted) {
            if (is_streamed_here(id)) { evictor_.used(id, now); }
        }
    }
    ++leases_;
    if (!missing_.empty()) {
        // As if leased already: what is brought ahead must not take their places.
        for (const StorageId id : wanted) { ++context_.states[index(id)].leases; }
        pump(now);
        for (const StorageId id : wanted) { --context_.states[index(id)].leases; }
    }
    return LeaseToken{now, 0, 0, false};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::close() noexcept {
    for (std::uint32_t i = 0; is_open_ && i < context_.states.size(); ++i) {
        if (!is_streamed_here(StorageId{i})) { continue; }
        void* at = context_.states[i].address;
        static_cast<void>(pool_.deallocate(at, raw_bytes_[i], context_.copy_scheduler->copy_stream()).has_value());
        leave(StorageId{i});
    }
    partial_ = {};
    if (is_open_) { pool_.close(); }
    is_open_ = false;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::attach() {
    if (auto attached = evictor_.attach({occupied_bytes_, cap_, context_.order, context_.groups}); !attached) {
        return attached;
    }
    return prefetcher_.attach({occupied_bytes_, cap_, context_.order});
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::open_pool(std::uint64_t cap_bytes) {
    cap_ = cap_bytes;
    everything_fits_ = cap_bytes >= limits_.ceiling_bytes;
    if (needs_.storages.empty()) { return {}; }
    if (auto opened = pool_.open(*context_.device, needs_, cap_bytes); !opened) { return opened; }
    is_open_ = true;
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::attach_again(StepIndex now) {
    if (auto attached = attach(); !attached) { return attached; }
    for (std::uint32_t i = 0; i < context_.states.size(); ++i) {
        if (is_streamed_here(StorageId{i})) { evictor_.inserted(StorageId{i}, now); }
    }
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::fetch_missing(std::span<const StorageId> wanted,
                                                               std::uint64_t missing_bytes, StepIndex now) {
    if (!is_open_) {
        return Error{ErrorKind::out_of_memory, "the device has refused the memory of this budget: set another one"};
    }
    ++epoch_;
    for (const StorageId id : wanted) { marks_[index(id)] = epoch_; }
    if constexpr (Prefetcher::interruptible) { prefetcher_.clear(); }
    std::ranges::sort(missing_, [&](StorageId a, StorageId b) {
        const std::uint64_t left = raw_bytes_[index(a)];
        const std::uint64_t right = raw_bytes_[index(b)];
        return left != right ? left > right : index(a) < index(b);
    });
    const auto may_leave = [&](StorageId id) {
        return context_.states[index(id)].leases == 0 && marks_[index(id)] != epoch_;
    };
    fetches_.clear();
    placed_.clear();
    for (const StorageId id : missing_) {
        if (context_.states[index(id)].address != nullptr) {
            push_fetch(id, id == partial_.storage ? partial_.sent_bytes : 0);
            continue;
        }
        auto placed = place(id, now, may_leave);
        if (placed && *placed == nullptr && everything_fits_) {
            if (is_captured_outside_) {
                take_back();
                return Error{ErrorKind::out_of_memory,
                             "no room for " + context_.catalog.describe(id) +
                                 " although the budget holds everything, and nothing may leave: a graph that was "
                                 "captured by the caller holds addresses; set the budget anew, and capture again"};
            }
            if (auto started = start_streaming(now); !started) {
                take_back();
                return started;
            }
            placed = place(id, now, may_leave);
        }
        if (placed && *placed == nullptr) { placed = recover_and_place(id, missing_bytes, now, may_leave); }
        if (!placed) {
            take_back();
            return placed.error();
        }
        push_fetch(id, 0);
    }
    auto arrival = context_.copy_scheduler->transfer(fetches_);
    if (!arrival) {
        take_back();
        return arrival.error();
    }
    for (const transport::Fetch& fetch : fetches_) {
        arrive(fetch, *arrival);
        if (fetch.storage == partial_.storage) { partial_ = {}; }
    }
    ++context_.counters->calls;
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::arrive(const transport::Fetch& fetch, EventPoint arrival) noexcept {
    StorageState& state = context_.states[index(fetch.storage)];
    state.arrival = arrival;
    state.partially_resident = fetch.offset_bytes + fetch.bytes < raw_bytes_[index(fetch.storage)];
    context_.counters->fetched_bytes += fetch.bytes;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
template <class MayLeave>
Result<std::byte*> OnlineDecider<Evictor, Prefetcher, Pool>::place(StorageId id, StepIndex now,
                                                                   const MayLeave& may_leave) {
    if (!is_open_) {
        return Error{ErrorKind::wrong_state,
                     "the pool was lost when the budget changed: set a budget that the device can give"};
    }
    const std::uint64_t bytes = raw_bytes_[index(id)];
    for (;;) {
        auto at = pool_.allocate(bytes, context_.copy_scheduler->copy_stream());
        if (!at) { return at.error(); }
        if (*at != nullptr) {
            auto* address = static_cast<std::byte*>(*at);
            StorageState& state = context_.states[index(id)];
            state.address = address;
            state.partially_resident = true;
            ++here_;
            ++changes_;
            placed_.push_back(id);
            if (!everything_fits_) { evictor_.inserted(id, now); }
            peak_requested_ = (std::max)(peak_requested_, pool_.requested_bytes());
            return address;
        }
        const auto victim = next_victim(now, may_leave);
        if (!victim) { return static_cast<std::byte*>(nullptr); }
        if (collects_ahead_ && !context_.copy_scheduler->is_free_to_overwrite(*victim)) { flush_ahead(); }
        if (auto gone = evict(*victim); !gone) { return gone.error(); }
    }
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::start_streaming(StepIndex now) {
    ++context_.counters->host_waits;
    if (auto drained = context_.copy_scheduler->drain_device(); !drained) { return drained; }
    everything_fits_ = false;
    return attach_again(now);
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
template <class MayLeave>
Result<std::byte*> OnlineDecider<Evictor, Prefetcher, Pool>::recover_and_place(StorageId id, std::uint64_t asked,
                                                                               StepIndex now,
                                                                               const MayLeave& may_leave) {
    ++context_.counters->host_waits;
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained.error(); }
    if (auto recovered = pool_.recover(); !recovered) { return recovered.error(); }
    auto placed = place(id, now, may_leave);
    if (!placed || *placed != nullptr) { return placed; }
    std::uint64_t leased = 0;
    for (std::size_t i = 0; i < context_.states.size(); ++i) {
        const StorageState& state = context_.states[i];
        if (state.leases > 0 && state.placement == Placement::streamed && state.address != nullptr) {
            leased += occupied_bytes_[i];
        }
    }
    return Error{ErrorKind::budget,
                 "no room for " + context_.catalog.describe(id) + ": " + std::to_string(asked) +
                     " bytes are asked for together, " + std::to_string(leased) +
                     " are leased, the streamed share of the "
                     "budget is " +
                     std::to_string(cap_) +
                     "; end leases before, or give the budget the sum of what is leased "
                     "at once",
                 BudgetNumbers{asked, cap_, leased, limits_.floor_bytes, UINT32_MAX}};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::evict(StorageId id) {
    auto gone = vacate(id);
    if (gone) { evictor_.removed(id); }
    return gone;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::vacate(StorageId id) {
    StorageState& state = context_.states[index(id)];
    const typename Device::Stream stream = context_.copy_scheduler->copy_stream();
    if (auto waits = context_.copy_scheduler->copy_stream_wait_for_uses(id); !waits) { return waits; }
    if (context_.poison) {
        if (auto filled = context_.device->fill(state.address, poison_byte, raw_bytes_[index(id)], stream); !filled) {
            return filled;
        }
        state.partially_resident = true;
    }
    if (id == partial_.storage) { partial_ = {}; }
    has_left_ = has_left_ || (has_pending_ && pool_.must_move(state.address));
    if (auto freed = pool_.deallocate(state.address, raw_bytes_[index(id)], stream); !freed) { return freed; }
    leave(id);
    ++context_.counters->evictions;
    context_.counters->evicted_bytes += raw_bytes_[index(id)];
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::move_or_evict(StorageId id) {
    const auto moved = move(id, false);
    if (!moved) { return moved.error(); }
    if (*moved) { return {}; }
    auto gone = vacate(id);
    if (gone && !everything_fits_) { evictor_.removed(id); }
    return gone;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::move_before_use(std::span<const StorageId> wanted) {
    Status done;
    for (const StorageId id : wanted) {
        const StorageState& state = context_.states[index(id)];
        if (!done || !is_streamed_here(id) || state.leases > 0 || !pool_.must_move(state.address)) { continue; }
        done = move_or_evict(id);
    }
    if (!moved_.empty()) {
        if (auto arrived = moves_arrive(); !arrived) { return arrived; }
    }
    return done;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
std::vector<pool::Place> OnlineDecider<Evictor, Prefetcher, Pool>::allocated() const {
    std::vector<pool::Place> places;
    for (std::uint32_t i = 0; i < context_.states.size(); ++i) {
        const StorageState& state = context_.states[i];
        if (is_streamed_here(StorageId{i})) { places.push_back({state.address, raw_bytes_[i], state.leases > 0}); }
    }
    return places;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::make_room(StepIndex now) {
    while (pool_.is_over()) {
        const auto victim = evictor_.victim(now, [&](StorageId id) { return context_.states[index(id)].leases == 0; });
        if (!victim) { break; }
        if (auto gone = evict(*victim); !gone) { return gone; }
    }
    list_leaving(now);
    for (const StorageId id : leaving_) {
        if (context_.states[index(id)].leases > 0 || !pool_.must_move(context_.states[index(id)].address)) { continue; }
        const auto moved = move(id, true);
        if (!moved) { return moved.error(); }
        if (*moved) { continue; }
        if (auto gone = vacate(id); !gone) { return gone; }
    }
    if (auto arrived = moves_arrive(); !arrived) { return arrived; }
    if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained; }
    if (auto settled = pool_.settle(); !settled) { return settled; }
    has_pending_ = false;
    for (const pool::Place& place : allocated()) { has_pending_ = has_pending_ || pool_.must_move(place.at); }
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Result<bool> OnlineDecider<Evictor, Prefetcher, Pool>::move(StorageId id, bool may_block) {
    StorageState& state = context_.states[index(id)];
    if (state.partially_resident) { return false; }
    const std::uint64_t bytes = raw_bytes_[index(id)];
    const auto stream = context_.copy_scheduler->copy_stream();
    auto to = pool_.allocate(bytes, stream);
    if (to && *to == nullptr && may_block) {
        if (auto drained = context_.copy_scheduler->drain(); !drained) { return drained.error(); }
        if (auto reclaimed = pool_.reclaim(); !reclaimed) { return reclaimed.error(); }
        to = pool_.allocate(bytes, stream);
    }
    if (!to) { return to.error(); }
    if (*to == nullptr) { return false; }
    auto* const address = static_cast<std::byte*>(*to);
    auto done = context_.copy_scheduler->copy_stream_wait_for_uses(id);
    if (done) { done = context_.copy_scheduler->move(address, state.address, bytes); }
    if (done && context_.poison) { done = context_.device->fill(state.address, poison_byte, bytes, stream); }
    if (done) { done = pool_.deallocate(state.address, bytes, stream); }
    if (!done) {
        static_cast<void>(pool_.deallocate(address, bytes, stream).has_value());
        return done.error();
    }
    state.address = address;
    has_left_ = true;
    moved_.push_back(id);
    context_.counters->moved_bytes += bytes;
    return true;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::moves_arrive() {
    const auto arrival = context_.copy_scheduler->record_arrival();
    has_left_ = false;
    if (!arrival) {
        if (auto drained = context_.copy_scheduler->drain_device(); !drained) { return drained; }
        moved_.clear();
        left_ = 0;
        return {};
    }
    for (const StorageId id : moved_) { context_.states[index(id)].arrival = *arrival; }
    moved_.clear();
    left_ = *arrival;
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::list_leaving(StepIndex now) {
    leaving_.clear();
    while (const auto next = evictor_.victim(now, evict::AnyMayLeave{})) {
        leaving_.push_back(*next);
        evictor_.removed(*next);
    }
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
Status OnlineDecider<Evictor, Prefetcher, Pool>::attach_in_order(StepIndex now) {
    if (leaving_.empty()) { return attach_again(now); }
    if (auto attached = attach(); !attached) { return attached; }
    for (const StorageId id : leaving_) {
        if (is_streamed_here(id)) { evictor_.inserted(id, now); }
    }
    leaving_.clear();
    return {};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::take_back() noexcept {
    for (const StorageId id : placed_) {
        void* at = context_.states[index(id)].address;
        if (!pool_.deallocate(at, raw_bytes_[index(id)], context_.copy_scheduler->copy_stream())) { continue; }
        leave(id);
        if (!everything_fits_) { evictor_.removed(id); }
    }
    placed_.clear();
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::leave(StorageId id) noexcept {
    StorageState& state = context_.states[index(id)];
    state.address = nullptr;
    state.prefetched = state.partially_resident = false;
    if constexpr (Prefetcher::interruptible) { speculation_.left(id); }
    --here_;
    ++changes_;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::pump(StepIndex now) noexcept {
    if (has_nothing_to_bring()) { return; }
    if constexpr (Prefetcher::interruptible) {
        pump_pieces(now);
    } else {
        pump_storages(now);
    }
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::pump_storages(StepIndex now) noexcept {
    // Nothing has changed since the last attempt that could make room.
    if (now == settled_.now && changes_ == settled_.changes && leases_ >= settled_.leases) { return; }
    fetches_.clear();
    placed_.clear();
    prefetcher_.propose(now, [&](StorageId id, StepIndex needed_by) {
        if (!is_absent(id)) { return true; }
        if (!bring_ahead(id, needed_by, now)) {
            ++context_.counters->dropped_prefetches;
            return false;
        }
        push_fetch(id, 0);
        return true;
    });
    flush_ahead();
    settled_ = {now, changes_, leases_};
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
bool OnlineDecider<Evictor, Prefetcher, Pool>::bring_ahead(StorageId id, StepIndex needed_by, StepIndex now) noexcept {
    collects_ahead_ = true;
    const auto placed = place(id, now, needed_later_than(needed_by, now));
    collects_ahead_ = false;
    if (!placed || *placed == nullptr) { return false; }
    StorageState& state = context_.states[index(id)];
    state.prefetched = true;
    state.needed_by = needed_by == UseOrder::never ? now + guess_lifetime : needed_by;
    return true;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::flush_ahead() noexcept {
    if (fetches_.empty()) {
        placed_.clear();
        return;
    }
    if (auto arrival = context_.copy_scheduler->transfer(fetches_)) {
        for (const transport::Fetch& fetch : fetches_) { arrive(fetch, *arrival); }
        ++context_.counters->calls;
        placed_.clear();
    } else {
        take_back();
    }
    fetches_.clear();
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::judge_guesses(std::span<const StorageId> wanted,
                                                             StepIndex now) noexcept {
    for (const StorageId id : wanted) {
        const StorageState& state = context_.states[index(id)];
        if (state.prefetched) { speculation_.used(id, state.needed_by >= now); }
    }
    speculation_.give_up([&](StorageId id) { return context_.states[index(id)].needed_by < now; });
    if (missing_.empty()) { return; }
    if (speculation_.any_sent()) { static_cast<void>(context_.copy_scheduler->poll_arrivals().has_value()); }
    speculation_.missed([&](EventPoint piece) { return context_.copy_scheduler->has_arrived(piece); });
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
void OnlineDecider<Evictor, Prefetcher, Pool>::pump_pieces(StepIndex now) noexcept {
    if (!context_.copy_scheduler->poll_arrivals()) { return; }
    std::size_t in_flight = 0;
    for (const EventPoint piece : pieces_) { in_flight += context_.copy_scheduler->has_arrived(piece) ? 0U : 1U; }
    while (in_flight < pieces_in_flight && speculation_.next_is_worth_it()) {
        fetches_.clear();
        placed_.clear();
        if (is_stale(partial_, now) && !evict(partial_.storage)) { return; }
        if (partial_.storage == no_storage && (here_ == streamed_ || !next_guess(now))) { return; }
        const StorageId id = partial_.storage;
        const std::uint64_t bytes = (std::min)(speculation_.next_bytes(), raw_bytes_[index(id)] - partial_.sent_bytes);
        fetches_.push_back({id, partial_.sent_bytes, bytes, context_.states[index(id)].address + partial_.sent_bytes});
        const auto arrival = context_.copy_scheduler->transfer(fetches_);
        if (!arrival) { return; }
        arrive(fetches_.front(), *arrival);
        ++context_.counters->calls;
        partial_.sent_bytes += bytes;
        if (partial_.sent_bytes == raw_bytes_[index(id)]) { partial_ = {}; }
        pieces_[next_piece_++ % pieces_in_flight] = *arrival;
        speculation_.sent(bytes, *arrival);
        ++in_flight;
    }
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
bool OnlineDecider<Evictor, Prefetcher, Pool>::is_stale(const Partial& guess, StepIndex now) const noexcept {
    if (guess.storage == no_storage || !guess.displaces || everything_fits_) { return false; }
    const StorageState& state = context_.states[index(guess.storage)];
    return state.leases == 0 && state.needed_by < now;
}

template <evict::EvictionPolicy Evictor, prefetch::PrefetchPolicy Prefetcher, pool::MemoryPool Pool>
bool OnlineDecider<Evictor, Prefetcher, Pool>::next_guess(StepIndex now) noexcept {
    prefetcher_.propose(now, [&](StorageId id, StepIndex needed_by) {
        if (!is_absent(id)) { return true; }
        const std::uint64_t evictions = context_.counters->evictions;
        if (bring_ahead(id, needed_by, now)) {
            partial_ = {id, 0, context_.counters->evictions > evictions};
            speculation_.began(id);
        } else {
            ++context_.counters->dropped_prefetches;
        }
        return false;
    });
    return partial_.storage != no_storage;
}

}}}  // namespace residency::RESIDENCY_ABI::core
