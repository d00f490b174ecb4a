// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What choose_unpacked() makes passes the check that the tests make of it, and mistakes do not.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "residency/packed/layout.hpp"
#include "residency/plan/planner.hpp"
#include "tests/support/choice_check.hpp"

namespace check_test {

using namespace residency::packed;
namespace plan = residency::plan;

namespace {

/// Layers that are all read once, and the even ones again at the end; every third step reads two.
UnpackProblem twice_problem(std::uint32_t layers, std::uint32_t leases_at_once = 1) {
    UnpackProblem problem;
    problem.travels.chunk_bytes = problem.granule_bytes = 4096;
    problem.travels.link.bytes_per_second = 5e9;
    problem.leases_at_once = leases_at_once;
    problem.step_offsets.push_back(0);
    const auto add_step = [&](std::vector<std::uint32_t> step) {
        problem.travels.add_step(step);
        problem.travels.compute_seconds.push_back(2e-6);
        problem.step_storages.insert(problem.step_storages.end(), step.begin(), step.end());
        problem.step_offsets.push_back(static_cast<std::uint32_t>(problem.step_storages.size()));
    };
    for (std::uint32_t s = 0; s < layers; ++s) {
        problem.travels.storage_bytes.push_back(40'000);
        problem.unpacked_bytes.push_back(60'000);
        problem.table_bytes += 16;
    }
    problem.must_stay.assign(layers, false);
    problem.must_stay[1] = true;
    for (std::uint32_t s = 0; s < layers; ++s) {
        if (s % 3 == 2) {
            add_step({s, s - 1});
        } else {
            add_step({s});
        }
    }
    for (std::uint32_t s = 0; s < layers; s += 2) { add_step({s}); }
    return problem;
}

struct Made {
    UnpackProblem problem;
    UnpackChoice choice;
    plan::PlanData data;
};

Made make(UnpackProblem problem, std::uint64_t budget) {
    auto choice = choose_unpacked(problem, budget, {.effort = plan::Effort::quick});
    REQUIRE(choice);
    auto made = plan::make_plan(choice->rest, {.effort = plan::Effort::quick});
    REQUIRE(made);
    return {std::move(problem), std::move(*choice), made->data()};
}

residency::Status checked(const Made& made) {
    return support::check_choice(made.problem, made.choice, plan::Plan{plan::PlanData{made.data}});
}

}  // namespace

TEST_CASE("what is chosen passes the check, whatever is read again and however many leases are open") {
    for (const std::uint32_t leases_at_once : {1U, 2U, 3U}) {
        CAPTURE(leases_at_once);
        const UnpackProblem problem = twice_problem(24, leases_at_once);
        const auto floor = unpack_floor(problem), everything = unpack_everything(problem);
        REQUIRE(floor);
        REQUIRE(everything);
        std::uint32_t unpacked_again = 0;
        for (std::uint64_t k = 0; k <= 8; ++k) {
            CAPTURE(k);
            const Made made = make(problem, *floor + (*everything - *floor) * k / 8);
            const auto right = checked(made);
            if (!right) { FAIL(right.error().message()); }
            std::vector<bool> seen(problem.unpacked_bytes.size(), false);
            for (const Unpacking& each : made.choice.unpackings) {
                if (seen[each.storage]) { ++unpacked_again; }
                seen[each.storage] = true;
            }
            if (k == 8) { CHECK(made.choice.unpackings.empty()); }
        }
        CHECK(unpacked_again > 0);
    }
}

TEST_CASE("every mistake of a packed plan is found") {
    const UnpackProblem problem = twice_problem(24);
    const Made good = make(problem, unpack_floor(problem).value() + 100'000);
    REQUIRE(checked(good));
    REQUIRE(!good.data.calls.empty());
    const auto find_again = [](const UnpackChoice& choice) {
        for (std::size_t k = 1; k < choice.unpackings.size(); ++k) {
            for (std::size_t before = 0; before < k; ++before) {
                if (choice.unpackings[before].storage == choice.unpackings[k].storage) { return k; }
            }
        }
        FAIL("nothing is unpacked again");
        return std::size_t{0};
    };
    const std::size_t again = find_again(good.choice);
    const auto says = [&](const char* text, auto&& spoil) {
        CAPTURE(text);
        Made bad = good;
        spoil(bad);
        const auto right = checked(bad);
        REQUIRE(!right);
        CHECK(right.error().kind() == residency::ErrorKind::mismatch);
        CHECK_MESSAGE(right.error().message().find(text) != std::string::npos, right.error().message());
    };
    // A kernel before its unpack.
    says("before it is unpacked", [&](Made& bad) { bad.choice.unpackings.erase(bad.choice.unpackings.begin()); });
    says("before it is unpacked", [&](Made& bad) {
        bad.choice.unpackings.erase(bad.choice.unpackings.begin() + static_cast<std::ptrdiff_t>(again));
    });
    // An unpack before its copy has arrived.
    says("packed bytes need not have come", [&](Made& bad) { --bad.choice.unpackings[again].step; });
    says("are not brought for",
         [&](Made& bad) { bad.choice.rest.storage_bytes[bad.choice.unpackings[again].storage] = 0; });
    says("plan: ", [&](Made& bad) {  // the calls come a step late
        for (plan::Call& call : bad.data.calls) { ++call.needed_by; }
        bad.data.step_calls.assign(bad.data.steps, 0);
        for (const plan::Call& call : bad.data.calls) {
            if (call.needed_by < bad.data.steps) { ++bad.data.step_calls[call.needed_by]; }
        }
        for (std::uint32_t i = 1; i < bad.data.steps; ++i) { bad.data.step_calls[i] += bad.data.step_calls[i - 1]; }
    });
    says("plan: ", [&](Made& bad) {  // copies over what a step reads still
        for (plan::Call& call : bad.data.calls) { call.wait = {}; }
    });
    // An unpacking over bytes that are still read.
    says("is unpacked over", [&](Made& bad) {  // two storages of one step in one place
        for (std::uint32_t i = 0; i < bad.problem.steps(); ++i) {
            const auto reads = bad.problem.reads(i);
            if (reads.size() < 2 || bad.choice.layout.stays[reads[0]] || bad.choice.layout.stays[reads[1]]) {
                continue;
            }
            bad.choice.layout.offset[reads[0]] = bad.choice.layout.offset[reads[1]];
            return;
        }
        FAIL("no step unpacks two");
    });
    says("is unpacked over", [&](Made& bad) {  // over what stays
        bad.choice.layout.offset[bad.choice.unpackings[0].storage] = bad.choice.layout.offset[1];
    });
    says("or a lease before", [&](Made& bad) { bad.problem.leases_at_once = 2; });
    says("is to stay until", [&](Made& bad) {
        auto& first = bad.choice.unpackings[0];
        for (const Unpacking& each : bad.choice.unpackings) {
            if (each.step > first.step && each.storage == first.storage) { first.live_until = each.step; }
        }
        first.live_until = (std::max)(first.live_until, first.step + 3);
    });
    says("alone", [&](Made& bad) {  // it ends before a kernel that finds it
        for (Unpacking& each : bad.choice.unpackings) {
            if (each.live_until > each.step) { each.live_until = each.step; }
        }
    });
    // What stays, and the memory.
    says("has to stay", [&](Made& bad) { bad.choice.layout.stays[1] = false; });
    says("lies outside the memory", [&](Made& bad) { bad.choice.layout.offset[1] = bad.choice.layout.table_at; });
    says("the table does not fit", [&](Made& bad) { bad.choice.layout.bytes = bad.choice.layout.table_at; });
    says("is unpacked over", [&](Made& bad) {
        for (std::uint32_t s = 2; s < bad.problem.unpacked_bytes.size(); ++s) {
            if (!bad.choice.layout.stays[s]) { continue; }
            bad.choice.layout.offset[s] = bad.choice.layout.offset[1];
            return;
        }
        bad.choice.layout.offset[bad.choice.unpackings[0].storage] = bad.choice.layout.offset[1];
    });
    says("no time to unpack",
         [&](Made& bad) { bad.choice.rest.compute_seconds = bad.problem.travels.compute_seconds; });
    says("holds more than the layout leaves", [&](Made& bad) { bad.choice.rest.budget_bytes = 4096; });
    says("not in the order",
         [&](Made& bad) { std::swap(bad.choice.unpackings.front(), bad.choice.unpackings.back()); });
}

}  // namespace check_test
