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
#include "residency/budget/budget.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// A total of device bytes for all clients of a broker, and how it came about.
struct ResolvedTotal {
    std::uint64_t bytes = 0;        ///< the total
    std::uint64_t asked_bytes = 0;  ///< before it was clamped
    bool is_clamped = false;        ///< more was asked than is free
    std::string text;               ///< one line: what was asked, and what came of it
};

/// Resolves a total that is stated as a Budget: bytes, a share of the free memory, or automatic, which is the free memory less the
/// reserve. Clamps it to what is free: a broker promises nothing else. Error budget: a share of the weights, since a total is of no one model;
/// zero; nothing is free; or an automatic total of zero.
[[nodiscard]] RESIDENCY_INLINE Result<ResolvedTotal> resolve_total(const Budget& total, const MemoryInfo& memory,
                                                                   std::uint64_t reserve_bytes);

}}}  // namespace residency::RESIDENCY_ABI::broker

namespace residency { inline namespace RESIDENCY_ABI {

/// One total of device bytes that several models and the user's own memory share; what is granted never exceeds it:
///
///     auto broker = BudgetBroker::create(device, "20GiB");        // or {{.total_bytes = 20 * GiB}}
///     auto sizes = Weights::resolve_budget(device, catalog, {.budget = Budget::bytes(0), .schedule = schedule});
///     auto client = broker.add_model({.name = "draft", .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
///     Weights weights{device, catalog, {.budget = client.budget(), .schedule = schedule}};
///     auto cache = broker.add_memory({.name = "KV cache", .priority = 1});
///     …
///     auto end = client.at_pass_end(weights);    // between passes: the budget follows
///     cache.take(bytes);                         // at any time: from what is free, or refused at once
///
/// The *total* is the broker's, a *budget* is one model's. Both are stated as a residency::Budget. The rules:
///  B1 Each client's target is its share by broker::split: every floor first, then the higher priority, and within one priority the
///     same share of the bytes that each client streams at its floor.
///  B2 The sum of what is granted never exceeds the total, and no client holds more than it was granted. What one client gives back
///     is granted to another only afterwards.
///  B3 A model's budget changes at its own pass ends, in its owner's thread, by most_moved_bytes at most. An open pass defers it to
///     the next one. What open leases keep beyond a smaller budget stays granted to the model until the model gives it back.
///  B4 A model gives back only if its target is below its budget and others are owed more than is free. It then gives back half the
///     hysteresis more than its target asks. It begins to grow only by the hysteresis or more; then it grows to its target in steps
///     of B3, or to all that it wants if at least the hysteresis stays free. So targets that move up and down by less than half the
///     hysteresis change no budget twice.
///  B5 Memory is taken at once, up to the target, from what is granted or free. Otherwise it is refused at once, and wanted from
///     then on. Memory above its target is asked back, never revoked.
///  B6 When requests have stopped and every model ends passes, every client comes to its target, a model to within its hysteresis.
///     Clients with memory above their target are excepted.
///
/// Give a growing KV cache a higher priority than the weights that it is to displace. Thread safe. The clients may outlive the
/// broker.
class BudgetBroker {
public:
    using Config = broker::Settings;          ///< the total, and how it is dealt out
    using Account = broker::Account;          ///< what one client has
    using Statistics = broker::Ledger::Sums;  ///< sums over all clients

    /// A client that is a Residency.
    struct ModelOptions {
        std::string name;                        ///< for messages
        std::int32_t priority = 0;               ///< the higher one is served first
        std::uint64_t floor_bytes = UINT64_MAX;  ///< the smallest budget that works; UINT64_MAX: not given, an error
        std::uint64_t wanted_bytes = 0;  ///< granted at most: what all that steps read takes; below floor_bytes: that
    };
    /// A client that allocates by itself, such as a KV cache.
    struct MemoryOptions {
        std::string name;                        ///< for messages
        std::int32_t priority = 0;               ///< the higher one is served first
        std::uint64_t floor_bytes = 0;           ///< granted at least, used or not
        std::uint64_t headroom_bytes = 0;        ///< wanted beyond what is used: to be taken within a pass
        std::uint64_t limit_bytes = UINT64_MAX;  ///< used at most; at least floor_bytes
    };

    /// Has the total of `config`.
    explicit BudgetBroker(Config config) : ledger_{std::make_shared<broker::Ledger>(config)} {}

    /// Bytes of the device that an automatic total leaves free.
    static constexpr std::uint64_t usual_reserve_bytes = std::uint64_t{512} << 20;

