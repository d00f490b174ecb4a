// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/aoti.hpp"

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/format/zip.hpp"
#include "tests/support/zip_archive.hpp"

namespace aoti_test {

using namespace residency;
using support::fixture;
using support::over;
using support::refused;

namespace {

Result<format::ModelFile> package(const std::string& bytes) {
    return over(bytes, [](const format::Input& input) { return format::try_read_aoti_package(input); });
}
Result<format::ModelFile> blob(std::size_t bytes, const std::vector<format::AotiConstant>& constants,
                               format::AotiLayout layout = format::AotiLayout::automatic) {
    return over(std::string(bytes, 'x'),
                [&](const format::Input& input) { return format::try_read_aoti_blob(input, constants, layout); });
}
Result<std::vector<format::AotiConstant>> table(const std::string& text) {
    return over(text, [](const format::Input& input) { return format::try_read_aoti_constants(input); });
}
template <std::size_t N>
std::string literal(const char (&text)[N]) {
    return {text, N - 1};
}
std::uint32_t storage_of(const format::ModelFile& model, const std::string& name) {
    for (const auto& weight : model.weights) {
        if (weight.name == name) { return weight.storage; }
    }
    return UINT32_MAX;
}

}  // namespace

TEST_CASE("aoti: packages of PyTorch's own packager read back equal") {
    for (const std::string name : {"saved", "blob", "exported"}) {
        CAPTURE(name);
        const auto model = format::try_read_aoti(fixture("aoti/" + name + ".pt2"));
        REQUIRE(model);
        CHECK(model->format == "aotinductor");
        const auto expected = support::check_against_reference(*model, "aoti/" + name + ".expected.json");
        CHECK(model->weights.size() == expected.at("weights").size());
    }
}

TEST_CASE("aoti: weights that share bytes of a record share a storage, and others do not") {
    const auto saved = format::try_read_aoti(fixture("aoti/saved.pt2"));
    REQUIRE(saved);
    CHECK(storage_of(*saved, "first") != storage_of(*saved, "second"));
    const auto exported = format::try_read_aoti(fixture("aoti/exported.pt2"));
    REQUIRE(exported);
    CHECK(storage_of(*exported, "first") != storage_of(*exported, "second"));
    CHECK(storage_of(*exported, "embed.weight") == storage_of(*exported, "head.weight"));
    CHECK(storage_of(*exported, "embed.weight") != storage_of(*exported, "first"));
}

TEST_CASE("aoti: a blob by itself, dense and padded") {
    const auto code = format::Input::try_open(fixture("aoti/dense.cpp"));
    REQUIRE(code);
    auto constants = format::try_read_aoti_constants(*code);
    REQUIRE(constants);
    REQUIRE(constants->size() == 5);
    const auto dense = format::Input::try_open(fixture("aoti/dense_weights.blob"));
    REQUIRE(dense);
    for (const auto layout : {format::AotiLayout::automatic, format::AotiLayout::dense}) {
        const auto model = format::try_read_aoti_blob(*dense, *constants, layout);
        REQUIRE(model);
        support::check_against_reference(*model, "aoti/blob.expected.json");
    }
    CHECK(refused(format::try_read_aoti_blob(*dense, *constants, format::AotiLayout::padded), "size of its constants"));

    const std::vector<format::AotiConstant> two{{"a", "float32", {3}, {}, 0, 12},
                                                {"b", "torch.int8", {70}, {1}, 0, 70}};
    const auto padded = blob(64 + 128, two);
    REQUIRE(padded);
    CHECK(padded->storages[1].offset_bytes == 64);
    CHECK(padded->storages[1].bytes == 70);
    CHECK(blob(82, two)->storages[1].offset_bytes == 12);
    CHECK(refused(blob(83, two), "size of its constants"));
    CHECK(refused(blob(64 + 128, two, format::AotiLayout::dense), "size of its constants"));
    CHECK(refused(blob(12, {{"a", "float31", {3}, {}, 0, 12}}), "unknown type"));
    CHECK(refused(blob(12, {{"a", "float32", {4}, {}, 0, 12}}), "does not lie inside"));
    CHECK(refused(blob(12, {{"a", "float32", {3}, {}, 1, 12}}), "does not lie inside"));
    CHECK(refused(blob(12, {{"a", "float32", {3}, {}, UINT64_MAX / 2, 12}}), "64 bits"));
    CHECK(refused(blob(12, {{"a", "float32", {2, 2}, {UINT64_MAX, 1}, 0, 12}}), "64 bits"));
    CHECK(refused(blob(12, {{"a", "float32", {3}, {1, 1}, 0, 12}}), "strides"));
    CHECK(refused(blob(24, {{"a", "float32", {3}, {}, 0, 12}, {"a", "float32", {3}, {}, 0, 12}}), "given twice"));
    CHECK(refused(blob(24, {{"a", "int8", {1}, {}, 0, UINT64_MAX}, {"b", "int8", {1}, {}, 0, UINT64_MAX}}),
                  "more than 64 bits"));
}

TEST_CASE("aoti: the table of constants in generated code") {
    const auto line = [](int i, const std::string& rest) {
        return "    constants_info_[" + std::to_string(i) + "]." + rest + ";\n";
    };
    const auto entry = [&](int i, const std::string& name, const std::string& folded = "false") {
        return line(i, "name = \"" + name + "\"") +
               line(i, "dtype = static_cast<int32_t>(cached_torch_dtype_bfloat16)") + line(i, "offset = 2L") +
               line(i, "data_size = 64") + line(i, "from_folded = " + folded) + line(i, "shape = {2, 6L}") +
               line(i, "stride = {6, 1}") + line(i, "original_fqn = \"" + name + ".weight\"");
    };
    const auto constants = table("int x;\n" + entry(0, "a") + entry(1, "f", "true") + entry(2, "q\\\"") + "tail");
    REQUIRE(constants);
    REQUIRE(constants->size() == 2);
    CHECK((*constants)[0].name == "a.weight");
    CHECK((*constants)[0].dtype == "bfloat16");
    CHECK((*constants)[0].shape == Shape{2, 6});
    CHECK((*constants)[0].strides == Strides{6, 1});
    CHECK((*constants)[0].offset_elements == 2);
    CHECK((*constants)[0].storage_bytes == 64);
    CHECK((*constants)[1].name == "q\".weight");
    CHECK(table("no table")->empty());
    CHECK(table(line(0, "shape = {}"))->at(0).shape.empty());
    CHECK(refused(table(entry(1, "a")), "out of order"));
    CHECK(refused(table("constants_info_[18446744073709551615].offset = 0;"), "out of order"));
    CHECK(refused(table(entry(0, "a") + entry(1, "b") + entry(0, "a")), "out of order"));
    CHECK(refused(table(line(0, "shape = {1")), "shape is not valid"));
    CHECK(refused(table(line(0, "shape = {1 2}")), "shape is not valid"));
    CHECK(refused(table(line(0, "data_size = -1")), "data_size is not valid"));
    CHECK(refused(table(line(0, "name = \"a")), "name is not valid"));
    CHECK(refused(table(line(0, "dtype = 7")), "dtype is not valid"));
}

TEST_CASE("aoti: an unpacked package is read by its configuration") {
    const support::TemporaryFolder folder;
    const auto archive = fixture("aoti/saved.pt2");
    const auto input = format::Input::try_open(archive);
    REQUIRE(input);
    const auto zip = format::detail::ZipDirectory::try_read(*input, 0, input->bytes());
    REQUIRE(zip);
    for (const auto& entry : zip->entries()) {
        const auto range = zip->try_locate(*input, entry);
        REQUIRE(range);
        const std::string path = folder.file(entry.name);
        std::filesystem::create_directories(std::filesystem::path{path}.parent_path());
        support::write_all(path, *input->try_text(range->offset, range->bytes));
    }
    const auto model = format::try_read_aoti(folder.file("saved/data/aotinductor/model/weights_config.json"));
    REQUIRE(model);
    support::check_against_reference(*model, "aoti/saved.expected.json");
    const auto lost = format::try_read_aoti(folder.write("weights_config.json", R"({"a":["weight_0",[1],[1],0]})"));
    CHECK(refused(lost, "weight_0"));
}

TEST_CASE("C7: aoti: configurations that break their form are refused") {
    const support::TemporaryFolder folder;
    folder.write("w", std::string(8, 'x'));
    const auto saved = [&](const std::string& text) {
        return format::try_read_aoti(folder.write("weights_config.json", text));
    };
    CHECK(saved("{}"));
    CHECK(refused(saved("[]"), "not an object"));
    CHECK(refused(saved(R"({"a":1})"), "not an array of"));
    CHECK(refused(saved(R"({"a":["w",[1],[1]]})"), "not an array of"));
    CHECK(refused(saved(R"({"a":["w",[1],[1,1],0]})"), "not an array of"));
    CHECK(refused(saved(R"({"a":["w",[1],[-1],0]})"), "not an array of"));
    CHECK(refused(saved(R"({"a":["../w",[1],[1],0]})"), "not an array of"));
    CHECK(refused(saved(R"({"a":["w",[1],[1],0]})"), "ZIP"));
    CHECK(refused(saved(R"({"a":["w",[1],[1],0],"a":["w",[1],[1],0]})"), "given twice"));
    const auto payload = [&](const std::string& fields, const std::string& dtype = "7",
                             const std::string& sizes = R"([{"as_int":2}])") {
        return format::try_read_aoti(
            folder.write("weights_config.json", "{\"config\":{\"a\":{" + fields +
                                                    ",\"tensor_meta\":{\"dtype\":" + dtype + ",\"sizes\":" + sizes +
                                                    R"(,"strides":[{"as_int":1}],"storage_offset":{"as_int":0}}}}})"));
    };
    const std::string good = R"("path_name":"w","use_pickle":false)";
    CHECK(payload(good));
    CHECK(refused(payload(R"("path_name":"x","use_pickle":false)"), "not there"));
    CHECK(refused(payload(R"("path_name":"a/b","use_pickle":false)"), "path_name"));
    CHECK(payload(R"("path_name":"w","use_pickle":true)").error().kind() == ErrorKind::unsupported);
    CHECK(refused(payload(good, "99"), "unknown type"));
    CHECK(refused(payload(good, "7", R"([{"as_int":3}])"), "does not lie inside"));
    CHECK(refused(payload(good, "7", R"([{"as_expr":"s0"}])"), "not valid"));
    CHECK(refused(payload(good, "7", "[]"), "not valid"));
}

TEST_CASE("aoti: a record is a saved tensor or raw bytes, not one to one config and the other to another") {
    const std::string raw =
        R"({"config":{"a":{"path_name":"r","use_pickle":false,"tensor_meta":{"dtype":7,"sizes":[{"as_int":4}],)"
        R"("strides":[{"as_int":1}],"storage_offset":{"as_int":0}}}}})";
    const std::string saved = R"({"b":["r",[4],[1],0]})";
    const std::pair<std::string, std::string> record{"p/data/weights/r", std::string(16, '\0')},
        of_raw{"p/data/weights/m_weights_config.json", raw},
        of_saved{"p/data/aotinductor/m/weights_config.json", saved};
    CHECK(package(support::zip_archive({record, of_raw})));
    CHECK(refused(package(support::zip_archive({of_raw, record, of_saved})), "raw bytes"));
    const auto input = format::Input::try_open(fixture("aoti/saved.pt2"));
    REQUIRE(input);
    const auto zip = format::detail::ZipDirectory::try_read(*input, 0, input->bytes());
    REQUIRE(zip);
    REQUIRE(zip->find("saved/data/weights/weight_0") != nullptr);
    const auto range = zip->try_locate(*input, *zip->find("saved/data/weights/weight_0"));
    REQUIRE(range);
    const std::string tensor = *input->try_text(range->offset, range->bytes);
    CHECK(refused(package(support::zip_archive({of_saved, {"p/data/weights/r", tensor}, of_raw})), "saved tensor"));
}

TEST_CASE("aoti: a folder of many records is read one file after the other") {
    const support::TemporaryFolder folder;
    std::string config;
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 64;
    for (int i = 0; i < 200; ++i) {
        const std::string name = "r" + std::to_string(i);
        folder.write(name, std::string(16, 'x'));
        config += std::string{i == 0 ? "" : ","} + "\"w" + std::to_string(i) + R"(":{"path_name":")" + name +
                  R"(","use_pickle":false,"tensor_meta":{"dtype":7,"sizes":[{"as_int":4}],"strides":[{"as_int":1}],)"
                  R"("storage_offset":{"as_int":0}}})";
    }
    const std::string path = folder.write("weights_config.json", "{\"config\":{" + config + "}}");
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto model = format::try_read_aoti(path);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(model);
    CHECK(model->weights.size() == 200);
    std::filesystem::remove(folder.file("r7"));
    std::filesystem::create_directory(folder.file("r7"));
    const auto lost = format::try_read_aoti(path);
    REQUIRE_FALSE(lost);
    CHECK(lost.error().message().find("a folder and not a file") != std::string::npos);
}

TEST_CASE("C7: aoti: damaged archives are refused") {
    const std::string whole = support::read_all(fixture("aoti/saved.pt2"));
    REQUIRE(package(whole));
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 200 || bytes + 200 > whole.size() ? 1 : 37) {
        CAPTURE(bytes);
        CHECK_FALSE(package(whole.substr(0, bytes)));
    }
    CHECK_FALSE(package(whole + "x"));
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string copy = whole;
        for (std::size_t at = copy.find(from); at != std::string::npos; at = copy.find(from, at + to.size())) {
            copy.replace(at, from.size(), to);
        }
        return package(copy);
    };
    CHECK(changed("saved/data/weights/weight_0", "saved/data/weights/weight_9").error().message().find("weight_0") !=
          std::string::npos);
    CHECK_FALSE(changed("data/weights/weight_0", "data/weights/weight_1"));
    CHECK(refused(changed("_rebuild_tensor_v2", "_rebuild_tensor_vX"), "not the pickle of a tensor"));
    CHECK(refused(changed("FloatStorage", "FloatStoragX"), "unknown type"));
    CHECK(refused(changed("torch._utils", "posixsystem_"), "not the pickle of a tensor"));
    CHECK(changed("/data.pkl", "/data.pkx").error().kind() == ErrorKind::unsupported);
    CHECK(changed("little", "bigend").error().kind() == ErrorKind::unsupported);
    const auto other = package(std::string{"PK\5\6"} + std::string(18, '\0'));
    REQUIRE_FALSE(other);
    CHECK(other.error().kind() == ErrorKind::unsupported);
}

