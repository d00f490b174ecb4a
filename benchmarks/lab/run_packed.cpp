// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "benchmarks/lab/gpu.hpp"
#include "benchmarks/lab/packing.hpp"
#include "benchmarks/lab/simulate.hpp"
#include "residency/packed.hpp"
#include "residency/simulation/simulated_unpacker.hpp"

namespace lab {

namespace {

/// Each storage in one part, one after the other. The simulated device has no bytes: sizes are enough.
std::vector<StoredBytes> stored_one_by_one(const Workload& work, const Packing& packing, std::uint64_t& end) {
    std::vector<StoredBytes> stored;
    stored.reserve(work.bytes.size());
    for (std::size_t i = 0; i < work.bytes.size(); ++i) {
        const std::uint64_t packed = packing.packed_bytes(work, i);
        StoredBytes one{end, packed, nullptr};
        if (packed > 0 && packed < work.bytes[i]) {
            const residency::PackedPart part{
                .form = residency::PackedForm::bf16_tiers, .raw_bytes = work.bytes[i], .packed_bytes = packed};
            one.parts = std::make_shared<const std::vector<residency::PackedPart>>(1, part);
        }
        stored.push_back(std::move(one));
        end += aligned_packed(packed);
    }
    return stored;
}

}  // namespace

residency::Result<RunCounts> run_packed(const RunJob& job) {
    using Weights = residency::Packed<residency::SimulatedDevice>;
    const auto run = [&]() -> residency::Result<RunCounts> {
        if (job.gpu != nullptr) { return run_packed_on_gpu(job); }
        Simulated machine{job};
        std::uint64_t bytes = 0;
        const std::vector<StoredBytes> stored = stored_one_by_one(job.work, job.packing, bytes);
        const auto host = machine.host(bytes);
        if (!host) { return host.error(); }
        const auto catalog = catalog_of(job.work, *host, stored);
        if (!catalog) { return catalog.error(); }
        const residency::SimulatedUnpacker unpacker{job.packing.unpack_rate(job.card)};
        return measure<Weights>(job, machine, *catalog, [&](const Setting&, Weights::Options& options) {
            options.learn = false;  // the workload declares its times
            options.policies.unpacker = &unpacker;
        });
    };
    auto counts = run();
    if (counts) { count_moved(*counts); }
    return counts;
}

}  // namespace lab
