// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Why a stream had to wait for bytes.
enum class StallCause : std::uint8_t {
    link,           ///< the link was busy until they came: its rate is the limit
    room,           ///< the link had stood idle, until memory was free for the copy
    issued_late,    ///< the link had stood idle, with no copy enqueued: nobody asked sooner, or the host was late
    declared_time,  ///< steps before took less time than the plan assumes, so that its copies come too late
    evicted,        ///< a demand miss of what had been on the device before: a capacity miss
    unpredicted,    ///< a demand miss that nothing announced: a cold miss, or an access outside the schedule
};
inline constexpr std::size_t stall_causes = 6;  ///< how many there are
/// The name of the enumerator.
[[nodiscard]] RESIDENCY_INLINE std::string_view to_string(StallCause cause) noexcept;

/// The cause of a stall that took `time`, no demand miss: what has the largest share of it. All times in ns, none below 0.
/// `sooner`: as much less than planned took the steps since the stall before; `idle_room`, `idle_late`: as long stood the link idle between
/// the copies since then, where a copy had to wait for memory, and where none was enqueued. What is left is the link's.
[[nodiscard]] RESIDENCY_INLINE StallCause cause_of_stall(std::chrono::nanoseconds time, std::chrono::nanoseconds sooner,
                                                         std::chrono::nanoseconds idle_room,
                                                         std::chrono::nanoseconds idle_late) noexcept;

/// Times that streams waited, together.
struct StallTime {
    std::uint64_t stalls = 0;         ///< their number
    std::chrono::nanoseconds time{};  ///< the sum of their times

    /// Adds others.
    constexpr StallTime& operator+=(const StallTime& other) noexcept {
        stalls += other.stalls;
        time += other.time;
        return *this;
    }
    /// Whether number and time are the same.
    friend bool operator==(const StallTime&, const StallTime&) = default;
};

/// Times that streams waited, by cause. A stall with several causes counts to the one with the largest share of its time.
struct Stalls {
    std::array<StallTime, stall_causes> by_cause{};  ///< by the number of the enumerator

    /// Those of one cause.
    [[nodiscard]] constexpr const StallTime& operator[](StallCause cause) const noexcept {
        return by_cause[static_cast<std::size_t>(cause)];
    }
    /// Those of one cause.
    [[nodiscard]] constexpr StallTime& operator[](StallCause cause) noexcept {
        return by_cause[static_cast<std::size_t>(cause)];
    }
    /// All of them.
    [[nodiscard]] constexpr StallTime sum() const noexcept {
        StallTime sum;
        for (const StallTime& one : by_cause) { sum += one; }
        return sum;
    }
    /// Whether they are the same for each cause.
    friend bool operator==(const Stalls&, const Stalls&) = default;
};

/// What Options::time_stalls has measured. Captured passes are not measured: a graph has no events that can be timed.
struct StallStatistics {
    Stalls total;                 ///< since construction
    Stalls last_pass;             ///< of the last pass that was timed and is complete
    std::uint64_t passes = 0;     ///< that were timed and are complete
    std::uint64_t not_timed = 0;  ///< waits without a time: too many were outstanding, or the device refused an event
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/core/measure/impl/stalls.ipp"
#endif
