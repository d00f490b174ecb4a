// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/broker/ledger.hpp"
#include "residency/broker/memory_client.hpp"
#include "residency/broker/model_client.hpp"
#include "residency/broker/split.hpp"
#include "residency/broker/total.hpp"
#include "residency/budget/budget.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/checked.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// One total of device bytes, shared by several models and by the user's own memory:
///
///     auto broker = BudgetBroker::create(device, "20GiB");        // or {{.total_bytes = 20 * GiB}}
///     auto sizes = Weights::resolve_budget(device, catalog, {.budget = Budget::bytes(0), .schedule = schedule});
///     auto client = broker.add_model({.name = "draft", .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.total_bytes});
///     Weights weights{device, catalog, {.budget = client.budget(), .schedule = schedule}};
///     auto cache = broker.add_memory({.name = "KV cache", .priority = 1});
///     …
///     auto end = client.at_pass_end(weights);    // between passes: the budget follows
///     cache.take(bytes);                         // at any time: from what is free, or refused at once
///
/// The *total* is the broker's, a *budget* is one model's; both are said in the words of residency::Budget. The rule:
///  B1 Each client's target is its share by broker::split: floors always, then the higher priority first, and within one priority
///     the same share of the bytes that each streams at its floor.
///  B2 The sum of what is granted never exceeds the total, and no client holds more than it was granted: what one gives back is
///     granted to another only afterwards.
///  B3 A model's budget changes at its own pass ends, in its owner's thread, by most_moved_bytes at most. With a pass open it is put
///     off to the next one. What open leases keep beyond a smaller budget stays granted to the model until it is given back.
///  B4 A model gives back only where the target is below its budget and others are owed more than is free; it gives back half the
///     hysteresis more than that. It begins to grow only where it may by the hysteresis or more, and then comes to its target in
///     pieces of B3; or to all that it wants, where at least the hysteresis stays free after that. So targets that move by less than
///     half the hysteresis, up and down, change nothing twice.
///  B5 Memory is taken at once, up to the target, from what is granted or free; or refused at once, and then wanted. What is taken
///     stays until it is given back: memory above its target is asked back, never revoked.
///  B6 When requests come to rest and every model ends passes, every client comes to its target, models to within their hysteresis
///     (clients with memory above their target apart).
///
/// Give a growing KV cache a higher priority than the weights that it squeezes out. Thread safe; the clients may outlive the broker.
class BudgetBroker {
public:
    using Config = broker::Settings;
    using Account = broker::Account;
    using Statistics = broker::Ledger::Sums;

    struct ModelOptions {
        std::string name;
        std::int32_t priority = 0;       ///< the higher one is served first
        std::uint64_t floor_bytes = 0;   ///< the smallest budget that works
        std::uint64_t wanted_bytes = 0;  ///< what everything takes
    };
    struct MemoryOptions {
        std::string name;
        std::int32_t priority = 0;
        std::uint64_t floor_bytes = 0;           ///< reserved, used or not
        std::uint64_t headroom_bytes = 0;        ///< wanted beyond what is used: what may be taken within a pass
        std::uint64_t limit_bytes = UINT64_MAX;  ///< never more than that
    };

    explicit BudgetBroker(Config config) : ledger_{std::make_shared<broker::Ledger>(config)} {}

    /// What of a device's memory a total is left free where it is automatic.
    static constexpr std::uint64_t usual_reserve_bytes = std::uint64_t{512} << 20;

    /// With a total in the words of a budget: see broker::resolve_total. Config::total_bytes is not read. Errors: malformed (the text),
    /// budget, or the device's own.
    template <Device D>
    [[nodiscard]] static Result<BudgetBroker> try_create(D& device, const Budget& total, Config config = {},
                                                         std::uint64_t reserve_bytes = usual_reserve_bytes) {
        auto resolved = resolve(device, total, reserve_bytes);
        if (!resolved) { return resolved.error(); }
        config.total_bytes = resolved->bytes;
        return BudgetBroker{config};
    }
    template <Device D>
    [[nodiscard]] static Result<BudgetBroker> try_create(D& device, std::string_view total, Config config = {},
                                                         std::uint64_t reserve_bytes = usual_reserve_bytes) {
        const auto parsed = parse(total);
        if (!parsed) { return parsed.error(); }
        return try_create(device, *parsed, config, reserve_bytes);
    }

