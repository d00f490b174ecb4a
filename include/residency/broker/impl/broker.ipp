// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/broker/broker.hpp"
#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace broker {

RESIDENCY_INLINE Result<ResolvedTotal> resolve_total(const Budget& total, const MemoryInfo& memory,
                                                     std::uint64_t reserve_bytes) {
    using residency::detail::in_bytes;
    ResolvedTotal resolved;
    resolved.text = "the total " + total.text();
    const auto refused = [&](const std::string& why) {
        return Error{ErrorKind::budget, resolved.text + " " + why,
                     BudgetNumbers{resolved.asked_bytes, 0, 0, 0, UINT32_MAX, memory.free_bytes}};
    };
    switch (total.kind()) {
        case BudgetKind::bytes: resolved.asked_bytes = total.amount(); break;
        case BudgetKind::percent_of_weights:
            return refused(
                "is a share of the weights, and a total is shared by several models and other memory; give bytes, "
                "a share of the free memory such as " +
                std::to_string((std::min)(total.amount(), std::uint64_t{100})) + "%free, or auto");
        case BudgetKind::percent_of_free: resolved.asked_bytes = total.share_of(memory.free_bytes); break;
        case BudgetKind::automatic:
            resolved.asked_bytes = memory.free_bytes > reserve_bytes ? memory.free_bytes - reserve_bytes : 0;
            break;
    }
    if (resolved.asked_bytes == 0) {
        if (total.kind() != BudgetKind::automatic) {
            return refused("has room for nobody: a total has no floor of its own, give at least the sum of the floors");
        }
        return refused("is nothing: of the " + in_bytes(memory.free_bytes) + " that are free " +
                       in_bytes(reserve_bytes) + " are to be left; give bytes, or a smaller reserve");
    }
    const std::string others = "others hold " + in_bytes(memory.total_bytes - memory.free_bytes) + " of the device's " +
                               in_bytes(memory.total_bytes);
    if (memory.free_bytes == 0) { return refused("cannot be had: nothing is free, " + others); }
    resolved.is_clamped = resolved.asked_bytes > memory.free_bytes;
    resolved.bytes = (std::min)(resolved.asked_bytes, memory.free_bytes);
    if (total.kind() != BudgetKind::bytes || total.text() != std::to_string(total.amount())) {
        resolved.text += " = " + in_bytes(resolved.asked_bytes);
    }
    if (resolved.is_clamped) {
        resolved.text += " is clamped to the " + in_bytes(resolved.bytes) + " that are free: " + others;
    }
    return resolved;
}

}}}  // namespace residency::RESIDENCY_ABI::broker
