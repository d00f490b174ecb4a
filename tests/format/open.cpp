// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/open.hpp"

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/equal_storages.hpp"
#include "residency/format/input.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/format/torch.hpp"
#include "residency/host/weight_file.hpp"
#include "tests/support/zip_archive.hpp"

namespace open_test {

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
    CHECK(format_of(fixture("executorch/tensors.ptd")) == "executorch");
    CHECK(format_of(fixture("executorch/cuda/model.pte")) == "executorch");
    CHECK(format_of(fixture("executorch/cuda")) == "executorch");
    const support::TemporaryFolder folder;
    CHECK(format_of(folder.write("a", support::read_all(fixture("safetensors/small.safetensors")))) == "safetensors");
    CHECK(format_of(folder.write("b", support::read_all(fixture("gguf/metadata.gguf")))) == "gguf");
    CHECK(format_of(folder.write("c", support::read_all(fixture("aoti/blob.pt2")))) == "aotinductor");
    CHECK(format_of(folder.write("d.json", R"({"format":"f","storages":[],"weights":[]})")) == "f");
    CHECK(format_of(folder.write("e.json", R"({"weight_map":{}})")).find("lists no tensor") != std::string::npos);
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
    CHECK(format::Input::try_open(folder.file("")).error().kind() == ErrorKind::io);
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

namespace {

/// Whether it is refused as unsupported in one line that has both texts.
bool named(const Result<format::ModelFile>& result, const std::string& what, const std::string& advice) {
    if (result) { return false; }
    const std::string& text = result.error().message();
    const bool fits = text.find(what) != std::string::npos && text.find(advice) != std::string::npos &&
                      text.find('\n') == std::string::npos && result.error().kind() == ErrorKind::unsupported;
    if (!fits) { MESSAGE(text); }
    return fits;
}
std::string one_tensor(const std::string& name, const std::string& data = "data") {
    const std::string header = "{\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(data.size()) +
                               R"(],"data_offsets":[0,)" + std::to_string(data.size()) + "]}}";
    return std::string{static_cast<char>(header.size())} + std::string(7, '\0') + header + data;
}

}  // namespace

TEST_CASE("open: a ZIP archive that PyTorch did not write says so, and what to give instead") {
    const support::TemporaryFolder folder;
    const std::string path = folder.write("model.zip", support::zip_archive({{"model.safetensors", "weights"}}));
    CHECK(named(format::try_read_model(path),
                "a ZIP archive that torch.save did not write: it has no data.pkl; unpack it",
                "safetensors, GGUF, or a file of PyTorch or ExecuTorch; if AOTInductor saved it, call "));
    CHECK(named(format::try_read_model_or_aoti(path), "a ZIP archive that is not a package with weights",
                "unpack it, and give what lies in it"));
    CHECK(named(format::try_read_torch(path), "a ZIP archive that torch.save did not write",
                "unpack it, and give what lies in it"));
}

TEST_CASE("open: what a file is instead of a model is named, with what to give instead") {
    using namespace std::string_literals;
    const support::TemporaryFolder folder;
    struct Case {
        std::string bytes;
        const char* what;
        const char* advice;
    };
    for (const auto& [bytes, what, advice] : std::vector<Case>{
             {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a Git LFS pointer",
              "git lfs pull"},
             {"/annex/objects/SHA256E-s3--x\n", "a git-annex pointer", "git annex get"},
             {"# xet version 0\nfilesize = 3\n", "a Xet pointer", "download"},
             {"<!DOCTYPE html><html><head><title>Sign in</title></head></html>", "an HTML page", "log in"},
             {"\xef\xbb\xbf \n<HTML lang=en>", "an HTML page", "download"},
             {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>", "an XML document", "download"},
             {"{\"error\": \"Repository not found\"}", "JSON", "the file of weights"},
             {" [1, 2]", "JSON", "the file of weights"},
             {"Entry not found", "text", "the file of weights"},
             {"", "an empty file", "download"},
             {std::string(4096, '\0'), "zeros where a file begins", "download"},
             {"\x1f\x8b\x08\x00"s + std::string(20, 'x'), "a gzip archive", "unpack"},
             {"\x28\xb5\x2f\xfd"s + std::string(20, '\0'), "a zstd archive", "unpack"},
             {"model/"s + std::string(251, '\0') + "ustar", "a tar archive", "unpack"},
             {"\x89HDF\r\n\x1a\n"s + std::string(20, '\0'), "an HDF5 file", "convert"},
             {"\x80\2}q\0X\1\0\0\0aq\1K\1s."s, "a Python pickle that torch.save did not write",
              "save the tensors of it with safetensors or torch.save"},
             {"\x80\4\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\1a\x94K\1s."s, "a Python pickle that torch.save did not write",
              "load it in Python"},
             {"(dp0\nVa\np1\nI1\ns.", "a Python pickle that torch.save did not write", "load it in Python"},
             {"\x93NUMPY\1\0"s, "a NumPy array", "convert"},
             {"tjgg\3\0\0\0"s, "a ggml file from before GGUF", "llama.cpp"}}) {
        CAPTURE(what);
        for (const char* name : {"model", "model.safetensors", "model.gguf", "model.bin", "model.pt"}) {
            CHECK(named(format::try_read_model(folder.write(name, bytes)), what, advice));
            CHECK(named(format::try_read_model_or_aoti(folder.file(name)), what, advice));
        }
        CHECK(named(format::try_read_safetensors(folder.file("model.safetensors")), what, advice));
        CHECK(named(format::try_read_torch(folder.file("model.bin")), what, advice));
        // In the place of one of several files.
        folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"model.safetensors"}})");
        CHECK(named(format::try_read_model(folder.file("model.safetensors.index.json")), what, advice));
        CHECK(named(format::try_read_model_parts({fixture("safetensors/small.safetensors"),
                                                  fixture("safetensors/unaligned.safetensors"), folder.file("model")}),
                    what, advice));
    }
    // A header of 0x7d0280 bytes begins as a pickle does.
    const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    const std::string long_header = header + std::string(0x7d0280 - header.size(), ' ');
    CHECK(format::try_read_model(folder.write("long", "\x80\2}\0\0\0\0\0"s + long_header + 'x')));
    const auto json = [&](const std::string& text) {
        return format::try_read_model(folder.write("config.json", text));
    };
    CHECK(named(json("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer", "git lfs pull"));
    CHECK(named(json("<html></html>"), "an HTML page", "download"));
    CHECK(named(json(R"({"model_type":"llama"})"), "a model's configuration", "the file of weights"));
    CHECK(named(json(R"({"version":"1.0","added_tokens":[]})"), "JSON that describes no weights",
                "give a file of weights"));
}

