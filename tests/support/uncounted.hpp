// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace test {

inline thread_local unsigned uncounted_depth = 0;

/// What this thread allocates meanwhile is not counted by allocations.hpp.
class Uncounted {
public:
    Uncounted() noexcept { ++uncounted_depth; }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;
    ~Uncounted() { --uncounted_depth; }
};

}  // namespace test
