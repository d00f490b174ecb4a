// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/gpu/lab/streamed.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"

namespace streamed {

namespace {

using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                     residency::pool::Virtual<residency::CudaDevice>>;

class PlannedRunner final : public RunnerOf<Weights> {
public:
    using RunnerOf::RunnerOf;
    [[nodiscard]] double bound_seconds() const override { return weights().plan().bound_seconds(); }
};

}  // namespace

std::unique_ptr<Runner> make_planned(const Setting& setting) {
    auto options = options_of<Weights>(setting);
    options.policies.link = setting.link;
    return std::make_unique<PlannedRunner>(setting, std::move(options));
}

}  // namespace streamed
