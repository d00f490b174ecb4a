// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "residency/core/measure/event_hook.hpp"

#if RESIDENCY_EXCEPTIONS
#include <exception>
#endif

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE void EventHook::copy_ended(std::span<const transport::Fetch> copies,
                                            const Result<std::uint64_t>& arrival) noexcept {
    tell_copies(EventKind::copy_ended, copies, arrival ? nullptr : &arrival.error());
    if (!arrival || is_muted_ || !handler_) { return; }
    for (const transport::Fetch& copy : copies) { pending_.push({*arrival, copy.storage, copy.bytes}); }
}

RESIDENCY_INLINE void EventHook::tell_copies(EventKind kind, std::span<const transport::Fetch> copies,
                                             const Error* error) noexcept {
    tell({.kind = kind,
          .storage = copies.empty() ? no_storage : copies.front().storage,
          .bytes = transport::bytes_of(copies),
          .copies = copies,
          .error = error});
}

RESIDENCY_INLINE void EventHook::tell(Event event) noexcept {
    if (!handler_ || (is_muted_ && event.kind != EventKind::failed)) { return; }
    event.at = clock_(device_);
    event.pass = pass_;
    event.catalog = catalog_;
    event.schedule = schedule_;
    is_telling_ = true;
#if RESIDENCY_EXCEPTIONS
    std::optional<std::string> thrown;
    try {
        handler_(event);
    } catch (const std::exception& exception) { thrown = exception.what(); } catch (...) {
        thrown = "something that is no std::exception";
    }
    if (thrown) {
        handler_ = nullptr;
        if (!*failure_) {
            *failure_ =
                Error{ErrorKind::cancelled, "the handler of events threw at " + std::string{to_string(event.kind)} +
                                                ", and is not called any more: " + *thrown};
        }
    }
#else
    handler_(event);
#endif
    is_telling_ = false;
}

}}}  // namespace residency::RESIDENCY_ABI::core
