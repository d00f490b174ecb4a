// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/gguf.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/gguf_type.hpp"
#include "residency/format/input.hpp"
#include "residency/format/open.hpp"
#include "residency/model/number.hpp"

namespace gguf_test {

using namespace residency;
using format::GgufArray;
using format::GgufKind;
using support::fixture;
using support::refused;

namespace {

/// Writes the pieces of a file by hand, so that each can be wrong.
class Bytes {
public:
    template <class T>
    Bytes& number(T value) {
        for (std::size_t i = 0; i < sizeof(T); ++i) {
            text += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 255);
        }
        return *this;
    }
    Bytes& string(std::string_view value) {
        number<std::uint64_t>(value.size());
        text += value;
        return *this;
    }
    Bytes& raw(std::string_view value) {
        text += value;
        return *this;
    }
    Bytes& header(std::uint64_t tensors, std::uint64_t metadata, std::uint32_t version = 3) {
        return raw("GGUF").number<std::uint32_t>(version).number<std::uint64_t>(tensors).number<std::uint64_t>(
            metadata);
    }
    Bytes& tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                  std::uint64_t offset) {
        string(name).number<std::uint32_t>(static_cast<std::uint32_t>(dimensions.size()));
        for (const std::uint64_t n : dimensions) { number<std::uint64_t>(n); }
        return number<std::uint32_t>(type).number<std::uint64_t>(offset);
    }
    Bytes& pad(std::size_t alignment = 32) {
        text.resize((text.size() + alignment - 1) / alignment * alignment);
        return *this;
    }
    std::string text;
};

Result<format::GgufFile> read(const std::string& bytes) {
    return support::over(bytes, [](const format::Input& input) { return format::try_read_gguf(input); });
}
Result<format::GgufFile> read(const Bytes& bytes) { return read(bytes.text); }

Bytes one_value(std::uint32_t kind, std::string_view value) {
    Bytes bytes;
    bytes.header(0, 1).string("k").number<std::uint32_t>(kind).raw(value);
    return bytes;
}

}  // namespace

TEST_CASE("gguf: files of the reference implementation read back equal") {
    for (const std::string name : {"metadata", "version_2", "every_type"}) {
        CAPTURE(name);
        const auto file = format::try_read_gguf(fixture("gguf/" + name + ".gguf"));
        REQUIRE(file);
        const auto expected = support::check_against_reference(file->model, "gguf/" + name + ".expected.json");
        CHECK(file->model.weights.size() == expected.at("weights").size());
        REQUIRE(file->headers.size() == 1);
        CHECK(file->headers[0].version == (name == "version_2" ? 2U : 3U));
        CHECK(file->headers[0].alignment_bytes == (name == "every_type" ? 64U : 32U));
        CHECK(file->headers[0].metadata.size() == expected.at("metadata").size());
        for (const auto& [key, want] : expected.at("metadata").items()) {
            CAPTURE(key);
            const auto* value = file->headers[0].find(key);
            REQUIRE(value != nullptr);
            const auto& reference = want.at("value");
            if (const auto* array = std::get_if<GgufArray>(&value->value)) {
                std::visit(
                    [&](const auto& values) {
                        REQUIRE(values.size() == reference.size());
                        for (std::size_t i = 0; i < values.size(); ++i) {
                            using Element = std::remove_cvref_t<decltype(values[i])>;
                            if constexpr (std::is_same_v<Element, GgufArray>) {
                                FAIL("no nested arrays here");
                            } else if (array->kind == GgufKind::boolean) {
                                CHECK((values[i] != Element{}) == reference[i].template get<bool>());
                            } else {
                                CHECK(values[i] == reference[i].template get<Element>());
                            }
                        }
                    },
                    array->values);
            } else if (value->kind == GgufKind::boolean) {
                CHECK((std::get<std::uint64_t>(value->value) != 0) == reference.get<bool>());
            } else if (const auto* text = std::get_if<std::string>(&value->value)) {
                CHECK(*text == reference.get<std::string>());
            } else if (const auto* u = std::get_if<std::uint64_t>(&value->value)) {
                CHECK(*u == reference.get<std::uint64_t>());
            } else if (const auto* i = std::get_if<std::int64_t>(&value->value)) {
                CHECK(*i == reference.get<std::int64_t>());
            } else {
                CHECK(std::get<double>(value->value) == reference.get<double>());
            }
        }
    }
}

