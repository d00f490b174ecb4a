// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// Traces that others publish, in small.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/lab/trace/csv.hpp"
#include "benchmarks/lab/trace/npy.hpp"
#include "benchmarks/lab/trace/oracle_general.hpp"
#include "benchmarks/lab/trace/route.hpp"
#include "residency/model/container_writer.hpp"

namespace trace_readers_test {

using namespace residency;

namespace {

std::vector<std::uint32_t> ids(std::span<const StorageId> storages) {
    std::vector<std::uint32_t> numbers;
    for (const StorageId id : storages) { numbers.push_back(index(id)); }
    return numbers;
}
using Ids = std::vector<std::uint32_t>;

void record(std::vector<std::byte>& out, std::uint32_t time, std::uint64_t object, std::uint32_t bytes,
            std::int64_t next) {
    detail::append_little_endian(out, time);
    detail::append_little_endian(out, object);
    detail::append_little_endian(out, bytes);
    detail::append_little_endian(out, static_cast<std::uint64_t>(next));
}

}  // namespace

TEST_CASE("oracleGeneral: objects become dense ids, an object of another size another one") {
    std::vector<std::byte> bytes;
    record(bytes, 1, 1ULL << 40, 100, 3);
    record(bytes, 1, 7, 200, -1);
    record(bytes, 2, 1ULL << 40, 100, -1);
    record(bytes, 3, 7, 201, -1);
    const auto trace = lab::trace::try_parse_oracle_general(bytes, "t");
    REQUIRE(trace);
    CHECK(trace->bytes == std::vector<std::uint64_t>{100, 200, 201});
    CHECK(ids(trace->accesses) == Ids{0, 1, 0, 2});
    CHECK(trace->steps() == 4);
    CHECK(trace->groups.empty());
    bytes.pop_back();
    const auto cut = lab::trace::try_parse_oracle_general(bytes, "t");
    REQUIRE_FALSE(cut);
    CHECK(cut.error().detail<FileLocation>()->offset == 72);
    CHECK(lab::trace::try_parse_oracle_general({}, "t")->steps() == 0);
}

TEST_CASE("csv: columns are chosen, a heading is passed over") {
    const auto trace = lab::trace::try_parse_csv("time, object, bytes\n1,a,10\r\n\n2,b,20\n# note\n3,a,10", "t");
    REQUIRE(trace);
    CHECK(trace->bytes == std::vector<std::uint64_t>{10, 20});
    CHECK(ids(trace->accesses) == Ids{0, 1, 0});
    const auto unit = lab::trace::try_parse_csv("x;1\ny;2\nx;3\n", "t", {.object = 1, .bytes = 0, .separator = ';'});
    REQUIRE(unit);
    CHECK(unit->bytes == std::vector<std::uint64_t>{1, 1});
    CHECK(lab::trace::try_parse_csv("1,a,10\n2,b,x\n", "t").error().message() ==
          "\"t\", line 2: found \"x\", expected a number of bytes");
    CHECK(lab::trace::try_parse_csv("1,a,10\n2,b\n", "t").error().detail<FileLocation>()->offset == 7);
    CHECK_FALSE(lab::trace::try_parse_csv("1,a,99999999999999999999\n1,a,1\n1,a,99999999999999999999\n", "t"));
}

TEST_CASE("oracleGeneral: a number of the next request that no trace has is refused, at its byte") {
    for (const std::int64_t next : {std::int64_t{-2}, INT64_MIN, std::int64_t{0x7061727365642121}, INT64_MAX - 1}) {
        std::vector<std::byte> bytes;
        record(bytes, 1, 7, 200, INT64_MAX);
        record(bytes, 1, 7, 200, next);
        const auto read = lab::trace::try_parse_oracle_general(bytes, "t");
        REQUIRE_FALSE(read);
        CHECK(read.error().detail<FileLocation>()->offset == 40);
        CHECK(read.error().message().find("no record of oracleGeneral") != std::string::npos);
    }
    const std::string_view text = "1,a,10\n2,b,20\n3,c,30\n4,";
    CHECK_FALSE(lab::trace::try_parse_oracle_general(std::as_bytes(std::span{text}), "t"));
}

TEST_CASE("csv: what separates the columns is taken from the first line, or said") {
    for (const char* text :
         {"0 1 A 8371\n1 1 B 31\n2 1 A 8371\n", "0\t1\tA\t8371\n1\t1\tB\t31\n2\t1\tA\t8371\n",
          "# of two days\n0;1;A;8371\n1;1;B;31\n2;1;A;8371\n", "t,x y,o,b\n0,1,A,8371\n1,1,B,31\n2,1 2,A,8371\n",
          "# a, b\ntime kind object bytes\n 0   1 A  8371\n1  1 B  31 \n2 1 A 8371\n"}) {
        CAPTURE(text);
        const auto trace = lab::trace::try_parse_csv(text, "t", {.object = 3, .bytes = 4});
        REQUIRE_MESSAGE(trace, trace.error().message());
        CHECK(trace->bytes == std::vector<std::uint64_t>{8371, 31});
        CHECK(ids(trace->accesses) == Ids{0, 1, 0});
    }
    // Blanks and tabs are one separator where that is said.
    const auto said =
        lab::trace::try_parse_csv("0 1\tA \t8371\n1 1 A,;B 8371\n", "t", {.object = 3, .bytes = 4, .separator = ' '});
    CHECK(ids(said->accesses) == Ids{0, 1});
    // Blanks inside of objects are none between columns.
    const auto whole = [](std::string_view text, const lab::trace::CsvColumns& columns) {
        const auto trace = lab::trace::try_parse_csv(text, "t", columns);
        REQUIRE_MESSAGE(trace, trace.error().message());
        return ids(trace->accesses);
    };
    CHECK(whole("a b\nc d\na b\na e\n", {.object = 1, .bytes = 0}) == Ids{0, 1, 0, 2});
    CHECK(whole("a b\nc d\na b\na e\n", {.object = 1, .bytes = 0, .separator = ','}) == Ids{0, 1, 0, 2});
    CHECK(whole("a b\nc d\na b\na e\n", {.object = 1, .bytes = 0, .separator = ' '}) == Ids{0, 1, 0, 0});
    CHECK(whole("a b\nc b\na d\n", {.object = 2, .bytes = 0}) == Ids{0, 0, 1});
    CHECK(lab::trace::try_parse_csv("a b\n", "t", {.object = 2, .bytes = 0, .separator = ','}).error().message() ==
          "\"t\", line 1: found 1 columns, expected an object in column 2 and bytes in column 0");
    const auto hint =
        ", with commas, tabs or semicolons between, or blanks in a text without these; residency-lab cache --separator "
        "says which";
    for (const char* text : {"0 A\n", "0 A 1\n0 A,B 1\n", "day 1, 2\n0 A 1\n"}) {
        const auto unclear = lab::trace::try_parse_csv(text, "t");
        REQUIRE_FALSE(unclear);
        CHECK(unclear.error().message().ends_with("an object in column 2 and bytes in column 3" + std::string{hint}));
    }
    CHECK_FALSE(lab::trace::try_parse_csv(std::string_view{"1,a\0,3\n", 8}, "t"));
}

TEST_CASE("csv without bytes: a first line without numbers before one with numbers is a heading") {
    const auto accesses = [](std::string_view text, std::size_t object) {
        const auto trace = lab::trace::try_parse_csv(text, "t", {.object = object, .bytes = 0});
        REQUIRE(trace);
        return ids(trace->accesses);
    };
    CHECK(accesses("time,obj\n1,5\n2,5", 2) == Ids{0, 0});
    CHECK(accesses("# note\n\nobject\n-3\n4\n-3\n", 1) == Ids{0, 1, 0});
    CHECK(accesses("a\nb\na\n", 1) == Ids{0, 1, 0});
    CHECK(accesses("a,1\nb,2\n", 1) == Ids{0, 1});
    CHECK(accesses("a\nb\n7\na\n", 1) == Ids{0, 1, 2, 0});
    CHECK(accesses("a\n", 1) == Ids{0});
    CHECK(accesses("", 1).empty());
}

TEST_CASE("sizes that do not add up to 64 bits are refused") {
    const auto message = [](std::string_view text) { return lab::trace::try_parse_csv(text, "t").error().message(); };
    CHECK(message("1,5,10\n2,6,18446744073709551615\n3,7,18446744073709551615\n") ==
          "\"t\": found storages of 2^64 bytes or more together, expected less");
    CHECK(message("1,5,9223372036854775808\n2,5,9223372036854775808\n") ==
          "\"t\": found accesses of 2^64 bytes or more together, expected less");
    CHECK(lab::trace::try_parse_csv("1,5,9223372036854775808\n2,6,9223372036854775806\n", "t")->total_bytes() ==
          UINT64_MAX - 1);
    CHECK_FALSE(
        lab::trace::try_parse_route("# layer=0 expert_bytes=9223372036854775808\nturn,phase,step,layer,expert\n"
                                    "0,1,0,0,1\n",
                                    "t"));
}

namespace {

constexpr std::string_view route_head =
    "# route_trace v1\n# model=m arch=a n_layer=2\n# layer=0 expert_bytes=100 dense_bytes=9\n"
    "# layer=1 expert_bytes=200 dense_bytes=9\n"
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n";

}  // namespace

TEST_CASE("route: the prompt's rows of a layer are one batch, a token's rows of a layer one step") {
    const std::string rows =
        "0,0,0,0,0,3,0.5,0,100\n0,0,0,0,1,1,0.5,0,100\n0,0,1,0,0,1,0.5,0,0\n0,0,1,0,1,0,0.5,0,100\n"
        "0,0,0,1,0,2,0.5,0,200\n0,0,1,1,0,2,0.5,0,0\n"
        "0,1,2,0,0,3,0.5,0,0\n0,1,2,1,0,0,0.5,0,200\n0,1,3,0,0,3,0.5,0,0\n";
    const auto trace = lab::trace::try_parse_route(std::string{route_head} + rows, "t");
    REQUIRE_MESSAGE(trace, trace.error().message());
    CHECK(trace->bytes == std::vector<std::uint64_t>{100, 100, 100, 100, 200, 200, 200, 200});
    CHECK(trace->groups == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 1});
    REQUIRE(trace->steps() == 5);
    CHECK(ids(trace->step(0)) == Ids{3, 1, 0});
    CHECK(ids(trace->step(1)) == Ids{6});
    CHECK(ids(trace->step(2)) == Ids{3});
    CHECK(ids(trace->step(3)) == Ids{4});
    CHECK(ids(trace->step(4)) == Ids{3});
}

