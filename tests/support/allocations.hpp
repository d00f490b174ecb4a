// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/support/allocation_count.hpp"

// Counts what a test program allocates. Include in one source file of a program: it replaces the global operator new.

namespace test {

inline void* count_and_allocate(std::size_t bytes) {
    if (uncounted_depth == 0) {
        allocation_count.fetch_add(1, std::memory_order_relaxed);
        ++allocation_count_here;
    }
    if (void* at = std::malloc(bytes != 0 ? bytes : 1)) { return at; }
    throw std::bad_alloc{};
}

}  // namespace test

[[gnu::noinline]] void* operator new(std::size_t bytes) { return test::count_and_allocate(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return test::count_and_allocate(bytes); }
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete[](void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete[](void* at, std::size_t) noexcept { std::free(at); }