TEST_CASE("gguf: the fixture has every type, and blocks of the reference's sizes") {
    const auto file = format::try_read_gguf(fixture("gguf/every_type.gguf"));
    REQUIRE(file);
    CHECK(file->model.weights.size() + 1 ==
          format::ggml_types.size());  // Q2_0 is younger than the reference implementation
    CHECK(format::find_ggml_type(42)->type == DType::block("Q2_0", 18, 64));
    for (const auto& known : format::ggml_types) {
        CHECK(known.type.name().size() == std::string_view{known.name}.size());
        CHECK(format::find_ggml_type(known.number)->type == known.type);
    }
    for (const std::uint32_t withdrawn : {5U, 31U, 32U, 33U, 36U, 37U, 38U, 43U, UINT32_MAX}) {
        CHECK_FALSE(format::find_ggml_type(withdrawn));
    }
}

TEST_CASE("gguf: any of a split model's files stands for all") {
    for (const std::string number : {"00001", "00002", "00003"}) {
        const auto file = format::try_read_gguf(fixture("gguf/split-" + number + "-of-00003.gguf"));
        REQUIRE(file);
        CHECK(file->model.files.size() == 3);
        CHECK(file->model.weights.size() == 5);
        CHECK(file->headers.size() == 3);
        support::check_against_reference(file->model, "gguf/split.expected.json");
    }
    const support::TemporaryFolder folder;
    const auto copy = [&](const std::string& from, const std::string& to) {
        return folder.write(to, support::read_all(fixture("gguf/split-" + from + "-of-00003.gguf")));
    };
    const auto alone = format::try_read_gguf(copy("00001", "m-00001-of-00003.gguf"));
    REQUIRE_FALSE(alone);
    CHECK(alone.error().kind() == ErrorKind::io);
    CHECK(alone.error().message().find("m-00002-of-00003.gguf") != std::string::npos);
    CHECK(refused(format::try_read_gguf(copy("00001", "m.gguf")), "does not say which"));
    copy("00003", "m-00002-of-00003.gguf");
    copy("00003", "m-00003-of-00003.gguf");
    CHECK(refused(format::try_read_gguf(folder.file("m-00001-of-00003.gguf")), "not the file of the split model"));
}

TEST_CASE("gguf: arrays of arrays, and metadata shown as text") {
    Bytes bytes;
    bytes.header(0, 1).string("k").number<std::uint32_t>(9).number<std::uint32_t>(9).number<std::uint64_t>(2);
    bytes.number<std::uint32_t>(0).number<std::uint64_t>(2).raw("\x01\x02");
    bytes.number<std::uint32_t>(8).number<std::uint64_t>(1).string("x\"");
    const auto file = read(bytes);
    REQUIRE(file);
    CHECK(file->model.metadata[0].value == R"([[1, 2], ["x\""]])");
    std::string many(20, '\7');
    const auto longer = read(one_value(9, Bytes{}.number<std::uint32_t>(0).number<std::uint64_t>(20).raw(many).text));
    REQUIRE(longer);
    CHECK(longer->model.metadata[0].value.ends_with("20 in all]"));
}

