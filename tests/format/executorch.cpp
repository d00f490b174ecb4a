// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/executorch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/open.hpp"
#include "residency/host/loading.hpp"
#include "residency/model/number.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/support/executorch_files.hpp"
#include "tests/support/fuzz_format.hpp"

namespace executorch_test {

using namespace residency;
using support::executorch_cuda;
using support::executorch_file;
using support::ExecutorchRecord;
using support::fixture;
using support::number_bytes;
using support::over;
using support::refused;
namespace flat = support::flat;

namespace {

Result<format::ModelFile> read(const std::string& bytes) {
    return over(bytes, [](const format::Input& input) { return format::try_read_executorch({&input, 1}); });
}
Result<format::ModelFile> read(const std::string& first, const std::string& second) {
    const format::Input inputs[] = {format::Input::over(support::as_bytes(first), "first"),
                                    format::Input::over(support::as_bytes(second), "second")};
    return format::try_read_executorch(inputs);
}
const format::ModelFile::WeightEntry* find(const format::ModelFile& model, const std::string& name) {
    for (const auto& weight : model.weights) {
        if (weight.name == name) { return &weight; }
    }
    return nullptr;
}
/// A program of one method with those constants, and their data.
std::string program(const std::vector<ExecutorchRecord>& records, const std::string& magic = "ETCUDAFQN3") {
    std::vector<support::ExecutorchBytes> data{{"library", "ELF"}};
    std::vector<std::string> keys;
    for (const ExecutorchRecord& each : records) {
        if (std::find(keys.begin(), keys.end(), each.key) != keys.end()) { continue; }
        keys.push_back(each.key);
        data.push_back({each.key, std::string(static_cast<std::size_t>(each.storage_bytes), 'x')});
    }
    return executorch_file({{"run", {{"CudaBackend", executorch_cuda("library", records, magic)}}}}, data);
}
const ExecutorchRecord vector_of_3{"a", "k", 12, 6, 1, 0, {3}, {1}};

template <class Change>
std::string one(const Change& change) {
    ExecutorchRecord record = vector_of_3;
    change(record);
    return program({record});
}

}  // namespace

TEST_CASE("executorch: files of its own serializers read back equal") {
    for (const auto& [file, expectation] : {std::pair{"tensors.ptd", "tensors"},
                                            {"external.pte", "external"},
                                            {"external.ptd", "external"},
                                            {"cuda/model.pte", "cuda"}}) {
        CAPTURE(file);
        const std::string path = fixture(std::string{"executorch/"} + file);
        for (const auto& model :
             {format::try_read_executorch(path), format::try_read_model(path), format::try_read_model_or_aoti(path)}) {
            REQUIRE_MESSAGE(model.has_value(), model.error().message());
            CHECK(model->format == "executorch");
            CHECK(model->notes.empty());
            const auto expected =
                support::check_against_reference(*model, std::string{"executorch/"} + expectation + ".expected.json");
            CHECK(model->weights.size() == expected.at("weights").size());
        }
    }
    const auto portable = format::try_read_executorch(fixture("executorch/portable.pte"));
    REQUIRE(portable);
    CHECK(portable->weights.empty());
    REQUIRE(portable->notes.size() == 1);
    CHECK(portable->notes[0].find("holds 2 constants without names, which are not read") != std::string::npos);
}

TEST_CASE(
    "executorch: a program of the CUDA backend: methods share storages, views stay views, libraries are passed over") {
    const std::string folder = fixture("executorch/cuda");
    for (const auto& model : {format::try_read_model(folder), format::try_read_model(folder + "/model.pte"),
                              format::try_read_model_parts({folder + "/model.pte", folder + "/aoti_cuda_blob.ptd"})}) {
        REQUIRE_MESSAGE(model.has_value(), model.error().message());
        CHECK(model->weights.size() == 7);  // of two methods
        CHECK(model->storages.size() == 7);
        REQUIRE(find(*model, "second") != nullptr);
        CHECK(find(*model, "second")->offset_bytes == 48);
        CHECK(model->storages[find(*model, "second")->storage].bytes == 96);
        CHECK(find(*model, "turned")->strides == Strides{1, 6});
        // Equal bytes in the file, and yet two buffers, since kernels may write them.
        CHECK(find(*model, "seen")->storage != find(*model, "also_seen")->storage);
        CHECK(model->storages[find(*model, "seen")->storage].offset_bytes ==
              model->storages[find(*model, "also_seen")->storage].offset_bytes);
        REQUIRE(model->passed_over.size() == 2);
        for (const auto& each : model->passed_over) {
            CHECK(each.name.ends_with("_so_blob"));
            CHECK(each.why == std::string{"a compiled library"});
        }
    }
    SimulatedDevice device;
    const Catalog catalog = unwrap(unwrap(format::try_read_model(folder)).try_catalog());
    const auto loaded = unwrap(host::try_load(device, catalog));
    const auto& first = loaded.catalog.weight(unwrap(loaded.catalog.try_find("second")));
    const std::byte* bytes = loaded.catalog.host_bytes(first.storage);
    REQUIRE(bytes != nullptr);
    const auto model = unwrap(format::try_read_model(folder));
    const std::string expected = support::bytes_of(model, *find(model, "second"));
    CHECK(std::memcmp(bytes + first.offset_bytes, expected.data(), expected.size()) == 0);
}

TEST_CASE("executorch: what a program says of its methods and data") {
    const auto input = unwrap(format::Input::try_open(fixture("executorch/cuda/model.pte")));
    const auto file = unwrap(format::try_read_executorch_file(input));
    CHECK(file.is_program);
    REQUIRE(file.methods.size() == 2);
    CHECK(file.methods[0].name == "decode");
    CHECK(file.methods[1].name == "prefill");
    for (const auto& method : file.methods) {
        REQUIRE(method.delegates.size() == 1);
        CHECK(method.delegates[0].backend == "CudaBackend");
        const auto cuda = unwrap(format::try_read_executorch_cuda(input, method.delegates[0]));
        CHECK(cuda.constants.size() == 7);
        CHECK(cuda.constants[1].key == "cuda_fqn_weight:cuda:" + cuda.constants[1].name);
        const auto* library = file.find(cuda.library);
        REQUIRE(library != nullptr);
        CHECK(unwrap(input.try_text(library->offset_bytes, library->bytes)) ==
              std::string{"a library for batches of "} + (method.name == "decode" ? "1" : "5"));
    }
    CHECK(file.find("nothing of that name") == nullptr);
    auto other = file.methods[0].delegates[0];
    other.backend = "XnnpackBackend";
    CHECK(format::try_read_executorch_cuda(input, other).error().kind() == ErrorKind::unsupported);

    const auto data =
        unwrap(format::try_read_executorch_file(unwrap(format::Input::try_open(fixture("executorch/tensors.ptd")))));
    CHECK_FALSE(data.is_program);
    REQUIRE(data.find("float32 again") != nullptr);
    CHECK(data.find("float32 again")->offset_bytes == data.find("float32")->offset_bytes);
    CHECK_FALSE(data.find("bytes")->layout);
    CHECK(data.find("image")->layout->strides == Strides{12, 1, 6, 3});
}

TEST_CASE("executorch: a program without its data, or with that of another export, is refused with what to do") {
    const support::TemporaryFolder folder;
    const std::string pte = support::read_all(fixture("executorch/cuda/model.pte"));
    const std::string path = folder.write("model.pte", pte);
    CHECK(refused(format::try_read_model(path), "are in no file; give the program's data (.ptd) too"));
    folder.write("other.ptd", support::read_all(fixture("executorch/tensors.ptd")));
    CHECK(refused(format::try_read_model(path), "are in no file"));  // it has none of the names
    folder.write("weights.ptd", support::read_all(fixture("executorch/cuda/aoti_cuda_blob.ptd")));
    CHECK(format::try_read_model(path)->weights.size() == 7);
    folder.write("more.ptd", support::read_all(fixture("executorch/cuda/aoti_cuda_blob.ptd")));
    CHECK(refused(format::try_read_model(path), "give the file that belongs to the program alone"));
    CHECK(refused(format::try_read_model_parts({path, path}), "a second program"));
    CHECK(refused(
        format::try_read_model(folder.write("alone.pte", support::read_all(fixture("executorch/external.pte")))),
        "the bytes of \"a.weight\" are in no file"));

    const std::string of_8 = executorch_file({}, {{"k", "eight..."}}, true);
    const std::string needs_12 =
        executorch_file({{"run", {{"CudaBackend", executorch_cuda("library", {vector_of_3})}}}}, {});
    CHECK(refused(read(needs_12, of_8),
                  "its storage has 8 bytes where 12 bytes are named: the data are those of another export"));
}

TEST_CASE("executorch: constants of several methods: shared, of one name and different, on the processor") {
    const std::vector<support::ExecutorchBytes> data{
        {"k", std::string(24, 'x')}, {"l", std::string(12, 'y')}, {"library", "ELF"}};
    const auto methods = [&](const std::vector<ExecutorchRecord>& first, const std::vector<ExecutorchRecord>& second) {
        return read(executorch_file({{"first", {{"CudaBackend", executorch_cuda("library", first)}}},
                                     {"second", {{"CudaBackend", executorch_cuda("library", second)}}}},
                                    data));
    };
    const ExecutorchRecord whole{"a", "k", 24, 6, 1, 0, {6}, {1}}, half{"b", "k", 24, 6, 1, 3, {3}, {1}},
        other{"a", "l", 12, 6, 1, 0, {3}, {1}}, on_cpu{"c", "l", 12, 6, 0, 0, {3}, {1}};
    const auto shared = methods({whole, half}, {half, whole});
    REQUIRE(shared);
    CHECK(shared->weights.size() == 3);  // with the bytes that none names
    CHECK(find(*shared, "a")->storage == find(*shared, "b")->storage);
    CHECK(find(*shared, "b")->offset_bytes == 12);
    CHECK(find(*shared, "l")->dtype == "uint8");
    const auto named = methods({whole}, {other});
    REQUIRE(named);
    CHECK(find(*named, "a")->storage == 0);
    REQUIRE(find(*named, "second/a") != nullptr);
    CHECK(find(*named, "second/a")->shape == Shape{3});
    const auto mixed = methods({whole}, {on_cpu});
    REQUIRE(mixed);
    CHECK(find(*mixed, "c") == nullptr);
    CHECK(mixed->passed_over.back().why == std::string{"the program reads it on the processor"});
    const auto all_on_cpu = methods({on_cpu}, {});
    REQUIRE(all_on_cpu);
    CHECK(find(*all_on_cpu, "c") != nullptr);  // compiled for the processor
    // Two methods whose descriptions are the same bytes.
    CHECK(methods({whole}, {whole})->weights.size() == 2);

    const auto older = read(executorch_file({{"run", {{"CudaBackend", "library\nweights"}}}},
                                            {{"library", "ELF"}, {"weights", "all of them"}}));
    REQUIRE(older);
    CHECK(older->notes.at(0).find("its weights are one piece without names; export it with executorch 1.5") !=
          std::string::npos);
    REQUIRE(older->weights.size() == 1);
    CHECK(older->weights[0].name == "weights");
    CHECK(older->passed_over.at(0).name == "library");
}

TEST_CASE("C7: executorch: descriptions of constants that break their form are refused") {
    CHECK(read(program({vector_of_3})).has_value());
    CHECK(refused(read(one([](auto& r) { r.dtype = 12; })), "such as F32, F16, BF16 or I8: found 12"));
    CHECK(refused(read(one([](auto& r) { r.dtype = -1; })), "an unknown type"));
    CHECK(refused(read(one([](auto& r) { r.device = 2; })), "an unknown device"));
    CHECK(refused(read(one([](auto& r) { r.offset = -1; })), "an offset below zero"));
    CHECK(refused(read(one([](auto& r) { r.offset = 1; })), "does not lie inside its storage"));
    CHECK(refused(read(one([](auto& r) { r.offset = INT64_MAX; })), "64 bits"));
    CHECK(refused(read(one([](auto& r) { r.sizes = {4}; })), "does not lie inside its storage"));
    CHECK(refused(read(one([](auto& r) { r.strides = {-1}; })), "is cut off, or not valid"));
    CHECK(refused(read(one([](auto& r) { r.sizes = {-3}; })), "is cut off, or not valid"));
    CHECK(refused(read(one([](auto& r) { r.strides = {INT64_MAX}; })), "64 bits"));
    CHECK(refused(read(one([](auto& r) { r.name = ""; })), "is cut off, or not valid"));
    CHECK(refused(read(one([](auto& r) { r.name = "\xff"; })), "is cut off, or not valid"));
    CHECK(refused(read(one([](auto& r) { r.sizes = r.strides = std::vector<std::int64_t>(65, 1); })),
                  "is cut off, or not valid"));
    const std::string good = executorch_cuda("library", {vector_of_3});
    const auto of = [](const std::string& described) {
        return read(executorch_file({{"run", {{"CudaBackend", described}}}}, {{"k", std::string(12, 'x')}}));
    };
    CHECK(refused(of(good + "x"), "goes on after its last constant"));
    for (std::size_t size = std::string{"ETCUDAFQN3"}.size(); size < good.size(); ++size) {
        CHECK(refused(of(good.substr(0, size)), "is cut off, or not valid"));
    }
    for (const std::string magic : {"ETCUDAFQN4", "ETCUDAFQN"}) {
        const auto later = read(program({vector_of_3}, magic));
        REQUIRE_FALSE(later);
        CHECK(later.error().kind() == ErrorKind::unsupported);
        CHECK(later.error().message().find("of another version; export it with executorch 1.5") != std::string::npos);
    }
}

TEST_CASE("C7: executorch: files that break their form are refused with the place") {
    const auto layout = [](std::int8_t type, const std::string& sizes, const std::string& order) {
        return flat::table({{number_bytes(type), {}}, {{}, flat::bytes(sizes, 4)}, {{}, flat::bytes(order)}});
    };
    const auto sizes = [](std::vector<std::int32_t> values) {
        std::string out;
        for (const std::int32_t value : values) { out += number_bytes(value); }
        return out;
    };
    const auto tensor = [&](std::int8_t type, std::vector<std::int32_t> extents, const std::string& order) {
        return read(
            executorch_file({}, {{"t", std::string(24, 'x'), layout(type, sizes(std::move(extents)), order)}}, true));
    };
    CHECK(tensor(6, {2, 3}, {"\0\1", 2}).has_value());
    CHECK(tensor(6, {2, 3}, {"\1\0", 2})->weights[0].strides == Strides{1, 2});
    CHECK(tensor(6, {2, 3}, "")->weights[0].strides.empty());
    CHECK(refused(tensor(9 + 4, {2, 3}, ""), "such as F32, F16, BF16 or I8: found 13"));
    CHECK(refused(tensor(6, {2, -3}, ""), "an extent below zero"));
    CHECK(refused(tensor(6, {2, 4}, ""), "does not lie inside its storage"));
    CHECK(refused(tensor(6, {2, 3}, {"\0", 1}), "with an order of 1"));
    CHECK(refused(tensor(6, {2, 3}, {"\1\1", 2}), "names one twice"));
    CHECK(refused(tensor(6, {2, 3}, {"\0\2", 2}), "names one twice, or one that is not there"));
    CHECK(refused(tensor(6, std::vector<std::int32_t>(65, 1), ""), "a tensor of 65 extents"));
    CHECK(refused(tensor(6, std::vector<std::int32_t>(3, INT32_MAX), {"\0\1\2", 3}), "64 bits"));
    CHECK(refused(read(executorch_file({}, {{"t", "x"}, {"t", "y"}}, true)), "the name \"t\" is given twice"));
    CHECK(refused(read(executorch_file({}, {{"\xff", "x"}}, true)), "not UTF-8"));
    CHECK(refused(read(executorch_file({{"\xff", {}}}, {})), "not UTF-8"));
    CHECK(refused(read(executorch_file({{"run", {{"\xff", ""}}}}, {})), "not UTF-8"));
    for (const bool as_data : {false, true}) {
        const auto later = read(executorch_file({}, {}, as_data, 1));
        REQUIRE_FALSE(later);
        CHECK(later.error().kind() == ErrorKind::unsupported);
        std::string renamed = executorch_file({}, {}, as_data);
        renamed[7] = '9';
        CHECK(read(renamed).error().kind() == ErrorKind::unsupported);
        std::string shorter = executorch_file({}, {}, as_data);
        shorter[12] = 8;
        CHECK(refused(read(shorter), "its header is too short"));
        std::string beyond = executorch_file({}, {}, as_data);
        beyond[23] = '\x7f';
        CHECK(refused(read(beyond), "its header names a description that is too long"));
    }
    std::string headless = executorch_file({}, {}, true);
    headless[8] = 'X';
    CHECK(refused(read(headless), "the header of ExecuTorch's data is missing"));
    CHECK(refused(read("no file of it"), "neither a program nor data of ExecuTorch"));
    CHECK(refused(read(""), "neither a program nor data of ExecuTorch"));

    // A program of before segments has no header, and its delegates' bytes are in the description.
    const auto inline_program = [&](std::uint32_t index) {
        std::vector<support::FlatField> plan(8), root(8);
        plan[0].object = flat::bytes("run");
        plan[7].object = flat::list(
            {flat::table({{{}, flat::bytes("CudaBackend")},
                          {{}, flat::table({{number_bytes<std::int8_t>(0), {}}, {number_bytes(index), {}}})}})});
        root[1].object = flat::list({flat::table(std::move(plan))});
        root[3].object = flat::list({flat::table({{{}, flat::bytes(executorch_cuda("library", {}))}})});
        return read(flat::file("ET12", 0, flat::table(std::move(root))));
    };
    CHECK(inline_program(0)->weights.empty());
    CHECK(refused(inline_program(1), "a delegate whose bytes are not there"));
}

TEST_CASE("C7: executorch: tables that point to each other again and again cost no more than their bytes") {
    const auto root_of = [](support::FlatField methods) {
        std::vector<support::FlatField> root(8);
        root[1] = std::move(methods);
        return read(flat::file("ET12", 0, flat::table(std::move(root))));
    };
    // 20,000 times a method of 20,000 delegates, all of them the same tables.
    const auto delegate =
        flat::table({{{}, flat::bytes("other")}, {{}, flat::table({{number_bytes<std::int8_t>(0), {}}})}});
    std::vector<support::FlatField> plan(8);
    plan[0].object = flat::bytes("run");
    plan[7].object = flat::repeated(delegate, 20'000);
    CHECK_FALSE(root_of({{}, flat::repeated(flat::table(plan), 20'000)}));
    plan[7].object = {};
    plan[0].object = flat::bytes(std::string(10'000, 'x'));
    CHECK(refused(root_of({{}, flat::repeated(flat::table(plan), 10'000)}), "its lists overlap"));
    // The same bytes as the descriptions of many methods.
    const std::string described = executorch_cuda("library", {vector_of_3});
    std::string file = executorch_file({{"a", {{"CudaBackend", described}}}, {"b", {{"CudaBackend", described}}}},
                                       {{"k", std::string(12, 'x')}});
    CHECK(read(file)->weights.size() == 1);
}

TEST_CASE("C7: executorch: no truncation is accepted") {
    for (const char* name :
         {"tensors.ptd", "external.ptd", "portable.pte", "cuda/model.pte", "cuda/aoti_cuda_blob.ptd"}) {
        CAPTURE(name);
        const std::string good = support::read_all(fixture(std::string{"executorch/"} + name));
        const std::string data = std::string{name} == "cuda/model.pte"
                                     ? support::read_all(fixture("executorch/cuda/aoti_cuda_blob.ptd"))
                                     : executorch_file({}, {}, true);
        REQUIRE(read(good, data).has_value());
        for (std::size_t size = 0; size < good.size(); ++size) {
            const auto model = read(good.substr(0, size), data);
            CAPTURE(size);
            REQUIRE_FALSE(model);
            support::check_refusal(model.error());
            if (size < 8) { continue; }  // neither of its magic numbers
            CHECK(
                refused(model, "cut off: download it again: found " + detail::in_bytes(size) + ", expected at least "));
        }
    }
}

TEST_CASE("C7: executorch: 10,000 mutations: an error, or ranges that exist") {
    const std::string pte = support::read_all(fixture("executorch/cuda/model.pte"));
    const std::string ptd = support::read_all(fixture("executorch/cuda/aoti_cuda_blob.ptd"));
    const std::string tensors = support::read_all(fixture("executorch/tensors.ptd"));
    constexpr std::uint32_t seed = 7;
    MESSAGE("seed ", seed);
    std::mt19937 engine{seed};
    const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(engine() % bound); };
    std::uint32_t accepted = 0, refusals = 0;
    for (int round = 0; round < 10'000; ++round) {
        std::string first = pte, second = round % 2 == 0 ? ptd : tensors;
        std::string& changed = round % 4 == 0 ? first : second;
        for (std::size_t changes = 1 + below(4); changes-- > 0;) {
            changed[below(changed.size())] = static_cast<char>(below(round % 3 == 0 ? 8 : 256));
        }
        const auto model = round % 2 == 0 ? read(first, second) : read(second);
        support::check_model(model);
        ++(model ? accepted : refusals);
    }
    CHECK(accepted > 500);
    CHECK(refusals > 500);
}

}  // namespace executorch_test