TEST_CASE("open: a key is refused where nothing is PyTorch's, by the file's name and format") {
    const support::TemporaryFolder folder;
    const format::ReadOptions options{.key = "ema"};
    const auto refuses = [](const Result<format::ModelFile>& model, const std::string& path, const std::string& of) {
        REQUIRE_FALSE(model);
        CHECK(model.error().kind() == ErrorKind::invalid_argument);
        CHECK(model.error().message() == '"' + path +
                                             "\": the key \"ema\" chooses a part of what PyTorch saved, and this is " +
                                             of + ": leave the key out");
    };
    for (const auto& [name, of] : {std::pair{"safetensors/small.safetensors", "safetensors"},
                                   {"safetensors/sharded.safetensors.index.json", "safetensors"},
                                   {"gguf/metadata.gguf", "gguf"},
                                   {"executorch/tensors.ptd", "executorch"}}) {
        CAPTURE(name);
        refuses(format::try_read_model(fixture(name), options), fixture(name), of);
        refuses(format::try_read_model_or_aoti(fixture(name), options), fixture(name), of);
        refuses(format::try_read_model_parts({fixture(name)}, options), fixture(name), of);
    }
    refuses(format::try_read_model_or_aoti(fixture("aoti/saved.pt2"), options), fixture("aoti/saved.pt2"),
            "aotinductor");
    // Of several files, one that is PyTorch's is enough.
    const std::string small = fixture("safetensors/small.safetensors"), nested = fixture("torch/nested.bin");
    refuses(format::try_read_model_parts({"a=" + small, "b=" + small}, options), "a=" + small, "safetensors");
    CHECK(format::try_read_model_parts({"a=" + small, "b=" + nested}, {.key = "model"}));
    CHECK(format::try_read_model(nested, {.key = "model"}));
}

