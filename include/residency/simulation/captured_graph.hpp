// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "residency/simulation/operation.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// One call of a capture, which every launch of the graph makes again.
struct CapturedCall {
    OperationKind kind = OperationKind::kernel;
    std::uint32_t lane = 0;     ///< the stream, numbered in the graph
    std::uint32_t mark = 0;     ///< of a record or a wait: number of the point in the graph
    std::uint32_t label = 0;    ///< number of the name
    std::uint32_t group = 0;    ///< of a kernel: number of its group's name; 0: none
    std::int64_t duration = 0;  ///< ns
    Copy copy;
    std::byte* fill_at = nullptr;
    std::byte fill_value{};
    std::uint64_t bytes = 0;
    ByteRanges reads, writes;              ///< of a kernel
    std::shared_ptr<KernelFunction> body;  ///< of a kernel
    /// For a record of an event: the place and the generation of the event that each launch records; place 0: none.
    std::uint32_t event = 0, event_generation = 0;
};

/// A capture under way. Its streams are the lanes of the graph to be; lane 0 is the stream that began the capture.
struct CaptureState {
    struct Mark {
        VectorClock before;  ///< of lanes, in work calls
    };
    std::uint32_t number = 0;
    std::thread::id owner;                 ///< the thread that began it
    std::vector<std::uint32_t> streams;    ///< numbers, by lane
    std::vector<VectorClock> clocks;       ///< by lane: what lies before its next call
    std::vector<std::uint64_t> positions;  ///< work calls of the lanes
    std::vector<CapturedCall> calls;
    std::vector<Mark> marks;  ///< recorded points, by number
    std::string invalid;      ///< why the capture is invalid; empty: it is valid
};

/// What was captured. Lane 0 runs on the stream of the launch, the other lanes on streams of the graph's own.
struct GraphState {
    std::vector<CapturedCall> calls;
    std::vector<std::uint32_t> streams;  ///< numbers, by lane; the first is unused
    std::vector<Marker*> marks;          ///< by number, during a launch; references
    Marker* last = nullptr;              ///< the end of the latest launch; a reference
    std::uint64_t generation = 0;        ///< of the address map when the ranges were checked last
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
