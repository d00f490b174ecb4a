// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every evictor with one prefetcher. Each pair has one of the two pools, so that every two policies meet; with
// RESIDENCY_ALL_COMBINATIONS it has both, one after the other.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include "residency/evict/belady.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/fifo.hpp"
#include "residency/evict/gdsf.hpp"
#include "residency/evict/lfu.hpp"
#include "residency/evict/lru.hpp"
#include "residency/evict/s3_fifo.hpp"
#include "residency/evict/scheduled.hpp"
#include "residency/evict/sieve.hpp"
#include "residency/evict/static_split.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "tests/model_based/run.hpp"

namespace model_based {

#ifdef RESIDENCY_ALL_COMBINATIONS
inline constexpr bool all_combinations = true;
#else
inline constexpr bool all_combinations = false;
#endif

template <class Evictor, class Prefetcher, class Pool>
void try_one(const char* evictor) {
    Tally tally;
    const std::string failure =
        run_scenarios(evictor, first_seed(), cases_each(150), Runner<Evictor, Prefetcher, Pool>::run, tally);
    CHECK_MESSAGE(failure.empty(), failure);
    CHECK(tally.cases > 0);
    CHECK(tally.evictions > 0);
}
template <class Evictor, class Prefetcher, bool on_slab>
void try_pair(const char* evictor) {
    if constexpr (all_combinations || on_slab) { try_one<Evictor, Prefetcher, residency::pool::Slab<Device>>(evictor); }
    if constexpr (all_combinations || !on_slab) {
        try_one<Evictor, Prefetcher, residency::pool::StreamOrdered<Device>>(evictor);
    }
}
template <class Prefetcher, bool first_on_slab>
void try_with_every_evictor() {
    namespace evict = residency::evict;
    try_pair<evict::Lru, Prefetcher, first_on_slab>("Lru");
    try_pair<evict::Fifo, Prefetcher, !first_on_slab>("Fifo");
    try_pair<evict::Lfu, Prefetcher, first_on_slab>("Lfu");
    try_pair<evict::Sieve, Prefetcher, !first_on_slab>("Sieve");
    try_pair<evict::S3Fifo, Prefetcher, first_on_slab>("S3Fifo");
    try_pair<evict::Gdsf, Prefetcher, !first_on_slab>("Gdsf");
    try_pair<evict::ExpectedUse, Prefetcher, first_on_slab>("ExpectedUse");
    try_pair<evict::StaticSplit, Prefetcher, !first_on_slab>("StaticSplit");
    try_pair<evict::Scheduled, Prefetcher, first_on_slab>("Scheduled");
    try_pair<evict::Belady, Prefetcher, !first_on_slab>("Belady");
}

}  // namespace model_based
