// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/config.hpp"
#include "residency/core/online/speculation.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE void SpeculationStats::attach(std::size_t storages) {
    lists_.attach(storages, 2);
    right_ = 1;
    in_time_.fill(1);
    sent_ = 0;
    sent_bytes_ = refused_ = 0;
    is_trial_ = false;
}

RESIDENCY_INLINE void SpeculationStats::used(StorageId id, bool in_time) noexcept {
    if (!lists_.is_linked(index(id))) { return; }
    if (in_time) { learn(right_, true); }
    lists_.unlink(index(id));
}

RESIDENCY_INLINE void SpeculationStats::removed(StorageId id) noexcept {
    if (lists_.is_linked(index(id))) { lists_.unlink(index(id)); }
}

RESIDENCY_INLINE std::uint64_t SpeculationStats::next_bytes() const noexcept {
    for (const std::uint64_t bytes : {4 * grain_bytes, 2 * grain_bytes}) {
        if (in_time(bytes) > 0.75) { return bytes; }
    }
    return grain_bytes;
}

RESIDENCY_INLINE void SpeculationStats::sent(std::uint64_t bytes, std::uint64_t arrival) noexcept {
    sent_bytes_ += bytes;
    pieces_[(std::min)(sent_++, pieces_.size() - 1)] = {arrival, distance(sent_bytes_)};
    is_trial_ = false;
}

RESIDENCY_INLINE void SpeculationStats::begin_interval() noexcept {
    const bool was_refused = !next_is_worth_it();
    sent_ = 0;
    sent_bytes_ = 0;
    is_trial_ = was_refused && ++refused_ % 32 == 0;
}

RESIDENCY_INLINE std::size_t SpeculationStats::distance(std::uint64_t bytes) noexcept {
    return static_cast<std::size_t>((std::min)((bytes - 1) / grain_bytes, std::uint64_t{grains - 1}));
}

}}}  // namespace residency::RESIDENCY_ABI::core