    /// Error budget: the floors together exceed the total.
    [[nodiscard]] Result<broker::ModelClient> try_add_model(ModelOptions options) {
        auto id = ledger_->open(std::move(options.name), broker::ClientKind::model,
                                {options.priority, options.floor_bytes, options.wanted_bytes}, 0, UINT64_MAX);
        if (!id) { return id.error(); }
        return broker::ModelClient{ledger_, *id};
    }
    [[nodiscard]] Result<broker::MemoryClient> try_add_memory(MemoryOptions options) {
        auto id = ledger_->open(std::move(options.name), broker::ClientKind::memory,
                                {options.priority, options.floor_bytes, options.floor_bytes}, options.headroom_bytes,
                                options.limit_bytes);
        if (!id) { return id.error(); }
        return broker::MemoryClient{ledger_, *id};
    }
    /// Another total. A smaller one comes into force as the clients give back: statistics().granted_bytes tells. Error budget: below the
    /// sum of the floors; the old one stays.
    [[nodiscard]] Status try_set_total(std::uint64_t total_bytes) { return ledger_->set_total(total_bytes); }
    /// The same in the words of a budget. What the clients hold counts as free.
    template <Device D>
    [[nodiscard]] Status try_set_total(D& device, const Budget& total,
                                       std::uint64_t reserve_bytes = usual_reserve_bytes) {
        auto resolved = resolve(device, total, reserve_bytes, ledger_->sums().used_bytes);
        if (!resolved) { return resolved.error(); }
        return try_set_total(resolved->bytes);
    }
    template <Device D>
    [[nodiscard]] Status try_set_total(D& device, std::string_view total,
                                       std::uint64_t reserve_bytes = usual_reserve_bytes) {
        const auto parsed = parse(total);
        if (!parsed) { return parsed.error(); }
        return try_set_total(device, *parsed, reserve_bytes);
    }
#if RESIDENCY_EXCEPTIONS
    template <Device D, class Total>
    [[nodiscard]] static BudgetBroker create(D& device, const Total& total, Config config = {},
                                             std::uint64_t reserve_bytes = usual_reserve_bytes) {
        return unwrap(try_create(device, total, config, reserve_bytes));
    }
    [[nodiscard]] broker::ModelClient add_model(ModelOptions options) {
        return unwrap(try_add_model(std::move(options)));
    }
    [[nodiscard]] broker::MemoryClient add_memory(MemoryOptions options) {
        return unwrap(try_add_memory(std::move(options)));
    }
    void set_total(std::uint64_t total_bytes) { unwrap(try_set_total(total_bytes)); }
#endif

    [[nodiscard]] Statistics statistics() const { return ledger_->sums(); }
    /// Of all clients, in the order in which they were added; a place that was left is taken by the next.
    [[nodiscard]] std::vector<Account> accounts() const { return ledger_->accounts(); }

private:
    [[nodiscard]] static Result<Budget> parse(std::string_view total) {
        auto parsed = Budget::try_parse(total);
        if (!parsed) { return parsed.error().in("the total of a broker"); }
        return parsed;
    }
    template <Device D>
    [[nodiscard]] static Result<broker::ResolvedTotal> resolve(D& device, const Budget& total,
                                                               std::uint64_t reserve_bytes,
                                                               std::uint64_t held_bytes = 0) {
        auto memory = device.memory();
        if (!memory) { return memory.error(); }
        memory->free_bytes = (std::min)(memory->total_bytes, detail::saturating_add(memory->free_bytes, held_bytes));
        return broker::resolve_total(total, *memory, reserve_bytes);
    }

    std::shared_ptr<broker::Ledger> ledger_;
};

}}  // namespace residency::RESIDENCY_ABI
