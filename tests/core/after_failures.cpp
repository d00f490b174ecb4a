// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// What is left after calls that failed: the old budget, the old memory, an object that goes on.

#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/core/compositions.hpp"
#include "tests/support/fixed_pool.hpp"

namespace after_failures_test {

using namespace streaming;
using residency::Budget;
using CallKind = Device::CallKind;

namespace {

constexpr std::uint64_t page = 4096;

using HintedOnSlab = residency::Residency<residency::evict::Lru, residency::prefetch::Hinted, compositions::Slab>;
using OnReopened = residency::Residency<residency::evict::Lru, residency::prefetch::None,
                                        support::FixedPool<compositions::StreamOrdered>>;

template <class Weights>
residency::Status acquire(Weights& weights, const Model& model, Stream stream, std::uint32_t first, std::uint32_t last,
                          std::optional<CallKind> fails = {}) {
    auto pass = must(weights.try_begin(stream));
    if (fails) { weights.device().fail(*fails, 1); }
    std::vector<residency::WeightId> ids;
    for (std::uint32_t i = first; i < last; ++i) { ids.push_back(weight(i)); }
    auto lease = pass.try_acquire(std::span<const residency::WeightId>{ids});
    if (!lease) { return lease.error(); }
    for (const auto id : ids) { verify(weights.device(), model, *lease, id, stream); }
    return {};
}

/// Changes of the budget of `from` pages to one of `to`, in which the nth call to the device fails, for each n, and what `also` makes fail.
/// The old budget stays in force where the change fails; check(weights, model, stream) is called then. How many failed.
template <class Weights, class Also, class Check>
int fail_changes(std::uint32_t from, std::uint32_t to, Also&& also, Check&& check) {
    int failures = 0;
    for (std::uint64_t nth = 1; nth <= 60; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make<Weights>(device, model, from * page);
            must(acquire(weights, model, stream, 0, from));
            device.fail(CallKind::any, nth);
            also(device);
            const bool has_failed = !weights.try_set_budget(Budget::bytes(to * page));
            device.clear_failures();
            failures += has_failed ? 1 : 0;
            if (has_failed) {
                CHECK(weights.budget().bytes == from * page);
                check(weights, model, stream);
            }
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
    return failures;
}

}  // namespace

TEST_CASE_TEMPLATE("C19: after a transfer that failed, the memory that it was to fill is given back", Weights, OnDemand,
                   compositions::OnSlab) {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Weights>(device, model, 4 * page);
        must(acquire(weights, model, stream, 0, 1));
        for (const CallKind kind : {CallKind::copy, CallKind::record}) {
            const auto before = weights.statistics().requested_bytes;
            CHECK_FALSE(acquire(weights, model, stream, 2, 5, kind));
            CHECK(weights.statistics().requested_bytes == before);
        }
        must(acquire(weights, model, stream, 2, 5));
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C19: after a transfer ahead of its use that failed, the memory that it was to fill is given back") {
    CheckedDevice device;
    const Model model = uniform_model(device, 6, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<Ahead>(device, model, 4 * page, in_order(model));
        auto pass = must(weights.try_begin(stream));
        device.fail(CallKind::copy, 2);  // the second is the one ahead
        auto lease = must(pass.try_acquire(weights.schedule()[0]));
        CHECK(weights.statistics().requested_bytes == page);
        verify(device, model, lease, weight(0), stream);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE(
    "C19: after a change of the budget that failed at any call, the old one is in force, with all its memory", Weights,
    OnDemand, compositions::OnSlab) {
    const auto check = [](Weights& weights, const Model& model, Stream stream) {
        must(acquire(weights, model, stream, 0, 6));
        must(acquire(weights, model, stream, 2, 8));
        CHECK(weights.statistics().requested_bytes == 6 * page);
        CHECK(weights.statistics().held_bytes <= 6 * page);
    };
    CHECK(fail_changes<Weights>(6, 3, [](CheckedDevice&) {}, check) > 3);
}

TEST_CASE("C19: what the device refuses to take back when a move fails is given back later") {
    for (std::uint64_t nth = 1; nth <= 6; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make<OnDemand>(device, model, 6 * page);
            must(acquire(weights, model, stream, 0, 6));
            // Three storages leave, others move to a smaller pool: a copy fails, and so does what takes its target back.
            device.fail(CallKind::copy, 1);
            device.fail(CallKind::pool_deallocate, nth);
            static_cast<void>(weights.try_set_budget(Budget::bytes(3 * page)).has_value());
            device.clear_failures();
            must(acquire(weights, model, stream, 5, 8));
            must(weights.try_set_budget(Budget::bytes(4 * page)));
            must(acquire(weights, model, stream, 0, 4));
            must(weights.try_drain());
            CHECK(weights.pending_bytes() == 0);
            CHECK(weights.statistics().requested_bytes == 4 * page);
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE("C19: where everything fits, memory that a failed transfer could not give back is filled before it is read") {
    for (std::uint32_t nth = 1; nth <= 2; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page);
        const Stream stream = must(device.create_stream());
        {
            auto weights = make<OnDemand>(device, model, 16 * page);
            must(acquire(weights, model, stream, 0, 4));
            device.fail(CallKind::pool_deallocate, nth);
            CHECK_FALSE(acquire(weights, model, stream, 4, 6, CallKind::copy));
            device.clear_failures();
            for (const std::uint32_t other : {4U, 5U, 6U, 7U}) {  // first those that came back, so that all have memory
                if (other != 3 + nth) { must(acquire(weights, model, stream, other, other + 1)); }
            }
            CHECK(weights.statistics().requested_bytes == 8 * page);
            for (std::uint32_t each = 0; each < 8; ++each) { must(acquire(weights, model, stream, each, each + 1)); }
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

TEST_CASE(
    "C19: a pool that is closed after a budget whose undoing failed is opened by who needs it, whoever comes before") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnReopened>(device, model, 16 * page);
        must(acquire(weights, model, stream, 0, 8));
        fail_from(device, CallKind::create_pool, 1);
        CHECK_FALSE(weights.try_set_budget(Budget::bytes(7 * page)));
        device.clear_failures();
        CHECK(weights.statistics().held_bytes == 0);
        must(acquire(weights, model, stream, 0, 0));  // nothing, which a closed pool has
        must(acquire(weights, model, stream, 0, 8));
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
        CHECK(*model.verified == 16 * page);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE("C8: a larger budget that fails, and whose undoing fails too, is never used") {
    const auto fail_undoing = [](CheckedDevice& device) {
        device.fail(CallKind::create_pool, 2);  // the first is of the larger budget
    };
    const auto check = [](OnDemand& weights, const Model& model, Stream stream) {
        for (const std::uint32_t first : {0U, 3U, 5U, 1U}) {
            must(acquire(weights, model, stream, first, first + 3));
            CHECK(weights.statistics().requested_bytes <= 3 * page);
        }
        must(weights.try_drain());
        CHECK(weights.pending_bytes() == 0);
        CHECK(weights.statistics().held_bytes <= 3 * page);
    };
    CHECK(fail_changes<OnDemand>(3, 7, fail_undoing, check) > 3);
}

TEST_CASE("C19: memory of a plan that failed on its way, and could not be undone, is given back by drain()") {
    int left_behind = 0;
    for (std::uint64_t nth = 1; nth <= 30; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page);
        const Stream stream = must(device.create_stream());
        {
            auto chosen = options<compositions::Planned>(3 * page, in_order(model));
            chosen.policies.pool.chunk_bytes = page;
            auto weights = must(compositions::Planned::try_create(device, model.catalog, std::move(chosen)));
            run_pass(weights, model, stream);
            // From one call on everything fails, what would put the old plan back included.
            fail_from(device, CallKind::any, nth);
            const bool has_failed = !weights.try_set_budget(Budget::bytes(7 * page));
            device.clear_failures();
            const std::uint64_t most = (has_failed ? 3 : 7) * page;
            left_behind += weights.statistics().held_bytes > most ? 1 : 0;
            must(weights.try_drain());
            CHECK(weights.pending_bytes() == 0);
            CHECK(weights.statistics().held_bytes <= most);
            run_pass(weights, model, stream);
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
    CHECK(left_behind > 0);
}

TEST_CASE("C31: memory that a failed resume() could not give back counts, and is given back before more is taken") {
    int left_behind = 0;
    for (std::uint64_t nth = 1; nth <= 40; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page);
        const Stream stream = must(device.create_stream());
        const std::uint64_t before = device.peak_used_bytes();
        {
            auto chosen = options<compositions::Planned>(7 * page, in_order(model));
            chosen.policies.pool.chunk_bytes = page;
            auto weights = must(compositions::Planned::try_create(device, model.catalog, std::move(chosen)));
            run_pass(weights, model, stream);
            must(weights.try_suspend());
            fail_from(device, CallKind::any, nth);
            static_cast<void>(weights.try_resume().has_value());
            device.clear_failures();
            left_behind += weights.is_suspended() && weights.statistics().held_bytes > 0 ? 1 : 0;
            must(weights.try_resume());
            run_pass(weights, model, stream);
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
            CHECK(device.peak_used_bytes() <= before + 7 * page);
        }
        must(device.destroy_stream(stream));
    }
    CHECK(left_behind > 0);
}

TEST_CASE_TEMPLATE(
    "C19: a schedule that failed on its way, and could not be undone, leaves the one in force, which works again",
    Weights, compositions::OnSlab, Ahead, HintedOnSlab) {
    int left_closed = 0;
    for (const bool is_drained : {false, true}) {
        for (std::uint64_t nth = 1; nth <= 30; ++nth) {
            CAPTURE(nth);
            CheckedDevice device;
            // The large one is read by the second schedule only, so that its slots are larger.
            const Model model = make_model(device, {{page}, {page}, {page}, {page}, {2 * page}});
            residency::ScheduleBuilder of_small{model.catalog}, of_all{model.catalog};
            for (std::uint32_t i = 0; i < 5; ++i) {
                if (i < 4) { of_small.step({weight(i)}); }
                of_all.step({weight(i)});
            }
            const residency::Schedule small = must(of_small.try_build(residency::Cycle::cyclic));
            const residency::Schedule all = must(of_all.try_build(residency::Cycle::cyclic));
            const Stream stream = must(device.create_stream());
            {
                auto weights = make<Weights>(device, model, 4 * page, small);
                run_pass(weights, model, stream);
                // From one call on everything fails, what would put the old layout back included.
                fail_from(device, CallKind::any, nth);
                const bool has_failed = !weights.try_set_schedule(all);
                CHECK((weights.schedule() == small) == has_failed);
                device.clear_failures();
                left_closed += weights.statistics().held_bytes == 0 ? 1 : 0;
                if (is_drained) {
                    must(weights.try_drain());
                    CHECK(weights.statistics().held_bytes == 4 * page);
                }
                run_pass(weights, model, stream);
                CHECK(weights.statistics().held_bytes == 4 * page);
                must(weights.try_set_schedule(all));
                run_pass(weights, model, stream);
                must(weights.try_drain());
                CHECK(*model.wrong == 0);
            }
            must(device.destroy_stream(stream));
        }
    }
    CHECK(left_closed > 0);
}

TEST_CASE("C19: a budget whose undoing failed leaves the one in force, not the one that was refused then") {
    CheckedDevice device;
    const Model model = uniform_model(device, 8, page);
    const Stream stream = must(device.create_stream());
    {
        auto weights = make<OnReopened>(device, model, 3 * page);
        must(acquire(weights, model, stream, 0, 3));
        for (int change = 1; change <= 2; ++change) {  // the second finds a pool that is closed
            fail_from(device, CallKind::create_pool, 1);
            CHECK_FALSE(weights.try_set_budget(Budget::bytes(7 * page)));
            device.clear_failures();
            CHECK(weights.budget().bytes == 3 * page);
        }
        for (const std::uint32_t first : {0U, 3U, 5U}) {
            must(acquire(weights, model, stream, first, first + 3));
            CHECK(weights.statistics().held_bytes <= 3 * page);
        }
        must(weights.try_drain());
        CHECK(*model.wrong == 0);
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C8: what the weights hold already counts as free where a budget is a share of what is free",
                   Weights, OnDemand, compositions::Planned) {
    CheckedDevice device;
    const Model model = uniform_model(device, 64, page);
    auto options = streaming::options<Weights>(40 * page, in_order(model));
    if constexpr (requires { options.policies.pool.chunk_bytes; }) { options.policies.pool.chunk_bytes = page; }
    options.reserve_bytes = 0;
    const Stream stream = must(device.create_stream());
    {
        auto weights = must(Weights::try_create(device, model.catalog, std::move(options)));
        run_pass(weights, model, stream);
        // The rest of the device is taken: 8 pages are left.
        const std::uint64_t held = weights.statistics().held_bytes;
        CHECK(held == 40 * page);
        void* const rest = must(device.allocate(must(device.memory()).free_bytes - 8 * page));
        must(weights.try_set_budget(Budget::percent_of_free(100)));
        CHECK(weights.budget().bytes == held + 8 * page);
        must(device.deallocate(rest));
    }
    must(device.destroy_stream(stream));
}

TEST_CASE_TEMPLATE("C19: once the device works again, so does every object, and no old failure is told", Weights,
                   OnDemand, Ahead, compositions::Hinted, compositions::Planned) {
    for (std::uint64_t nth = 1; nth <= 40; ++nth) {
        CAPTURE(nth);
        CheckedDevice device;
        const Model model = uniform_model(device, 8, page);
        const Stream stream = must(device.create_stream());
        {
            auto chosen = options<Weights>(4 * page, in_order(model));
            if constexpr (requires { chosen.policies.pool.chunk_bytes; }) { chosen.policies.pool.chunk_bytes = page; }
            auto weights = must(Weights::try_create(device, model.catalog, std::move(chosen)));
            run_pass(weights, model, stream);
            // The record of an arrival fails, and so does what would make up for it.
            for (std::uint64_t i = 0; i < 6; ++i) {
                device.fail(CallKind::record, nth + i);
                device.fail(CallKind::synchronize_stream, 1 + i);
                device.fail(CallKind::synchronize_device, 1 + i);
            }
            if (auto pass = weights.try_begin(stream)) {
                for (const residency::Schedule::Step& step : weights.schedule()) {
                    if (auto lease = pass->try_acquire(step)) {
                        for (const auto id : step.weights) { verify(device, model, *lease, id, stream); }
                    }
                }
                static_cast<void>(pass->try_end().has_value());
            }
            device.clear_failures();
            run_pass(weights, model, stream);
            must(weights.try_drain());
            CHECK(*model.wrong == 0);
        }
        must(device.destroy_stream(stream));
    }
}

}  // namespace after_failures_test
