// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "residency/broker/memory_client.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/interop/allocation_error.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Allocates device memory for a client of a BudgetBroker, in stream order, from one capped pool. What the pool holds of the device
/// is what the client has taken: no allocation brings the sum of all clients above the broker's total, and one for which there is no
/// room fails at once. Room for whole granules of the pool has to be free at that time, even where the pool does
/// not come to grow. Where the pool grows by more than whole granules of what was asked, that is counted as well, and an allocation that
/// leaves the total exceeded is undone and fails. A value: copies allocate from the same pool, which ends with the last of them, all
/// deallocated. Thread safe; the device outlives it.
///
/// Under the names of cuda::mr's resources, before CCCL 3.1 (allocate, allocate_async, …) and since (allocate_sync, and allocate with
/// a stream first), which RMM takes too; residency/interop/cccl.hpp says where its memory can be read, residency/interop/thrust.hpp is
/// for Thrust. Addresses are aligned to 256 bytes.
template <Device D>
class MemoryResource {
public:
    using Stream = typename D::Stream;
    static constexpr std::size_t largest_alignment = 256;

    struct Config {
        /// Of the pool, rounded down to the granularity of pools; 0: the client's own limit.
        std::uint64_t limit_bytes = 0;
    };

    /// Errors: invalid_argument (a limit below one granule), or the device's own.
    [[nodiscard]] static Result<MemoryResource> try_create(D& device, broker::MemoryClient client, Config config = {}) {
        auto shared = std::make_shared<Shared>(device, std::move(client));
        const std::uint64_t granule = device.pool_granularity();
        const auto memory = device.memory();
        if (!memory) { return memory.error(); }
        const std::uint64_t limit = (std::min)({memory->total_bytes, shared->client.account().limit_bytes,
                                                config.limit_bytes == 0 ? UINT64_MAX : config.limit_bytes});
        if (limit < granule) {
            return Error{ErrorKind::invalid_argument, "a pool of " + std::to_string(limit) +
                                                          " bytes: the device gives pools of multiples of " +
                                                          std::to_string(granule)};
        }
        shared->cap_bytes = limit / granule * granule;
        auto pool = device.create_pool(shared->cap_bytes);
        if (!pool) { return pool.error(); }
        shared->pool = *pool;
        shared->is_open = true;
        auto stream = device.create_stream();
        if (!stream) { return stream.error(); }
        shared->stream = *stream;
        shared->has_stream = true;
        return MemoryResource{std::move(shared)};
    }
#if RESIDENCY_EXCEPTIONS
    MemoryResource(D& device, broker::MemoryClient client, Config config = {})
        : MemoryResource{unwrap(try_create(device, std::move(client), config))} {}
#endif

    /// Memory that work on the stream may use from here on. Zero bytes: null. Does not wait for the device, but where the pool has to
    /// give back what it holds without use. Errors: invalid_argument (an alignment above 256, or not a power of two); budget, with the
    /// numbers (no room now; the bytes are wanted from here on); or the device's own.
    [[nodiscard]] Result<void*> try_allocate(std::uint64_t bytes, std::size_t alignment, Stream stream) {
        if (alignment == 0 || alignment > largest_alignment || (alignment & (alignment - 1)) != 0) {
            return Error{ErrorKind::invalid_argument,
                         "an alignment of " + std::to_string(alignment) + " bytes: powers of two up to 256 are given"};
        }
        if (bytes == 0) { return static_cast<void*>(nullptr); }
        const std::lock_guard lock{shared_->mutex};
        return shared_->allocate(bytes, stream);
    }
    /// Memory that any work may use from here on. Blocks until the device has it.
    [[nodiscard]] Result<void*> try_allocate(std::uint64_t bytes, std::size_t alignment = largest_alignment) {
        auto at = try_allocate(bytes, alignment, shared_->stream);
        if (!at || *at == nullptr) { return at; }
        if (auto there = shared_->device->synchronize(shared_->stream); !there) { return there.error(); }
        return at;
    }
    /// After the work that the stream has now. The pool keeps the memory for the next allocation: see try_trim.
    [[nodiscard]] Status try_deallocate(void* at, std::uint64_t bytes, Stream stream) {
        if (at == nullptr) { return {}; }
        const std::lock_guard lock{shared_->mutex};
        return shared_->deallocate(at, bytes, stream);
    }
    /// After all work of the device, for which it waits.
    [[nodiscard]] Status try_deallocate(void* at, std::uint64_t bytes) {
        if (at == nullptr) { return {}; }
        if (auto idle = shared_->device->synchronize(); !idle) { return idle; }
        return try_deallocate(at, bytes, shared_->stream);
    }
    /// Gives back what the pool holds without use, as far as the deallocations are complete: free for the other clients. Call it
    /// between passes, where asked_back_bytes() is not zero or others shall profit.
    [[nodiscard]] Status try_trim() {
        const std::lock_guard lock{shared_->mutex};
        return shared_->trim();
    }

#if RESIDENCY_EXCEPTIONS
    /// Throws std::bad_alloc where there is no room, as allocators do; else as unwrap does.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = largest_alignment) {
        return unwrap_allocation(try_allocate(bytes, alignment));
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, std::size_t alignment, Stream stream) {
        return unwrap_allocation(try_allocate(bytes, alignment, stream));
    }
    [[nodiscard]] void* allocate_async(std::size_t bytes, Stream stream) {
        return allocate_async(bytes, largest_alignment, stream);
    }
    [[nodiscard]] void* allocate(Stream stream, std::size_t bytes, std::size_t alignment) {
        return allocate_async(bytes, alignment, stream);
    }
    [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment = largest_alignment) {
        return allocate(bytes, alignment);
    }
    void trim() { unwrap(try_trim()); }
