// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Consecutive chunks of the image that are copied together to consecutive slots.
struct RingPiece {
    std::uint32_t chunk_begin = 0, chunks = 0, slot = 0;
    std::uint32_t needed_by = 0;     ///< the first step that reads them
    std::uint32_t wait_step = none;  ///< the step that releases the slots
    bool wait_previous = false;      ///< that step is of the pass before
    double missing = 0;              ///< of one chunk: the share that holds no bytes and is not copied
};

/// Whether a piece is part of the call before it.
enum class Joins : std::uint8_t {
    same_release,  ///< if both are for one step and follow one release
    if_possible,  ///< whatever they are for and follow; in a graph, whose calls are one copy each, where that copy goes on
    always,       ///< also in a graph, at the cost of a copy more
};

/// The calls that bring the pieces of a pass through slots, whoever chose these: their times, and what a plan says of them. Pieces come in
/// the order of the copy stream, and no call waits for a step that needs it.
class RingCalls {
public:
    /// No pass takes so long. Seconds.
    static constexpr double impossible = 1e300;

    /// `compute`: seconds, by step; `latency`: seconds per call.
    RingCalls(std::vector<double> compute, double chunks_per_second, double latency, bool captured)
        : seconds_per_chunk_{1 / chunks_per_second}, latency_{latency}, captured_{captured} {
        line_.compute = std::move(compute);
    }

    /// Whether pieces are kept for assignment(), or only times are wanted.
    enum class Keeps : std::uint8_t { times, pieces };
    /// Forgets all pieces.
    void clear(Keeps keeps) noexcept {
        keeps_ = keeps;
        pieces_.clear();
        line_.calls.clear();
    }
    /// Whether the next piece is for the same step as the last one and follows the same release.
    [[nodiscard]] bool follows_same_release(const RingPiece& piece) const noexcept {
        return size() != 0 && last_.needed_by == piece.needed_by && last_.wait_step == piece.wait_step &&
               last_.wait_previous == piece.wait_previous;
    }
    /// Adds the next piece. False where its call would wait for a step that needs it.
    [[nodiscard]] bool add(const RingPiece& piece, Joins joins);
    /// How many calls there are.
    [[nodiscard]] std::size_t size() const noexcept { return line_.calls.size(); }

    /// Seconds per pass. Above `give_up`: a lower bound. `idle`: seconds for which the link brings nothing, whatever the calls.
    [[nodiscard]] double seconds(double give_up, double idle = 0);
    /// The chunks, slots and calls of a plan. The slots are [0, slots_used). Precondition: pieces were kept.
    [[nodiscard]] RingAssignment assignment(std::uint32_t slots_used) const;

    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return solver_.nodes() + added_; }

private:
    struct Added {
        RingPiece piece;
        std::uint32_t call;
    };

    double seconds_per_chunk_, latency_;
    bool captured_;
    Keeps keeps_ = Keeps::pieces;
    RingPiece last_;
    std::vector<Added> pieces_;
    Timeline line_;
    TimelineSolver solver_;
    std::uint64_t added_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_calls.ipp"
#endif
