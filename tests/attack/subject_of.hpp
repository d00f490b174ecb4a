// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/plan/problem.hpp"
#include "tests/attack/subject.hpp"

namespace attack {

template <class Weights, bool planned>
class SubjectOf final : public Subject {
public:
    static typename Weights::Options options(const Choice& choice) {
        typename Weights::Options result;
        result.budget = choice.budget;
        result.schedule = choice.schedule;
        result.strict = choice.strict;
        result.record = choice.record;
        result.reserve_bytes = 0;
        if constexpr (requires { result.learn; }) { result.learn = choice.learn; }
        if constexpr (requires { result.poison; }) { result.poison = choice.poison; }
        result.time_stalls = choice.time_stalls;
        if constexpr (requires { result.policies.pool.chunk_bytes; }) {
            result.policies.pool.chunk_bytes = choice.chunk_bytes;
            result.policies.pool.stock = choice.stock;
            if (!choice.measures) { result.policies.link = residency::plan::Link{}; }
            result.policies.leases_at_once = choice.leases_at_once;
        }
        if constexpr (requires { result.policies.unpacker; }) { result.policies.unpacker = choice.unpacker; }
        if constexpr (requires { result.transport.neighbours; }) {
            result.transport.neighbours = choice.neighbours;
            result.transport.bounce_bytes = std::uint64_t{2} << 20U;
            result.transport.memory_bytes = choice.memory_bytes;
        }
        if constexpr (requires { result.transport.slot_bytes; }) {
            result.transport.slot_bytes = 4096;
            result.transport.ring_bytes = std::uint64_t{4} * 4096;
            result.transport.threads = 2;
            result.transport.before_read = choice.before_read;
        }
        return result;
    }
    static Result<std::unique_ptr<Subject>> make(Device& device, const residency::Catalog& catalog,
                                                 const Choice& choice) {
        auto made = Weights::try_create(device, catalog, options(choice));
        if (!made) { return made.error(); }
        return std::unique_ptr<Subject>{new SubjectOf{std::move(*made)}};
    }
    static Result<residency::ResolvedBudget> resolve(Device& device, const residency::Catalog& catalog,
                                                     const Choice& choice) {
        return Weights::try_resolve_budget(device, catalog, options(choice));
    }
    ~SubjectOf() override {
        use_.reset();
        member_.reset();
        graphs_.clear();
        leases_.clear();
        tickets_.clear();
        pass_ = {};
    }

    Status begin(Stream stream) override {
        auto pass = weights_.try_begin(stream);
        if (!pass) { return pass.error(); }
        pass_ = std::move(*pass);
        is_open_ = true;
        return {};
    }
    Status end() override {
        is_open_ = false;
        return pass_.try_end();
    }
    Status wait() override { return pass_.try_wait(); }
    bool is_open() const override { return is_open_; }
    Result<std::size_t> acquire_step(std::uint32_t step, std::optional<Stream> stream) override {
        const residency::Schedule::Step& declared = weights_.schedule()[step];
        return keep(stream ? pass_.try_acquire(declared, *stream) : pass_.try_acquire(declared));
    }
    Result<std::size_t> acquire_range(residency::StepRange range) override { return keep(pass_.try_acquire(range)); }
    std::vector<residency::StepRange> ranges() override {
        if constexpr (planned) {
            const auto ranges = weights_.ranges();
            return {ranges.begin(), ranges.end()};
        } else {
            return {};
        }
    }
    Result<std::size_t> acquire(std::span<const WeightId> weights, std::optional<Stream> stream) override {
        return keep(stream ? pass_.try_acquire(weights, *stream) : pass_.try_acquire(weights));
    }
    Status request_step(std::uint32_t step) override { return keep(pass_.try_request(weights_.schedule()[step])); }
    Status request(std::span<const WeightId> weights) override { return keep(pass_.try_request(weights)); }
    std::size_t tickets() const override { return tickets_.size(); }
    Result<std::size_t> lease_ticket(std::size_t ticket, std::optional<Stream> stream) override {
        auto taken = std::move(tickets_[ticket]);
        drop_ticket(ticket);
        return keep(stream ? taken.try_lease(*stream) : taken.try_lease());
    }
    void drop_ticket(std::size_t ticket) override {
        tickets_.erase(tickets_.begin() + static_cast<std::ptrdiff_t>(ticket));
    }
    std::span<const std::byte> bytes(std::size_t lease, WeightId weight) override {
        return leases_[lease].bytes(weight);
    }
    Status use_on(std::size_t lease, Stream stream) override { return leases_[lease].try_use_on(stream); }
    void end_lease(std::size_t lease) override { leases_[lease].end(); }
    void forget_leases() override { leases_.clear(); }

