// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>

#include "tests/attack/subject.hpp"

namespace attack {

/// What goes wrong in a case.
enum class Mode : std::uint8_t {
    calm,     ///< nothing
    faults,   ///< calls of the device fail, several at once, and change nothing (D10)
    lies,     ///< copies, records and waits do their work and say that they failed
    lost,     ///< the device is lost for good, or a neighbour
    sources,  ///< files cannot be read, or are truncated
};
inline constexpr std::array<std::string_view, 5> mode_names{"calm", "faults", "lies", "lost", "sources"};

/// What all cases did: a run that did none of something proves nothing about it.
struct Tally {
    std::atomic<std::uint64_t> cases = 0, operations = 0, acquired = 0, refused = 0, faults = 0, kernels = 0,
                               captures = 0, launches = 0, budgets = 0, constructed = 0, not_constructed = 0,
                               recovered = 0, lost = 0, refreshed = 0, written = 0, wakes = 0;
};
[[nodiscard]] Tally& tally();

/// Operations of a program that are left out.
using Skipped = std::set<std::uint64_t>;

/// Where the program is: failed() tells. Texts are kept.
void now_at(std::uint64_t seed, Mode mode);
void now_at(std::uint64_t operation);  // no_operation: before or after all of them
inline constexpr std::uint64_t no_operation = UINT64_MAX;
void now_at(std::string_view what, std::string_view kind = {});
/// From now on every operation is printed.
void trace_operations();

/// A random program on one to three Residencies of random kinds that share a device and perhaps a budget, in which some take turns, with
/// neighbours that lend their links, and beside experts that the device chooses. Ends in failed() if a kernel
/// reads wrong bytes, a budget is exceeded, the checker reports something, a call fails without a reason, something is left behind, or
/// a Residency does not work any more once the device does.
void run_case(std::span<const Kind> kinds, std::uint64_t seed, Mode mode, const Skipped& skipped = {});
/// `threads` threads, each with a Residency of its own, that share a device and a budget with a caller's own memory.
void run_threads(std::span<const Kind> kinds, std::uint64_t seed, unsigned threads);

/// So many passes of one composition. Ends in failed() if a kernel reads wrong bytes, or if more lives on the host or the device after them
/// in the second half of them than in the first.
void run_soak(const Kind& kind, std::uint64_t seed, std::uint64_t passes);

}  // namespace attack
