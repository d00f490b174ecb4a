// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// Who keeps addresses mapped on chunks of a ChunkStock that it has given back.
class ChunkSleeper {
public:
    virtual ~ChunkSleeper() = default;
    /// Blocks. Unmaps what it has on these chunks, ascending, and forgets them. On failure it may have forgotten some of them.
    [[nodiscard]] virtual Status forget(std::span<const std::uint32_t> chunks) = 0;
};

/// Physical chunks of a device that several pools share (Virtual::Config::stock), each chunk with one pool at a time. A model that falls asleep
/// gives its chunks back and keeps its addresses mapped on them: when it wakes and takes the same ones, the driver is not called. The bytes
/// of a chunk belong to the pool that has it; others do not read them.
///
/// Chunks are created as pools need them, up to the limit, and stay with the stock until the limit falls. Thread safe, apart from
/// construction. Outlives its pools.
template <VirtualMemoryDevice D>
class ChunkStock {
public:
    /// Of a chunk, unless another size is asked for.
    static constexpr std::uint64_t usual_chunk_bytes = std::uint64_t{2} << 20;

    /// `chunk_bytes` is rounded up to what the device maps.
    explicit ChunkStock(D& device, std::uint64_t limit_bytes = 0, std::uint64_t chunk_bytes = usual_chunk_bytes)
        : device_{&device},
          chunk_bytes_{round_up(chunk_bytes, device.chunk_granularity())},
          limit_{limit_bytes / chunk_bytes_} {}
    ChunkStock(const ChunkStock&) = delete;
    ChunkStock& operator=(const ChunkStock&) = delete;
    /// Precondition: no pool has a chunk.
    ~ChunkStock() {
        RESIDENCY_ASSERT(used_ == 0, "end the models before the stock that they take their chunks from");
        for (const Entry& entry : entries_) {
            if (entry.exists) { static_cast<void>(device_->destroy_chunk(entry.chunk).has_value()); }
        }
    }

    /// Of each chunk.
    [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_bytes_; }
    /// Bytes that the stock may hold.
    [[nodiscard]] std::uint64_t limit_bytes() const { return of(&ChunkStock::limit_); }
    /// Device bytes that it holds, whoever has them.
    [[nodiscard]] std::uint64_t held_bytes() const { return of(&ChunkStock::held_); }
    /// Of these, those that pools have.
    [[nodiscard]] std::uint64_t used_bytes() const { return of(&ChunkStock::used_); }
    /// What pools can still take.
    [[nodiscard]] std::uint64_t free_bytes() const {
        const std::scoped_lock lock{mutex_};
        return limit_ > used_ ? (limit_ - used_) * chunk_bytes_ : 0;
    }
    /// Blocks. Another limit, rounded down to chunks. What is held beyond it and free goes back to the device; what pools have beyond it goes
    /// back as they give it back. Errors: the device's own; the limit is in force, and the next call goes on.
    [[nodiscard]] Status try_set_limit(std::uint64_t bytes) {
        const auto still = hold_still();
        const std::scoped_lock lock{mutex_};
        limit_ = bytes / chunk_bytes_;
        ++given_back_;
        return trim();
    }

    /// Called with the bytes of a chunk where one is asked for beyond the limit. True: the limit rises by them. Calls nothing of the stock.
    void on_short(std::function<bool(std::uint64_t)> grow) { grow_ = std::move(grow); }

    // For pools.

    /// Takes a free chunk: of those that exist, one that the fewest sleepers keep. Error out_of_memory: the limit, with the numbers; or the
    /// device's own.
    [[nodiscard]] Result<std::uint32_t> take() {
        const std::scoped_lock lock{mutex_};
        if (!has_room()) {
            using residency::detail::in_bytes;
            ++refused_;
            return Error{
                ErrorKind::out_of_memory,
                "models that are awake have " + in_bytes(used_ * chunk_bytes_) + " of the stock's limit of " +
                    in_bytes(limit_ * chunk_bytes_) +
                    ": put another one to sleep (ModelGroup::make_room() before a model is made), or raise the "
                    "limit"};
        }
        std::uint32_t best = free_chunks().empty() ? none : free_.back();
        // A new one, which nobody keeps, if there is room.
        if (held_ < limit_ && (best == none || !entries_[best].sleepers.empty())) {
            auto chunk = device_->create_chunk(chunk_bytes_);
            if (!chunk && best == none) { return chunk.error(); }
            if (chunk) { best = add(*chunk); }
        }
        RESIDENCY_ASSERT(best != none, "there is a free chunk, or room for one");
        entries_[best].is_used = true;
        ++used_;
        return best;
    }
    /// Takes that chunk again, which `sleeper` has kept. False: somebody else has it, or it is there no more.
    [[nodiscard]] bool take_again(std::uint32_t chunk) {
        const std::scoped_lock lock{mutex_};
        if (entries_[chunk].is_used || !entries_[chunk].exists) { return false; }
        if (!has_room()) { return false; }
        entries_[chunk].is_used = true;
        ++used_;
        return true;
    }
    /// Gives a chunk back. Nothing that was enqueued uses it.
    void give_back(std::uint32_t chunk) noexcept {
        const std::scoped_lock lock{mutex_};
        entries_[chunk].is_used = false;
        is_free_known_ = false;
        --used_;
        ++given_back_;
    }
    /// Counts what was given back, and changes of the limit: while it is the same, no more of what a pool has kept can be taken again than before.
    [[nodiscard]] std::uint64_t given_back() const {
        const std::scoped_lock lock{mutex_};
        return given_back_;
    }
    /// Counts the chunks that were refused because of the limit.
    [[nodiscard]] std::uint64_t refused() const {
        const std::scoped_lock lock{mutex_};
        return refused_;
    }
    /// While it is held, no chunk leaves that sleepers keep, and forget() of none is called. A pool holds it while it changes what it keeps.
    [[nodiscard]] std::unique_lock<std::mutex> hold_still() { return std::unique_lock{still_}; }
    /// A pool keeps addresses on a chunk that it gives back, or does so no more.
    /// @{
    void keep(std::uint32_t chunk, ChunkSleeper& sleeper) {
        const std::scoped_lock lock{mutex_};
        entries_[chunk].sleepers.push_back(&sleeper);
        is_free_known_ = false;
    }
    void forget(std::uint32_t chunk, ChunkSleeper& sleeper) noexcept {
        const std::scoped_lock lock{mutex_};
        std::erase(entries_[chunk].sleepers, &sleeper);
        is_free_known_ = false;
    }
    /// @}
    /// The device's chunk of that number.
    [[nodiscard]] typename D::Chunk chunk(std::uint32_t number) const {
        const std::scoped_lock lock{mutex_};
        return entries_[number].chunk;
    }

private:
    static constexpr std::uint32_t none = UINT32_MAX;

