// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "residency/pool/memory_pool.hpp"

namespace residency::inline RESIDENCY_ABI::pool {

/// The driver's stream-ordered pool with a hard cap. Any sizes, no host wait. The driver rounds a cap up (32 MiB on CUDA), so
/// the budget is rounded down to it and the floor up. Fragmentation can keep a large request out although enough bytes are
/// free, and a trim does not heal it: the floor is best effort. Slab and Virtual keep theirs.
template <Device D>
class StreamOrdered {
public:
    using Device = D;
    struct Config {
        /// Bytes to which the driver rounds an allocation in a pool.
        std::uint64_t rounding_bytes = 512;
    };
    static constexpr bool fixed_addresses = false;

    StreamOrdered() : StreamOrdered(Config{}) {}
    explicit StreamOrdered(Config config) noexcept : config_{config} {}
    StreamOrdered(StreamOrdered&& other) noexcept
        : config_{other.config_},
          device_{std::exchange(other.device_, nullptr)},
          pool_{other.pool_},
          cap_{other.cap_},
          requested_{other.requested_} {}
    StreamOrdered& operator=(StreamOrdered&&) = delete;
    ~StreamOrdered() { close(); }

    [[nodiscard]] std::uint64_t occupied(std::uint64_t bytes) const noexcept {
        return round_up(bytes, config_.rounding_bytes);
    }
    [[nodiscard]] std::uint64_t floor_bytes(const D& device, const Needs& needs) const {
        return round_up(needs.step_bytes + needs.step_storages * (config_.rounding_bytes - 1),
                        device.pool_granularity());
    }
    [[nodiscard]] std::uint64_t ceiling_bytes(const D& device, const Needs& needs) const {
        return round_up(needs.total_bytes + needs.storages * (config_.rounding_bytes - 1), device.pool_granularity());
    }

    [[nodiscard]] Status open(D& device, const Needs& needs, std::uint64_t cap_bytes) {
        if (needs.largest_alignment_bytes > alignment_bytes) {
            return Error{ErrorKind::unsupported, "a storage wants its address at a multiple of " +
                                                     std::to_string(needs.largest_alignment_bytes) +
                                                     " bytes, and a stream-ordered pool promises multiples of " +
                                                     std::to_string(alignment_bytes) + ": use pool::Slab"};
        }
        cap_ = round_down(cap_bytes, device.pool_granularity());
        auto pool = device.create_pool(cap_);
        if (!pool) { return pool.error(); }
        device_ = &device;
        pool_ = *pool;
        requested_ = 0;
        return {};
    }
    /// Refused by the count before the driver is asked, so that an ordinary exhaustion costs nothing.
    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes, typename D::Stream stream) {
        const std::uint64_t taken = occupied(bytes);
        if (taken > cap_ - requested_) { return nullptr; }
        auto at = device_->allocate(pool_, bytes, stream);
        if (!at) {
            if (at.error().kind() == ErrorKind::out_of_memory) { return nullptr; }
            return at.error();
        }
        requested_ += taken;
        return *at;
    }
    [[nodiscard]] Status deallocate(void* at, std::uint64_t bytes, typename D::Stream stream) {
        if (auto done = device_->deallocate(pool_, at, stream); !done) { return done; }
        requested_ -= occupied(bytes);
        return {};
    }
    [[nodiscard]] Status recover() { return device_->trim(pool_); }

    [[nodiscard]] std::uint64_t held_bytes() const {
        if (device_ == nullptr) { return 0; }
        const auto held = device_->held_bytes(pool_);
        return held ? *held : cap_;
    }
    [[nodiscard]] std::uint64_t requested_bytes() const noexcept { return requested_; }

    void close() noexcept {
        if (device_ != nullptr) { static_cast<void>(std::exchange(device_, nullptr)->destroy_pool(pool_).has_value()); }
        requested_ = 0;
    }
    void abandon() noexcept { device_ = nullptr; }

private:
    static constexpr std::uint64_t alignment_bytes = 256;  // what the driver promises

    Config config_;
    D* device_ = nullptr;
    typename D::Pool pool_{};
    std::uint64_t cap_ = 0;
    std::uint64_t requested_ = 0;
};

}  // namespace residency::inline RESIDENCY_ABI::pool
