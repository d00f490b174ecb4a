// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/pinned.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "residency/device/simulated.hpp"
#include "residency/model/catalog_builder.hpp"

using namespace residency;

TEST_CASE("pinned: neighbours travel in one copy") {
    SimulatedDevice device;
    auto* const host = static_cast<std::byte*>(unwrap(device.allocate_host(3000)));
    for (std::size_t i = 0; i < 3000; ++i) { host[i] = static_cast<std::byte>(i * 7); }
    auto* const to = static_cast<std::byte*>(unwrap(device.allocate(3000)));
    {
        CatalogBuilder builder;
        for (std::size_t i = 0; i < 3; ++i) {
            builder.add(std::string{"w"} + static_cast<char>('0' + i), dtype::u8, {1000},
                        std::span{host + 1000 * i, 1000}, HostMemory::pinned);
        }
        transport::Pinned<SimulatedDevice> pinned;
        REQUIRE(pinned.open(device, builder.build()).has_value());
        const auto stream = unwrap(device.create_stream());
        const std::array<transport::Fetch, 3> neighbours{
            {{StorageId{0}, 0, 1000, to}, {StorageId{1}, 0, 1000, to + 1000}, {StorageId{2}, 0, 1000, to + 2000}}};
        const auto before = device.statistics();
        REQUIRE(pinned.enqueue(neighbours, stream).has_value());
        CHECK(device.statistics().copies - before.copies == 1);
        pinned.close();
    }
    unwrap(device.deallocate(to));
    unwrap(device.deallocate_host(host));
    CHECK(device.report_count() == 0);
}