#endif
    /// A failure is kept: failure().
    void deallocate(void* at, std::size_t bytes, std::size_t = largest_alignment) noexcept {
        keep(try_deallocate(at, bytes));
    }
    void deallocate_async(void* at, std::size_t bytes, std::size_t, Stream stream) noexcept {
        keep(try_deallocate(at, bytes, stream));
    }
    void deallocate_async(void* at, std::size_t bytes, Stream stream) noexcept {
        deallocate_async(at, bytes, largest_alignment, stream);
    }
    void deallocate(Stream stream, void* at, std::size_t bytes, std::size_t) noexcept {
        deallocate_async(at, bytes, stream);
    }
    void deallocate_sync(void* at, std::size_t bytes, std::size_t = largest_alignment) noexcept {
        deallocate(at, bytes);
    }

    /// What the pool holds of the device, what is handed out of it, and what other clients wait for.
    [[nodiscard]] std::uint64_t held_bytes() const { return shared_->client.account().used_bytes; }
    [[nodiscard]] std::uint64_t requested_bytes() const {
        const std::lock_guard lock{shared_->mutex};
        return shared_->requested_bytes;
    }
    [[nodiscard]] std::uint64_t asked_back_bytes() const { return shared_->client.asked_back_bytes(); }
    /// See broker::MemoryClient::ask.
    void ask(std::uint64_t bytes) { shared_->client.ask(bytes); }
    [[nodiscard]] broker::Account account() const { return shared_->client.account(); }
    /// The first failure of an operation that could not report it.
    [[nodiscard]] std::shared_ptr<const Error> failure() const {
        const std::lock_guard lock{shared_->mutex};
        return shared_->failure;
    }

    /// Whether what one allocated the other may deallocate.
    friend bool operator==(const MemoryResource& a, const MemoryResource& b) noexcept { return a.shared_ == b.shared_; }

