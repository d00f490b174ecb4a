// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/planned/copy_cursor.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE CopyCursor::CopyCursor(const plan::Plan& plan)
    : calls_{plan.calls().size()}, cut_{plan.cut()}, is_cyclic_{plan.is_cyclic()} {}

RESIDENCY_INLINE bool CopyCursor::may_enqueue() const noexcept {
    if (calls_ == 0) { return false; }
    return is_capturing_ ? next_ < end_of_capture() : is_cyclic_ || pass_of_next() < begun_;
}

RESIDENCY_INLINE bool CopyCursor::begin_pass() noexcept {
    if (is_cyclic_) { return false; }
    begun_ = pass_ + 1;
    if (pass_ == 0) { return false; }
    next_ = pass_ * calls_;
    verify_until_ = next_ + calls_;
    return true;
}

RESIDENCY_INLINE void CopyCursor::end_pass() noexcept {
    ++pass_;
    begun_ = 0;
}

RESIDENCY_INLINE bool CopyCursor::skip_to_pass() noexcept {
    if (next_ >= pass_ * calls_) { return false; }
    next_ = pass_ * calls_;
    return true;
}

RESIDENCY_INLINE void CopyCursor::reach_cut() noexcept {
    verify_until_ = 0;
    next_ = pass_ * calls_ + cut_;
}

RESIDENCY_INLINE void CopyCursor::begin_capture() noexcept {
    is_capturing_ = true;
    captured_pass_ = pass_;
}

RESIDENCY_INLINE void CopyCursor::advance_by_graph() noexcept {
    ++pass_;
    next_ = pass_ * calls_ + cut_;
}

}}}  // namespace residency::RESIDENCY_ABI::core
