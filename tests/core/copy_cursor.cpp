// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/core/planned/copy_cursor.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace copy_cursor_test {

namespace plan = residency::plan;
using residency::core::CopyCursor;

namespace {

CopyCursor cursor_of(std::uint32_t calls, bool cyclic, std::uint32_t cut = 0) {
    plan::PlanData data;
    data.calls.resize(calls);
    data.cyclic = cyclic;
    data.cut = cut;
    return CopyCursor{plan::Plan{data}};
}
/// Enqueues as many calls as it may, up to a limit; returns their number.
std::uint64_t enqueue_all(CopyCursor& cursor, std::uint64_t limit = 100) {
    std::uint64_t count = 0;
    for (; count < limit && cursor.may_enqueue(); ++count) { cursor.advance(); }
    return count;
}

}  // namespace

TEST_CASE("calls of a cyclic plan go on across passes, ahead of the current one") {
    CopyCursor cursor = cursor_of(3, true);
    CHECK_FALSE(cursor.begin_pass());
    CHECK(cursor.has_enqueued(0));
    CHECK_FALSE(cursor.has_enqueued(1));
    CHECK_FALSE(cursor.may_bring_rest());
    CHECK(cursor.known_end() == 3);
    CHECK(enqueue_all(cursor, 4) == 4);
    CHECK(cursor.next() == 4);
    CHECK(cursor.next_in_plan() == 1);
    CHECK(cursor.pass_of_next() == 1);
    CHECK(cursor.has_enqueued(3));
    CHECK(cursor.may_bring_rest());
    CHECK(cursor.known_end() == 7);
    cursor.end_pass();
    CHECK(cursor.pass() == 1);
    CHECK(cursor.has_enqueued(1));
    CHECK_FALSE(cursor.has_enqueued(2));
    CHECK_FALSE(cursor.begin_pass());
    CHECK(cursor.next() == 4);
    CHECK_FALSE(cursor.must_verify());
}

TEST_CASE("calls of a one-shot plan are enqueued after their pass has begun, and start again with the next pass") {
    CopyCursor cursor = cursor_of(3, false);
    CHECK_FALSE(cursor.may_enqueue());
    CHECK(cursor.known_end() == 0);
    CHECK_FALSE(cursor.begin_pass());
    CHECK(cursor.known_end() == 3);
    CHECK(enqueue_all(cursor) == 3);
    CHECK(cursor.may_bring_rest());
    cursor.end_pass();
    CHECK_FALSE(cursor.may_enqueue());
    CHECK_FALSE(cursor.may_bring_rest());
    CHECK(cursor.begin_pass());
    CHECK(cursor.must_verify());
    CHECK(enqueue_all(cursor, 2) == 2);
    cursor.end_pass();  // the last call of this pass was not enqueued
    CHECK(cursor.begin_pass());
    CHECK(cursor.next() == 6);
    CHECK(cursor.must_verify());
    CHECK(enqueue_all(cursor) == 3);
    CHECK_FALSE(cursor.must_verify());
}

TEST_CASE("calls verify for as many calls as a pass has, and to the end of the current pass") {
    CopyCursor cursor = cursor_of(4, true);
    cursor.verify_before(2);
    CHECK(enqueue_all(cursor, 1) == 1);
    CHECK(cursor.must_verify());
    CHECK(enqueue_all(cursor, 1) == 1);
    CHECK_FALSE(cursor.must_verify());
    cursor.verify_a_pass();  // before call 6
    cursor.verify_before(3);
    CHECK(enqueue_all(cursor, 3) == 3);
    CHECK(cursor.must_verify());
    CHECK(enqueue_all(cursor, 1) == 1);
    CHECK_FALSE(cursor.must_verify());

    cursor.end_pass();
    cursor.end_pass();  // calls are behind: 6 are enqueued, and pass 2 begins with call 8
    cursor.verify_a_pass();
    CHECK(enqueue_all(cursor, 5) == 5);
    CHECK(cursor.must_verify());
    CHECK(enqueue_all(cursor, 1) == 1);
    CHECK_FALSE(cursor.must_verify());
}

TEST_CASE("a capture holds the calls from the cut of its pass to the cut of the next pass") {
    CopyCursor cursor = cursor_of(4, true, 1);
    CHECK(cursor.first_pass() == 0);
    cursor.verify_a_pass();
    cursor.reach_cut();
    CHECK(cursor.next() == 1);
    CHECK_FALSE(cursor.must_verify());
    cursor.advance_by_graph();
    CHECK(cursor.pass() == 1);
    CHECK(cursor.next() == 5);

    const CopyCursor outside = cursor;
    cursor.begin_capture();
    CHECK(cursor.is_capturing());
    CHECK(cursor.first_pass() == 1);
    CHECK(enqueue_all(cursor, 3) == 3);
    cursor.end_pass();
    CHECK_FALSE(cursor.is_capture_whole());
    CHECK(enqueue_all(cursor) == 1);
    CHECK(cursor.is_capture_whole());
    CHECK(cursor.next() == 9);
    cursor = outside;
    CHECK_FALSE(cursor.is_capturing());
    CHECK(cursor.next() == 5);
}

TEST_CASE("a plan without calls enqueues nothing, and a capture of it is whole") {
    for (const bool cyclic : {true, false}) {
        CopyCursor cursor = cursor_of(0, cyclic);
        CHECK(cursor.may_bring_rest() == cyclic);
        cursor.begin_pass();
        CHECK_FALSE(cursor.may_enqueue());
        CHECK(cursor.may_bring_rest());
        CHECK(cursor.has_enqueued(0));
        cursor.begin_capture();
        cursor.end_pass();
        CHECK(cursor.is_capture_whole());
    }
}

}  // namespace copy_cursor_test
