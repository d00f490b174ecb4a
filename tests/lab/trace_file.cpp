// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// The file of a trace: written and read back, and refused where it is damaged.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/reader.hpp"
#include "benchmarks/lab/trace/recorder.hpp"
#include "benchmarks/lab/trace/writer.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/file.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/trace_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace trace_file_test {

using namespace residency;

namespace {

lab::trace::Trace random_trace(std::uint32_t seed, std::size_t steps) {
    std::mt19937 random{seed};
    lab::trace::Trace trace;
    trace.name = "trace " + std::to_string(seed);
    trace.catalog_hash = seed;
    const std::size_t storages = 1 + random() % 50;
    for (std::size_t i = 0; i < storages; ++i) {
        trace.bytes.push_back(random());
        if (seed % 2 == 0) { trace.groups.push_back(static_cast<std::uint32_t>(i / 4)); }
    }
    std::vector<StorageId> step;
    for (std::size_t i = 0; i < steps; ++i) {
        step.clear();
        for (std::size_t j = random() % 5; j > 0; --j) {
            step.push_back(StorageId{static_cast<std::uint32_t>(random() % storages)});
        }
        trace.add_step(step, random() % 3 == 0 ? lab::trace::Trace::unknown : static_cast<std::int64_t>(random()));
    }
    return trace;
}
std::vector<std::byte> bytes_of(const std::string& path) { return *detail::read_file(path, UINT64_MAX / 2); }

}  // namespace

TEST_CASE("a trace comes back as it was written") {
    const test::TemporaryFolder folder;
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        const lab::trace::Trace written = random_trace(seed, seed == 1 ? 0 : seed * 7);
        REQUIRE(lab::trace::try_save(written, folder.path("t.trace")));
        const auto read = lab::trace::try_load(folder.path("t.trace"));
        REQUIRE_MESSAGE(read, read.error().message());
        CHECK(*read == written);
        auto reader =
            lab::trace::Reader::try_from(detail::FileHandle{std::fopen(folder.path("t.trace").c_str(), "rb")}, "t");
        REQUIRE(reader);
        const auto again = lab::trace::try_load(std::move(*reader), "t");
        REQUIRE(again);
        CHECK(*again == written);
    }
}

TEST_CASE("a long trace is read in blocks") {
    const test::TemporaryFolder folder;
    const lab::trace::Trace written = random_trace(3, 60000);
    REQUIRE(lab::trace::try_save(written, folder.path("t.trace")));
    auto reader = lab::trace::Reader::try_open(folder.path("t.trace"));
    REQUIRE(reader);
    CHECK(reader->head().bytes == written.bytes);
    CHECK(reader->head().steps() == 0);
    lab::trace::Reader::Step step;
    std::size_t steps = 0;
    bool is_same = true;
    for (;; ++steps) {
        const auto more = reader->try_next(step);
        REQUIRE(more);
        if (!*more) { break; }
        is_same = is_same && std::ranges::equal(step.storages, written.step(steps)) &&
                  step.compute_ns == written.compute_ns[steps];
    }
    CHECK(is_same);
    CHECK(steps == written.steps());
    CHECK_FALSE(*reader->try_next(step));
}

TEST_CASE("a file that is cut off anywhere, or damaged anywhere, is refused") {
    const test::TemporaryFolder folder;
    REQUIRE(lab::trace::try_save(random_trace(5, 9), folder.path("whole")));
    const std::vector<std::byte> whole = bytes_of(folder.path("whole"));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        CAPTURE(size);
        REQUIRE(detail::write_file(folder.path("cut"), std::span{whole}.first(size)));
        const auto read = lab::trace::try_load(folder.path("cut"));
        REQUIRE_FALSE(read);
        CHECK(read.error().kind() == ErrorKind::malformed);
        CHECK(read.error().detail<FileLocation>() != nullptr);
    }
    for (std::size_t at = 0; at < whole.size(); ++at) {
        CAPTURE(at);
        std::vector<std::byte> damaged = whole;
        damaged[at] ^= std::byte{0x10};
        REQUIRE(detail::write_file(folder.path("damaged"), damaged));
        CHECK_FALSE(lab::trace::try_load(folder.path("damaged")));
    }
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    REQUIRE(detail::write_file(folder.path("longer"), longer));
    CHECK_FALSE(lab::trace::try_load(folder.path("longer")));
}

