// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/error.hpp"

namespace lab {

/// A line on the terminal that says how much is done; nothing where the standard error stream is not a terminal.
class Progress {
public:
    Progress(std::string what, std::uint64_t total)
        : what_{std::move(what)}, total_{std::max<std::uint64_t>(total, 1)} {}
    ~Progress() {
        if (is_shown_) { std::fprintf(stderr, "\r\033[K"); }
    }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    /// From any thread.
    void add(std::uint64_t more) {
        const std::uint64_t done = done_.fetch_add(more, std::memory_order_relaxed) + more;
        if (!is_terminal_) { return; }
        const std::unique_lock lock{mutex_, std::try_to_lock};
        const auto now = std::chrono::steady_clock::now();
        if (!lock || now - shown_at_ < std::chrono::milliseconds{50}) { return; }
        shown_at_ = now;
        is_shown_ = true;
        const auto percent = static_cast<unsigned>(100 * std::min(done, total_) / total_);
        const std::string bar(percent * 40 / 100, '#');
        std::fprintf(stderr, "\r%s [%-40s] %3u %%", what_.c_str(), bar.c_str(), percent);
    }

private:
    std::string what_;
    std::uint64_t total_;
    std::atomic<std::uint64_t> done_{0};
    std::mutex mutex_;
    std::chrono::steady_clock::time_point shown_at_{};
    bool is_terminal_ = isatty(2) != 0;
    bool is_shown_ = false;
};

/// More than any machine has.
inline constexpr unsigned most_threads = 4096;

/// Calls job(0) … job(count − 1) on several threads; returns when all are done.
inline void for_each_in_parallel(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& job) {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < count; i = next++) { job(i); }
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < std::min<std::size_t>(std::max(threads, 1U), count); ++i) { others.emplace_back(work); }
    work();
    for (std::thread& each : others) { each.join(); }
}

/// The same for jobs that may fail: the first failure, in the order of their numbers. All of them run.
inline std::optional<residency::Error> first_failure_in_parallel(
    std::size_t count, unsigned threads, const std::function<std::optional<residency::Error>(std::size_t)>& job) {
    std::vector<std::optional<residency::Error>> failures(count);
    for_each_in_parallel(count, threads, [&](std::size_t i) { failures[i] = job(i); });
    const auto first =
        std::find_if(failures.begin(), failures.end(), [](const auto& each) { return each.has_value(); });
    return first == failures.end() ? std::nullopt : *first;
}

}  // namespace lab
