// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/engine/budget_control.hpp"
#include "residency/core/engine/lease_table.hpp"
#include "residency/core/engine/schedule_cursor.hpp"
#include "residency/core/engine/session_state.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The open leases and tickets of a session: every storage that one of them covers has a lease count above 0, and every stream that one
/// of them reads on waits for the arrival of its bytes. Passes acquire here: what is asked for becomes storages at a step of the schedule,
/// and the decider brings them.
template <Device D>
class LeaseKeeper {
public:
    using Stream = typename D::Stream;

    /// `records`: keeps what each pass acquires. Keeps the references.
    LeaseKeeper(SessionState<D>& shared, const BudgetControl<D>& budget, bool records)
        : shared_{&shared}, budget_{&budget}, records_{records} {}
    /// Allocates, for the catalog of the session.
    void open() {
        seen_.resize(shared_->catalog.storages().size());
        wanted_.reserve(seen_.size());
    }

    /// Everything that a step of the schedule reads, together, on a stream; without a stream, a ticket. On failure no lease is open, and the
    /// pass is where it was. So of the others.
    [[nodiscard]] Result<LeaseId> acquire_step(std::uint32_t step, std::optional<Stream> stream);
    /// Everything that the steps of a range read.
    [[nodiscard]] Result<LeaseId> acquire_range(const StepRange& range, std::optional<Stream> stream);
    /// Every storage that these weights lie on.
    [[nodiscard]] Result<LeaseId> acquire_weights(std::span<const WeightId> weights, std::optional<Stream> stream);
    /// The storages that weights lie on, each once. Of several weights, valid until the next call. Error: the catalog has no such weight.
    [[nodiscard]] Result<std::span<const StorageId>> storages_of(std::span<const WeightId> weights);
    /// Another stream reads too: it waits for the bytes, and the end of the lease is recorded there as well.
    [[nodiscard]] Status use_on(LeaseId id, Stream stream);
    /// The first stream of a lease; the default stream where the lease was ended with its capture.
    [[nodiscard]] Stream stream(LeaseId id) const noexcept {
        const LeaseRecord* const lease = leases_.find(id);
        return lease == nullptr ? Stream{} : shared_->copy_scheduler.stream_of(lease->consumers.front());
    }
    /// Every stream of the lease waits for what an event of the caller stands for.
    [[nodiscard]] Status wait_for(LeaseId id, typename D::Event event);
    /// An event of the caller now stands for the arrival of the bytes, and for all work on every stream of the lease so far. The first of
    /// these streams waits for the others.
    [[nodiscard]] Status record(LeaseId id, typename D::Event event);
    /// Records the use on every stream of the lease. What fails is kept; the storages then count as in use until the device is drained.
    void end(LeaseId id) noexcept;
    /// Ends every lease without a record: the work that read by them never ran.
    void revoke_all() noexcept {
        leases_.close_all([&](const LeaseRecord& lease) {
            count(lease.storages, -1);
            shared_->decider->forget(lease.token);
        });
        open_steps_ = 0;
    }

