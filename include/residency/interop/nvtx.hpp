// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nvtx3/nvtx3.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/measure/event.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

/// The domain of the ranges: a row of its own in Nsight Systems.
struct NvtxDomain {
    static constexpr const char* name{"residency"};  ///< as the tool shows it
};

/// Makes ranges of NVTX of the events of one Residency, for Nsight Systems and its like: it is a handler of events, or part of one.
///
///     NvtxRanges ranges;
///     … {.on_event = std::ref(ranges)}
///
/// A range is open while a pass is ("pass 3"), while a lease is (the name of its step, "step 7", "steps 7 to 9", or "lease of w"), and while
/// the host enqueues a wait ("wait for w") or copies ("copy w and 2 more", with their bytes). What a stream runs for them is shown by the
/// tool below the range. A launched graph is a mark. All in the domain "residency". Without a tool a range costs a branch; a program that
/// makes no NvtxRanges has nothing of it. It outlives the Residency. Its destructor ends what is open.
class NvtxRanges {
public:
    NvtxRanges() = default;
    NvtxRanges(const NvtxRanges&) = delete;
    NvtxRanges& operator=(const NvtxRanges&) = delete;
    /// Ends what is open.
    ~NvtxRanges() {
        for (const Open& open : leases_) { nvtx3::end_range_in<NvtxDomain>(open.range); }
        end(pass_);
        end(copy_);
        end(wait_);
    }

    /// An event happened: as EventHandler.
    void operator()(const Event& event) {
        switch (event.kind) {
            case EventKind::pass_began: begin(pass_, "pass " + std::to_string(event.pass), 0); break;
            case EventKind::pass_ended: end(pass_); break;
            case EventKind::graph_launched:
                nvtx3::mark_in<NvtxDomain>("graph of pass " + std::to_string(event.pass),
                                           nvtx3::payload{event.counters->fetched_bytes});
                break;
            case EventKind::lease_began:
                leases_.push_back({event.lease, nvtx3::start_range_in<NvtxDomain>(name_of_lease(event))});
                break;
            case EventKind::lease_ended: end_lease(event.lease); break;
            case EventKind::wait_began: begin(wait_, "wait for " + std::string{event.weight()}, 0); break;
            case EventKind::wait_ended: end(wait_); break;
            case EventKind::copy_began: begin(copy_, name_of_copies(event), event.bytes); break;
            case EventKind::copy_ended: end(copy_); break;
            default: break;
        }
    }

private:
    using Range = std::optional<nvtx3::range_handle>;
    struct Open {
        std::uint64_t lease = 0;
        nvtx3::range_handle range;
    };

    static void begin(Range& range, const std::string& name, std::uint64_t bytes) {
        end(range);
        range = bytes > 0 ? nvtx3::start_range_in<NvtxDomain>(name, nvtx3::payload{bytes})
                          : nvtx3::start_range_in<NvtxDomain>(name);
    }
    static void end(Range& range) {
        if (range) { nvtx3::end_range_in<NvtxDomain>(*range); }
        range.reset();
    }
    void end_lease(std::uint64_t lease) {
        for (std::size_t i = leases_.size(); i-- > 0;) {
            if (leases_[i].lease != lease) { continue; }
            nvtx3::end_range_in<NvtxDomain>(leases_[i].range);
            leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(i));
            return;
        }
    }
    [[nodiscard]] static std::string name_of_lease(const Event& event) {
        const bool is_range = event.steps.last - event.steps.first > 1;
        if (event.steps.first == Event::no_step) { return "lease of " + std::string{event.weight()}; }
        if (is_range) {
            return "steps " + std::to_string(event.steps.first) + " to " + std::to_string(event.steps.last - 1);
        }
        return event.step_name().empty() ? "step " + std::to_string(event.steps.first) : std::string{event.step_name()};
    }
    [[nodiscard]] static std::string name_of_copies(const Event& event) {
        std::size_t others = 0;
        StorageId before = event.storage;
        for (const transport::Fetch& copy : event.copies) {
            others += copy.storage == std::exchange(before, copy.storage) ? 0U : 1U;
        }
        std::string name = "copy " + std::string{event.weight()};
        return others == 0 ? name : name + " and " + std::to_string(others) + " more";
    }

    std::vector<Open> leases_;
    Range pass_, wait_, copy_;
};

}}  // namespace residency::RESIDENCY_ABI
