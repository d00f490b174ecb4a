// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Runs the random programs of tests/model_based without a test framework, and exits with 1 at the first failure. run.py builds it on
// headers with mutants. ONLY_PLANNED and ONLY_ONLINE each leave out the compositions of the other.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/model_based/composition.hpp"
#include "tests/model_based/proposals.hpp"
#include "tests/model_based/run.hpp"

using namespace model_based;
namespace evict = residency::evict;
namespace prefetch = residency::prefetch;
using StreamOrdered = residency::pool::StreamOrdered<Device>;
using Slab = residency::pool::Slab<Device>;

namespace {

template <class Evictor, class Prefetcher, class Pool>
void check(const char* name, std::uint64_t cases, std::uint64_t factor = 1) {
    Tally tally;
    const auto run = [factor](Scenario scenario, Tally& counts) {
        for (StorageSpec& storage : scenario.storages) { storage.bytes *= factor; }
        return model_based::run(composition<Evictor, Prefetcher, Pool>(), scenario, counts);
    };
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        const std::string failure = run(make_scenario(seed), tally);
        if (failure.empty()) { continue; }
        std::printf("%s, scenario %llu: %s\n", name, static_cast<unsigned long long>(seed), failure.c_str());
        std::exit(1);
    }
}

}  // namespace

int main() {
#ifndef ONLY_PLANNED
    check<evict::Lru, prefetch::None, StreamOrdered>("Lru, None, StreamOrdered", 1500);
    check<evict::Scheduled, prefetch::Lookahead<2>, Slab>("Scheduled, Lookahead, Slab", 1500);
    check<evict::Lru, Proposals<false>, StreamOrdered>("Lru, any proposals, StreamOrdered", 1500);
    check<evict::Lru, Proposals<true>, Slab>("Lru, proposals of several pieces, Slab", 40, 1500);
#endif
#ifndef ONLY_ONLINE
    check<evict::Planned, prefetch::Planned, residency::pool::Virtual<Device>>("Planned", 250, 6);
    check<evict::Planned, prefetch::Planned, residency::pool::Virtual<Device>>("Planned, neighbours on the host", 100,
                                                                               256);
#endif
    return 0;
}
