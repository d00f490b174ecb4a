// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/tools/residency_plan/json.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "../support/fuzz.hpp"
#include "residency/error.hpp"
#include "residency/model/number.hpp"
#include "residency/packed/layout.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/planner.hpp"

namespace {

using namespace residency;
using support::fuzz_failed;

/// So small that a plan is made at once.
bool is_small(const plan::Problem& problem) {
    constexpr std::uint64_t most_storages = 12, most_steps = 24, most_reads = 64, most_chunks = 64;
    std::uint64_t bytes = 0;
    for (const std::uint64_t each : problem.storage_bytes) { bytes = detail::saturating_add(bytes, each); }
    return problem.storages() <= most_storages && problem.steps() <= most_steps &&
           problem.step_storages.size() <= most_reads && problem.chunk_bytes != 0 &&
           bytes / problem.chunk_bytes <= most_chunks;
}

}  // namespace

/// A problem of residency-plan.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    support::with_copy(data, bytes, [](std::span<const std::byte> copy) {
        try {
            const packed::UnpackProblem problem = read_problem(std::string{support::text_of(copy)}, false);
            const auto floor = packed::unpack_floor(problem);
            if (!floor) { support::check_message(floor.error()); }
            if (!is_small(problem.travels)) { return; }
            const auto made = plan::make_plan(problem.travels, {.effort = plan::Effort::quick});
            if (!made) { return support::check_message(made.error()); }
            if (const Status right = plan::check(*made, problem.travels); !right) {
                fuzz_failed("a plan that is none", right.error().message());
            }
            if (text_of(problem.travels, *made).empty()) { fuzz_failed("a plan without a text", ""); }
        } catch (const Refused& wrong) {
            const std::string message = wrong.what();
            if (message.empty()) { fuzz_failed("a refusal without a message", ""); }
        }
    });
    return 0;
}
