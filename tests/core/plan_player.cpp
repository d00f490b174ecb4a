// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/plan_player.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/planned/chunk_table.hpp"
#include "tests/core/planned_parts.hpp"

namespace plan_player_test {

using namespace planned_parts;
using residency::Cycle;
using residency::ErrorKind;
using residency::Placement;
using residency::simulation::CallKind;

namespace {

std::uint64_t bytes_of(std::span<const std::vector<Fetch>> calls) {
    std::uint64_t bytes = 0;
    for (const auto& call : calls) {
        for (const Fetch& piece : call) { bytes += piece.bytes; }
    }
    return bytes;
}
/// Whether a call that step `step` needs, and step `first` does not, brings something to the slot of a step in [first, step).
bool takes_slot_of_steps(const Parts& parts, std::uint32_t first, std::uint32_t step) {
    const plan::Plan& made = parts.store.plan();
    std::set<std::uint32_t> held;
    for (std::uint32_t i = first; i < step; ++i) { held.insert(made.slot_of_chunk(parts.chunk_of(i))); }
    bool takes = false;
    for (std::uint64_t k = made.step_calls(first); k < made.step_calls(step); ++k) {
        residency::core::for_each_chunk(made, made.copies(made.calls()[k]), [&](std::uint32_t c) {
            const bool is_held = parts.storage_of(c) >= first && parts.storage_of(c) < step;
            takes = takes || (!is_held && held.contains(made.slot_of_chunk(c)));
        });
    }
    return takes;
}
/// An access to storage i at a step that the schedule does not have it at, and the lease on it.
LeaseToken lease_unplanned(Parts& parts, std::uint32_t i) {
    const StorageId id{i};
    const AccessPoint access{0, 0};
    const auto reached = must(parts.player.reach({&id, 1}, access));
    CHECK_FALSE(reached.in_order);
    parts.hold(i);
    return parts.open_lease({&id, 1}, access, false, false);
}

}  // namespace

TEST_CASE("plan player: passes in the order of the plan find everything there, and move what the plan says") {
    for (std::uint64_t budget = 1; budget <= 8; ++budget) {
        CAPTURE(budget);
        Parts parts{chunks(8)};
        must(parts.adopt(parts.make_plan(budget * chunk)));
        CHECK(parts.pass() == 8);
        for (int i = 0; i < 4; ++i) {
            parts.log->enqueued.clear();
            CHECK(parts.pass() == 8);
            CHECK(parts.player.mode() == (budget == 8 ? PlanMode::at_rest : PlanMode::following));
            CHECK(bytes_of(parts.log->enqueued) == parts.store.plan().bytes_per_pass());
        }
        CHECK(parts.counters.host_waits == 0);
    }
}

TEST_CASE("plan player: a call comes with the end of the step that it waits for, neither before nor later") {
    for (std::uint64_t budget = 2; budget < 8; ++budget) {
        CAPTURE(budget);
        Parts parts{chunks(8)};
        must(parts.adopt(parts.make_plan(budget * chunk)));
        const plan::Plan& made = parts.store.plan();
        CHECK(parts.pass() == 8);  // the residents came
        const std::uint64_t calls = made.calls().size();
        const std::size_t residents = parts.log->enqueued.size();
        std::uint64_t ended = made.steps();
        const auto expected = [&] {
            std::uint64_t k = 0;
            for (;; ++k) {
                const plan::Wait wait = made.calls()[k % calls].wait;
                const std::uint64_t pass = k / calls - (wait.pass < 0 ? 1U : 0U);
                if (wait.exists() && (wait.pass == 0 || k >= calls) && pass * made.steps() + wait.step >= ended) {
                    return k;
                }
            }
        };
        const std::uint64_t first = expected();
        parts.player.pass_began(0);
        for (std::uint32_t i = 0; i < made.steps(); ++i) {
            CHECK(parts.step(i));
            ended = made.steps() + i + 1;
            CHECK(parts.log->enqueued.size() - residents == expected() - first);
        }
        parts.player.pass_ended();
        CHECK(parts.log->enqueued.size() - residents == calls);
    }
}

TEST_CASE("plan player: residents come once, and not later than the step that reads them") {
    std::vector<Spec> specs = chunks(6);
    specs[4].placement = Placement::resident;
    Parts parts{specs};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    CHECK_FALSE(parts.player.has_all_residents());
    CHECK(parts.pass() == 6);
    CHECK(parts.player.has_all_residents());
    parts.log->enqueued.clear();
    CHECK(parts.pass() == 6);
    for (const auto& call : parts.log->enqueued) {
        for (const Fetch& piece : call) { CHECK(piece.storage != StorageId{4}); }
    }
    parts.player.note_resident_eviction(parts.chunk_of(4));
    CHECK_FALSE(parts.player.has_all_residents());
}

TEST_CASE("plan player: a resident that comes again brings nothing back that a pass begins with and that has left") {
    constexpr std::uint32_t tied = 1;  // read by step 1 and by the last one, away between them
    std::vector<Spec> specs(10, Spec{6 * chunk});
    specs[0] = {chunk, Placement::resident};
    specs[tied].bytes = 16 * chunk;
    Parts parts{specs};
    residency::ScheduleBuilder builder{parts.context.catalog};
    for (std::uint32_t i = 0; i < 10; ++i) { builder.step({residency::WeightId{i}}); }
    builder.step({residency::WeightId{tied}});
    parts.schedule = must(builder.try_build(Cycle::cyclic));
    must(parts.factory.prepare(parts.context.catalog, parts.schedule, chunk, nullptr));
    must(parts.adopt(parts.make_plan(17 * chunk)));
    const auto tied_is_there = [&] {
        bool all = true;
        for (std::uint32_t c = 0; c < 16; ++c) { all = all && parts.store.table().is_there(parts.chunk_of(tied) + c); }
        return all;
    };
    const auto pass = [&](std::uint32_t leaves_before) {
        std::uint32_t there = 0;
        parts.player.pass_began(0);
        for (std::uint32_t i = 0; i < parts.schedule.size(); ++i) {
            if (i == leaves_before) {
                CHECK_FALSE(tied_is_there());
                parts.player.note_resident_eviction(parts.chunk_of(0));
                must(parts.store.remap_chunk(parts.chunk_of(0), parts.store.table().slot(parts.chunk_of(0))));
            }
            there += parts.step(i, i < 10 ? i : tied) ? 1U : 0U;
        }
        parts.player.pass_ended();
        return there;
    };
    CHECK(pass(plan::none) == 11);
    REQUIRE(parts.player.has_all_residents());
    bool is_begun_with = false;
    for (const plan::Copy& copy : parts.store.plan().residents()) {
        for (const std::uint32_t c : parts.store.plan().chunks_of_copy(copy)) {
            is_begun_with = is_begun_with || parts.storage_of(c) == tied;
        }
    }
    REQUIRE(is_begun_with);
    for (std::uint32_t i = 5; i < 9; ++i) {
        CAPTURE(i);
        const std::uint64_t before = bytes_of(parts.log->enqueued);
        CHECK(pass(i) == 11);
        CHECK(parts.player.mode() == PlanMode::following);
        CHECK(parts.player.has_all_residents());
        CHECK(parts.store.table().is_there(parts.chunk_of(0)));
        CHECK(bytes_of(parts.log->enqueued) - before == parts.store.plan().bytes_per_pass() + chunk);
    }
    CHECK(pass(plan::none) == 11);
}

TEST_CASE("plan player: a one-shot plan starts again with each pass, and brings nothing between passes") {
    Parts parts{chunks(6), Cycle::one_shot};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    CHECK(parts.log->enqueued.empty());
    for (int i = 0; i < 3; ++i) {
        CHECK(parts.pass() == 6);
        const std::size_t before = parts.log->enqueued.size();
        parts.player.forget(LeaseToken{});
        CHECK(parts.log->enqueued.size() == before);
    }
}

TEST_CASE("plan player: steps that are skipped cost nothing but their bytes") {
    Parts parts{chunks(8)};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    CHECK(parts.pass() == 8);
    parts.player.pass_began(0);
    CHECK(parts.step(1));
    CHECK(parts.step(6));
    parts.player.pass_ended();
    CHECK(parts.pass() == 8);
    CHECK(parts.player.mode() == PlanMode::following);
    CHECK(parts.counters.host_waits == 0);
}

TEST_CASE(
    "plan player: a step that has ended is not in order; its lease is unplanned, and calls are verified around it") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(2 * chunk)));
    parts.player.pass_began(0);
    CHECK(parts.step(0));
    CHECK(parts.step(1));
    CHECK(parts.step(2));
    const StorageId id{0};
    const auto reached = must(parts.player.reach({&id, 1}, {0, 0, true, true, true}));
    CHECK_FALSE(reached.in_order);
    CHECK_FALSE(reached.is_there);
    // What is there of the next steps is leased out of order.
    std::uint32_t held = 3;
    while (!parts.store.table().is_there(parts.chunk_of(held))) { ++held; }
    const LeaseToken token = lease_unplanned(parts, held);
    CHECK(parts.player.mode() == PlanMode::verifying);
    parts.read(held, std::chrono::milliseconds{1});
    for (std::uint32_t i = 3; i < 6; ++i) { static_cast<void>(parts.step(i)); }
    parts.player.pass_ended();
    CHECK(parts.store.table().is_there(parts.chunk_of(held)));
    parts.let_go(held);
    parts.player.released(token, true);
    CHECK(parts.pass() == 6);
    CHECK(parts.player.mode() == PlanMode::following);
}

