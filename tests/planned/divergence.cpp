// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Off the plan: speed changes, results do not; back on it, nothing is left of that.
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include "tests/planned/support.hpp"

namespace divergence_test {

using namespace planned;
using residency::ErrorKind;

TEST_SUITE_BEGIN("planned divergence");

TEST_CASE("steps that are skipped cost nothing but what they would have needed; the plan goes on") {
    CheckedDevice device;
    const Model model = uniform_model(device, 16, 4 * chunk);
    const Stream stream = must(device.create_stream());
    for (const std::uint64_t chunks : {4U, 10U, 32U, 48U}) {
        CAPTURE(chunks);
        auto weights = make(device, model, chunks * chunk, in_order(model));
        run_pass(weights, model, stream);
        for (const std::uint32_t stride : {2U, 3U, 5U, 15U}) {
            auto pass = must(weights.try_begin(stream));
            for (std::uint32_t s = 0; s < 16; s += stride) {
                run_step(device, model, pass, weights.schedule()[s], stream);
            }
            must(pass.try_end());
            CHECK(weights.statistics().last_pass.demand_misses == 0);
            CHECK(weights.statistics().last_pass.divergences > 0);
        }
        must(must(weights.try_begin(stream)).try_end());
        expect_back_on_plan(weights, model, stream);
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE(
    "backwards, at random, and in sets that no step declares: right bytes, counted, and the plan again afterwards") {
    for (const std::uint64_t chunks : {4U, 9U, 24U, 40U}) {
        CAPTURE(chunks);
        CheckedDevice device;
        const Model model = make_model(device, std::vector<Spec>(16, Spec{3 * chunk + 512}));
        const Stream stream = must(device.create_stream());
        {
            auto weights = make(device, model, std::max<std::uint64_t>(chunks, 8) * chunk, in_order(model));
            std::mt19937_64 random{chunks};
            for (int round = 0; round < 4; ++round) {
                run_pass(weights, model, stream);
                {
                    auto pass = must(weights.try_begin(stream));
                    for (std::uint32_t s = 16; s-- > 0;) {
                        run_step(device, model, pass, weights.schedule()[s], stream);
                    }
                }
                CHECK(weights.statistics().last_pass.divergences >= 15);
                {
                    auto pass = must(weights.try_begin(stream));
                    for (int i = 0; i < 20; ++i) {
                        run_step(device, model, pass, weights.schedule()[static_cast<std::uint32_t>(random() % 16)],
                                 stream);
                    }
                }
                {
                    auto pass = must(weights.try_begin(stream));
                    for (int i = 0; i < 20; ++i) {
                        const auto a = weight(static_cast<std::uint32_t>(random() % 16)),
                                   b = weight(static_cast<std::uint32_t>(random() % 16));
                        auto lease = pass.try_acquire({a, b});
                        if (!lease) {
                            CHECK(lease.error().kind() == ErrorKind::budget);
                            continue;
                        }
                        verify(device, model, *lease, a, stream);
                        verify(device, model, *lease, b, stream);
                    }
                }
                expect_back_on_plan(weights, model, stream);
            }
            CHECK(weights.statistics().total.demand_misses > 0);
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("leases overlap over steps, and outlive passes") {
    for (const std::uint64_t chunks : {12U, 16U, 30U, 50U}) {
        CAPTURE(chunks);
        CheckedDevice device;
        const Model model = uniform_model(device, 16, 4 * chunk);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make(device, model, chunks * chunk, in_order(model));
            // Two at once, all the way round.
            Weights::Lease last;
            std::uint32_t last_step = 0;
            for (int p = 0; p < 4; ++p) {
                auto pass = must(weights.try_begin(stream));
                for (std::uint32_t s = 0; s < 16; ++s) {
                    auto lease = must(pass.try_acquire(weights.schedule()[s]));
                    verify(device, model, lease, weight(s), stream);
                    if (last) { verify(device, model, last, weight(last_step), stream); }
                    last = std::move(lease);
                    last_step = s;
                }
            }
            last.end();
            expect_back_on_plan(weights, model, stream);
            // One kept for three passes, while the others come and go.
            auto pass = must(weights.try_begin(stream));
            run_step(device, model, pass, weights.schedule()[0], stream);
            auto kept = must(pass.try_acquire(weights.schedule()[1]));
            const std::byte* const at = kept.data(weight(1));
            for (std::uint32_t s = 2; s < 16; ++s) { run_step(device, model, pass, weights.schedule()[s], stream); }
            must(pass.try_end());
            for (int p = 0; p < 3; ++p) {
                run_pass(weights, model, stream);
                CHECK(kept.data(weight(1)) == at);
                verify(device, model, kept, weight(1), stream);
            }
            kept.end();
            expect_back_on_plan(weights, model, stream);
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("C17: two storages of one place needed together are told apart; where there is no room, the numbers say so") {
    CheckedDevice device;
    const Model model = uniform_model(device, 12, 4 * chunk);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make(device, model, 8 * chunk, in_order(model));
        run_pass(weights, model, stream);
        std::uint64_t moved = 0;
        for (std::uint32_t first = 0; first < 12; ++first) {
            for (std::uint32_t second = 0; second < 12; ++second) {
                if (first == second) { continue; }
                const auto waits = weights.statistics().total.host_waits;
                auto pass = must(weights.try_begin(stream));
                auto a = must(pass.try_acquire(weight(first)));
                auto b = must(pass.try_acquire(weight(second)));
                verify(device, model, a, weight(first), stream);
                verify(device, model, b, weight(second), stream);
                verify(device, model, a, weight(first), stream);
                moved += weights.statistics().total.host_waits - waits;

                const auto before = weights.statistics().total;
                const auto refused =
                    pass.try_acquire(weight((first + second + 1) % 12 == first || (first + second + 1) % 12 == second
                                                ? (first + second + 4) % 12
                                                : (first + second + 1) % 12));
                if (refused) { continue; }
                CHECK(refused.error().kind() == ErrorKind::budget);
                const auto* numbers = refused.error().detail<residency::BudgetNumbers>();
                REQUIRE(numbers != nullptr);
                CHECK(numbers->budget_bytes == 8 * chunk);
                CHECK(weights.statistics().total.acquires == before.acquires);
                verify(device, model, b, weight(second), stream);
            }
        }
        CHECK(moved > 0);
        expect_back_on_plan(weights, model, stream);
        {
            auto pass = must(weights.try_begin(stream));
            auto a = must(pass.try_acquire(weight(0)));
            auto b = must(pass.try_acquire(weight(1)));
            const auto refused = pass.try_acquire(weight(2));
            REQUIRE_FALSE(refused);
            CHECK(refused.error().kind() == ErrorKind::budget);
            CHECK(refused.error().message().find(residency::detail::in_bytes(8 * chunk)) != std::string::npos);
            a.end();
            auto c = must(pass.try_acquire(weight(2)));
            verify(device, model, c, weight(2), stream);
            verify(device, model, b, weight(1), stream);
        }
        expect_back_on_plan(weights, model, stream);
        CHECK_FALSE(weights.failure());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("divergence on several streams, with slow kernels and a link that is much faster or slower than planned") {
    for (const double factor : {0.02, 50.0}) {
        auto config = small_config();
        config.link.to_device_bytes_per_second *= factor;
        config.jitter = 10;
        CheckedDevice device{config};
        const Model model = uniform_model(device, 10, 3 * chunk + 100);
        const Stream first = must(device.create_stream()), second = must(device.create_stream());
        {
            auto weights = make(device, model, 12 * chunk, in_order(model));
            std::mt19937_64 random{7};
            for (int p = 0; p < 12; ++p) {
                const bool astray = p % 4 != 3;
                auto pass = must(weights.try_begin(p % 2 == 0 ? first : second));
                Weights::Lease kept;
                std::uint32_t which = 0;
                for (std::uint32_t s = 0; s < 10; ++s) {
                    const auto step = astray && random() % 3 == 0 ? static_cast<std::uint32_t>(random() % 10) : s;
                    const Stream on = random() % 2 == 0 ? first : second;
                    auto lease = pass.try_acquire(weights.schedule()[step], on);
                    if (!lease) {
                        kept.end();
                        lease = pass.try_acquire(weights.schedule()[step], on);
                    }
                    REQUIRE(lease);
                    verify(device, model, *lease, weight(step), on, std::chrono::microseconds{random() % 300});
                    if (kept) { verify(device, model, kept, weight(which), first); }
                    if (astray && random() % 4 == 0) {
                        must(lease->try_use_on(first));
                        kept = std::move(*lease);
                        which = step;
                    }
                }
            }
            expect_back_on_plan(weights, model, first);
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(first));
        must(device.destroy_stream(second));
    }
}

TEST_SUITE_END();

}  // namespace divergence_test
