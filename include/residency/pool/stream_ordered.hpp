// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/pool/memory_pool.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace pool {

/// The driver's stream-ordered pool with a hard cap. Any sizes, no host wait. The driver grows a pool by segments of whole
/// granules (32 MiB on CUDA), and no allocation spans two: floor and ceiling count what that leaves unused at worst. Once storages
/// have left, fragmentation can keep a large request out although enough bytes are free, until the pool is empty. Slab and Virtual
/// do not fragment.
template <Device D>
class StreamOrdered {
public:
    using Device = D;
    struct Config {
        /// Bytes to which the driver rounds an allocation in a pool.
        std::uint64_t rounding_bytes = 512;
    };
    static constexpr bool one_range = false;

    StreamOrdered() : StreamOrdered(Config{}) {}
    explicit StreamOrdered(Config config) noexcept : config_{config} {}
    StreamOrdered(StreamOrdered&& other) noexcept
        : config_{other.config_},
          device_{std::exchange(other.device_, nullptr)},
          parts_{std::exchange(other.parts_, {})},
          homes_{std::exchange(other.homes_, {})},
          numbers_{other.numbers_},
          is_listed_{std::exchange(other.is_listed_, false)},
          cap_{other.cap_},
          limit_{other.limit_},
          ceiling_{other.ceiling_},
          largest_{other.largest_},
          requested_{std::exchange(other.requested_, 0)},
          pinned_{std::exchange(other.pinned_, 0)} {}
    StreamOrdered& operator=(StreamOrdered&&) = delete;
    ~StreamOrdered() { close(); }

    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept {
        return round_up(bytes, config_.rounding_bytes);
    }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const Needs& needs) const {
        return segments_bytes(device, needs.step);
    }
    [[nodiscard]] std::uint64_t ceiling_bytes(const D& device, const Needs& needs) const {
        return segments_bytes(device, needs.storages);
    }

    [[nodiscard]] Status open(D& device, const Needs& needs, std::uint64_t cap_bytes);
    /// Refused by the count before the driver is asked, so that an ordinary exhaustion costs nothing.
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes, typename D::Stream stream);
    [[nodiscard]] Status deallocate(void* at, std::uint64_t bytes, typename D::Stream stream);
    /// What is empty of several pools becomes one again.
    [[nodiscard]] Status recover();

    [[nodiscard]] std::uint64_t held_bytes() const;
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return requested_; }

    /// A pool of the driver has one cap for ever. A larger one is a further pool beside the first, once the difference holds the
    /// largest storage. For a smaller one, and where everything is to fit, a pool of the new size replaces those that there are: what
    /// is not pinned moves there.
    [[nodiscard]] Status resize(std::uint64_t cap_bytes, std::span<const Place> allocated);
    [[nodiscard]] bool is_over() const noexcept { return has_closed() && requested_ - pinned_ > open_bytes(); }
    [[nodiscard]] bool must_move(const void* at) const noexcept { return is_listed_ && parts_[part_of(at)].is_closed; }
    [[nodiscard]] Status reclaim();
    [[nodiscard]] Status settle();

    void close() noexcept {
        for (const Part& part : parts_) { static_cast<void>(device_->destroy_pool(part.pool).has_value()); }
        abandon();
    }
    void abandon() noexcept;

private:
    static constexpr std::uint64_t alignment_bytes = 256;  // what the driver promises
    static constexpr std::size_t most_parts = 8;

    struct Part {
        typename D::Pool pool{};
        std::uint64_t cap_bytes = 0;
        std::uint64_t requested_bytes = 0;
        std::uint32_t number = 0;
        bool is_closed = false;  // nothing is allocated there any more
    };
    struct Home {
        const void* at = nullptr;
        std::uint32_t part = 0;  // its number
    };

    /// What allocations of these sizes take of an empty pool at most, in whichever order they come: the driver puts each where it
    /// fits, else at the beginning of a new segment. One of half a granule or more is counted with a segment of its own; of the
    /// segments that smaller ones begin, all but the last lack less than the largest of these.
    [[nodiscard]] std::uint64_t segments_bytes(const D& device, std::span<const std::uint64_t> sizes) const;
    [[nodiscard]] bool has_closed() const noexcept { return std::ranges::any_of(parts_, &Part::is_closed); }
    /// The caps of the pools that are in use.
    [[nodiscard]] std::uint64_t open_bytes() const noexcept;
    [[nodiscard]] std::uint64_t held_by(const Part& part) const {
        const auto held = device_->held_bytes(part.pool);
        return held ? *held : part.cap_bytes;
    }
    /// Whether an allocation keeps to the limit, wherever the driver puts it, beside what old pools still hold.
    [[nodiscard]] bool may_grow(const Part& part, std::uint64_t bytes) const;
    [[nodiscard]] Status add_part(std::uint64_t cap_bytes);
    [[nodiscard]] Status drop_part(std::size_t i);
    /// A pool for what the cap has beside the others, where that is worth one.
    [[nodiscard]] Status add_rest(std::uint64_t least_bytes);

    /// With several pools: where each allocation is.
    void list(std::span<const Place> allocated);
    void unlist() noexcept;
    [[nodiscard]] auto home_of(const void* at) const noexcept {
        return std::ranges::lower_bound(homes_, at, std::less{}, &Home::at);
    }
    [[nodiscard]] std::size_t part_of(const void* at) const noexcept;

    Config config_;
    D* device_ = nullptr;
    std::vector<Part> parts_;
    std::vector<Home> homes_;  // by address
    std::uint32_t numbers_ = 0;
    bool is_listed_ = false;
    std::uint64_t cap_ = 0;
    std::uint64_t limit_ = 0;  // in a change: of what all pools hold
    std::uint64_t ceiling_ = 0;
    std::uint64_t largest_ = 0;
    std::uint64_t requested_ = 0;
    std::uint64_t pinned_ = 0;  // in a change: of these
};

