// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a call of a cache of experts does. The same code runs as one block of a kernel and, on the simulated device, as one thread.

#include <cstdint>

#include "residency/config.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/tables.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// What the threads of a team share.
struct Scratch {
    std::uint32_t first[most_experts];   ///< by expert of the layer: the first choice of it; none
    std::uint32_t misses[most_experts];  ///< experts of the layer
};

/// A slot that may be emptied.
struct Candidate {
    Key key;
    std::uint32_t slot = none;
    std::uint32_t order = 0;

    /// Whether it is emptied before the other one. Among equals the one of the lower order is.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool is_before(const Candidate& other) const {
        if (slot == none || other.slot == none) { return slot != none; }
        return key.is_over(other.key) || (!other.key.is_over(key) && order < other.order);
    }
};

/// The threads that make one decision together: here one thread. Those of a block are in cuda_server.cuh.
struct OneThread {
    static constexpr std::uint32_t rank = 0, size = 1;
    RESIDENCY_HOST_DEVICE void sync() const {}
    /// The number of earlier threads whose flag is set; `total`: that of all.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t count_before(bool flag, std::uint32_t& total) const {
        total = flag ? 1 : 0;
        return 0;
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE Candidate first_of(const Candidate& own) const { return own; }
    RESIDENCY_HOST_DEVICE void lower(std::uint32_t& value, std::uint32_t other) const {
        value = other < value ? other : value;
    }
    RESIDENCY_HOST_DEVICE void add(std::uint64_t& sum, std::uint64_t value) const { sum += value; }
    /// Whether this thread is the first to set the flag.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool set_first(std::uint32_t& flag) const {
        return flag == 0 ? (flag = 1) != 0 : false;
    }
    /// Sets a flag for the host, after what this thread wrote.
    RESIDENCY_HOST_DEVICE void publish(std::uint32_t& flag) const { flag = 1; }
};

