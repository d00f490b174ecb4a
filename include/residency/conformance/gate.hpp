// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "residency/device/device.hpp"

namespace residency::conformance::detail {

/// Holds a stream back until open(), or until its patience ends: a call that waits for the stream's work, or for what that work frees,
/// does not return before.
template <FlagDevice D>
class Gate {
public:
    Gate(D& device, typename D::Stream stream, std::chrono::milliseconds patience) : device_{device} {
        auto flag = device.create_flag();
        REQUIRE(flag.has_value());
        flag_ = *flag;
        REQUIRE(device.wait_flag(stream, flag_, 1).has_value());
        watch_ = std::thread{[this, patience] {
            std::unique_lock lock{mutex_};
            was_late_ = !changed_.wait_for(lock, patience, [&] { return is_opened_; });
            static_cast<void>(device_.raise_flag(flag_, 1).has_value());
        }};
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() {
        static_cast<void>(open());
        static_cast<void>(device_.synchronize().has_value());
        static_cast<void>(device_.destroy_flag(flag_).has_value());
    }

    /// Lets the stream go on. False: patience ended before, and it went on by itself.
    [[nodiscard]] bool open() {
        if (watch_.joinable()) {
            {
                const std::lock_guard lock{mutex_};
                is_opened_ = true;
            }
            changed_.notify_all();
            watch_.join();
        }
        return !was_late_;
    }

private:
    D& device_;
    typename D::Flag flag_{};
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_opened_ = false, was_late_ = false;
    std::thread watch_;
};

}  // namespace residency::conformance::detail