    [[nodiscard]] std::uint64_t open_leases() const noexcept { return leases_.open_leases(); }
    /// The lease of the last ended pass that was longest in the way.
    [[nodiscard]] const HeldLease& held_lease() const noexcept {
        return pass_ == shared_->counters.passes ? held_before_ : held_;
    }
    [[nodiscard]] bool covers(LeaseId id, WeightId weight) const noexcept {
        const LeaseRecord* const lease = leases_.find(id);
        if (lease == nullptr || !shared_->contains(weight)) { return false; }
        for (const StorageId covered : lease->storages) {
            if (covered == shared_->weight_storage[index(weight)]) { return true; }
        }
        return false;
    }
    /// A pass begins, or has ended: what it acquires is kept, if that is wanted.
    /// @{
    void begin_record() noexcept { recording_.clear(); }
    void end_record() noexcept { recorded_.swap(recording_); }
    /// @}
    /// What the last pass that ended acquired, in order; empty if that is not kept.
    [[nodiscard]] std::span<const StepRecord> recorded() const noexcept { return recorded_; }

private:
    /// Opens a lease on distinct storages, on a stream, or a ticket without one. The access point stands in the record of the next lease:
    /// a copy on the way there would wait for the stores before it. `storages` must outlive the lease unless they are copied.
    [[nodiscard]] Result<LeaseId> hold(std::span<const StorageId> storages, bool copy_storages,
                                       const ScheduleCursor::Found& found, std::optional<Stream> stream);
    /// Whether the end of a lease on these storages has to be recorded, as far as is known now.
    [[nodiscard]] bool needs_record(std::span<const StorageId> storages) const noexcept {
        const Decider<D>& decider = *shared_->decider;
        RESIDENCY_ASSERT(!decider.rests() || !decider.needs_record(storages), "what rests needs no record");
        return !decider.rests() && decider.needs_record(storages);
    }
    /// Whether a step lies behind the expected end of the pass: then all steps are expected.
    [[nodiscard]] bool goes_beyond(std::uint32_t step) const noexcept {
        return step != AccessPoint::nowhere && step >= shared_->cursor.expected_steps() &&
               step < shared_->schedule().size();
    }
    /// Adds a storage to those of this acquisition, once.
    void want(StorageId storage) {
        if (std::exchange(seen_[index(storage)], acquisition_) != acquisition_) { wanted_.push_back(storage); }
    }
    void record_step(std::span<const WeightId> weights) {
        if (records_ || (shared_->order.is_recording() && shared_->decider->is_streaming())) { keep_step(weights); }
    }
    RESIDENCY_DETAIL_COLD void keep_step(std::span<const WeightId> weights) {
        recording_.push_back({{weights.begin(), weights.end()}, std::nullopt, {}});
    }
    void count(std::span<const StorageId> storages, std::int32_t by) noexcept {
        for (const StorageId storage : storages) {
            shared_->states[index(storage)].leases += static_cast<std::uint32_t>(by);
        }
    }
    [[nodiscard]] RESIDENCY_DETAIL_COLD static Error no_pass();
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error no_weight(WeightId weight) const;
    [[nodiscard]] RESIDENCY_DETAIL_COLD static Error ended_with_capture();
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error unread() const;
    /// Lets the consumer's stream wait for the bytes, and adds it to those that end() records. `is_allowed`: the stream is not captured.
    [[nodiscard]] Status wait_for_arrival(LeaseId id, LeaseRecord& lease, ConsumerId consumer, bool is_allowed);
    [[nodiscard]] static StorageId first_of(const LeaseRecord& lease) noexcept {
        return lease.storages.empty() ? no_storage : lease.storages.front();
    }
    /// Why a wait for a storage is one for a demand miss; unset: it is not.
    [[nodiscard]] std::optional<StallCause> miss_of(StorageId storage) const noexcept {
        const StorageState& state = shared_->states[index(storage)];
        if (!state.was_missed) { return std::nullopt; }
        if (state.was_evicted) { return StallCause::evicted; }
        // In order and one at a time, no access misses what a plan brings.
        const bool lacks_room = shared_->decider->bound().has_value() && leases_.open_leases() > 1;
        return lacks_room ? StallCause::room : StallCause::unpredicted;
    }
    /// Lets a stream wait. If there is something to wait for, it is timed and told. `is_allowed`: the stream is not captured.
    [[nodiscard]] RESIDENCY_DETAIL_COLD Status wait_watched(LeaseId id, const LeaseRecord& lease, ConsumerId consumer,
                                                            EventPoint arrival, bool is_allowed) {
        CopyScheduler<D>& copy_scheduler = shared_->copy_scheduler;
        if (!copy_scheduler.must_wait(consumer, arrival)) {
            return copy_scheduler.stream_wait_arrival(consumer, arrival, is_allowed);
        }
        StorageId last = no_storage;
        for (const StorageId storage : lease.storages) {
            if (shared_->states[index(storage)].arrival == arrival) { last = storage; }
        }
        MarkLog<D>& log = shared_->log;
        if (log.times_waits() && !is_allowed) {
            if (auto allowed = copy_scheduler.refuse_capture(consumer); !allowed) { return allowed; }
            is_allowed = true;
        }
        const Stream stream = copy_scheduler.stream_of(consumer);
        log.wait_begins(id.value(), lease.access, last, stream);
        auto waited = copy_scheduler.stream_wait_arrival(consumer, arrival, is_allowed);
        log.wait_ended(id.value(), lease.access, last, stream, arrival, shared_->counters.passes, miss_of(last));
        return waited;
    }

    /// A lease of steps has its first stream, or ends: `by` is 1 or -1. Those of earlier passes do not count: their kernels were launched.
    void count_steps(const LeaseRecord& lease, std::int32_t by) noexcept {
        if (!lease.access.is_whole || lease.pass != pass_) { return; }
        open_steps_ += static_cast<std::uint32_t>(by);
    }

