// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "residency/config.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What an Event says.
enum class EventKind : std::uint8_t {
    pass_began,      ///< the first event of a pass
    pass_ended,      ///< `counters`: of the pass. Leases may be open, and copies on their way
    graph_launched,  ///< a captured pass was enqueued; `counters`: of the pass. Nothing else is said of it
    lease_began,  ///< `steps`, `lease`; `storage`: the first that it covers. Not of a ticket before it becomes a lease
    lease_ended,  ///< `steps`, `lease`
    wait_began,  ///< a stream is about to be made to wait for `storage`, the last of a lease to arrive: `steps`, `lease`
    wait_ended,  ///< it was
    copy_began,  ///< a call of copies is about to be enqueued: `copies`, `bytes`; `storage`: of the first
    copy_ended,  ///< it was, or was refused: `error`
    arrived,     ///< `bytes` of `storage` are on the device, as the library has come to know: see Event
    evicted,     ///< `bytes` of `storage` may be overwritten from now on
    stalled,  ///< a stream had to wait: `duration`, `cause`, `steps`, `storage`. Needs Options::time_stalls; of a pass that may be over
    diverged,        ///< an access that the schedule did not announce: `storage`, the first of it, at `steps`
    budget_changed,  ///< `change`; `bytes`: the budget in force
    failed,          ///< `error`: a call returned it, or no call could (Residency::failure())
};
inline constexpr std::size_t event_kinds = 15;  ///< how many there are
/// The name of the enumerator.
[[nodiscard]] inline std::string_view to_string(EventKind kind) noexcept {
    switch (kind) {
        case EventKind::pass_began: return "pass_began";
        case EventKind::pass_ended: return "pass_ended";
        case EventKind::graph_launched: return "graph_launched";
        case EventKind::lease_began: return "lease_began";
        case EventKind::lease_ended: return "lease_ended";
        case EventKind::wait_began: return "wait_began";
        case EventKind::wait_ended: return "wait_ended";
        case EventKind::copy_began: return "copy_began";
        case EventKind::copy_ended: return "copy_ended";
        case EventKind::arrived: return "arrived";
        case EventKind::evicted: return "evicted";
        case EventKind::stalled: return "stalled";
        case EventKind::diverged: return "diverged";
        case EventKind::budget_changed: return "budget_changed";
        case EventKind::failed: return "failed";
    }
    return "";
}

/// Something that happened, as an EventHandler is told it. What is not named at its kind is unset. Pointers and spans are valid during the
/// call.
///
/// An event is what the host decided or came to know, in that order; it makes the host ask nothing more than whether copies are complete. So
/// `arrived` lags behind the arrival: it is said at the next lease, begin or end of a pass or wait for the device, in the order of the copies.
/// A pass that is captured, by Residency::capture or by the caller, says nothing while it is recorded, except `failed`: nothing of it runs.
/// Every launch of a graph of Residency::capture says `graph_launched`.
struct Event {
    static constexpr std::uint32_t no_step = UINT32_MAX;  ///< of no step of the schedule

    EventKind kind = EventKind::failed;          ///< says which of the others are set
    std::chrono::nanoseconds at{};               ///< when it is said, on the device's clock: Device::host_time()
    std::uint64_t pass = 0;                      ///< of the pass that is open or was last, counted from 0
    StepRange steps{no_step, no_step};           ///< of the schedule; both no_step: of none
    std::uint64_t lease = 0;                     ///< tells the open leases of one Residency apart
    StorageId storage = no_storage;              ///< weights lie on storages: weight() names the first
    std::uint64_t bytes = 0;                     ///< of `storage`, of all `copies`, or of the device
    std::chrono::nanoseconds duration{};         ///< on the device
    StallCause cause = StallCause::link;         ///< of a stall
    std::span<const transport::Fetch> copies{};  ///< the pieces of one call
    const Counters* counters = nullptr;          ///< of one pass
    const BudgetChange* change = nullptr;        ///< of the budget
    const Error* error = nullptr;                ///< what failed
    const Catalog* catalog = nullptr;            ///< always set
    const Schedule* schedule = nullptr;          ///< always set; that in force

    /// The name of the first weight of a storage; empty for none.
    [[nodiscard]] std::string_view name_of(StorageId id) const noexcept {
        if (id == no_storage) { return {}; }
        const auto weights = catalog->weights_of(id);
        return weights.empty() ? std::string_view{} : std::string_view{catalog->weight(weights.front()).name};
    }
    /// The name of the first weight of `storage`.
    [[nodiscard]] std::string_view weight() const noexcept { return name_of(storage); }
    /// The name that the schedule gives the first of `steps`; empty for none.
    [[nodiscard]] std::string_view step_name() const noexcept {
        return steps.first < schedule->size() ? std::string_view{(*schedule)[steps.first].name} : std::string_view{};
    }
};

/// Is told events: Options::on_event. It is called by the thread that called the library, before that call returns; never by a thread of a
/// transport. It may read what the event points to. It must not call the Residency that it is told of, nor its passes, leases and tickets:
/// an assertion says so where assertions are on. It should be quick: the caller waits for it. What it throws ends the telling: it is not
/// called again, and Residency::failure() says why. The destructor of a Residency calls it no more.
using EventHandler = std::function<void(const Event&)>;

}}  // namespace residency::RESIDENCY_ABI
