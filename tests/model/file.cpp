// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "residency/model/file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace file_test {

using namespace residency;

TEST_CASE("a file is written whole and read back") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path("bytes");
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{200000}}) {
        std::vector<std::byte> bytes(size);
        for (std::size_t i = 0; i < size; ++i) { bytes[i] = static_cast<std::byte>(i * 7 & 0xff); }
        REQUIRE(detail::write_file(path, bytes).has_value());
        const auto read = detail::read_file(path, size);
        REQUIRE(read);
        CHECK(*read == bytes);
        CHECK_FALSE(std::filesystem::exists(path + ".partial"));
    }
    const auto refused = detail::read_file(path, 199999);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().kind() == ErrorKind::malformed);
}

TEST_CASE("what the operating system refuses is an error that names the file") {
    const test::TemporaryFolder folder;
    const auto absent = detail::read_file(folder.path("absent"), 10);
    REQUIRE_FALSE(absent.has_value());
    CHECK(absent.error().kind() == ErrorKind::io);
    REQUIRE(absent.error().detail<FileLocation>() != nullptr);
    CHECK(absent.error().detail<FileLocation>()->source == folder.path("absent"));

    CHECK(detail::read_file(folder.path(""), 10).error().kind() == ErrorKind::io);
    CHECK(detail::write_file(folder.path("no/such/folder"), {}).error().kind() == ErrorKind::io);
    std::filesystem::create_directory(folder.path("taken"));
    CHECK(detail::write_file(folder.path("taken"), {}).error().kind() == ErrorKind::io);
    CHECK_FALSE(std::filesystem::exists(folder.path("taken.partial")));
}

TEST_CASE("only regular files are read, and none is waited for") {
    const test::TemporaryFolder folder;
    REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
    for (const std::string& path : {folder.path("pipe"), folder.path(""), std::string{"/dev/zero"}}) {
        const auto refused = detail::read_file(path, 10);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind() == ErrorKind::io);
        const char* const why =
            path == folder.path("") ? "it is a folder: give the file in it" : "it is not a regular file";
        CHECK(refused.error().message().ends_with(why));
    }
    CHECK_FALSE(detail::read_file(std::string{"/dev/null\0x", 11}, 10).has_value());
}

TEST_CASE("a full disk leaves the old file") {
    if (!std::filesystem::exists("/dev/full")) {
        MESSAGE("skipped: this system has no /dev/full");
        return;
    }
    const test::TemporaryFolder folder;
    const std::string path = folder.path("bytes");
    const std::vector<std::byte> old(3, std::byte{1});
    REQUIRE(detail::write_file(path, old).has_value());
    std::filesystem::create_symlink("/dev/full", path + ".partial");
    CHECK(detail::write_file(path, std::vector<std::byte>(100000)).error().kind() == ErrorKind::io);
    CHECK(*detail::read_file(path, 100) == old);
}

TEST_CASE("a link or a device stays what it is") {
    const test::TemporaryFolder folder;
    const std::string file = folder.path("file"), link = folder.path("link");
    REQUIRE(detail::write_file(file, std::vector<std::byte>(5)).has_value());
    std::filesystem::create_symlink(file, link);
    REQUIRE(detail::write_file(link, std::vector<std::byte>(3, std::byte{1})).has_value());
    CHECK(std::filesystem::is_symlink(link));
    CHECK(*detail::read_file(file, 100) == std::vector<std::byte>(3, std::byte{1}));
    if (!std::filesystem::exists("/dev/full")) {
        MESSAGE("skipped: this system has no /dev/full");
        return;
    }
    std::filesystem::remove(link);
    std::filesystem::create_symlink("/dev/full", link);
    CHECK(detail::write_file(link, std::vector<std::byte>(100000)).error().kind() == ErrorKind::io);
    CHECK(std::filesystem::is_symlink(link));
    CHECK(std::filesystem::is_character_file("/dev/full"));
}

}  // namespace file_test
