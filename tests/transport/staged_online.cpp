// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include <doctest/doctest.h>

#include "residency/evict/queues.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/transport/staged_streaming.hpp"

namespace staged_online_test {

using streaming::must;
using OnDemand = residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<2>,
                                      residency::pool::StreamOrdered<streaming::Device>, staged_streaming::Staged>;

TEST_CASE("staged, decided online: passes from a file") {
    staged_streaming::stream_from_file<OnDemand>(6 * 20480, 20000);
}

TEST_CASE("staged, decided online: a file that is truncated fails the pass, and the object can be destroyed") {
    staged_streaming::change_while_streaming<OnDemand>(6 * 20480, 20000);
}

TEST_CASE("C20: staged, on a device that is lost: nothing that it may still read is given back") {
    using residency::simulation::CallKind;
    streaming::CheckedDevice device;
    device.leaks_expected = true;
    const auto model = streaming::uniform_model(device, 8, 20000);
    const staged_streaming::InFile file{model};
    const auto stream = must(device.create_stream());
    {
        auto weights =
            must(OnDemand::try_create(device, file.catalog, staged_streaming::options<OnDemand>(model, 6 * 20480)));
        auto pass = must(weights.try_begin(stream));
        auto lease = must(pass.try_acquire({streaming::weight(0)}));
        device.lose_device();
        lease.end();
        CHECK_FALSE(pass.try_end());
        const auto statistics = device.statistics();
        CHECK(statistics.of(CallKind::deallocate_host) == 0);
    }
    const auto statistics = device.statistics();
    CHECK(statistics.of(CallKind::deallocate_host) == 0);
    CHECK(statistics.of(CallKind::destroy_flag) == 0);
    CHECK(statistics.of(CallKind::destroy_event) == 0);
}

TEST_CASE("staged, decided online: whichever read fails, nothing wrong is used unnoticed") {
    staged_streaming::fail_every_read<OnDemand>(4 * 20480, 20000, 8192);
}

}  // namespace staged_online_test
