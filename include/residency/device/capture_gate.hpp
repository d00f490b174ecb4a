// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Keeps captures of one device apart from the calls of other threads that would harm them (D6): at no time are there both a capture
/// and such a call. Captures may overlap, and so may calls. A thread that captures does not wait for itself. A capture is in the gates of
/// the device's peers, too. That cannot deadlock, in whatever order it enters them: captures do not wait for each other, and a call that
/// is under way waits for no gate. Thread safe.
class CaptureGate {
public:
    /// Blocks while other threads are in such calls, of this device or of its peers. Called before a capture begins.
    void enter();
    /// Called after a capture has ended, or has failed to begin. `owner`: the thread that entered; if none did, nothing happens.
    void leave(std::thread::id owner = std::this_thread::get_id()) noexcept;
    /// Captures that begin from now on are in the gate of a peer, too. Blocks while other threads capture. False: this thread captures.
    [[nodiscard]] bool add_peer(const std::shared_ptr<CaptureGate>& peer);
    /// Whether any thread captures.
    [[nodiscard]] bool is_capturing() const noexcept { return count_.load(std::memory_order_relaxed) > 0; }

    /// Lives as long as a call that would harm captures.
    class Call {
    public:
        /// Blocks while other threads capture.
        explicit Call(CaptureGate& gate);
        Call(const Call&) = delete;
        Call& operator=(const Call&) = delete;
        ~Call();
        /// Whether this thread captures: the call must not be made then.
        [[nodiscard]] bool is_refused() const noexcept { return is_refused_; }

    private:
        CaptureGate& gate_;
        bool is_refused_ = false;
    };

private:
    void enter_alone();
    void leave_alone(std::thread::id owner) noexcept;
    [[nodiscard]] bool captures(std::thread::id thread) const noexcept {
        return std::ranges::find(capturing_, thread) != capturing_.end();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::thread::id> capturing_;         // the thread of each capture; under mutex_
    std::size_t calls_ = 0;                          // under way; under mutex_
    std::atomic<std::size_t> count_{0};              // the size of capturing_, to be read without mutex_
    std::vector<std::weak_ptr<CaptureGate>> peers_;  // changed under mutex_ while nobody captures
};

inline void CaptureGate::enter() {
    enter_alone();
    for (const auto& each : peers_) {
        if (const auto peer = each.lock()) { peer->enter_alone(); }
    }
}

inline void CaptureGate::leave(std::thread::id owner) noexcept {
    {
        const std::lock_guard lock{mutex_};
        if (!captures(owner)) { return; }
    }
    for (const auto& each : peers_) {
        if (const auto peer = each.lock()) { peer->leave_alone(owner); }
    }
    leave_alone(owner);  // last: until then peers_ stays
}

inline bool CaptureGate::add_peer(const std::shared_ptr<CaptureGate>& peer) {
    const Call call{*this};
    if (call.is_refused()) { return false; }
    const std::lock_guard lock{mutex_};
    std::erase_if(peers_, [&](const auto& each) { return each.expired() || each.lock() == peer; });
    peers_.push_back(peer);
    return true;
}

inline void CaptureGate::enter_alone() {
    std::unique_lock lock{mutex_};
    const auto self = std::this_thread::get_id();
    changed_.wait(lock, [&] { return calls_ == 0 || captures(self); });
    capturing_.push_back(self);
    count_.store(capturing_.size(), std::memory_order_relaxed);
}

inline void CaptureGate::leave_alone(std::thread::id owner) noexcept {
    const std::lock_guard lock{mutex_};
    const auto own = std::ranges::find(capturing_, owner);
    if (own == capturing_.end()) { return; }
    capturing_.erase(own);
    count_.store(capturing_.size(), std::memory_order_relaxed);
    changed_.notify_all();
}

inline CaptureGate::Call::Call(CaptureGate& gate) : gate_{gate} {
    std::unique_lock lock{gate_.mutex_};
    is_refused_ = gate_.captures(std::this_thread::get_id());
    if (is_refused_) { return; }
    gate_.changed_.wait(lock, [&] { return gate_.capturing_.empty(); });
    ++gate_.calls_;
}

inline CaptureGate::Call::~Call() {
    if (is_refused_) { return; }
    const std::lock_guard lock{gate_.mutex_};
    --gate_.calls_;
    gate_.changed_.notify_all();
}

}}  // namespace residency::RESIDENCY_ABI