    Status set_budget(const residency::Budget& budget) override { return status_of(weights_.try_set_budget(budget)); }
    Status reclaim_pending() override { return status_of(weights_.try_reclaim_pending()); }
    Status set_schedule(const residency::Schedule& schedule) override { return weights_.try_set_schedule(schedule); }
    Status suspend() override { return weights_.try_suspend(); }
    Status resume() override { return weights_.try_resume(); }
    bool is_suspended() override { return weights_.is_suspended(); }
    Status refresh(std::optional<std::span<const WeightId>> weights, const std::function<Status()>& write) override {
        return weights ? weights_.try_refresh(*weights, write) : weights_.try_refresh_all(write);
    }
    Status drain() override { return weights_.try_drain(); }
    Status transport_status() override { return weights_.try_transport_status(); }
    Status hint([[maybe_unused]] std::span<const residency::prefetch::Hint> hints) override {
        if constexpr (requires { weights_.prefetcher().hint(hints); }) {
            return weights_.prefetcher().hint(hints);
        } else {
            return {};
        }
    }
    Status recorded() override { return status_of(weights_.try_recorded_schedule()); }
    Result<residency::broker::PassEnd> at_pass_end(residency::broker::ModelClient& client) override {
        return client.try_at_pass_end(weights_);
    }
    std::uint64_t pending_bytes() override { return weights_.pending_bytes(); }
    residency::ResolvedBudget budget() override { return weights_.budget(); }
    residency::Statistics statistics() override { return weights_.statistics(); }
    const residency::Schedule& schedule() override { return weights_.schedule(); }
    void move_to_another_object() override {
        Weights other = std::move(weights_);
        weights_ = std::move(other);
    }

    Status capture([[maybe_unused]] Stream stream,
                   [[maybe_unused]] const std::function<Status(const CapturedSteps&)>& body) override {
        if constexpr (planned) {
            const auto record = [&](auto& pass) -> Status {
                std::optional<typename Weights::Lease> lease;
                return body({[&](std::uint32_t step) -> Status {
                                 lease.reset();
                                 auto taken = pass.try_acquire(weights_.schedule()[step]);
                                 if (!taken) { return taken.error(); }
                                 lease.emplace(std::move(*taken));
                                 return {};
                             },
                             [&](WeightId weight) { return lease->bytes(weight); }, [&] { lease.reset(); }});
            };
            const bool is_timed = captures_++ % 2 == 0;
            auto graph = is_timed ? weights_.try_capture_timed(stream, record) : weights_.try_capture(stream, record);
            if (!graph) { return graph.error(); }
            graphs_.push_back(std::move(*graph));
        }
        return {};
    }
    std::size_t graphs() override { return graphs_.size(); }
    bool is_stale(std::size_t graph) override { return graphs_[graph].is_stale(); }
    Status launch(std::size_t graph, Stream stream) override { return graphs_[graph].try_launch(stream); }
    void drop_graph(std::size_t graph) override { graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(graph)); }

    Status join([[maybe_unused]] Group& group, [[maybe_unused]] Group::MemberOptions options) override {
        if constexpr (requires { weights_.stock(); }) {
            auto member = group.try_add(weights_, std::move(options));
            if (!member) { return member.error(); }
            member_.emplace(std::move(*member));
            group_ = &group;
        }
        return {};
    }
    Status activate() override {
        auto use = group_->try_activate(*member_, std::chrono::nanoseconds{0});
        if (!use) { return use.error(); }
        use_.emplace(std::move(*use));
        return {};
    }
    void end_use() override { use_.reset(); }
    bool is_used() override { return use_.has_value(); }
    Status prepare(std::optional<std::uint64_t> most_bytes) override {
        return status_of(group_->try_prepare(*member_, most_bytes));
    }

private:
    explicit SubjectOf(Weights&& weights) : weights_{std::move(weights)} {}

    template <class T>
    static Status status_of(const Result<T>& result) {
        return result ? Status{} : Status{result.error()};
    }
    Result<std::size_t> keep(Result<typename Weights::Lease> lease) {
        if (!lease) { return lease.error(); }
        leases_.push_back(std::move(*lease));
        return leases_.size() - 1;
    }
    Status keep(Result<typename Weights::Ticket> ticket) {
        if (!ticket) { return ticket.error(); }
        tickets_.push_back(std::move(*ticket));
        return {};
    }

    Weights weights_;
    bool is_open_ = false;
    typename Weights::Pass pass_;
    std::deque<typename Weights::Lease> leases_;
    std::deque<typename Weights::Ticket> tickets_;
    std::deque<residency::CapturedPass<Device>> graphs_;
    std::uint64_t captures_ = 0;
    Group* group_ = nullptr;  // that member_ is of
    std::optional<Group::Member> member_;
    std::optional<Group::Use> use_;
};

template <class Weights>
Kind online(const char* name, Source source = Source::pinned) {
    return {name, SubjectOf<Weights, false>::make, SubjectOf<Weights, false>::resolve, source, false};
}
template <class Weights>
Kind planned(const char* name, Source source = Source::pinned) {
    return {name, SubjectOf<Weights, true>::make, SubjectOf<Weights, true>::resolve, source, true};
}

}  // namespace attack