template <Device D>
Status StreamOrdered<D>::open(D& device, const Needs& needs, std::uint64_t cap_bytes) {
    if (needs.largest_alignment_bytes > alignment_bytes) {
        return Error{ErrorKind::unsupported, "a storage wants its address at a multiple of " +
                                                 std::to_string(needs.largest_alignment_bytes) +
                                                 " bytes, and a stream-ordered pool promises multiples of " +
                                                 std::to_string(alignment_bytes) + ": use pool::Slab"};
    }
    device_ = &device;
    cap_ = limit_ = round_down(cap_bytes, device.pool_granularity());
    ceiling_ = ceiling_bytes(device, needs);
    largest_ = round_up(needs.largest_storage_bytes, device.pool_granularity());
    homes_.reserve(needs.storages.size() + 1);  // what moves has two places
    if (auto added = add_part(cap_); !added) {
        abandon();
        return added;
    }
    return {};
}

template <Device D>
Result<void*> StreamOrdered<D>::allocate(std::uint64_t bytes, typename D::Stream stream) {
    const std::uint64_t taken = occupied(bytes);
    for (Part& part : parts_) {
        if (part.is_closed || taken > part.cap_bytes - part.requested_bytes || !may_grow(part, bytes)) { continue; }
        auto at = device_->allocate(part.pool, bytes, stream);
        if (!at) {
            if (at.error().kind() == ErrorKind::out_of_memory) { continue; }
            return at.error();
        }
        part.requested_bytes += taken;
        requested_ += taken;
        if (is_listed_) { homes_.insert(home_of(*at), {*at, part.number}); }
        return *at;
    }
    return nullptr;
}

template <Device D>
Status StreamOrdered<D>::deallocate(void* at, std::uint64_t bytes, typename D::Stream stream) {
    Part& part = parts_[part_of(at)];
    if (auto done = device_->deallocate(part.pool, at, stream); !done) { return done; }
    if (is_listed_) { homes_.erase(home_of(at)); }
    part.requested_bytes -= occupied(bytes);
    requested_ -= occupied(bytes);
    return {};
}

template <Device D>
Status StreamOrdered<D>::recover() {
    if (parts_.size() == 1 && !parts_.front().is_closed && parts_.front().cap_bytes == cap_) {
        return device_->trim(parts_.front().pool);
    }
    for (std::size_t i = parts_.size(); i-- > 0;) {
        if (auto done = parts_[i].requested_bytes == 0 ? drop_part(i) : device_->trim(parts_[i].pool); !done) {
            return done;
        }
    }
    auto added = add_rest(device_->pool_granularity());
    if (added) { unlist(); }  // otherwise the next call adds it
    return added;
}

template <Device D>
std::uint64_t StreamOrdered<D>::held_bytes() const {
    std::uint64_t sum = 0;
    for (const Part& part : parts_) { sum += held_by(part); }
    return sum;
}

template <Device D>
Status StreamOrdered<D>::resize(std::uint64_t cap_bytes, std::span<const Place> allocated) {
    const std::uint64_t granule = device_->pool_granularity();
    const std::uint64_t cap = round_down(cap_bytes, granule);
    const std::uint64_t open = open_bytes();
    const bool is_whole = parts_.size() == 1 && open == cap;
    if (!is_listed_) { list(allocated); }
    pinned_ = 0;
    if (is_whole || (cap >= open && cap < ceiling_ && !has_closed())) {
        if (cap - open >= (std::max)(largest_, granule) && parts_.size() < most_parts) {
            if (auto added = add_part(cap - open); !added) { return added; }
        }
        cap_ = limit_ = cap;
        unlist();
        return {};
    }
    // What stays in the old pools takes at least so much; may_grow() looks at what it takes.
    std::uint64_t pinned = 0;
    for (const Place& place : allocated) { pinned += place.is_pinned ? occupied(place.bytes) : 0; }
    const std::uint64_t stays = round_up(pinned, granule);
    const std::size_t before = parts_.size();
    if (cap >= stays + granule) {
        if (auto added = add_part(cap - stays); !added) { return added; }
    }
    for (std::size_t i = 0; i < before; ++i) { parts_[i].is_closed = true; }
    limit_ = (std::max)(cap_, cap);
    cap_ = cap;
    pinned_ = pinned;
    return {};
}

