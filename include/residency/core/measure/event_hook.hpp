// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "residency/config.hpp"
#include "residency/core/measure/event.hpp"
#include "residency/core/measure/fifo.hpp"
#include "residency/error.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Tells an event handler what happens, in order, each event with the time, the pass and what the names in it mean. Where a program has no
/// handler there is no hook, and those who would tell something hold a null pointer. While muted it tells failures only.
class EventHook {
public:
    /// The time of the device's clock.
    using Clock = std::chrono::nanoseconds (*)(const void* device);

    /// What the references and pointers name outlives this object. What the handler throws becomes `failure`, unless that is set.
    EventHook(EventHandler handler, const Catalog& catalog, const Schedule& schedule, std::optional<Error>& failure,
              Clock clock, const void* device)
        : handler_{std::move(handler)},
          catalog_{&catalog},
          schedule_{&schedule},
          failure_{&failure},
          clock_{clock},
          device_{device} {
        pending_.reserve(initial_pending);
    }

    /// The handler is being called.
    [[nodiscard]] bool is_telling() const noexcept { return is_telling_; }
    void mute(bool is_muted) noexcept { is_muted_ = is_muted; }
    /// The handler is not called any more.
    void close() noexcept { handler_ = nullptr; }

    /// Completes an event and tells it.
    void tell(Event event) noexcept;
    void tell_copies(EventKind kind, std::span<const transport::Fetch> copies, const Error* error = nullptr) noexcept;
    void pass_began(std::uint64_t pass) noexcept {
        if (is_muted_) { return; }  // it is recorded, and does not run
        pass_ = pass;
        tell({.kind = EventKind::pass_began});
    }
    void graph_launched(std::uint64_t pass, const Counters& counters) noexcept {
        pass_ = pass;
        tell({.kind = EventKind::graph_launched, .counters = &counters});
    }
    /// A lease, or its wait, begins or ends.
    void of_lease(EventKind kind, const AccessPoint& access, std::uint64_t lease, StorageId storage) noexcept {
        tell({.kind = kind, .steps = steps_of(access), .lease = lease, .storage = storage});
    }
    void diverged(const AccessPoint& access, StorageId storage) noexcept {
        tell({.kind = EventKind::diverged, .steps = steps_of(access), .storage = storage});
    }
    void evicted(StorageId storage, std::uint64_t bytes) noexcept {
        tell({.kind = EventKind::evicted, .storage = storage, .bytes = bytes});
    }
    /// A stall was read. `pass`: the one in which it was, which may be over.
    void stalled(std::uint64_t pass, const StepRange& steps, StorageId storage, std::chrono::nanoseconds duration,
                 StallCause cause) noexcept {
        const std::uint64_t now = std::exchange(pass_, pass);
        tell({.kind = EventKind::stalled, .steps = steps, .storage = storage, .duration = duration, .cause = cause});
        pass_ = now;
    }
    /// One error is told once, however many calls return it.
    void failed(const Error& error) noexcept {
        if (last_error_ && &last_error_->message() == &error.message()) { return; }  // copies share their message
        last_error_ = error;
        tell({.kind = EventKind::failed, .error = &error});
    }

    /// `arrival`: the point of the copy stream behind them.
    void copy_ended(std::span<const transport::Fetch> copies, const Result<std::uint64_t>& arrival) noexcept;
    /// Tells what has arrived of the copies so far. Not called while muted.
    template <class HasArrived>
    void tell_arrivals(const HasArrived& has_arrived) noexcept {
        while (!pending_.empty() && has_arrived(pending_.front().arrival)) {
            const Pending next = pending_.front();
            pending_.pop();
            tell({.kind = EventKind::arrived, .storage = next.storage, .bytes = next.bytes});
        }
    }

private:
    static constexpr std::size_t initial_pending = 1024;

    struct Pending {
        std::uint64_t arrival = 0;  ///< a point of the copy stream
        StorageId storage = no_storage;
        std::uint64_t bytes = 0;
    };

    [[nodiscard]] static StepRange steps_of(const AccessPoint& access) noexcept {
        return access.step == AccessPoint::nowhere ? StepRange{Event::no_step, Event::no_step} : access.range();
    }

    EventHandler handler_;
    const Catalog* catalog_;
    const Schedule* schedule_;
    std::optional<Error>* failure_;    // of the session
    std::optional<Error> last_error_;  // that was told
    Clock clock_;
    const void* device_;
    std::uint64_t pass_ = 0;
    bool is_muted_ = false;
    bool is_telling_ = false;
    Fifo<Pending> pending_;  // in the order of the copy stream
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/event_hook.ipp"
#endif
