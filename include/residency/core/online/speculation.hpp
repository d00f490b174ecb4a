// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "residency/core/engine/decider.hpp"
#include "residency/device/device.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/ids.hpp"
#include "residency/transport/transport_policy.hpp"

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

/// A predicted storage on its way to the device, piece by piece.
struct SpeculativeCopy {
    StorageId storage = no_storage;  ///< no_storage: none
    std::uint64_t sent_bytes = 0;    ///< its first bytes, which were enqueued
    bool evicted_others = false;     ///< it took the place of other storages
};

/// Sends predicted storages in pieces: one storage at a time, with at most two pieces in flight, so that a demand miss waits for two
/// pieces and no more. SpeculationStats judges the predictions. Memory is the caller's: it allocates and evicts. Not thread safe.
template <Device D>
class Speculation {
public:
    static constexpr std::size_t pieces_in_flight = 2;

    /// Allocates; no other call does. `context` and `bytes`, the size of each storage, outlive this object.
    void attach(const DeciderContext<D>& context, const IdVector<StorageId, std::uint64_t>& bytes) {
        context_ = &context;
        bytes_ = &bytes;
        stats_.attach(bytes.size());
    }

    [[nodiscard]] bool has_copy() const noexcept { return copy_.storage != no_storage; }
    /// What the copy in progress has enqueued of `id`; 0 for every other storage.
    [[nodiscard]] std::uint64_t sent_bytes(StorageId id) const noexcept {
        return id == copy_.storage ? copy_.sent_bytes : 0;
    }
    /// The oldest mispredicted storage that may leave.
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(const MayLeave& may_leave) const noexcept {
        return stats_.victim(may_leave);
    }

    /// Ends the copy in progress, if it is one of `id`: the rest was demanded, or its bytes are about to be lost.
    void stop(StorageId id) noexcept {
        if (id == copy_.storage) { copy_ = {}; }
    }
    /// `id` has no memory any more.
    void removed(StorageId id) noexcept { stats_.removed(id); }
    void close() noexcept { copy_ = {}; }

    /// Before an access: which predictions were right, and, on a demand miss, which pieces arrived in time.
    void judge(std::span<const StorageId> wanted, bool is_miss, StepIndex now) noexcept {
        for (const StorageId id : wanted) {
            const StorageState& state = context_->states[index(id)];
            if (state.prefetched) { stats_.used(id, state.needed_by >= now); }
        }
        stats_.expire([&](StorageId id) { return context_->states[index(id)].needed_by < now; });
        if (!is_miss) { return; }
        if (stats_.any_sent()) { static_cast<void>(context_->copy_scheduler->poll_arrivals().has_value()); }
        stats_.missed([&](EventPoint piece) { return context_->copy_scheduler->has_arrived(piece); });
    }

    /// Enqueues pieces while they are worth it and fewer than two are in flight. `begin()` gives memory to the next predicted storage
    /// and returns its copy, or none. `evict(id)` takes the memory of the copy in progress away, and says whether it could. It is called
    /// where memory is short, for a copy that took others' place and was not read by the predicted step. Does not block.
    template <class Begin, class Evict>
    void send_pieces(StepIndex now, bool is_memory_short, const Begin& begin, const Evict& evict) noexcept;

    /// Whether a piece has not arrived, as far as is known.
    [[nodiscard]] bool is_in_flight() const noexcept { return in_flight() > 0; }

private:
    [[nodiscard]] std::size_t in_flight() const noexcept {
        std::size_t count = 0;
        for (const EventPoint piece : pieces_) { count += context_->copy_scheduler->has_arrived(piece) ? 0U : 1U; }
        return count;
    }
    [[nodiscard]] bool is_stale(StepIndex now) const noexcept {
        if (!has_copy() || !copy_.evicted_others) { return false; }
        const StorageState& state = context_->states[index(copy_.storage)];
        return state.leases == 0 && state.needed_by < now;
    }
    [[nodiscard]] bool send_piece() noexcept;

    const DeciderContext<D>* context_ = nullptr;                 // the decider's
    const IdVector<StorageId, std::uint64_t>* bytes_ = nullptr;  // the caller's
    SpeculationStats stats_;
    SpeculativeCopy copy_;                      // in progress
    EventPoint pieces_[pieces_in_flight] = {};  // arrivals of the newest pieces; 0: none
    std::size_t next_piece_ = 0;                // counts pieces
};

template <Device D>
template <class Begin, class Evict>
void Speculation<D>::send_pieces(StepIndex now, bool is_memory_short, const Begin& begin, const Evict& evict) noexcept {
    if (!context_->copy_scheduler->poll_arrivals()) { return; }
    for (std::size_t flying = in_flight(); flying < pieces_in_flight && stats_.next_is_worth_it(); ++flying) {
        if (is_memory_short && is_stale(now) && !evict(copy_.storage)) { return; }
        if (!has_copy()) {
            copy_ = begin();
            if (!has_copy()) { return; }
            stats_.opened(copy_.storage);
        }
        if (!send_piece()) { return; }
    }
}

template <Device D>
bool Speculation<D>::send_piece() noexcept {
    const StorageId id = copy_.storage;
    const std::uint64_t bytes = (std::min)(stats_.next_bytes(), (*bytes_)[id] - copy_.sent_bytes);
    StorageState& state = context_->states[index(id)];
    const transport::Fetch piece{id, copy_.sent_bytes, bytes, state.address + copy_.sent_bytes};
    const auto arrival = context_->copy_scheduler->transfer({&piece, 1});
    if (!arrival) { return false; }
    copy_.sent_bytes += bytes;
    if (copy_.sent_bytes == (*bytes_)[id]) {
        state.partially_resident = false;
        copy_ = {};
    }
    pieces_[next_piece_++ % pieces_in_flight] = *arrival;
    stats_.sent(bytes, *arrival);
    return true;
}

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/online/impl/speculation.ipp"
#endif
