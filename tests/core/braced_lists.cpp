// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Wherever a caller passes a list, a list in braces will do.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstring>

#include "tests/core/compositions.hpp"

namespace braced_lists_test {

using namespace streaming;
using namespace std::chrono_literals;
using residency::Placement;

TEST_CASE("schedules, placements, hints, leases, tickets and copies take lists in braces") {
    CheckedDevice device;
    const Model model = uniform_model(device, 4, 8192);
    const auto placed = must(model.catalog.try_with_placement({"w2", "w3"}, Placement::resident));
    CHECK(placed.resident_bytes() == 2 * 8192);
    CHECK(must(placed.try_with_placement({weight(3)}, Placement::streamed)).resident_bytes() == 8192);

    residency::ScheduleBuilder builder{placed};
    builder.step({"w0"}).step({weight(1), weight(2)}, 5us);
    const auto schedule = must(must(builder.try_build()).try_with_compute({3us, 4us}));
    CHECK(schedule[0].compute == 3us);
    const auto recorded =
        must(residency::Schedule::try_recorded(placed, {{{weight(0)}, 3us, {}}, {{weight(1), weight(2)}, 4us, {}}}));
    CHECK(recorded == schedule);

    const Stream stream = must(device.create_stream()), other = must(device.create_stream());
    {
        compositions::Hinted::Options with;
        with.budget = residency::Budget::bytes(4 * 8192);
        auto weights = must(compositions::Hinted::try_create(device, placed, with));
        must(weights.prefetcher().hint({{residency::StorageId{1}, 0.5F, 1}, {residency::StorageId{0}, 1.0F, 0}}));
        CHECK(weights.prefetcher().size() == 2);
        auto pass = must(weights.try_begin(stream));
        auto ticket = must(pass.try_request({weight(0), weight(1)}));
        const auto first = must(ticket.try_lease());
        const auto second = must(pass.try_acquire({weight(1), weight(2)}, other));
        verify(device, model, first, weight(0), stream);
        verify(device, model, second, weight(2), other);

        auto* const out = static_cast<std::byte*>(must(device.allocate_host(2 * 8192)));
        must(device.copy({{out, second.data(weight(1)), 8192}, {out + 8192, second.data(weight(2)), 8192}}, other));
        must(device.synchronize(other));
        CHECK(std::memcmp(out, model.catalog.host_bytes(residency::StorageId{1}), 8192) == 0);
        CHECK(std::memcmp(out + 8192, model.catalog.host_bytes(residency::StorageId{2}), 8192) == 0);
        must(device.deallocate_host(out));
        must(pass.try_end());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
    must(device.destroy_stream(other));
}

}  // namespace braced_lists_test
