// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"
#include "residency/core/lease_table.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE LeaseId LeaseTable::open() {
    if (free_.empty()) {
        records_.emplace_back();
        free_.reserve(records_.size());
        free_.push_back(static_cast<std::uint32_t>(records_.size() - 1));
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    LeaseRecord& record = records_[slot];
    record.consumers.clear();
    record.is_open = true;
    ++open_;
    return {slot, record.generation};
}

}}}  // namespace residency::RESIDENCY_ABI::core