TEST_CASE("open: a path that cannot be one is named as what it is") {
    const auto says = [](const std::string& path, const char* advice) {
        const auto model = format::try_read_model(path);
        return model.error().kind() == ErrorKind::io && model.error().message().find(advice) != std::string::npos;
    };
    CHECK(says("https://example.org/model.safetensors", "an address: download"));
    CHECK(says("~/model.safetensors", "only a shell replaces ~"));
    CHECK(says("nobody/some-model-8B", "the name of a model on a hub"));
    CHECK_FALSE(says("none/model.gguf", "hub"));
    CHECK_FALSE(says("/none/model", "hub"));
}

TEST_CASE("open: a folder with one model in it is opened") {
    const support::TemporaryFolder folder;
    const auto opened = [&](const std::string& path) { return format::try_read_model(path); };
    const std::string all = folder.file("");
    CHECK(named(opened(all), "an empty folder", "give a model file"));
    folder.write("config.json", "{}");
    CHECK(named(opened(all), "a folder without a model file", "\"config.json\""));
    CHECK(opened(folder.file("none")).error().kind() == ErrorKind::io);
    // From the last of the kinds to the first; each goes before those that are there already.
    folder.write("weights.bin", support::read_all(fixture("torch/state.bin")));
    CHECK(opened(all)->files[0].path.ends_with("/weights.bin"));
    folder.write("other.safetensors", one_tensor("other"));
    CHECK(opened(all)->weights[0].name == "other");
    folder.write("pytorch_model.bin", support::read_all(fixture("torch/nested.bin")));
    CHECK(opened(all)->files[0].path.ends_with("/pytorch_model.bin"));
    folder.write("any.gguf", support::read_all(fixture("gguf/metadata.gguf")));
    CHECK(opened(all)->format == "gguf");
    folder.write("model.safetensors", one_tensor("single"));
    CHECK(opened(all)->weights[0].name == "single");
    folder.write("part.safetensors", one_tensor("part"));
    folder.write("model.safetensors.index.json",
                 R"({"weight_map":{"part":"part.safetensors","single":"model.safetensors"}})");
    CHECK(opened(all)->weights[0].name == "part");
    CHECK(opened(all + "/")->weights[0].name == "part");
    CHECK(format::try_read_model_or_aoti(all)->weights[0].name == "part");

    const support::TemporaryFolder several;
    several.write("a.gguf", support::read_all(fixture("gguf/metadata.gguf")));
    several.write("b.gguf", support::read_all(fixture("gguf/every_type.gguf")));
    CHECK(named(opened(several.file("")), "several models", "\"a.gguf\", \"b.gguf\""));
    const support::TemporaryFolder split;
    for (const std::string number : {"1", "2", "3"}) {
        split.write("m-0000" + number + "-of-00003.gguf",
                    support::read_all(fixture("gguf/split-0000" + number + "-of-00003.gguf")));
    }
    CHECK(opened(split.file(""))->weights.size() == 5);
    const support::TemporaryFolder shards;  // without an index
    for (const std::string number : {"1", "2"}) {
        shards.write("pytorch_model-0000" + number + "-of-00002.bin",
                     support::read_all(fixture("torch/shard-0000" + number + "-of-00002.bin")));
    }
    CHECK(opened(shards.file(""))->files.size() == 2);
}

TEST_CASE("open: parts under any names are one model") {
    const support::TemporaryFolder folder;
    const auto a = folder.write("first", one_tensor("a", "1111"));
    const auto b = folder.write("second", one_tensor("b", "22"));
    const auto model = format::try_read_model_parts({b, a});
    REQUIRE(model);
    REQUIRE(model->weights.size() == 2);
    CHECK(model->weights[0].name == "b");
    CHECK(support::bytes_of(*model, model->weights[0]) == "22");
    CHECK(support::bytes_of(*model, model->weights[1]) == "1111");
    CHECK(model->try_catalog());
    CHECK(format::try_read_model_parts({a})->weights.size() == 1);
    CHECK(format::try_read_model_parts({}).error().kind() == ErrorKind::invalid_argument);
    CHECK(format::try_read_model_parts({a, folder.file("none")}).error().kind() == ErrorKind::io);
    CHECK(support::refused(format::try_read_model_parts({a, b, a}), "\"a\" is in an earlier file of the list"));
    // A folder is no piece of a file.
    const support::TemporaryFolder model_in;
    model_in.write("model.safetensors", one_tensor("c", "3"));
    const auto tail = folder.write("tail", "no model begins so");
    for (const auto& list : {std::vector{model_in.file(""), tail}, std::vector{tail, model_in.file("")}}) {
        CHECK_FALSE(format::try_read_model_parts(list));
    }
    // Also files of several formats, and an index or a folder among them.
    const auto mixed = format::try_read_model_parts({a, fixture("gguf/metadata.gguf"), fixture("torch/state.bin"),
                                                     fixture("safetensors/sharded.safetensors.index.json")});
    REQUIRE(mixed);
    CHECK(mixed->format == "safetensors, gguf, torch");
    CHECK(mixed->try_catalog());
    const auto torch = format::try_read_model_parts(
        {fixture("torch/shard-00001-of-00002.bin"), fixture("torch/shard-00002-of-00002.bin")});
    REQUIRE(torch);
    support::check_against_reference(*torch, "torch/shard.expected.json");
}

