// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace support {

/// Whether a sanitizer keeps memory of its own, and takes its time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif
#else
constexpr bool is_sanitized = false;
#endif

/// How many random cases a test has: all of them, or a quarter under a sanitizer, whose findings hardly depend on their number.
constexpr std::uint64_t random_cases(std::uint64_t all) { return is_sanitized ? all / 4 : all; }

}  // namespace support
