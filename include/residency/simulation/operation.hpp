// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/simulation/kernel.hpp"
#include "residency/simulation/operation_kind.hpp"
#include "residency/simulation/vector_clock.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A point in a stream that others can wait for. Counted by those who hold it: events, pending operations, blocked hosts.
struct Marker {
    bool done = false;
    std::uint32_t references = 0;
    std::uint32_t stream = 0;
    std::uint64_t sequence = 0;
    std::int64_t time = 0;               ///< when it was done, ns
    VectorClock clock;                   ///< what lies before it
    std::vector<std::uint32_t> waiters;  ///< streams whose next operation waits for it
};

/// A word that streams wait for.
struct FlagState {
    std::uint32_t value = 0;
    std::vector<std::uint32_t> waiters;  ///< streams whose next operation waits for it
    std::uint32_t pending = 0;           ///< enqueued waits
};

/// Something that a stream has yet to do.
struct Operation {
    OperationKind kind = OperationKind::kernel;
    std::uint32_t stream = 0;
    std::uint32_t label = 0;
    std::uint64_t sequence = 0;
    std::int64_t start = 0, duration = 0;  ///< ns
    std::uint64_t bytes = 0;
    std::uint64_t generation = 0;  ///< of the address map when it was enqueued
    Marker* marker = nullptr;      ///< to wait for, or to be marked at the end
    FlagState* flag = nullptr;
    std::uint32_t flag_value = 0;
    std::vector<Copy> copies;
    std::byte* fill_at = nullptr;
    std::byte fill_value{};
    ByteRanges reads, writes;  ///< of a kernel
    KernelFunction body;
    std::shared_ptr<KernelFunction> shared_body;  ///< of a graph's kernel
    Operation* next = nullptr;                    ///< in its stream
    Operation* next_ready = nullptr;              ///< among those that wait for the same copy engine
};

/// An operation that was executed, for whoever watches. The names live as long as the device.
struct ExecutedOperation {
    std::uint32_t stream = 0;  ///< a number of its own for each stream
    std::string_view stream_name;
    std::string_view name;
    OperationKind kind = OperationKind::kernel;
    std::uint64_t sequence = 0;
    std::int64_t start_ns = 0, end_ns = 0;
    std::uint64_t bytes = 0;  ///< moved, filled, or declared by a kernel
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
