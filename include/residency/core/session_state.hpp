// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "residency/core/copy_scheduler.hpp"
#include "residency/core/decider.hpp"
#include "residency/core/schedule_cursor.hpp"
#include "residency/core/statistics.hpp"
#include "residency/core/storage_state.hpp"
#include "residency/model/catalog.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Whether work of a pass runs, or is recorded.
enum class PassMode : std::uint8_t {
    eager,             ///< it runs
    captured,          ///< recorded by Session::capture
    foreign_captured,  ///< recorded by a capture of the caller, with everything resident
};

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
    ScheduleCursor cursor;
    std::vector<StorageState> states;  ///< by storage
    Counters counters;                 ///< since construction
    Counters last_pass;                ///< of the last pass that ended
    CopyScheduler<D> copy_scheduler;
    std::unique_ptr<Decider<D>> decider;
    bool is_schedule_given = false;  ///< by the caller; otherwise steps mean nothing to the caller
    std::optional<Error> failure;    ///< the first failure that no call could report
    bool is_pass_open = false;
    PassMode pass_mode = PassMode::eager;  ///< of the pass that is open, or of the last one

    [[nodiscard]] const Schedule& schedule() const noexcept { return cursor.schedule(); }
    [[nodiscard]] bool is_eager() const noexcept { return pass_mode == PassMode::eager; }
    void keep_failure(const Error& error) {
        if (!failure) { failure = error; }
    }
    /// Keeps the failure of an operation that goes on without what failed.
    void keep_failure(const Status& status) {
        if (!status) { keep_failure(status.error()); }
    }
    /// The error of every call once the device could not be drained.
    [[nodiscard]] Error broken() const {
        if (failure) { return *failure; }
        return Error{ErrorKind::device, "the device could not be drained after a failed call; it is left alone"};
    }
    /// Blocks until every recorded use and every copy is complete; then reports what the transport failed at.
    [[nodiscard]] Status drain() {
        auto drained = copy_scheduler.drain_all();
        return drained ? copy_scheduler.transport_status() : std::move(drained);
    }
};

}}}  // namespace residency::RESIDENCY_ABI::core
