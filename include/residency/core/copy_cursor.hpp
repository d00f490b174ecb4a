// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "residency/config.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// How far the calls of a plan are enqueued, numbered across passes, and which pass runs. Calls of a cyclic plan run ahead of it.
///
/// A one-shot plan begins anew with each pass; its calls come once their pass has begun. A graph has calls [cut, calls) of its pass and
/// [0, cut) of the next.
class CopyCursor {
public:
    CopyCursor() = default;
    explicit CopyCursor(const plan::Plan& plan)
        : calls_{plan.calls().size()}, cut_{plan.cut()}, is_cyclic_{plan.is_cyclic()} {}

    [[nodiscard]] std::uint64_t calls_a_pass() const noexcept { return calls_; }
    /// The pass that runs, or is to begin: so many have ended.
    [[nodiscard]] std::uint64_t pass() const noexcept { return pass_; }
    /// The call that is enqueued next.
    [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
    /// Its number in the plan, and the pass that it is of. Precondition: there are calls.
    [[nodiscard]] std::uint32_t next_in_plan() const noexcept { return static_cast<std::uint32_t>(next_ % calls_); }
    [[nodiscard]] std::uint64_t pass_of_next() const noexcept { return next_ / calls_; }
    /// Whether as many calls of the pass are enqueued.
    [[nodiscard]] bool has_enqueued(std::uint64_t calls) const noexcept { return next_ >= pass_ * calls_ + calls; }
    /// Whether the next call is of a pass for which calls come now.
    [[nodiscard]] bool may_enqueue() const noexcept {
        if (calls_ == 0) { return false; }
        return is_capturing_ ? next_ < end_of_capture() : is_cyclic_ || pass_of_next() < begun_;
    }
    /// What is known to come: calls before this one.
    [[nodiscard]] std::uint64_t known_end() const noexcept { return is_cyclic_ ? next_ + calls_ : begun_ * calls_; }
    /// Whether the residents that no call needs may come: after the calls of the first pass, and for a pass that has begun.
    [[nodiscard]] bool may_bring_rest() const noexcept { return next_ >= calls_ && (is_cyclic_ || pass_ < begun_); }
    /// The first pass of which steps are waited for: a graph runs after the one before.
    [[nodiscard]] std::uint64_t first_pass() const noexcept { return is_capturing_ ? captured_pass_ : 0; }

    void advance() noexcept { ++next_; }
    /// Whether the plan begins anew, from what the pass before left.
    bool begin_pass() noexcept {
        if (is_cyclic_) { return false; }
        begun_ = pass_ + 1;
        if (pass_ == 0) { return false; }
        next_ = pass_ * calls_;
        verify_until_ = next_ + calls_;
        return true;
    }
    void end_pass() noexcept {
        ++pass_;
        begun_ = 0;
    }

    /// Whether the next call has to look at what is there.
    [[nodiscard]] bool must_verify() const noexcept { return next_ < verify_until_; }
    void verify_before(std::uint64_t call) noexcept { verify_until_ = (std::max)(verify_until_, call); }
    /// For as many calls as a pass has, so that each chunk of the ring is among what they bring, and to the end of this one.
    void verify_a_pass() noexcept { verify_before((std::max)(next_ + calls_, (pass_ + 1) * calls_)); }

    /// The calls before the cut are enqueued, and all is in its place.
    void reach_cut() noexcept {
        verify_until_ = 0;
        next_ = pass_ * calls_ + cut_;
    }
    void begin_capture() noexcept {
        is_capturing_ = true;
        captured_pass_ = pass_;
    }
    [[nodiscard]] bool is_capturing() const noexcept { return is_capturing_; }
    [[nodiscard]] bool is_capture_whole() const noexcept { return next_ == (calls_ > 0 ? end_of_capture() : 0); }
    void advance_by_graph() noexcept {
        ++pass_;
        next_ = pass_ * calls_ + cut_;
    }

private:
    [[nodiscard]] std::uint64_t end_of_capture() const noexcept { return (captured_pass_ + 1) * calls_ + cut_; }

    std::uint64_t calls_ = 0, cut_ = 0;
    bool is_cyclic_ = true;
    std::uint64_t pass_ = 0;
    std::uint64_t begun_ = 0;  // of a one-shot plan: the pass that runs, plus 1; 0 between passes
    std::uint64_t next_ = 0;
    std::uint64_t verify_until_ = 0;  // a call
    bool is_capturing_ = false;
    std::uint64_t captured_pass_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::core
