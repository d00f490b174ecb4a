// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "residency/core/residency.hpp"
#include "residency/plan/options.hpp"
#include "residency/pool/slab.hpp"
#include "tests/model_based/any_weights.hpp"
#include "tests/support/compositions.hpp"

namespace model_based {

template <class Weights>
class WeightsOf final : public AnyWeights {
public:
    static residency::Result<std::unique_ptr<AnyWeights>> try_create(Device& device, const residency::Catalog& catalog,
                                                                     const residency::Budget& budget,
                                                                     const residency::Schedule& schedule, bool poison) {
        typename Weights::Options options;
        options.budget = budget;
        options.schedule = schedule;
        if constexpr (requires { options.poison; }) { options.poison = poison; }
        if constexpr (requires { options.policies.pool.chunk_bytes; }) { options.policies.pool.chunk_bytes = 4096; }
        if constexpr (requires { options.policies.options.effort; }) {
            options.policies.options.effort = residency::plan::Effort::quick;  // any plan will do
        }
        auto made = Weights::try_create(device, catalog, std::move(options));
        if (!made) { return made.error(); }
        return std::unique_ptr<AnyWeights>{new WeightsOf{std::move(*made)}};
    }

    residency::Status try_begin(Stream stream) override {
        auto pass = weights_.try_begin(stream);
        if (!pass) { return pass.error(); }
        pass_ = std::move(*pass);
        return {};
    }
    residency::Status try_end() override { return pass_.try_end(); }
    residency::Status try_wait() override { return pass_.try_wait(); }
    void drop_pass() override { pass_ = {}; }

    residency::Status try_acquire(const residency::Schedule::Step& step, Stream stream) override {
        return keep(leases_, pass_.try_acquire(step, stream));
    }
    residency::Status try_acquire(std::span<const WeightId> weights, std::optional<Stream> stream) override {
        return keep(leases_, stream ? pass_.try_acquire(weights, *stream) : pass_.try_acquire(weights));
    }
    residency::Status try_lease(std::size_t ticket, std::optional<Stream> stream) override {
        return keep(leases_, stream ? tickets_[ticket].try_lease(*stream) : tickets_[ticket].try_lease());
    }
    residency::Status try_use_on(std::size_t lease, Stream stream) override {
        return leases_[lease].try_use_on(stream);
    }
    [[nodiscard]] const std::byte* data(std::size_t lease, WeightId weight) const override {
        return leases_[lease].data(weight);
    }
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t lease, WeightId weight) const override {
        return leases_[lease].bytes(weight);
    }
    void swap_leases(std::size_t one, std::size_t other) override { std::swap(leases_[one], leases_[other]); }
    void end_lease(std::size_t lease) override { leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(lease)); }
    void end_leases() override { leases_.clear(); }

    residency::Status try_request(const residency::Schedule::Step& step) override {
        return keep(tickets_, pass_.try_request(step));
    }
    residency::Status try_request(std::span<const WeightId> weights) override {
        return keep(tickets_, pass_.try_request(weights));
    }
    void drop_ticket(std::size_t ticket) override {
        tickets_.erase(tickets_.begin() + static_cast<std::ptrdiff_t>(ticket));
    }
    void drop_tickets() override { tickets_.clear(); }

    residency::Status try_drain() override { return weights_.try_drain(); }
    residency::Status try_set_schedule(residency::Schedule schedule) override {
        return weights_.try_set_schedule(std::move(schedule));
    }
    residency::Result<residency::BudgetChange> try_set_budget(const residency::Budget& budget) override {
        return weights_.try_set_budget(budget);
    }
    residency::Status try_hint([[maybe_unused]] std::span<const residency::prefetch::Hint> hints) override {
        if constexpr (requires { weights_.prefetcher().hint(hints); }) {
            return weights_.prefetcher().hint(hints);
        } else {
            return {};
        }
    }
    [[nodiscard]] residency::Statistics statistics() const override { return weights_.statistics(); }
    [[nodiscard]] const residency::ResolvedBudget& budget() const override { return weights_.budget(); }
    [[nodiscard]] const residency::BudgetChange& budget_change() const override { return weights_.budget_change(); }
    [[nodiscard]] std::uint64_t pending_bytes() const override { return weights_.pending_bytes(); }
    [[nodiscard]] const std::optional<residency::Error>& failure() const override { return weights_.failure(); }
    [[nodiscard]] const residency::Schedule& schedule() const override { return weights_.schedule(); }

private:
    explicit WeightsOf(Weights&& weights) : weights_{std::move(weights)} {}

    template <class T>
    static residency::Status keep(std::deque<T>& kept, residency::Result<T> taken) {
        if (!taken) { return taken.error(); }
        kept.push_back(std::move(*taken));
        return {};
    }

    Weights weights_;
    typename Weights::Pass pass_;
    std::deque<typename Weights::Lease> leases_;
    std::deque<typename Weights::Ticket> tickets_;
};

template <class Pool>
inline constexpr bool is_slab = false;
template <class D>
inline constexpr bool is_slab<residency::pool::Slab<D>> = true;

template <class Evictor, class Prefetcher, class Pool>
constexpr Composition composition() {
    return {WeightsOf<residency::Residency<Evictor, Prefetcher, Pool>>::try_create,
            residency::core::evicts_by_plan<Evictor>, is_slab<Pool>};
}

}  // namespace model_based