TEST_CASE("aoti: pickles of tensors") {
    using format::detail::TorchPickle;
    const std::string source = "memory";
    const auto read = [&](const std::string& text) { return TorchPickle::try_read_tensor(text, source, 0); };
    // What PyTorch 2.15 writes for a parameter of float8_e4m3fn, shape [2, 3].
    const std::string storage =
        "ctorch._utils\n_rebuild_tensor_v3\n((" + literal(
                                                      "X\7\0\0\0storagectorch.storage\nUntypedStorage\nX\1\0\0\0"
                                                      "0X\3\0\0\0cpuK\6tQ");
    const std::string tensor = storage + literal(
                                             "K\0K\2K\3\x86K\3K\1\x86\x89"
                                             "ccollections\nOrderedDict\n)Rctorch\nfloat8_e4m3fn\ntR");
    const auto parameter = read(
        "\x80\2"
        "ctorch._utils\n_rebuild_parameter\n" +
        tensor + "\x88}\x87R.");
    REQUIRE(parameter);
    CHECK(parameter->dtype.name == "float8_e4m3fn");
    CHECK(parameter->storage.bytes == 6);
    CHECK(parameter->shape == std::vector<std::uint64_t>{2, 3});
    CHECK(parameter->strides == std::vector<std::uint64_t>{3, 1});
    for (const std::string bad : {"", ".", "\x80\2.", "N.", "(.", "NN.", "cos\nsystem\n(X\2\0\0\0lstR.", "h\1.", "q\1.",
                                  "\x86.", "t.", "R.", "Q.", "X\377\377\377\377."}) {
        CHECK_FALSE(read(bad));
    }
    CHECK(read(std::string(10000, 'N')).error().kind() == ErrorKind::unsupported);  // too many operations
}

}  // namespace aoti_test
