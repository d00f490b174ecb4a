// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "residency/core/engine/session.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The right to read weights on a stream. While a lease is open, its weights are never evicted and never move; work that is enqueued on
/// its streams before its end may read them. The end records the use, without blocking. Leases can be moved, nested, and ended in any
/// order; they end before their Residency does. The type depends on the device only: a function that takes a `Lease<CudaDevice>` works
/// with every composition of policies.
template <Device D>
class [[nodiscard]] Lease {
public:
    using Stream = typename D::Stream;  ///< of the device
    using Event = typename D::Event;    ///< of the device

    Lease() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    Lease(Lease&& other) noexcept : session_{std::exchange(other.session_, nullptr)}, id_{other.id_} {}
    Lease& operator=(Lease&& other) noexcept {
        if (this != &other) {
            end();
            session_ = std::exchange(other.session_, nullptr);
            id_ = other.id_;
        }
        return *this;
    }
    /// @}
    ~Lease() { end(); }

    /// Records the use on every stream of the lease, and releases the weights. A failure is kept: Residency::failure().
    void end() noexcept {
        if (session_ != nullptr) { std::exchange(session_, nullptr)->leases().end(id_); }
    }
    /// Whether it holds weights.
    [[nodiscard]] explicit operator bool() const noexcept { return session_ != nullptr; }
    /// Whether the lease gives an address of a weight: it is open, and the weight lies in a storage that it was acquired for.
    [[nodiscard]] bool covers(WeightId weight) const noexcept {
        return session_ != nullptr && session_->leases().covers(id_, weight);
    }

    /// The names, dtypes and shapes of the weights. Precondition: the lease is open.
    [[nodiscard]] const Catalog& catalog() const noexcept {
        check_open();
        return session_->catalog();
    }
    /// The device of the Residency. Precondition: the lease is open.
    [[nodiscard]] D& device() const noexcept {
        check_open();
        return session_->device();
    }
    /// The stream that it was acquired for. Precondition: the lease is open.
    [[nodiscard]] Stream stream() const noexcept {
        check_open();
        return session_->leases().stream(id_);
    }

    /// The device address of a weight's first byte; null if the weight has no bytes. Precondition: the lease covers the weight. An
    /// address is valid until the lease ends, so that a temporary lease gives none. Without assertions the address of what no lease covers
    /// is null, and so is any of a lease that has ended.
    [[nodiscard]] const std::byte* data(WeightId weight) const& noexcept { return address_of<std::byte>(weight); }
    const std::byte* data(WeightId weight) const&& = delete;
    /// The packed bytes of a weight that kernels read packed (codec/bf16_tiles.cuh); no data: kernels read it raw, at data(). Precondition:
    /// the lease covers the weight.
    [[nodiscard]] PackedWeight packed(WeightId weight) const& noexcept {
        check(weight);
        return is_leased(weight) ? session_->packed(weight) : PackedWeight{};
    }
    PackedWeight packed(WeightId weight) const&& = delete;
    /// The address of the weight's first element, of type T. Precondition: matches<T>() of the weight's dtype.
    template <class T>
    [[nodiscard]] const T* get(WeightId weight) const& noexcept {
        return address_of<T>(weight);
    }
    template <class T>
    const T* get(WeightId weight) const&& = delete;
    /// All bytes of a weight on the device.
    [[nodiscard]] std::span<const std::byte> bytes(WeightId weight) const& noexcept {
        const std::byte* const at = data(weight);
        return {at, at == nullptr ? 0 : static_cast<std::size_t>(session_->catalog().weight(weight).bytes)};
    }
    std::span<const std::byte> bytes(WeightId weight) const&& = delete;
    /// All elements of a weight on the device. Precondition: its bytes are a multiple of sizeof(T).
    template <class T>
    [[nodiscard]] std::span<const T> span(WeightId weight) const& noexcept {
        const std::size_t size = bytes(weight).size();
        RESIDENCY_ASSERT(size % sizeof(T) == 0, "ask for elements of the weight's own size");
        return {get<T>(weight), size / sizeof(T)};
    }
    template <class T>
    std::span<const T> span(WeightId weight) const&& = delete;
    /// The address of the weight as a pointer that is not const, for kernels in C style whose parameters are not const. They must only
    /// read: for mutable weights, which kernels may write to, there is writable().
    template <class T = void>
    [[nodiscard]] T* address(WeightId weight) const& noexcept {
        return address_of<T>(weight);
    }
    template <class T = void>
    T* address(WeightId weight) const&& = delete;
    /// For kernels that write. Precondition: the weight's storage is mutable.
    template <class T>
    [[nodiscard]] T* writable(WeightId weight) const& noexcept {
        check(weight);
        RESIDENCY_ASSERT(session_->catalog().storage(session_->catalog().storage_of(weight)).is_mutable,
                         "only mutable weights are written: declare the storage so in the catalog");
        return address_of<T>(weight);
    }
    template <class T>
    T* writable(WeightId weight) const&& = delete;

