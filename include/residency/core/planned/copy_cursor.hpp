// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Which call of a plan is enqueued next. Calls are numbered across passes, pass p has the calls [p · n, (p + 1) · n), and they are
/// enqueued in this order.
///
/// Calls of a cyclic plan may be enqueued before their pass begins. A one-shot plan starts again with each pass, and its calls are
/// enqueued after their pass has begun. A captured graph holds calls [cut, n) of its pass and [0, cut) of the next one.
class CopyCursor {
public:
    CopyCursor() = default;
    explicit CopyCursor(const plan::Plan& plan);

    [[nodiscard]] std::uint64_t calls_per_pass() const noexcept { return calls_; }
    /// The number of passes that have ended, hence the number of the current or next pass.
    [[nodiscard]] std::uint64_t pass() const noexcept { return pass_; }
    /// The call to be enqueued next.
    [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
    /// The index of that call in the plan. Precondition: the plan has calls.
    [[nodiscard]] std::uint32_t next_in_plan() const noexcept { return static_cast<std::uint32_t>(next_ % calls_); }
    /// The pass of that call. Precondition: the plan has calls.
    [[nodiscard]] std::uint64_t pass_of_next() const noexcept { return next_ / calls_; }
    /// Whether the first `calls` calls of the current pass are enqueued.
    [[nodiscard]] bool has_enqueued(std::uint64_t calls) const noexcept { return next_ >= pass_ * calls_ + calls; }
    /// Whether the next call may be enqueued already: its pass has begun, or the plan is cyclic. In a capture: the graph holds the call.
    [[nodiscard]] bool may_enqueue() const noexcept;
    /// Calls before this one are certain to come.
    [[nodiscard]] std::uint64_t known_end() const noexcept { return is_cyclic_ ? next_ + calls_ : begun_ * calls_; }
    /// Whether residents may be brought before the steps that read them: all calls of the first pass are enqueued, so that none of them
    /// is delayed, and the pass of a one-shot plan has begun.
    [[nodiscard]] bool may_bring_rest() const noexcept { return next_ >= calls_ && (is_cyclic_ || pass_ < begun_); }
    /// The pass whose calls need not wait for steps of the pass before it: pass 0 has none before it. In a capture it is the captured
    /// pass, since a graph as a whole follows all work before it.
    [[nodiscard]] std::uint64_t first_pass() const noexcept { return is_capturing_ ? captured_pass_ : 0; }

    /// The next call was enqueued.
    void advance() noexcept { ++next_; }
    /// True: a one-shot plan starts again, on memory that another pass has used.
    bool begin_pass() noexcept;
    void end_pass() noexcept;
    /// Makes `call`, which was enqueued in part, the next one. The calls after it follow again.
    void go_back_to(std::uint64_t call) noexcept { next_ = call; }
    /// For a cyclic plan, after end_pass(): skips calls of ended passes that were not enqueued. True: there were some.
    bool skip_to_pass() noexcept;

    /// Whether the next call must look at what memory holds, instead of relying on the calls before it.
    [[nodiscard]] bool must_verify() const noexcept { return next_ < verify_until_; }
    /// Calls before this one must verify.
    void verify_before(std::uint64_t call) noexcept { verify_until_ = (std::max)(verify_until_, call); }
    /// The next n calls must verify, so that each chunk of the ring is verified once. So must all calls of the current pass.
    void verify_a_pass() noexcept { verify_before((std::max)(next_ + calls_, (pass_ + 1) * calls_)); }

    /// The calls before the cut of the current pass are enqueued, and memory holds what the plan assumes there.
    void reach_cut() noexcept;
    /// A capture of the current pass begins. It ends by assignment of a copy of the cursor that was made before.
    void begin_capture() noexcept;
    [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }
    /// Whether every call that the graph must hold is enqueued.
    [[nodiscard]] bool is_capture_whole() const noexcept { return next_ == (calls_ > 0 ? end_of_capture() : 0); }
    /// A graph of one pass was enqueued.
    void advance_by_graph() noexcept;

private:
    [[nodiscard]] std::uint64_t end_of_capture() const noexcept { return (captured_pass_ + 1) * calls_ + cut_; }

    std::uint64_t calls_ = 0;  // n: calls per pass
    std::uint64_t cut_ = 0;    // calls of the next pass in a graph
    bool is_cyclic_ = true;
    std::uint64_t pass_ = 0;
    std::uint64_t begun_ = 0;  // one-shot: the number of the current pass plus 1; 0 between passes
    std::uint64_t next_ = 0;
    std::uint64_t verify_until_ = 0;  // a call, numbered across passes
    bool is_capturing_ = false;
    std::uint64_t captured_pass_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/planned/impl/copy_cursor.ipp"
#endif
