// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// C18: in steady state nothing is allocated on the host. The device is one that takes every call and does nothing, so that
// whatever is counted is the library's own.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/evict/expected_use.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/hinted.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/support/archetypes.hpp"

namespace {
// Of this thread: other test cases do not run meanwhile, and other threads do not count.
thread_local std::uint64_t allocations = 0;
}  // namespace

// What new[], and new with nothrow, call.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* const at = std::malloc(bytes != 0 ? bytes : 1)) { return at; }
    throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace {

using residency::StorageId;
using residency::WeightId;

constexpr std::uint64_t storage_bytes = 512;

residency::Catalog make_catalog(std::uint32_t storages) {
    static std::vector<std::byte> bytes(storage_bytes);
    const auto host = residency::HostBytes::borrow(bytes, residency::HostMemory::pinned);
    residency::CatalogBuilder builder;
    for (std::uint32_t i = 0; i < storages; ++i) {
        builder.add("w" + std::to_string(i), residency::dtype::u8, {storage_bytes}, residency::HostSource{host, 0});
    }
    return builder.build();
}
residency::Schedule make_schedule(const residency::Catalog& catalog) {
    residency::ScheduleBuilder builder{catalog};
    const auto n = static_cast<std::uint32_t>(catalog.weights().size());
    for (std::uint32_t i = 0; i + 1 < n; i += 2) { builder.step({WeightId{i}, WeightId{i + 1}}); }
    return builder.build();
}

/// Allocations of ten passes, after as many to warm up.
template <class Evictor, class Prefetcher, class Pool>
std::uint64_t allocations_of(std::uint32_t storages, std::uint64_t budget, bool is_listened = false) {
    using Weights = residency::Residency<Evictor, Prefetcher, Pool>;
    typename Pool::Device device;
    const residency::Catalog catalog = make_catalog(storages);
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(budget);
    options.schedule = make_schedule(catalog);
    std::uint64_t events = 0;
    if (is_listened) {
        options.on_event = [&](const residency::Event&) { ++events; };
    }
    Weights weights{device, catalog, options};
    const auto run = [&] {
        auto pass = weights.begin({});
        for (const auto& step : weights.schedule()) {
            if constexpr (requires { weights.prefetcher().hint({}); }) {
                const residency::prefetch::Hint hint{StorageId{(step.position * 2 + 4) % storages}};
                static_cast<void>(weights.prefetcher().hint({&hint, 1}).has_value());
            }
            auto lease = pass.acquire(step);
            auto again = pass.acquire(step.weights.front());
            lease.use_on({});
            auto ticket = pass.request(step.weights.back());
            auto later = ticket.lease();
        }
    };
    for (int i = 0; i < 10; ++i) { run(); }
    const std::uint64_t before = allocations;
    const auto evictions = weights.statistics().total.evictions;
    for (int i = 0; i < 10; ++i) { run(); }
    const std::uint64_t counted = allocations - before;
    CHECK((events > 0) == is_listened);
    if (weights.statistics().streaming) { CHECK(weights.statistics().total.evictions > evictions); }
    return counted;
}

}  // namespace

TEST_SUITE_BEGIN("core allocations");

TEST_CASE("the counter counts") {
    const std::uint64_t before = allocations;
    const std::vector<int> some(10);
    CHECK(some.size() == 10);
    CHECK(allocations == before + 1);
}

TEST_CASE("C18: a steady state allocates nothing, streaming or resident") {
    namespace evict = residency::evict;
    namespace prefetch = residency::prefetch;
    using StreamOrdered = residency::pool::StreamOrdered<archetype::Device>;
    using Slab = residency::pool::Slab<archetype::MappingDevice>;
    for (const std::uint64_t budget : {std::uint64_t{16 * 1024}, std::uint64_t{1} << 30}) {
        CHECK(allocations_of<evict::Lru, prefetch::None, StreamOrdered>(64, budget) == 0);
        CHECK(allocations_of<evict::Lru, prefetch::Lookahead<4>, Slab>(64, budget) == 0);
        CHECK(allocations_of<evict::Scheduled, prefetch::Scheduled, StreamOrdered>(64, budget) == 0);
        CHECK(allocations_of<evict::ExpectedUse, prefetch::Hinted, Slab>(64, budget) == 0);
        // Events allocate nothing either; what their handler allocates is its own.
        CHECK(allocations_of<evict::Lru, prefetch::None, StreamOrdered>(64, budget, true) == 0);
        CHECK(allocations_of<evict::Scheduled, prefetch::Scheduled, StreamOrdered>(64, budget, true) == 0);
        CHECK(allocations_of<evict::ExpectedUse, prefetch::Hinted, Slab>(64, budget, true) == 0);
    }
}

TEST_SUITE_END();