    struct Entry {
        typename D::Chunk chunk{};
        bool exists = false;
        bool is_used = false;                 // a pool has it
        std::vector<ChunkSleeper*> sleepers;  // that keep addresses on it
    };

    [[nodiscard]] std::uint64_t of(std::uint64_t ChunkStock::* chunks) const {
        const std::scoped_lock lock{mutex_};
        return this->*chunks * chunk_bytes_;
    }
    /// For one more chunk in use; asks for it where the limit is reached.
    [[nodiscard]] bool has_room() {
        if (used_ == limit_ && grow_ && grow_(chunk_bytes_)) { ++limit_; }
        return used_ < limit_;
    }
    /// The free chunks, those that the fewest sleepers keep last. Sorted once for many that are taken.
    [[nodiscard]] const std::vector<std::uint32_t>& free_chunks() {
        if (!std::exchange(is_free_known_, true)) {
            free_.clear();
            for (std::uint32_t i = 0; i < entries_.size(); ++i) {
                if (entries_[i].exists && !entries_[i].is_used) { free_.push_back(i); }
            }
            std::sort(free_.begin(), free_.end(), [&](std::uint32_t a, std::uint32_t b) {
                const std::size_t of_a = entries_[a].sleepers.size(), of_b = entries_[b].sleepers.size();
                return of_a != of_b ? of_a > of_b : a > b;
            });
        }
        while (!free_.empty() && entries_[free_.back()].is_used) { free_.pop_back(); }  // taken since
        return free_;
    }
    [[nodiscard]] std::uint32_t add(typename D::Chunk chunk) {
        ++held_;
        for (std::uint32_t i = 0; i < entries_.size() && held_ <= entries_.size(); ++i) {
            if (!entries_[i].exists) {
                entries_[i] = {chunk, true, false, {}};
                return i;
            }
        }
        entries_.push_back({chunk, true, false, {}});
        return static_cast<std::uint32_t>(entries_.size() - 1);
    }
    /// Destroys free chunks beyond the limit, those first that the fewest sleepers keep.
    [[nodiscard]] Status trim() {
        if (held_ <= limit_) { return {}; }
        is_free_known_ = false;
        const std::size_t most = static_cast<std::size_t>(held_ - limit_), free = free_chunks().size();
        std::vector<std::uint32_t> leaving{free_.end() - static_cast<std::ptrdiff_t>((std::min)(most, free)),
                                           free_.end()};
        std::sort(leaving.begin(), leaving.end());
        is_free_known_ = false;
        std::vector<ChunkSleeper*> sleepers;
        for (const std::uint32_t i : leaving) {
            for (ChunkSleeper* sleeper : entries_[i].sleepers) {
                if (std::find(sleepers.begin(), sleepers.end(), sleeper) == sleepers.end()) {
                    sleepers.push_back(sleeper);
                }
            }
        }
        for (ChunkSleeper* sleeper : sleepers) {
            if (auto forgotten = sleeper->forget(leaving); !forgotten) { return forgotten; }
            for (const std::uint32_t i : leaving) { std::erase(entries_[i].sleepers, sleeper); }
        }
        for (const std::uint32_t i : leaving) {
            if (auto destroyed = device_->destroy_chunk(entries_[i].chunk); !destroyed) { return destroyed; }
            entries_[i].exists = false;
            --held_;
        }
        return {};
    }

    D* device_;
    std::uint64_t chunk_bytes_;
    std::function<bool(std::uint64_t)> grow_;
    std::mutex still_;  // before mutex_
    mutable std::mutex mutex_;
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> free_;            // those that the fewest sleepers keep come last
    bool is_free_known_ = false;                 // since then none became free, and none is kept otherwise
    std::uint64_t limit_, held_ = 0, used_ = 0;  // chunks
    std::uint64_t given_back_ = 0, refused_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::pool
