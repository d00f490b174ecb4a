// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "residency/plan/copy.hpp"
#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// By chunk of a cyclic plan's image: whether memory holds it between passes: the residents and, of what came to each slot last, the calls
/// of the next pass up to the first that waits for a step of it among them. A change of plans for one image brings what the next one holds
/// and the one before does not.
[[nodiscard]] inline std::vector<bool> held_between_passes(const Plan& plan) {
    std::vector<std::uint32_t> occupant(plan.slots_held(), none);
    const auto bring = [&](std::span<const Copy> copies) {
        for (const Copy& copy : copies) {
            for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) { occupant[plan.slot_of_chunk(chunk)] = chunk; }
        }
    };
    bring(plan.residents());
    bring(plan.copies());
    for (const Call& call : plan.calls()) {
        if (call.wait.exists() && call.wait.pass == 0) { break; }
        bring(plan.copies(call));
    }
    std::vector<bool> held(plan.chunks(), false);
    for (const std::uint32_t chunk : occupant) {
        if (chunk != none) { held[chunk] = true; }
    }
    return held;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
