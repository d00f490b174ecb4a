// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The ranges that a tool sees.
#include "residency/interop/nvtx.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/nvtx/injected.hpp"
#include "tests/planned/support.hpp"

using injected::seen;
using namespace planned;

TEST_CASE("NVTX: ranges of passes, steps, waits and copies are balanced, and have the names of steps and weights") {
    auto config = small_config();
    config.link.to_device_bytes_per_second = 1e8;  // streams wait
    CheckedDevice device{config};
    const Model model = uniform_model(device, 8, 2 * chunk);
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{model.catalog};
    for (std::uint32_t i = 0; i < 8; ++i) {
        const auto id = weight(i);
        builder.step({&id, 1}, std::chrono::microseconds{2}, i == 7 ? "" : "layer " + std::to_string(i));
    }
    {
        residency::NvtxRanges ranges;
        auto with = options(9 * chunk, must(builder.try_build()));
        with.on_event = std::ref(ranges);
        auto weights = must(Weights::try_create(device, model.catalog, std::move(with)));
        for (int i = 0; i < 3; ++i) { run_pass(weights, model, stream); }
        must(weights.try_drain());
        CHECK(seen.domains == std::vector<std::string>{"residency"});
        CHECK(seen.open.empty());
        CHECK(seen.unknown_ends == 0);
        CHECK(seen.count("pass ") == 3);
        CHECK(seen.count("layer 3") == 3);
        CHECK(seen.count("layer ") == 3 * 7);
        CHECK(seen.count("step 7") == 3);
        CHECK(seen.count("copy w") == static_cast<int>(weights.statistics().total.calls));
        CHECK(seen.count("wait for w") > 0);
        for (const auto& [name, bytes] : seen.bytes) {
            CAPTURE(name);
            CHECK(name.compare(0, 6, "copy w") == 0);
            CHECK(bytes > 0);
        }

        auto graph = must(weights.try_capture(stream, [&](auto& pass) {
            for (const auto& step : weights.schedule()) { run_step(device, model, pass, step, stream); }
        }));
        must(graph.try_launch(stream));
        CHECK(seen.marks == std::vector<std::string>{"graph of pass 3"});
        must(weights.try_drain());

        auto pass = must(weights.try_begin(stream));  // what is open when the ranges end is ended
        auto lease = must(pass.try_acquire(residency::StepRange{0, 2}));
        CHECK(seen.open.size() == 2);
        {
            residency::NvtxRanges others;
            others({.kind = residency::EventKind::lease_began,
                    .lease = 1,
                    .catalog = &weights.catalog(),
                    .schedule = &weights.schedule()});
            CHECK(seen.open.size() == 3);
        }
        CHECK(seen.open.size() == 2);
        lease.end();
        must(pass.try_end());
        CHECK(seen.count("steps 0 to 1") == 1);
        must(weights.try_drain());
    }
    CHECK(seen.open.empty());
    CHECK(seen.unknown_ends == 0);
    must(device.synchronize());
    must(device.destroy_stream(stream));
    CHECK(*model.wrong == 0);
}
