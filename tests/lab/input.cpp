// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/input.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "benchmarks/lab/trace/writer.hpp"
#include "tests/support/files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace input_test {

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

TEST_CASE("a compressed trace is decompressed where its program is there, and never read as it is") {
    const test::TemporaryFolder folder;
    lab::trace::Trace written;
    written.bytes = {10, 20, 30};
    for (std::uint32_t i = 0; i < 100; ++i) { written.add_step(std::array{StorageId{i % 3}}, i); }
    REQUIRE(lab::trace::try_save(written, folder.path("t")));
    struct Case {
        std::string program;
        std::string begin;  // what it writes first
    };
    const std::string block = "1AY&SY";
    for (const auto& [program, begin] : {Case{"gzip", "\x1f\x8b"}, Case{"zstd", "\x28\xb5\x2f\xfd"},
                                         Case{"xz", std::string{"\xfd\x37zXZ\0", 6}}, Case{"bzip2", "BZh9" + block}}) {
        CAPTURE(program);
        const std::string path = folder.path("it's " + program);
        const std::string compress = "cd '" + folder.path("") + "' && command -v " + program + " > /dev/null && " +
                                     program + " -c < t > \"it's " + program + "\"";
        if (std::system(compress.c_str()) == 0) {
            const auto read = lab::read_trace(path, "residency");
            REQUIRE_MESSAGE(read, read.error().message());
            CHECK(*read == written);
        }
        support::write_all(path, begin + std::string(48 - begin.size(), '\1'));
        for (const char* format : {"oracle", "csv", "route", "residency"}) {
            const auto read = lab::read_trace(path, format, {.object = 1, .bytes = 0});
            REQUIRE_FALSE(read);
            CHECK(read.error().message().find(program) != std::string::npos);
        }
        const std::string searched = std::getenv("PATH");
        REQUIRE(setenv("PATH", folder.path("nothing").c_str(), 1) == 0);
        const auto read = lab::read_trace(path, "oracle");
        REQUIRE(setenv("PATH", searched.c_str(), 1) == 0);
        REQUIRE_FALSE(read);
        CHECK(read.error().message().ends_with("decompress the file elsewhere: " + program + " -d"));
    }
    // A time that looks like the magic of bzip2 is one.
    std::string record{"BZh9", 4};
    record += std::string(12, '\1') + std::string(8, '\xff');
    support::write_all(folder.path("time"), record);
    CHECK(lab::read_trace(folder.path("time"), "oracle"));
    const std::string piped = "cd '" + folder.path("") + "' && mkfifo pipe && { gzip -c t > pipe & }";
    REQUIRE(std::system(piped.c_str()) == 0);
    CHECK(
        lab::read_trace(folder.path("pipe"), "residency").error().message().ends_with("put gzip -dc before the pipe"));
}

TEST_CASE("what is no trace is named") {
    const test::TemporaryFolder folder;
    struct Case {
        std::string bytes;
        const char* what;
    };
    for (const auto& [bytes, what] :
         {Case{"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a Git LFS pointer"},
          Case{"<!DOCTYPE html><html><head></head></html>", "a web page"},
          Case{"\xef\xbb\xbf\n <HTML lang=en>,1,2\n", "a web page"},
          Case{"<?xml version=\"1.0\"?><Error/>", "a web page"},
          Case{std::string{"PK\3\4\x14\0", 6} + std::string(42, '\1'), "an archive"},
          Case{"t,1,2\n" + std::string(251, '\0') + "ustar", "an archive"},
          Case{"\x04\x22\x4d\x18" + std::string(44, '\1'), "lz4 -d"}}) {
        const std::string path = folder.path("t.csv");
        support::write_all(path, bytes);
        for (const char* format : {"oracle", "csv", "route", "residency"}) {
            CAPTURE(what);
            const auto read = lab::read_trace(path, format, {.object = 1, .bytes = 0});
            REQUIRE_FALSE(read);
            CHECK(read.error().kind() == ErrorKind::unsupported);
            CHECK(read.error().message().find(what) != std::string::npos);
        }
    }
}

TEST_CASE("an array of NumPy is read by its format, and named by others") {
    const test::TemporaryFolder folder;
    const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 2), }";
    const std::string path = folder.path("routed.npy");
    support::write_all(
        path, "\x93NUMPY" + std::string{1, 0, static_cast<char>(header.size()), 0} + header + std::string{0, 1, 1, 0});
    CHECK(lab::read_trace(path, "npy")->steps() == 2);
    for (const char* format : {"oracle", "csv", "route"}) {
        CHECK(lab::read_trace(path, format).error().message().ends_with("a NumPy array; give --format npy"));
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
        CHECK(refused.error().message().find("longer than the 999,999 bytes (976.6 KiB)") != std::string::npos);
    }
    CHECK_FALSE(lab::read_input("/dev/zero", 1000000));
    CHECK_FALSE(lab::read_trace("/dev/zero", "residency"));
}

}  // namespace input_test
