// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/engine/decider.hpp"
#include "residency/core/planned/chunk_store.hpp"
#include "residency/core/planned/unrecorded_uses.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/number.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

template <VirtualMemoryDevice D>
class PlanPlayer;

/// The planned decider's demand misses: brings the chunks that an access needs and that the plan has not brought, all of them or none,
/// and never over a leased chunk or another chunk of the access. After an access that took slots of the ring, the plan player verifies
/// its calls for a pass.
template <VirtualMemoryDevice D>
class ChunkMissHandler {
public:
    /// Keeps the references.
    ChunkMissHandler(const DeciderContext<D>& context, ChunkStore<D>& store, UnrecordedUses<D>& uses,
                     PlanPlayer<D>& player) noexcept
        : context_{&context}, store_{&store}, uses_{&uses}, player_{&player} {}

    /// The store has adopted a plan that was made for `cap_bytes` device bytes.
    void start(std::uint64_t cap_bytes);
    /// A graph of the caller holds today's addresses: no resident leaves.
    void note_foreign_graph() noexcept { is_in_foreign_graph_ = true; }
    /// Brings those chunks of some storages that are not there. `is_planned`: the plan has brought all that their step needs. Blocks if a
    /// chunk has to be mapped elsewhere, or a resident has to leave. Errors: budget if leases leave no room; those of device calls.
    [[nodiscard]] Status bring(std::span<const StorageId> wanted, bool is_planned);
    /// Error budget if the bytes of a range of steps do not fit together: says those of which of its steps would.
    [[nodiscard]] Status check_range(const AccessPoint& access) const;

private:
    static constexpr std::uint32_t none = plan::none;

    /// Makes sure that a missing chunk lies on a slot that may be overwritten: its own, else one of the ring or a new one within the cap,
    /// else one of a resident. What no step reads takes nothing from the plan as long as the cap has room.
    [[nodiscard]] Status make_room(std::uint32_t chunk);
    /// Whether a slot may be overwritten: its chunk is neither leased nor wanted by this request, and no chunk of the request has it.
    [[nodiscard]] bool is_free(std::uint32_t slot) const noexcept {
        const std::uint32_t occupant = store_->table().occupant(slot);
        return reserved_by_[slot] == none &&
               (occupant == none || (wanted_in_[occupant] != request_ && !store_->is_leased(occupant)));
    }
    /// A free slot for a chunk, or none: of the ring, or a new one; else that of the resident which is needed last, counted from the current
    /// step. Blocks for a new one.
    [[nodiscard]] Result<std::uint32_t> find_place(std::uint32_t chunk);
    /// A free slot of the ring from slot `first` on, or none.
    [[nodiscard]] std::uint32_t find_in_ring(std::uint32_t first) const noexcept;
    /// A new slot within the cap, or none.
    [[nodiscard]] Result<std::uint32_t> add_slot();
    [[nodiscard]] std::uint32_t find_resident() const noexcept;
    [[nodiscard]] Error no_room_for(std::uint32_t chunk) const;

    const DeciderContext<D>* context_;
    ChunkStore<D>* store_;
    UnrecordedUses<D>* uses_;
    PlanPlayer<D>* player_;

    std::uint64_t cap_bytes_ = 0;  // device bytes
    bool is_in_foreign_graph_ = false;
    std::uint64_t request_ = 0;             // counts the requests under this plan
    std::vector<std::uint64_t> wanted_in_;  // by chunk: the last request that wanted it
    std::vector<std::uint32_t>
        reserved_by_;                     // by slot, of the current request: the missing chunk that takes it, or none
    std::vector<std::uint32_t> missing_;  // chunks of the current request
};

template <VirtualMemoryDevice D>
void ChunkMissHandler<D>::start(std::uint64_t cap_bytes) {
    cap_bytes_ = cap_bytes;
    is_in_foreign_graph_ = false;
    request_ = 0;
    wanted_in_.assign(store_->table().chunks(), 0);
    missing_.reserve(store_->table().chunks());
}

