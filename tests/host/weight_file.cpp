// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/host/weight_file.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../support/files.hpp"
#include "residency/host/loading.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/number.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace weight_file_test {

using namespace residency;

namespace {

constexpr auto accesses = {host::FileAccess::cached, host::FileAccess::direct};
const std::string contents(20000, 'a');
const std::string others(20000, 'b');

/// A file that was last changed an hour ago, and what a catalog notes of it.
struct Written {
    support::TemporaryFolder folder;
    std::string path = folder.write("weights", contents);
    SourceFile source = note();

    SourceFile note() const {
        std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours{1});
        const auto file = host::WeightFile::try_open({path, contents.size()}, host::FileAccess::cached);
        REQUIRE(file);
        return {path, contents.size(), file->identity()};
    }
    /// Another file of the same size, and of the same time of change, takes its place.
    void replace() const {
        const std::string other = folder.write("other", others);
        std::filesystem::last_write_time(other, std::filesystem::last_write_time(path));
        std::filesystem::rename(other, path);
    }
};

Status read(const host::WeightFile& file) {
    const auto region = host::Region::try_map(8192, true);
    REQUIRE(region);
    return file.try_read(4096, (*region)->span().first(4096));
}

}  // namespace

TEST_CASE("weight file: what was changed between the catalog and the opening is refused, whatever its size") {
    for (const auto access : accesses) {
        const Written written;
        CHECK(host::WeightFile::try_open(written.source, access));
        support::write_all(written.path, others);
        const auto rewritten = host::WeightFile::try_open(written.source, access);
        REQUIRE_FALSE(rewritten);
        CHECK(rewritten.error().kind() == ErrorKind::mismatch);
        CHECK(rewritten.error().message().find("changed since the catalog was made: it was written to") !=
              std::string::npos);
        REQUIRE(rewritten.error().detail<FileLocation>() != nullptr);
        CHECK(rewritten.error().detail<FileLocation>()->source == written.path);

        const Written second;
        second.replace();
        const auto replaced = host::WeightFile::try_open(second.source, access);
        REQUIRE_FALSE(replaced);
        CHECK(replaced.error().message().find("another file has taken its place") != std::string::npos);

        const Written third;
        std::filesystem::resize_file(third.path, 100);
        const auto truncated = host::WeightFile::try_open(third.source, access);
        REQUIRE_FALSE(truncated);
        CHECK(truncated.error().message().find("it has 100 bytes now, and had " + detail::in_bytes(contents.size()) +
                                               " when") != std::string::npos);
        // Without an identity only the size is known.
        support::write_all(written.path, others);
        CHECK(host::WeightFile::try_open({written.path, contents.size()}, access));
    }
}

TEST_CASE("weight file: what is changed while it is open fails every later read; what takes its place does not") {
    for (const auto access : accesses) {
        const Written written;
        const auto file = host::WeightFile::try_open(written.source, access);
        REQUIRE(file);
        CHECK(read(*file));
        support::write_all(written.path, others);
        const Status rewritten = read(*file);
        REQUIRE_FALSE(rewritten);
        CHECK(rewritten.error().kind() == ErrorKind::io);
        CHECK(rewritten.error().message().find("changed while it was in use: it was written to") != std::string::npos);

        const Written second;
        const auto kept = host::WeightFile::try_open(second.source, access);
        REQUIRE(kept);
        second.replace();
        CHECK(read(*kept));
        std::filesystem::remove(second.path);
        CHECK(read(*kept));

        const Written third;
        const auto cut = host::WeightFile::try_open(third.source, access);
        REQUIRE(cut);
        for (const std::size_t left : {std::size_t{5000}, std::size_t{4096}, std::size_t{0}}) {
            std::filesystem::resize_file(third.path, left);
            const Status truncated = read(*cut);
            REQUIRE_FALSE(truncated);
            CHECK(truncated.error().message().find("changed while it was in use") != std::string::npos);
        }
    }
}

TEST_CASE("weight file: a load refuses the file that was changed since the catalog was made") {
    const Written written;
    CatalogBuilder builder;
    builder.add("w", dtype::u8, {100}, FileSource{std::make_shared<const SourceFile>(written.source), 0});
    const Catalog catalog = builder.try_build().value();
    SimulatedDevice device{};
    CHECK(host::try_load(device, catalog));
    support::write_all(written.path, others);
    const auto loaded = host::try_load(device, catalog);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().kind() == ErrorKind::mismatch);
}

}  // namespace weight_file_test
