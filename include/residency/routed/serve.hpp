// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a call of a cache of experts does. The same code runs as one block of a kernel and, on the simulated device, as one thread.

#include <cstdint>

#include "residency/config.hpp"
#include "residency/routed/policies.hpp"
#include "residency/routed/tables.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// What the threads of a team share. Experts are those of the layer.
struct Scratch {
    std::uint32_t first[most_experts];   ///< by expert: the first choice of it; none
    std::uint32_t slot[most_experts];    ///< by expert that is chosen: its slot; none
    std::uint32_t misses[most_experts];  ///< experts
    std::uint32_t listed[most_experts];  ///< experts that are brought. From is_new on: the slot was another's
    std::uint32_t given[most_experts];   ///< by listed expert: its slot
    Key keys[most_experts];              ///< by miss: of the expert, where it had a slot
    bool is_missed[most_experts];        ///< by expert that is chosen: some of its bytes have not come

    static constexpr std::uint32_t is_new = 1U << 30U;
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

/// Bytes that go from one place to another.
struct Move {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::uint64_t bytes = 0;
};
/// How many moves a fill takes, a piece each. Where a call serves a packed expert, all of its pieces go to the staging area; a guess brings
/// them into its slot.
[[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t moves_of(const Fill& fill, bool is_guess) {
    return !is_guess && fill.source.parts != 0 ? fill.pieces - 1 : fill.pieces - fill.first_piece;
}
/// One of them. `place`: of the fill in its list.
template <class P>
[[nodiscard]] RESIDENCY_HOST_DEVICE Move move_of(const Tables<P>& tables, const Fill& fill, std::uint32_t place,
                                                 std::uint32_t i, bool is_guess) {
    const bool is_staged = !is_guess && fill.source.parts != 0;
    const std::uint32_t piece = is_staged ? i : fill.first_piece + i;
    const std::uint64_t at = std::uint64_t{piece} * piece_bytes, left = fill.source.bytes - at;
    std::byte* const slot = tables.pool + fill.slot * tables.slot_bytes;
    return {piece < fill.first_piece ? slot + at : fill.source.host + at,
            (is_staged ? tables.staging + place * tables.staged_bytes : slot) + at,
            left < piece_bytes ? left : piece_bytes};
}

/// A part of a packed expert in the staging area, and where its raw bytes go.
struct StagedPart {
    const std::byte* packed = nullptr;  ///< null: there is no such part
    std::byte* raw = nullptr;
    std::uint64_t raw_bytes = 0;
    PackedForm form = PackedForm::raw;
};
/// How many there are, counting most_parts for each fill.
template <class P>
[[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t staged_parts(const Tables<P>& tables, const Unpacking& unpacking) {
    return (unpacking.counted != nullptr ? *unpacking.counted : unpacking.count) * tables.most_parts;
}
/// The i-th of them.
template <class P>
[[nodiscard]] RESIDENCY_HOST_DEVICE StagedPart staged_part(const Tables<P>& tables, const Unpacking& unpacking,
                                                           std::uint32_t i) {
    const std::uint32_t place = i / tables.most_parts, own = i % tables.most_parts;
    const Fill& fill = unpacking.fills[place];
    if (own >= fill.source.parts) { return {}; }
    const Part& part = tables.parts[fill.source.first_part + own];
    return {unpacking.staging + place * tables.staged_bytes + part.packed_at,
            tables.pool + fill.slot * tables.slot_bytes + part.raw_at, part.raw_bytes, part.form};
}

/// One call's decisions: which experts have a slot, who leaves, what is to be brought.
template <class P, class Team>
class Decision {
public:
    RESIDENCY_HOST_DEVICE Decision(const Team& team, Scratch& scratch, const Tables<P>& tables, const Call& call,
                                   bool is_guess)
        : team_{team}, scratch_{scratch}, t_{tables}, call_{call}, is_guess_{is_guess} {
        now_.call = is_guess ? t_.state->call : t_.state->call + 1;
        now_.layer = is_guess ? t_.state->layer : call.layer;
        now_.layers = t_.layers;
        now_.share = t_.layer_share;
        round_ = t_.rounds[call.layer] + (is_guess ? 0 : 1);
        slots_ = t_.state->slots;
        fresh_ = t_.state->fresh;
    }

    /// The parts of a decision, in this order.
    RESIDENCY_HOST_DEVICE void make() {
        look_up();
        list(t_.state->guess_made != 0);
        finish();
        if (!is_guess_) { look_ahead(); }
    }
    /// Reads what the tables say of this thread's first choice. A guess that has not ended may change that.
    RESIDENCY_HOST_DEVICE void look_up() {
        if (team_.rank >= call_.count) { return; }
        own_choice_ = choice_of(call_, team_.rank);
        own_ = look_up(team_.rank, expert_of(own_choice_));
    }
    /// After look_up(): this thread's choices are a hit or padding, one at most, and there is nothing to bring for them.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool has_hit() const {
        return !own_.is_listed && own_choice_ < static_cast<std::int64_t>(call_.experts) &&
               team_.rank + team_.size >= call_.count;
    }
    /// The expert of this thread's first choice, in its layer; none: padding.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t own_expert() const { return own_.expert; }
    /// Instead of list() and finish() of a call, where every thread has a hit and no guess came. `is_first`: no earlier thread has chosen that expert.
    RESIDENCY_HOST_DEVICE void finish_hits(bool is_first) {
        if (team_.rank < call_.count) {
            write_address(team_.rank, own_.expert, own_.at);
            if (own_.expert != none && is_first) {
                t_.slot[own_.at].call = now_.call;
                tell_policy(own_);
            }
        }
        if (team_.rank == team_.size - 1) { write_state(); }
    }
    /// Lists what is to be brought: fills() of them. `guess_came`: one was decided since the last call, or since look_up() began.
    RESIDENCY_HOST_DEVICE void list(bool guess_came) {
        guess_came_ = guess_came;
        if (guess_came) {
            end_guess();
            fresh_ = t_.state->fresh;
            if (own_.expert != none) { own_ = look_up(team_.rank, own_.expert); }
        }
        if (is_guess_ && is_pointless()) {
            team_.sync();  // everybody has read the state
            return;
        }
        is_decided_ = true;
        read_choices();
        find_misses();
        if (misses_ == 0) { return; }
        choose_slots();
        team_.sync();
        write_fills();
        team_.sync();
    }
    /// Writes where kernels read the choices, and what the next decision reads.
    RESIDENCY_HOST_DEVICE void finish() {
        if (!is_guess_) { write_addresses(); }
        tell_policy();
        if (team_.rank == team_.size - 1) { write_state(); }  // it has the fewest choices
    }
    /// After finish(), while others bring what is listed: who leaves first in the next call, if it serves the next layer.
    RESIDENCY_HOST_DEVICE void look_ahead() {
        if (fills_ == 0 || fresh_ < slots_) { return; }
        team_.sync();
        ++now_.call;
        now_.layer = now_.layer + 1 < t_.layers ? now_.layer + 1 : 0;
        round_ = t_.rounds[now_.layer] + 1;
        State& state = *t_.state;
        Best own;
        look_at_own(own, {});
        std::uint32_t listed = 0;
        RESIDENCY_ROLLED
        for (; listed < most_ahead; ++listed) {
            const Candidate next = team_.first_of(own.first);
            if (next.slot == none) { break; }
            if (team_.rank == 0) { state.next_out[listed] = next; }
            if (next.slot != own.first.slot) { continue; }
            own.first = own.second;
            own.second = {};
            if (own.first.slot == none) { look_at_own(own, next); }
        }
        if (team_.rank != 0) { return; }
        state.ahead = listed;
        state.ahead_of = now_.call;
        state.ahead_layer = now_.layer;
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t fills() const { return fills_; }
    /// Of a guess: it was neither too early nor too late, nor pointless.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool is_decided() const { return is_decided_; }

private:
    static constexpr double free_key = 1e308;  // of a free slot: it is taken first

    /// The expert of the layer that a choice names; none: padding. What is out of range counts as the first one.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t expert_of(std::int64_t choice) const {
        if (choice < 0) { return none; }
        return choice < static_cast<std::int64_t>(call_.experts) ? static_cast<std::uint32_t>(choice) : 0;
    }
    /// What the tables say of a choice.
    struct Chosen {
        std::uint32_t expert = none;  // of the layer; none: padding
        std::uint32_t at = none;      // its slot
        std::uint32_t guessed = 0;    // as Slot says
        bool is_missed = false;       // some of its bytes have not come
        bool is_listed = false;       // it is missed, or a guess has brought it packed
        // Of a hit of a call: what the policy remembers after this use.
        typename P::OfExpert of_expert{};
        typename P::OfSlot of_slot{};
    };
    [[nodiscard]] RESIDENCY_HOST_DEVICE Chosen look_up(std::uint32_t i, std::uint32_t expert) const {
        Chosen chosen;
        chosen.expert = expert;
        if (expert == none) { return chosen; }
        const Source& source = t_.sources[call_.first + expert];
        chosen.at = t_.slot_of[call_.first + expert];
        if (!is_guess_) { chosen.of_expert = t_.of_expert[call_.first + expert]; }
        std::uint32_t there = 0;
        if (chosen.at != none) {
            const Slot& slot = t_.slot[chosen.at];
            there = slot.pieces;
            chosen.guessed = slot.guessed;
            if (!is_guess_) {
                chosen.of_slot = t_.of_slot[chosen.at];
                Now now = now_;
                now.order = i;
                P::used(*t_.numbers, chosen.of_slot, chosen.of_expert, round_, now);
            }
        }
        chosen.is_missed = chosen.at == none || there < pieces_of(source.bytes);
        chosen.is_listed = chosen.is_missed || (!is_guess_ && there < all_pieces(source));
        return chosen;
    }
    /// The i-th choice, which is one of this thread's.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t expert_at(std::uint32_t i) const {
        return i == team_.rank ? own_.expert : expert_of(choice_of(call_, i));
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE Chosen chosen_at(std::uint32_t i) const {
        return i == team_.rank ? own_ : look_up(i, expert_of(choice_of(call_, i)));
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t round_of(std::uint32_t layer) const {
        return layer == (is_guess_ ? call_.layer : now_.layer) ? round_ : t_.rounds[layer];
    }
    [[nodiscard]] RESIDENCY_HOST_DEVICE Key key_of(const typename P::OfSlot& of_slot, std::uint32_t layer) const {
        return P::key(*t_.numbers, of_slot, layer, round_of(layer), now_);
    }

    /// By expert, the first choice of it; and the first mistake.
    RESIDENCY_HOST_DEVICE void read_choices() {
        RESIDENCY_ROLLED
        for (std::uint32_t e = team_.rank; e < call_.experts; e += team_.size) { scratch_.first[e] = none; }
        team_.sync();
        RESIDENCY_ROLLED
        for (std::uint32_t i = team_.rank; i < call_.count; i += team_.size) {
            const std::int64_t choice = i == team_.rank ? own_choice_ : choice_of(call_, i);
            const std::uint32_t expert = expert_of(choice);
            if (expert == none) { continue; }
            team_.lower(scratch_.first[expert], i);
            if (choice >= static_cast<std::int64_t>(call_.experts) && team_.set_first(t_.mistake->is_set)) {
                t_.mistake->layer = call_.layer;
                t_.mistake->choice = choice;
                t_.mistake->place = i;
                team_.publish(t_.mistake->is_whole);
            }
        }
        team_.sync();
    }
    /// The last guess brings no more: what of it has come is known.
    RESIDENCY_HOST_DEVICE void end_guess() {
        const std::uint32_t fills = t_.state->guess_fills, next = t_.state->guess_next;
        if (fills == 0) { return; }
        RESIDENCY_ROLLED
        for (std::uint32_t k = team_.rank; k < fills; k += team_.size) {
            scratch_.misses[k] = t_.guess_fills[k].pieces - t_.guess_fills[k].first_piece;
        }
        team_.sync();
        RESIDENCY_ROLLED
        for (std::uint32_t k = team_.rank; k < fills; k += team_.size) {
            std::uint32_t before = 0;
            RESIDENCY_ROLLED
            for (std::uint32_t i = 0; i < k; ++i) { before += scratch_.misses[i]; }
            const Fill& fill = t_.guess_fills[k];
            const std::uint32_t all = scratch_.misses[k];
            const std::uint32_t come = next <= before ? 0 : next - before < all ? next - before : all;
            t_.slot[fill.slot].pieces = fill.first_piece + come;
            team_.add(t_.state->counters.guess_bytes, bytes_between(fill, fill.first_piece + come));
        }
        team_.sync();
    }
    /// A guess that comes too early or too late; or guesses gained too little of late: then one of many is tried all the same.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool is_pointless() const {
        if (now_.layer == none || now_.layer != call_.after) { return true; }
        const std::int32_t gain = t_.state->guess_gain.value();
        return gain < least_guess_gain && now_.call % (gain < 0 ? harmful_guess_retry : guess_retry) != 0;
    }
    /// What came of the last guess. By one thread, before the next one is listed. A wrong one costs an eighth of an expert: the one that left may
    /// have been needed.
    RESIDENCY_HOST_DEVICE void learn_from_guess() {
        State& state = *t_.state;
        std::int64_t gain = 0;  // in eighths of a piece
        std::uint32_t come = 0, listed = 0;
        RESIDENCY_ROLLED
        for (std::uint32_t k = 0; k < state.guess_fills; ++k) {
            const Fill& fill = t_.guess_fills[k];
            const std::uint32_t local = fill.expert - call_.first, all = fill.pieces - fill.first_piece;
            const std::uint32_t left = state.guess_next > listed ? state.guess_next - listed : 0;
            const std::uint32_t own = left < all ? left : all;
            const std::uint32_t value = own == all && own < whole_guess_gain ? whole_guess_gain : own;
            const bool is_right = local < call_.experts && scratch_.first[local] != none;
            gain += is_right ? std::int64_t{8} * value : -std::int64_t{fill.pieces};
            come += own;
            listed += all;
        }
        state.guess_gain.add(gain / 8);
        if (come < listed) {
            state.guess_room.add(come);
        } else if (2 * std::int64_t{come} > state.guess_room.value()) {
            state.guess_room.add(2 * std::int64_t{come});  // more might have come
        }
    }
    /// What has a slot stays in it. The others are listed in the order of their first choices, and what a guess has brought packed.
    RESIDENCY_HOST_DEVICE void find_misses() {
        RESIDENCY_ROLLED
        for (std::uint32_t begin = 0; begin < call_.count; begin += team_.size) {
            const std::uint32_t i = begin + team_.rank;
            bool is_listed = false;
            if (i < call_.count) {
                const Chosen chosen = chosen_at(i);
                if (chosen.expert != none && scratch_.first[chosen.expert] == i) {
                    is_listed = chosen.is_listed;
                    scratch_.slot[chosen.expert] = chosen.at;
                    scratch_.is_missed[chosen.expert] = chosen.is_missed;
                    if (chosen.at != none) { t_.slot[chosen.at].call = now_.call; }
                }
            }
            std::uint32_t total = 0;
            const std::uint32_t before = team_.count_before(is_listed, total);
            if (is_listed) { scratch_.misses[misses_ + before] = expert_at(i); }
            misses_ += total;
        }
        if (misses_ != 0) { team_.sync(); }
    }
    /// The two of this thread's slots that are emptied first, of those behind `after`.
    struct Best {
        Candidate first, second;
    };
    RESIDENCY_HOST_DEVICE void look_at_own(Best& best, const Candidate& after) const {
        best = {};
        Slot slot;
        typename P::OfSlot of_slot{};
        const auto load = [&](std::uint32_t at) {
            if (at >= slots_) { return; }
            slot = t_.slot[at];
            of_slot = t_.of_slot[at];
        };
        load(team_.rank);
        RESIDENCY_ROLLED
        for (std::uint32_t at = team_.rank; at < slots_; at += team_.size) {
            const Slot own = slot;
            const auto of_own = of_slot;
            load(at + team_.size);  // is under way while the key is computed
            if (own.call == now_.call) { continue; }
            const Candidate one = own.expert == none ? Candidate{Key{free_key, 0}, at, at}
                                                     : Candidate{key_of(of_own, own.layer), at, own.expert};
            if (after.slot != none && !after.is_before(one)) { continue; }
            if (one.is_before(best.first)) {
                best.second = best.first;
                best.first = one;
            } else if (one.is_before(best.second)) {
                best.second = one;
            }
        }
    }
    /// Gives misses a slot, in their order. A guess lists no more than can come: for the rest others would leave for nothing.
    RESIDENCY_HOST_DEVICE void choose_slots() {
        const bool may_stay_out = is_guess_ || t_.reads_in_place;
        RESIDENCY_ROLLED
        for (std::uint32_t k = team_.rank; k < misses_ && may_stay_out; k += team_.size) {
            scratch_.keys[k] = key_of_miss(call_.first + scratch_.misses[k]);
        }
        const State& state = *t_.state;
        const bool is_ahead = !is_guess_ && state.ahead_of == now_.call && state.ahead_layer == now_.layer;
        std::uint32_t next = 0, next_end = is_ahead ? state.ahead : 0;
        std::uint32_t stays = 0;  // bit i: next_out[i] is chosen. Read before any of these slots is given
        RESIDENCY_ROLLED
        for (std::uint32_t i = 0; i < next_end; ++i) {
            if (t_.slot[state.next_out[i].slot].call == now_.call) { stays |= 1U << i; }
        }
        team_.sync();
        Best own;
        bool has_looked = false;
        const std::int64_t room = is_guess_ ? t_.state->guess_room.value() : INT64_MAX;
        std::int64_t listed = 0;  // pieces
        RESIDENCY_ROLLED
        for (std::uint32_t k = 0; k < misses_ && (listed < room || k == 0); ++k) {
            const std::uint32_t expert = scratch_.misses[k];
            std::uint32_t at = scratch_.slot[expert], is_new = 0;
            if (at == none) {  // else a guess has brought it, or a part of it
                is_new = Scratch::is_new;
                if (fresh_ < slots_) {
                    at = fresh_++;
                } else {
                    Candidate leaves;
                    while (next < next_end && (stays >> next & 1U) != 0) { ++next; }
                    if (next < next_end) {
                        leaves = state.next_out[next];
                    } else {
                        if (!has_looked) { look_at_own(own, {}); }
                        has_looked = true;
                        leaves = team_.first_of(own.first);
                    }
                    if (leaves.slot == none) { continue; }
                    if (may_stay_out && leaves.key.first < free_key && !leaves.key.is_over(scratch_.keys[k])) {
                        continue;
                    }
                    at = leaves.slot;
                    if (next < next_end) { ++next; }
                }
                if (at % team_.size == team_.rank) {
                    t_.slot[at].call = now_.call;
                    if (own.first.slot == at) {
                        own.first = own.second;
                        own.second = {};
                        has_looked = own.first.slot != none;
                    }
                }
            }
            if (team_.rank == 0) {
                scratch_.listed[fills_] = is_new + expert;
                scratch_.given[fills_] = at;
            }
            ++fills_;
            if (is_guess_) { listed += pieces_of(t_.sources[call_.first + expert].bytes); }
        }
    }
    /// Of an expert that gets a slot: when it is needed again.
    [[nodiscard]] RESIDENCY_HOST_DEVICE Key key_of_miss(std::uint32_t expert) const {
        typename P::OfSlot own{};
        auto of_expert = t_.of_expert[expert];
        P::inserted(*t_.numbers, own, of_expert, round_, now_);
        if (!is_guess_) { P::used(*t_.numbers, own, of_expert, round_, now_); }
        return key_of(own, call_.layer);
    }
    RESIDENCY_HOST_DEVICE void write_fills() {
        RESIDENCY_ROLLED
        for (std::uint32_t k = team_.rank; k < fills_; k += team_.size) {
            const std::uint32_t local = scratch_.listed[k] % Scratch::is_new, expert = call_.first + local;
            const Source& source = t_.sources[expert];
            const std::uint32_t at = scratch_.given[k];
            const std::uint32_t pieces = is_guess_ ? pieces_of(source.bytes) : all_pieces(source);
            scratch_.slot[local] = at;
            Slot& slot = t_.slot[at];
            if (scratch_.listed[k] >= Scratch::is_new) {
                if (slot.expert != none) { t_.slot_of[slot.expert] = none; }
                slot.expert = expert;
                slot.layer = call_.layer;
                slot.pieces = 0;
                slot.guessed = is_guess_ ? 1 : 0;
                t_.slot_of[expert] = at;
            }
            const Fill fill{source, expert, at, slot.pieces, pieces};
            (is_guess_ ? t_.guess_fills : t_.fills)[k] = fill;
            if (is_guess_) {
                team_.add(t_.state->counters.guesses, 1);
                continue;
            }
            slot.pieces = pieces;  // before anything reads it
            if (!scratch_.is_missed[local]) { continue; }
            team_.add(t_.state->counters.misses, 1);
            team_.add(t_.state->counters.demand_bytes, bytes_between(fill, pieces));
        }
    }
    /// The bytes of a fill up to a piece.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::uint64_t bytes_between(const Fill& fill, std::uint32_t end) const {
        const std::uint64_t bytes = fill.source.bytes;
        const std::uint64_t to = static_cast<std::uint64_t>(end) * piece_bytes;
        return (to < bytes ? to : bytes) - static_cast<std::uint64_t>(fill.first_piece) * piece_bytes;
    }
    RESIDENCY_HOST_DEVICE void write_addresses() {
        RESIDENCY_ROLLED
        for (std::uint32_t i = team_.rank; i < call_.count; i += team_.size) {
            const std::uint32_t expert = expert_at(i);
            write_address(i, expert, expert == none ? none : scratch_.slot[expert]);
        }
    }
    RESIDENCY_HOST_DEVICE void write_address(std::uint32_t i, std::uint32_t expert, std::uint32_t at) {
        call_.slots[i] = at == none ? -1 : static_cast<std::int32_t>(at);
        call_.addresses[i] = expert == none ? nullptr
                             : at == none   ? t_.sources[call_.first + expert].host
                                            : t_.pool + at * t_.slot_bytes;
    }
    /// Hits, then what is brought, then what is read in host memory.
    RESIDENCY_HOST_DEVICE void tell_policy() {
        const std::uint32_t hits_end = is_guess_ ? 0 : call_.count, fills_end = hits_end + fills_;
        const std::uint32_t end = fills_end + (is_guess_ || fills_ == misses_ ? 0 : misses_);
        RESIDENCY_ROLLED
        for (std::uint32_t i = team_.rank; i < end; i += team_.size) {
            std::uint32_t local = none;
            bool is_new = false;
            Now now = now_;
            if (i < hits_end) {
                const std::uint32_t expert = expert_at(i);
                if (expert == none || scratch_.first[expert] != i || scratch_.is_missed[expert]) { continue; }
                tell_policy(chosen_at(i));
                continue;
            }
            if (i < fills_end) {
                local = scratch_.listed[i - hits_end] % Scratch::is_new;
                if (!scratch_.is_missed[local]) { continue; }  // it was a hit
                is_new = scratch_.listed[i - hits_end] >= Scratch::is_new;
                now.order = most_choices + i - hits_end;
            } else {
                local = scratch_.misses[i - fills_end];
                if (scratch_.slot[local] != none) { continue; }
                team_.add(t_.state->counters.misses, 1);
                team_.add(t_.state->counters.in_place, 1);
                team_.add(t_.state->counters.in_place_bytes, t_.sources[call_.first + local].bytes);
            }
            tell_policy(scratch_.slot[local], call_.first + local, t_.of_expert[call_.first + local], is_new, now);
        }
    }
    RESIDENCY_HOST_DEVICE void tell_policy(const Chosen& hit) {
        t_.of_expert[call_.first + hit.expert] = hit.of_expert;
        t_.of_slot[hit.at] = hit.of_slot;
        t_.slot[hit.at].guessed = 0;
        team_.add(t_.state->counters.hits, 1);
        if (hit.guessed != 0) { team_.add(t_.state->counters.guess_hits, 1); }
    }
    RESIDENCY_HOST_DEVICE void tell_policy(std::uint32_t at, std::uint32_t expert, typename P::OfExpert of_expert,
                                           bool is_new, const Now& now) {
        typename P::OfSlot own{};
        if (at != none) { own = t_.of_slot[at]; }
        if (is_new) { P::inserted(*t_.numbers, own, of_expert, round_, now); }
        if (!is_guess_) {
            P::used(*t_.numbers, own, of_expert, round_, now);
            t_.of_expert[expert] = of_expert;
        }
        if (at == none) { return; }
        t_.of_slot[at] = own;
        if (!is_guess_) { t_.slot[at].guessed = 0; }
    }
    RESIDENCY_HOST_DEVICE void write_state() {
        State& state = *t_.state;
        state.fresh = fresh_;
        if (is_guess_) {
            state.guess_fills = fills_;
            state.guess_next = 0;
            state.guess_made = is_decided_ ? 1 : 0;
            if (fills_ != 0) { state.ahead_of = 0; }
            return;
        }
        if (guess_came_) {
            if (state.guess_made != 0) { learn_from_guess(); }
            state.guess_made = state.guess_fills = 0;
        }
        state.call = now_.call;
        state.layer = call_.layer;
        state.fills = fills_;
        t_.rounds[call_.layer] = round_;
        team_.add(state.counters.calls, 1);
    }

    const Team& team_;
    Scratch& scratch_;
    const Tables<P>& t_;
    const Call& call_;
    bool is_guess_;
    bool is_decided_ = false;  // the guess
    bool guess_came_ = false;  // as list() says
    Now now_;
    std::uint32_t round_, slots_;
    std::int64_t own_choice_ = -1;  // this thread's first one
    Chosen own_;                    // of it
    std::uint32_t misses_ = 0;
    std::uint32_t fills_ = 0;
    std::uint32_t fresh_ = 0;  // slot; all from it on are free
};

}}}  // namespace residency::RESIDENCY_ABI::routed
