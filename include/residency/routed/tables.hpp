// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/routed/policies.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace routed {

/// No slot, no expert.
inline constexpr std::uint32_t none = UINT32_MAX;
/// Experts of one layer, at most.
inline constexpr std::uint32_t most_experts = 1024;
/// Choices of one call, at most: 64 tokens with 16 experts each.
inline constexpr std::uint32_t most_choices = 1024;
/// An expert is filled in pieces of so many bytes.
inline constexpr std::uint32_t piece_bytes = 1U << 15U;
/// Blocks of a kernel, at most.
inline constexpr std::uint32_t most_blocks = 64;

/// Where an expert comes from.
struct Source {
    const std::byte* host = nullptr;  ///< pinned, as the device sees it
    std::uint64_t bytes = 0;          ///< that travel: packed ones where it is packed
    std::uint32_t first_part = 0;     ///< in Tables::parts
    std::uint32_t parts = 0;          ///< 0: it is not packed
};

/// A part of a packed expert. Offsets are multiples of 16.
struct Part {
    std::uint64_t packed_at = 0;        ///< offset in the bytes that travel
    std::uint64_t raw_at = 0;           ///< in the expert
    std::uint64_t raw_bytes = 0;        ///< that it stands for
    PackedForm form = PackedForm::raw;  ///< raw, or one that codec/tiers.cuh unpacks
};

/// What lies in a slot.
struct Slot {
    std::uint32_t expert = none;  ///< its number over all layers; none: free
    std::uint32_t layer = 0;      ///< of the expert
    std::uint32_t pieces =
        0;  ///< that have come, from the front. Those of a packed expert are packed until it has all_pieces()
    std::uint32_t guessed = 0;  ///< 1: it came by a guess, and was not read since
    std::uint64_t call = 0;     ///< that served it last: it may not leave until the next one
};

/// An expert that is to be brought, from a piece on.
struct Fill {
    Source source;                  ///< of the expert
    std::uint32_t expert = 0;       ///< its number over all layers
    std::uint32_t slot = 0;         ///< that it gets
    std::uint32_t first_piece = 0;  ///< pieces before it have come
    std::uint32_t pieces = 0;       ///< that it has then
};

/// How often what happened, since the cache was made.
struct Counters {
    std::uint64_t hits = 0;            ///< chosen experts that were there
    std::uint64_t guess_hits = 0;      ///< of them, those that a guess had brought
    std::uint64_t misses = 0;          ///< chosen experts that were not, or not whole
    std::uint64_t in_place = 0;        ///< of them, those that kernels read in host memory
    std::uint64_t guesses = 0;         ///< guessed experts that were not there, and got a slot
    std::uint64_t demand_bytes = 0;    ///< brought for choices, as they travel
    std::uint64_t guess_bytes = 0;     ///< brought for guesses, as they travel
    std::uint64_t in_place_bytes = 0;  ///< of the experts that kernels read in host memory
    std::uint64_t calls = 0;           ///< layers served
};

/// What the device found wrong, for the host to say. The first one stays.
struct Mistake {
    std::uint32_t is_set = 0;    ///< there is one
    std::uint32_t is_whole = 0;  ///< the other fields are written
    std::uint32_t layer = 0;     ///< of the call
    std::int64_t choice = 0;     ///< the number that its layer has not
    std::uint32_t place = 0;     ///< of the choice among those of its call
};

/// Guesses rest while one gains fewer pieces than this on average: about what the link brings in the time that the decision takes.
inline constexpr std::int32_t least_guess_gain = 4;
/// An expert that has come whole gains no fewer pieces: a call that has nothing to bring saves what the first byte takes, too.
inline constexpr std::uint32_t whole_guess_gain = 8;
/// Where guesses rest, the one after each so many calls is tried; and fewer, where guesses did harm.
inline constexpr std::uint32_t guess_retry = 17, harmful_guess_retry = 97;

/// A mean over about 32 guesses, in 256ths of a piece. It begins with 64 pieces.
struct GuessMean {
    std::int32_t of_256 = 64 << 8;  ///< the mean

    /// In pieces.
    [[nodiscard]] RESIDENCY_HOST_DEVICE std::int32_t value() const { return of_256 / 256; }
    /// One guess more, of so many pieces.
    RESIDENCY_HOST_DEVICE void add(std::int64_t pieces) {
        constexpr std::int64_t most = std::int64_t{1} << 20;
        const std::int64_t within = pieces < -most ? -most : pieces > most ? most : pieces;
        of_256 += static_cast<std::int32_t>((within * 256 - of_256) / 32);
    }
};

/// A slot that may be emptied.
struct Candidate {
    Key key;                    ///< by which it is chosen
    std::uint32_t slot = none;  ///< which it is
    std::uint32_t order = 0;    ///< chooses among equals

    /// Whether it is emptied before the other one. Among equals the one of the lower order is.
    [[nodiscard]] RESIDENCY_HOST_DEVICE bool is_before(const Candidate& other) const {
        if (slot == none || other.slot == none) { return slot != none; }
        return key.is_over(other.key) || (!other.key.is_over(key) && order < other.order);
    }
};

/// So many of those that leave next are found while a call brings what it lists.
inline constexpr std::uint32_t most_ahead = 8;