    /// A lease of this pass ends that is open over later steps than it may be.
    void note_held(const LeaseRecord& lease, std::uint32_t until) noexcept {
        if (lease.storages.empty()) { return; }
        if (held_.storage == no_storage || until - lease.access.step > held_.until - held_.step) {
            held_ = {lease.storages.front(), lease.access.step, until};
        }
    }

    SessionState<D>* shared_;
    const BudgetControl<D>* budget_;
    bool records_;
    LeaseTable leases_;
    std::vector<StorageId> wanted_;    // of one acquisition
    std::vector<std::uint64_t> seen_;  // by storage: the acquisition that wanted it last
    std::uint64_t acquisition_ = 0;
    std::vector<StepRecord> recording_, recorded_;  // of the pass that is open, of the last one
    std::uint64_t pass_ = 0;                        // that acquired last
    std::uint32_t open_steps_ = 0;                  // leases of whole steps on a stream that this pass acquired
    HeldLease held_;                                // of that pass
    HeldLease held_before_;                         // of the one before
};

template <Device D>
Result<LeaseId> LeaseKeeper<D>::acquire_step(std::uint32_t step, std::optional<Stream> stream) {
    shared_->check_caller();
    if (goes_beyond(step)) {
        if (auto expected = shared_->expect_all_steps(); !expected) { return expected.error(); }
    }
    ScheduleCursor::Found found;
    AccessPoint& access = leases_.next().access;
    if (auto known = shared_->cursor.find(step, access, found); !known) {
        return shared_->order.explain(known.error());
    }
    access.is_scheduled = access.is_whole = access.names_steps = true;
    const Schedule::Step& declared = shared_->schedule()[step];
    auto lease = hold(declared.storages, false, found, stream);
    if (lease) { record_step(declared.weights); }
    return lease;
}

template <Device D>
Result<LeaseId> LeaseKeeper<D>::acquire_range(const StepRange& range, std::optional<Stream> stream) {
    shared_->check_caller();
    if (goes_beyond(range.last - 1)) {
        if (auto expected = shared_->expect_all_steps(); !expected) { return expected.error(); }
    }
    ScheduleCursor::Found found;
    AccessPoint& access = leases_.next().access;
    if (auto known = shared_->cursor.find(range, access, found); !known) {
        return shared_->order.explain(known.error());
    }
    access.is_scheduled = access.is_whole = access.names_steps = true;
    const Schedule& schedule = shared_->schedule();
    wanted_.clear();
    ++acquisition_;
    for (std::uint32_t step = range.first; step < range.last; ++step) {
        for (const StorageId storage : schedule.storages(step)) { want(storage); }
    }
    auto lease = hold(wanted_, true, found, stream);
    if (!lease) {
        return lease.error().in("steps [" + std::to_string(range.first) + ", " + std::to_string(range.last) + ")");
    }
    for (std::uint32_t step = range.first; step < range.last; ++step) { record_step(schedule[step].weights); }
    return lease;
}

template <Device D>
Result<LeaseId> LeaseKeeper<D>::acquire_weights(std::span<const WeightId> weights, std::optional<Stream> stream) {
    shared_->check_caller();
    std::span<const StorageId> wanted;
    if (weights.size() == 1 && shared_->contains(weights[0])) {
        wanted = {&shared_->weight_storage[index(weights[0])], 1};
    } else {
        const auto several = storages_of(weights);
        if (!several) { return several.error(); }
        wanted = *several;
    }
    ScheduleCursor::Found found;
    AccessPoint& access = leases_.next().access;
    if (auto known = shared_->cursor.find(wanted, access, found); !known) {
        return shared_->order.explain(known.error());
    }
    if (goes_beyond(access.step)) {
        if (auto expected = shared_->expect_all_steps(); !expected) { return expected.error(); }
        if (auto known = shared_->cursor.find(wanted, access, found); !known) {
            return shared_->order.explain(known.error());
        }
    }
    auto lease = hold(wanted, weights.size() != 1, found, stream);
    if (lease) { record_step(weights); }
    return lease;
}

template <Device D>
Result<std::span<const StorageId>> LeaseKeeper<D>::storages_of(std::span<const WeightId> weights) {
    for (const WeightId weight : weights) {
        if (!shared_->contains(weight)) { return no_weight(weight); }
    }
    wanted_.clear();
    ++acquisition_;
    for (const WeightId weight : weights) { want(shared_->weight_storage[index(weight)]); }
    return std::span<const StorageId>{wanted_};
}

