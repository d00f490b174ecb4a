// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "residency/core/engine.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The right to read weights on a stream. While it lives their bytes do not leave and do not move; work enqueued on its streams
/// before its end may read them. Its end records the use, without blocking. Leases move, nest, and end in any order; they end
/// before their Residency does.
template <class Engine>
class [[nodiscard]] Lease {
public:
    using Stream = typename Engine::Stream;

    Lease() noexcept = default;
    Lease(Lease&& other) noexcept : engine_{std::exchange(other.engine_, nullptr)}, id_{other.id_} {}
    Lease& operator=(Lease&& other) noexcept {
        if (this != &other) {
            end();
            engine_ = std::exchange(other.engine_, nullptr);
            id_ = other.id_;
        }
        return *this;
    }
    ~Lease() { end(); }

    /// Records the use on every stream of the lease, and lets go. A failure is kept: Residency::failure().
    void end() noexcept {
        if (engine_ != nullptr) { std::exchange(engine_, nullptr)->end_lease(id_); }
    }
    [[nodiscard]] explicit operator bool() const noexcept { return engine_ != nullptr; }

    /// The device address of a weight's first byte; null where it has no bytes. Precondition: the lease covers the weight.
    [[nodiscard]] const std::byte* data(WeightId weight) const noexcept {
        check(weight);
        return engine_->address(weight);
    }
    /// The same as elements of type T; the caller knows the dtype.
    template <class T>
    [[nodiscard]] const T* get(WeightId weight) const noexcept {
        return reinterpret_cast<const T*>(data(weight));
    }
    /// All of a weight's bytes on the device.
    [[nodiscard]] std::span<const std::byte> bytes(WeightId weight) const noexcept {
        return {data(weight), static_cast<std::size_t>(engine_->catalog().weight(weight).bytes)};
    }
    /// All of a weight's elements on the device. Precondition: its bytes are a multiple of sizeof(T).
    template <class T>
    [[nodiscard]] std::span<const T> span(WeightId weight) const noexcept {
        const std::uint64_t bytes = engine_->catalog().weight(weight).bytes;
        RESIDENCY_ASSERT(bytes % sizeof(T) == 0, "ask for elements of the weight's own size");
        return {get<T>(weight), static_cast<std::size_t>(bytes / sizeof(T))};
    }
    /// For kernels that write. Precondition: the weight's storage is mutable.
    template <class T>
    [[nodiscard]] T* writable(WeightId weight) const noexcept {
        check(weight);
        RESIDENCY_ASSERT(engine_->catalog().storage(engine_->catalog().storage_of(weight)).is_mutable,
                         "only mutable weights are written: declare the storage so in the catalog");
        return reinterpret_cast<T*>(engine_->address(weight));
    }

    /// Another stream reads too: it waits for the bytes, and the end of the lease is recorded there as well.
    [[nodiscard]] Status try_use_on(Stream stream) {
        RESIDENCY_ASSERT(engine_ != nullptr, "the lease has ended");
        return engine_->use_on(id_, stream);
    }
#if RESIDENCY_EXCEPTIONS
    void use_on(Stream stream) { unwrap(try_use_on(stream)); }
#endif

private:
    template <class E>
    friend class Ticket;
    template <class E>
    friend class Pass;
    Lease(Engine* engine, core::LeaseId id) noexcept : engine_{engine}, id_{id} {}

    void check([[maybe_unused]] WeightId weight) const noexcept {
        RESIDENCY_ASSERT(engine_ != nullptr, "the lease has ended");
        RESIDENCY_ASSERT(engine_->covers(id_, weight), "ask a lease only for the weights that it was acquired for");
    }

    Engine* engine_ = nullptr;
    core::LeaseId id_;
};

/// A request made early: the bytes are on their way and do not leave. Becomes a lease, once; dropped, it lets go.
template <class Engine>
class [[nodiscard]] Ticket {
public:
    using Stream = typename Engine::Stream;

    Ticket() noexcept = default;
    Ticket(Ticket&& other) noexcept : engine_{std::exchange(other.engine_, nullptr)}, id_{other.id_} {}
    Ticket& operator=(Ticket&& other) noexcept {
        if (this != &other) {
            drop();
            engine_ = std::exchange(other.engine_, nullptr);
            id_ = other.id_;
        }
        return *this;
    }
    ~Ticket() { drop(); }

    void drop() noexcept {
        if (engine_ != nullptr) { std::exchange(engine_, nullptr)->end_lease(id_); }
    }
    [[nodiscard]] explicit operator bool() const noexcept { return engine_ != nullptr; }

    /// The lease on a stream, by default the pass's own. The ticket is spent, also on failure.
    [[nodiscard]] Result<Lease<Engine>> try_lease() {
        RESIDENCY_ASSERT(engine_ != nullptr, "the ticket is spent");
        return try_lease(engine_->pass_stream());
    }
    [[nodiscard]] Result<Lease<Engine>> try_lease(Stream stream) {
        RESIDENCY_ASSERT(engine_ != nullptr, "the ticket is spent");
        Lease<Engine> lease{std::exchange(engine_, nullptr), id_};
        if (auto waits = lease.try_use_on(stream); !waits) { return waits.error(); }
        return lease;
    }
#if RESIDENCY_EXCEPTIONS
    [[nodiscard]] Lease<Engine> lease() { return unwrap(try_lease()); }
    [[nodiscard]] Lease<Engine> lease(Stream stream) { return unwrap(try_lease(stream)); }
#endif

private:
    template <class E>
    friend class Pass;
    Ticket(Engine* engine, core::LeaseId id) noexcept : engine_{engine}, id_{id} {}

    Engine* engine_ = nullptr;
    core::LeaseId id_;
};

}}  // namespace residency::RESIDENCY_ABI
