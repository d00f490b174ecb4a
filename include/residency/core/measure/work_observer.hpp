// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "residency/config.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/device/device.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// What a session tells of the work that it enqueues, at the place in each stream where it lies, so that an observer can record events
/// of its own there. Calls come from the threads that use the session, one at a time; between capture_begins() and capture_ends() they are
/// about what a graph will do. No call may block or use the session. Work in a capture of the caller's is not told.
template <Device D>
class WorkObserver {
public:
    using Stream = typename D::Stream;

    /// A lease on one of its streams.
    struct Read {
        std::uint64_t lease = 0;              ///< names it until it ends
        AccessPoint access;                   ///< of the schedule in force
        std::span<const StorageId> storages;  ///< that it covers; valid during the call
        Stream stream{};
        std::uint64_t arrival = 0;  ///< its stream waits for the copies up to this point
    };

    WorkObserver() = default;
    WorkObserver(const WorkObserver&) = delete;
    WorkObserver& operator=(const WorkObserver&) = delete;
    virtual ~WorkObserver() {
        RESIDENCY_ASSERT(sessions_ == 0,
                         "end the Residency before what observes it, or take that away with try_observe(nullptr)");
    }

    /// From now on it is told of the work of a session with this catalog.
    virtual void observes(const Catalog& catalog) = 0;

    /// After a pass has begun on a stream, before anything of it.
    virtual void pass_begins(Stream stream, const Schedule& schedule) = 0;
    /// After all that the pass enqueued on its stream. Leases may still be open.
    virtual void pass_ends(Stream stream, const Counters& pass) = 0;
    /// The device bytes that are held now, and the budget in force.
    virtual void holds(std::uint64_t held_bytes, std::uint64_t budget_bytes) = 0;

    /// Before anything is enqueued for a lease on a stream. Does not come about where read_begins() does not follow.
    virtual void read_comes(Stream stream) = 0;
    /// After the stream's wait for the bytes.
    virtual void read_begins(const Read& read) = 0;
    /// Before the end of the lease is recorded.
    virtual void read_ends(std::uint64_t lease, Stream stream) = 0;

    /// After the copy stream's waits for what is overwritten, before copies that start together.
    virtual void copies_begin(Stream copy_stream) = 0;
    /// Behind them, before their point is recorded. `arrival`: that point, by which reads name them; points grow. 0: the copies failed.
    virtual void copies_end(Stream copy_stream, std::span<const transport::Fetch> copies, std::uint64_t arrival) = 0;

    virtual void capture_begins() = 0;
    /// Returns its name for the captured pass; 0: it has none, or the capture failed.
    [[nodiscard]] virtual std::uint64_t capture_ends(bool is_captured) = 0;
    /// Before and behind a launch of a captured pass. 0: it was captured while this observer was not told.
    virtual void graph_comes(std::uint64_t captured, Stream stream) = 0;
    virtual void graph_launched(Stream stream, const Counters& pass) = 0;
    /// That graph is not launched any more. Its last launch may still run.
    virtual void graph_ends(std::uint64_t captured) = 0;

    /// A session tells it of its work from now on, or no longer.
    /// @{
    void attach() noexcept { ++sessions_; }
    void detach() noexcept { --sessions_; }
    /// @}

private:
    unsigned sessions_ = 0;  // that tell it of their work
};

}}}  // namespace residency::RESIDENCY_ABI::core
