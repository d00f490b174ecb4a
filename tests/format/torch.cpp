// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/torch.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/open.hpp"
#include "residency/format/torch_pickle.hpp"
#include "residency/model/number.hpp"

namespace torch_test {

using namespace residency;
using support::fixture;
using support::refused;

namespace {

Result<format::ModelFile> read(const std::string& bytes) {
    return support::over(bytes, [](const format::Input& input) { return format::try_read_torch(input); });
}
const format::ModelFile::WeightEntry& weight_of(const format::ModelFile& model, std::string_view name) {
    for (const auto& weight : model.weights) {
        if (weight.name == name) { return weight; }
    }
    FAIL("no weight of that name");
    return model.weights.front();
}
/// Whether an error is of what is whole, but not read, says so in one line, and says what to do.
template <class T>
bool unsupported(const Result<T>& result, const std::string& what, const std::string& advice) {
    if (result) { return false; }
    const Error& error = result.error();
    const bool named = error.message().find(what) != std::string::npos &&
                       error.message().find(advice) != std::string::npos &&
                       error.message().find('\n') == std::string::npos;
    if (!named) { MESSAGE(error.message()); }
    return named && error.kind() == ErrorKind::unsupported;
}
std::string little(std::uint64_t number, std::size_t bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) { text += static_cast<char>(number >> 8 * i & 255); }
    return text;
}
/// A ZIP archive of stored records, without sums of their bytes.
std::string archive_of(const std::vector<std::pair<std::string, std::string>>& records) {
    std::string out;
    std::string directory;
    for (const auto& [name, bytes] : records) {
        const std::string sizes = little(bytes.size(), 4) + little(bytes.size(), 4) + little(name.size(), 2);
        directory += "PK\1\2" + std::string(16, '\0') + sizes + std::string(12, '\0') + little(out.size(), 4) + name;
        out += "PK\3\4" + std::string(14, '\0') + sizes + std::string(2, '\0') + name + bytes;
    }
    return out + directory + "PK\5\6" + std::string(4, '\0') + little(records.size(), 2) + little(records.size(), 2) +
           little(directory.size(), 4) + little(out.size(), 4) + std::string(2, '\0');
}

// Parts of pickles, as PyTorch spells them.
std::string text_of(std::string_view text) { return "X" + little(text.size(), 4) + std::string{text}; }
std::string storage_of(std::string_view kind, std::string_view key, unsigned elements) {
    return "(" + text_of("storage") + "ctorch\n" + std::string{kind} + "\n" + text_of(key) + text_of("cpu") + "K" +
           little(elements, 1) + "tQ";
}
/// Of one axis.
std::string tensor_of(const std::string& storage, unsigned offset, unsigned extent, const std::string& more = {}) {
    return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + "K" + little(offset, 1) + "K" + little(extent, 1) +
           "\x85K\1\x85\x89}" + more + "tR";
}
std::string saved(const std::string& pickle, const std::string& data = std::string(16, 'x')) {
    return archive_of({{"m/data.pkl", "\x80\2" + pickle + "."}, {"m/data/0", data}});
}

}  // namespace

TEST_CASE("torch: what PyTorch saved reads back equal") {
    for (const std::string name : {"state", "dtypes"}) {
        CAPTURE(name);
        const auto model = format::try_read_torch(fixture("torch/" + name + ".bin"));
        REQUIRE(model);
        CHECK(model->format == "torch");
        const auto expected = support::check_against_reference(*model, "torch/" + name + ".expected.json");
        CHECK(model->weights.size() == expected.at("weights").size());
    }
}

TEST_CASE("torch: weights that share bytes share a storage, in the order of the dictionary; others do not") {
    const auto model = format::try_read_torch(fixture("torch/state.bin"));
    REQUIRE(model);
    CHECK(model->weights.front().name == "first");
    CHECK(weight_of(*model, "embed.weight").storage == weight_of(*model, "tied.weight").storage);
    CHECK(weight_of(*model, "first").storage != weight_of(*model, "second").storage);  // halves of one tensor
    CHECK(weight_of(*model, "second").offset_bytes == 0);
    CHECK(weight_of(*model, "first").storage != weight_of(*model, "embed.weight").storage);
    CHECK(weight_of(*model, "turned").strides == Strides{1, 2});
    CHECK(weight_of(*model, "first").strides.empty());
    CHECK(weight_of(*model, "scalar").shape.empty());
    CHECK(weight_of(*model, "empty").bytes == 0);
    CHECK(weight_of(*model, "ids").dtype == "int64");
}