TEST_CASE("route: prompt rows by token give the same batches; another turn begins anew") {
    const std::string rows =
        "0,0,0,0,0,3,0.5,0,100\n0,0,0,1,0,2,0.5,0,200\n0,0,1,0,0,3,0.5,0,0\n0,0,1,1,0,1,0.5,0,200\n"
        "1,0,0,0,0,3,0.5,0,0\n";
    const auto trace = lab::trace::try_parse_route(std::string{route_head} + rows, "t");
    REQUIRE(trace);
    REQUIRE(trace->steps() == 3);
    CHECK(ids(trace->step(0)) == Ids{3});
    CHECK(ids(trace->step(1)) == Ids{6, 5});
    CHECK(ids(trace->step(2)) == Ids{3});
}

TEST_CASE("route: n_expert is how many experts each layer has") {
    constexpr std::string_view heading = "# layer=0 expert_bytes=7\nturn,phase,step,layer,expert\n0,1,0,0,1\n";
    const auto parsed = [&](std::string_view before) {
        return lab::trace::try_parse_route(std::string{before} + std::string{heading}, "t");
    };
    CHECK(parsed("")->bytes.size() == 2);
    CHECK(parsed("# model=m n_expert=8 n_expert_used=2\n")->bytes == std::vector<std::uint64_t>(8, 7));
    CHECK(parsed("# n_expert=8\n# n_expert=8\n")->bytes.size() == 8);
    CHECK(parsed("# n_expert=1\n").error().message() == "\"t\", line 4: found expert 1, expected less than 1");
    CHECK(parsed("# n_expert=0\n").error().message() ==
          "\"t\", line 1: found \"# n_expert=0\", expected n_expert from 1 to 16777216");
    CHECK(parsed("# n_expert=8\n# n_expert=9\n").error().message() ==
          "\"t\", line 2: found \"# n_expert=9\", expected n_expert=8 as above");
}

