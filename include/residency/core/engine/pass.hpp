// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>

#include "residency/core/engine/lease.hpp"
#include "residency/core/engine/session.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// What a pass can acquire: a step of the schedule, a range of steps, one weight, or weights that must be on the device together.
template <class T>
concept Acquirable = std::same_as<T, Schedule::Step> || std::same_as<T, StepRange> || std::same_as<T, WeightId> ||
                     std::convertible_to<const T&, std::span<const WeightId>>;

/// One execution of the schedule on a stream, such as one token. At most one is open per Residency. Its end makes the stream wait for the
/// other streams that took part. Only try_wait() blocks the host.
///
/// Errors of acquire and request: invalid_argument (the catalog has no such id, the schedule no such steps), budget (open leases leave
/// no room, or a range of steps is too long; the error has the numbers, and names the steps that would fit), divergence (strict mode), unsupported (the stream is being captured), or the device's own. After any of them the pass can
/// continue, and no lease was opened.
template <Device D>
class [[nodiscard]] Pass {
public:
    using Stream = typename D::Stream;  ///< of the device

    Pass() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    Pass(Pass&& other) noexcept : session_{std::exchange(other.session_, nullptr)} {}
    Pass& operator=(Pass&& other) noexcept {
        if (this != &other) {
            static_cast<void>(try_end().has_value());
            session_ = std::exchange(other.session_, nullptr);
        }
        return *this;
    }
    /// @}
    ~Pass() { static_cast<void>(try_end().has_value()); }

    /// Ends the pass; leases may outlive it. A failure is also kept: Residency::failure().
    [[nodiscard]] Status try_end() {
        if (session_ == nullptr) { return {}; }
        return std::exchange(session_, nullptr)->end_pass();
    }

    /// Blocks until the pass's stream has done its work so far. Unlike synchronize(), it lets hinted prefetches continue meanwhile, for
    /// which the host polls the device. For programs that have to read what a router chose before they can acquire it. Does not wait for
    /// other streams of the pass. Errors: wrong_state (the pass has ended), unsupported (it, or its stream, is captured), or the device's
    /// own; after any of them the pass can continue.
    [[nodiscard]] Status try_wait() {
        if (session_ == nullptr) { return ended(); }
        return session_->report_if_failed(session_->wait_in_pass());
    }

    /// A lease on weights, for a stream, by default the pass's own. The stream waits for copies that are not complete; the host does not.
    template <Acquirable What>
    [[nodiscard]] Result<Lease<D>> try_acquire(const What& what) {
        if (session_ == nullptr) { return ended(); }
        return lease(ask(what, session_->pass_stream()));
    }
    /// As above, on another stream, or for a list of weights.
    /// @{
    template <Acquirable What>
    [[nodiscard]] Result<Lease<D>> try_acquire(const What& what, Stream stream) {
        return lease(ask(what, stream));
    }
    [[nodiscard]] Result<Lease<D>> try_acquire(std::initializer_list<WeightId> weights) {
        return try_acquire(std::span{weights.begin(), weights.size()});
    }
    [[nodiscard]] Result<Lease<D>> try_acquire(std::initializer_list<WeightId> weights, Stream stream) {
        return try_acquire(std::span{weights.begin(), weights.size()}, stream);
    }
    /// @}
    /// One lease on all that steps [first, last) of the schedule read, for a kernel that runs them in one launch: Residency::ranges().
    [[nodiscard]] Result<Lease<D>> try_acquire(std::uint32_t first, std::uint32_t last) {
        return try_acquire(StepRange{first, last});
    }
    /// Starts to fetch weights now; the ticket becomes a lease later, on any stream.
    template <Acquirable What>
    [[nodiscard]] Result<Ticket<D>> try_request(const What& what) {
        auto id = ask(what, std::nullopt);
        if (!id) { return failed(id.error()); }
        return Ticket<D>{session_, *id};
    }
    /// As above, for a list of weights.
    [[nodiscard]] Result<Ticket<D>> try_request(std::initializer_list<WeightId> weights) {
        return try_request(std::span{weights.begin(), weights.size()});
    }

#if RESIDENCY_EXCEPTIONS
    /// As the form with try_, but throws Exception.
    /// @{
    void end() { unwrap(try_end()); }
    void wait() { unwrap(try_wait()); }
    template <Acquirable What>
    [[nodiscard]] Lease<D> acquire(const What& what) {
        return unwrap(try_acquire(what));
    }
    template <Acquirable What>
    [[nodiscard]] Lease<D> acquire(const What& what, Stream stream) {
        return unwrap(try_acquire(what, stream));
    }
    [[nodiscard]] Lease<D> acquire(std::initializer_list<WeightId> weights) { return unwrap(try_acquire(weights)); }
    [[nodiscard]] Lease<D> acquire(std::initializer_list<WeightId> weights, Stream stream) {
        return unwrap(try_acquire(weights, stream));
    }
    [[nodiscard]] Lease<D> acquire(std::uint32_t first, std::uint32_t last) { return unwrap(try_acquire(first, last)); }
    template <Acquirable What>
    [[nodiscard]] Ticket<D> request(const What& what) {
        return unwrap(try_request(what));
    }
    [[nodiscard]] Ticket<D> request(std::initializer_list<WeightId> weights) { return unwrap(try_request(weights)); }
    /// @}
#endif

private:
    template <class, class, class, class>
    friend class Residency;
    explicit Pass(core::Session<D>* session) noexcept : session_{session} {}

    [[nodiscard]] RESIDENCY_DETAIL_COLD static Error ended() { return {ErrorKind::wrong_state, "the pass has ended"}; }
    template <class What>
    [[nodiscard]] Result<core::LeaseId> ask(const What& what, std::optional<Stream> stream) {
        if (session_ == nullptr) { return ended(); }
        core::LeaseKeeper<D>& leases = session_->leases();
        if constexpr (std::same_as<What, WeightId>) {
            return leases.acquire_weights(std::span{&what, 1}, stream);
        } else if constexpr (std::same_as<What, StepRange>) {
            return leases.acquire_range(what, stream);
        } else if constexpr (std::same_as<What, Schedule::Step>) {
            const Schedule& own = session_->schedule();
            // A step of another schedule counts by what it reads, unless this schedule has the same step at that position.
            if (what.position < own.size() && (own[what.position].weights.data() == what.weights.data() ||
                                               std::ranges::equal(own[what.position].weights, what.weights))) {
                return leases.acquire_step(what.position, stream);
            }
            return leases.acquire_weights(what.weights, stream);
        } else {
            return leases.acquire_weights(std::span<const WeightId>{what}, stream);
        }
    }
    [[nodiscard]] RESIDENCY_DETAIL_COLD Error failed(const Error& error) const {
        return session_ == nullptr ? error : session_->report(error);
    }
    [[nodiscard]] Result<Lease<D>> lease(Result<core::LeaseId> id) {
        if (!id) { return failed(id.error()); }
        return Lease<D>{session_, *id};
    }

    core::Session<D>* session_ = nullptr;
};

}}  // namespace residency::RESIDENCY_ABI
