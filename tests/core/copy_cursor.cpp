// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/copy_cursor.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace plan = residency::plan;
using residency::core::CopyCursor;

namespace {

CopyCursor progress_of(std::uint32_t calls, bool cyclic, std::uint32_t cut = 0) {
    plan::PlanData data;
    data.calls.resize(calls);
    data.cyclic = cyclic;
    data.cut = cut;
    return CopyCursor{plan::Plan{data}};
}
/// How many calls may be enqueued, which they are then, up to a limit.
std::uint64_t enqueue_all(CopyCursor& progress, std::uint64_t limit = 100) {
    std::uint64_t count = 0;
    for (; count < limit && progress.may_enqueue(); ++count) { progress.advance(); }
    return count;
}

}  // namespace

TEST_CASE("calls of a cyclic plan go on across passes, whichever pass runs") {
    CopyCursor progress = progress_of(3, true);
    CHECK_FALSE(progress.begin_pass());
    CHECK(progress.has_enqueued(0));
    CHECK_FALSE(progress.has_enqueued(1));
    CHECK_FALSE(progress.may_bring_rest());
    CHECK(progress.known_end() == 3);
    CHECK(enqueue_all(progress, 4) == 4);
    CHECK(progress.next() == 4);
    CHECK(progress.next_in_plan() == 1);
    CHECK(progress.pass_of_next() == 1);
    CHECK(progress.has_enqueued(3));
    CHECK(progress.may_bring_rest());
    CHECK(progress.known_end() == 7);
    progress.end_pass();
    CHECK(progress.pass() == 1);
    CHECK(progress.has_enqueued(1));
    CHECK_FALSE(progress.has_enqueued(2));
    CHECK_FALSE(progress.begin_pass());
    CHECK(progress.next() == 4);
    CHECK_FALSE(progress.must_verify());
}

TEST_CASE("calls of a one-shot plan come while their pass runs, and begin anew with the next") {
    CopyCursor progress = progress_of(3, false);
    CHECK_FALSE(progress.may_enqueue());
    CHECK(progress.known_end() == 0);
    CHECK_FALSE(progress.begin_pass());
    CHECK(progress.known_end() == 3);
    CHECK(enqueue_all(progress) == 3);
    CHECK(progress.may_bring_rest());
    progress.end_pass();
    CHECK_FALSE(progress.may_enqueue());
    CHECK_FALSE(progress.may_bring_rest());
    CHECK(progress.begin_pass());
    CHECK(progress.must_verify());
    CHECK(enqueue_all(progress, 2) == 2);
    progress.end_pass();  // one call of this pass is left out
    CHECK(progress.begin_pass());
    CHECK(progress.next() == 6);
    CHECK(progress.must_verify());
    CHECK(enqueue_all(progress) == 3);
    CHECK_FALSE(progress.must_verify());
}

TEST_CASE("caution lasts as many calls as a pass has, and to the end of this one") {
    CopyCursor progress = progress_of(4, true);
    progress.verify_before(2);
    CHECK(enqueue_all(progress, 1) == 1);
    CHECK(progress.must_verify());
    CHECK(enqueue_all(progress, 1) == 1);
    CHECK_FALSE(progress.must_verify());
    progress.verify_a_pass();  // before call 6
    progress.verify_before(3);
    CHECK(enqueue_all(progress, 3) == 3);
    CHECK(progress.must_verify());
    CHECK(enqueue_all(progress, 1) == 1);
    CHECK_FALSE(progress.must_verify());

    progress.end_pass();
    progress.end_pass();  // calls lag behind: 6 are enqueued, pass 2 begins with call 8
    progress.verify_a_pass();
    CHECK(enqueue_all(progress, 5) == 5);
    CHECK(progress.must_verify());
    CHECK(enqueue_all(progress, 1) == 1);
    CHECK_FALSE(progress.must_verify());
}

TEST_CASE("a capture has the calls from the cut to the cut of the next pass") {
    CopyCursor progress = progress_of(4, true, 1);
    CHECK(progress.first_pass() == 0);
    progress.verify_a_pass();
    progress.reach_cut();
    CHECK(progress.next() == 1);
    CHECK_FALSE(progress.must_verify());
    progress.advance_by_graph();
    CHECK(progress.pass() == 1);
    CHECK(progress.next() == 5);

    const CopyCursor outside = progress;
    progress.begin_capture();
    CHECK(progress.is_capturing());
    CHECK(progress.first_pass() == 1);
    CHECK(enqueue_all(progress, 3) == 3);
    progress.end_pass();
    CHECK_FALSE(progress.is_capture_whole());
    CHECK(enqueue_all(progress) == 1);
    CHECK(progress.is_capture_whole());
    CHECK(progress.next() == 9);
    progress = outside;
    CHECK_FALSE(progress.is_capturing());
    CHECK(progress.next() == 5);
}

TEST_CASE("without calls nothing comes, and a capture is whole") {
    for (const bool cyclic : {true, false}) {
        CopyCursor progress = progress_of(0, cyclic);
        CHECK(progress.may_bring_rest() == cyclic);
        progress.begin_pass();
        CHECK_FALSE(progress.may_enqueue());
        CHECK(progress.may_bring_rest());
        CHECK(progress.has_enqueued(0));
        progress.begin_capture();
        progress.end_pass();
        CHECK(progress.is_capture_whole());
    }
}
