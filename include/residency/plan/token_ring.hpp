// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/plan/image.hpp"
#include "residency/plan/problem.hpp"
#include "residency/plan/ring_assignment.hpp"
#include "residency/plan/timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Chunks that one step reads first; a plan streams some or all of them.
struct RingPart {
    std::uint32_t first = 0, last = 0;  ///< steps
    std::uint32_t chunk_begin = 0, chunk_end = 0;
    double missing = 0;  ///< of the last chunk of the image: the share that holds no bytes

    [[nodiscard]] std::uint32_t chunks() const noexcept { return chunk_end - chunk_begin; }
};

/// What a token ring is: which chunks stream, in which pieces, each through which block of the ring.
struct RingSolution {
    struct Piece {  ///< consecutive chunks of the stream, into the first slots of a block
        std::uint32_t chunks = 0, block = 0;
    };
    bool found = false;
    double seconds = 0;
    std::uint32_t slots = 0, rounds = 0, blocks = 0;
    std::uint64_t streamed = 0;
    std::uint64_t fresh = 0;           ///< chunks that stay and did not before (Config::present)
    std::vector<std::uint32_t> take;   ///< chunks streamed of each step
    std::vector<std::uint32_t> sizes;  ///< chunks of each piece, empty ones too; piece p goes to block p mod blocks
    std::vector<Piece> pieces;
    std::vector<std::uint8_t> joins;         ///< of each piece: travels in the call of the one before
    std::vector<std::uint32_t> call_pieces;  ///< pieces of each call
    Timeline line;
    std::size_t cut = 0;
};

/// The cyclic planner. A ring of K chunk slots, used in q rounds a pass, K = ⌈D / (q − 1)⌉; what the fluid relaxation streams of
/// each step, rounded to pieces by error diffusion; a max-plus simulation decides.
class TokenRing {
public:
    struct Config {
        bool captured = false;      ///< calls are copy nodes: higher latency, a barrier each pass, a cut
        bool thorough = true;       ///< false: few options
        double target_seconds = 0;  ///< what nothing goes below: the search ends near it
        double share = 1;           ///< of the work that a search may take
        const std::vector<Presence>* present =
            nullptr;  ///< by chunk of the image: what memory holds before the first pass
    };

    /// `hold`: cells of the image that stay (kept ones, and repeatedly read ones); the others may stream. `budget_chunks` counts all.
    TokenRing(const Problem& problem, const Image& image, const std::vector<bool>& hold, std::uint64_t budget_chunks,
              Config config);

    /// Chunks that must be brought each pass at least.
    [[nodiscard]] std::uint64_t deficit() const noexcept { return deficit_; }
    /// What may stream, in the order of the stream.
    [[nodiscard]] const std::vector<RingPart>& parts() const noexcept { return parts_; }
    [[nodiscard]] std::uint64_t evaluations() const noexcept { return evaluations_; }
    /// Steps, calls and pieces looked at: a measure of time that is the same on every machine.
    [[nodiscard]] std::uint64_t work() const noexcept { return solver_.nodes() + built_; }

    /// The moves of a solution. Slots [0, solution.slots) are the ring.
    [[nodiscard]] RingAssignment assignment(const RingSolution& solution);

    /// The best ring found. Precondition: deficit() > 0.
    RingSolution search();

private:
    struct Use {
        std::uint32_t first, last, runs;  ///< runs: of consecutive chunks
        double missing;
    };
    struct Placed {
        std::uint32_t first, last, chunk_begin, chunks;
        double missing;
    };
    struct Choice {
        std::uint32_t slots = 0, blocks = 0;
        std::uint8_t kind = 0, phase = 0;  ///< of the wish, and quarters of a piece of credit at the start
        double seconds = 0;
    };

    [[nodiscard]] std::uint32_t slots_for(std::uint32_t rounds) const {
        return static_cast<std::uint32_t>((deficit_ + rounds - 2) / (rounds - 1));
    }
    [[nodiscard]] bool fits(std::uint64_t slots) const {
        return slots >= 1 && slots <= budget_ && deficit_ + slots <= streamable_;
    }
    static std::uint32_t blocks_for(std::uint32_t slots, double size) {
        return (std::clamp)(static_cast<std::uint32_t>(std::lround(slots / size)), (std::min)(2u, slots), slots);
    }

    // Chunks of [begin, end) that are not residents before; that are not there at all.
    [[nodiscard]] std::uint32_t leaving(std::uint32_t begin, std::uint32_t end) const {
        return leaving_before_[end] - leaving_before_[begin];
    }
    [[nodiscard]] std::uint32_t absent(std::uint32_t begin, std::uint32_t end) const {
        return absent_before_[end] - absent_before_[begin];
    }
    [[nodiscard]] std::uint64_t count_fresh(const std::vector<std::uint32_t>& sizes, std::uint32_t blocks) const;
    RingSolution closest(RingSolution answer);
    [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> rings_near(std::uint32_t slots,
                                                                                  std::uint32_t blocks,
                                                                                  std::uint64_t passing) const;
    bool wish_near(int kind, std::uint32_t slots, std::uint32_t blocks);
    // Whether closest() rather has a: a plan lasts for 64 passes, say.
    [[nodiscard]] bool is_closer(const RingSolution& a, const RingSolution& b) const {
        if (a.seconds > limit_ || b.seconds > limit_) { return a.seconds < b.seconds * (1 - 1e-7); }
        const auto cost = [&](const RingSolution& x) {
            return x.seconds + static_cast<double>(x.fresh) / (64 * rate_);
        };
        return cost(a) < cost(b) * (1 - 1e-7);
    }
    void refine(std::uint64_t most);
    void attempt(Choice choice, std::vector<Choice>& found);
    void cut_pieces(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks);
    void alternate(std::uint32_t slots);
    bool diffuse(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks, double phase);
    // Seconds of the choice whose wish is in want_; above best_.seconds it may be a lower bound; 1e300: there is no such plan.
    double consider(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks, double phase) {
        if (!diffuse(slots, rounds, blocks, phase)) { return 1e300; }
        return try_take(slots, rounds, blocks, best_.found ? best_.seconds * 1.01 : 1e300);
    }
    double try_take(std::uint32_t slots, std::uint32_t rounds, std::uint32_t blocks, double give_up);
    double measure(double give_up, std::size_t& cut);
    void place();
    bool build(std::uint32_t blocks);

    Config config_;
    double rate_ = 0, latency_ = 0;
    double limit_ = 0;  // above 0: closest() looks for what is near, not for what is fast
    std::uint64_t few_fresh_ = 0;
    std::vector<std::uint32_t> leaving_before_, absent_before_;  // by chunk of the image: those before it
    std::vector<double> leaving_;                                // by step
    std::vector<double> compute_, capacity_, want_;
    std::vector<std::uint32_t> part_offsets_, take_, sizes_, block_last_, call_pieces_;
    std::vector<std::uint8_t> block_pass_, joins_;
    std::vector<Use> uses_;
    std::vector<RingPart> parts_;
    std::vector<Placed> placed_;
    std::uint32_t short_step_ = none;
    std::uint64_t streamable_ = 0, budget_ = 0, deficit_ = 0, evaluations_ = 0, most_work_ = 0, built_ = 0;
    std::vector<RingSolution::Piece> pieces_;
    Timeline line_;
    TimelineSolver solver_;
    RingSolution best_;
    std::set<std::uint64_t> tried_;
    std::vector<Choice> done_;
};

}}}  // namespace residency::RESIDENCY_ABI::plan

#if RESIDENCY_HEADER_ONLY
#include "residency/plan/impl/token_ring.ipp"
#endif
