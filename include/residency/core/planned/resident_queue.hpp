// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/core/planned/chunk_store.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/plan/first_pass.hpp"
#include "residency/plan/plan.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The chunks that stay while the plan is in force (residents), in the order in which steps need them, and how many of them were copied.
/// A resident that had to leave is copied again, with the residents behind it that are absent. Chunks that only the first pass needs at
/// its start are copied once here; from then on, the calls of the plan bring them.
template <VirtualMemoryDevice D>
class ResidentQueue {
public:
    /// Keeps the reference.
    explicit ResidentQueue(ChunkStore<D>& store) noexcept : store_{&store} {}

    /// A plan came into force. `problem`: what it solves.
    void start(const plan::Problem& problem);
    /// A one-shot plan starts again.
    void start_again() noexcept { next_ = begun_ = 0; }
    /// A resident chunk leaves: it is brought again when its slot is free.
    void note_eviction(std::uint32_t chunk) noexcept { next_ = (std::min)(next_, copy_of_[chunk]); }

    [[nodiscard]] bool has_all() const noexcept { return next_ == store_->plan().residents().size(); }
    /// Whether the residents that steps up to this one read are brought.
    [[nodiscard]] bool has_all_for(std::uint32_t step) const noexcept {
        return has_all() || store_->plan().residents()[next_].needed_by > step;
    }

    /// Brings the residents that steps up to this one read (none: all). Stops, without an error, where a lease is in the way.
    [[nodiscard]] Status bring_for(std::uint32_t step);
    /// Called before call k of the first pass, counted from 0: brings the residents that plan::order_first_pass puts before that call.
    [[nodiscard]] Status bring_before_call(std::uint64_t k) {
        return k < before_call_.size() ? bring_first(before_call_[static_cast<std::size_t>(k)]) : Status{};
    }

private:
    /// Brings the first `count` resident copies of the plan.
    [[nodiscard]] Status bring_first(std::size_t count);

    ChunkStore<D>* store_;
    std::size_t next_ = 0;                  // the resident copy of the plan to be brought next
    std::size_t begun_ = 0;                 // those before it were brought once: of them only what stays comes again
    std::vector<std::size_t> before_call_;  // by call of the first pass: how many resident copies go before it
    std::vector<std::size_t> copy_of_;      // by chunk: the resident copy that has it; their number if none has
};

template <VirtualMemoryDevice D>
void ResidentQueue<D>::start(const plan::Problem& problem) {
    const plan::Plan& plan = store_->plan();
    next_ = begun_ = 0;
    before_call_ = plan::order_first_pass(plan, problem.link, problem.compute_seconds, store_->table().all_there());
    copy_of_.assign(plan.chunks(), plan.residents().size());
    for (std::size_t i = 0; i < plan.residents().size(); ++i) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(plan.residents()[i])) { copy_of_[chunk] = i; }
    }
}

template <VirtualMemoryDevice D>
Status ResidentQueue<D>::bring_for(std::uint32_t step) {
    const auto residents = store_->plan().residents();
    std::size_t count = next_;
    while (count < residents.size() && residents[count].needed_by <= step) { ++count; }
    return bring_first(count);
}

template <VirtualMemoryDevice D>
Status ResidentQueue<D>::bring_first(std::size_t count) {
    const auto residents = store_->plan().residents();
    while (next_ < count) {
        const std::size_t begin = next_;
        std::size_t end = begin;
        do { ++end; } while (end < count && end != begun_ && residents[end].needed_by == residents[begin].needed_by);
        const auto brought = store_->load_around_leases(
            residents.subspan(begin, end - begin),
            [&](std::uint32_t chunk) { return begin >= begun_ || store_->table().stays(chunk); });
        if (!brought) { return brought.error(); }
        if (!*brought) { return {}; }
        next_ = end;
        begun_ = (std::max)(begun_, end);
    }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::core