/// The expert of the layer that a choice names; none: padding. What is out of range counts as the first one.
[[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t expert_of(const Call& call, std::uint32_t i, std::uint32_t experts) {
    const std::int64_t choice = choice_of(call, i);
    if (choice < 0) { return none; }
    return choice < static_cast<std::int64_t>(experts) ? static_cast<std::uint32_t>(choice) : 0;
}

/// One call's decisions: which experts have a slot, who leaves, what is to be brought.
template <class P, class Team>
class Decision {
public:
    RESIDENCY_HOST_DEVICE Decision(const Team& team, Scratch& scratch, const Tables<P>& tables, const Call& call,
                                   bool is_guess)
        : team_{team}, scratch_{scratch}, t_{tables}, call_{call}, is_guess_{is_guess} {
        first_ = t_.first_expert[call.layer];
        experts_ = t_.first_expert[call.layer + 1] - first_;
        now_.call = is_guess ? t_.state->call : t_.state->call + 1;
        now_.layer = is_guess ? t_.state->layer : call.layer;
        now_.layers = t_.layers;
        round_ = t_.rounds[call.layer] + (is_guess ? 0 : 1);
        slots_ = t_.state->slots;
    }

    /// Lists what is to be brought. For choices: writes where kernels read them.
    RESIDENCY_HOST_DEVICE void make() {
        end_guess();
        team_.sync();                                                          // everybody has read the state
        if (is_guess_ && (now_.layer == none || now_.layer != call_.after)) {  // too early, or too late
            if (team_.rank == 0) { write_state(); }
            return;
        }
        find_first_choices();
        find_misses();
        place_misses();
        team_.sync();
        if (!is_guess_) { write_addresses(); }
        if (team_.rank == 0) { write_state(); }
    }

private:
    static constexpr double free_key = 1e308;  // of a free slot: it is taken first

    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t round_of(std::uint32_t layer) const {
        return layer == call_.layer ? round_ : t_.rounds[layer];
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE Key key_of(const typename P::OfSlot& of_slot, std::uint32_t layer) const {
        return P::key(*t_.numbers, of_slot, layer, round_of(layer), now_);
    }

    /// The last guess brings no more: what of it has come is known.
    RESIDENCY_HOST_DEVICE void end_guess() {
        const std::uint32_t fills = t_.state->guess_fills;
        for (std::uint32_t k = team_.rank; k < fills; k += team_.size) {
            std::uint32_t before = 0;
            for (std::uint32_t i = 0; i < k; ++i) {
                before += t_.guess_fills[i].pieces - t_.guess_fills[i].first_piece;
            }
            const Fill& fill = t_.guess_fills[k];
            const std::uint32_t all = fill.pieces - fill.first_piece, next = t_.state->guess_next;
            const std::uint32_t come = next <= before ? 0 : next - before < all ? next - before : all;
            t_.slot[fill.slot].pieces = fill.first_piece + come;
            team_.add(t_.state->counters.guess_bytes, bytes_between(fill, fill.first_piece + come));
        }
    }
    RESIDENCY_HOST_DEVICE void find_first_choices() {
        for (std::uint32_t e = team_.rank; e < experts_; e += team_.size) { scratch_.first[e] = none; }
        team_.sync();
        for (std::uint32_t i = team_.rank; i < call_.count; i += team_.size) {
            const std::uint32_t expert = expert_of(call_, i, experts_);
            if (expert == none) { continue; }
            team_.lower(scratch_.first[expert], i);
            const std::int64_t choice = choice_of(call_, i);
            if (choice >= static_cast<std::int64_t>(experts_) && team_.set_first(t_.mistake->is_set)) {
                t_.mistake->layer = call_.layer;
                t_.mistake->choice = choice;
                t_.mistake->place = i;
                team_.publish(t_.mistake->is_whole);
            }
        }
        team_.sync();
    }
    /// What has a slot is used. The others are listed in the order of their first choices.
    RESIDENCY_HOST_DEVICE void find_misses() {
        for (std::uint32_t begin = 0; begin < call_.count; begin += team_.size) {
            const std::uint32_t i = begin + team_.rank;
            const std::uint32_t expert = i < call_.count ? expert_of(call_, i, experts_) : none;
            bool is_missed = false;
            if (expert != none && scratch_.first[expert] == i) {
                const std::uint32_t at = t_.slot_of[first_ + expert];
                const bool is_whole = at != none && t_.slot[at].pieces == pieces_of(t_.sources[first_ + expert].bytes);
                if (at != none) { t_.slot[at].call = now_.call; }
                is_missed = !is_whole;
                if (!is_guess_ && is_whole) { use(at, first_ + expert, true, i); }
            }
            std::uint32_t total = 0;
            const std::uint32_t before = team_.count_before(is_missed, total);
            if (is_missed) { scratch_.misses[misses_ + before] = expert; }
            misses_ += total;
        }
        team_.sync();
    }
    /// An expert in its slot is chosen.
    RESIDENCY_HOST_DEVICE void use(std::uint32_t at, std::uint32_t expert, bool is_hit, std::uint32_t order) {
        Slot& slot = t_.slot[at];
        Now now = now_;
        now.order = order;
        P::used(*t_.numbers, t_.of_slot[at], t_.of_expert[expert], round_, now);
        if (is_hit) { team_.add(t_.state->counters.hits, 1); }
        if (is_hit && slot.guessed != 0) { team_.add(t_.state->counters.guess_hits, 1); }
        slot.guessed = 0;
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE Candidate best_of_own() const {
        Candidate best;
        for (std::uint32_t at = team_.rank; at < slots_; at += team_.size) {
            const Slot& slot = t_.slot[at];
            if (slot.call == now_.call) { continue; }
            const Candidate own = slot.expert == none ? Candidate{Key{free_key, 0}, at, at}
                                                      : Candidate{key_of(t_.of_slot[at], slot.layer), at, slot.expert};
            if (own.is_before(best)) { best = own; }
        }
        return best;
    }
    RESIDENCY_HOST_DEVICE void place_misses() {
        if (misses_ == 0) { return; }
        Candidate own = best_of_own();
        for (std::uint32_t k = 0; k < misses_; ++k) {
            const std::uint32_t expert = first_ + scratch_.misses[k];
            const std::uint32_t had = t_.slot_of[expert];
            if (had != none) {  // a guess has brought a part of it
                if (had % team_.size == team_.rank) { fill(expert, had, t_.slot[had].pieces); }
                ++fills_;
                continue;
            }
            const Candidate leaves = team_.first_of(own);
            const bool is_placed = leaves.slot != none && is_worth(expert, leaves);
            if (is_guess_ || t_.reads_in_place) { team_.sync(); }  // everybody has looked at the expert
            if (!is_placed) {
                if (!is_guess_ && team_.rank == 0) { read_in_place(expert); }
                if (leaves.slot == none && is_guess_) { return; }
                continue;
            }
            if (leaves.slot % team_.size == team_.rank) {
                Slot& slot = t_.slot[leaves.slot];
                if (slot.expert != none) { t_.slot_of[slot.expert] = none; }
                slot.expert = expert;
                slot.layer = call_.layer;
                slot.guessed = is_guess_ ? 1 : 0;
                slot.call = now_.call;
                t_.slot_of[expert] = leaves.slot;
                P::inserted(*t_.numbers, t_.of_slot[leaves.slot], t_.of_expert[expert], round_, now_);
                fill(expert, leaves.slot, 0);
                if (k + 1 < misses_) { own = best_of_own(); }
            }
            ++fills_;
        }
    }
    /// Whether the expert is needed sooner again than what would leave for it.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool is_worth(std::uint32_t expert, const Candidate& leaves) const {
        if (leaves.key.first >= free_key || (!is_guess_ && !t_.reads_in_place)) { return true; }
        typename P::OfSlot own{};
        auto of_expert = t_.of_expert[expert];
        P::inserted(*t_.numbers, own, of_expert, round_, now_);
        if (!is_guess_) { P::used(*t_.numbers, own, of_expert, round_, now_); }
        return leaves.key.is_over(key_of(own, call_.layer));
    }
    RESIDENCY_HOST_DEVICE void fill(std::uint32_t expert, std::uint32_t at, std::uint32_t first_piece) {
        const std::uint32_t pieces = pieces_of(t_.sources[expert].bytes);
        const Fill made{expert, at, first_piece, pieces};
        (is_guess_ ? t_.guess_fills : t_.fills)[fills_] = made;
        if (is_guess_) {
            team_.add(t_.state->counters.guesses, 1);
            t_.slot[at].pieces = first_piece;
            return;
        }
        t_.slot[at].pieces = pieces;  // before anything reads it
        use(at, expert, false, most_choices + fills_);
        team_.add(t_.state->counters.misses, 1);
        team_.add(t_.state->counters.demand_bytes, bytes_between(made, pieces));
    }
    RESIDENCY_HOST_DEVICE void read_in_place(std::uint32_t expert) {
        typename P::OfSlot unused{};
        P::used(*t_.numbers, unused, t_.of_expert[expert], round_, now_);
        team_.add(t_.state->counters.misses, 1);
        team_.add(t_.state->counters.in_place, 1);
        team_.add(t_.state->counters.in_place_bytes, t_.sources[expert].bytes);
    }
    /// The bytes of a fill up to a piece.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint64_t bytes_between(const Fill& fill, std::uint32_t end) const {
        const std::uint64_t bytes = t_.sources[fill.expert].bytes;
        const std::uint64_t to = static_cast<std::uint64_t>(end) * piece_bytes;
        return (to < bytes ? to : bytes) - static_cast<std::uint64_t>(fill.first_piece) * piece_bytes;
    }
    RESIDENCY_HOST_DEVICE void write_addresses() {
        for (std::uint32_t i = team_.rank; i < call_.count; i += team_.size) {
            const std::uint32_t expert = expert_of(call_, i, experts_);
            const std::uint32_t at = expert == none ? none : t_.slot_of[first_ + expert];
            call_.slots[i] = at == none ? -1 : static_cast<std::int32_t>(at);
            call_.addresses[i] = expert == none ? nullptr
                                 : at == none   ? t_.sources[first_ + expert].host
                                                : t_.pool + at * t_.slot_bytes;
        }
    }
    RESIDENCY_HOST_DEVICE void write_state() {
        State& state = *t_.state;
        if (is_guess_) {
            state.guess_fills = fills_;
            state.guess_next = 0;
            return;
        }
        state.guess_fills = 0;
        state.call = now_.call;
        state.layer = call_.layer;
        state.fills = fills_;
        t_.rounds[call_.layer] = round_;
        ++state.counters.calls;
    }

    const Team& team_;
    Scratch& scratch_;
    const Tables<P>& t_;
    const Call& call_;
    bool is_guess_;
    Now now_;
    std::uint32_t first_, experts_, round_, slots_;
    std::uint32_t misses_ = 0;
    std::uint32_t fills_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::routed
