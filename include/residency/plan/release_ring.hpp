// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/ring_calls.hpp"
#include "residency/plan/ring_problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// One way to stream through a ring without rounds: its slots are as many as the streamed chunks are more than the deficit.
struct ReleaseCandidate {
    std::vector<std::uint32_t> streamed_per_step;  ///< chunks, by first reader
    /// By step: bit k: the step's call number k is part of the call before it, which may serve an earlier step. In a graph only where
    /// its chunks follow those in the image.
    std::vector<std::uint8_t> joins;
    /// How slots come back to their places (see ReleaseRing): from the end of the step than which so many release more slots, and which way.
    std::uint8_t wider = 0;
    bool backward = false;

    /// The chunks that a pass streams.
    [[nodiscard]] std::uint64_t streamed() const noexcept {
        std::uint64_t sum = 0;
        for (const std::uint32_t chunks : streamed_per_step) { sum += chunks; }
        return sum;
    }
};

/// Times candidates of one problem whose chunks take the slots in the order in which steps release them. So a ring of any size works,
/// and steps may stream any number of chunks up to its size: few wide storages need both. A slot has the same chunks in every pass,
/// and so has to come back to its place: the pass is looked at from the end of a wide step, whose slots are alike. The others, those that
/// are released before that, are found (chunks mod slots) places further on after a pass; where steps release several slots together,
/// they give way to others, or others to them (backward), until they are back.
/// Each result depends on the candidate alone.
class ReleaseRing {
public:
    /// Keeps a reference.
    explicit ReleaseRing(const RingProblem& problem)
        : problem_{problem},
          calls_{problem.compute(), problem.chunks_per_second(), problem.latency(), problem.is_captured()} {}

    /// Seconds per pass; RingCalls::impossible where the ring is too small for a step or a call would wait for a step that needs
    /// it. Above `give_up`: a lower bound.
    [[nodiscard]] double evaluate(const ReleaseCandidate& candidate, double give_up);

    /// The chunks and slots of a candidate that is possible. The ring has slots [0, slots_used).
    [[nodiscard]] RingAssignment assignment(const ReleaseCandidate& candidate);

    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return calls_.work() + built_; }

private:
    struct Slots {  // consecutive slots that a step released, or that it will have released: [slot, slot + count)
        std::int32_t released;  // the step, counted from the one after the wide one; below 0: in the pass before
        std::uint32_t step;     // the same as an index; none: not known yet
        std::uint32_t slot, count;
        std::uint32_t places;  // by which they have to move among others
        bool returns;          // they have to come back to their place
    };
    struct Piece {  // consecutive chunks of one run of the stream, on consecutive slots
        std::uint32_t run, slot, count;
        std::uint32_t wait;  // the step that releases the slots
        bool previous;       // that step is of the pass before
    };

    struct Order {             // of a piece in the copy stream
        std::uint64_t key;     // step that needs it, pass and step of the release
        std::uint64_t places;  // run and slot
        std::uint32_t piece;

        [[nodiscard]] bool operator<(const Order& other) const noexcept {
            return key != other.key ? key < other.key : places < other.places;
        }
    };

    [[nodiscard]] double least_idle(const std::vector<std::uint32_t>& streamed_per_step, std::uint64_t slots) const;
    [[nodiscard]] bool build(const ReleaseCandidate& candidate, std::uint64_t streamed, RingCalls::Keeps keeps);
    [[nodiscard]] std::uint32_t wide_step(std::size_t wider);
    [[nodiscard]] bool take_slots(std::uint32_t wide, bool backward);
    [[nodiscard]] bool take_slots_of_run(std::uint32_t run, std::int32_t first, std::int32_t last, bool backward);
    void reorder_released(bool backward);
    [[nodiscard]] bool close();
    void sort_pieces();
    [[nodiscard]] bool make_calls(const std::vector<std::uint8_t>& joins, RingCalls::Keeps keeps);

    const RingProblem& problem_;
    RingCalls calls_;
    std::uint32_t slots_ = 0;  // of the candidate at hand, as is all that follows
    std::vector<StreamedRun> stream_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> released_;  // slots by a step, that step
    std::vector<Slots> queue_;                                       // in the order of release; taken ones before head_
    std::size_t head_ = 0;
    std::int32_t reordered_ = -1;  // the step whose slots were reordered last
    std::vector<Piece> pieces_;
    std::vector<Order> order_;                // the pieces in the order of the copy stream
    std::vector<std::uint32_t> last_reader_;  // by slot
    std::vector<std::uint32_t> taken_;        // by run of the stream: its chunks in the pieces so far
    std::uint64_t built_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/release_ring.ipp"
#endif
