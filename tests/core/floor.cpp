// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Every schedule runs at its floor, whatever the pool, with the driver's granularities.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "residency/prefetch/scheduled.hpp"
#include "tests/core/compositions.hpp"
#include "tests/support/floor_of_schedules.hpp"
#include "tests/support/sanitized.hpp"

namespace floor_test {

using namespace streaming;
using support::FloorModel;

namespace {

using Ordered =
    residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, compositions::StreamOrdered>;

/// How many of the random models were refused.
template <class Weights>
std::uint64_t refused(std::uint64_t first, std::uint64_t count) {
    std::uint64_t bad = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        Device::Config config;  // granularities as on CUDA
        config.real_bytes = config.checker = false;
        Device device{config};
        const std::uint64_t bytes = FloorModel::weights * FloorModel::largest_bytes;
        auto* const at = static_cast<std::byte*>(must(device.allocate_host(bytes)));
        const auto host = residency::HostBytes::adopt(
            at, bytes, residency::HostMemory::pinned,
            [&device](std::byte* memory) { static_cast<void>(device.deallocate_host(memory).has_value()); });
        const Stream stream = must(device.create_stream());
        const FloorModel model = must(FloorModel::try_make(host, seed));
        const std::string what =
            support::run_at_floor<Weights>(device, model, stream, 3, [](const auto&, const auto&) {});
        if (!what.empty() && bad++ == 0) { MESSAGE("model " << seed << ": " << what); }
    }
    return bad;
}

}  // namespace

TEST_SUITE_BEGIN("core floor");

TEST_CASE("C9: every schedule runs at its floor in a stream-ordered pool, which fragments") {
    CHECK(refused<OnDemand>(1, support::random_cases(3000)) == 0);
}
TEST_CASE("C9: every schedule runs at its floor, with prefetching that fills the pool") {
    CHECK(refused<Ordered>(1, support::random_cases(600)) == 0);
    CHECK(refused<compositions::Hinted>(1, support::random_cases(200)) == 0);
}
TEST_CASE("C9: every schedule runs at its floor in slots and in a planned image") {
    CHECK(refused<Ahead>(1, support::random_cases(200)) == 0);
    CHECK(refused<compositions::Planned>(1, support::random_cases(40)) == 0);
}

TEST_SUITE_END();

}  // namespace floor_test