    /// Another stream reads too: it waits for the bytes, and the end of the lease is recorded there as well.
    [[nodiscard]] Status try_use_on(Stream stream) {
        check_open();
        return session_->report_if_failed(session_->leases().use_on(id_, stream));
    }
    /// The streams of the lease wait for an event of yours: kernels that are enqueued from here on start after it, and so counts the end
    /// of the lease. Call it before the kernels that need what the event stands for; or before the end, with the event that another
    /// reader has recorded behind its last read.
    [[nodiscard]] Status try_wait_for(Event event) {
        check_open();
        return session_->report_if_failed(session_->leases().wait_for(id_, event));
    }
    /// Records an event of yours: it stands for the arrival of the weights, and for all work that is enqueued on the streams of the lease
    /// so far. Call it at the beginning for readers that cannot name their stream: they wait for it, and answer with try_wait_for(). Call
    /// it before the end for whoever waits for the kernels. If the lease has several streams, the first waits for the others.
    [[nodiscard]] Status try_record(Event event) {
        check_open();
        return session_->report_if_failed(session_->leases().record(id_, event));
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_use_on(), but throws Exception.
    void use_on(Stream stream) { unwrap(try_use_on(stream)); }
    /// As try_wait_for(), but throws Exception.
    void wait_for(Event event) { unwrap(try_wait_for(event)); }
    /// As try_record(), but throws Exception.
    void record(Event event) { unwrap(try_record(event)); }
#endif

private:
    template <Device E>
    friend class Ticket;
    template <Device E>
    friend class Pass;
    Lease(core::Session<D>* session, core::LeaseId id) noexcept : session_{session}, id_{id} {}

    void check_open() const noexcept { RESIDENCY_ASSERT(session_ != nullptr, "the lease has ended"); }
    void check([[maybe_unused]] WeightId weight) const noexcept {
        check_open();
        RESIDENCY_ASSERT(covers(weight), "ask a lease only for the weights that it was acquired for");
    }
    [[nodiscard]] bool is_leased(WeightId weight) const noexcept {
        return session_ != nullptr && session_->is_leased(weight);
    }
    template <class T>
    [[nodiscard]] T* address_of(WeightId weight) const noexcept {
        check(weight);
        return is_leased(weight) ? session_->template typed_address<T>(weight) : nullptr;
    }

    core::Session<D>* session_ = nullptr;
    core::LeaseId id_;
};

/// A request made early: the copies are enqueued, and the weights are not evicted until the ticket becomes a lease, which it does once,
/// or is dropped.
template <Device D>
class [[nodiscard]] Ticket {
public:
    using Stream = typename D::Stream;  ///< of the device

    Ticket() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    Ticket(Ticket&& other) noexcept : session_{std::exchange(other.session_, nullptr)}, id_{other.id_} {}
    Ticket& operator=(Ticket&& other) noexcept {
        if (this != &other) {
            drop();
            session_ = std::exchange(other.session_, nullptr);
            id_ = other.id_;
        }
        return *this;
    }
    /// @}
    ~Ticket() { drop(); }

    /// Gives up what was asked for.
    void drop() noexcept {
        if (session_ != nullptr) { std::exchange(session_, nullptr)->leases().end(id_); }
    }
    /// Whether it stands for weights.
    [[nodiscard]] explicit operator bool() const noexcept { return session_ != nullptr; }

    /// The lease on a stream, by default the pass's own. The ticket is spent, also on failure.
    [[nodiscard]] Result<Lease<D>> try_lease() {
        RESIDENCY_ASSERT(session_ != nullptr, "the ticket is spent");
        return try_lease(session_->pass_stream());
    }
    /// As above, on another stream.
    [[nodiscard]] Result<Lease<D>> try_lease(Stream stream) {
        RESIDENCY_ASSERT(session_ != nullptr, "the ticket is spent");
        Lease<D> lease{std::exchange(session_, nullptr), id_};
        if (auto waits = lease.try_use_on(stream); !waits) { return waits.error(); }
        return lease;
    }
#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    [[nodiscard]] Lease<D> lease() { return unwrap(try_lease()); }
    [[nodiscard]] Lease<D> lease(Stream stream) { return unwrap(try_lease(stream)); }
    /// @}
#endif

private:
    template <Device E>
    friend class Pass;
    Ticket(core::Session<D>* session, core::LeaseId id) noexcept : session_{session}, id_{id} {}

    core::Session<D>* session_ = nullptr;
    core::LeaseId id_;
};

}}  // namespace residency::RESIDENCY_ABI
