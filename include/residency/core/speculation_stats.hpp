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

/// What became of guesses, and so which of them leave first and whether the next piece of one is worth sending.
///
/// A piece that arrives before the next demand miss costs nothing. One that is still on its way then makes the miss wait, and pays
/// only if the guess was right. With p the share of guesses that were used in time, and f the share of pieces that arrived in
/// time, of those that ended as many bytes after a miss, a piece is worth sending while p f > (1 − p)(1 − f), which is p + f > 1.
/// Both are decaying means that begin at 1. Of every 32 misses before which no piece was worth it, one is tried all the same.
class SpeculationStats {
public:
    /// Forgets what was seen. Allocates; nothing else does.
    void attach(std::size_t storages) {
        lists_.attach(storages, 2);
        right_ = 1;
        in_time_.fill(1);
        sent_ = 0;
        sent_bytes_ = refused_ = 0;
        tries_ = false;
    }

    /// Memory was given to a guess. Precondition: its storage is none.
    void began(StorageId id) noexcept { lists_.push_back(index(id), open); }
    /// A guess was used before its moment had passed, or after.
    void used(StorageId id, bool in_time) noexcept {
        if (!lists_.is_linked(index(id))) { return; }
        if (in_time) { learn(right_, true); }
        lists_.unlink(index(id));
    }
    void left(StorageId id) noexcept {
        if (lists_.is_linked(index(id))) { lists_.unlink(index(id)); }
    }
    /// Those whose moment has passed, which is asked of each that is not known to be wrong, were wrong.
    template <class HasPassed>
    void give_up(const HasPassed& has_passed) noexcept {
        for (auto item = lists_.front(open); item != lists_.end(open);) {
            const auto next = lists_.next(item);
            if (has_passed(StorageId{item})) {
                learn(right_, false);
                lists_.unlink(item);
                lists_.push_back(item, wrong);
            }
            item = next;
        }
    }
    /// The oldest of those that were wrong and may leave.
    template <class MayLeave>
    [[nodiscard]] std::optional<StorageId> victim(const MayLeave& may_leave) const noexcept {
        for (auto item = lists_.front(wrong); item != lists_.end(wrong); item = lists_.next(item)) {
            if (may_leave(StorageId{item})) { return StorageId{item}; }
        }
        return std::nullopt;
    }

    [[nodiscard]] bool next_is_worth_it() const noexcept { return tries_ || right_ + in_time(next_bytes()) > 1; }
    /// The most that is likely to arrive in time: each call costs time on the link.
    [[nodiscard]] std::uint64_t next_bytes() const noexcept {
        for (const std::uint64_t bytes : {4 * grain_bytes, 2 * grain_bytes}) {
            if (in_time(bytes) > 0.75) { return bytes; }
        }
        return grain_bytes;
    }
    void sent(std::uint64_t bytes, std::uint64_t arrival) noexcept {
        sent_bytes_ += bytes;
        pieces_[(std::min)(sent_++, pieces_.size() - 1)] = {arrival, place(sent_bytes_)};
        tries_ = false;
    }
    [[nodiscard]] bool any_sent() const noexcept { return sent_ > 0; }
    /// A demand miss: what is on its way now was too late.
    template <class HasArrived>
    void missed(const HasArrived& has_arrived) noexcept {
        for (std::size_t i = 0; i < (std::min)(sent_, pieces_.size()); ++i) {
            learn(in_time_[pieces_[i].place], has_arrived(pieces_[i].arrival));
        }
        const bool was_refused = !next_is_worth_it();
        sent_ = 0;
        sent_bytes_ = 0;
        tries_ = was_refused && ++refused_ % 32 == 0;
    }

private:
    static constexpr std::uint32_t open = 0;   // lists: not known to be right or wrong
    static constexpr std::uint32_t wrong = 1;  // not used when their moment passed
    static constexpr std::uint64_t grain_bytes = std::uint64_t{256} << 10;
    static constexpr std::size_t grains = 16;  // after a miss; what comes after them is as the last of them

    struct Piece {
        std::uint64_t arrival = 0;
        std::size_t place = 0;
    };

    /// Of a piece that ends so many bytes after a miss.
    [[nodiscard]] static std::size_t place(std::uint64_t bytes) noexcept {
        return static_cast<std::size_t>((std::min)((bytes - 1) / grain_bytes, std::uint64_t{grains - 1}));
    }
    [[nodiscard]] double in_time(std::uint64_t bytes) const noexcept { return in_time_[place(sent_bytes_ + bytes)]; }
    static void learn(double& share, bool is_so) noexcept { share += ((is_so ? 1.0 : 0.0) - share) / 16; }

    evict::LinkedLists lists_;
    double right_ = 1;                      // p
    std::array<double, grains> in_time_{};  // f, by place
    std::array<Piece, grains> pieces_{};    // since the last miss
    std::size_t sent_ = 0;                  // of them
    std::uint64_t sent_bytes_ = 0;
    std::uint64_t refused_ = 0;
    bool tries_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::core
