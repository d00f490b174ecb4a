// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "residency/plan/plan.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Whether the predicate holds for one of the chunks that these copies of a plan bring. Stops at the first.
template <std::predicate<std::uint32_t> Predicate>
[[nodiscard]] bool any_chunk(const plan::Plan& plan, std::span<const plan::Copy> copies, Predicate predicate) {
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) {
            if (predicate(chunk)) { return true; }
        }
    }
    return false;
}

/// Calls `visit` with each chunk that these copies of a plan bring, in their order.
template <std::invocable<std::uint32_t> Visit>
void for_each_chunk(const plan::Plan& plan, std::span<const plan::Copy> copies, Visit visit) {
    for (const plan::Copy& copy : copies) {
        for (const std::uint32_t chunk : plan.chunks_of_copy(copy)) { visit(chunk); }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::core
