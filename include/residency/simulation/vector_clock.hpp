// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// For each actor (0: the host; then the streams), the sequence number of its last operation that is known to lie before. Values
/// never decrease between two calls of clear() or set().
class VectorClock {
public:
    [[nodiscard]] std::uint64_t of(std::uint32_t actor) const noexcept {
        return actor < last_.size() ? last_[actor] : 0;
    }
    [[nodiscard]] bool covers(std::uint32_t actor, std::uint64_t sequence) const noexcept {
        return sequence <= of(actor);
    }
    void set(std::uint32_t actor, std::uint64_t sequence) {
        if (actor >= last_.size()) { last_.resize(actor + std::size_t{1}); }
        last_[actor] = sequence;
    }
    /// From now on, all that lies before `other` lies before this one too.
    void join(const VectorClock& other) {
        if (other.last_.size() > last_.size()) { last_.resize(other.last_.size()); }
        for (std::size_t i = 0; i < other.last_.size(); ++i) { last_[i] = (std::max)(last_[i], other.last_[i]); }
    }
    void clear() noexcept { last_.clear(); }

private:
    std::vector<std::uint64_t> last_;  // by actor; beyond the end: 0
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
