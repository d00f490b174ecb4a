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
