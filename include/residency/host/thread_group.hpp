// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "residency/error.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace host {

/// Threads that are joined together, in the destructor at the latest. A thread that cannot be started is an error, not an
/// exception.
class ThreadGroup {
public:
    ThreadGroup() = default;
    ThreadGroup(const ThreadGroup&) = delete;
    ThreadGroup& operator=(const ThreadGroup&) = delete;
    ~ThreadGroup() { join(); }

    /// Runs `work()` in a new thread. Error out_of_memory: the system gives no thread.
    template <class Work>
    [[nodiscard]] Status try_start(Work work) {
        threads_.reserve(threads_.size() + 1);
        auto held = std::make_unique<Work>(std::move(work));
        pthread_t thread;
        if (const int code = pthread_create(&thread, nullptr, &run<Work>, held.get()); code != 0) {
            return Error{ErrorKind::out_of_memory, "a thread cannot be started (" +
                                                       std::generic_category().message(code) +
                                                       "): raise the limit of threads or processes, or ask for fewer"};
        }
        static_cast<void>(held.release());
        threads_.push_back(thread);
        return {};
    }
    /// Starts up to `count` threads. Error out_of_memory: not even one could be started.
    template <class Work>
    [[nodiscard]] Status try_start_some(std::size_t count, const Work& work) {
        for (std::size_t i = 0; i < count; ++i) {
            if (Status started = try_start(work); !started) { return i > 0 ? Status{} : std::move(started); }
        }
        return {};
    }
    /// Threads that were started.
    [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }
    /// Blocks until all of them have ended.
    void join() noexcept {
        for (const pthread_t thread : threads_) { pthread_join(thread, nullptr); }
        threads_.clear();
    }

private:
    template <class Work>
    static void* run(void* work) {
        const std::unique_ptr<Work> held{static_cast<Work*>(work)};
        (*held)();
        return nullptr;
    }

    std::vector<pthread_t> threads_;
};

namespace detail {

/// Threads that read or check weights; 0: as many as the machine has, at most 8.
[[nodiscard]] inline unsigned threads_of(unsigned asked) noexcept {
    return asked != 0 ? asked : std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
}

}  // namespace detail

}}}  // namespace residency::RESIDENCY_ABI::host
