// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Assertions on, whatever the build says: these are other types than those of the rest of the program, and compiled here.
#undef RESIDENCY_ASSERTIONS
#define RESIDENCY_ASSERTIONS 1
#undef RESIDENCY_HEADER_ONLY
#define RESIDENCY_HEADER_ONLY 1
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "residency/core/residency.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/child.hpp"

using namespace residency;

namespace {

using Weights = Residency<evict::Lru, prefetch::None, pool::Slab<SimulatedDevice>>;

/// Reads an f32 weight as elements of type T.
template <class T>
child::Outcome read_f32_as() {
    return child::run([] {
        SimulatedDevice device;
        auto* const at = static_cast<std::byte*>(unwrap(device.allocate_host(1024)));
        const auto bytes = HostBytes::adopt(at, 1024, HostMemory::pinned, [&device](std::byte* memory) {
            static_cast<void>(device.deallocate_host(memory).has_value());
        });
        CatalogBuilder builder;
        const auto storage = builder.add_storage(1024, {.source = HostSource{bytes, 0}});
        builder.add_weight("w", dtype::f32, {256}, storage);
        Weights weights{device, builder.build()};
        auto pass = weights.begin({});
        const auto lease = pass.acquire(WeightId{0});
        static_cast<void>(lease.get<T>(WeightId{0}));
    });
}

}  // namespace

TEST_CASE("a weight is read as elements of its own dtype, or as bytes; anything else is a broken precondition") {
    const auto as_double = read_f32_as<double>();
    CHECK(as_double.aborted);
    CHECK(as_double.text.find("ask for elements of the weight's own dtype") != std::string::npos);
    CHECK(read_f32_as<std::int32_t>().aborted);
    CHECK_FALSE(read_f32_as<float>().aborted);
    CHECK_FALSE(read_f32_as<std::uint32_t>().aborted);  // its bits
    CHECK_FALSE(read_f32_as<std::byte>().aborted);
}
