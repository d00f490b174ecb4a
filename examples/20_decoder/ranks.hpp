// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "residency/error.hpp"

namespace decoder {

/// Where the threads of several GPUs meet that run one model together, a thread each. One that fails lets the others go.
class Ranks {
public:
    explicit Ranks(std::uint32_t count) : shown_(count) {}

    [[nodiscard]] std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(shown_.size()); }
    /// Blocks until every thread has called it. The least of what they gave; none: one has failed.
    [[nodiscard]] std::optional<int> try_least(int mine) {
        std::unique_lock lock{mutex_};
        least_ = (std::min)(least_, mine);
        if (++arrived_ == shown_.size()) {
            arrived_ = 0;
            agreed_ = std::exchange(least_, INT_MAX);
            ++meetings_;
            changed_.notify_all();
        } else {
            changed_.wait(lock, [&, now = meetings_] { return meetings_ != now || has_failed_; });
        }
        return has_failed_ ? std::nullopt : std::optional{agreed_};
    }
    /// The same. What every thread shows, by rank, until it meets the others again; empty where one has failed.
    [[nodiscard]] std::span<const void* const> show(std::uint32_t rank, const void* mine) {
        shown_[rank] = mine;
        return try_least(0) ? std::span<const void* const>{shown_} : std::span<const void* const>{};
    }

    /// Why a thread has failed, and which.
    struct Failure {
        std::exception_ptr why;
        std::uint32_t rank = 0;
    };
    /// No thread waits for this one any more. The first failure is kept.
    void fail(Failure failure) noexcept {
        const std::lock_guard lock{mutex_};
        if (!has_failed_.exchange(true)) { failure_ = std::move(failure); }
        changed_.notify_all();
    }
    [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
    /// Precondition: the threads have ended, and one has failed.
    [[nodiscard]] const Failure& failure() const noexcept { return failure_; }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<const void*> shown_;
    std::size_t arrived_ = 0;
    std::uint64_t meetings_ = 0;
    int least_ = INT_MAX;  ///< of those that have arrived
    int agreed_ = 0;       ///< in the last meeting
    std::atomic<bool> has_failed_{false};
    Failure failure_;
};

/// Which of several GPUs a back end is. By itself it is the only one, and waits for nobody.
class Rank {
public:
    Rank() = default;
    Rank(Ranks& all, std::uint32_t number) : all_{&all}, number_{number} {}

    [[nodiscard]] bool is_alone() const noexcept { return all_ == nullptr; }
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    [[nodiscard]] Ranks& all() const noexcept { return *all_; }
    /// Blocks until all are here; the least of what they gave. Error wrong_state, thrown: another one has failed.
    [[nodiscard]] int least(int mine) const {
        if (is_alone()) { return mine; }
        const auto agreed = all_->try_least(mine);
        if (!agreed) { leave(); }
        return *agreed;
    }
    /// Throws the same.
    void check() const {
        if (!is_alone() && all_->has_failed()) { leave(); }
    }
    void fail(std::exception_ptr why) const noexcept {
        if (!is_alone()) { all_->fail({std::move(why), number_}); }
    }

private:
    [[noreturn]] static void leave() {
        residency::throw_error({residency::ErrorKind::wrong_state, "another GPU that runs the model too has failed"});
    }

    Ranks* all_ = nullptr;
    std::uint32_t number_ = 0;
};

}  // namespace decoder
