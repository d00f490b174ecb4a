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

/// One call of a capture, to be made again at each launch.
struct Command {
    OperationKind kind = OperationKind::kernel;
    std::uint32_t lane = 0;
    std::uint32_t mark = 0;  ///< record and wait: number of the point
    std::uint32_t label = 0;
    std::int64_t duration = 0;  ///< ns
    Copy copy;
    std::byte* fill_at = nullptr;
    std::byte fill_value{};
    std::uint64_t bytes = 0;
    ByteRanges reads, writes;
    std::shared_ptr<KernelFunction> body;
};

/// A capture under way. Its streams are the lanes of the graph; lane 0 is the stream that began it.
struct CaptureState {
    struct Mark {
        VectorClock before;  ///< of lanes, in work commands
    };
    std::uint32_t number = 0;
    std::thread::id owner;  ///< that began it
    std::vector<std::uint32_t> streams;
    std::vector<VectorClock> clocks;       ///< of the lanes
    std::vector<std::uint64_t> positions;  ///< work commands of the lanes
    std::vector<Command> commands;
    std::vector<Mark> marks;
    std::string invalid;  ///< why; empty: valid
};

/// What was captured. Lane 0 runs on the stream of the launch, the others on streams of the graph.
struct GraphState {
    std::vector<Command> commands;
    std::vector<std::uint32_t> streams;  ///< of the lanes; the first is unused
    std::vector<Marker*> marks;          ///< of the launch being made
    Marker* last = nullptr;              ///< the end of the latest launch
    std::uint64_t generation = 0;        ///< of the address map when the ranges were last found there
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
