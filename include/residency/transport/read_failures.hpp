// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/transport/read_coalescer.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// What several threads could not read since take(): the first error, and every storage that lacks bytes. Thread safe.
class ReadFailures {
public:
    void add(const Error& error, std::span<const StoragePart> parts) {
        const std::lock_guard lock{mutex_};
        if (!error_) { error_ = error; }
        for (const StoragePart& part : parts) { storages_.push_back(part.storage); }
        is_set_.store(true, std::memory_order_release);
    }
    [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
    [[nodiscard]] Status status() const {
        if (!is_set()) { return {}; }
        const std::lock_guard lock{mutex_};
        return error_ ? Status{*error_} : Status{};
    }
    /// Forgets the error, and appends the storages, some of them perhaps twice.
    void take(std::vector<StorageId>& storages) {
        const std::lock_guard lock{mutex_};
        storages.insert(storages.end(), storages_.begin(), storages_.end());
        storages_.clear();
        error_.reset();
        is_set_.store(false, std::memory_order_release);
    }

private:
    mutable std::mutex mutex_;
    std::optional<Error> error_;       // under mutex_
    std::vector<StorageId> storages_;  // the same
    std::atomic<bool> is_set_ = false;
};

}}}  // namespace residency::RESIDENCY_ABI::transport
