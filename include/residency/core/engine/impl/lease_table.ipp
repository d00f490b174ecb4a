// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/core/engine/lease_table.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE void LeaseTable::add() {
    free_slots_.resize(records_.size() + 1);  // first: one that is spare does no harm
    records_.emplace_back();
    free_slots_[free_++] = static_cast<std::uint32_t>(records_.size() - 1);
}

}}}  // namespace residency::RESIDENCY_ABI::core
