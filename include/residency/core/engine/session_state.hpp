// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "residency/core/engine/copy_scheduler.hpp"
#include "residency/core/engine/decider.hpp"
#include "residency/core/engine/order_learner.hpp"
#include "residency/core/engine/schedule_cursor.hpp"
#include "residency/core/measure/mark_log.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/sort.hpp"
#include "residency/model/storage.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A device's graphs; nothing on a device that cannot capture.
template <Device D>
struct GraphType {
    struct type {};
};
template <CapturingDevice D>
struct GraphType<D> {
    using type = typename D::Graph;
};
template <Device D>
using GraphOf = typename GraphType<D>::type;

/// The device, catalog, storage states, counters, copy scheduler and decider of one session, shared by its parts (leases, budget, graphs,
/// profiler, residents). The session owns it; it outlives all of them.
template <Device D>
struct SessionState {
    D* device = nullptr;
    Catalog catalog;
    Catalog stored;  ///< the same storages, with the bytes in which they travel
    ScheduleCursor cursor;
    std::vector<StorageState> states;       ///< by storage
    std::vector<StorageId> weight_storage;  ///< by weight
    /// Storages of which the device may hold bytes that are not the source's, because a read failed: ascending. No lease begins before they
    /// were brought again.
    std::vector<StorageId> unread;
    std::optional<Error> untold;  ///< the first failure of the transport that settle() noted and drain() has not said
    Counters counters;            ///< since construction
    Counters last_pass;           ///< of the last pass that ended
    CopyScheduler<D> copy_scheduler;
    std::unique_ptr<Decider<D>> decider;
    OrderLearner order;            ///< where the schedule comes from
    std::optional<Error> failure;  ///< the first failure that no call could report
    bool is_pass_open = false;
    bool unpacks = false;                  ///< leases unpack what they cover: Decider::unpack
    PassMode pass_mode = PassMode::eager;  ///< of the pass that is open, or of the last one
    MarkLog<D> log;                        ///< what is told of all this

    /// As Catalog::contains, one load from here: each lease asks it.
    [[nodiscard]] bool contains(WeightId weight) const noexcept { return index(weight) < weight_storage.size(); }
    [[nodiscard]] const Schedule& schedule() const noexcept { return cursor.schedule(); }
    [[nodiscard]] bool is_eager() const noexcept { return pass_mode == PassMode::eager; }
    /// Precondition of every call of the session, its passes and leases that changes something.
    void check_caller() const noexcept {
        RESIDENCY_ASSERT(!log.is_telling(), "a handler of events must not call the Residency that it is told of");
    }
    /// From now on, passes are expected to end after `steps` steps of the schedule.
    [[nodiscard]] Status expect_steps(std::uint32_t steps) {
        if (steps == cursor.expected_steps()) { return {}; }
        cursor.expect_steps(steps);
        return decider->expect_steps(steps, schedule().use_order(steps), cursor.now());
    }
    [[nodiscard]] Status expect_all_steps() { return expect_steps(schedule().size()); }
    void keep_failure(const Error& error) {
        if (!failure) { failure = error; }
        log.failed(error);
    }
    /// Keeps the failure of an operation that goes on without what failed.
    void keep_failure(const Status& status) {
        if (!status) { keep_failure(status.error()); }
    }
    /// Each of `unread` once, ascending.
    void sort_unread() {
        residency::detail::sort(unread);
        unread.erase(std::unique(unread.begin(), unread.end()), unread.end());
    }
    /// Blocks until every recorded use and every copy is complete, and notes what the transport failed at: a later drain() says it.
    [[nodiscard]] Status settle() {
        if (auto drained = copy_scheduler.drain_all(); !drained) { return drained; }
        if (auto idle = copy_scheduler.transport().check_links(); !idle) { return idle; }
        if (auto healthy = copy_scheduler.transport_status(); !healthy) {
            copy_scheduler.transport().take_failure(unread);
            sort_unread();
            if (!untold) { untold = healthy.error(); }
        }
        return {};
    }
    /// Blocks until every recorded use and every copy is complete; then says what the transport has failed at since settle(), as often as it
    /// is asked.
    [[nodiscard]] Status await_copies() {
        if (auto drained = copy_scheduler.drain_all(); !drained) { return drained; }
        if (auto idle = copy_scheduler.transport().check_links(); !idle) { return idle; }
        return copy_scheduler.transport_status();
    }
    /// Precondition: settled. Blocks where something could not be read: brings it again.
    [[nodiscard]] Status bring_again() {
        if (unread.empty()) { return {}; }
        if (auto brought = bring_unread(); !brought) { return brought; }
        return await_copies();
    }
    /// Blocks until every recorded use and every copy is complete; then says, once, what the transport failed at, and brings what it could
    /// not read again.
    [[nodiscard]] Status drain() {
        if (auto settled = settle(); !settled) { return settled; }
        if (!untold) { return bring_again(); }
        static_cast<void>(bring_unread().has_value());  // it stays unread where that fails
        return tell();
    }
    /// What settle() has noted, once.
    [[nodiscard]] Status tell() {
        if (!untold) { return {}; }
        Status failed = *untold;
        untold.reset();
        return failed;
    }
    /// What the transport failed at, and no call has said.
    [[nodiscard]] Status transport_status() const {
        return untold ? Status{*untold} : copy_scheduler.transport_status();
    }
    /// Appends what of a storage lies on the device. Precondition: drained.
    [[nodiscard]] Status append_present(StorageId id, std::vector<transport::Fetch>& fetches) {
        const StorageState& state = states[index(id)];
        if (state.placement != Placement::resident || decider->holds_residents()) {
            return decider->append_present(id, fetches);
        }
        if (state.address != nullptr) { fetches.push_back({id, 0, stored.storage(id).bytes, state.address, true}); }
        return {};
    }
    /// Between passes: waits for copies whose arrival could not be recorded, and copies again what a transport failed to bring. Blocks
    /// if there is any of that, and then returns the failure of the transport, once.
    [[nodiscard]] Status recover_failed_calls() {
        if (auto idle = copy_scheduler.await_unrecorded_copies(); !idle) { return idle; }
        return unread.empty() && transport_status() ? Status{} : drain();
    }

    /// Reads what was measured and is complete. What fails costs a measurement.
    void collect() { keep_failure(log.collect(decider->planned_step_seconds())); }

private:
    /// Enqueues the copies of what is unread where it lies. Precondition: drained.
    [[nodiscard]] Status bring_unread() {
        if (unread.empty()) { return {}; }
        std::vector<transport::Fetch> fetches;
        for (const StorageId id : unread) {
            const StorageState& state = states[index(id)];
            if (state.leases > 0) {
                return Error{ErrorKind::wrong_state, "bytes of " + catalog.describe(id) +
                                                         " could not be read, and a lease covers it: end the lease, so "
                                                         "that they can be brought again"};
            }
            if (auto appended = append_present(id, fetches); !appended) { return appended; }
        }
        if (auto sent = copy_scheduler.transfer(fetches); !sent) { return sent.error(); }
        unread.clear();
        return {};
    }
};

}}}  // namespace residency::RESIDENCY_ABI::core