TEST_CASE("torch: a model in several files is read by its index") {
    const auto model = format::try_read_torch(fixture("torch/shard.bin.index.json"));
    REQUIRE(model);
    CHECK(model->format == "torch");
    CHECK(model->files.size() == 2);
    support::check_against_reference(*model, "torch/shard.expected.json");
    const auto opened = format::try_read_model(fixture("torch/shard.bin.index.json"));
    REQUIRE(opened);
    CHECK(opened->format == "torch");

    const support::TemporaryFolder folder;
    folder.write("shard-00001-of-00002.bin", support::read_all(fixture("torch/shard-00001-of-00002.bin")));
    const auto index = [&](const std::string& map) {
        return format::try_read_torch(folder.write("i.json", "{\"weight_map\":{" + map + "}}"));
    };
    CHECK(index(R"("a":"shard-00001-of-00002.bin","b":"shard-00001-of-00002.bin")"));
    const auto less = index(R"("a":"shard-00001-of-00002.bin")");
    REQUIRE(less);
    CHECK(less->weights.size() == 1);
    CHECK(less->passed_over.size() == 1);
    CHECK(refused(
        index(R"("a":"shard-00001-of-00002.bin","b":"shard-00001-of-00002.bin","c":"shard-00001-of-00002.bin")"),
        "is not in its file"));
    CHECK(index(R"("c":"shard-00002-of-00002.bin")").error().kind() == ErrorKind::io);
    CHECK(refused(index(R"("c":"../shard.bin")"), "leaves the index's folder"));

    // A variant's name; and weights that are tied, in any order, need not be listed where the one that they are tied to is.
    const std::string a = tensor_of(storage_of("FloatStorage", "0", 4), 0, 2);
    const std::string b = tensor_of(storage_of("FloatStorage", "1", 4), 0, 4);
    const auto named = [](const char* name, const std::string& tensor) { return text_of(name) + tensor + "s"; };
    const auto write = [&](const std::string& tensors) {
        folder.write("t.bin", archive_of({{"m/data.pkl", "\x80\2}" + tensors + "."},
                                          {"m/data/0", std::string(16, 'x')},
                                          {"m/data/1", std::string(16, 'y')}}));
        return format::try_read_model(
            folder.write("t.bin.index.fp16.json", R"({"weight_map":{"a":"t.bin","b":"t.bin"}})"));
    };
    const auto tied = write(named("a", a) + named("b", b) + named("c", a) + named("d", b));
    REQUIRE(tied);
    CHECK(tied->weights.size() == 4);
    const std::string other = tensor_of(storage_of("FloatStorage", "0", 4), 2, 2);
    const auto unlisted = write(named("c", a) + named("a", a) + named("b", b) + named("d", other));
    REQUIRE(unlisted);
    CHECK(unlisted->weights.size() == 3);
    CHECK(unlisted->storages.size() == 2);
    REQUIRE(unlisted->passed_over.size() == 1);
    CHECK(unlisted->passed_over[0].name == "d");
}

TEST_CASE("torch: the format is told by what is in the archive") {
    const support::TemporaryFolder folder;
    const auto model = format::try_read_model(folder.write("a", support::read_all(fixture("torch/state.bin"))));
    REQUIRE(model);
    CHECK(model->format == "torch");
    const auto older = format::try_read_model(fixture("torch/legacy.bin"));
    REQUIRE(older);
    CHECK(older->format == "torch");
}

TEST_CASE("C7: torch: what is whole, but no dictionary of dense tensors, is refused with advice") {
    const auto of = [](const std::string& name) { return format::try_read_torch(fixture("torch/" + name + ".bin")); };
    const std::string alone = "save the model's state_dict()";
    CHECK(unsupported(of("conjugate"), "not what is stored", "resolve_conj()"));
    CHECK(unsupported(of("sparse"), "_rebuild_sparse_tensor", "to_dense()"));
    CHECK(unsupported(read(archive_of({{"m/data/0", "x"}})), "no data.pkl", "torch.save did not write"));
    CHECK(unsupported(read(archive_of({{"m/code/data.pkl", "x"}})), "no data.pkl", "torch.save did not write"));
    const std::string name = text_of("a");
    CHECK(unsupported(read(saved("}" + name + "ctorch._tensor\n_rebuild_from_type_v2\n)Rs")), "with attributes",
                      "detach().clone()"));
    CHECK(unsupported(read(saved("}" + name + "ctorch._utils\n_rebuild_qtensor\n)Rs")), "_rebuild_qtensor",
                      "save its int_repr()"));
    CHECK(unsupported(read(saved("}" + name + "ctorch._utils\n_rebuild_nested_tensor\n)Rs")), "_rebuild_nested_tensor",
                      "a plain, dense one"));
    CHECK(unsupported(read(saved("I1\n")), "operation 73 of the pickle is none that tensors need", alone));
    CHECK(unsupported(read(saved("K\1")), "a value without tensors", alone));
    CHECK(unsupported(read(saved("](K\1e")), "a list without tensors", alone));
    CHECK(unsupported(read(saved("cdemo\nNet\n)\x81")), "an object without tensors", "\"demo Net\""));
    const std::string whose = "give the file that holds the model's state_dict()";
    CHECK(unsupported(read(saved("}K\1K\1s")), "a dictionary without tensors", whose));
    CHECK(unsupported(read(saved("}" + text_of("a") + "}s")), "a dictionary without tensors, of \"a\"", whose));
    const std::string tensor = tensor_of(storage_of("FloatStorage", "0", 4), 0, 4);
    CHECK(unsupported(read(saved("}N" + tensor + "s")), "a tensor whose key is no text", "by name"));
    CHECK(unsupported(read(saved("}" + text_of("\xff") + tensor + "s")), "a tensor whose key is no text", "by name"));
    CHECK(unsupported(read(saved(tensor)), "a tensor and not a dictionary", "save {\"name\": tensor}"));
    CHECK(unsupported(read(archive_of({{"m/data.pkl", ""}, {"m/byteorder", "big"}})), "another byte order", "little"));
}