TEST_CASE("blocks whose numbers do not fit are refused, with their place") {
    const test::TemporaryFolder folder;
    const auto head = [] {
        ContainerWriter writer{ContainerKind::trace, trace_file_version, 0};
        SectionWriter& section = writer.section(section_tag("STOR"));
        section.text("t");
        section.array(std::vector<std::uint64_t>{10, 20});
        section.array(std::vector<std::uint32_t>{});
        return writer.finish();
    };
    const auto steps = [](std::uint64_t first, std::vector<std::uint32_t> counts, std::vector<std::uint32_t> ids,
                          std::vector<std::int64_t> times, std::uint64_t hash = 0) {
        ContainerWriter writer{ContainerKind::trace, trace_file_version, hash};
        SectionWriter& section = writer.section(section_tag("STEP"));
        section.u64(first);
        section.array(counts);
        section.array(ids);
        section.array(times);
        return writer.finish();
    };
    const auto done = [](std::uint64_t steps_written, std::uint64_t accesses) {
        ContainerWriter writer{ContainerKind::trace, trace_file_version, 0};
        SectionWriter& section = writer.section(section_tag("DONE"));
        section.u64(steps_written);
        section.u64(accesses);
        return writer.finish();
    };
    const auto message = [&](const std::vector<std::vector<std::byte>>& blocks) {
        std::vector<std::byte> all;
        for (const auto& block : blocks) { all.insert(all.end(), block.begin(), block.end()); }
        REQUIRE(detail::write_file(folder.path("t"), all));
        const auto read = lab::trace::try_load(folder.path("t"));
        return read ? std::string{} : read.error().message();
    };
    const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    CHECK(message({head(), steps(0, {1, 2}, {0, 1, 0}, {5, -1}), done(2, 3)}).empty());
    CHECK(has(message({head(), steps(1, {1}, {0}, {5}), done(1, 1)}), "step 1, expected step 0"));
    CHECK(has(message({head(), steps(0, {1}, {2}, {5}), done(1, 1)}), "ids below 2"));
    CHECK(has(message({head(), steps(0, {2}, {0}, {5}), done(1, 1)}), "as many of each"));
    CHECK(has(message({head(), steps(0, {1}, {0}, {-2}), done(1, 1)}), "a negative duration"));
    CHECK(has(message({head(), steps(0, {}, {}, {}), done(0, 0)}), "at least one step"));
    CHECK(has(message({head(), steps(0, {1}, {0}, {5}, 7), done(1, 1)}), "catalog"));
    CHECK(has(message({head(), steps(0, {1}, {0}, {5}), done(1, 2)}), "expected 1 and 1"));
    CHECK(has(message({head(), steps(0, {1}, {0}, {5})}), "the end of the file"));
    CHECK(has(message({done(0, 0)}), "no section STOR"));
}

TEST_CASE("files that are not there, and storages that there are not") {
    const test::TemporaryFolder folder;
    CHECK(lab::trace::try_load(folder.path("none")).error().kind() == ErrorKind::io);
    CHECK(lab::trace::try_save({}, folder.path("no/t")).error().kind() == ErrorKind::io);
    const std::vector<std::uint64_t> bytes{1, 2};
    auto writer = TraceWriter::try_open(folder.path("t"), "", 0, bytes);
    REQUIRE(writer);
    const StorageId wrong{2};
    CHECK(writer->try_step({&wrong, 1}).error().kind() == ErrorKind::invalid_argument);
    CHECK(writer->try_finish());
    CHECK(writer->try_finish().error().kind() == ErrorKind::wrong_state);
    CHECK(writer->try_step({}).error().kind() == ErrorKind::wrong_state);
    CHECK(lab::trace::try_load(folder.path("t"))->steps() == 0);
}

TEST_CASE("a trace of a catalog has its storages, layers and hash") {
    const test::TemporaryFolder folder;
    CatalogBuilder builder;
    for (const std::uint64_t bytes : {10U, 20U, 30U}) { builder.add("w" + std::to_string(bytes), dtype::u8, {bytes}); }
    const Catalog catalog = *builder.try_build();
    const std::vector<std::uint32_t> layers{0, 0, 1};
    auto writer = TraceWriter::try_open(folder.path("t"), catalog, layers);
    REQUIRE(writer);
    const std::vector<StorageId> step{StorageId{2}, StorageId{0}};
    CHECK(writer->try_step(step, 7));
    CHECK(writer->try_step({}));
    CHECK(writer->try_finish());
    const auto trace = lab::trace::try_load(folder.path("t"));
    REQUIRE_MESSAGE(trace, trace.error().message());
    CHECK(trace->catalog_hash == catalog.hash());
    CHECK(trace->bytes == std::vector<std::uint64_t>{10, 20, 30});
    CHECK(trace->groups == layers);
    CHECK(trace->accesses == step);
    CHECK(trace->compute_ns == std::vector<std::int64_t>{7, TraceWriter::unknown});
}

}  // namespace trace_file_test