template <Device D>
Result<LeaseId> LeaseKeeper<D>::hold(std::span<const StorageId> storages, bool copy_storages,
                                     const ScheduleCursor::Found& found, std::optional<Stream> stream) {
    if (!shared_->is_pass_open) { return no_pass(); }
    CopyScheduler<D>& copy_scheduler = shared_->copy_scheduler;
    if (auto idle = copy_scheduler.await_unrecorded_copies(); !idle) { return idle.error(); }
    if (!shared_->unread.empty()) { return unread(); }
    std::optional<ConsumerId> consumer;
    bool needs_record = false;
    if (stream) {
        auto known = copy_scheduler.consumer(*stream);
        if (!known) { return known.error(); }
        consumer = *known;
        needs_record = this->needs_record(storages);
        if (needs_record) {
            if (auto allowed = copy_scheduler.refuse_capture(*consumer); !allowed) { return allowed.error(); }
        }
    }
    LeaseRecord& lease = leases_.next();
    const AccessPoint& access = lease.access;
    if (std::exchange(pass_, shared_->counters.passes) != shared_->counters.passes) {
        open_steps_ = 0;
        held_before_ = std::exchange(held_, {});
    }
    if (shared_->log.is_read()) [[unlikely]] { shared_->log.lease_comes(access, stream, open_steps_ > 0); }
    const LeaseId id = leases_.open();
    lease.pass = pass_;
    lease.storages = storages;
    if (copy_storages) {
        lease.own.assign(storages.begin(), storages.end());
        lease.storages = lease.own;
    }
    // By PlanPlayer::ensure, or OnlineDecider::ensure.
    auto there = shared_->decider->ensure(storages, access, lease.token);
    budget_->tell_memory();
    if (!there) {
        leases_.close(id);
        return budget_->of_whole(there.error());
    }
    count(storages, 1);
    if (consumer) {
        if (auto waited = wait_for_arrival(id, lease, *consumer, needs_record); !waited) {
            count(storages, -1);
            shared_->decider->forget(lease.token);
            leases_.close(id);
            return budget_->of_whole(waited.error());
        }
    }
    shared_->cursor.go_to({access.step_index, access.step, found.base});
    shared_->counters.divergences += found.has_diverged ? 1U : 0U;
    ++shared_->counters.acquires;
    if (shared_->log.is_read()) [[unlikely]] {
        shared_->log.lease_began(id.value(), access, first_of(lease), stream, found.has_diverged, [&] {
            // Where the device cannot be asked what has arrived, a later call says so.
            if (shared_->is_eager()) { static_cast<void>(copy_scheduler.poll_arrivals().has_value()); }
        });
    }
    return id;
}

template <Device D>
Error LeaseKeeper<D>::no_pass() {
    return {ErrorKind::wrong_state, "no pass is open: begin one, and acquire through it"};
}

template <Device D>
Error LeaseKeeper<D>::no_weight(WeightId weight) const {
    return {ErrorKind::invalid_argument, "the catalog of " + std::to_string(shared_->catalog.weights().size()) +
                                             " weights has no weight " + std::to_string(index(weight))};
}

template <Device D>
Error LeaseKeeper<D>::unread() const {
    return {ErrorKind::io, "bytes of " + shared_->catalog.describe(shared_->unread.front()) +
                               " could not be read: the next pass brings them again"};
}

template <Device D>
Error LeaseKeeper<D>::ended_with_capture() {
    return {ErrorKind::wrong_state, "the lease was ended with the capture that it was acquired in"};
}

template <Device D>
Status LeaseKeeper<D>::use_on(LeaseId id, Stream stream) {
    shared_->check_caller();
    LeaseRecord* const lease = leases_.find(id);
    if (lease == nullptr) { return ended_with_capture(); }
    auto consumer = shared_->copy_scheduler.consumer(stream);
    if (!consumer) { return consumer.error(); }
    for (const ConsumerId known : lease->consumers) {
        if (known == *consumer) { return {}; }
    }
    const bool needs_record = this->needs_record(lease->storages);
    if (needs_record) {
        if (auto allowed = shared_->copy_scheduler.refuse_capture(*consumer); !allowed) { return allowed.error(); }
    }
    const bool was_ticket = lease->consumers.empty();
    shared_->log.stream_comes(stream, was_ticket);
    auto waited = wait_for_arrival(id, *lease, *consumer, needs_record);
    if (waited && was_ticket) { shared_->log.ticket_began(id.value(), lease->access, first_of(*lease)); }
    return waited;
}