/// What changes, beside the tables.
struct State {
    std::uint64_t call = 0;         ///< calls of serve() so far
    std::uint32_t slots = 0;        ///< that there are
    std::uint32_t fresh = 0;        ///< from this slot on, all are free
    std::uint32_t layer = none;     ///< that was served last
    std::uint32_t fills = 0;        ///< of the call that runs
    std::uint32_t gate = 0;         ///< blocks that bring a guess; and the bits below
    std::uint32_t guess_fills = 0;  ///< of the last guess
    std::uint32_t filling = 0;      ///< blocks that bring what the last call lists
    std::uint32_t guess_next = 0;   ///< the item that is brought next: items count the pieces of all fills
    std::uint32_t guess_made = 0;   ///< 1: a guess was decided since the last call
    GuessMean guess_gain;           ///< what came of chosen experts, less what others cost
    GuessMean guess_room;           ///< what can come before the next call
    /// By block of a call: 1 and the number of fills, once they are listed; the block takes it.
    std::uint32_t listed[most_blocks] = {};
    std::uint64_t ahead_of = 0;      ///< the call that `next_out` is for; 0: none
    std::uint32_t ahead_layer = 0;   ///< that it has to serve
    std::uint32_t ahead = 0;         ///< how many there are
    Candidate next_out[most_ahead];  ///< that leave first, unless the call has chosen them
    std::uint32_t guess_messages[most_blocks] =
        {};             ///< by block of guesses: that something is listed, or that nothing is
    Counters counters;  ///< of all calls
};
/// In State::gate: a call decides.
inline constexpr std::uint32_t gate_closed = 1U << 31U;
/// In State::gate: a guess decides.
inline constexpr std::uint32_t gate_decides = 1U << 30U;
/// In State::gate: a guess was decided since the last call.
inline constexpr std::uint32_t gate_guessed = 1U << 29U;

/// The cache as kernels see it: every pointer is the device's. Passed by value.
template <class Policy>
struct Tables {
    std::uint32_t layers = 0;                           ///< of the model
    double layer_share = 0;                             ///< of one layer in a round: 1 / layers
    std::uint64_t slot_bytes = 0;                       ///< of each slot
    std::byte* pool = nullptr;                          ///< the first slot
    const Source* sources = nullptr;                    ///< by expert
    std::uint32_t* slot_of = nullptr;                   ///< by expert; none: it has no slot
    Slot* slot = nullptr;                               ///< by slot
    std::uint32_t* rounds = nullptr;                    ///< by layer: how often it was served
    typename Policy::OfExpert* of_expert = nullptr;     ///< by expert
    typename Policy::OfSlot* of_slot = nullptr;         ///< by slot
    const typename Policy::Numbers* numbers = nullptr;  ///< of the policy
    Fill* fills = nullptr;                              ///< of the call that runs
    Fill* guess_fills = nullptr;                        ///< of the last guess
    State* state = nullptr;                             ///< what changes
    Mistake* mistake = nullptr;                         ///< in pinned host memory
    bool reads_in_place = false;                        ///< an expert that will not stay is not brought
    const Part* parts = nullptr;                        ///< of packed experts
    std::uint32_t most_parts = 0;                       ///< of one expert; 0: none is packed
    std::uint32_t forms = 0;                            ///< bit i: there are parts of the PackedForm i
    std::uint64_t part_bytes = 0;                       ///< raw ones of a part, at most
    std::byte* staging = nullptr;                       ///< where packed experts come: by place in the list of fills
    std::uint64_t staged_bytes = 0;                     ///< from one place to the next
};

/// Experts that lie packed in the staging area, and the slots that they are unpacked into.
struct Unpacking {
    const Fill* fills = nullptr;             ///< in device memory; those of experts that are not packed are left alone
    const std::uint32_t* counted = nullptr;  ///< how many, in device memory; null: `count`
    std::uint32_t count = 0;                 ///< how many, where the host knows it
    const std::byte* staging = nullptr;      ///< of the first one
};

/// The type of a router's choices in device memory.
enum class ChoiceType : std::uint32_t { i32, i64 };

/// What one call works on. Negative choices are padding.
struct Call {
    std::uint32_t layer = 0;                ///< whose experts are chosen
    std::uint32_t first = 0;                ///< its first expert, by its number over all layers
    std::uint32_t experts = 0;              ///< that it has
    std::uint32_t count = 0;                ///< choices
    ChoiceType type = ChoiceType::i32;      ///< of a choice
    const void* choices = nullptr;          ///< in device memory
    const std::byte** addresses = nullptr;  ///< out, by choice: where kernels read the expert; null for padding
    std::int32_t* slots = nullptr;          ///< out, by choice: its slot; -1: padding, or it is read in host memory
    std::uint32_t after = none;             ///< of a guess: the layer that was served before it; later it is too late
    bool is_early = false;                  ///< of a guess: that layer is served beside it
};

/// The i-th choice of a call.
[[nodiscard]] RESIDENCY_HOST_DEVICE std::int64_t choice_of(const Call& call, std::uint32_t i) {
    return call.type == ChoiceType::i32 ? static_cast<const std::int32_t*>(call.choices)[i]
                                        : static_cast<const std::int64_t*>(call.choices)[i];
}

/// The pieces in which so many bytes travel.
[[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t pieces_of(std::uint64_t bytes) {
    return static_cast<std::uint32_t>((bytes + piece_bytes - 1) / piece_bytes);
}
/// The pieces of an expert that kernels can read: of a packed one, the last is that it was unpacked, which only serve() does.
[[nodiscard]] RESIDENCY_HOST_DEVICE std::uint32_t all_pieces(const Source& source) {
    return pieces_of(source.bytes) + (source.parts != 0 ? 1 : 0);
}

}}}  // namespace residency::RESIDENCY_ABI::routed
