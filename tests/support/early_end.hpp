// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Passes that end before the last step of their schedule.

#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include "tests/support/streaming.hpp"

namespace streaming {

/// One pass of the first `steps` steps; what it counted, with what came between it and the next pass.
template <class Weights>
residency::Counters pass_of(Weights& weights, const Model& model, Stream stream, std::uint32_t steps) {
    const auto before = weights.statistics().total;
    auto pass = must(weights.try_begin(stream));
    for (std::uint32_t i = 0; i < steps; ++i) {
        auto lease = must(pass.try_acquire(weights.schedule()[i]));
        for (const auto id : weights.schedule()[i].weights) { verify(weights.device(), model, lease, id, stream); }
    }
    must(pass.try_end());
    return weights.statistics().total - before;
}

/// Of a schedule of 30 equal steps: passes that end after a third copy a third, in the steady state, whatever came before; a pass that
/// goes on is right, and whole passes copy again what they did at first, up to `slack_percent`: what an online policy holds when they
/// begin is another set, and what it copies differs by some storages.
template <class Weights>
void check_early_end(typename Weights::Options options, const Model& model, Device& device,
                     std::uint64_t slack_percent) {
    constexpr std::uint32_t steps = 30, third = 10;
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, model.catalog, std::move(options)));
        REQUIRE(weights.schedule().size() == steps);
        const auto settled = [&](std::uint32_t length) {
            for (int i = 0; i < 5; ++i) { static_cast<void>(pass_of(weights, model, stream, length)); }
            std::uint64_t bytes = 0;
            for (int i = 0; i < 20; ++i) { bytes += pass_of(weights, model, stream, length).fetched_bytes; }
            return bytes;
        };
        const std::uint64_t whole = settled(steps);
        CHECK(weights.statistics().pass_steps == steps);
        for (int turn = 0; turn < 2; ++turn) {
            CAPTURE(turn);
            const std::uint64_t early = settled(third);
            CHECK(10 * early <= 11 * whole / 3);
            CHECK((weights.statistics().pass_steps == third || !weights.statistics().streaming));
            const auto goes_on = pass_of(weights, model, stream, steps);
            CHECK(goes_on.acquires == steps);
            const std::uint64_t again = settled(steps);
            CHECK(100 * again <= (100 + slack_percent) * whole);
        }
        // Another end each time.
        for (std::uint32_t i = 0; i < 40; ++i) {
            static_cast<void>(pass_of(weights, model, stream, (7 * i + i * i) % (steps + 1)));
            CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
        }
        must(weights.try_drain());
    }
    CHECK(*model.wrong == 0);
    must(device.destroy_stream(stream));
}

}  // namespace streaming
