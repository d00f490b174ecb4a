// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include "residency/broker/ledger.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

/// A model whose budget a ModelClient changes: every Residency, and any class that keeps a cap as one does.
///  1. `m.try_set_budget(budget)`    a cap in bytes. Holds no more than the larger of the two caps at any instant of the change. On
///                                   failure the old cap stays in force; ErrorKind::wrong_state says: not now, ask again later
///  2. `m.budget()`                  `.bytes`: the cap in force
/// Optional, for models that accept a smaller cap before they can give everything back:
///  3. `m.pending_bytes()`           bytes still held beyond the cap
///  4. `m.try_reclaim_pending()`     gives back what it can of them by now
template <class Model>
concept Budgeted = requires(Model& model, const Model& const_model, const Budget& budget) {
    { model.try_set_budget(budget) } -> std::same_as<Result<BudgetChange>>;
    { const_model.budget().bytes } -> std::convertible_to<std::uint64_t>;
};

/// What ModelClient::try_at_pass_end did.
struct PassEnd {
    BudgetChange change;  ///< of the model's budget; before and after are the same where it did not change
    std::uint64_t given_back_later_bytes =
        0;                        ///< given back since the last pass end of what an earlier change left pending
    bool deferred = false;        ///< a change was due, but an open pass or lease is in the way
    bool more_is_coming = false;  ///< the budget is not yet the model's share: it changes again at a later pass end
};

/// A model's part of a BudgetBroker's total: the model holds no more than was granted to it. Must outlive the model; its end frees
/// what the model had for others. Belongs to one thread at a time, the model's own. A move empties its source.
class [[nodiscard]] ModelClient {
public:
    ModelClient() noexcept = default;
    /// Made by BudgetBroker.
    ModelClient(std::shared_ptr<Ledger> ledger, Ledger::Id id) noexcept : handle_{std::move(ledger), id} {}

    /// The budget to construct the model with. Error budget, with the numbers: others hold what the floor needs; they were asked
    /// for it, so ask again after their pass ends.
    [[nodiscard]] Result<Budget> try_budget() {
        auto started = ledger().start(handle_.id());
        if (!started) { return started.error(); }
        return Budget::bytes(*started);
    }
    /// Blocks while the model changes its budget. Call it between passes, from the thread that owns the model. Makes the change
    /// that is due, if one is, with try_set_budget. Errors: that of try_set_budget, with the old budget in force; wrong_state where
    /// somebody else raised the model's budget.
    template <Budgeted Model>
    [[nodiscard]] Result<PassEnd> try_at_pass_end(Model& model) {
        PassEnd end;
        const std::uint64_t before = model.budget().bytes;
        const Account account = ledger().account(handle_.id());
        const std::uint64_t pending_before = account.used_bytes > before ? account.used_bytes - before : 0;
        auto pending = reclaim(model);
        if (!pending) { return pending.error(); }
        end.given_back_later_bytes = pending_before > *pending ? pending_before - *pending : 0;
        const auto next = ledger().begin(handle_.id(), before, *pending);
        if (!next) { return next.error(); }
        end.change.pending_bytes = *pending;
        end.change.budget_before_bytes = end.change.budget_bytes = before;
        if (*next) {
            auto changed = model.try_set_budget(Budget::bytes(**next));
            ledger().finish(handle_.id(), model.budget().bytes, pending_of(model));
            if (changed) {
                end.change = *changed;
            } else if (changed.error().kind() == ErrorKind::wrong_state) {
                end.deferred = true;
            } else {
                return changed.error();
            }
        }
        end.more_is_coming = end.deferred || ledger().is_due(handle_.id());
        return end;
    }
    /// Another floor or another wanted size, such as those of another schedule. Raise a floor here first, and in the model once it
    /// is granted. Error budget: the floors together exceed the total.
    [[nodiscard]] Status try_set_claim(Claim claim) { return ledger().set_claim(handle_.id(), claim); }
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] Budget budget() { return unwrap(try_budget()); }
    template <Budgeted Model>
    PassEnd at_pass_end(Model& model) {
        return unwrap(try_at_pass_end(model));
    }
    void set_claim(Claim claim) { unwrap(try_set_claim(claim)); }
    /// @}
#endif
    /// What the client has now.
    [[nodiscard]] Account account() const { return ledger().account(handle_.id()); }

private:
    template <class Model>
    [[nodiscard]] static std::uint64_t pending_of(const Model& model) {
        if constexpr (requires { model.pending_bytes(); }) {
            return model.pending_bytes();
        } else {
            return 0;
        }
    }
    /// Gives back what the model can of its pending bytes. Returns those that are left.
    template <class Model>
    [[nodiscard]] static Result<std::uint64_t> reclaim(Model& model) {
        if constexpr (requires { model.try_reclaim_pending(); }) {
            if (auto done = model.try_reclaim_pending(); !done) { return done.error(); }
        }
        return pending_of(model);
    }
    [[nodiscard]] Ledger& ledger() const noexcept {
        RESIDENCY_ASSERT(handle_.state() != nullptr, "this client was moved from: use the one that it was moved to");
        return *handle_.state();
    }

    detail::ClientHandle handle_;
};

}}}  // namespace residency::RESIDENCY_ABI::broker
