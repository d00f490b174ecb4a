// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "residency/plan/first_pass.hpp"
#include "residency/plan/tuning.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

namespace detail {

// Simulates a first pass that copies residents by a rule. Each run starts from the same state.
class FirstPass {
public:
    FirstPass(const Plan& plan, const Link& link, std::span<const double> compute, const std::vector<bool>& there)
        : plan_{plan},
          link_{link},
          compute_(compute.begin(), compute.end()),
          there_{there},
          arrived_(plan.steps()),
          ended_(plan.steps()) {
        compute_.resize(plan.steps(), 0.0);
    }

    // Copies, before each call, the residents that its step and the next `ahead` steps need; with `fills`, also as many as keep the link
    // busy until the call may start. Returns the seconds until the last step has ended.
    double run(bool fills, std::uint32_t ahead) {
        const auto residents = plan_.residents();
        std::fill(arrived_.begin(), arrived_.end(), 0.0);
        steps_ended_ = 0;
        resident_ = 0;
        now_ = 0;
        order_.clear();
        for (const Call& call : plan_.calls()) {
            while (resident_ < residents.size() && residents[resident_].needed_by <= call.needed_by + ahead) {
                bring_resident();
            }
            if (call.wait.exists() && call.wait.pass == 0) {
                const double free = end_of(call.wait.step);
                while (fills && resident_ < residents.size() && now_ < free) { bring_resident(); }
                now_ = (std::max)(now_, free);
            }
            order_.push_back(resident_);
            bring(plan_.copies(call), call.needed_by);
        }
        while (resident_ < residents.size()) { bring_resident(); }
        return end_of(plan_.steps() - 1);
    }
    // Of the last run: how many residents went before each call.
    [[nodiscard]] std::vector<std::size_t> take_order() noexcept { return std::move(order_); }

private:
    void bring_resident() {
        const Copy& resident = plan_.residents()[resident_++];
        bring({&resident, 1}, resident.needed_by);
    }
    void bring(std::span<const Copy> copies, std::uint32_t step) {
        std::uint64_t chunks = 0;
        for (const Copy& copy : copies) {
            for (const std::uint32_t chunk : plan_.chunks_of_copy(copy)) { chunks += there_[chunk] ? 0U : 1U; }
        }
        if (chunks > 0) {
            now_ += link_.latency_seconds + static_cast<double>(chunks * plan_.chunk_bytes()) / link_.bytes_per_second;
        }
        if (step != none) { arrived_[step] = (std::max)(arrived_[step], now_); }
    }
    // The end of a step. Precondition: everything that the steps up to it need has been copied.
    double end_of(std::uint32_t step) {
        for (; steps_ended_ <= step; ++steps_ended_) {
            const double before = steps_ended_ == 0 ? 0.0 : ended_[steps_ended_ - 1];
            ended_[steps_ended_] = (std::max)(before, arrived_[steps_ended_]) + compute_[steps_ended_];
        }
        return ended_[step];
    }

    const Plan& plan_;
    const Link& link_;
    std::vector<double> compute_;  // by step, seconds
    const std::vector<bool>& there_;
    std::vector<double> arrived_;     // by step: arrival of what this step is the first to need, seconds
    std::vector<double> ended_;       // by step, seconds
    std::vector<std::size_t> order_;  // by call: residents before it
    std::uint32_t steps_ended_ = 0;   // steps whose end is known
    std::size_t resident_ = 0;        // the next one to copy
    double now_ = 0;                  // seconds, on the link
};

}  // namespace detail

RESIDENCY_INLINE std::vector<std::size_t> order_first_pass(const Plan& plan, const Link& link,
                                                           std::span<const double> compute,
                                                           const std::vector<bool>& there) {
    std::vector<std::size_t> best;
    if (!plan.is_cyclic() || plan.calls().empty()) { return best; }
    detail::FirstPass pass{plan, link, compute, there};
    double least = pass.run(false, 0);
    for (const bool fills : {false, true}) {
        for (const std::uint32_t ahead : tuning::first_pass_ahead) {
            if (!fills && ahead == 0) { continue; }
            const double seconds = pass.run(fills, ahead);
            if (seconds >= least * (1 - tuning::first_pass_gain)) { continue; }
            least = seconds;
            best = pass.take_order();
        }
    }
    return best;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
