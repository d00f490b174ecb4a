// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/model/use_order.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace model_based {

/// Proposes any storage for any step: whatever it says, results stay right.
template <bool Interruptible>
struct Proposals {
    static constexpr bool interruptible = Interruptible;
    std::size_t storages = 0;
    std::uint64_t state = 1;
    std::vector<std::uint64_t> offered;
    std::uint64_t call = 0;

    residency::Status attach(const residency::prefetch::Context& context) {
        storages = context.bytes.size();
        offered.assign(storages, 0);
        return {};
    }
    template <class Sink>
    void propose(residency::StepIndex now, Sink&& sink) noexcept {
        ++call;
        for (std::size_t i = 0; i < 5 && i < storages; ++i) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            const auto id = static_cast<std::uint32_t>((state >> 33U) % storages);
            if (offered[id] == call) { continue; }
            offered[id] = call;
            const auto needed = (state >> 20U) % 4 == 0 ? residency::UseOrder::never : now + (state >> 25U) % 9;
            if (!sink(residency::StorageId{id}, needed)) { return; }
        }
    }
    void clear() noexcept {}
};
static_assert(residency::prefetch::PrefetchPolicy<Proposals<false>> &&
              residency::prefetch::PrefetchPolicy<Proposals<true>>);

}  // namespace model_based