TEST_CASE("open: a whole file goes before an index of its name that does not list it") {
    for (const std::string name : {"model.safetensors", "diffusion.safetensors", "pytorch_model.bin"}) {
        CAPTURE(name);
        const support::TemporaryFolder folder;
        const bool is_torch = name.ends_with(".bin");
        const std::string path =
            folder.write(name, is_torch ? support::read_all(fixture("torch/state.bin")) : one_tensor("whole"));
        const std::string index = folder.write(name + ".index.json", R"({"weight_map":{"a":"a-00001-of-00001"}})");
        const auto opened = format::try_read_model(folder.file(""));
        REQUIRE_MESSAGE(opened, opened.error().message());
        CHECK(opened->files.size() == 1);
        CHECK(opened->files[0].path.ends_with("/" + name));
        REQUIRE(opened->notes.size() == 1);
        CHECK(opened->notes[0].find("passed over") != std::string::npos);
        const auto stale = format::try_read_model(index);
        REQUIRE_FALSE(stale);
        CHECK(stale.error().kind() == ErrorKind::io);
        CHECK(stale.error().message().find("is out of date: give \"" + path + "\" in its place") != std::string::npos);
        folder.write(name + ".index.json", "<html>");
        CHECK(format::try_read_model(folder.file(""))->files.size() == 1);
        // An index of another name says nothing of it, and one that lists it is complete or wrong.
        folder.write(name + ".index.json", R"({"weight_map":{"a":"a-00001-of-00001","b":")" + name + "\"}}");
        const auto missing = format::try_read_model(folder.file(""));
        REQUIRE_FALSE(missing);
        CHECK(missing.error().message().find("lists a file that does not open (download it") != std::string::npos);
    }
}

TEST_CASE("open: a model in a hub's cache is its snapshot") {
    const support::TemporaryFolder folder;
    namespace fs = std::filesystem;
    const std::string root = folder.file("models--org--tiny");
    fs::create_directories(root + "/blobs");
    fs::create_directories(root + "/snapshots");
    const auto opened = [&] { return format::try_read_model(root); };
    CHECK(named(opened(), "without a snapshot", "download the model again"));
    for (const std::string revision : {"0123", "4567"}) {
        fs::create_directories(root + "/snapshots/" + revision);
        folder.write("models--org--tiny/blobs/" + revision, one_tensor("of " + revision));
        fs::create_symlink("../../blobs/" + revision, root + "/snapshots/" + revision + "/model.safetensors");
        if (revision == "0123") { CHECK(opened()->weights[0].name == "of 0123"); }  // the only one
    }
    CHECK(named(opened(), "names none: give the path of a snapshot", root + "/snapshots/0123"));
    fs::create_directories(root + "/refs");
    for (const std::string revision : {"0123", "4567\n"}) {
        folder.write("models--org--tiny/refs/main", revision);
        REQUIRE(opened());
        CHECK(opened()->weights[0].name == "of " + revision.substr(0, 4));
    }
    CHECK(named(format::try_read_model(folder.file("")), "a folder without a model file", root));
    for (const std::string& other : std::vector<std::string>{"89ab", "../../../x", "0123/..", std::string(5000, '0')}) {
        folder.write("models--org--tiny/refs/main", other);
        CHECK(named(opened(), "names \"" + other.substr(0, 40), root + "/snapshots/4567"));
    }
}

