// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "residency/evict/linked_lists.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The record of speculative copies, each of which is open (not judged yet) or mispredicted. It says which of them leave first, and
/// whether the next piece of one is worth sending.
///
/// A piece pays if its prediction is right. It costs if the next demand miss has to wait for it. Let p be the share of predictions that
/// were right, and f the share of pieces that arrived before the next miss. f is kept by distance: the bytes that were sent since the
/// last miss, this piece included. A piece is worth sending while p f > (1 − p)(1 − f), which is p + f > 1. Both shares are decaying
/// means and begin at 1. While no piece is worth sending, nothing can be learned. So a trial piece is sent after every 32nd such miss.
class SpeculationStats {
public:
    /// Forgets everything. The only call that allocates.
    void attach(std::size_t storages);

    /// A speculative copy of `id` was given memory: it is open. Precondition: `id` is not in the record.
    void opened(StorageId id) noexcept { lists_.push_back(index(id), open); }
    /// `id` was read. `in_time`: no later than predicted.
    void used(StorageId id, bool in_time) noexcept;
    /// `id` left the device.
    void removed(StorageId id) noexcept;
    /// Marks every open prediction for which `has_passed(id)` holds as mispredicted.
    template <class HasPassed>
    void expire(const HasPassed& has_passed) noexcept {
        for (auto item = lists_.front(open); item != lists_.end(open);) {
            const auto next = lists_.next(item);
            if (has_passed(StorageId{item})) {
                learn(right_, false);
                lists_.unlink(item);
                lists_.push_back(item, mispredicted);
            }
            item = next;
        }
    }
    /// The oldest mispredicted storage that may leave.
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(const MayLeave& may_leave) const noexcept {
        for (auto item = lists_.front(mispredicted); item != lists_.end(mispredicted); item = lists_.next(item)) {
            if (may_leave(StorageId{item})) { return StorageId{item}; }
        }
        return std::nullopt;
    }

    [[nodiscard]] bool next_is_worth_it() const noexcept { return is_trial_ || right_ + in_time(next_bytes()) > 1; }
    /// The size of the next piece: the largest that is likely to arrive in time, since each copy call costs time on the link.
    [[nodiscard]] std::uint64_t next_bytes() const noexcept;
    /// A piece was enqueued. `arrival` names it in missed().
    void sent(std::uint64_t bytes, std::uint64_t arrival) noexcept;
    /// Whether pieces were sent since the last demand miss.
    [[nodiscard]] bool any_sent() const noexcept { return sent_ > 0; }
    /// A demand miss: pieces for which `has_arrived(arrival)` does not hold were late.
    template <class HasArrived>
    void missed(const HasArrived& has_arrived) noexcept {
        for (std::size_t i = 0; i < (std::min)(sent_, pieces_.size()); ++i) {
            learn(in_time_[pieces_[i].distance], has_arrived(pieces_[i].arrival));
        }
        begin_interval();
    }

private:
    static constexpr std::uint32_t open = 0;          // list: not known to be right or wrong
    static constexpr std::uint32_t mispredicted = 1;  // list: not read by the predicted step
    static constexpr std::uint64_t grain_bytes = std::uint64_t{256} << 10;
    static constexpr std::size_t grains = 16;  // distances that are told apart; larger ones count as the last

    struct Piece {
        std::uint64_t arrival = 0;
        std::size_t distance = 0;
    };

    /// A demand miss was judged: counts pieces anew, and allows a trial piece if it is time for one.
    void begin_interval() noexcept;
    /// Index into in_time_ for a piece that ends `bytes` after a miss. Precondition: bytes > 0.
    [[nodiscard]] static std::size_t distance(std::uint64_t bytes) noexcept;
    [[nodiscard]] double in_time(std::uint64_t bytes) const noexcept { return in_time_[distance(sent_bytes_ + bytes)]; }
    static void learn(double& share, bool is_so) noexcept { share += ((is_so ? 1.0 : 0.0) - share) / 16; }

    evict::LinkedLists lists_;
    double right_ = 1;                      // p
    std::array<double, grains> in_time_{};  // f, by distance
    std::array<Piece, grains> pieces_{};    // sent since the last miss; the last element holds the newest
    std::size_t sent_ = 0;                  // pieces since the last miss
    std::uint64_t sent_bytes_ = 0;          // bytes since the last miss
    std::uint64_t refused_ = 0;             // misses before which no piece was worth sending
    bool is_trial_ = false;                 // the next piece is sent whatever the shares say
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/speculation_stats.ipp"
#endif