TEST_CASE("route: more experts than any model has are refused, with the place") {
    const auto parsed = lab::trace::try_parse_route(
        "# layer=0 expert_bytes=7 n_expert=16777216\n# layer=1 "
        "expert_bytes=7\nturn,phase,step,layer,expert\n0,0,0,0,1\n",
        "t");
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().message() == "\"t\": 2 layers of 16777216 experts are more than 16777216");
    REQUIRE(parsed.error().detail<FileLocation>() != nullptr);
    CHECK(parsed.error().detail<FileLocation>()->source == "t");
}

TEST_CASE("route: a layer that is declared twice has the same bytes both times") {
    const auto parsed = [](std::string_view second) {
        return lab::trace::try_parse_route("# layer=0 expert_bytes=7\n# layer=0 expert_bytes=" + std::string{second} +
                                               "\nturn,phase,step,layer,expert\n0,1,0,0,1\n",
                                           "t");
    };
    CHECK(parsed("7")->bytes == std::vector<std::uint64_t>{7, 7});
    CHECK(parsed("8").error().message() ==
          "\"t\", line 2: found \"# layer=0 expert_bytes=8\", expected the 7 bytes that layer 0 has above");
}

TEST_CASE("route: what is missing is named") {
    const auto message = [](std::string text) { return lab::trace::try_parse_route(text, "t").error().message(); };
    CHECK(message("# layer=0 expert_bytes=1\n") ==
          "\"t\", line 1: found the end, expected a heading that names the columns");
    CHECK(message("# layer=0\nturn\n") == "\"t\", line 1: found \"# layer=0\", expected a layer and its expert_bytes");
    CHECK(message("# layer=0 expert_bytes=1\nturn,phase,step,layer\n") ==
          "\"t\", line 2: found \"turn,phase,step,layer\", expected a column expert");
    CHECK(message(std::string{route_head} + "0,0,0,2,0,3,0.5,0,100\n") ==
          "\"t\", line 6: found layer 2, expected one whose expert_bytes are declared");
    CHECK(message(std::string{route_head} + "0,0,0,x,0,3,0.5,0,100\n") ==
          "\"t\", line 6: found \"0,0,0,x,0,3,0.5,0,100\", expected a number in the column layer");
    CHECK(message(std::string{route_head} + "0,0,0,1,0,99999999,0.5,0,100\n") ==
          "\"t\", line 6: found expert 99999999, expected less than 16777216");
}