TEST_CASE("C7: gguf: headers that break the specification are refused with the place") {
    CHECK(refused(read(std::string{}),
                  "the file is cut off: download it again: found 0 bytes, expected at least 1 byte"));
    CHECK(refused(read(std::string{"GGUG\3\0\0\0", 8}), "not a GGUF file"));
    CHECK(refused(read(Bytes{}.header(0, 0, 1)), "unsupported version"));
    CHECK(refused(read(Bytes{}.header(0, 0, 4)),
                  "unsupported version: convert the model with today's llama.cpp: found 4, expected 2 or 3"));
    CHECK(refused(read(Bytes{}.header(0, 0, 0x03000000)), "big-endian"));
    CHECK(refused(read(Bytes{}.header(UINT64_MAX, 0)), "more tensors"));
    CHECK(refused(read(Bytes{}.header(0, UINT64_MAX)), "more metadata"));
    CHECK(refused(read(Bytes{}.header(0, 1).string(std::string(65536, 'k')).number<std::uint32_t>(0).raw("x")),
                  "too long"));
    CHECK(refused(read(Bytes{}.header(0, 1).number<std::uint64_t>(UINT64_MAX).raw(std::string(20, 'x'))), "too long"));
    CHECK(refused(
        read(
            Bytes{}.header(0, 2).string("k").number<std::uint32_t>(0).raw("x").string("k").number<std::uint32_t>(0).raw(
                "x")),
        "given twice"));
    CHECK(refused(read(one_value(13, "12345678")), "unknown kind"));
    CHECK(refused(read(one_value(7, "\x02")), "neither 0 nor 1"));
    CHECK(refused(read(one_value(9, Bytes{}.number<std::uint32_t>(13).number<std::uint64_t>(0).text)),
                  "unknown kind of array"));
    CHECK(refused(read(one_value(9, Bytes{}.number<std::uint32_t>(0).number<std::uint64_t>(UINT64_MAX).text)),
                  "more array elements"));
    CHECK(refused(read(one_value(9, Bytes{}.number<std::uint32_t>(8).number<std::uint64_t>(1U << 30).text)),
                  "more array elements"));
    Bytes deep;
    deep.header(0, 1).string("k").number<std::uint32_t>(9);
    for (int i = 0; i < 9; ++i) { deep.number<std::uint32_t>(9).number<std::uint64_t>(1); }
    CHECK(refused(read(deep.number<std::uint32_t>(0).number<std::uint64_t>(0)), "nested too deeply"));
    const auto alignment = [](std::uint32_t kind, std::uint32_t value) {
        return Bytes{}
            .header(0, 1)
            .string("general.alignment")
            .number<std::uint32_t>(kind)
            .number<std::uint32_t>(value);
    };
    CHECK(read(alignment(4, 8)));
    CHECK(refused(read(alignment(4, 0)), "power of two"));
    CHECK(refused(read(alignment(4, 48)), "power of two"));
    CHECK(refused(read(alignment(5, 32)), "power of two"));
}

TEST_CASE("C7: gguf: tensors that do not fit their type, the alignment or the file are refused") {
    const auto one = [](std::string_view name, const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                        std::uint64_t offset, std::size_t data) {
        return read(Bytes{}.header(1, 0).tensor(name, dimensions, type, offset).pad().raw(std::string(data, 'x')));
    };
    CHECK(one("a", {3, 2}, 0, 0, 24));
    CHECK(one("a", {3, 2}, 0, 0, 24)->model.weights[0].shape == Shape{2, 3});
    CHECK(one("a", {3, 2}, 0, 0, 32));
    CHECK(one("a", {}, 0, 0, 4));
    CHECK(one("a", {0, 5}, 0, 0, 0));
    CHECK(refused(one("a", {3, 2}, 0, 0, 23), "beyond the end"));
    CHECK(refused(one("a", {3, 2}, 0, 32, 64), "hole"));
    CHECK(refused(one("a", {3, 2}, 0, 4, 64), "not aligned"));
    CHECK(refused(one("a", {3, 2}, 43, 0, 64), "unknown type"));
    CHECK(refused(one("a", {3, 2}, UINT32_MAX, 0, 64), "found 4294967295, expected"));
    CHECK(refused(one("a", {16, 2}, 2, 0, 18), "whole blocks"));
    CHECK(refused(one("a", std::vector<std::uint64_t>(65, 1), 0, 0, 4), "too many dimensions"));
    CHECK(refused(one("a", {UINT64_MAX, UINT64_MAX}, 0, 0, 4), "64 bits"));
    CHECK(refused(one("a", {UINT64_MAX / 2}, 0, 0, 4), "64 bits"));
    CHECK(refused(one("\xfe", {1}, 0, 0, 4), "not UTF-8"));
    const auto two = [](std::uint64_t first, std::uint64_t second, std::size_t data, std::string_view name = "b") {
        return read(Bytes{}
                        .header(2, 0)
                        .tensor("a", {2}, 0, first)
                        .tensor(name, {2}, 0, second)
                        .pad()
                        .raw(std::string(data, 'x')));
    };
    CHECK(two(0, 32, 40));
    CHECK(two(32, 0, 40));
    CHECK(two(0, 32, 64));
    CHECK(refused(two(0, 0, 40), "overlap"));
    CHECK(refused(two(0, 64, 72), "hole"));
    CHECK(refused(two(0, 32, 40, "a"), "given twice"));
}

