// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/interop/perfetto.hpp"

#include <doctest/doctest.h>

#include "tests/support/temporary_folder.hpp"

using namespace residency;
using namespace std::chrono_literals;

TEST_CASE("events, tracks and counters become trace events") {
    PerfettoTrace picture;
    picture.event("copies", "layer.0 \"q\"\n", 1500ns, 2750ns, 4096);
    picture.event("compute", "layer.0", -1ns, 1ms);
    picture.counter("held", 3us, 77);
    picture.event("copies", "back\\slash", 3us, 3us);
    CHECK(picture.json() ==
          "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"copies\"}},\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":1}},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"layer.0 "
          "\\\"q\\\"\\u000a\",\"ts\":1.500,\"dur\":1.250,\"args\":{\"bytes\":4096}},\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":2,\"name\":\"thread_name\",\"args\":{\"name\":\"compute\"}},\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":2,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":2}},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"name\":\"layer.0\",\"ts\":-0.001,\"dur\":1000.001},\n"
          "{\"ph\":\"C\",\"pid\":1,\"tid\":0,\"name\":\"held\",\"ts\":3.000,\"args\":{\"value\":77}},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"back\\\\slash\",\"ts\":3.000,\"dur\":0.000}\n"
          "]}\n");
}

TEST_CASE("an empty picture is a valid file") {
    CHECK(PerfettoTrace{}.json() == "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
    const test::TemporaryFolder folder;
    CHECK(PerfettoTrace{}.try_save(folder.path("a.json")));
    CHECK_FALSE(PerfettoTrace{}.try_save(folder.path("no/a.json")));
}
