// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// What allocations of `sizes` bytes take of an empty driver pool at most, in any order. The pool rounds each size up to
/// `rounding_bytes`, and grows by segments of whole granules; the driver puts each allocation where it fits, else at the beginning of a
/// new segment. An allocation of half a granule or more counts with a segment of its own. Of the segments that smaller ones begin, all
/// but the last have less than the largest of these unused.
[[nodiscard]] inline std::uint64_t segment_bytes(std::span<const std::uint64_t> sizes, std::uint64_t rounding_bytes,
                                                 std::uint64_t granule_bytes) {
    std::uint64_t own = 0, others = 0, largest_other = 0;
    for (const std::uint64_t bytes : sizes) {
        const std::uint64_t taken = round_up(bytes, rounding_bytes);
        if (taken >= granule_bytes - granule_bytes / 2) {
            own += round_up(taken, granule_bytes);
        } else {
            others += taken;
            largest_other = (std::max)(largest_other, taken);
        }
    }
    const std::uint64_t least =
        others <= granule_bytes ? granule_bytes : granule_bytes - largest_other + rounding_bytes;
    return own + (others + least - 1) / least * granule_bytes;
}

/// The driver's stream-ordered pools under one hard cap. Takes storages of any size, and never waits on the host. The driver grows a pool
/// by segments of whole granules (32 MiB on CUDA), and no allocation spans two: the floor counts what that leaves unused at worst.
/// Once storages have left, fragmentation can keep a large request out although enough bytes are free, until the pool is empty. Slab and
/// Virtual do not fragment.
template <Device D>
class StreamOrdered {
public:
    using Device = D;  ///< whose memory it gives
    /// What the driver does.
    struct Config {
        /// Bytes to which the driver rounds an allocation in a pool; 0 is 1.
        std::uint64_t rounding_bytes = 512;
    };
    static constexpr bool one_range = false;  ///< every allocation is a range of its own

    StreamOrdered() : StreamOrdered(Config{}) {}
    /// Rounds as `config` says.
    explicit StreamOrdered(Config config) noexcept : config_{config} {
        config_.rounding_bytes = (std::max)(config_.rounding_bytes, std::uint64_t{1});
    }
    StreamOrdered(const StreamOrdered&) = delete;
    StreamOrdered& operator=(const StreamOrdered&) = delete;
    ~StreamOrdered() { close(); }

    /// What MemoryPool and its optional parts ask for.
    /// @{
    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept {
        return round_up(bytes, config_.rounding_bytes);
    }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const Requirements& requirements) const {
        return segment_bytes(requirements.step, config_.rounding_bytes, device.pool_granularity());
    }

    /// Error unsupported: an alignment that the driver does not promise.
    [[nodiscard]] Status open(D& device, const Requirements& requirements, std::uint64_t cap_bytes);
    /// An ordinary exhaustion is told by the count, without a call of the driver.
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes, typename D::Stream stream);
    [[nodiscard]] Status deallocate(void* at, std::uint64_t bytes, typename D::Stream stream);
    /// Trims the pools. Of several pools, the empty ones become one.
    [[nodiscard]] Status recover();

    [[nodiscard]] std::uint64_t held_bytes() const;
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return requested_bytes_; }

    /// A driver pool keeps its cap for life. For a larger cap, a further pool is created once the difference holds the largest storage.
    /// For a smaller one, and where everything is to fit, a pool of the new size replaces the existing ones, which are closed: what lies
    /// there and is not fixed has to move.
    [[nodiscard]] Status resize(std::uint64_t cap_bytes, std::span<const Place> allocated);
    [[nodiscard]] bool is_over() const noexcept {
        return has_closed() && requested_bytes_ - fixed_bytes_ > open_bytes();
    }
    [[nodiscard]] bool must_move(const void* at) const noexcept {
        return tracks_owners_ && pools_[pool_of(at)].is_closed;
    }
    [[nodiscard]] Status reclaim();
    [[nodiscard]] Status commit_resize();

    /// Gives everything back; after a failure, another call goes on.
    [[nodiscard]] Status try_close() {
        for (; !pools_.empty(); pools_.pop_back()) {
            if (auto destroyed = device_->destroy_pool(pools_.back().handle); !destroyed) { return destroyed; }
        }
        abandon();
        return {};
    }
    /// Gives everything back, as try_close(). What fails twice is left behind.
    void close() noexcept {
        for (const DriverPool& pool : pools_) {
            if (device_->destroy_pool(pool.handle)) { continue; }
            static_cast<void>(device_->destroy_pool(pool.handle).has_value());
        }
        abandon();
    }
    void abandon() noexcept;
    /// @}

