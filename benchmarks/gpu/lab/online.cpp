// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/gpu/lab/streamed.hpp"
#include "residency/core/residency.hpp"
#include "residency/pool/stream_ordered.hpp"

namespace streamed {

std::unique_ptr<Runner> make_online(const Setting& setting, lab::AnyEvictor evictor, lab::AnyPrefetcher prefetcher) {
    using Weights = residency::Residency<lab::AnyEvictor, lab::AnyPrefetcher,
                                         residency::pool::StreamOrdered<residency::CudaDevice>>;
    auto options = options_of<Weights>(setting);
    options.policies.evictor = std::move(evictor);
    options.policies.prefetcher = std::move(prefetcher);
    return std::make_unique<RunnerOf<Weights>>(setting, std::move(options));
}

}  // namespace streamed