TEST_CASE("torch: dictionaries in each of their spellings") {
    const std::string tensor = tensor_of(storage_of("FloatStorage", "0", 4), 1, 3);
    const std::string entry = text_of("a") + tensor;
    const std::string ordered = "ccollections\nOrderedDict\n)R";
    for (const std::string& pickle :
         {"}" + entry + "s", "}(" + entry + "u", ordered + entry + "s",
          ordered + "(" + entry + "u}" + text_of("_metadata") + "Nsb", "}(u" + entry + "s"}) {
        const auto model = read(saved(pickle));
        REQUIRE(model);
        REQUIRE(model->weights.size() == 1);
        CHECK(model->weights[0].name == "a");
        CHECK(model->weights[0].offset_bytes == 4);
        CHECK(model->weights[0].bytes == 12);
        CHECK(model->storages.at(0).bytes == 16);
    }
    for (const char* rebuild : {"_rebuild_parameter", "_rebuild_parameter_with_state"}) {
        CHECK(read(saved("}" + text_of("a") + "ctorch._utils\n" + rebuild + "\n(" + tensor + "\x88}tRs")));
    }
    CHECK(read(saved("}"))->weights.empty());
    // What is beside the tensors of a state_dict() is not looked at: floats, bytes, long integers, sets.
    for (const std::string& beside : std::vector<std::string>{
             "G" + std::string(8, '\1'), "C\1x", "B" + little(2, 4) + "xy", "\x8e" + little(2, 8) + "xy",
             "\x96" + little(1, 8) + "x", "\x8a\11" + std::string(9, '\1'), "\x8b" + little(3, 4) + "xyz",
             "\x8f(K\1K\2\x90", "(K\1\x91",
             "K\1K\2"
             "0",
             "\x8d" + little(1, 8) + "x", "](K\1e", "]K\1a"}) {
        CAPTURE(beside);
        const auto model = read(saved(ordered + entry + "s}" + text_of("_metadata") + beside + "sb"));
        REQUIRE(model);
        CHECK(model->weights.size() == 1);
    }
    // An empty view may begin behind its storage.
    const auto empty = read(saved("}" + text_of("a") + tensor_of(storage_of("FloatStorage", "0", 4), 9, 0) + "s"));
    REQUIRE(empty);
    CHECK(empty->weights[0].bytes == 0);
    // Metadata that says nothing.
    CHECK(read(saved("}" + text_of("a") + tensor_of(storage_of("FloatStorage", "0", 4), 0, 4, "}") + "s")));
}

TEST_CASE("C7: torch: what is damaged is refused") {
    const auto one = [](const std::string& tensor, const std::string& data = std::string(16, 'x')) {
        return read(saved("}" + text_of("a") + tensor + "s", data));
    };
    const std::string storage = storage_of("FloatStorage", "0", 4);
    REQUIRE(one(tensor_of(storage, 0, 4)));
    CHECK(refused(one(tensor_of(storage, 1, 4)), "tensor \"a\": float32[4], 16 bytes from 4 on, does not lie inside"));
    CHECK(refused(one(tensor_of(storage, 0, 4), "short"), "tensor \"a\""));
    CHECK(refused(one(tensor_of(storage, 0, 4), "short"), "another size"));
    CHECK(refused(one(tensor_of(storage_of("FloatStorage", "1", 4), 0, 4)), "without its data"));
    CHECK(refused(one(tensor_of(storage_of("FloatStoragX", "0", 4), 0, 4)), "unknown type"));
    CHECK(refused(one("ctorch._utils\n_rebuild_tensor_v2\n)R"), "tensor \"a\": "));
    CHECK(refused(one("ctorch._utils\n_rebuild_tensor_v9\n)R"), "not the pickle of a tensor"));
    const std::string entry = text_of("a") + tensor_of(storage, 0, 4);
    CHECK(refused(read(saved("}(" + entry + entry + "u")), "tensor \"a\" is given twice"));
    for (const std::string bad : {"", "}s", "}K\1s", "s", "u", "(u", "}(K\1u", "a", "e", "]e", "(a", "G", "}G1234567",
                                  "b", "\x81", "K\1", "}}", "(}", "ccollections\nOrderedDict\n"}) {
        CAPTURE(bad);
        CHECK_FALSE(read(saved(bad)));
    }
    // What a few bytes repeat without end.
    const auto called = [](const std::string& shape) {
        return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage_of("FloatStorage", "0", 4) + "K\1(" + shape + "t(" +
               shape + "t\x89}tR";
    };
    CHECK(refused(one(called(std::string(2 * 65, 'K'))), "lacks a valid"));
    const std::string recalls{"q\0h\0\x93", 5};
    CHECK(refused(read(saved(text_of(std::string(256, 'x')) + recalls)), "operation 147 of the pickle is damaged"));
    CHECK(refused(read(saved("K\1q\1")), "operation 113"));
    std::string many = "}" + text_of("a") + called(std::string(2 * 64, 'K')) + "q\5s";
    for (char c = 'b'; c <= 'z'; ++c) { many += "X\1" + std::string(3, '\0') + c + "h\5s"; }
    CHECK(refused(read(saved(many)), "more axes than the pickle has bytes"));
    // Two records in one place, and one that reaches into the next.
    std::string twice = archive_of({{"m/data.pkl", "\x80\2}."}, {"m/data/0", "x"}, {"m/data/1", "y"}});
    const std::size_t second = twice.find("m/data/1", twice.find("PK\1\2")) - 4;
    const std::size_t first = twice.find("m/data/0", twice.find("PK\1\2")) - 4;
    CHECK(refused(read(twice.replace(second, 4, twice.substr(first, 4))), "two ZIP entries begin at the same byte"));
    const std::string five = tensor_of(storage_of("FloatStorage", "0", 5), 0, 4);
    std::string long_one =
        archive_of({{"m/data/0", std::string(16, 'x')}, {"m/data.pkl", "\x80\2}" + text_of("a") + five + "s."}});
    const std::size_t sizes = long_one.find("m/data/0", long_one.find("PK\1\2")) - 26;
    CHECK(refused(read(long_one.replace(sizes, 8, little(20, 4) + little(20, 4))), "reaches beyond the next one"));
    // The next record is said to begin behind the archive: it is no end for the one before it.
    std::string past = archive_of(
        {{"m/data.pkl", "\x80\2}" + text_of("a") + five + "s."}, {"m/data/0", std::string(20, 'x')}, {"m/data/1", ""}});
    const std::size_t places = past.find("PK\1\2");
    const std::size_t last = past.find("m/data/1", places) - 4;
    past.replace(last, 4, little(1'000'000, 4));
    const std::size_t grown = past.find("m/data/0", places) - 26;
    past.replace(grown, 8, little(2'000, 4) + little(2'000, 4));
    CHECK(refused(read(past), "reaches beyond the next one, or the archive's data"));
    CHECK(refused(one(tensor_of(storage_of("FloatStorage", std::string(256, '0'), 4), 0, 4)), "lacks a valid"));
    const std::string whole = support::read_all(fixture("torch/state.bin"));
    REQUIRE(read(whole));
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) { CHECK_FALSE(read(whole.substr(0, bytes))); }
}

