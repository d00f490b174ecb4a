// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "residency/config.hpp"
#include "residency/core/measure/stalls.hpp"
#include "residency/model/access_point.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// A point of a stream, or between two calls of the host.
enum class Point : std::uint8_t {
    pass_begins,   ///< before anything of a pass
    pass_began,    ///< behind everything that its beginning enqueues
    pass_ends,     ///< behind everything that it enqueues on its stream
    lease_comes,   ///< before anything is enqueued for a lease or a ticket
    wait_begins,   ///< a stream is about to wait for bytes
    wait_ended,    ///< behind that
    lease_began,   ///< its bytes are there, unpacked where that is so
    lease_ends,    ///< before its use is recorded
    lease_ended,   ///< behind everything that its end enqueues
    interrupted,   ///< what no step accounts for was enqueued
    copies_begin,  ///< before a call of copies, behind its waits for memory
    copies_end,    ///< behind it
};

/// Who reads a mark: bits.
struct Readers {
    static constexpr std::uint8_t passes = 1;
    static constexpr std::uint8_t stalls = 2;
    static constexpr std::uint8_t link = 4;
    static constexpr std::uint8_t steps = 8;
};

/// A point that the host has noted, with what those who measure want to know of it, and the time once the device was there. What a point
/// does not say is unset.
struct Mark {
    Point point{};
    std::uint8_t readers = 0;          ///< see Readers
    bool is_wanted = true;             ///< of a lease of steps: its time
    bool has_stream = false;           ///< of what comes: it is no ticket
    bool overlaps = false;             ///< of a lease that comes: one of other steps is open
    bool is_for_room = false;          ///< of copies: they had to wait for memory
    std::optional<StallCause> miss{};  ///< of a wait: set for a demand miss
    AccessPoint access{};              ///< of a lease
    StorageId storage = no_storage;    ///< of a wait: the last to arrive
    std::uint64_t arrival = 0;         ///< of copies, and of a wait for them: the point of the copy stream
    std::uint64_t bytes = 0;           ///< of copies; 0: they failed
    std::uint64_t pass = 0;            ///< of a wait; of what steps takes: the measured pass
    std::optional<std::chrono::nanoseconds>
        time{};  ///< since some moment; unset: nobody wants it, or it could not be had

    [[nodiscard]] bool is_of_pass() const noexcept { return point <= Point::pass_ends; }
    /// The steps of the lease; both UINT32_MAX: of no schedule.
    [[nodiscard]] StepRange steps() const noexcept {
        return access.step == AccessPoint::nowhere ? StepRange{UINT32_MAX, UINT32_MAX} : access.range();
    }
};

}}}  // namespace residency::RESIDENCY_ABI::core
