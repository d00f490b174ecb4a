// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/timeline/timeline_recorder.hpp"

/// What a TimelineRecorder says of passes, held against what the passes were. The same on every device.
namespace recorded {

template <class R>
decltype(auto) must(R&& result) {
    if (!result) { FAIL(result.error().message()); }
    if constexpr (requires { *result; }) { return *std::forward<R>(result); }
}

/// Runs `passes` passes, each step by step, each waited for. The bytes that each copied.
template <class Weights, class Stream, class Launch>
std::vector<std::uint64_t> run_passes(Weights& weights, Stream stream, std::size_t passes, const Launch& launch) {
    std::vector<std::uint64_t> copied;
    for (std::size_t i = 0; i < passes; ++i) {
        auto pass = must(weights.try_begin(stream));
        for (const auto& step : weights.schedule()) {
            const auto lease = must(pass.try_acquire(step));
            for (const auto weight : step.weights) { launch(weight, lease.bytes(weight)); }
        }
        must(pass.try_end());
        must(weights.device().synchronize(stream));
        copied.push_back(weights.statistics().last_pass.fetched_bytes);
    }
    must(weights.try_drain());  // copies for the next pass belong to the last one
    return copied;
}

/// `resolution`: by so much the times of two events may differ from the truth. Precondition: the timeline has passes only that ran every
/// step of the schedule, in order, on one stream.
inline void check_passes(const residency::PassTimeline& timeline, const residency::Catalog& catalog,
                         const residency::Schedule& schedule, const std::vector<std::uint64_t>& copied_bytes,
                         std::chrono::nanoseconds resolution = {}) {
    using residency::PassTimeline;
    REQUIRE(timeline.passes().size() == copied_bytes.size());
    std::size_t kernel = 0;
    std::uint64_t stalls = 0;
    for (std::size_t i = 0; i < copied_bytes.size(); ++i) {
        const PassTimeline::Pass& pass = timeline.passes()[i];
        CAPTURE(pass.name);
        CHECK(pass.copied_bytes == copied_bytes[i]);
        CHECK(pass.start <= pass.end);
        if (i > 0) { CHECK(timeline.passes()[i - 1].end <= pass.start); }
        for (const auto& step : schedule) {
            REQUIRE(kernel < timeline.kernels().size());
            const PassTimeline::Kernel& ran = timeline.kernels()[kernel];
            CAPTURE(ran.step);
            CHECK(ran.step == (step.name.empty() ? "step " + std::to_string(step.position) : std::string{step.name}));
            CHECK(pass.start <= ran.start + resolution);
            CHECK(ran.start <= ran.end);
            CHECK(ran.end <= pass.end + resolution);
            if (kernel > 0) { CHECK(timeline.kernels()[kernel - 1].end <= ran.start); }
            // No bytes of a weight arrive while the step that reads it runs.
            std::set<std::string> reads;
            for (const auto storage : step.storages) { reads.insert(PassTimeline::name_of(catalog, storage)); }
            for (const PassTimeline::Copy& copy : timeline.copies()) {
                bool is_read = false;
                for (const auto& piece : copy.pieces) { is_read = is_read || reads.contains(piece.weight); }
                if (is_read) { CHECK((copy.end <= ran.start + resolution || copy.start + resolution >= ran.end)); }
            }
            ++kernel;
        }
    }
    CHECK(kernel == timeline.kernels().size());
    for (std::size_t i = 0; i < timeline.copies().size(); ++i) {
        CHECK(timeline.copies()[i].start <= timeline.copies()[i].end);
        if (i > 0) { CHECK(timeline.copies()[i - 1].end <= timeline.copies()[i].start); }
    }
    for (const PassTimeline::Stall& stall : timeline.stalls()) {
        CHECK(stall.start < stall.end);
        const auto next = timeline.kernel_after(stall);
        REQUIRE(next);
        CHECK(stall.end <= timeline.kernels()[*next].start);
        REQUIRE(stall.copy);
        CHECK(timeline.copies()[*stall.copy].start < stall.end);
        CHECK(timeline.copies()[*stall.copy].end <= stall.end + resolution);
        ++stalls;
    }
    CHECK(stalls == timeline.stalls().size());
    REQUIRE_FALSE(timeline.memory().empty());
    for (const PassTimeline::Memory& memory : timeline.memory()) { CHECK(memory.held_bytes <= memory.budget_bytes); }
    CHECK(timeline.memory().back().held_bytes > 0);
}

}  // namespace recorded
