// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "job.hpp"
#include "residency/broker/broker.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/learning_report.hpp"
#include "run.hpp"

namespace compiled {

/// Two models that take turns inside one total, which changes between runs: what a change costs beyond the rounds that come anyway.
template <class Device>
class Together {
    using Model = typename Runner<Device>::Model;
    using Outputs = typename Runner<Device>::Outputs;

public:
    Together(Device& device, const Job& job, bool is_cuda)
        : device_{device},
          job_{job},
          broker_{residency::BudgetBroker::create(device, job.totals.front())},
          first_{*this, job, is_cuda},
          second_{*this, beside(job), is_cuda} {
        for (Member* member : {&first_, &second_}) { member->open(); }  // once the shares of both are known
    }

    [[nodiscard]] std::vector<TotalChange> run() {
        std::vector<TotalChange> changes;
        run_until_learned();
        for (std::size_t i = 1; i < job_.totals.size(); ++i) { changes.push_back(change(job_.totals[i])); }
        return changes;
    }

private:
    using Clock = std::chrono::steady_clock;

    /// One of the models.
    struct Member {
        Member(Together& all, const Job& job, bool is_cuda) : runner{all.device_, job, is_cuda}, client{all.add(job)} {}

        void open() {
            model.emplace(residency::unwrap(runner.open(client.budget())));
            state.emplace(residency::unwrap(model->try_make_state()));
        }
        [[nodiscard]] auto& weights() { return model->weights(); }
        /// Whether the outputs have the bits of the first round.
        [[nodiscard]] bool run() {
            residency::unwrap(model->try_reset(*state));
            std::vector<Outputs> bytes;
            for (const auto& outputs : runner.run_round(*model, *state)) { bytes.push_back(runner.bytes_of(outputs)); }
            if (expected.empty()) { expected = bytes; }
            return bytes == expected;
        }

        Runner<Device> runner;
        residency::broker::ModelClient client;  // outlives the model
        std::optional<Model> model;
        std::optional<aoti::CallerState<Device>> state;  // each round begins with what the model begins with
        std::vector<Outputs> expected;
    };

    [[nodiscard]] static Job beside(Job job) {
        job.model = std::exchange(job.beside, {});
        job.methods.clear();
        return job;
    }
    [[nodiscard]] residency::broker::ModelClient add(const Job& job) {
        const auto sizes =
            residency::unwrap(Model::try_resolve_budget(device_, job.model, {.budget = residency::Budget::bytes(0)}));
        return broker_.add_model(
            {.name = job.model, .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
    }

    [[nodiscard]] static double milliseconds_since(Clock::time_point begin) {
        return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    }
    [[nodiscard]] std::uint64_t fetched_bytes() {
        return first_.weights().statistics().total.fetched_bytes + second_.weights().statistics().total.fetched_bytes;
    }

    /// Each model takes the share that is due, and runs each of its methods.
    struct Round {
        double milliseconds = 0, changing_milliseconds = 0;
        bool goes_on = false;  // a budget changed, or is to change
        bool is_right = true;
    };
    [[nodiscard]] Round run_round() {
        Round round;
        const auto begin = Clock::now();
        for (Member* member : {&first_, &second_}) {
            const auto ends = Clock::now();
            const auto end = member->client.at_pass_end(member->weights());
            round.changing_milliseconds += milliseconds_since(ends);
            round.is_right = member->run() && round.is_right;
            round.goes_on =
                round.goes_on || end.more_is_coming || end.change.budget_bytes != end.change.budget_before_bytes;
        }
        round.milliseconds = milliseconds_since(begin);
        return round;
    }
    void run_until_learned() {
        const auto learns = [](Member& member) {
            return member.weights().statistics().learning.state == residency::LearningState::measuring;
        };
        for (int i = 0; i < 2 || (i < 64 && (learns(first_) || learns(second_))); ++i) {
            static_cast<void>(run_round());
        }
    }

    [[nodiscard]] TotalChange change(const std::string& total) {
        TotalChange change;
        change.before_bytes = broker_.statistics().total_bytes;
        change.is_right = true;
        const std::uint64_t fetched = fetched_bytes();
        const auto begin = Clock::now();
        residency::unwrap(broker_.try_set_total(device_, total));
        change.total_bytes = broker_.statistics().total_bytes;
        change.changing_milliseconds = change.milliseconds = milliseconds_since(begin);
        constexpr std::uint64_t most_rounds = 64;
        bool goes_on = true;
        while (goes_on && change.rounds < most_rounds) {
            const Round round = run_round();
            ++change.rounds;
            change.milliseconds += round.milliseconds;
            change.changing_milliseconds += round.changing_milliseconds;
            change.is_right = change.is_right && round.is_right;
            goes_on = round.goes_on;
        }
        const std::uint64_t fetched_changing = fetched_bytes() - fetched;
        run_until_learned();
        std::vector<double> times;
        const std::uint64_t fetched_before = fetched_bytes();
        for (std::uint32_t i = 0; i < (std::max)(job_.rounds, 1U); ++i) {
            const Round round = run_round();
            times.push_back(round.milliseconds);
            change.is_right = change.is_right && round.is_right;
        }
        std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
        change.steady_milliseconds = times[times.size() / 2] * double(change.rounds);
        const std::uint64_t steady_bytes = (fetched_bytes() - fetched_before) / times.size() * change.rounds;
        change.new_bytes = fetched_changing - (std::min)(fetched_changing, steady_bytes);
        change.link_milliseconds = 1e3 * double(change.new_bytes) / first_.weights().problem().link.bytes_per_second;
        return change;
    }

    Device& device_;
    Job job_;
    residency::BudgetBroker broker_;
    Member first_, second_;
};

/// What a job asks for.
template <class Device>
[[nodiscard]] Results run_job(Device& device, const Job& job, bool is_cuda) {
    if (job.beside.empty()) { return Runner<Device>{device, job, is_cuda}.run(); }
    Results results;
    results.totals = Together<Device>{device, job, is_cuda}.run();
    return results;
}

}  // namespace compiled