template <Device D>
Status LeaseKeeper<D>::wait_for(LeaseId id, typename D::Event event) {
    shared_->check_caller();
    const LeaseRecord* const lease = leases_.find(id);
    if (lease == nullptr) { return ended_with_capture(); }
    shared_->log.interrupted();  // the step's time would hold that of the wait
    for (const ConsumerId consumer : lease->consumers) {
        const Stream stream = shared_->copy_scheduler.stream_of(consumer);
        if (auto waited = shared_->device->wait(stream, event); !waited) { return waited; }
    }
    return {};
}

template <Device D>
Status LeaseKeeper<D>::record(LeaseId id, typename D::Event event) {
    shared_->check_caller();
    const LeaseRecord* const lease = leases_.find(id);
    if (lease == nullptr) { return ended_with_capture(); }
    CopyScheduler<D>& copy_scheduler = shared_->copy_scheduler;
    const ConsumerId first = lease->consumers.front();
    for (const ConsumerId other : std::span{lease->consumers}.subspan(1)) {
        // What others wait for must not become part of a capture of the caller's.
        if (auto allowed = copy_scheduler.refuse_capture(other); !allowed) { return allowed; }
        if (auto point = copy_scheduler.record_point(other); !point) { return point.error(); }
        if (auto joined = copy_scheduler.wait_for_last_point(first, other); !joined) { return joined; }
    }
    return shared_->device->record(event, copy_scheduler.stream_of(first));
}

template <Device D>
void LeaseKeeper<D>::end(LeaseId id) noexcept {
    shared_->check_caller();
    LeaseRecord* const found = leases_.find(id);
    if (found == nullptr) { return; }
    const LeaseRecord& lease = *found;
    CopyScheduler<D>& copy_scheduler = shared_->copy_scheduler;
    bool is_recorded = true;
    const bool needs_record = this->needs_record(lease.storages);
    const std::uint32_t now = shared_->cursor.position().step;
    if (needs_record && lease.access.step + lease.token.undisturbed_steps < now && now != AccessPoint::nowhere &&
        lease.pass == pass_) {
        note_held(lease, now);
    }
    const bool is_read = shared_->log.is_read();
    for (const ConsumerId consumer : lease.consumers) {
        if (is_read) [[unlikely]] {
            shared_->log.lease_ends(id.value(), lease.access, copy_scheduler.stream_of(consumer),
                                    consumer == lease.consumers.front());
        }
        if (!needs_record) {
            copy_scheduler.note_use(consumer);
        } else if (auto point = copy_scheduler.record_use(consumer, lease.storages); !point) {
            shared_->keep_failure(point.error());
            is_recorded = false;
        }
        copy_scheduler.release(consumer);
    }
    count(lease.storages, -1);
    if (!lease.consumers.empty()) { count_steps(lease, -1); }
    if (!shared_->decider->rests()) { shared_->decider->released(lease.token, is_recorded); }
    if (is_read && !lease.consumers.empty()) [[unlikely]] {
        shared_->log.lease_ended(id.value(), lease.access, copy_scheduler.stream_of(lease.consumers.front()));
    }
    leases_.close(id);
}

template <Device D>
inline Status LeaseKeeper<D>::wait_for_arrival(LeaseId id, LeaseRecord& lease, ConsumerId consumer, bool is_allowed) {
    EventPoint arrival = 0;
    for (const StorageId storage : lease.storages) {
        arrival = (std::max)(arrival, shared_->states[index(storage)].arrival);
    }
    auto waited = shared_->log.is_read() ? wait_watched(id, lease, consumer, arrival, is_allowed)
                                         : shared_->copy_scheduler.stream_wait_arrival(consumer, arrival, is_allowed);
    if (!waited) { return waited; }
    const Stream stream = shared_->copy_scheduler.stream_of(consumer);
    if (shared_->log.is_read()) [[unlikely]] {
        shared_->log.reads({id.value(), lease.access, lease.storages, stream, arrival});
    }
    if (shared_->unpacks) {
        if (auto unpacked = shared_->decider->unpack(lease.storages, consumer); !unpacked) {
            shared_->log.lease_failed(id.value(), stream);
            return unpacked;
        }
    }
    if (lease.consumers.empty()) { count_steps(lease, 1); }
    lease.consumers.push_back(consumer);
    shared_->copy_scheduler.retain(consumer);
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core
