// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"

namespace safetensors_writer_test {

using namespace residency;
using format::SafetensorsWriter;

TEST_CASE("safetensors writer: what is written reads back equal, whatever the pieces") {
    const std::uint32_t seed = std::random_device{}();
    CAPTURE(seed);
    std::mt19937 random{seed};
    const support::TemporaryFolder folder;
    for (int round = 0; round < 50; ++round) {
        std::vector<format::SafetensorsTensor> tensors;
        std::string data;
        for (std::uint32_t i = 0; i < random() % 12; ++i) {
            const auto& type = format::safetensors_dtypes[random() % format::safetensors_dtypes.size()].type;
            Shape shape(random() % 4);
            for (auto& extent : shape) { extent = random() % 5; }
            shape.push_back(8);
            tensors.push_back({"t\"\n\xc3\x9f" + std::to_string(i), type, shape});
            const auto bytes = type.bytes_of(*format::detail::count_elements(shape));
            REQUIRE(bytes);
            for (std::uint64_t k = 0; k < *bytes; ++k) { data += static_cast<char>(random()); }
        }
        const std::vector<format::ModelFile::Metadata> metadata{{"k\\", "v\t"}, {"", "x"}};
        const auto path = folder.file("m.safetensors");
        auto writer = SafetensorsWriter::try_create(
            path, tensors, round % 2 == 0 ? metadata : std::vector<format::ModelFile::Metadata>{});
        REQUIRE(writer);
        CHECK(writer->left_bytes() == data.size());
        for (std::size_t at = 0; at < data.size();) {
            const std::size_t piece = std::min<std::size_t>(data.size() - at, random() % 100);
            REQUIRE(writer->try_append(support::as_bytes(std::string_view{data}.substr(at, piece))));
            at += piece;
        }
        REQUIRE(writer->try_finish());
        const auto model = format::try_read_safetensors(path);
        REQUIRE(model);
        REQUIRE(model->weights.size() == tensors.size());
        CHECK((model->files[0].bytes - data.size()) % 8 == 0);
        CHECK(model->metadata.size() == (round % 2 == 0 ? 2U : 0U));
        std::size_t at = 0;
        for (const auto& tensor : tensors) {
            for (const auto& weight : model->weights) {
                if (weight.name != tensor.name) { continue; }
                CHECK(weight.type == tensor.type);
                CHECK(weight.shape == tensor.shape);
                CHECK(support::bytes_of(*model, weight) == data.substr(at, weight.bytes));
                at += weight.bytes;
            }
        }
        CHECK(at == data.size());
    }
}

TEST_CASE("safetensors writer: an unfinished file is removed") {
    const support::TemporaryFolder folder;
    const auto path = folder.file("m.safetensors");
    {
        auto writer =
            SafetensorsWriter::try_create(path, std::vector<format::SafetensorsTensor>{{"a", dtype::u8, {4}}});
        REQUIRE(writer);
        REQUIRE(writer->try_append(support::as_bytes("ab")));
        CHECK(writer->try_append(support::as_bytes("abc")).error().kind() == ErrorKind::invalid_argument);
        CHECK(writer->left_bytes() == 2);
        CHECK(writer->try_finish().error().kind() == ErrorKind::wrong_state);
        CHECK(std::filesystem::exists(path));
    }
    CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("safetensors writer: what the format cannot hold is refused") {
    const support::TemporaryFolder folder;
    const auto refuse = [&](std::vector<format::SafetensorsTensor> tensors, const std::string& reason,
                            std::vector<format::ModelFile::Metadata> metadata = {}) {
        const auto writer = SafetensorsWriter::try_create(folder.file("m.safetensors"), tensors, metadata);
        return !writer && writer.error().kind() == ErrorKind::invalid_argument &&
               writer.error().message().find(reason) != std::string::npos;
    };
    CHECK(refuse({{"\xff", dtype::u8, {}}}, "UTF-8"));
    CHECK(refuse({{"__metadata__", dtype::u8, {}}}, "for itself"));
    CHECK(refuse({{"a", dtype::u8, {}}, {"a", dtype::u8, {}}}, "given twice"));
    CHECK(refuse({{"a", dtype::i4, {2}}}, "no type"));
    CHECK(refuse({{"a", dtype::f4, {1}}}, "whole bytes"));
    CHECK(refuse({{"a", dtype::u8, {UINT64_MAX, 2}}}, "64 bits"));
    CHECK(refuse({{"a", dtype::u8, {UINT64_MAX}}, {"b", dtype::u8, {1}}}, "64 bits"));
    CHECK(refuse({}, "given twice", {{"a", ""}, {"a", ""}}));
    CHECK(refuse({}, "UTF-8", {{"a", "\xff"}}));
    CHECK_FALSE(std::filesystem::exists(folder.file("m.safetensors")));
    const auto nowhere = SafetensorsWriter::try_create(folder.file("no/m.safetensors"), {});
    REQUIRE_FALSE(nowhere);
    CHECK(nowhere.error().kind() == ErrorKind::io);
}

}  // namespace safetensors_writer_test
