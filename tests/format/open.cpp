// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/open.hpp"

#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <variant>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/equal_storages.hpp"
#include "residency/format/text.hpp"
#include "residency/host/weight_file.hpp"

using namespace residency;
using support::fixture;

TEST_CASE("open: the format is told by the first bytes and the name") {
    const auto format_of = [](const std::string& path) {
        const auto model = format::try_read_model_or_aoti(path);
        const auto known = format::try_read_model(path);
        if (model && model->format == "aotinductor") {
            REQUIRE_FALSE(known);
            CHECK(known.error().kind() == ErrorKind::unsupported);
            CHECK(known.error().message().find("try_read_model_or_aoti") != std::string::npos);
        } else {
            CHECK(known.has_value() == model.has_value());
        }
        return model ? model->format : model.error().message();
    };
    CHECK(format_of(fixture("safetensors/small.safetensors")) == "safetensors");
    CHECK(format_of(fixture("safetensors/sharded.safetensors.index.json")) == "safetensors");
    CHECK(format_of(fixture("gguf/metadata.gguf")) == "gguf");
    CHECK(format_of(fixture("gguf/split-00002-of-00003.gguf")) == "gguf");
    CHECK(format_of(fixture("aoti/saved.pt2")) == "aotinductor");
    const support::TemporaryFolder folder;
    CHECK(format_of(folder.write("a", support::read_all(fixture("safetensors/small.safetensors")))) == "safetensors");
    CHECK(format_of(folder.write("b", support::read_all(fixture("gguf/metadata.gguf")))) == "gguf");
    CHECK(format_of(folder.write("c", support::read_all(fixture("aoti/blob.pt2")))) == "aotinductor");
    CHECK(format_of(folder.write("d.json", R"({"format":"f","storages":[],"weights":[]})")) == "f");
    CHECK(format_of(folder.write("e.json", R"({"weight_map":{}})")) == "safetensors");
    CHECK(format_of(folder.write("f.json", "{}")) == "aotinductor");
    for (const std::string bytes : {"", "x", "hello world, this is no model"}) {
        const std::string path = folder.write("g", bytes);
        for (const auto& model : {format::try_read_model(path), format::try_read_model_or_aoti(path)}) {
            REQUIRE_FALSE(model);
            CHECK(model.error().kind() == ErrorKind::unsupported);
        }
    }
}

TEST_CASE("C7: open: what is no regular file is an error, and does not hang") {
    const support::TemporaryFolder folder;
    const auto kind_of = [](const std::string& path) { return format::try_read_model(path).error().kind(); };
    CHECK(kind_of(folder.file("none")) == ErrorKind::io);
    CHECK(kind_of(folder.file("")) == ErrorKind::io);
    CHECK(kind_of("") == ErrorKind::io);
    CHECK(kind_of(std::string{"a\0b", 3}) == ErrorKind::io);
    CHECK(kind_of("/dev/zero") == ErrorKind::io);
    REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
    CHECK(kind_of(folder.file("pipe")) == ErrorKind::io);
}

TEST_CASE("C7: open: a file that shrinks while it is read is an error") {
    const support::TemporaryFolder folder;
    const auto path = folder.write("a", std::string(100, 'x'));
    const auto input = format::Input::try_open(path);
    REQUIRE(input);
    support::write_all(path, "short");
    std::array<std::byte, 50> out{};
    const Status read = input->try_read(10, out);
    REQUIRE_FALSE(read);
    CHECK(read.error().kind() == ErrorKind::io);
    CHECK(read.error().message().find("became shorter") != std::string::npos);
    CHECK(input->try_read(60, out).error().kind() == ErrorKind::malformed);
    CHECK(input->try_read(UINT64_MAX, out).error().kind() == ErrorKind::malformed);
}

TEST_CASE("text: UTF-8 is told from what is not") {
    using format::detail::is_utf8;
    for (const char* good : {"", "a", "\xc3\x9f", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80",
                             "\xf4\x8f\xbf\xbf"}) {
        CHECK(is_utf8(good));
    }
    for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x9f\x80", "\xed\xa0\x80", "\xe2\x82",
                            "\xf0\x8f\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xc3"}) {
        CHECK_FALSE(is_utf8(bad));
    }
    CHECK(format::detail::shown("a\n\"") == "\"a\\x0a\\\"\"");
    CHECK(format::detail::shown("\xff\x01") == "bytes ff 01");
}

TEST_CASE("open: a catalog knows the file it was read from, and who reads the weights later refuses any other") {
    const support::TemporaryFolder folder;
    const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
    const std::string prefix = std::string{static_cast<char>(header.size())} + std::string(7, '\0');
    const std::string path = folder.write("m.safetensors", prefix + header + "abcdabcd");
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours{1});
    const auto model = format::try_read_model(path);
    REQUIRE(model);
    REQUIRE(model->files[0].identity);
    const auto catalog = model->try_catalog();
    REQUIRE(catalog);
    const auto& source = std::get<FileSource>(catalog->storage(StorageId{1}).source);
    CHECK(source.file->identity == model->files[0].identity);
    CHECK(host::WeightFile::try_open(*source.file, host::FileAccess::cached));
    CHECK(format::try_find_equal_storages(*model)->size() == 1);

    support::write_all(path, prefix + header + "abcdabcX");
    const auto opened = host::WeightFile::try_open(*source.file, host::FileAccess::cached);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().kind() == ErrorKind::mismatch);
    const auto equal = format::try_find_equal_storages(*model);
    REQUIRE_FALSE(equal);
    CHECK(equal.error().kind() == ErrorKind::mismatch);
    CHECK(equal.error().message().find("changed since its header was read") != std::string::npos);
}