private:
    /// The pool and its account. The mutex makes an allocation and its accounting one.
    struct Shared {
        D* device;
        broker::MemoryClient client;
        mutable std::mutex mutex;
        typename D::Pool pool{};
        Stream stream{};
        bool is_open = false;
        bool has_stream = false;
        std::uint64_t cap_bytes = 0;    // of the pool
        std::uint64_t taken_bytes = 0;  // by the client: what the pool holds
        std::uint64_t requested_bytes = 0;
        std::shared_ptr<const Error> failure;

        Shared(D& on, broker::MemoryClient of) : device{&on}, client{std::move(of)} {}
        Shared(const Shared&) = delete;
        Shared& operator=(const Shared&) = delete;
        ~Shared() {
            // Deallocations may be pending: the pool's memory is free with the last of them.
            if (is_open || has_stream) { static_cast<void>(device->synchronize().has_value()); }
            if (is_open) { static_cast<void>(device->destroy_pool(pool).has_value()); }
            if (has_stream) { static_cast<void>(device->destroy_stream(stream).has_value()); }
        }

        /// What the pool may come to hold more for so many bytes: whole granules, whatever is free inside.
        [[nodiscard]] std::uint64_t growth(std::uint64_t bytes) const noexcept {
            const std::uint64_t granule = device->pool_granularity();
            const std::uint64_t over = bytes % granule;
            return over == 0 || bytes > UINT64_MAX - granule ? bytes : bytes + (granule - over);
        }
        [[nodiscard]] Status take(std::uint64_t bytes) {
            const std::uint64_t most = (std::min)(growth(bytes), cap_bytes - taken_bytes);
            if (most == 0) { return {}; }
            if (auto taken = client.try_take(most); !taken) { return taken; }
            taken_bytes += most;
            return {};
        }
        [[nodiscard]] Result<void*> allocate(std::uint64_t bytes, Stream on) {
            // Whether there is room inside the pool only the allocation itself can tell: what it may grow by is taken before, and
            // what it did not grow by is given back.
            auto taken = take(bytes);
            if (!taken) {
                if (auto trimmed = trim(); !trimmed) { return trimmed.error(); }
                taken = take(bytes);
            }
            if (!taken) { return taken.error(); }
            auto at = device->allocate(pool, bytes, on);
            auto fits = settle();
            if (at) { requested_bytes += bytes; }
            if (at && fits && !*fits) { return take_back(*at, bytes, on); }
            if (!fits) { keep(fits.error()); }
            return at;
        }
        [[nodiscard]] Status deallocate(void* at, std::uint64_t bytes, Stream on) {
            if (auto freed = device->deallocate(pool, at, on); !freed) { return freed; }
            requested_bytes -= (std::min)(requested_bytes, bytes);
            return {};
        }
        [[nodiscard]] Status trim() {
            // What was deallocated without a stream is complete, once this stream has been there.
            if (auto there = device->synchronize(stream); !there) { return there; }
            if (auto trimmed = device->trim(pool); !trimmed) { return trimmed; }
            const auto fits = settle();
            return fits ? Status{} : Status{fits.error()};
        }
        /// Gives back what was taken beyond what the pool holds, and counts what it holds beyond that. Where nobody can tell, it stays
        /// as it was. False: the pool grew by more than its granularity says, beyond the total.
        [[nodiscard]] Result<bool> settle() {
            const auto held = device->held_bytes(pool);
            if (!held) { return held.error(); }
            bool fits = true;
            if (*held < taken_bytes) { client.give_back(taken_bytes - *held); }
            if (*held > taken_bytes) { fits = client.charge(*held - taken_bytes); }
            taken_bytes = *held;
            return fits;
        }
        /// An allocation that brought the pool above what there is room for ends at once.
        [[nodiscard]] Error take_back(void* at, std::uint64_t bytes, Stream on) {
            const std::uint64_t held = taken_bytes;
            const broker::Account account = client.account();
            auto done = deallocate(at, bytes, on);
            if (done) { done = device->synchronize(on); }
            if (done) { done = trim(); }
            if (!done) { keep(done); }
            return {ErrorKind::budget,
                    "\"" + account.name + "\" asks for " + std::to_string(bytes) +
                        " bytes, for which the device's pool grew to " + std::to_string(held) +
                        ": the total has no room for that",
                    BudgetNumbers{bytes, account.target_bytes, held, account.floor_bytes, UINT32_MAX}};
        }
        void keep(const Status& status) {
            if (!status && !failure) { failure = std::make_shared<const Error>(status.error()); }
        }
    };

    explicit MemoryResource(std::shared_ptr<Shared> shared) noexcept : shared_{std::move(shared)} {}

    void keep(const Status& status) {
        const std::lock_guard lock{shared_->mutex};
        shared_->keep(status);
    }
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] static void* unwrap_allocation(Result<void*> at) {
        if (at) { return *at; }
        if (at.error().kind() == ErrorKind::budget || at.error().kind() == ErrorKind::out_of_memory) {
            throw AllocationError{at.error()};
        }
        throw_error(at.error());
    }
#endif

    std::shared_ptr<Shared> shared_;
};

}}  // namespace residency::RESIDENCY_ABI