    /// A broker with a total that broker::resolve_total() resolves; Config::total_bytes is not read. Errors: malformed for a text
    /// that is no budget; budget; the device's own.
    template <Device D>
    [[nodiscard]] static Result<BudgetBroker> try_create(D& device, const Budget& total, Config config = {},
                                                         std::uint64_t reserve_bytes = usual_reserve_bytes) {
        auto resolved = resolve(device, total, reserve_bytes);
        if (!resolved) { return resolved.error(); }
        config.total_bytes = resolved->bytes;
        return BudgetBroker{config};
    }
    /// As above, with the total as a text that Budget::try_parse() takes.
    template <Device D>
    [[nodiscard]] static Result<BudgetBroker> try_create(D& device, std::string_view total, Config config = {},
                                                         std::uint64_t reserve_bytes = usual_reserve_bytes) {
        const auto parsed = parse(total);
        if (!parsed) { return parsed.error(); }
        return try_create(device, *parsed, config, reserve_bytes);
    }

    /// Adds a client. Errors: invalid_argument where it has no floor; budget where the floors together exceed the total.
    [[nodiscard]] Result<broker::ModelClient> try_add_model(ModelOptions options) {
        if (options.floor_bytes == UINT64_MAX) {
            return Error{ErrorKind::invalid_argument,
                         "\"" + options.name +
                             "\" cannot join without a floor: give floor_bytes, the smallest budget that "
                             "works, and wanted_bytes as try_resolve_budget of the model has them for a budget of 0: "
                             "floor_bytes and resident_from_bytes"};
        }
        auto id = ledger().open(std::move(options.name), broker::ClientKind::model,
                                {options.priority, options.floor_bytes, options.wanted_bytes}, 0, UINT64_MAX);
        if (!id) { return id.error(); }
        return broker::ModelClient{ledger_, *id};
    }
    /// Adds memory that a program allocates by itself; errors: invalid_argument where its limit is below its floor;
    /// budget where the floors together exceed the total.
    [[nodiscard]] Result<broker::MemoryClient> try_add_memory(MemoryOptions options) {
        auto id = ledger().open(std::move(options.name), broker::ClientKind::memory,
                                {options.priority, options.floor_bytes, options.floor_bytes}, options.headroom_bytes,
                                options.limit_bytes);
        if (!id) { return id.error(); }
        return broker::MemoryClient{ledger_, *id};
    }
    /// Another total. A smaller one comes into force as the clients give back; statistics().granted_bytes shows it. Error budget:
    /// it is below the sum of the floors; the old total stays.
    [[nodiscard]] Status try_set_total(std::uint64_t total_bytes) { return ledger().set_total(total_bytes); }
    /// Another total, stated as a budget. What the clients use counts as free.
    template <Device D>
    [[nodiscard]] Status try_set_total(D& device, const Budget& total,
                                       std::uint64_t reserve_bytes = usual_reserve_bytes) {
        auto resolved = resolve(device, total, reserve_bytes, ledger().sums().used_bytes);
        if (!resolved) { return resolved.error(); }
        return try_set_total(resolved->bytes);
    }
    /// As above, with the total as a text.
    template <Device D>
    [[nodiscard]] Status try_set_total(D& device, std::string_view total,
                                       std::uint64_t reserve_bytes = usual_reserve_bytes) {
        const auto parsed = parse(total);
        if (!parsed) { return parsed.error(); }
        return try_set_total(device, *parsed, reserve_bytes);
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_create(), but throws Exception.
    template <Device D, class Total>
    [[nodiscard]] static BudgetBroker create(D& device, const Total& total, Config config = {},
                                             std::uint64_t reserve_bytes = usual_reserve_bytes) {
        return unwrap(try_create(device, total, config, reserve_bytes));
    }
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] broker::ModelClient add_model(ModelOptions options) {
        return unwrap(try_add_model(std::move(options)));
    }
    [[nodiscard]] broker::MemoryClient add_memory(MemoryOptions options) {
        return unwrap(try_add_memory(std::move(options)));
    }
    void set_total(std::uint64_t total_bytes) { unwrap(try_set_total(total_bytes)); }
    /// @}
#endif

    /// Now; thread safe.
    [[nodiscard]] Statistics statistics() const { return ledger().sums(); }
    /// The accounts of all clients, in the order in which they were added. A new client takes the place of one that left.
    [[nodiscard]] std::vector<Account> accounts() const { return ledger().accounts(); }

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

    [[nodiscard]] broker::Ledger& ledger() const noexcept {
        RESIDENCY_ASSERT(ledger_ != nullptr, "this broker was moved from: use the one that it was moved to");
        return *ledger_;
    }

    std::shared_ptr<broker::Ledger> ledger_;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/broker/impl/broker.ipp"
#endif
