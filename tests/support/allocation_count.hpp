// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

// What allocations.hpp counts, for every source file of its program.

namespace test {

inline std::atomic<std::uint64_t> allocation_count{0};
inline std::uint64_t allocations() noexcept { return allocation_count.load(std::memory_order_relaxed); }
/// Of this thread.
inline thread_local std::uint64_t allocation_count_here = 0;
inline std::uint64_t allocations_here() noexcept { return allocation_count_here; }

/// What is allocated now, in all threads.
inline std::atomic<std::int64_t> live_allocation_count{0}, live_byte_count{0};
inline std::uint64_t live_allocations() noexcept {
    return static_cast<std::uint64_t>(live_allocation_count.load(std::memory_order_relaxed));
}
inline std::uint64_t live_bytes() noexcept {
    return static_cast<std::uint64_t>(live_byte_count.load(std::memory_order_relaxed));
}

inline thread_local unsigned uncounted_depth = 0;

/// What this thread allocates meanwhile is not counted.
class Uncounted {
public:
    Uncounted() noexcept { ++uncounted_depth; }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;
    ~Uncounted() { --uncounted_depth; }
};

}  // namespace test