TEST_CASE("plan player: a leased chunk that memory has anyway is left alone, in every mode") {
    for (std::uint32_t leased = 0; leased < 6; ++leased) {
        for (std::uint64_t budget = 2; budget < 6; ++budget) {
            Parts parts{chunks(6)};
            must(parts.adopt(parts.make_plan(budget * chunk)));
            CHECK(parts.pass() == 6);
            if (!parts.store.table().is_there(parts.chunk_of(leased))) { continue; }
            const LeaseToken token = lease_unplanned(parts, leased);
            parts.read(leased, std::chrono::milliseconds{1});
            static_cast<void>(parts.pass());
            CHECK(parts.store.table().is_there(parts.chunk_of(leased)));
            parts.let_go(leased);
            parts.player.released(token, true);
            CHECK(parts.pass() == 6);
        }
    }
}

TEST_CASE("plan player: at rest nothing is enqueued, and what ends the rest is told") {
    Parts parts{chunks(4)};
    must(parts.adopt(parts.make_plan(4 * chunk)));
    CHECK(parts.player.mode() == PlanMode::following);
    CHECK(parts.pass() == 4);
    CHECK(parts.player.mode() == PlanMode::at_rest);
    CHECK_FALSE(parts.player.is_streaming());
    const std::size_t before = parts.log->enqueued.size();
    CHECK(parts.pass() == 4);
    CHECK(parts.log->enqueued.size() == before);
    parts.uses.set_records_residents(true);
    CHECK(parts.player.mode() == PlanMode::following);
    parts.uses.set_records_residents(false);
    parts.uses.note_lost();
    CHECK(parts.player.mode() == PlanMode::following);
    CHECK(parts.pass() == 4);  // waits for the device
    CHECK_FALSE(parts.uses.has_lost());
    CHECK(parts.player.mode() == PlanMode::at_rest);
}