TEST_CASE("C7: gguf: every truncation of a file is refused") {
    const std::string whole = support::read_all(fixture("gguf/metadata.gguf"));
    const auto file = read(whole);
    REQUIRE(file);
    const std::size_t needed = file->model.storages[0].offset_bytes + file->model.storages[0].bytes;
    for (std::size_t bytes = 0; bytes < needed; ++bytes) {
        CAPTURE(bytes);
        CHECK(refused(read(whole.substr(0, bytes)),
                      "is cut off: download it again: found " + detail::in_bytes(bytes) + ", expected at least "));
    }
    CHECK(read(whole.substr(0, needed)));
    CHECK(read(whole + std::string(32, '\0')));
}

TEST_CASE("gguf: shapes have as many dimensions as are written") {
    const auto file =
        read(Bytes{}.header(1, 0).tensor("patch", {2, 2, 1, 4, 8, 3}, 0, 0).pad().raw(std::string(4 * 384, 'x')));
    REQUIRE(file);
    CHECK(file->model.weights[0].shape == Shape{3, 8, 4, 1, 2, 2});
    CHECK(file->model.weights[0].bytes == 4 * 384);
    CHECK(file->model.try_catalog());
}

TEST_CASE("gguf: Q2_0 and types that the caller gives") {
    const auto one = [](std::uint32_t type, std::size_t data, const format::ReadOptions& options = {}) {
        const auto bytes = Bytes{}.header(1, 0).tensor("a", {128, 2}, type, 0).pad().raw(std::string(data, 'x'));
        return support::over(bytes.text,
                             [&](const format::Input& input) { return format::try_read_gguf(input, options); });
    };
    const auto q2 = one(42, 72);
    REQUIRE(q2);
    CHECK(q2->model.weights[0].dtype == "Q2_0");
    CHECK(q2->model.weights[0].bytes == 4 * 18);
    CHECK(refused(one(42, 71), "beyond the end"));

    // As Ollama numbered it in 2025: 17 bytes for 32.
    const auto mxfp4 = one(4, 4096);
    REQUIRE(mxfp4);
    CHECK(mxfp4->model.weights[0].dtype == "MXFP4");
    CHECK(mxfp4->model.weights[0].type == format::find_ggml_type(39)->type);

    const format::ReadOptions options{
        .ggml_types = {{36, DType::block("I2_S", 1, 4), "I2_S"}, {0, DType::block("mine", 3, 128), "mine"}}};
    const auto given = one(36, 64, options);
    REQUIRE(given);
    CHECK(given->model.weights[0].dtype == "I2_S");
    CHECK(given->model.weights[0].bytes == 64);
    CHECK(given->model.try_catalog());
    CHECK(one(0, 6, options)->model.weights[0].bytes == 6);  // the caller's go before ggml's

    for (const auto& [number, names] : std::map<std::uint32_t, std::vector<std::string>>{
             {5, {"Q4_3, which ggml withdrew"}},
             {31, {"Q4_0_4_4, which ggml withdrew"}},
             {36, {"IQ4_NL_4_4, which ggml withdrew", "I2_S of bitnet.cpp"}},
             {100, {"Q4_0_ROCMFP4 of ROCmFPX"}},
             {137, {"IQ2_K of ik_llama.cpp"}},
             {142, {"PQ2_0 of PrismML"}},
             {399, {"Q8_K_R8 of ik_llama.cpp"}}}) {
        const auto refusal = one(number, 4096);
        REQUIRE_FALSE(refusal);
        CHECK(refusal.error().kind() == ErrorKind::unsupported);
        CHECK(refusal.error().message().find("found " + std::to_string(number)) != std::string::npos);
        CHECK(refusal.error().message().find("ReadOptions::ggml_types") != std::string::npos);
        for (const auto& name : names) { CHECK(refusal.error().message().find(name) != std::string::npos); }
    }
    for (const auto& foreign : format::detail::foreign_ggml_types) {
        CAPTURE(foreign.number);
        CHECK_FALSE(format::find_ggml_type(foreign.number));
    }
}

