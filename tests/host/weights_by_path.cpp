// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Weights of a file format that the library does not know: a path, an offset, and a type with a shape or a number of bytes.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <variant>

#include "../support/files.hpp"
#include "residency/host/loading.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/number.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace weights_by_path_test {

using namespace residency;

namespace {

std::string text_of(const Catalog& catalog, WeightId id) {
    const auto* const at = reinterpret_cast<const char*>(catalog.host_bytes(catalog.storage_of(id)));
    return {at, static_cast<std::size_t>(catalog.weight(id).bytes)};
}

}  // namespace

TEST_CASE("bytes of files by path and offset, in one call each, loaded as they are") {
    const support::TemporaryFolder folder;
    const std::string one = folder.write("one.bin", "headerAAAABBBBBBtail"), two = folder.write("two.bin", "xyz");
    CatalogBuilder builder;
    const WeightId a = builder.add("a", one, 6, 4), y = builder.add("y", two, 1, 1), b = builder.add("b", one, 10, 6),
                   none = builder.add("none", two, 3, 0), all = builder.add("all", one, 0, 20);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weight(b).dtype == dtype::u8);
    CHECK(catalog->weight(b).shape == Shape{6});
    // A file is one source, however many weights lie in it.
    const auto source = [&](WeightId id) {
        return std::get<FileSource>(catalog->storage(catalog->storage_of(id)).source);
    };
    CHECK(source(a).file == source(all).file);
    CHECK(source(a).file != source(y).file);
    CHECK(source(a).file->identity.has_value());

    SimulatedDevice device;
    const auto loaded = host::try_load(device, *catalog);
    REQUIRE(loaded);
    CHECK(text_of(loaded->catalog, a) == "AAAA");
    CHECK(text_of(loaded->catalog, b) == "BBBBBB");
    CHECK(text_of(loaded->catalog, y) == "y");
    CHECK(loaded->catalog.weight(none).bytes == 0);
    CHECK(text_of(loaded->catalog, all) == "headerAAAABBBBBBtail");
}

TEST_CASE("a weight of a type and a shape in a file, loaded as it is") {
    const support::TemporaryFolder folder;
    const std::string path = folder.write("model.bin", "headerAABBCCDDEEFF-tail");
    CatalogBuilder builder;
    const WeightId matrix = builder.add("matrix", dtype::bf16, {2, 3}, path, 6),
                   blocks = builder.add("blocks", DType::block("Q", 3, 8), {8}, path, 3),
                   packed = builder.add("packed", dtype::u4, {10}, path, 18),
                   scalar = builder.add("scalar", dtype::u8, {}, path, 22),
                   empty = builder.add("empty", dtype::f32, {0, 7}, path, 23);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    CHECK(catalog->weight(matrix).dtype == dtype::bf16);
    CHECK(catalog->weight(matrix).shape == Shape{2, 3});
    CHECK(catalog->weight(empty).bytes == 0);
    SimulatedDevice device;
    const auto loaded = host::try_load(device, *catalog);
    REQUIRE(loaded);
    CHECK(text_of(loaded->catalog, matrix) == "AABBCCDDEEFF");
    CHECK(text_of(loaded->catalog, blocks) == "der");
    CHECK(text_of(loaded->catalog, packed) == "-tail");
    CHECK(text_of(loaded->catalog, scalar) == "l");

    SUBCASE("C3: a shape that the file does not hold is refused, with type, shape and numbers") {
        CHECK(builder.add("larger", dtype::bf16, {3, 3}, path, 6) == no_weight);
        const auto refused = builder.try_build();
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::malformed);
        CHECK(refused.error().message().find("has 23 bytes, too few for the 18 bytes of bf16[3, 3] at offset 6") !=
              std::string::npos);
        CHECK(refused.error().detail<FileLocation>()->offset == 23);
    }
    SUBCASE("C3: so is a shape of more bytes than there are numbers") {
        builder.add("larger", dtype::f64, {UINT64_MAX, 2}, path, 6);
        const auto refused = builder.try_build();
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind() == ErrorKind::invalid_argument);
    }
}

TEST_CASE("C3 C7: what is no such file, or ends before, is refused with the weight, the file and the numbers") {
    const support::TemporaryFolder folder;
    const std::string path = folder.write("short.bin", "0123456789"), pipe = folder.file("pipe");
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const auto error_of = [](const std::string& file, std::uint64_t offset, std::uint64_t bytes) {
        CatalogBuilder builder;
        CHECK(builder.add("w", file, offset, bytes) == no_weight);
        CHECK(builder.add("after", dtype::f32, {1}) == no_weight);
        const auto built = builder.try_build();
        REQUIRE_FALSE(built);
        CHECK(built.error().message().find("weight \"w\"") != std::string::npos);
        CHECK(built.error().detail<FileLocation>() != nullptr);
        return built.error();
    };
    for (const auto& [offset, bytes] :
         {std::pair<std::uint64_t, std::uint64_t>{8, 3}, {11, 0}, {0, UINT64_MAX}, {UINT64_MAX, 1}}) {
        const Error error = error_of(path, offset, bytes);
        CHECK(error.kind() == ErrorKind::malformed);
        const std::string count = std::to_string(bytes);
        CHECK(error.message().find("has 10 bytes, too few for the " + detail::in_bytes(bytes) + " of u8[" + count +
                                   "] at offset " + std::to_string(offset)) != std::string::npos);
    }
    CHECK(error_of(folder.file("none"), 0, 1).kind() == ErrorKind::io);
    CHECK(error_of(std::string{"a\0b", 3}, 0, 1).kind() == ErrorKind::io);
    CHECK(error_of(pipe, 0, 1).message().find("is no regular file") != std::string::npos);
    CHECK(error_of("/dev/zero", 0, 1).message().find("is no regular file") != std::string::npos);
    CHECK(error_of(folder.file(""), 0, 1).message().ends_with("is a folder: give the file in it"));
    CHECK(error_of(folder.file("none"), 0, 1).message().ends_with("cannot be examined: No such file or directory"));
}

TEST_CASE("a file that is changed after the catalog was made is refused when it is read") {
    const support::TemporaryFolder folder;
    const std::string path = folder.write("w.bin", "0123456789");
    CatalogBuilder builder;
    builder.add("w", path, 2, 4);
    const auto catalog = builder.try_build();
    REQUIRE(catalog);
    folder.write("w.bin", "012345678");
    SimulatedDevice device;
    const auto loaded = host::try_load(device, *catalog);
    REQUIRE_FALSE(loaded);
    CHECK(loaded.error().kind() == ErrorKind::mismatch);
}

}  // namespace weights_by_path_test