template <Device D>
Status StreamOrdered<D>::reclaim() {
    for (std::size_t i = parts_.size(); i-- > 0;) {
        if (!parts_[i].is_closed) { continue; }
        if (auto done = parts_[i].requested_bytes == 0 ? drop_part(i) : device_->trim(parts_[i].pool); !done) {
            return done;
        }
    }
    return {};
}

template <Device D>
Status StreamOrdered<D>::settle() {
    if (device_ == nullptr) { return {}; }
    limit_ = cap_;
    pinned_ = 0;
    if (auto reclaimed = reclaim(); !reclaimed) { return reclaimed; }
    auto added = add_rest(open_bytes() == 0 ? device_->pool_granularity() : largest_);
    if (added) { unlist(); }  // otherwise the next call adds it
    return added;
}

template <Device D>
void StreamOrdered<D>::abandon() noexcept {
    device_ = nullptr;
    parts_.clear();
    homes_.clear();
    is_listed_ = false;
    requested_ = pinned_ = 0;
}

template <Device D>
std::uint64_t StreamOrdered<D>::segments_bytes(const D& device, std::span<const std::uint64_t> sizes) const {
    const std::uint64_t granule = device.pool_granularity();
    std::uint64_t own = 0, others = 0, largest_other = 0;
    for (const std::uint64_t bytes : sizes) {
        const std::uint64_t taken = occupied(bytes);
        if (taken >= granule - granule / 2) {
            own += round_up(taken, granule);
        } else {
            others += taken;
            largest_other = (std::max)(largest_other, taken);
        }
    }
    const std::uint64_t least = others <= granule ? granule : granule - largest_other + config_.rounding_bytes;
    return own + (others + least - 1) / least * granule;
}

template <Device D>
std::uint64_t StreamOrdered<D>::open_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const Part& part : parts_) { sum += part.is_closed ? 0 : part.cap_bytes; }
    return sum;
}

template <Device D>
bool StreamOrdered<D>::may_grow(const Part& part, std::uint64_t bytes) const {
    if (!has_closed()) { return true; }
    std::uint64_t others = 0;
    for (const Part& other : parts_) {
        if (&other != &part) { others += other.is_closed ? held_by(other) : other.cap_bytes; }
    }
    return others + part.cap_bytes <= limit_ ||
           others + held_by(part) + round_up(bytes, device_->pool_granularity()) <= limit_;
}

template <Device D>
Status StreamOrdered<D>::add_part(std::uint64_t cap_bytes) {
    auto pool = device_->create_pool(cap_bytes);
    if (!pool) { return pool.error(); }
    parts_.push_back({*pool, cap_bytes, 0, numbers_++, false});
    return {};
}

template <Device D>
Status StreamOrdered<D>::drop_part(std::size_t i) {
    if (auto done = device_->destroy_pool(parts_[i].pool); !done) { return done; }
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
    return {};
}

template <Device D>
Status StreamOrdered<D>::add_rest(std::uint64_t least_bytes) {
    std::uint64_t taken = 0;
    for (const Part& part : parts_) { taken += part.is_closed ? held_by(part) : part.cap_bytes; }
    if (taken >= cap_ || cap_ - taken < least_bytes) { return {}; }
    if (parts_.size() == 1 && !is_listed_) { return {}; }
    return add_part(cap_ - taken);
}

template <Device D>
void StreamOrdered<D>::list(std::span<const Place> allocated) {
    homes_.clear();
    for (const Place& place : allocated) { homes_.push_back({place.at, parts_.front().number}); }
    std::ranges::sort(homes_, std::less{}, &Home::at);
    is_listed_ = true;
}

template <Device D>
void StreamOrdered<D>::unlist() noexcept {
    if (parts_.size() > 1 || has_closed()) { return; }
    homes_.clear();
    is_listed_ = false;
}

template <Device D>
std::size_t StreamOrdered<D>::part_of(const void* at) const noexcept {
    if (!is_listed_) { return 0; }
    const std::uint32_t number = home_of(at)->part;
    return static_cast<std::size_t>(std::ranges::find(parts_, number, &Part::number) - parts_.begin());
}

}}}  // namespace residency::RESIDENCY_ABI::pool
