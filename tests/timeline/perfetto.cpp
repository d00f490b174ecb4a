// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/timeline/perfetto.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/temporary_folder.hpp"

namespace perfetto_test {

using namespace residency;
using namespace std::chrono_literals;

TEST_CASE("events, tracks, counters and arrows become trace events, in the order of their times") {
    PerfettoTrace picture;
    picture.event("copies", "layer.0 \"q\"\n", 1500ns, 2750ns, 4096);
    picture.counter("held", 3us, 77);
    picture.event("compute", "layer.0", 2750ns, 1ms, std::nullopt, "step 1");
    picture.event("compute", "all", 2750ns, 2ms);
    picture.event("copies", "back\\slash \xff\xc3\xa9", 3us, 3us, 5, "x");
    picture.arrow("copies", 1500ns, "compute", 2750ns);
    CHECK(picture.json() ==
          "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"copies\"}},\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":1}},\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":2,\"name\":\"thread_name\",\"args\":{\"name\":\"compute\"}},\n"
          "{\"ph\":\"M\",\"pid\":1,\"tid\":2,\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":2}},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"layer.0 "
          "\\\"q\\\"\\u000a\",\"ts\":1.500,\"dur\":1.250,\"args\":{\"bytes\":4096}},\n"
          "{\"ph\":\"s\",\"pid\":1,\"tid\":1,\"name\":\"waits for\",\"ts\":1.500,\"cat\":\"wait\",\"id\":1},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"name\":\"all\",\"ts\":2.750,\"dur\":1997.250},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":2,\"name\":\"layer.0\",\"ts\":2.750,\"dur\":997.250,\"args\":{\"note\":"
          "\"step 1\"}},\n"
          "{\"ph\":\"f\",\"pid\":1,\"tid\":2,\"name\":\"waits "
          "for\",\"ts\":2.750,\"cat\":\"wait\",\"id\":1,\"bp\":\"e\"},\n"
          "{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"back\\\\slash "
          "\\u00ff\xc3\xa9\",\"ts\":3.000,\"dur\":0.000,\"args\":{\"bytes\":5,\"note\":\"x\"}},\n"
          "{\"ph\":\"C\",\"pid\":1,\"tid\":0,\"name\":\"held\",\"ts\":3.000,\"args\":{\"value\":77}}\n"
          "]}\n");
}

TEST_CASE("no time in the file is negative: all of it moves to the right") {
    PerfettoTrace picture;
    picture.event("compute", "b", 5ns, 10ns);
    picture.event("compute", "a", -1501ns, -1ns);
    picture.counter("held", -7ns, 1);
    const std::string text = picture.json();
    CHECK(text.find("\"name\":\"a\",\"ts\":0.000,\"dur\":1.500") != std::string::npos);
    CHECK(text.find("\"name\":\"held\",\"ts\":1.494") != std::string::npos);
    CHECK(text.find("\"name\":\"b\",\"ts\":1.506,\"dur\":0.005") != std::string::npos);
    CHECK(text.find(":-") == std::string::npos);
}

TEST_CASE("an empty picture is a valid file") {
    CHECK(PerfettoTrace{}.json() == "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
    const test::TemporaryFolder folder;
    CHECK(PerfettoTrace{}.try_save(folder.path("a.json")));
    CHECK_FALSE(PerfettoTrace{}.try_save(folder.path("no/a.json")));
}

}  // namespace perfetto_test