template <VirtualMemoryDevice D>
Status ChunkMissHandler<D>::bring(std::span<const StorageId> wanted, bool is_planned) {
    if (auto awaited = uses_->wait_for_lost_uses(); !awaited) { return awaited; }
    const ChunkTable& table = store_->table();
    ++request_;
    missing_.clear();
    bool touches_ring = false;
    for (const StorageId id : wanted) {
        for (const std::uint32_t chunk : store_->contents().chunks(id)) {
            touches_ring = touches_ring || !table.stays(chunk) || !store_->is_at_home(chunk);
            if (std::exchange(wanted_in_[chunk], request_) == request_) { continue; }
            if (!table.is_there(chunk)) { missing_.push_back(chunk); }
        }
    }
    // Calls of this pass may lag behind the access. When they come, they must not overwrite what it reads.
    if (touches_ring && !(is_planned && missing_.empty())) { player_->verify_a_pass(); }
    if (missing_.empty()) { return {}; }
    // A misplaced chunk may lie where a missing one belongs.
    if (auto sent = store_->send_unleased_home(); !sent) { return sent; }
    reserved_by_.assign(table.slots(), none);
    for (const std::uint32_t chunk : missing_) {
        if (auto made = make_room(chunk); !made) { return made; }
        reserved_by_[table.slot(chunk)] = chunk;
    }
    if (auto waits = context_->copy_scheduler->copy_stream_wait_for_all_uses(); !waits) { return waits; }
    player_->forget_ahead();
    residency::detail::sort(missing_);
    Status loaded = store_->load(missing_);
    for (const std::uint32_t chunk : missing_) {
        for (const std::uint32_t s : store_->contents().storages(chunk)) { context_->states[s].demand_missed = true; }
    }
    return loaded;
}

template <VirtualMemoryDevice D>
Status ChunkMissHandler<D>::make_room(std::uint32_t chunk) {
    const ChunkTable& table = store_->table();
    if (table.slot(chunk) == none || !is_free(table.slot(chunk))) {
        const auto place = find_place(chunk);
        if (!place) { return place.error(); }
        if (*place == none) { return no_room_for(chunk); }
        if (!table.is_of_ring(*place) || table.stays(chunk)) {
            if (auto included = uses_->record_residents(); !included) { return included; }
        }
        if (auto remapped = store_->remap_chunk(chunk, *place); !remapped) { return remapped; }
        player_->verify_a_pass();
    }
    const std::uint32_t occupant = table.occupant(table.slot(chunk));
    if (occupant != none && table.stays(occupant)) { player_->note_resident_eviction(occupant); }
    return {};
}

template <VirtualMemoryDevice D>
Result<std::uint32_t> ChunkMissHandler<D>::find_place(std::uint32_t chunk) {
    const std::uint32_t planned = store_->plan().slots_held();
    std::uint32_t slot = none;
    if (store_->plan().slot_of_chunk(chunk) != none) { slot = find_in_ring(0); }
    if (slot == none) {
        const auto added = add_slot();
        if (!added) { return added; }
        slot = *added;
    }
    if (slot == none) { slot = find_in_ring(planned); }
    if (slot == none) { slot = find_in_ring(0); }
    return slot == none ? find_resident() : slot;
}

template <VirtualMemoryDevice D>
std::uint32_t ChunkMissHandler<D>::find_in_ring(std::uint32_t first) const noexcept {
    const ChunkTable& table = store_->table();
    for (std::uint32_t slot = first; slot < table.slots(); ++slot) {
        if (table.is_of_ring(slot) && is_free(slot)) { return slot; }
    }
    return none;
}

template <VirtualMemoryDevice D>
Result<std::uint32_t> ChunkMissHandler<D>::add_slot() {
    if (store_->held_bytes() + store_->plan().chunk_bytes() > cap_bytes_) { return none; }
    auto added = store_->add_slot();
    if (!added && added.error().kind() == ErrorKind::out_of_memory) { return none; }
    if (added) { reserved_by_.push_back(none); }
    return added;
}

template <VirtualMemoryDevice D>
std::uint32_t ChunkMissHandler<D>::find_resident() const noexcept {
    const ChunkTable& table = store_->table();
    const plan::Plan& plan = store_->plan();
    // Residents of a one-shot plan are brought once per pass.
    if (!plan.is_cyclic() || is_in_foreign_graph_) { return none; }
    // The residents that are needed last: those of the steps before this one, the nearest step first.
    const auto residents = plan.residents();
    const auto next = static_cast<std::size_t>(
        std::lower_bound(residents.begin(), residents.end(), player_->current_step(),
                         [](const plan::Copy& copy, std::uint32_t step) { return copy.needed_by < step; }) -
        residents.begin());
    for (std::size_t back = 1; back <= residents.size(); ++back) {
        const plan::Copy& resident = residents[(next + residents.size() - back) % residents.size()];
        for (const std::uint32_t chunk : plan.chunks_of_copy(resident)) {
            const std::uint32_t slot = plan.slot_of_chunk(chunk);
            if (table.stays(chunk) && is_free(slot) && store_->may_leave(chunk)) { return slot; }
        }
    }
    return none;
}

