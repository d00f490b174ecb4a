// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/safetensors.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/open.hpp"

namespace safetensors_test {

using namespace residency;
using support::fixture;
using support::refused;

namespace {

std::string little(std::uint64_t value) {
    std::string out;
    for (int i = 0; i < 8; ++i, value >>= 8) { out += static_cast<char>(value & 255); }
    return out;
}
std::string file_of(const std::string& header, std::size_t data_bytes) {
    return little(header.size()) + header + std::string(data_bytes, 'x');
}

Result<format::ModelFile> read(const std::string& bytes) {
    return support::over(bytes, [](const format::Input& input) { return format::try_read_safetensors(input); });
}
Result<format::ModelFile> read(const std::string& header, std::size_t data_bytes) {
    return read(file_of(header, data_bytes));
}

constexpr const char* kOne = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";

}  // namespace

TEST_CASE("safetensors: files of the reference implementation read back equal") {
    for (const std::string name : {"every_dtype", "small", "no_tensors", "unaligned", "tied"}) {
        CAPTURE(name);
        const auto model = format::try_read_safetensors(fixture("safetensors/" + name + ".safetensors"));
        REQUIRE(model);
        CHECK(model->format == "safetensors");
        const auto expected = support::check_against_reference(*model, "safetensors/" + name + ".expected.json");
        std::map<std::string, std::string> metadata;
        for (const auto& [key, value] : model->metadata) { metadata[key] = value; }
        CHECK(metadata == expected.at("metadata").get<std::map<std::string, std::string>>());
        if (name != "tied") { CHECK(model->weights.size() == expected.at("weights").size()); }
    }
}

TEST_CASE("safetensors: every type of the format has a distinct name, and names a type") {
    CHECK(format::safetensors_dtypes.size() == 22);
    for (const auto& known : format::safetensors_dtypes) {
        CHECK(format::find_safetensors_dtype(known.name) == known.type);
        CHECK(format::safetensors_name(known.type) == known.name);
    }
    CHECK_FALSE(format::find_safetensors_dtype("F7"));
    CHECK(format::safetensors_name(dtype::i4).empty());
}

TEST_CASE("safetensors: tied weights of save_model are one storage") {
    const auto path = fixture("safetensors/tied.safetensors");
    const auto model = format::try_read_safetensors(path);
    REQUIRE(model);
    REQUIRE(model->weights.size() == 3);
    REQUIRE(model->storages.size() == 2);
    const auto catalog = model->try_catalog();
    REQUIRE(catalog);
    const auto embed = catalog->find("embed.weight");
    const auto head = catalog->find("head.weight");
    REQUIRE(embed);
    REQUIRE(head);
    CHECK(catalog->storage_of(*embed) == catalog->storage_of(*head));
    CHECK(catalog->total_bytes() == 5 * 4 * 4 + 4 * 2);
    CHECK(format::try_read_safetensors(path, {.ties_from_metadata = false})->weights.size() == 2);
}

TEST_CASE("safetensors: a sharded model is one catalog over all its files") {
    const auto model = format::try_read_safetensors(fixture("safetensors/sharded.safetensors.index.json"));
    REQUIRE(model);
    CHECK(model->files.size() == 3);
    CHECK(model->weights.size() == 6);
    CHECK(model->metadata.size() == 1);
    support::check_against_reference(*model, "safetensors/sharded.expected.json");
}

TEST_CASE("safetensors: what the specification allows is read") {
    CHECK(read("{}", 0));
    CHECK(read("{}      ", 0));
    CHECK(read(std::string{"{"} + kOne + "}", 1));
    CHECK(read(R"({"__metadata__":{},)" + std::string{kOne} + "}", 1));
    CHECK(read(R"({"__metadata__":null,)" + std::string{kOne} + "}", 1));
    CHECK(read(R"({"a":{"data_offsets":[0,1],"shape":[],"dtype":"BOOL"}})", 1));
    CHECK(read(
        R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"later":{"x":[1,null,"y",-2.5,{"z":[true]}]},"more":3}})",
        1));
    const auto zero = read(
        R"({"b":{"dtype":"F64","shape":[0,18446744073709551615],"data_offsets":[1,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
        1);
    REQUIRE(zero);
    CHECK(zero->weights[0].name == "a");
    CHECK(zero->weights[1].bytes == 0);
    const auto escaped = read(R"({"\u0000\ud83d\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
    REQUIRE(escaped);
    CHECK(escaped->weights[0].name == std::string{"\0\xf0\x9f\x98\x80", 5});
}

