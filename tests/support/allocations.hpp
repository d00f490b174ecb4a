// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "tests/support/allocation_count.hpp"

// Counts what a test program allocates. Include in one source file of a program: it replaces the global operator new. ThreadSanitizer has
// one of its own, which cannot be replaced: nothing is counted with it.
#if defined(__SANITIZE_THREAD__)
#define RESIDENCY_TEST_KEEPS_NEW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RESIDENCY_TEST_KEEPS_NEW 1
#endif
#endif

namespace test {

inline void* count_and_allocate(std::size_t bytes) {
    if (uncounted_depth == 0) {
        allocation_count.fetch_add(1, std::memory_order_relaxed);
        ++allocation_count_here;
    }
    void* const at = std::malloc(bytes != 0 ? bytes : 1);
    if (at == nullptr) { throw std::bad_alloc{}; }
    live_allocation_count.fetch_add(1, std::memory_order_relaxed);
    live_byte_count.fetch_add(static_cast<std::int64_t>(::malloc_usable_size(at)), std::memory_order_relaxed);
    return at;
}
inline void count_and_free(void* at) noexcept {
    if (at == nullptr) { return; }
    live_allocation_count.fetch_sub(1, std::memory_order_relaxed);
    live_byte_count.fetch_sub(static_cast<std::int64_t>(::malloc_usable_size(at)), std::memory_order_relaxed);
    std::free(at);
}

}  // namespace test

#ifndef RESIDENCY_TEST_KEEPS_NEW
[[gnu::noinline]] void* operator new(std::size_t bytes) { return test::count_and_allocate(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return test::count_and_allocate(bytes); }
[[gnu::noinline]] void operator delete(void* at) noexcept { test::count_and_free(at); }
[[gnu::noinline]] void operator delete[](void* at) noexcept { test::count_and_free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { test::count_and_free(at); }
[[gnu::noinline]] void operator delete[](void* at, std::size_t) noexcept { test::count_and_free(at); }
#endif
