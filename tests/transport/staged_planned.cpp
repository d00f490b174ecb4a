// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <utility>

#include <doctest/doctest.h>

#include "residency/evict/planned.hpp"
#include "residency/host/loading.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/planned.hpp"
#include "tests/transport/staged_streaming.hpp"

using namespace residency;
using staged_streaming::InFile;
using streaming::must;
using PlannedStaged =
    Residency<evict::Planned, prefetch::Planned, pool::Virtual<streaming::Device>, staged_streaming::Staged>;

TEST_CASE("staged, planned: passes from a file") {
    staged_streaming::stream_from_file<PlannedStaged>(std::uint64_t{8} << 20, 2'500'000);
}

TEST_CASE("staged, planned: a file that is truncated fails the pass, and the object can be destroyed") {
    staged_streaming::change_while_streaming<PlannedStaged>(std::uint64_t{8} << 20, 2'500'000);
}

TEST_CASE("staged, planned: the first pass runs while the model is still loading") {
    streaming::CheckedDevice device;
    const auto model = streaming::uniform_model(device, 8, 2'500'000);
    const InFile in_file{model};
    const auto stream = must(device.create_stream());
    {
        host::LoadOptions load;
        load.threads = 1;
        load.piece_bytes = 65536;
        const auto loading = must(host::Loading::try_start(device, in_file.catalog, load));
        auto settings = staged_streaming::options<PlannedStaged>(model, std::uint64_t{8} << 20);
        settings.transport.loading = loading;
        auto weights = must(PlannedStaged::try_create(device, loading->catalog(), std::move(settings)));
        for (int pass = 0; pass < 3; ++pass) { streaming::run_pass(weights, model, stream); }
        must(device.synchronize());
        must(loading->wait());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 3 * model.catalog.total_bytes());
    }
    must(device.destroy_stream(stream));
}