private:
    static constexpr std::uint64_t alignment_bytes = 256;  // what the driver promises
    static constexpr std::size_t most_pools = 8;

    struct DriverPool {
        typename D::Pool handle{};
        std::uint64_t cap_bytes = 0;
        std::uint64_t requested_bytes = 0;
        std::uint32_t number = 0;                   // for life, unlike its index in pools_
        bool is_closed = false;                     // nothing more is allocated there
        mutable std::uint64_t most_held_bytes = 0;  // as the device last said, and what was allocated since
    };
    struct Owner {
        const void* at = nullptr;  // an allocation
        std::uint32_t pool = 0;    // the number of its pool
    };

    [[nodiscard]] bool has_closed() const noexcept { return std::ranges::any_of(pools_, &DriverPool::is_closed); }
    /// The sum of the caps of pools that are not closed.
    [[nodiscard]] std::uint64_t open_bytes() const noexcept;
    /// At most, where the device does not say.
    [[nodiscard]] std::uint64_t held_by(const DriverPool& pool) const {
        if (const auto held = device_->held_bytes(pool.handle)) { pool.most_held_bytes = *held; }
        return pool.most_held_bytes;
    }
    /// Whether an allocation keeps to the limit, wherever the driver puts it, beside what closed pools still hold.
    [[nodiscard]] bool may_grow(const DriverPool& pool, std::uint64_t bytes) const;
    [[nodiscard]] Status add_pool(std::uint64_t cap_bytes);
    [[nodiscard]] Status drop_pool(std::size_t i);
    /// Adds a pool for what the cap leaves beside the others, if that is at least `least_bytes`.
    [[nodiscard]] Status add_rest(std::uint64_t least_bytes);

    /// With several pools, owners_ says which one an allocation belongs to. Precondition: there is one pool.
    void track_owners(std::span<const Place> allocated);
    /// Forgets owners_, if there is one pool left.
    void stop_tracking() noexcept;
    [[nodiscard]] auto owner_of(const void* at) const noexcept {
        return std::ranges::lower_bound(owners_, at, std::less{}, &Owner::at);
    }
    /// Index in pools_.
    [[nodiscard]] std::size_t pool_of(const void* at) const noexcept;

    Config config_;
    D* device_ = nullptr;  // the caller's; null: not open
    std::vector<DriverPool> pools_;
    std::vector<Owner> owners_;  // of every allocation, by address; empty unless tracks_owners_
    std::uint32_t next_number_ = 0;
    bool tracks_owners_ = false;
    std::uint64_t cap_bytes_ = 0;
    std::uint64_t limit_bytes_ = 0;    // what all pools may hold; during a change, the larger of the two caps
    std::uint64_t ceiling_bytes_ = 0;  // from here on everything fits
    std::uint64_t largest_bytes_ = 0;  // the largest storage, in whole granules
    std::uint64_t requested_bytes_ = 0;
    std::uint64_t fixed_bytes_ = 0;  // during a change: of requested_bytes_
};

template <Device D>
Status StreamOrdered<D>::open(D& device, const Requirements& requirements, std::uint64_t cap_bytes) {
    if (requirements.largest_alignment_bytes > alignment_bytes) {
        return Error{ErrorKind::unsupported, "a storage wants its address at a multiple of " +
                                                 residency::detail::in_bytes(requirements.largest_alignment_bytes) +
                                                 ", and a stream-ordered pool promises multiples of " +
                                                 residency::detail::in_bytes(alignment_bytes) + ": use pool::Slab"};
    }
    device_ = &device;
    cap_bytes_ = limit_bytes_ = round_down(cap_bytes, device.pool_granularity());
    ceiling_bytes_ = segment_bytes(requirements.storages, config_.rounding_bytes, device.pool_granularity());
    largest_bytes_ = round_up(requirements.largest_storage_bytes, device.pool_granularity());
    owners_.reserve(requirements.storages.size() + 1);  // what moves has two allocations
    if (auto added = cap_bytes_ == 0 ? Status{} : add_pool(cap_bytes_); !added) {
        abandon();
        return added;
    }
    return {};
}