TEST_CASE("C7: torch: archives that are cut off are named as such, and zeros behind one are padding") {
    const std::string whole = support::read_all(fixture("torch/state.bin"));
    for (std::size_t bytes = 22; bytes < whole.size(); ++bytes) {
        CAPTURE(bytes);
        const std::string cut = "the file is cut off: download or save it again: found " + detail::in_bytes(bytes);
        CHECK(refused(read(whole.substr(0, bytes)), cut));
    }
    CHECK(refused(read(whole.substr(0, 2000) + std::string(100'000, '\0')), "is cut off: download or save it again"));
    for (const std::size_t zeros : {1U, 21U, 22U, 23U, 4096U, 70'000U}) {
        CAPTURE(zeros);
        const auto padded = read(whole + std::string(zeros, '\0'));
        REQUIRE(padded);
        CHECK(padded->weights.size() == read(whole)->weights.size());
    }
    CHECK_FALSE(read(whole + std::string(4096, '\0') + "x"));
}

namespace {

std::string entry_of(std::string_view key, const std::string& value) { return text_of(key) + value + "s"; }
const std::string& some_tensor() {
    static const std::string tensor = tensor_of(storage_of("FloatStorage", "0", 4), 0, 4);
    return tensor;
}
Result<format::ModelFile> read_with(const std::string& pickle, const format::ReadOptions& options) {
    return support::over(saved(pickle),
                         [&](const format::Input& input) { return format::try_read_torch(input, options); });
}
std::vector<std::string> names(const Result<format::ModelFile>& model) {
    REQUIRE(model);
    std::vector<std::string> out;
    for (const auto& weight : model->weights) { out.push_back(weight.name); }
    return out;
}
std::vector<std::string> passed_over(const format::ModelFile& model) {
    std::vector<std::string> names;
    for (const auto& entry : model.passed_over) { names.push_back(entry.name); }
    return names;
}

}  // namespace

TEST_CASE("torch: entries that are no tensor are passed over and counted") {
    // As pickles spell them: a BytesIO with a state, bytes, None, counters, text, nested dictionaries and lists, objects made with
    // arguments by name.
    const std::string bytes_io =
        "c_io\nBytesIO\n)\x81(c_codecs\nencode\n(" + text_of("abc") + text_of("latin1") + "tRK\1Ntb";
    const std::vector<std::string> others{bytes_io,
                                          "N",
                                          "K\1",
                                          "\x88",
                                          "G" + std::string(8, '\1'),
                                          "C\3abc",
                                          text_of("2.0.2"),
                                          "}" + entry_of("lr", "K\1"),
                                          "](K\1K\2e",
                                          "(K\1K\2t",
                                          "(" + text_of("a") + "K\1d",
                                          "(K\1l",
                                          "cargparse\nNamespace\n)}\x92",
                                          "K\1"
                                          "2\x86",
                                          "(K\1"
                                          "1N",
                                          "U\2xy",
                                          "T" + little(2, 4) + "xy"};
    for (const std::string& other : others) {
        CAPTURE(other);
        const std::string pickle = "}" + entry_of("a", some_tensor()) + entry_of("layers.0._extra_state", other) +
                                   entry_of("b", some_tensor());
        const auto model = read(saved(pickle));
        REQUIRE(model);
        CHECK(model->weights.size() == 2);
        CHECK(passed_over(*model) == std::vector<std::string>{"layers.0._extra_state"});
        CHECK(unsupported(read_with(pickle, {.strict = true}),
                          "\"layers.0._extra_state\" would be left out: it is no tensor", ""));
    }
    const auto odd = read(saved("}" + entry_of("a", some_tensor()) + entry_of("\xff", "N") + "K\7Ns" + "NNs"));
    REQUIRE(odd);
    CHECK(passed_over(*odd) == std::vector<std::string>{"bytes ff", "7", "an entry without a name"});
    CHECK(refused(read(saved("}" + entry_of("a", "N") + entry_of("a", some_tensor()))), "tensor \"a\" is given twice"));
}

TEST_CASE("torch: tensors that lie in a dictionary inside the saved one") {
    const std::string weights = "}" + entry_of("w", some_tensor());
    for (const char* name : {"state_dict", "model", "model_state_dict", "module", "net"}) {
        const auto model = read(
            saved("}" + entry_of("epoch", "K\3") + entry_of(name, weights) +
                  entry_of("optimizer", "}" + entry_of("state", "}K\1}" + entry_of("step", some_tensor()) + "s"))));
        REQUIRE(model);
        REQUIRE(model->weights.size() == 1);
        CHECK(model->weights[0].name == "w");
        CHECK(passed_over(*model) == std::vector<std::string>{"optimizer", "epoch"});
        CHECK(model->passed_over[0].why == "it holds 1 tensor in a dictionary; give its key to read it");
        CHECK(model->passed_over[1].why == "it is no tensor");
    }
    CHECK(format::try_read_torch(fixture("torch/nested.bin"))->weights.size() == 1);
    // Further inside, and through a collections.defaultdict.
    const auto deep = read(saved(
        "}" + entry_of("checkpoint", "ccollections\ndefaultdict\n(cbuiltins\nlist\ntR" + entry_of("model", weights))));
    REQUIRE(deep);
    CHECK(deep->weights[0].name == "w");
    // A state of a layer that holds tensors is none of the candidates, but a part of the model.
    CHECK(names(read(saved("}" + entry_of("a", some_tensor()) + entry_of("b._extra_state", weights)))) ==
          std::vector<std::string>{"a", "b._extra_state.w"});

    const std::string two = "}" + entry_of("model", weights) +
                            entry_of("ema", "}" + entry_of("v", some_tensor()) + entry_of("u", some_tensor()));
    CHECK(unsupported(read(saved(two)), "\"model\" (1 tensor), \"ema\" (2 tensors)", "--key"));
    CHECK(read_with(two, {.key = "ema"})->weights.size() == 2);
    CHECK(read_with(two, {.key = "model"})->weights.size() == 1);
    CHECK(unsupported(read_with(two, {.key = "mode"}), "\"mode\" leads to no tensors", "\"model\" (1 tensor)"));
    CHECK(unsupported(read_with(two, {.key = "model.w"}), "leads to no", "\"ema\""));
    // Several, whose names then tell them apart, or all.
    const std::vector<std::string> all{"model.w", "ema.v", "ema.u"};
    CHECK(unsupported(read(saved(two)), "several as \"model,ema\"", "all as \"*\""));
    CHECK(names(read_with(two, {.key = "model,ema"})) == all);
    CHECK(names(read_with(two, {.key = "*"})) == all);
    CHECK(unsupported(read_with(two, {.key = "model,emu"}), "\"emu\" leads to no tensors", "\"ema\""));
    CHECK(unsupported(read_with(two, {.key = "model,"}), "\"\" leads to no tensors", "\"ema\""));
    CHECK(refused(read_with(two, {.key = "model,model"}), "tensor \"model.w\" is given twice"));
    const std::string comma = "}" + entry_of("a,b", weights) + entry_of("b", weights);
    CHECK(names(read_with(comma, {.key = "a,b"})) == std::vector<std::string>{"w"});
    const std::string mixed = "}" + entry_of("rng", some_tensor()) + entry_of("model", weights);
    CHECK(unsupported(read(saved(mixed)), "\".\" (1 tensor), \"model\" (1 tensor)", "--key"));
    CHECK(names(read_with(mixed, {.key = "."})) == std::vector<std::string>{"rng"});
    CHECK(names(read_with(mixed, {.key = ".,model"})) == std::vector<std::string>{"rng", "model.w"});
    CHECK(names(read_with(mixed, {.key = "*"})) == std::vector<std::string>{"rng", "model.w"});
    CHECK(passed_over(*read_with(mixed, {.key = "."})) == std::vector<std::string>{"model"});
    CHECK(read_with(mixed, {.key = "model"})->passed_over[0].why ==
          "it is a tensor beside those that the key leads to");
    CHECK(read_with(mixed, {.key = "model"})->weights[0].name == "w");
    // Keys with dots, and deeper than the nearest candidates.
    const std::string dotted = "}" + entry_of("a.b", "}" + entry_of("c", weights)) + entry_of("near", weights);
    CHECK(read(saved(dotted))->weights.size() == 1);
    CHECK(read_with(dotted, {.key = "a.b.c"})->weights[0].name == "w");
    CHECK(unsupported(read_with("}" + entry_of("a", "K\1"), {.key = "a"}), "a dictionary without tensors",
                      "state_dict()"));
}

TEST_CASE("torch: dictionaries that mention each other without end are looked into once") {
    // d = {}; d["a"] = d, and many mentions of it.
    std::string pickle{"}q\0", 3};
    for (char c = 'a'; c <= 'z'; ++c) { pickle += text_of(std::string(1, c)) + std::string{"h\0s", 3}; }
    CHECK(unsupported(read(saved(pickle)), "a dictionary without tensors", "state_dict()"));
    CHECK(unsupported(read_with(pickle, {.key = "a.b.c.d.e.f.g.h"}), "a dictionary without tensors", ""));
    pickle += entry_of("weight", some_tensor());
    CHECK(read(saved(pickle))->weights.size() == 1);
    CHECK(read_with(pickle, {.key = "z.z.z"})->weights.size() == 1);
    std::string deep = "}";
    std::string ends;
    for (int depth = 0; depth < 5000; ++depth) {
        deep += text_of("d") + "}";
        ends += "s";
    }
    CHECK(unsupported(read(saved(deep + ends)), "a dictionary without tensors", ""));
}

TEST_CASE("torch: tensors in lists, tuples, dictionaries and objects are named by what leads to them") {
    const std::string& tensor = some_tensor();
    const std::string inner = "}" + entry_of("x", tensor) + "K\7" + tensor + "s";
    const std::string attributes = "}" + entry_of("w", tensor) + entry_of("training", "\x88");
    const auto whole =
        read(saved("}" + entry_of("a", tensor) + entry_of("pair", tensor + "K\3\x86") +
                   entry_of("list", "](" + tensor + "](" + tensor + "ee") + entry_of("b._extra_state", inner) +
                   entry_of("packed", "cdemo\nPacked\n)\x81" + attributes + "b")));
    CHECK(names(whole) == std::vector<std::string>{"a", "pair.0", "list.0", "list.1.0", "b._extra_state.x",
                                                   "b._extra_state.7", "packed.w"});
    CHECK(passed_over(*whole) == std::vector<std::string>{"pair.1"});
    // A list of tensors; dictionaries in a list.
    CHECK(names(read(saved("](" + tensor + tensor + "e"))) == std::vector<std::string>{"0", "1"});
    const std::string layers = "](" + inner + inner + "e";
    CHECK(unsupported(read(saved(layers)), "\"0\" (2 tensors), \"1\" (2 tensors)", "--key"));
    CHECK(names(read_with(layers, {.key = "1"})) == std::vector<std::string>{"x", "7"});
    // What only a list holds does not compete with a dictionary of tensors, but is named.
    const auto beside = read(saved("}" + entry_of("rng", "](" + tensor + tensor + "e") + entry_of("model", inner)));
    CHECK(names(beside) == std::vector<std::string>{"x", "7"});
    REQUIRE(beside->passed_over.size() == 1);
    CHECK(beside->passed_over[0].why == "it holds 2 tensors in a list; give its key to read them");
    CHECK(unsupported(read_with("}" + entry_of("rng", tensor + "\x85") + entry_of("model", inner), {.strict = true}),
                      "\"rng\" would be left out: it holds 1 tensor in a tuple", ""));
    CHECK(names(read(saved("}" + entry_of("model", "}" + entry_of("p", tensor + "\x85"))))) ==
          std::vector<std::string>{"model.p.0"});
    CHECK(refused(read_with("}" + entry_of("a", "}" + entry_of("b", tensor)) + entry_of("a.b", tensor), {.key = "*"}),
                  "tensor \"a.b\" is given twice"));
    // A quantized tensor in a tuple, as dynamic quantization packs them.
    CHECK(unsupported(read(saved("}" + entry_of("norm", tensor) +
                                 entry_of("fc._packed", "ctorch._utils\n_rebuild_qtensor\n)R" + tensor + "\x86"))),
                      "tensor \"fc._packed.0\": ", "int_repr()"));
}

TEST_CASE("torch: modules, saved whole or by TorchScript, are read as their state_dict()") {
    const auto module = format::try_read_torch(fixture("torch/module.bin"));
    CHECK(names(module) == std::vector<std::string>{"weight", "bias"});
    CHECK(module->passed_over.empty());
    const std::string& tensor = some_tensor();
    const auto object = [](const std::string& name, const std::string& state) {
        return "c" + name + "\n)\x81}" + state + "b";
    };
    // TorchScript: attributes, and lists with their type.
    const std::string typed =
        "ctorch.jit._pickle\nrestore_type_tag\n(](" + tensor + "e" + text_of("List[Tensor]") + "tR";
    const std::string linear =
        object("__torch__.demo\nLinear", entry_of("training", "\x89") + entry_of("weight", tensor));
    const std::string net = object("__torch__.demo\nNet", entry_of("training", "\x89") + entry_of("fc", linear) +
                                                              entry_of("scale", tensor) + entry_of("cache", typed));
    const auto script = read(archive_of({{"m/data.pkl", "\x80\2" + net + "."},
                                         {"m/data/0", std::string(16, 'x')},
                                         {"m/constants.pkl", "\x80\2)."},
                                         {"m/code/__torch__/demo.py", "class Net(Module):\n  pass\n"}}));
    CHECK(names(script) == std::vector<std::string>{"fc.weight", "scale", "cache.0"});
    CHECK(script->passed_over.empty());
    // Of Python: three dictionaries; a module beside other things, as a training keeps it.
    const std::string layer =
        object("demo\nLayer", entry_of("_parameters", "}" + entry_of("w", tensor) + entry_of("bias", "N")) +
                                  entry_of("_buffers", "}") + entry_of("_modules", "}"));
    const std::string outer =
        object("demo\nOuter", entry_of("_parameters", "}") + entry_of("_buffers", "}" + entry_of("ids", tensor)) +
                                  entry_of("_modules", "}" + entry_of("0", layer)) + entry_of("stride", tensor));
    CHECK(names(read(saved(outer))) == std::vector<std::string>{"ids", "0.w", "stride"});
    const std::string kept = "}" + entry_of("epoch", "K\1") + entry_of("ema", "N") + entry_of("model", outer);
    CHECK(names(read(saved(kept))) == std::vector<std::string>{"ids", "0.w", "stride"});
    CHECK(names(read_with(kept, {.key = "model.0"})) == std::vector<std::string>{"w"});
    CHECK(unsupported(read(saved("}" + entry_of("model", outer) + entry_of("ema", outer))),
                      "\"model\" (3 tensors), \"ema\" (3 tensors)", "--key"));
}

TEST_CASE("C7: torch: containers that mention each other cost no more than the pickle") {
    const std::string& tensor = some_tensor();
    const std::string keep{"q\0", 2};
    const std::string again{"h\0", 2};
    // A list in itself.
    CHECK(names(read(saved("]" + keep + tensor + "a" + again + "a"))) == std::vector<std::string>{"0"});
    // Two mentions of a list in each list: 2^40 tensors.
    std::string doubled = "](" + tensor + "e";
    for (int level = 0; level < 40; ++level) { doubled = "](" + doubled + keep + again + "e"; }
    CHECK(refused(read(saved(doubled)), "than the pickle"));
    CHECK(unsupported(read(saved("}" + entry_of("a", "}" + entry_of("x", tensor) + entry_of("d", doubled)) +
                                 entry_of("b", "}" + entry_of("x", tensor)))),
                      "\"a\" (4294967295 tensors)", "--key"));
    // Many levels, with a tensor at their end.
    const auto nested = [&](std::size_t levels, const std::string& key) {
        std::string pickle = text_of(key) + keep + "0";
        for (std::size_t i = 0; i < levels; ++i) { pickle += "}" + again; }
        return pickle + tensor + std::string(levels, 's');
    };
    CHECK(read(saved(nested(100, "d"))));
    CHECK(unsupported(read(saved(nested(101, "d"))), "in more than 100 containers", ""));
    CHECK(unsupported(read(saved(nested(20'000, "d"))), "in more than 100 containers", ""));
    CHECK(unsupported(read_with(nested(20'000, "_modules"), {.key = "*"}), "in more than 100 containers", ""));
    CHECK(unsupported(read_with(nested(20'000, "_modules"), {.key = "a"}), "\"a\" leads to no tensors", ""));
    CHECK(refused(read(saved(nested(90, std::string(60'000, 'k')))), "names that are longer than the pickle"));
    // 5,000 objects that share a state of 5,000 entries, without a tensor and with one.
    const auto sharing = [&](const std::string& first) {
        std::string pickle = "}" + keep + "(" + first;
        for (int i = 0; i < 5'000; ++i) { pickle += "K\1N"; }
        pickle += "u0](";
        for (int i = 0; i < 5'000; ++i) { pickle += "cdemo\nNet\n)\x81" + again + "b"; }
        return pickle + tensor + "e";
    };
    CHECK(names(read(saved(sharing("")))) == std::vector<std::string>{"5000"});
    CHECK(refused(read_with(sharing(text_of("w") + tensor), {.key = "*"}),
                  "mentioned more often than the pickle has bytes"));
}

namespace {

const std::string& magic() {
    static const std::string bytes = "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    return bytes;
}
/// A file as PyTorch wrote it before 1.6: the storages of the keys, of so many bytes each.
std::string stream_of(const std::string& pickle, const std::vector<std::pair<std::string, unsigned>>& storages,
                      unsigned element_bytes = 4, const std::string& order = "\x88", unsigned version = 1001) {
    std::string keys = "](";
    std::string data;
    for (const auto& [key, bytes] : storages) {
        keys += text_of(key);
        data += little(bytes / element_bytes, 8) + std::string(bytes, key[0]);
    }
    return magic() + "\x80\2M" + little(version, 2) + ".\x80\2}" + entry_of("little_endian", order) + ".\x80\2" +
           pickle + ".\x80\2" + keys + "e." + data;
}

}  // namespace

TEST_CASE("torch: files of before ZIP archives are read in place") {
    const std::string saved_by_torch = support::read_all(fixture("torch/legacy.bin"));
    for (const std::string& bytes : {saved_by_torch,
                                     // The same magic number after a frame, as protocol 4 has it.
                                     "\x80\4\x95" + std::string(8, '\0') + saved_by_torch.substr(2)}) {
        const auto model = read(bytes);
        CHECK(names(model) == std::vector<std::string>{"a"});
        REQUIRE(model->storages.size() == 1);
        CHECK(model->storages[0].bytes == 8);
        CHECK(bytes.substr(model->storages[0].offset_bytes) == std::string("\0\0\x80\x3f\0\0\x80\x3f", 8));
    }
    // A flat buffer: what shares no byte lies apart, at its place within the alignment, and what nobody reads is left out.
    const std::string buffer = storage_of("DoubleStorage", "F", 250);
    const auto flat =
        read(stream_of("}" + entry_of("d", tensor_of(buffer, 200, 10)) + entry_of("b", tensor_of(buffer, 60, 80)) +
                           entry_of("a", tensor_of(buffer, 0, 60)) + entry_of("c", tensor_of(buffer, 130, 2)),
                       {{"F", 2000}}, 8));
    REQUIRE(flat);
    REQUIRE(flat->storages.size() == 3);
    const std::uint64_t start = flat->storages[weight_of(*flat, "a").storage].offset_bytes;
    for (const auto& [name, from, until] :
         {std::tuple{"a", 0U, 480U}, {"b", 480U, 1120U}, {"c", 1040U, 1120U}, {"d", 1600U, 1680U}}) {
        CAPTURE(name);
        const auto& weight = weight_of(*flat, name);
        const auto& storage = flat->storages[weight.storage];
        CHECK(storage.offset_bytes + weight.offset_bytes == start + from);
        CHECK(storage.offset_bytes + storage.bytes == start + until);
    }
    CHECK(weight_of(*flat, "b").storage == weight_of(*flat, "c").storage);
    CHECK(weight_of(*flat, "b").offset_bytes == 0);  // "a" ends there
    CHECK(weight_of(*flat, "d").offset_bytes == 1600 % 256);
    // Two storages in the order of their keys; bytes behind them.
    const std::string two = "}" + entry_of("w", tensor_of(storage_of("FloatStorage", "A", 4), 0, 4)) +
                            entry_of("v", tensor_of(storage_of("FloatStorage", "B", 3), 1, 2));
    const std::string file = stream_of(two, {{"B", 12}, {"A", 16}});
    const auto model = read(file + "more");
    CHECK(names(model) == std::vector<std::string>{"w", "v"});
    CHECK(file.substr(model->storages[0].offset_bytes, 16) == std::string(16, 'A'));
    CHECK(file.substr(model->storages[1].offset_bytes, 12) == std::string(12, 'B'));
    CHECK(model->weights[1].offset_bytes == 4);
    // As versions before 0.4 spelled tensors and parameters, with the text of Python 2; a part of a storage.
    const std::string part = "((U\7storagectorch\nFloatStorage\nU\1AU\3cpuK\4(U\1VK\1K\3ttQ";
    const std::string old = "ctorch._utils\n_rebuild_tensor\n" + part + "K\1ctorch\nSize\n(K\2tR\x85R(K\1ttR";
    const std::string old_tensor = "ctorch._utils\n_rebuild_tensor\n" + part + "K\1(K\2t(K\1ttR";
    for (const std::string& each :
         {old_tensor, "ctorch.nn.parameter\nParameter\n" + old_tensor + "\x85\x81(\x88\x89Ntb",
          "ctorch.autograd.variable\nVariable\n" + old_tensor + "\x85R(\x88\x89Ntb"}) {
        const auto read_old = read(stream_of("}U\1a" + each + "s", {{"A", 16}}));
        CHECK(names(read_old) == std::vector<std::string>{"a"});
        CHECK(read_old->weights[0].offset_bytes == 8);
        CHECK(read_old->weights[0].shape == Shape{2});
    }
    // A whole module: its class comes with its source.
    const std::string kind = "(" + text_of("module") + "cdemo\nNet\n" + text_of("net.py") + text_of("class Net") + "tQ";
    const std::string net =
        kind + ")\x81}" +
        entry_of("_parameters", "}" + entry_of("w", tensor_of(storage_of("FloatStorage", "A", 4), 0, 4))) + "b";
    CHECK(names(read(stream_of(net, {{"A", 16}}))) == std::vector<std::string>{"w"});
    // Pickles that are longer than what is read at first.
    std::string many = "}";
    for (unsigned i = 0; i < 3000; ++i) {
        many += entry_of("w" + std::to_string(i), tensor_of(storage_of("FloatStorage", "A", 4), 0, 4));
    }
    CHECK(read(stream_of(many, {{"A", 16}}))->weights.size() == 3000);
    CHECK(read(stream_of("}", {}))->weights.empty());
}

TEST_CASE("C7: torch: damage in files of before ZIP archives is refused") {
    const std::string entry = "}" + entry_of("w", tensor_of(storage_of("FloatStorage", "A", 4), 0, 4));
    const std::string whole = stream_of(entry, {{"A", 16}});
    REQUIRE(read(whole));
    for (std::size_t bytes = magic().size(); bytes < whole.size(); ++bytes) {
        CAPTURE(bytes);
        CHECK(refused(read(whole.substr(0, bytes)),
                      "the file is cut off: download it again: found " + detail::in_bytes(bytes) +
                          ", expected at least " +
                          detail::in_bytes(bytes < whole.size() - 24 ? bytes + 1 : whole.size())));
    }
    CHECK(unsupported(read(stream_of(entry, {{"A", 16}}, 4, "\x89")), "another byte order", "save them"));
    CHECK(unsupported(read(stream_of(entry, {{"A", 16}}, 4, "\x88", 1002)), "unknown version", "expected 1001"));
    CHECK(refused(read(stream_of(entry, {{"A", 16}}, 2)), "another size: found 8 elements, expected 4"));
    CHECK(refused(read(stream_of(entry, {})), "without its data"));
    CHECK(refused(read(stream_of(entry, {{"B", 16}})), "a key of a storage that no tensor has"));
    CHECK(refused(read(stream_of(entry, {{"A", 16}, {"A", 16}})), "\"A\" is given twice"));
    const auto sized = [](const std::string& count) {
        return "}" + entry_of("w", "ctorch._utils\n_rebuild_tensor_v2\n((" + text_of("storage") +
                                       "ctorch\nFloatStorage\n" + text_of("A") + text_of("cpu") + count + "tQK" +
                                       little(0, 1) + "K\4\x85K\1\x85\x89}tR");
    };
    CHECK(refused(read(stream_of(sized("\x8a\x08" + little(INT64_MAX, 8)), {{"A", 16}})), "do not fit in 64 bits"));
    CHECK(refused(read(stream_of(sized("\x8a\x08" + little(INT64_MAX / 4, 8)), {{"A", 16}})), "is cut off"));
    CHECK(refused(read(stream_of(sized("J" + little(UINT32_MAX, 4)), {{"A", 16}})), "lacks a valid storage"));
    const std::string other = entry_of("v", tensor_of(storage_of("FloatStorage", "A", 5), 0, 4));
    CHECK(refused(read(stream_of(entry + other, {{"A", 16}})), "the storage \"A\" has several sizes"));
    const std::string part =
        "((" + text_of("storage") + "ctorch\nFloatStorage\n" + text_of("A") + text_of("cpu") + "K\4(";
    const auto viewed = [&](const std::string& view) {
        return read(stream_of(
            "}" + entry_of("w", "ctorch._utils\n_rebuild_tensor_v2\n" + part + view + "ttQK\1K\2\x85K\1\x85\x89}tR"),
            {{"A", 16}}));
    };
    CHECK(viewed("NK\1K\3"));
    CHECK(refused(viewed("NK\2K\3"), "does not lie inside its storage"));
    CHECK(refused(viewed("N"), "no valid part of a storage"));
    CHECK(refused(viewed("N\x8a\x08" + little(INT64_MAX, 8)), "tensor \"w\""));
}

}  // namespace torch_test
