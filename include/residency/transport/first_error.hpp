// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// The first error that any of several threads reported; it stays. Thread safe.
class FirstError {
public:
    void set(const Error& error) {
        const std::lock_guard lock{mutex_};
        if (!error_) { error_ = error; }
        is_set_.store(true, std::memory_order_release);
    }
    [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
    [[nodiscard]] Status status() const {
        if (!is_set()) { return {}; }
        const std::lock_guard lock{mutex_};
        return *error_;
    }

private:
    mutable std::mutex mutex_;
    std::optional<Error> error_;  // under mutex_
    std::atomic<bool> is_set_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::transport