template <Device D>
Result<void*> StreamOrdered<D>::allocate(std::uint64_t bytes, typename D::Stream stream) {
    const std::uint64_t taken = occupied(bytes);
    for (DriverPool& pool : pools_) {
        if (pool.is_closed || taken > pool.cap_bytes - pool.requested_bytes || !may_grow(pool, bytes)) { continue; }
        auto at = device_->allocate(pool.handle, bytes, stream);
        if (!at) {
            if (at.error().kind() == ErrorKind::out_of_memory) { continue; }
            return at.error();
        }
        pool.requested_bytes += taken;
        pool.most_held_bytes =
            (std::min)(pool.cap_bytes, pool.most_held_bytes + round_up(bytes, device_->pool_granularity()));
        requested_bytes_ += taken;
        if (tracks_owners_) { owners_.insert(owner_of(*at), {*at, pool.number}); }
        return *at;
    }
    return nullptr;
}

template <Device D>
Status StreamOrdered<D>::deallocate(void* at, std::uint64_t bytes, typename D::Stream stream) {
    DriverPool& pool = pools_[pool_of(at)];
    if (auto done = device_->deallocate(pool.handle, at, stream); !done) { return done; }
    if (tracks_owners_) { owners_.erase(owner_of(at)); }
    pool.requested_bytes -= occupied(bytes);
    requested_bytes_ -= occupied(bytes);
    return {};
}

template <Device D>
Status StreamOrdered<D>::recover() {
    if (pools_.size() == 1 && !pools_.front().is_closed && pools_.front().cap_bytes == cap_bytes_) {
        return device_->trim(pools_.front().handle);
    }
    for (std::size_t i = pools_.size(); i-- > 0;) {
        if (auto done = pools_[i].requested_bytes == 0 ? drop_pool(i) : device_->trim(pools_[i].handle); !done) {
            return done;
        }
    }
    auto added = add_rest(device_->pool_granularity());
    if (added) { stop_tracking(); }  // otherwise the next call adds it
    return added;
}

template <Device D>
std::uint64_t StreamOrdered<D>::held_bytes() const {
    std::uint64_t sum = 0;
    for (const DriverPool& pool : pools_) { sum += held_by(pool); }
    return sum;
}

template <Device D>
Status StreamOrdered<D>::resize(std::uint64_t cap_bytes, std::span<const Place> allocated) {
    const std::uint64_t granule = device_->pool_granularity();
    const std::uint64_t cap = round_down(cap_bytes, granule);
    const std::uint64_t open = open_bytes();
    const bool is_whole = pools_.size() == 1 && open == cap;
    if (!tracks_owners_) { track_owners(allocated); }
    fixed_bytes_ = 0;
    if (is_whole || (cap >= open && cap < ceiling_bytes_ && !has_closed())) {
        if (cap - open >= (std::max)(largest_bytes_, granule) && pools_.size() < most_pools) {
            if (auto added = add_pool(cap - open); !added) { return added; }
        }
        cap_bytes_ = limit_bytes_ = cap;
        stop_tracking();
        return {};
    }
    // What stays in the closed pools takes at least this. may_grow() looks at what it really takes.
    std::uint64_t fixed = 0;
    for (const Place& place : allocated) { fixed += place.is_fixed ? occupied(place.bytes) : 0; }
    const std::uint64_t stays = round_up(fixed, granule);
    const std::size_t before = pools_.size();
    if (cap >= stays + granule) {
        // A smaller cap must come into force whatever the device says: then everything leaves, and commit_resize() tries again.
        if (auto added = add_pool(cap - stays); !added && cap >= open) { return added; }
    }
    for (std::size_t i = 0; i < before; ++i) { pools_[i].is_closed = true; }
    limit_bytes_ = (std::max)(cap_bytes_, cap);
    cap_bytes_ = cap;
    fixed_bytes_ = fixed;
    return {};
}