TEST_CASE("open: a folder whose models are in folders names them") {
    const support::TemporaryFolder folder;
    namespace fs = std::filesystem;
    for (const char* name : {"scheduler", "text_encoder", "vae"}) { fs::create_directories(folder.file(name)); }
    folder.write("scheduler/config.json", "{}");
    folder.write("text_encoder/model.safetensors", one_tensor("a"));
    folder.write("vae/diffusion_pytorch_model.safetensors", one_tensor("b"));
    const std::string both = "\"" + folder.file("text_encoder") + "\", \"" + folder.file("vae") + "\"";
    const std::string all = fs::path{folder.file("")}.parent_path();
    CHECK(named(format::try_read_model(all), "a folder without a model file, whose models are in folders", both));
    folder.write("model_index.json", R"({"_class_name":"Pipeline"})");
    CHECK(named(format::try_read_model(all), "a pipeline (model_index.json)", both));
    CHECK(format::try_read_model(all).error().message().find("scheduler") == std::string::npos);
    CHECK(format::try_read_model_parts({"text=" + folder.file("text_encoder"), "vae=" + folder.file("vae")}));
}

TEST_CASE("open: the parts of a list with prefixes are models of their own, which can share tensors") {
    const support::TemporaryFolder folder;
    const auto target = folder.write("target", one_tensor("head", "1111"));
    const auto draft = folder.write("draft", one_tensor("head", "22"));
    CHECK(support::refused(format::try_read_model_parts({target, draft}), "draft=PATH"));
    for (const auto& list :
         {std::vector{"target=" + target, "draft=" + draft}, std::vector{target, "draft=" + draft}}) {
        auto model = format::try_read_model_parts(list);
        REQUIRE_MESSAGE(model, model.error().message());
        REQUIRE(model->weights.size() == 2);
        const std::string head = list[0] == target ? "head" : "target.head";
        CHECK(model->weights[0].name == head);
        CHECK(model->weights[1].name == "draft.head");
        CHECK(support::bytes_of(*model, model->weights[0]) == "1111");
        CHECK(support::bytes_of(*model, model->weights[1]) == "22");
        // One storage under two names, in the catalog too.
        REQUIRE(model->try_tie("draft.embedding", head));
        const auto catalog = model->try_catalog();
        REQUIRE(catalog);
        CHECK(catalog->total_bytes() == 6);
        CHECK(catalog->weights().size() == 3);
        CHECK(catalog->weight(*catalog->find("draft.embedding")).storage ==
              catalog->weight(*catalog->find(head)).storage);
        CHECK(model->try_tie("draft.x", "none").error().kind() == ErrorKind::invalid_argument);
        CHECK(model->try_tie("draft.head", head).error().kind() == ErrorKind::invalid_argument);
        CHECK(model->try_tie("", head).error().message().ends_with("a weight needs a name"));
        CHECK(model->weights.size() == 3);
    }
    CHECK(format::try_read_model_parts({"draft=" + draft})->weights[0].name == "draft.head");
    // Whatever a path stands for alone it stands for here; metadata and what is tied inside a part have the prefix too.
    const auto several = format::try_read_model_parts({"a=" + fixture("gguf/split-00001-of-00003.gguf"),
                                                       "b=" + fixture("gguf/metadata.gguf"),
                                                       "c=" + fixture("safetensors/sharded.safetensors.index.json")});
    REQUIRE_MESSAGE(several, several.error().message());
    CHECK(several->format == "gguf, safetensors");
    for (const auto& weight : several->weights) { CHECK(weight.name[1] == '.'); }
    for (const auto& entry : several->metadata) { CHECK(entry.key[1] == '.'); }
    CHECK(several->try_catalog());
    // Equal tensors of two models become one storage.
    const auto same = folder.write("same", one_tensor("head", "1111"));
    const auto twice = format::try_read_model_parts({"a=" + target, "b=" + same});
    const auto equal = format::try_find_equal_storages(*twice);
    REQUIRE(equal);
    CHECK(format::merge_storages(*twice, *equal).total_bytes() == 4);
    // What lies at the whole text is a path; so is what has a slash before the sign.
    const auto sign = folder.write("x=y", one_tensor("sign"));
    CHECK(format::try_read_model_parts({sign, target})->weights[0].name == "sign");
    const auto twice_a = format::try_read_model_parts({"a=" + target, "a=" + target});
    CHECK(twice_a.error().kind() == ErrorKind::invalid_argument);
    CHECK(twice_a.error().message().find("the prefix \"a\" is that of an earlier part too") != std::string::npos);
    CHECK(format::try_read_model_parts({"a=" + folder.file("none"), target}).error().kind() == ErrorKind::io);
    CHECK(format::try_read_model_parts({"=" + target, target}).error().kind() == ErrorKind::io);
}

