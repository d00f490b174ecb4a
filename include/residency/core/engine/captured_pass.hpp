// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

#include "residency/core/engine/session.hpp"
#include "residency/error.hpp"

#if RESIDENCY_EXCEPTIONS
#include <exception>
#endif

namespace residency { inline namespace RESIDENCY_ABI {

/// One pass as a CUDA graph, copies included. It is launched only while the addresses that it holds are valid: after a change of the
/// budget or of the mapping it is stale, and refused. Made by Residency::capture or capture_timed; ends before its Residency does.
template <CapturingDevice D>
class [[nodiscard]] CapturedPass {
public:
    using Stream = typename D::Stream;  ///< of the device

    CapturedPass() noexcept = default;
    /// The source is empty afterwards.
    /// @{
    CapturedPass(CapturedPass&& other) noexcept
        : session_{std::exchange(other.session_, nullptr)}, captured_{other.captured_} {}
    CapturedPass& operator=(CapturedPass&& other) noexcept {
        if (this != &other) {
            destroy();
            session_ = std::exchange(other.session_, nullptr);
            captured_ = other.captured_;
        }
        return *this;
    }
    /// @}
    ~CapturedPass() { destroy(); }

    /// Enqueues one pass on a stream, after everything that this Residency did before. Does not block; one of capture_timed blocks until its
    /// last launch is complete. Errors: stale, wrong_state (a pass is open, none was captured, or it is suspended), unsupported (the stream is
    /// being captured), or the device's own.
    [[nodiscard]] Status try_launch(Stream stream) {
        if (session_ == nullptr) {
            return Error{ErrorKind::wrong_state, "no pass was captured: there is nothing to launch"};
        }
        return session_->report_if_failed(session_->launch(captured_, stream));
    }
#if RESIDENCY_EXCEPTIONS
    /// As try_launch(), but throws Exception.
    void launch(Stream stream) { unwrap(try_launch(stream)); }
#endif
    /// A change of the budget, the schedule or the plan made the graph invalid, a neighbour was lost whose link it uses (transport::Links; a
    /// pass or try_launch() finds that out), or the timing of one of capture_timed has ended: capture again.
    [[nodiscard]] bool is_stale() const noexcept { return session_ == nullptr || session_->is_stale(captured_); }
    /// For a graph of capture_timed: whether further launches tell more about the times of its steps.
    [[nodiscard]] bool is_learning() const noexcept { return session_ != nullptr && session_->is_learning(captured_); }

private:
    template <class, class, class, class>
    friend class Residency;
    CapturedPass(core::Session<D>& session, const core::CapturedGraph<D>& captured) noexcept
        : session_{&session}, captured_{captured} {
        session_->captured_pass_begins();
    }

    void destroy() noexcept {
        if (session_ != nullptr) { std::exchange(session_, nullptr)->captured_pass_ends(captured_); }
    }

    core::Session<D>* session_ = nullptr;
    core::CapturedGraph<D> captured_;
};

namespace detail {

/// Runs a caller's function inside a capture, and keeps what it throws until the capture has ended.
class Attempt {
public:
    template <class Body, class... Arguments>
    [[nodiscard]] Status run(Body& body, Arguments&... arguments) {
#if RESIDENCY_EXCEPTIONS
        try {
            return call(body, arguments...);
        } catch (...) {
            thrown_ = std::current_exception();
            return Error{ErrorKind::cancelled, "the body threw an exception"};
        }
#else
        return call(body, arguments...);
#endif
    }
    void rethrow() const {
#if RESIDENCY_EXCEPTIONS
        if (thrown_) { std::rethrow_exception(thrown_); }
#endif
    }

private:
    template <class Body, class... Arguments>
    [[nodiscard]] static Status call(Body& body, Arguments&... arguments) {
        if constexpr (std::is_void_v<decltype(body(arguments...))>) {
            body(arguments...);
            return {};
        } else {
            return body(arguments...);
        }
    }
#if RESIDENCY_EXCEPTIONS
    std::exception_ptr thrown_;
#endif
};

}  // namespace detail

}}  // namespace residency::RESIDENCY_ABI