TEST_CASE("gguf: metadata that are not UTF-8 do not keep the weights from being read") {
    Bytes bytes;
    bytes.header(1, 3)
        .string(
            "\xff"
            "key")
        .number<std::uint32_t>(8)
        .string("\xc4x");
    bytes.string("tokenizer.ggml.tokens").number<std::uint32_t>(9).number<std::uint32_t>(8).number<std::uint64_t>(2);
    bytes.string("\xa0the").string("ok").string("general.name").number<std::uint32_t>(8).string("plain");
    bytes.tensor("a", {1}, 0, 0).pad().raw("1234");
    const auto file = read(bytes);
    REQUIRE(file);
    CHECK(file->model.weights.size() == 1);
    const auto* tokens = file->headers[0].find("tokenizer.ggml.tokens");
    REQUIRE(tokens != nullptr);
    CHECK(std::get<std::vector<std::string>>(std::get<GgufArray>(tokens->value).values)[0] == "\xa0the");  // as it is
    CHECK(std::get<std::string>(file->headers[0]
                                    .find("\xff"
                                          "key")
                                    ->value) == "\xc4x");
    for (const auto& [key, value] : file->model.metadata) {
        CHECK(format::detail::is_utf8(key));
        CHECK(format::detail::is_utf8(value));
    }
    CHECK(file->model.metadata[1].value == "[\"\xef\xbf\xbdthe\", \"ok\"]");
    CHECK(file->model.metadata[2].value == "plain");
}

TEST_CASE("gguf: bytes after the last tensor are passed over") {
    const std::string file = Bytes{}.header(1, 0).tensor("a", {1}, 0, 0).pad().raw("1234").pad().raw("more").text;
    const auto model = read(file);
    REQUIRE(model);
    REQUIRE(model->model.notes.size() == 1);
    CHECK(model->model.notes[0].find("its last 4 bytes belong to no tensor") != std::string::npos);
    CHECK(read(file.substr(0, file.size() - 4))->model.notes.empty());
    CHECK(refused(
        support::over(file, [](const format::Input& input) { return format::try_read_gguf(input, {.strict = true}); }),
        "belong to no tensor"));
}

TEST_CASE("gguf: the files of a split model under any names, in any order") {
    const support::TemporaryFolder folder;
    std::vector<std::string> parts;
    for (const std::string number : {"3", "1", "2"}) {
        parts.push_back(folder.write("model.shard" + number + ".gguf",
                                     support::read_all(fixture("gguf/split-0000" + number + "-of-00003.gguf"))));
    }
    const auto model = format::try_read_model_parts(parts);
    REQUIRE(model);
    support::check_against_reference(*model, "gguf/split.expected.json");
    CHECK(model->files[0].path.ends_with("shard1.gguf"));
    CHECK(format::try_read_model(folder.file(""))->weights.size() == 5);  // a folder with that model alone
    CHECK(refused(format::try_read_model_parts({parts[0], parts[1]}), "found 2 files, expected 3"));
    CHECK(refused(format::try_read_model_parts({parts[0], parts[1], parts[1]}), "a second file 1"));
    CHECK(
        refused(format::try_read_model_parts({parts[0], fixture("gguf/metadata.gguf")}), "found a model in one file"));
    CHECK(refused(format::try_read_gguf(parts[0]), "give all of them in a list"));
}

}  // namespace gguf_test