TEST_CASE("messages about traces hold nothing that a terminal would obey") {
    const std::string escape = "\x1b[31m\xc2\x9b";
    std::vector<std::byte> cut(5);
    const auto check = [&](const auto& read) {
        REQUIRE_FALSE(read);
        const std::string message = read.error().message();
        CAPTURE(message);
        CHECK(message.find("\\x1b[31m\\xc2\\x9b") != std::string::npos);
        CHECK(message.find('\x1b') == std::string::npos);
        CHECK(message.find("\xc2\x9b") == std::string::npos);
    };
    check(lab::trace::try_parse_csv("1,a,10\n2,b," + escape + "\n", "t"));
    check(lab::trace::try_parse_csv("1\n", escape));
    check(lab::trace::try_parse_csv("1,a,10\n2,b,18446744073709551615\n", escape));
    check(lab::trace::try_parse_route("# layer=0 expert_bytes=" + escape + "\n", "t"));
    check(lab::trace::try_parse_route("# layer=0 expert_bytes=1\nturn," + escape + "\n", "t"));
    check(lab::trace::try_parse_route(
        "# layer=0 expert_bytes=1\nturn,phase,step,layer,expert\n0,0,0,0," + escape + "\n", "t"));
    check(lab::trace::try_parse_route("", escape));
    check(lab::trace::try_parse_oracle_general(cut, escape));
}

