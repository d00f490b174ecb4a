// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/copy.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Consecutive chunks of the image with the same first and last reader. A ring streams all, some or none of them. A chunk of which storages
/// fill a part only is a part of its own.
struct RingPart {
    std::uint32_t first = 0, last = 0;  ///< steps
    std::uint32_t chunk_begin = 0, chunk_end = 0;
    double missing = 0;  ///< of such a chunk: the share of it that holds no bytes and is not copied

    [[nodiscard]] std::uint32_t chunks() const noexcept { return chunk_end - chunk_begin; }
};

/// How the slots of a ring are used.
struct RingShape {
    std::uint32_t slots = 0;   ///< chunks that the ring holds
    std::uint32_t rounds = 0;  ///< how often a pass writes each slot
    std::uint32_t blocks =
        0;  ///< parts into which the slots are cut as evenly as possible; a round copies one piece to each

    [[nodiscard]] double piece_chunks() const noexcept { return static_cast<double>(slots) / blocks; }
};

/// What a ring may stream, and how fast, in chunks and seconds. Immutable. Its parts are in the order of the stream: by first
/// reader, and capacity()[i] is the number of chunks in the parts of step i.
class RingProblem {
public:
    /// `hold`: the cells of the image that stay, one entry for each. `budget_chunks` counts them too. `present`: what memory holds
    /// before the first pass, by chunk of the image; null: nothing. Keeps no reference.
    RingProblem(const Problem& problem, const Image& image, const std::vector<bool>& hold, std::uint64_t budget_chunks,
                bool captured, const std::vector<Presence>* present);

    [[nodiscard]] std::uint32_t steps() const noexcept { return static_cast<std::uint32_t>(compute_.size()); }
    [[nodiscard]] const std::vector<double>& compute() const noexcept { return compute_; }    ///< seconds, by step
    [[nodiscard]] const std::vector<double>& capacity() const noexcept { return capacity_; }  ///< chunks, by step
    /// Chunks that short chunks lack, by step: RingPart::missing of its parts together.
    [[nodiscard]] const std::vector<double>& missing() const noexcept { return missing_; }
    /// The same of all steps.
    [[nodiscard]] double missing_chunks() const noexcept { return missing_chunks_; }
    [[nodiscard]] const std::vector<RingPart>& parts() const noexcept { return parts_; }
    [[nodiscard]] std::uint32_t first_part(std::uint32_t step) const noexcept { return part_offsets_[step]; }
    [[nodiscard]] double chunks_per_second() const noexcept { return chunks_per_second_; }
    [[nodiscard]] double latency() const noexcept { return latency_; }  ///< seconds per call
    [[nodiscard]] bool is_captured() const noexcept { return captured_; }
    /// The first step that reads the last chunk of the image, if storages fill only a part of that chunk, so that its copy is shorter; else
    /// none.
    [[nodiscard]] std::uint32_t short_step() const noexcept { return short_step_; }

    /// Chunks that every pass must bring at least: a ring of k slots brings deficit() + k.
    [[nodiscard]] std::uint64_t deficit() const noexcept { return deficit_; }
    /// Chunks left for the ring and what stays besides the held cells.
    [[nodiscard]] std::uint64_t budget() const noexcept { return budget_; }
    [[nodiscard]] bool fits(std::uint64_t slots) const noexcept {
        return slots >= 1 && slots <= budget_ && deficit_ + slots <= streamable_;
    }
    /// How many rounds a ring of so many slots takes per pass.
    [[nodiscard]] std::uint32_t rounds_for(std::uint64_t slots) const noexcept {
        return static_cast<std::uint32_t>((deficit_ + slots - 1) / slots + 1);
    }
    /// The fewest slots that need no more rounds than that.
    [[nodiscard]] std::uint32_t slots_for(std::uint32_t rounds) const noexcept {
        return static_cast<std::uint32_t>((deficit_ + rounds - 2) / (rounds - 1));
    }

    /// Whether the planner was told what memory holds.
    [[nodiscard]] bool knows_presence() const noexcept { return !absent_before_.empty(); }
    /// Chunks of [begin, end) that are not in memory. Precondition of this and the next two: knows_presence().
    [[nodiscard]] std::uint32_t absent(std::uint32_t begin, std::uint32_t end) const noexcept {
        return absent_before_[end] - absent_before_[begin];
    }
    /// Chunks of [begin, end) that are no residents of the plan before.
    [[nodiscard]] std::uint32_t nonresident(std::uint32_t begin, std::uint32_t end) const noexcept {
        return nonresident_before_[end] - nonresident_before_[begin];
    }
    /// The same by step: the chunks of its parts.
    [[nodiscard]] const std::vector<double>& nonresident() const noexcept { return nonresident_; }

private:
    double chunks_per_second_ = 0, latency_ = 0;
    bool captured_ = false;
    std::vector<double> compute_, capacity_, missing_, nonresident_;  // by step
    double missing_chunks_ = 0;
    std::vector<RingPart> parts_;                                    // by step
    std::vector<std::uint32_t> part_offsets_;                        // by step, and the end
    std::vector<std::uint32_t> absent_before_, nonresident_before_;  // by chunk of the image: how many come before it
    std::uint32_t short_step_ = none;
    std::uint64_t streamable_ = 0, budget_ = 0, deficit_ = 0;
};

/// Consecutive chunks of one part that stream.
struct StreamedRun {
    std::uint32_t first, last;  ///< steps
    std::uint32_t chunk_begin, chunks;
    double missing;  ///< as RingPart::missing
};

/// Which chunks stream where steps stream so many: the last ones of each part, or the first ones where those continue the part before.
/// Where memory holds something, the end with fewer residents.
RESIDENCY_INLINE void choose_chunks(const RingProblem& problem, const std::vector<std::uint32_t>& streamed_per_step,
                                    std::vector<StreamedRun>& stream);

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/ring_problem.ipp"
#endif
