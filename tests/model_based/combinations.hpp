// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Evictors with one prefetcher, by RESIDENCY_TEST_COMBINATIONS of CMake:
//   few    every evictor with one or two of the four prefetchers
//   pairs  every evictor with every prefetcher, on one of the two pools: every two policies meet
//   all    the same on both pools, one after the other

#include <array>
#include <cstddef>
#include <utility>

#include <doctest/doctest.h>

#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/evict/ranked.hpp"
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
/// A group of evictors with one of the four prefetchers; with `few`, one of the group.
template <class Prefetcher, unsigned prefetcher, class... Evictors>
void try_group(const std::array<const char*, sizeof...(Evictors)>& names) {
    const auto try_numbered = [&]<class Evictor, std::size_t number>() {
        if constexpr (with_every_prefetcher || number == prefetcher % sizeof...(Evictors)) {
            try_pair<Evictor, Prefetcher, (number / 2 + prefetcher) % 2 == 0>(names[number]);
        }
    };
    [&]<std::size_t... numbers>(std::index_sequence<numbers...>) {
        (try_numbered.template operator()<Evictors, numbers>(), ...);
    }(std::index_sequence_for<Evictors...>{});
}
/// Those that rank by when a storage came or was used.
template <class Prefetcher, unsigned prefetcher>
void try_with_history() {
    namespace evict = residency::evict;
    try_group<Prefetcher, prefetcher, evict::Lru, evict::Fifo, evict::Sieve, evict::S3Fifo>(
        {"Lru", "Fifo", "Sieve", "S3Fifo"});
}
/// Those that rank by how often it was used, or by its size.
template <class Prefetcher, unsigned prefetcher>
void try_with_value() {
    namespace evict = residency::evict;
    try_group<Prefetcher, prefetcher, evict::Lfu, evict::Gdsf, evict::ExpectedUse>({"Lfu", "Gdsf", "ExpectedUse"});
}
/// Those that look ahead.
template <class Prefetcher, unsigned prefetcher>
void try_with_schedule() {
    namespace evict = residency::evict;
    try_group<Prefetcher, prefetcher, evict::StaticSplit, evict::Scheduled, evict::Belady>(
        {"StaticSplit", "Scheduled", "Belady"});
}

}  // namespace model_based
