// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "residency/config.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

/// Random numbers of a search (splitmix64): the same on every machine.
class Random {
public:
    /// A number in [0, below). Precondition: below > 0.
    [[nodiscard]] std::uint64_t operator()(std::uint64_t below) noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
        z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ z >> 27U) * 0x94d049bb133111ebULL;
        return (z ^ z >> 31U) % below;
    }

private:
    std::uint64_t state_ = 0;
};

}}}  // namespace residency::RESIDENCY_ABI::plan