TEST_CASE("plan player: leases of a plan that is no longer in force are unplanned under the next") {
    Parts parts{chunks(6)};
    must(parts.adopt(parts.make_plan(4 * chunk)));
    parts.player.pass_began(0);
    const StorageId id{0};
    const AccessPoint access{0, 0, true, true, 1, true};
    CHECK(must(parts.player.reach({&id, 1}, access)).is_there);
    const LeaseToken token = parts.open_lease({&id, 1}, access, true, false);
    parts.hold(0);
    parts.player.pass_ended();
    must(parts.scheduler.drain());
    must(parts.adopt(parts.make_plan(4 * chunk)));
    CHECK(parts.player.mode() == PlanMode::verifying);
    CHECK(parts.store.table().is_there(parts.chunk_of(0)));
    parts.let_go(0);
    parts.player.released(token, true);
    CHECK(parts.pass() == 6);
    CHECK(parts.pass() == 6);
    CHECK(parts.player.mode() == PlanMode::following);
}

TEST_CASE("plan player: a lease of residents keeps no call from coming, and is unplanned under the next plan") {
    std::vector<Spec> specs = chunks(6);
    specs[0].placement = Placement::resident;
    Parts parts{specs};
    must(parts.adopt(parts.make_plan(3 * chunk)));
    CHECK(parts.pass() == 6);
    CHECK(parts.pass() == 6);
    parts.player.pass_began(0);
    const StorageId id{0};
    const AccessPoint access{0, 0, true, true, 1, true};
    CHECK(must(parts.player.reach({&id, 1}, access)).is_there);
    CHECK(parts.covers_residents(id));
    const LeaseToken token = parts.open_lease({&id, 1}, access, true, true);
    parts.hold(0);
    for (std::uint32_t i = 1; i < 6; ++i) { CHECK(parts.step(i)); }
    parts.player.pass_ended();
    CHECK(parts.pass() == 6);
    CHECK(parts.player.mode() == PlanMode::following);
    must(parts.scheduler.drain());
    must(parts.adopt(parts.make_plan(4 * chunk)));
    CHECK(parts.player.mode() == PlanMode::verifying);
    parts.read(0);
    parts.let_go(0);
    parts.player.released(token, true);
    CHECK(parts.pass() == 6);
    CHECK(parts.pass() == 6);
    CHECK(parts.player.mode() == PlanMode::following);
}

