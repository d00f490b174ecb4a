// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "residency/model/catalog.hpp"
#include "residency/simulation/operation.hpp"
#include "residency/timeline/pass_timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// Makes a PassTimeline of what a simulated device executes: it is the device's observer, by add(). A kernel's group is its step. A
/// copy is named by the weights whose host memory it reads.
class SimulatedTimeline {
public:
    /// From now on copies from the host memory of these weights have their names.
    void name_weights(const Catalog& catalog);

    void add(const simulation::ExecutedOperation& operation);  ///< an operation, as SimulatedDevice::observe() tells it
    /// At a time of the device's clock; see PassTimeline.
    void add_memory(std::int64_t at_ns, std::uint64_t held_bytes, std::uint64_t budget_bytes) {
        timeline_.add_memory(PassTimeline::Time{at_ns}, held_bytes, budget_bytes);
    }

    /// What was added.
    [[nodiscard]] const PassTimeline& timeline() const noexcept { return timeline_; }

private:
    struct Named {
        std::uintptr_t end = 0;
        std::string name;
    };
    /// A copy to the device, as waits know it.
    struct Copied {
        std::uint32_t stream = 0;
        std::uint64_t sequence = 0;
    };
    struct Wait {
        std::int64_t start_ns = 0, end_ns = 0;
        std::uint32_t stream = 0;  ///< that was waited for, and how far
        std::uint64_t sequence = 0;
    };
    /// The row of a stream that has kernels, or may have some.
    struct Row {
        std::vector<Wait> waits;  ///< since its last kernel
        std::int64_t end_ns = INT64_MIN;
        std::size_t number = SIZE_MAX;  ///< among those with kernels
    };

    [[nodiscard]] std::vector<PassTimeline::Piece> pieces_of(const simulation::ExecutedOperation& operation) const;

    PassTimeline timeline_;
    std::map<std::uintptr_t, Named> names_;  // by the start of a range of host memory
    std::vector<Copied> copies_;             // by number in the timeline
    std::map<std::uint32_t, Row> rows_;      // by stream
    std::size_t kernel_rows_ = 0;
};

}}  // namespace residency::RESIDENCY_ABI

#if RESIDENCY_HEADER_ONLY
#include "residency/timeline/impl/simulated_timeline.ipp"
#endif