namespace {

/// The bytes of a .npy file.
std::string npy(const std::string& header, const std::string& data, char version = 1) {
    std::string bytes = "\x93NUMPY" + std::string{version, '\0'} + static_cast<char>(header.size()) + '\0';
    if (version > 1) { bytes += std::string(2, '\0'); }
    return bytes + header + data;
}
Result<lab::trace::Trace> parse_npy(const std::string& bytes) {
    return lab::trace::try_parse_npy(std::as_bytes(std::span{bytes}), "t");
}

}  // namespace

TEST_CASE("npy: a layer of a token is a step, an expert of a layer a storage") {
    struct Case {
        std::string type;
        std::size_t item_bytes;
    };
    for (const auto& [type, item_bytes] : {Case{"|u1", 1}, Case{"|i1", 1}, Case{"<u2", 2}, Case{"<i2", 2},
                                           Case{"<i4", 4}, Case{"<u4", 4}, Case{"<i8", 8}, Case{"<u8", 8}}) {
        CAPTURE(type);
        std::string data;
        for (const char expert : std::initializer_list<char>{0, 3, 2, 1, 3, 0, 1, 1}) {  // 2 tokens, 2 layers, 2 chosen
            data += expert + std::string(item_bytes - 1, '\0');
        }
        const std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (2, 2, 2), }    \n";
        for (const char version : std::initializer_list<char>{1, 2, 3}) {
            const auto trace = parse_npy(npy(header, data, version));
            REQUIRE_MESSAGE(trace, trace.error().message());
            CHECK(trace->bytes == std::vector<std::uint64_t>(8, 1));
            CHECK(trace->groups == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 1});
            CHECK(trace->steps() == 4);
            CHECK(ids(trace->accesses) == Ids{0, 3, 6, 5, 3, 0, 5});  // the last row has an expert twice
        }
        for (std::size_t bytes = 0; bytes < header.size() + 10 + data.size(); ++bytes) {
            const auto cut = parse_npy(npy(header, data).substr(0, bytes));
            REQUIRE_FALSE(cut);
            CHECK(cut.error().kind() == ErrorKind::malformed);
        }
        CHECK_FALSE(parse_npy(npy(header, data + "x")));
    }
}

TEST_CASE("npy: what is no array of a router's choices is refused") {
    const auto refused = [](const std::string& type, const std::string& order, const std::string& shape,
                            const std::string& data = "12345678") {
        const auto trace =
            parse_npy(npy("{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }", data));
        return trace ? std::string{} : trace.error().message();
    };
    CHECK(refused("'|u1'", "False", "(2, 2, 2)").empty());
    for (const std::string& text :
         {refused("'<f4'", "False", "(1, 1, 2)"), refused("'>i4'", "False", "(1, 1, 2)"),
          refused("'|O'", "False", "(1, 1, 1)"), refused("'|u1'", "True", "(2, 2, 2)"),
          refused("'|u1'", "False", "(8,)"), refused("'|u1'", "False", "(2, 4)"), refused("'|u1'", "False", "()"),
          refused("'|u1'", "False", "(2, 2, 2, 1)"), refused("'|u1'", "False", "(2, 2, -2)"),
          refused("[('a', '|u1')]", "False", "(2, 2, 2)")}) {
        CHECK(text.find("expected a NumPy array [tokens, layers, chosen] of integers") != std::string::npos);
    }
    CHECK(refused("'|u1'", "False", "(2, 2, 3)").find("found 8 bytes, expected 12") != std::string::npos);
    CHECK(refused("'|u1'", "False", "(4294967296, 4294967296, 3)").find("fits in 64 bits") != std::string::npos);
    CHECK(refused("'|u1'", "False", "(0, 2, 2)", "").find("extents above 0") != std::string::npos);
    CHECK(refused("'|i1'", "False", "(1, 1, 2)", "\x01\xff").find("a number below 0") != std::string::npos);
    CHECK(refused("'<u8'", "False", "(1, 1, 1)", std::string(8, '\xff')).find("expert 18446744073709551615") !=
          std::string::npos);
}

}  // namespace trace_readers_test
