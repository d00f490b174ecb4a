// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Random programs on compositions of online policies.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "residency/evict/lru.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/lookahead.hpp"
#include "residency/prefetch/none.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/model_based/run.hpp"

using namespace model_based;
namespace evict = residency::evict;
namespace prefetch = residency::prefetch;
using StreamOrdered = residency::pool::StreamOrdered<Device>;
using Slab = residency::pool::Slab<Device>;

namespace {

/// Proposes anything, at any moment: whatever it says, results stay right.
template <bool Interruptible>
struct Guesses {
    static constexpr bool interruptible = Interruptible;
    std::size_t storages = 0;
    std::uint64_t state = 1;
    std::vector<std::uint64_t> offered;
    std::uint64_t call = 0;

    residency::Status attach(const prefetch::Context& context) {
        storages = context.bytes.size();
        offered.assign(storages, 0);
        return {};
    }
    template <class Sink>
    void propose(prefetch::Moment now, Sink&& sink) noexcept {
        ++call;
        for (std::size_t i = 0; i < 5 && i < storages; ++i) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            const auto id = static_cast<std::uint32_t>((state >> 33U) % storages);
            if (offered[id] == call) { continue; }
            offered[id] = call;
            const auto needed = (state >> 20U) % 4 == 0 ? residency::UseOrder::never : now + (state >> 25U) % 9;
            if (!sink(StorageId{id}, needed)) { return; }
        }
    }
    void clear() noexcept {}
};

template <class Evictor, class Prefetcher, class Pool>
void random_programs(const char* name, Tally& tally, std::uint64_t usual) {
    const std::string failure =
        run_scenarios(name, first_seed(), cases_each(usual), Runner<Evictor, Prefetcher, Pool>::run, tally);
    CHECK_MESSAGE(failure.empty(), failure);
}

}  // namespace

TEST_SUITE_BEGIN("model based");

TEST_CASE("random programs: on demand") {
    Tally tally;
    random_programs<evict::Lru, prefetch::None, StreamOrdered>("Lru, None, StreamOrdered", tally, 2500);
    random_programs<evict::Lru, prefetch::None, Slab>("Lru, None, Slab", tally, 2500);
    MESSAGE(tally.cases << " programs, " << tally.operations << " operations, " << tally.leases << " leases, "
                        << tally.verified << " kernels, " << tally.evictions << " evictions, " << tally.refused
                        << " refusals, " << tally.divergences << " divergences, " << tally.host_waits << " host waits");
    CHECK(tally.evictions > tally.cases);
    CHECK(tally.refused > 0);
    CHECK(tally.divergences > 0);
    CHECK(tally.host_waits > 0);
    CHECK(tally.verified > tally.cases);
}

TEST_CASE("random programs: ahead of use") {
    Tally tally;
    random_programs<evict::Scheduled, prefetch::Lookahead<2>, Slab>("Scheduled, Lookahead, Slab", tally, 2500);
    random_programs<evict::Scheduled, prefetch::Scheduled, StreamOrdered>("Scheduled, Scheduled, StreamOrdered", tally,
                                                                          2500);
    CHECK(tally.prefetch_hits > tally.cases);
    CHECK(tally.evictions > tally.cases);
}

TEST_CASE("random programs: guesses, whole and in pieces") {
    Tally tally;
    random_programs<evict::Lru, Guesses<false>, StreamOrdered>("Lru, guesses, StreamOrdered", tally, 2500);
    random_programs<evict::Lru, Guesses<true>, Slab>("Lru, guesses in pieces, Slab", tally, 2500);
    random_programs<evict::Lru, prefetch::Hinted, StreamOrdered>("Lru, Hinted, StreamOrdered", tally, 2500);
    CHECK(tally.prefetch_hits > tally.cases);
    CHECK(tally.evictions > tally.cases);
}

TEST_SUITE_END();
