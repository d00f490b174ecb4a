// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "residency/broker/memory_client.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

#if RESIDENCY_EXCEPTIONS
/// Thrown by allocators if there is no room; its error has the numbers.
class AllocationError : public std::bad_alloc {
public:
    /// Its what() is the message of `error`.
    explicit AllocationError(Error error) noexcept : error_{std::move(error)} {}
    /// Valid as long as the exception.
    [[nodiscard]] const char* what() const noexcept override { return error_.message().c_str(); }
    /// What failed.
    [[nodiscard]] const Error& error() const noexcept { return error_; }

private:
    Error error_;
};
#endif

/// Allocates device memory for a client of a BudgetBroker, in stream order, from one capped pool: the client has taken what the
/// pool holds of the device, so that no allocation brings the sum of all clients above the broker's total. An allocation without
/// room fails at once. It needs room for whole granules of the pool, even if the pool does not have to grow. If the pool grows by
/// more, that is counted too, and an allocation that leaves the total exceeded is undone and fails. A value: copies allocate from
/// the same pool, which ends with the last copy; all memory must be deallocated by then. Thread safe. The device must outlive it.
///
/// It has the member functions of cuda::mr's resources, both before CCCL 3.1 (allocate, allocate_async, …) and since
/// (allocate_sync, and allocate with a stream first), which RMM takes too. residency/interop/cccl.hpp adds the property that says
/// where its memory can be read; residency/interop/thrust.hpp is for Thrust. Addresses are aligned to 256 bytes.
template <Device D>
class MemoryResource {
public:
    using Stream = typename D::Stream;                     ///< of the device
    static constexpr std::size_t largest_alignment = 256;  ///< of what it gives

    /// How large it may get.
    struct Config {
        /// Cap of the pool, rounded down to the granularity of pools. 0: the client's own limit.
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
            return Error{ErrorKind::invalid_argument,
                         "limit_bytes of the pool, of its client or the device's memory: " +
                             residency::detail::in_bytes(limit) + ", and the device gives pools of multiples of " +
                             residency::detail::in_bytes(granule) + ": raise the limit"};
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
    /// As try_create(), but throws AllocationError.
    MemoryResource(D& device, broker::MemoryClient client, Config config = {})
        : MemoryResource{unwrap(try_create(device, std::move(client), config))} {}
#endif

    /// Allocates memory for work that is enqueued on the stream from here on. Zero bytes: null. Blocks only if the pool has to give
    /// back unused memory first. Errors: invalid_argument (an alignment above 256, or not a power of two); budget, with the numbers
    /// (no room now; the bytes are wanted from here on); or the device's own.
    [[nodiscard]] Result<void*> try_allocate(std::uint64_t bytes, std::size_t alignment, Stream stream) {
        if (alignment == 0 || alignment > largest_alignment || (alignment & (alignment - 1)) != 0) {
            return Error{ErrorKind::invalid_argument, "an alignment of " + residency::detail::in_bytes(alignment) +
                                                          ": powers of two up to 256 are given"};
        }
        if (bytes == 0) { return static_cast<void*>(nullptr); }
        const std::lock_guard lock{shared_->mutex};
        return shared_->allocate(bytes, stream);
    }
    /// Blocks until the device has the memory. Any work may use it from then on.
    [[nodiscard]] Result<void*> try_allocate(std::uint64_t bytes, std::size_t alignment = largest_alignment) {
        auto at = try_allocate(bytes, alignment, shared_->stream);
        if (!at || *at == nullptr) { return at; }
        if (auto there = shared_->device->synchronize(shared_->stream); !there) { return there.error(); }
        return at;
    }
    /// Deallocates after the work that the stream has now. The pool keeps the memory for the next allocation; try_trim() gives it
    /// back.
    [[nodiscard]] Status try_deallocate(void* at, std::uint64_t bytes, Stream stream) {
        if (at == nullptr) { return {}; }
        const std::lock_guard lock{shared_->mutex};
        return shared_->deallocate(at, bytes, stream);
    }
    /// Blocks until all work of the device is complete, then deallocates.
    [[nodiscard]] Status try_deallocate(void* at, std::uint64_t bytes) {
        if (at == nullptr) { return {}; }
        if (auto idle = shared_->device->synchronize(); !idle) { return idle; }
        return try_deallocate(at, bytes, shared_->stream);
    }
    /// Blocks until the deallocations without a stream are complete. Gives back to the other clients what the pool holds unused.
    /// Call it between passes if asked_back_bytes() is not zero.
    [[nodiscard]] Status try_trim() {
        const std::lock_guard lock{shared_->mutex};
        return shared_->trim();
    }

#if RESIDENCY_EXCEPTIONS
    /// Throws AllocationError, a std::bad_alloc, if there is no room, and what unwrap() throws otherwise.
    [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment = largest_alignment) {
        return unwrap_allocation(try_allocate(bytes, alignment));
    }
    /// In the order of the stream, or at once, under the names that allocators of today use. Throws AllocationError.
    /// @{
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
    /// @}
    /// As try_trim(), but throws Exception.
    void trim() { unwrap(try_trim()); }
#endif
    /// A failure is kept for failure().
    void deallocate(void* at, std::size_t bytes, std::size_t = largest_alignment) noexcept {
        keep(try_deallocate(at, bytes));
    }
    /// A failure is kept for failure().
    /// @{
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
    /// @}