TEST_CASE("plan player: calls that are announced come next, as they were announced, or are called off") {
    for (std::uint64_t budget = 1; budget < 8; ++budget) {
        Parts parts{chunks(8)};
        parts.log->takes_announcements = true;
        must(parts.adopt(parts.make_plan(budget * chunk)));
        parts.player.forget_ahead();
        CHECK(parts.pass() == 8);
        parts.log->is_wrong = false;  // residents came between the calls
        for (int i = 0; i < 3; ++i) { CHECK(parts.pass() == 8); }
        CHECK(parts.log->announcements > 0);
        CHECK_FALSE(parts.log->is_wrong);
        const std::uint64_t forgotten = parts.log->forgotten;
        parts.player.forget_ahead();
        parts.player.verify_a_pass();
        CHECK(parts.pass() == 8);
        CHECK(parts.log->forgotten > forgotten + 1);
        for (int i = 0; i < 3; ++i) { CHECK(parts.pass() == 8); }
        CHECK_FALSE(parts.log->is_wrong);
    }
}

TEST_CASE("plan player: a captured pass leaves memory as the next one expects it, and the player as it was") {
    plan::Options options;
    options.captured = true;
    for (std::uint64_t budget = 2; budget <= 6; ++budget) {
        CAPTURE(budget);
        Parts parts{chunks(6), Cycle::cyclic, options};
        must(parts.adopt(parts.make_plan(budget * chunk)));
        CHECK(parts.pass() == 6);
        must(parts.player.before_graph());
        must(parts.scheduler.drain());
        const auto outside = parts.store.table().occupants();
        parts.player.capture_begins();
        CHECK(parts.player.mode() == PlanMode::capturing);
        for (auto& state : parts.states) { state.arrival = 0; }  // points of the copy stream are others in a capture
        must(parts.scheduler.begin_capture(parts.stream));
        parts.reader = must(parts.scheduler.consumer(parts.stream));
        SUBCASE("all of it") {
            CHECK(parts.pass() == 6);
            const auto graph = must(parts.scheduler.end_capture());
            must(parts.player.end_capture(true));
            CHECK(parts.player.mode() != PlanMode::capturing);
            CHECK(parts.store.table().occupants() == outside);
            for (auto& state : parts.states) { state.arrival = 0; }
            parts.reader = must(parts.scheduler.consumer(parts.stream));
            must(parts.player.before_graph());
            for (int i = 0; i < 3; ++i) {
                must(parts.scheduler.order_after_everything(parts.reader));
                must(parts.device.launch(graph, parts.stream));
                parts.player.graph_launched();
            }
            must(parts.device.synchronize());
            must(parts.device.destroy_graph(graph));
            CHECK(parts.pass() == 6);
        }
        SUBCASE("a step that has ended, and one that the plan cannot have there") {
            parts.player.pass_began(0);
            CHECK(parts.step(0));
            CHECK(parts.step(1));
            const StorageId id{0};
            const auto behind = parts.player.reach({&id, 1}, {0, 0, true, true, true});
            REQUIRE_FALSE(behind);
            CHECK(behind.error().kind() == ErrorKind::divergence);
            const auto undeclared = parts.player.reach({&id, 1}, {0, 2, false, false});
            REQUIRE_FALSE(undeclared);
            CHECK(undeclared.error().kind() == ErrorKind::divergence);
            // Leases that stay open: each step is there up to the first that needs a call which takes the slot of one of them.
            std::vector<LeaseToken> open;
            std::uint32_t i = 2;
            for (; i < 6 && !takes_slot_of_steps(parts, 2, i); ++i) {
                const AccessPoint access{0, i, true, true, 1, true};
                const StorageId held{i};
                CHECK(must(parts.player.reach({&held, 1}, access)).is_there);
                open.push_back(parts.open_lease({&held, 1}, access, true, false));
            }
            if (budget <= 3) { REQUIRE(i < 6); }  // four steps do not fit
            if (i < 6) {
                REQUIRE_FALSE(open.empty());
                const StorageId wanted{i};
                const auto refused = parts.player.reach({&wanted, 1}, {0, i, true, true});
                REQUIRE_FALSE(refused);
                CHECK(refused.error().kind() == ErrorKind::unsupported);
                CHECK(refused.error().message().find("policies.leases_at_once") != std::string::npos);
            }
            for (const LeaseToken& token : open) { parts.player.forget(token); }
            const auto graph = must(parts.scheduler.end_capture());
            must(parts.device.destroy_graph(graph));
            const auto ended = parts.player.end_capture(true);
            if (i < 6) { CHECK_FALSE(ended); }
            CHECK(parts.store.table().occupants() == outside);
            for (auto& state : parts.states) { state.arrival = 0; }
            parts.reader = must(parts.scheduler.consumer(parts.stream));
            CHECK(parts.pass() == 6);
        }
    }
}

TEST_CASE("plan player: a copy that fails is tried again by the next access") {
    for (std::uint64_t nth = 1; nth < 8; ++nth) {
        Parts parts{chunks(6)};
        must(parts.adopt(parts.make_plan(3 * chunk)));
        parts.device.fail(CallKind::copy, nth);
        std::uint32_t failed = 0;
        parts.player.pass_began(0);
        for (std::uint32_t i = 0; i < 6; ++i) {
            const StorageId id{i};
            if (!parts.player.reach({&id, 1}, {0, i, true, true})) { ++failed; }
            CHECK(parts.step(i));
        }
        parts.player.pass_ended();
        CHECK(failed <= 1);
        parts.device.clear_failures();
        CHECK(parts.pass() == 6);
    }
}

}  // namespace plan_player_test