template <Device D>
Status StreamOrdered<D>::reclaim() {
    for (std::size_t i = pools_.size(); i-- > 0;) {
        if (!pools_[i].is_closed) { continue; }
        if (auto done = pools_[i].requested_bytes == 0 ? drop_pool(i) : device_->trim(pools_[i].handle); !done) {
            return done;
        }
    }
    return {};
}

template <Device D>
Status StreamOrdered<D>::commit_resize() {
    if (device_ == nullptr) { return {}; }
    limit_bytes_ = cap_bytes_;
    fixed_bytes_ = 0;
    if (auto reclaimed = reclaim(); !reclaimed) { return reclaimed; }
    auto added = add_rest(open_bytes() == 0 ? device_->pool_granularity() : largest_bytes_);
    if (added) { stop_tracking(); }  // otherwise the next call adds it
    return added;
}

template <Device D>
void StreamOrdered<D>::abandon() noexcept {
    device_ = nullptr;
    pools_.clear();
    owners_.clear();
    tracks_owners_ = false;
    requested_bytes_ = fixed_bytes_ = 0;
}

template <Device D>
std::uint64_t StreamOrdered<D>::open_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const DriverPool& pool : pools_) { sum += pool.is_closed ? 0 : pool.cap_bytes; }
    return sum;
}

template <Device D>
bool StreamOrdered<D>::may_grow(const DriverPool& pool, std::uint64_t bytes) const {
    if (!has_closed()) { return true; }
    std::uint64_t others = 0;
    for (const DriverPool& other : pools_) {
        if (&other != &pool) { others += other.is_closed ? held_by(other) : other.cap_bytes; }
    }
    return others + pool.cap_bytes <= limit_bytes_ ||
           others + held_by(pool) + round_up(bytes, device_->pool_granularity()) <= limit_bytes_;
}

template <Device D>
Status StreamOrdered<D>::add_pool(std::uint64_t cap_bytes) {
    auto pool = device_->create_pool(cap_bytes);
    if (!pool) { return pool.error(); }
    pools_.push_back({*pool, cap_bytes, 0, next_number_++, false, 0});
    return {};
}

template <Device D>
Status StreamOrdered<D>::drop_pool(std::size_t i) {
    if (auto done = device_->destroy_pool(pools_[i].handle); !done) { return done; }
    pools_.erase(pools_.begin() + static_cast<std::ptrdiff_t>(i));
    return {};
}

template <Device D>
Status StreamOrdered<D>::add_rest(std::uint64_t least_bytes) {
    std::uint64_t taken = 0;
    for (const DriverPool& pool : pools_) { taken += pool.is_closed ? held_by(pool) : pool.cap_bytes; }
    if (taken >= cap_bytes_ || cap_bytes_ - taken < least_bytes) { return {}; }
    if (pools_.size() == 1 && !tracks_owners_) { return {}; }
    return add_pool(cap_bytes_ - taken);
}

template <Device D>
void StreamOrdered<D>::track_owners(std::span<const Place> allocated) {
    owners_.clear();
    for (const Place& place : allocated) { owners_.push_back({place.at, pools_.front().number}); }
    std::ranges::sort(owners_, std::less{}, &Owner::at);
    tracks_owners_ = true;
}

template <Device D>
void StreamOrdered<D>::stop_tracking() noexcept {
    if (pools_.size() > 1 || has_closed()) { return; }
    owners_.clear();
    tracks_owners_ = false;
}

template <Device D>
std::size_t StreamOrdered<D>::pool_of(const void* at) const noexcept {
    if (!tracks_owners_) { return 0; }
    const std::uint32_t number = owner_of(at)->pool;
    return static_cast<std::size_t>(std::ranges::find(pools_, number, &DriverPool::number) - pools_.begin());
}

}}}  // namespace residency::RESIDENCY_ABI::pool
