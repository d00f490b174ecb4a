// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/input.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "benchmarks/lab/trace/writer.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace residency;

TEST_CASE("a residency trace is the same from its file, from a compressed one and from a pipe") {
    const test::TemporaryFolder folder;
    lab::trace::Trace written;
    written.name = "small";
    written.bytes = {10, 20, 30};
    for (std::uint32_t i = 0; i < 100; ++i) { written.add_step(std::array{StorageId{i % 3}, StorageId{i % 2}}, i); }
    REQUIRE(lab::trace::try_save(written, folder.path("small.trace")));
    const std::string others =
        "cd '" + folder.path("") + "' && gzip -c small.trace > small.gz && mkfifo pipe && { cat small.trace > pipe & }";
    REQUIRE(std::system(others.c_str()) == 0);
    for (const std::string name : {"pipe", "small.trace", "small.gz"}) {
        CAPTURE(name);
        const auto read = lab::read_trace(folder.path(name), "residency");
        REQUIRE_MESSAGE(read, read.error().message());
        CHECK(*read == written);
    }
}

TEST_CASE("input is bounded, also once it is decompressed, and comes from files and pipes only") {
    const test::TemporaryFolder folder;
    const std::string made =
        "cd '" + folder.path("") + "' && head -c 1000000 /dev/zero > zeros && gzip -c zeros > zeros.gz";
    REQUIRE(std::system(made.c_str()) == 0);
    CHECK(lab::read_input(folder.path("zeros"), 1000000)->size() == 1000000);
    CHECK(lab::read_input(folder.path("zeros.gz"), 1000000)->size() == 1000000);
    for (const char* name : {"zeros", "zeros.gz"}) {
        const auto refused = lab::read_input(folder.path(name), 999999);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::malformed);
        CHECK(refused.error().message().find("longer than the 999999 bytes") != std::string::npos);
    }
    CHECK_FALSE(lab::read_input("/dev/zero", 1000000));
    CHECK_FALSE(lab::read_trace("/dev/zero", "residency"));
}
