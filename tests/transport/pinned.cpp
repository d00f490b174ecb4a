// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/transport/pinned.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "residency/model/catalog_builder.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace pinned_test {

using namespace residency;

TEST_CASE("pinned: neighbours travel in one copy, where they are of one allocation on both sides") {
    SimulatedDevice device;
    auto* const host = static_cast<std::byte*>(unwrap(device.allocate_host(3000)));
    for (std::size_t i = 0; i < 3000; ++i) { host[i] = static_cast<std::byte>(i * 7); }
    auto* const to = static_cast<std::byte*>(unwrap(device.allocate(3000)));
    const auto stream = unwrap(device.create_stream());
    const auto copies_of = [&](std::span<const StorageSource> sources, bool begins_allocation) {
        CatalogBuilder builder;
        for (std::size_t i = 0; i < 3; ++i) {
            builder.add(std::string{"w"} + static_cast<char>('0' + i), dtype::u8, {1000}, sources[i]);
        }
        transport::Pinned<SimulatedDevice> pinned;
        REQUIRE(pinned.open(device, builder.build()).has_value());
        const std::array<transport::Fetch, 3> neighbours{{{StorageId{0}, 0, 1000, to},
                                                          {StorageId{1}, 0, 1000, to + 1000, begins_allocation},
                                                          {StorageId{2}, 0, 1000, to + 2000}}};
        const auto before = device.statistics().copies;
        REQUIRE(pinned.enqueue(neighbours, stream).has_value());
        pinned.close();
        return device.statistics().copies - before;
    };
    const auto all = HostBytes::borrow({host, 3000}, HostMemory::pinned);
    const auto last = HostBytes::borrow({host + 2000, 1000}, HostMemory::pinned);
    const std::array<StorageSource, 3> together{HostSource{all, 0}, HostSource{all, 1000}, HostSource{all, 2000}};
    const std::array<StorageSource, 3> apart{HostSource{all, 0}, HostSource{all, 1000}, HostSource{last, 0}};
    CHECK(copies_of(together, false) == 1);
    CHECK(copies_of(together, true) == 2);
    CHECK(copies_of(apart, false) == 2);
    CHECK(copies_of(apart, true) == 3);
    unwrap(device.destroy_stream(stream));
    unwrap(device.deallocate(to));
    unwrap(device.deallocate_host(host));
    CHECK(device.report_count() == 0);
}

}  // namespace pinned_test
