// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace model_based {

using Device = residency::SimulatedDevice;
using residency::StorageId;
using residency::WeightId;

/// A Residency of any composition, with its pass, its leases and its tickets, so that what runs programs is compiled once. Leases
/// and tickets are numbered in the order of their creation; one that ends leaves its number to the next.
class AnyWeights {
public:
    using Stream = Device::Stream;

    AnyWeights() = default;
    AnyWeights(const AnyWeights&) = delete;
    AnyWeights& operator=(const AnyWeights&) = delete;
    virtual ~AnyWeights() = default;

    virtual residency::Status try_begin(Stream stream) = 0;
    virtual residency::Status try_end() = 0;
    virtual residency::Status try_wait() = 0;
    virtual void drop_pass() = 0;

    /// A further lease.
    virtual residency::Status try_acquire(const residency::Schedule::Step& step, Stream stream) = 0;
    virtual residency::Status try_acquire(std::span<const WeightId> weights, std::optional<Stream> stream) = 0;
    virtual residency::Status try_lease(std::size_t ticket, std::optional<Stream> stream) = 0;
    virtual residency::Status try_use_on(std::size_t lease, Stream stream) = 0;
    [[nodiscard]] virtual const std::byte* data(std::size_t lease, WeightId weight) const = 0;
    [[nodiscard]] virtual std::span<const std::byte> bytes(std::size_t lease, WeightId weight) const = 0;
    virtual void swap_leases(std::size_t one, std::size_t other) = 0;
    virtual void end_lease(std::size_t lease) = 0;
    virtual void end_leases() = 0;

    /// A further ticket.
    virtual residency::Status try_request(const residency::Schedule::Step& step) = 0;
    virtual residency::Status try_request(std::span<const WeightId> weights) = 0;
    virtual void drop_ticket(std::size_t ticket) = 0;
    virtual void drop_tickets() = 0;

    virtual residency::Status try_drain() = 0;
    virtual residency::Status try_set_schedule(residency::Schedule schedule) = 0;
    virtual residency::Result<residency::BudgetChange> try_set_budget(const residency::Budget& budget) = 0;
    /// Nothing happens where the prefetcher takes no hints.
    virtual residency::Status try_hint(std::span<const residency::prefetch::Hint> hints) = 0;
    [[nodiscard]] virtual residency::Statistics statistics() const = 0;
    [[nodiscard]] virtual const residency::ResolvedBudget& budget() const = 0;
    [[nodiscard]] virtual const residency::BudgetChange& budget_change() const = 0;
    [[nodiscard]] virtual std::uint64_t pending_bytes() const = 0;
    [[nodiscard]] virtual const std::optional<residency::Error>& failure() const = 0;
    [[nodiscard]] virtual const residency::Schedule& schedule() const = 0;
};

/// What a program is run on.
struct Composition {
    residency::Result<std::unique_ptr<AnyWeights>> (*try_create)(Device& device, const residency::Catalog& catalog,
                                                                 const residency::Budget& budget,
                                                                 const residency::Schedule& schedule, bool poison);
    bool is_planned, is_slab;
};

}  // namespace model_based
