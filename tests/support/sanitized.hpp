// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>

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

/// A number from the environment, or the usual one.
inline std::uint64_t number_from(const char* name, std::uint64_t usual) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}
/// How many random cases run: RESIDENCY_MODEL_CASES, or `usual`, of which a sanitizer runs fewer.
inline std::uint64_t cases_each(std::uint64_t usual) {
    return number_from("RESIDENCY_MODEL_CASES", random_cases(usual));
}
/// The seed of the first one: RESIDENCY_MODEL_SEED, or `usual`.
inline std::uint64_t first_seed(std::uint64_t usual = 1) { return number_from("RESIDENCY_MODEL_SEED", usual); }

}  // namespace support