TEST_CASE("open: the pieces of a file that was cut are one model") {
    const support::TemporaryFolder folder;
    for (const std::string name : {"gguf/every_type.gguf", "safetensors/every_dtype.safetensors", "torch/state.bin"}) {
        CAPTURE(name);
        const std::string whole = support::read_all(fixture(name));
        const auto expected = format::try_read_model(fixture(name));
        REQUIRE(expected);
        for (const std::size_t bytes : {std::size_t{5}, std::size_t{100}, whole.size() / 2 + 1, whole.size() - 1}) {
            if (whole.size() / bytes > 200) { continue; }
            std::vector<std::string> pieces;
            for (std::size_t at = 0; at < whole.size(); at += bytes) {
                pieces.push_back(folder.write("x" + std::to_string(pieces.size()), whole.substr(at, bytes)));
            }
            const auto model = format::try_read_model_parts(pieces);
            REQUIRE(model);
            REQUIRE(model->files.size() == 1);
            CHECK(model->files[0].pieces.size() == pieces.size());
            CHECK(model->total_bytes() == expected->total_bytes());
            CHECK(format::try_find_equal_storages(*model));
            // The bytes, as every loader reads them.
            const auto file = host::WeightFile::try_open(model->files[0], host::FileAccess::direct);
            REQUIRE(file);
            CHECK_FALSE(file->is_direct());
            CHECK(file->bytes() == whole.size());
            for (std::size_t i = 0; i < model->storages.size(); ++i) {
                const auto& storage = model->storages[i];
                std::string read(storage.bytes, '?');
                REQUIRE(file->try_read(storage.offset_bytes, std::as_writable_bytes(std::span{read})));
                CHECK(read == whole.substr(expected->storages[i].offset_bytes, expected->storages[i].bytes));
            }
            std::string beyond(2, '?');
            CHECK_FALSE(file->try_read(whole.size() - 1, std::as_writable_bytes(std::span{beyond})));
            std::swap(pieces[0], pieces[1]);
            CHECK_FALSE(format::try_read_model_parts(pieces));
        }
    }
    const std::string whole = one_tensor("a", std::string(300, '\1'));
    const auto first = folder.write("a", whole.substr(0, 100));
    const auto second = folder.write("b", whole.substr(100));
    REQUIRE(format::try_read_model_parts({first, second}));
    CHECK(
        support::refused(format::try_read_model_parts({second, first}), "the first of several pieces does not begin"));
    const auto other = folder.write("c", one_tensor("b"));
    CHECK(support::refused(format::try_read_model_parts({first, other, second}), "neither a part"));
    // A piece that changes afterwards is noticed.
    const auto model = format::try_read_model_parts({first, second});
    const auto open = host::WeightFile::try_open(model->files[0], host::FileAccess::cached);
    REQUIRE(open);
    support::write_all(second, whole.substr(101));
    CHECK_FALSE(open->check());
    std::string bytes(50, '?');
    CHECK_FALSE(open->try_read(90, std::as_writable_bytes(std::span{bytes})));
    CHECK(host::WeightFile::try_open(model->files[0], host::FileAccess::cached).error().kind() == ErrorKind::mismatch);
    CHECK(format::try_find_equal_storages(*model).error().kind() == ErrorKind::mismatch);
}

TEST_CASE("manifest: a file in pieces") {
    const support::TemporaryFolder folder;
    folder.write("1", "abc");
    folder.write("2", "defgh");
    const auto manifest = [&](const std::string& file) {
        return format::try_read_model(
            folder.write("m.json", R"({"storages":[{"bytes":4,"offset":2,"file":)" + file +
                                       R"(}],"weights":[{"name":"w","dtype":"U8","shape":[4],"storage":0}]})"));
    };
    const auto model = manifest(R"(["1","2"])");
    REQUIRE(model);
    CHECK(model->files.at(0).pieces.size() == 2);
    CHECK(model->files[0].bytes == 8);
    CHECK(support::refused(manifest("[]"), "lacks"));
    CHECK(support::refused(manifest("[1]"), "lacks"));
    CHECK(support::refused(manifest(R"(["1"])"), "do not lie inside"));
}

}  // namespace open_test
