// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Evictors with one prefetcher, by RESIDENCY_TEST_COMBINATIONS of CMake:
//   few    every evictor with one of the four prefetchers
//   pairs  every evictor with every prefetcher, on one of the two pools: every two policies meet
//   all    the same on both pools, one after the other

#include <doctest/doctest.h>

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
#include "tests/model_based/random_programs.hpp"

namespace model_based {

#if defined(RESIDENCY_TEST_COMBINATIONS_FEW)
inline constexpr bool on_both_pools = false, with_every_prefetcher = false;
#elif defined(RESIDENCY_TEST_COMBINATIONS_ALL)
inline constexpr bool on_both_pools = true, with_every_prefetcher = true;
#else
inline constexpr bool on_both_pools = false, with_every_prefetcher = true;
#endif

template <class Evictor, class Prefetcher, class Pool>
void try_one(const char* evictor) {
    Tally tally;
    random_programs<Evictor, Prefetcher, Pool>(evictor, tally, 150);
    CHECK(tally.cases > 0);
    CHECK(tally.evictions > 0);
}
template <class Evictor, class Prefetcher, bool on_slab>
void try_pair(const char* evictor) {
    if constexpr (on_both_pools || on_slab) { try_one<Evictor, Prefetcher, residency::pool::Slab<Device>>(evictor); }
    if constexpr (on_both_pools || !on_slab) {
        try_one<Evictor, Prefetcher, residency::pool::StreamOrdered<Device>>(evictor);
    }
}
/// An evictor has the number of its place in the list, a prefetcher one of four.
template <class Prefetcher, unsigned prefetcher, class Evictor, unsigned number>
void try_numbered(const char* evictor) {
    if constexpr (with_every_prefetcher || number % 4 == prefetcher) {
        try_pair<Evictor, Prefetcher, (number / 2 + prefetcher) % 2 == 0>(evictor);
    }
}
/// Those that rank by what has happened.
template <class Prefetcher, unsigned prefetcher>
void try_with_history() {
    namespace evict = residency::evict;
    try_numbered<Prefetcher, prefetcher, evict::Lru, 0>("Lru");
    try_numbered<Prefetcher, prefetcher, evict::Fifo, 1>("Fifo");
    try_numbered<Prefetcher, prefetcher, evict::Lfu, 2>("Lfu");
    try_numbered<Prefetcher, prefetcher, evict::Sieve, 3>("Sieve");
    try_numbered<Prefetcher, prefetcher, evict::S3Fifo, 4>("S3Fifo");
}
/// Those that weigh sizes or look ahead.
template <class Prefetcher, unsigned prefetcher>
void try_with_value() {
    namespace evict = residency::evict;
    try_numbered<Prefetcher, prefetcher, evict::Gdsf, 5>("Gdsf");
    try_numbered<Prefetcher, prefetcher, evict::ExpectedUse, 6>("ExpectedUse");
    try_numbered<Prefetcher, prefetcher, evict::StaticSplit, 7>("StaticSplit");
    try_numbered<Prefetcher, prefetcher, evict::Scheduled, 8>("Scheduled");
    try_numbered<Prefetcher, prefetcher, evict::Belady, 9>("Belady");
}

}  // namespace model_based
