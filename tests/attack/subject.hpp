// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/broker/model_group.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/model/use_order.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "residency/prefetch/hinted.hpp"
#include "tests/attack/device.hpp"
#include "tests/attack/model.hpp"

namespace attack {

using residency::Result;
using residency::Status;
using residency::StorageId;
using residency::WeightId;

/// What a Residency is made with, whatever its policies. What a composition does not have is left out.
struct Choice {
    std::optional<residency::Budget> budget;
    residency::Schedule schedule;
    bool strict = false, record = false, learn = false, poison = false, time_stalls = false;
    bool measures = false;  ///< the link, where it plans
    std::uint64_t chunk_bytes = 4096;
    std::uint32_t leases_at_once = 1;
    std::function<Status(StorageId, std::uint64_t, std::uint64_t)> before_read;  ///< of a staged transport
    std::vector<Device*> neighbours;                                             ///< of a transport of several links
    std::vector<std::uint64_t> memory_bytes;                                     ///< of these, in which bytes lie
    const Unpacker* unpacker = nullptr;                                          ///< of packed weights
    residency::pool::ChunkStock<Device>* stock = nullptr;                        ///< of a group of models; null: none
};

using Group = residency::ModelGroup<Device>;

/// What the body of a capture may do.
struct CapturedSteps {
    std::function<Status(std::uint32_t step)> acquire;  ///< the lease of the step before ends
    std::function<std::span<const std::byte>(WeightId)> bytes;
    std::function<void()> release;
};

/// A Residency of any composition with its pass, leases, tickets and graphs, so that the attack is compiled once. Leases and tickets
/// are named by their place in the order in which they were taken; those of a lease stay.
class Subject {
public:
    Subject() = default;
    Subject(const Subject&) = delete;
    Subject& operator=(const Subject&) = delete;
    virtual ~Subject() = default;

    virtual Status begin(Stream stream) = 0;
    virtual Status end() = 0;
    virtual Status wait() = 0;
    [[nodiscard]] virtual bool is_open() const = 0;
    virtual Result<std::size_t> acquire_step(std::uint32_t step, std::optional<Stream> stream) = 0;
    virtual Result<std::size_t> acquire_range(residency::StepRange range) = 0;
    [[nodiscard]] virtual std::vector<residency::StepRange> ranges() = 0;  ///< where it plans
    virtual Result<std::size_t> acquire(std::span<const WeightId> weights, std::optional<Stream> stream) = 0;
    virtual Status request_step(std::uint32_t step) = 0;
    virtual Status request(std::span<const WeightId> weights) = 0;
    [[nodiscard]] virtual std::size_t tickets() const = 0;
    virtual Result<std::size_t> lease_ticket(std::size_t ticket, std::optional<Stream> stream) = 0;
    virtual void drop_ticket(std::size_t ticket) = 0;
    [[nodiscard]] virtual std::span<const std::byte> bytes(std::size_t lease, WeightId weight) = 0;
    virtual Status use_on(std::size_t lease, Stream stream) = 0;
    virtual void end_lease(std::size_t lease) = 0;
    virtual void forget_leases() = 0;  ///< all have ended: the next one is number 0

    virtual Status set_budget(const residency::Budget& budget) = 0;
    virtual Status reclaim_pending() = 0;
    virtual Status set_schedule(const residency::Schedule& schedule) = 0;
    virtual Status suspend() = 0;
    virtual Status resume() = 0;
    [[nodiscard]] virtual bool is_suspended() = 0;
    /// None: all that are not mutable.
    virtual Status refresh(std::optional<std::span<const WeightId>> weights, const std::function<Status()>& write) = 0;
    virtual Status drain() = 0;
    virtual Status transport_status() = 0;
    virtual Status hint(std::span<const residency::prefetch::Hint> hints) = 0;
    virtual Status recorded() = 0;
    virtual Result<residency::broker::PassEnd> at_pass_end(residency::broker::ModelClient& client) = 0;
    [[nodiscard]] virtual std::uint64_t pending_bytes() = 0;
    [[nodiscard]] virtual residency::ResolvedBudget budget() = 0;
    [[nodiscard]] virtual residency::Statistics statistics() = 0;
    [[nodiscard]] virtual const residency::Schedule& schedule() = 0;
    virtual void move_to_another_object() = 0;

    virtual Status capture(Stream stream, const std::function<Status(const CapturedSteps&)>& body) = 0;
    [[nodiscard]] virtual std::size_t graphs() = 0;
    [[nodiscard]] virtual bool is_stale(std::size_t graph) = 0;
    virtual Status launch(std::size_t graph, Stream stream) = 0;
    virtual void drop_graph(std::size_t graph) = 0;

    // Of one that was made with the stock of a group.
    virtual Status join(Group& group, Group::MemberOptions options) = 0;
    virtual Status activate() = 0;  ///< without waiting for others
    virtual void end_use() = 0;
    [[nodiscard]] virtual bool is_used() = 0;  ///< awake until end_use()
    virtual Status prepare(std::optional<std::uint64_t> most_bytes) = 0;
};

/// A composition.
struct Kind {
    const char* name;
    Result<std::unique_ptr<Subject>> (*make)(Device&, const residency::Catalog&, const Choice&);
    Result<residency::ResolvedBudget> (*resolve)(Device&, const residency::Catalog&, const Choice&);
    Source source;
    bool is_planned;

    [[nodiscard]] bool is_staged() const noexcept { return source == Source::file; }
    [[nodiscard]] bool has_links() const noexcept { return source == Source::large; }
    /// Graphs of it can be captured.
    [[nodiscard]] bool has_graphs() const noexcept { return is_planned && !is_staged(); }
};

/// All compositions under attack.
[[nodiscard]] std::vector<Kind> kinds();

}  // namespace attack