TEST_CASE("C7: safetensors: headers that break the specification are refused with the place") {
    const auto tensor = [](const std::string& fields) { return "{\"a\":{" + fields + "}}"; };
    CHECK(refused(read("\1\2\3"), "found 3 bytes, expected at least 8 bytes"));
    CHECK(refused(read(little(100'000'001) + "{}"),
                  "too large: found 100,000,001 bytes (95.37 MiB), expected at most 100,000,000 bytes (95.37 MiB)"));
    CHECK(refused(read(little(UINT64_MAX) + "{}"), "too large"));
    CHECK(refused(read(little(3) + "{}"),
                  "longer than the file: the file is cut off: download it again: found 10 "
                  "bytes, expected at least 11 bytes"));
    CHECK(refused(read(little(0)), "does not start with '{'"));
    CHECK(refused(read(" {}", 0), "does not start with '{'"));
    CHECK(refused(read("\xef\xbb\xbf{}", 0), "does not start with '{'"));
    CHECK(refused(read("[]", 0), "does not start with '{'"));
    CHECK(refused(read("{", 0), "not valid JSON"));
    CHECK(refused(read("{}{}", 0), "not valid JSON"));
    CHECK(refused(read(std::string{"{}\0", 3}, 0), "not valid JSON"));
    CHECK(refused(read(std::string{"{"} + kOne + ",}", 1), "not valid JSON"));
    CHECK(refused(read("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "not valid JSON"));
    CHECK(refused(read("{\"\xc0\x80\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "not valid JSON"));
    CHECK(refused(read(R"({"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "not valid JSON"));
    CHECK(refused(read(R"({"a":1})", 0), "wrong kind"));
    CHECK(refused(read(R"({"a":["U8",[1],[0,1]]})", 1), "wrong kind"));
    CHECK(refused(read(R"({"__metadata__":{"a":1}})", 0), "wrong kind"));
    CHECK(refused(read(R"({"__metadata__":{"a":{}}})", 0), "wrong kind"));
    CHECK(refused(read(R"({"__metadata__":[]})", 0), "wrong kind"));
    CHECK(refused(read(R"({"__metadata__":{},"__metadata__":{}})", 0), "given twice"));
    CHECK(refused(read(R"({"__metadata__":{"a":"1","b":"1","a":"2"}})", 0), "metadata \"a\" is given twice"));
    CHECK(refused(read(std::string{"{"} + kOne + ',' + kOne + "}", 1), "given twice"));
    CHECK(refused(read(tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"), 1), "given twice"));
    CHECK(refused(read(tensor(R"("shape":[1],"data_offsets":[0,1])"), 1), "lacks \"dtype\""));
    CHECK(refused(read(tensor(R"("dtype":"U8","data_offsets":[0,1])"), 1), "lacks \"shape\""));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[1])"), 1), "lacks \"data_offsets\""));
    CHECK(refused(read(tensor(R"("dtype":"U9","shape":[1],"data_offsets":[0,1])"), 1),
                  "an unknown type: save the weights as a type that is known"));
    CHECK(refused(read(tensor(R"("dtype":8,"shape":[1],"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(
        refused(read(tensor(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])"), 1), "wrong kind"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1), "fewer than two"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])"), 1), "more than two"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1), "run backwards"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,2])"), 1),
                  "beyond the end of the file: the file is cut off: download it again"));
    CHECK(refused(read(tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,1])"), 1), "does not match"));
    CHECK(refused(read(tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2), "whole bytes"));
    CHECK(refused(read(tensor(R"("dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0), "64 bits"));
    CHECK(refused(read(tensor(R"("dtype":"F64","shape":[18446744073709551615,2,0],"data_offsets":[0,0])"), 0),
                  "64 bits"));
    CHECK(refused(read(tensor(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"), 0), "64 bits"));
}

TEST_CASE("C7: safetensors: data that overlap, leave holes or belong to nothing are refused") {
    const auto two = [](const std::string& a, const std::string& b) {
        return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
               R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
    };
    CHECK(read(two("[0,2]", "[2,4]"), 4));
    CHECK(read(two("[2,4]", "[0,2]"), 4));
    CHECK(refused(read(two("[0,2]", "[1,3]"), 3), "overlap"));
    CHECK(refused(read(two("[0,2]", "[0,2]"), 2), "overlap"));
    CHECK(refused(read(two("[0,2]", "[3,5]"), 5), "hole"));
    CHECK(refused(read(two("[1,3]", "[3,5]"), 5), "hole"));
    CHECK(refused(read(two("[0,2]", "[2,4]"), 5), "belong to no tensor"));
    CHECK(refused(read("{}", 1), "belong to no tensor"));
    const auto error = read(two("[0,2]", "[1,3]"), 3).error();
    REQUIRE(error.detail<FileLocation>() != nullptr);
    CHECK(error.detail<FileLocation>()->source == "memory");
    CHECK(error.detail<FileLocation>()->offset > 8);
    CHECK(error.message().find("\"b\"") != std::string::npos);
}

TEST_CASE("C7: safetensors: every truncation of a file is refused") {
    const std::string whole = support::read_all(fixture("safetensors/small.safetensors"));
    REQUIRE(read(whole));
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        CAPTURE(bytes);
        CHECK_FALSE(read(whole.substr(0, bytes)));
    }
    CHECK_FALSE(read(whole + 'x'));
}

TEST_CASE("C7: safetensors: an index and its files must agree") {
    const support::TemporaryFolder folder;
    folder.write("1.safetensors", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
    folder.write("2.safetensors", file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
    const auto index = [&](const std::string& map) {
        return format::try_read_safetensors(
            folder.write("m.safetensors.index.json", "{\"metadata\":{\"x\":[{}]},\"weight_map\":" + map + "}"));
    };
    REQUIRE(index(R"({"a":"1.safetensors","b":"2.safetensors"})"));
    CHECK(index(R"({"a":"1.safetensors","b":"2.safetensors"})")->weights.size() == 2);
    CHECK(refused(index("{}"), "lists no tensor"));
    CHECK(refused(index(R"({"a":"1.safetensors","b":"1.safetensors"})"), "not in its file"));
    CHECK(refused(index(R"({"a":"2.safetensors","b":"2.safetensors"})"), "not in its file"));
    CHECK(refused(index(R"({"a":1})"), "not an object of strings"));
    CHECK(refused(index(R"({"c":"1.safetensors","a":"2.safetensors"})"), "tensor \"c\" is not in its file"));
    CHECK(refused(index(R"({"a":"2.safetensors","b":"1.safetensors"})"), "found it in \"1.safetensors\""));
    CHECK(refused(index(R"({"a":"1.safetensors","a":"1.safetensors"})"), "given twice"));
    CHECK(refused(index(R"({"a":"../1.safetensors"})"), "leaves the index's folder"));
    CHECK(refused(index(R"({"a":"/etc/passwd"})"), "leaves the index's folder"));
    CHECK(refused(index(R"({"a":""})"), "leaves the index's folder"));
    CHECK(refused(index("[]"), "not an object of strings"));
    CHECK(refused(index(R"({"a":["1.safetensors"]})"), "not an object of strings"));
    CHECK(refused(format::try_read_safetensors(folder.write("x.json", "{}")), "no \"weight_map\""));
    CHECK(refused(format::try_read_safetensors(folder.write("x.json", "[]")), "not an object"));
    CHECK(refused(format::try_read_safetensors(folder.write("x.json", "7")), "not an object"));
    const auto missing = index(R"({"a":"1.safetensors","b":"3.safetensors"})");
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind() == ErrorKind::io);
    CHECK(missing.error().message().find("3.safetensors") != std::string::npos);
}

namespace {

std::string tensors_of(const std::vector<std::string>& names, const std::string& metadata = {}) {
    std::string header = "{" + (metadata.empty() ? std::string{} : "\"__metadata__\":" + metadata);
    for (std::size_t i = 0; i < names.size(); ++i) {
        header += (header.size() == 1 ? "\"" : ",\"") + names[i] + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
                  std::to_string(i) + "," + std::to_string(i + 1) + "]}";
    }
    return file_of(header + "}", names.size());
}
std::vector<std::string> names_of(const format::ModelFile& model) {
    std::vector<std::string> names;
    for (const auto& weight : model.weights) { names.push_back(weight.name); }
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace

TEST_CASE("safetensors: the index decides which file a tensor comes from") {
    const support::TemporaryFolder folder;
    folder.write("base.safetensors", tensors_of({"a", "b", "extra", "c"}));
    folder.write("overlay.safetensors", tensors_of({"unused", "b"}));
    const std::string index =
        folder.write("m.safetensors.index.json",
                     R"({"weight_map":{"a":"base.safetensors","b":"overlay.safetensors","c":"base.safetensors"}})");
    const auto model = format::try_read_safetensors(index);
    REQUIRE(model);
    CHECK(names_of(*model) == std::vector<std::string>{"a", "b", "c"});
    CHECK(model->storages.size() == 3);
    for (const auto& weight : model->weights) {
        const auto& storage = model->storages.at(weight.storage);
        CHECK((model->files.at(storage.file).path.find("overlay") != std::string::npos) == (weight.name == "b"));
        CHECK(model->files[storage.file].bytes - storage.offset_bytes == (weight.name == "a" ? 4 : 1));
    }
    REQUIRE(model->passed_over.size() == 3);
    CHECK(model->passed_over[0].name == "b");
    CHECK(std::string_view{model->passed_over[0].why} == "the index gives it to another file");
    CHECK(model->passed_over[1].name == "extra");
    CHECK(std::string_view{model->passed_over[1].why} == "the index does not list it");
    REQUIRE(model->try_catalog());
    CHECK(model->try_catalog()->total_bytes() == 3);
    CHECK(refused(format::try_read_safetensors(index, {.strict = true}), "\"b\" is in another file"));
    folder.write("base.safetensors", tensors_of({"a", "extra", "c"}));
    CHECK(refused(format::try_read_safetensors(index, {.strict = true}), "\"extra\" is not in the index"));
}

TEST_CASE("safetensors: a part of a sharded model opened alone says which index lists it") {
    const support::TemporaryFolder folder;
    const std::string part = folder.write("1.safetensors", tensors_of({"a"}));
    folder.write("2.safetensors", tensors_of({"b"}));
    CHECK(format::try_read_model(part)->notes.empty());
    folder.write("broken.index.json", "{");
    folder.write("m.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
    for (const auto& model : {format::try_read_model(part), format::try_read_safetensors(part)}) {
        REQUIRE(model);
        REQUIRE(model->notes.size() == 1);
        CHECK(model->notes[0].find("m.safetensors.index.json\" lists it; give that index") != std::string::npos);
    }
    CHECK(format::try_read_model(folder.file("m.safetensors.index.json"))->notes.empty());
    folder.write("m.safetensors.index.json", R"({"weight_map":{"a":"1.safetensors"}})");
    CHECK(format::try_read_model(part)->notes.empty());  // the index of one file says no more than the file
}

TEST_CASE("safetensors: a weight of the name of a metadata key is not tied") {
    // In the same file, in another file of an index or of a list; and a value that only looks like a name.
    const auto alone = read(tensors_of({"embed", "head"}, R"({"head":"embed"})"));
    REQUIRE(alone);
    CHECK(alone->weights.size() == 2);
    CHECK(alone->weights[0].storage != alone->weights[1].storage);
    const auto convention = read(tensors_of({"pt", "x"}, R"({"format":"pt","modelspec.title":"x","ss_network":"x"})"));
    REQUIRE(convention);
    CHECK(names_of(*convention) == std::vector<std::string>{"pt", "x"});

    const support::TemporaryFolder folder;
    const auto first = folder.write("1.safetensors", tensors_of({"embed"}, R"({"head":"embed","norm":"embed"})"));
    const auto second = folder.write("2.safetensors", tensors_of({"head"}));
    const auto index =
        folder.write("m.safetensors.index.json", R"({"weight_map":{"embed":"1.safetensors","head":"2.safetensors"}})");
    for (const auto& model : {format::try_read_model(index), format::try_read_model_parts({first, second}),
                              format::try_read_model_parts({second, first})}) {
        REQUIRE(model);
        REQUIRE(names_of(*model) == std::vector<std::string>{"embed", "head", "norm"});
        CHECK(model->storages.size() == 2);
        std::map<std::string, std::uint32_t> storage;
        for (const auto& weight : model->weights) { storage[weight.name] = weight.storage; }
        CHECK(storage["embed"] != storage["head"]);
        CHECK(storage["embed"] == storage["norm"]);
    }
    // A tie that the index lists too.
    folder.write("m.safetensors.index.json", R"({"weight_map":{"embed":"1.safetensors","norm":"1.safetensors"}})");
    CHECK(format::try_read_model(index)->weights.size() == 3);
}

}  // namespace safetensors_test