    /// Bytes that the pool holds of the device.
    [[nodiscard]] std::uint64_t held_bytes() const { return shared_->client.account().used_bytes; }
    /// Bytes that are allocated now.
    [[nodiscard]] std::uint64_t requested_bytes() const {
        const std::lock_guard lock{shared_->mutex};
        return shared_->requested_bytes;
    }
    /// Bytes that other clients wait for.
    [[nodiscard]] std::uint64_t asked_back_bytes() const { return shared_->client.asked_back_bytes(); }
    /// Does what broker::MemoryClient::ask() does.
    void ask(std::uint64_t bytes) { shared_->client.ask(bytes); }
    /// What the client has now.
    [[nodiscard]] broker::Account account() const { return shared_->client.account(); }
    /// The first failure of an operation that could not report it.
    [[nodiscard]] std::shared_ptr<const Error> failure() const {
        const std::lock_guard lock{shared_->mutex};
        return shared_->failure;
    }

    /// Whether each may deallocate what the other allocated.
    friend bool operator==(const MemoryResource& a, const MemoryResource& b) noexcept { return a.shared_ == b.shared_; }

private:
    /// The pool and its account: under the mutex, taken_bytes is what the pool holds.
    struct Shared {
        D* device;
        broker::MemoryClient client;
        mutable std::mutex mutex;
        typename D::Pool pool{};
        Stream stream{};
        bool is_open = false;
        bool has_stream = false;
        std::uint64_t cap_bytes = 0;           // of the pool
        std::uint64_t taken_bytes = 0;         // from the client
        std::uint64_t requested_bytes = 0;     // allocated now
        std::shared_ptr<const Error> failure;  // the first; may be null

        Shared(D& on, broker::MemoryClient of) : device{&on}, client{std::move(of)} {}
        Shared(const Shared&) = delete;
        Shared& operator=(const Shared&) = delete;
        ~Shared() {
            // Deallocations may be pending, and the pool's memory is free only after the last of them.
            if (is_open || has_stream) { static_cast<void>(device->synchronize().has_value()); }
            if (is_open) { static_cast<void>(device->destroy_pool(pool).has_value()); }
            if (has_stream) { static_cast<void>(device->destroy_stream(stream).has_value()); }
        }

        /// Bytes by which the pool may grow for an allocation: whole granules.
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
            // Only the allocation itself shows whether the pool has room inside. So the growth is taken before, and given back if
            // the pool did not grow.
            if (bytes > cap_bytes) { return never_fits(bytes); }
            auto taken = take(bytes);
            if (!taken) {
                if (auto trimmed = trim(); !trimmed) { return trimmed.error(); }
                taken = take(bytes);
            }
            if (!taken) { return taken.error(); }
            auto at = device->allocate(pool, bytes, on);
            auto fits = match_account();
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
            // Then the deallocations without a stream are complete.
            if (auto there = device->synchronize(stream); !there) { return there; }
            if (auto trimmed = device->trim(pool); !trimmed) { return trimmed; }
            const auto fits = match_account();
            return fits ? Status{} : Status{fits.error()};
        }
        /// Makes taken_bytes what the pool holds: gives back the rest, or counts what the pool holds beyond it. Changes nothing if
        /// the device does not say what the pool holds. False: the pool grew by more than its granularity, and the total is
        /// exceeded.
        [[nodiscard]] Result<bool> match_account() {
            const auto held = device->held_bytes(pool);
            if (!held) { return held.error(); }
            bool fits = true;
            if (*held < taken_bytes) { client.give_back(taken_bytes - *held); }
            if (*held > taken_bytes) { fits = client.charge(*held - taken_bytes); }
            taken_bytes = *held;
            return fits;
        }
        [[nodiscard]] RESIDENCY_DETAIL_COLD Error never_fits(std::uint64_t bytes) const {
            const broker::Account account = client.account();
            return {ErrorKind::budget,
                    "\"" + account.name + "\" asks for " + residency::detail::in_bytes(bytes) +
                        " at once, and its pool holds " + residency::detail::in_bytes(cap_bytes) +
                        " at most, the least of Config::limit_bytes, its client's limit_bytes and the device's "
                        "memory: ask for less, or raise the limit that is in the way",
                    BudgetNumbers{bytes, cap_bytes, taken_bytes, account.floor_bytes, UINT32_MAX}};
        }
        /// Deallocates what brought the pool above the total. Blocks.
        [[nodiscard]] Error take_back(void* at, std::uint64_t bytes, Stream on) {
            const std::uint64_t held = taken_bytes;
            const broker::Account account = client.account();
            auto done = deallocate(at, bytes, on);
            if (done) { done = device->synchronize(on); }
            if (done) { done = trim(); }
            if (!done) { keep(done); }
            return {ErrorKind::budget,
                    "\"" + account.name + "\" asks for " + residency::detail::in_bytes(bytes) +
                        ", for which the device's pool grew to " + residency::detail::in_bytes(held) +
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
