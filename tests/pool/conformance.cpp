// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/conformance/memory_pool.hpp"

#include <doctest/doctest.h>

#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/fixed_pool.hpp"
#include "tests/support/watched_device.hpp"

namespace conformance_test {

namespace conformance = residency::conformance;
using Watched = support::WatchedDevice;
using Slab = residency::pool::Slab<Watched>;
using StreamOrdered = residency::pool::StreamOrdered<Watched>;
using FixedSlab = support::FixedPool<Slab>;

namespace pool = residency::pool;
static_assert(pool::ResizablePool<Slab> && pool::RecoverablePool<Slab>);
static_assert(pool::ResizablePool<StreamOrdered> && pool::RecoverablePool<StreamOrdered>);
static_assert(pool::MemoryPool<FixedSlab> && !pool::ResizablePool<FixedSlab> && !pool::RecoverablePool<FixedSlab>);

TEST_SUITE_BEGIN("pools");

TEST_CASE("Slab keeps the contract of pools") {
    Watched device;
    conformance::check_memory_pool<Slab>(device, {.allocations = test::allocations_here});
}
TEST_CASE("StreamOrdered keeps the contract of pools") {
    Watched device;
    conformance::check_memory_pool<StreamOrdered>(device, {.fragments = true, .allocations = test::allocations_here});
}
TEST_CASE("a pool that can neither be resized nor recover keeps the contract of pools") {
    Watched device;
    conformance::check_memory_pool<FixedSlab>(device, {.allocations = test::allocations_here});
}

TEST_CASE("what comes and goes for long leaves no pool in pieces") {
    Watched device;
    conformance::check_memory_pool<Slab>(device, {.seed = 1001, .runs = 4, .operations = 2000});
    conformance::check_memory_pool<StreamOrdered>(device,
                                                  {.seed = 1001, .runs = 4, .operations = 2000, .fragments = true});
}
// By command: test_pool --no-skip --test-case="soak*"
TEST_CASE("soak: a million operations on each pool" * doctest::skip()) {
    Watched device;
    conformance::check_memory_pool<Slab>(device, {.seed = 2001, .runs = 20, .operations = 50000});
    conformance::check_memory_pool<StreamOrdered>(device,
                                                  {.seed = 2001, .runs = 20, .operations = 50000, .fragments = true});
}

TEST_SUITE_END();

}  // namespace conformance_test
