// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/host/thread_group.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>

#include "tests/support/sanitized.hpp"

namespace thread_group_test {

using residency::ErrorKind;
using residency::host::ThreadGroup;

TEST_CASE("threads run what they were given, and are joined together") {
    std::atomic<int> sum{0};
    {
        ThreadGroup threads;
        for (int i = 1; i <= 5; ++i) {
            REQUIRE(threads.try_start([&sum, i = std::make_unique<int>(i)] { sum += *i; }));
        }
        REQUIRE(threads.try_start_some(3, [&sum] { sum += 100; }));
        CHECK(threads.size() == 8);
        threads.join();
        CHECK(sum == 315);
        CHECK(threads.size() == 0);
        REQUIRE(threads.try_start([&sum] { ++sum; }));
    }
    CHECK(sum == 316);
    ThreadGroup none;
    CHECK(none.try_start_some(0, [] {}));
}

TEST_CASE("a thread that the system does not give is an error, and those that there are do the work") {
    if (support::is_sanitized) {
        MESSAGE("SKIPPED: a sanitizer needs more address space than this test leaves");
        return;
    }
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    std::uint64_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    rlimit few = before;
    few.rlim_cur = pages * 4096 + (std::uint64_t{40} << 20);  // a stack of 8 MiB each
    std::atomic<bool> go{false};
    std::atomic<std::size_t> ran{0};
    const auto work = [&] {
        while (!go) {}
        ++ran;
    };
    ThreadGroup threads;
    REQUIRE(setrlimit(RLIMIT_AS, &few) == 0);
    const auto some = threads.try_start_some(64, work);
    const auto none = threads.try_start_some(64, work);
    const auto one = threads.try_start(work);
    REQUIRE(setrlimit(RLIMIT_AS, &before) == 0);
    go = true;
    const std::size_t started = threads.size();
    threads.join();
    CHECK(some);
    CHECK(started > 0);
    CHECK(started < 64);
    CHECK(ran == started);
    CHECK_FALSE(none);
    REQUIRE_FALSE(one);
    CHECK(one.error().kind() == ErrorKind::out_of_memory);
}

}  // namespace thread_group_test
