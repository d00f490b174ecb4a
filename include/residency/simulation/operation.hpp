// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "residency/device/device.hpp"
#include "residency/simulation/access.hpp"
#include "residency/simulation/kernel.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// A point in a stream that others can wait for. It lives as long as it is referenced: by events, pending operations and host threads
/// that block.
struct Marker {
    bool done = false;                   ///< all work before it has ended
    std::uint32_t references = 0;        ///< that keep it
    std::uint32_t stream = 0;            ///< number
    std::uint64_t sequence = 0;          ///< of the operation that it ends
    std::int64_t time = 0;               ///< when it was done, ns
    VectorClock clock;                   ///< what lies before it
    std::vector<std::uint32_t> waiters;  ///< streams whose next operation waits for it
};

/// A counter that only grows, for which streams wait.
struct FlagState {
    std::uint32_t value = 0;             ///< now
    std::vector<std::uint32_t> waiters;  ///< streams whose next operation waits for it
    std::uint32_t pending = 0;           ///< waits that are enqueued and not over
};

/// One operation of a stream, from its call until its end. Blank when it is not in use.
struct Operation {
    OperationKind kind = OperationKind::kernel;   ///< what it does
    std::uint32_t stream = 0;                     ///< number
    std::uint32_t label = 0;                      ///< number of its name
    std::uint32_t group = 0;                      ///< of a kernel: number of its group's name; 0: none
    bool has_waited = false;                      ///< of a wait: start is when it began
    std::uint64_t sequence = 0;                   ///< position in the order of all calls
    std::int64_t start = 0;                       ///< ns
    std::int64_t duration = 0;                    ///< ns
    std::uint64_t bytes = 0;                      ///< moved, filled, or declared by a kernel
    std::uint64_t generation = 0;                 ///< of the address map when it was enqueued
    Marker* marker = nullptr;                     ///< waited for, or done at the end; a reference
    FlagState* flag = nullptr;                    ///< waited for
    std::uint32_t flag_value = 0;                 ///< the value that is waited for
    std::vector<Copy> copies;                     ///< of a copy
    std::byte* fill_at = nullptr;                 ///< of a fill
    std::byte fill_value{};                       ///< of a fill
    ByteRanges reads;                             ///< of a kernel
    ByteRanges writes;                            ///< of a kernel
    KernelFunction body;                          ///< of a kernel; may be empty
    std::shared_ptr<KernelFunction> shared_body;  ///< the same, of a graph's kernel
    Operation* next = nullptr;                    ///< in its stream
    Operation* next_ready = nullptr;              ///< in the queue of the same unit of the GPU
};

/// An operation that has ended, as an observer sees it. The names live as long as the device, the copies until the observer returns.
struct ExecutedOperation {
    std::uint32_t stream = 0;                    ///< number
    std::string_view stream_name;                ///< of the stream
    std::string_view name;                       ///< of the kernel, or what the operation is
    OperationKind kind = OperationKind::kernel;  ///< what it did
    std::uint64_t sequence = 0;                  ///< position in the order of all calls
    std::int64_t start_ns = 0;                   ///< of a wait: when its turn came
    std::int64_t end_ns = 0;                     ///< of a wait: when the stream went on
    std::uint64_t bytes = 0;                     ///< moved, filled, or declared by a kernel
    std::string_view group;                      ///< of a kernel
    std::span<const Copy> copies;                ///< of a copy, in its order
    std::uint32_t awaited_stream = 0;            ///< of a wait: the number of the stream that it waits for
    std::uint64_t awaited_sequence = 0;          ///< of a wait: of the last operation that it waits for
    std::string_view device;                     ///< the name of the GPU
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