template <VirtualMemoryDevice D>
Status ChunkMissHandler<D>::check_range(const AccessPoint& access) const {
    const plan::Plan& plan = store_->plan();
    const ChunkTable& table = store_->table();
    std::vector<bool> is_held(table.chunks(), false), is_asked(table.chunks(), false);
    std::uint64_t held = 0, asked = 0;  // chunks
    for (std::uint32_t chunk = 0; chunk < table.chunks(); ++chunk) {
        const bool stays = !plan.is_cyclic() && table.stays(chunk);
        is_held[chunk] = stays || store_->is_leased(chunk) || !store_->may_leave(chunk);
        held += is_held[chunk] ? 1U : 0U;
    }
    const std::uint32_t first = access.first_step();
    std::uint32_t fits = first;
    for (std::uint32_t step = first; step <= access.step; ++step) {
        for (const StorageId id : context_->order->storages_at(step)) {
            for (const std::uint32_t chunk : store_->contents().chunks(id)) {
                if (is_asked[chunk]) { continue; }
                is_asked[chunk] = true;
                ++asked;
                held -= is_held[chunk] ? 1U : 0U;
            }
        }
        if (asked + held <= plan.slots_held() && fits == step) { fits = step + 1; }
    }
    if (fits > access.step) { return {}; }
    using residency::detail::in_bytes;
    const std::uint64_t asked_bytes = asked * plan.chunk_bytes(), held_bytes = held * plan.chunk_bytes();
    std::string message = "they need " + in_bytes(asked_bytes) + " together, in chunks of " +
                          in_bytes(plan.chunk_bytes()) + ", beside " + in_bytes(held_bytes) +
                          " that are leased or stay, and the budget holds " + in_bytes(plan.held_bytes());
    message += fits > first ? "; steps [" + std::to_string(first) + ", " + std::to_string(fits) + ") would fit"
                            : "; no range from there would fit: end leases first";
    return Error{ErrorKind::budget, message + "; Residency::ranges() says into which ranges a pass falls",
                 BudgetNumbers{asked_bytes, plan.budget_bytes(), held_bytes, plan.floor_bytes(), fits}};
}

template <VirtualMemoryDevice D>
Error ChunkMissHandler<D>::no_room_for(std::uint32_t chunk) const {
    using residency::detail::in_bytes;
    const plan::Plan& plan = store_->plan();
    const ChunkTable& table = store_->table();
    const auto chunks_asked = std::count(wanted_in_.begin(), wanted_in_.end(), request_);
    const std::uint64_t asked = static_cast<std::uint64_t>(chunks_asked) * plan.chunk_bytes();
    std::uint64_t leased = 0, held = 0;
    for (const std::uint32_t occupant : table.occupants()) {
        if (occupant == none || wanted_in_[occupant] == request_) { continue; }
        const bool stays =
            !store_->may_leave(occupant) || (table.stays(occupant) && (!plan.is_cyclic() || is_in_foreign_graph_));
        leased += store_->is_leased(occupant) ? plan.chunk_bytes() : 0;
        held += store_->is_leased(occupant) || stays ? plan.chunk_bytes() : 0;
    }
    std::string message = "no room for " +
                          context_->catalog.describe(StorageId{store_->contents().storages(chunk).front()}) + ": " +
                          in_bytes(asked) + " are asked for together (in chunks of " + in_bytes(plan.chunk_bytes()) +
                          "), and of the budget of " + in_bytes(plan.budget_bytes()) + ", " + in_bytes(held) +
                          " are leased beside them or stay; ";
    message += leased > 0
                   ? "end leases first, or plan for as many steps as are leased together: policies.leases_at_once"
                   : "raise the budget, or ask for less at once; with policies.storages_at_once, the budget is "
                     "checked for that number of storages when the Residency is made";
    return Error{ErrorKind::budget, std::move(message),
                 BudgetNumbers{asked, plan.budget_bytes(), held, plan.floor_bytes(), UINT32_MAX}};
}

}}}  // namespace residency::RESIDENCY_ABI::core
