// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A packed file, loaded as it lies there and streamed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/format/open.hpp"
#include "residency/format/packed_writer.hpp"
#include "residency/format/safetensors_writer.hpp"
#include "tests/packed/support.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace packed_tests;
using residency::ErrorKind;
namespace format = residency::format;

namespace {

struct Tensor {
    std::string name;
    residency::DType type;
    residency::Shape shape;
    std::vector<std::byte> bytes;
};

std::vector<Tensor> tensors() {
    std::mt19937_64 random{5};
    std::vector<Tensor> result{{"a", residency::dtype::bf16, {600, 5000}, std::vector<std::byte>(6'000'000)},
                               {"b", residency::dtype::bf16, {64, 512}, std::vector<std::byte>(65536)},
                               {"noise", residency::dtype::bf16, {1500}, std::vector<std::byte>(3000)},
                               {"norm", residency::dtype::f32, {16}, std::vector<std::byte>(64, std::byte{3})},
                               {"empty", residency::dtype::bf16, {0, 4}, {}}};
    fill_normal(random, result[0].bytes);
    fill_normal(random, result[1].bytes);
    for (std::byte& byte : result[2].bytes) { byte = static_cast<std::byte>(random()); }
    return result;
}

/// Writes the tensors as safetensors, and that packed; returns the path of the packed file.
std::string write_packed(const test::TemporaryFolder& folder, const std::vector<Tensor>& model) {
    const std::string plain = folder.path("model.safetensors"), packed = folder.path("model.packed");
    std::vector<format::SafetensorsTensor> described;
    for (const Tensor& tensor : model) { described.push_back({tensor.name, tensor.type, tensor.shape}); }
    auto writer = must(format::SafetensorsWriter::try_create(plain, described));
    for (const Tensor& tensor : model) { must(writer.try_append(tensor.bytes)); }
    must(writer.try_finish());
    static_cast<void>(must(format::try_write_packed(must(format::try_read_model(plain)), packed, {.threads = 1})));
    return packed;
}

}  // namespace

TEST_CASE("a packed file is loaded packed, and streamed to the same bytes") {
    const test::TemporaryFolder folder;
    const std::vector<Tensor> model = tensors();
    const std::string path = write_packed(folder, model);
    Device device;
    {
        const Catalog file = must(must(format::try_read_model(path)).try_catalog());
        const auto loaded = must(residency::packed::try_load(device, file, {.threads = 2}));
        CHECK(loaded.catalog.hash() == file.hash());
        CHECK(loaded.packed_bytes < loaded.raw_bytes * 7 / 10);
        residency::ScheduleBuilder builder{loaded.catalog};
        for (const Tensor& tensor : model) { builder.step({std::string_view{tensor.name}}); }
        const Schedule schedule = must(builder.try_build());
        const residency::SimulatedUnpacker unpacker;
        const Stream stream = must(device.create_stream());
        for (const std::uint64_t budget : {std::uint64_t{0}, std::uint64_t{32} << 20U}) {
            auto made = options(unpacker, budget, schedule);
            if (budget == 0) { made.budget = residency::Budget::parse("0"); }
            auto weights = must(Weights::try_create(device, loaded.catalog, std::move(made)));
            std::size_t wrong = 0;
            auto pass = must(weights.try_begin(stream));
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                for (const WeightId id : step.weights) {
                    const Tensor& tensor = model[static_cast<std::size_t>(
                        std::find_if(model.begin(), model.end(),
                                     [&](const Tensor& one) { return one.name == loaded.catalog.weight(id).name; }) -
                        model.begin())];
                    Device::Kernel kernel;
                    kernel.reads = {{lease.data(id), tensor.bytes.size()}};
                    kernel.body = [at = lease.data(id), &tensor, &wrong] {
                        wrong += !tensor.bytes.empty() && std::memcmp(at, tensor.bytes.data(), tensor.bytes.size()) != 0
                                     ? 1
                                     : 0;
                    };
                    must(device.launch(stream, std::move(kernel)));
                }
            }
            must(pass.try_end());
            must(weights.try_drain());
            CHECK(wrong == 0);
            expect_no_reports(device);
        }
        must(device.destroy_stream(stream));
    }
    CHECK(device.leaks().empty());
}

TEST_CASE("a packed file that was changed is refused, with the place") {
    const test::TemporaryFolder folder;
    const std::string path = write_packed(folder, tensors());
    Device device;
    {
        std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
        file.seekp(4096 + 1000);
        file.put('\x5a');
    }
    const Catalog changed = must(must(format::try_read_model(path)).try_catalog());
    const auto refused = residency::packed::try_load(device, changed);
    REQUIRE(!refused);
    CHECK(refused.error().kind() == ErrorKind::malformed);
    CHECK(refused.error().message().find("offset") != std::string::npos);
    CHECK(device.leaks().empty());

    // Cut after it was opened: another size than the catalog says.
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    CHECK(!residency::packed::try_load(device, changed));
    CHECK(device.leaks().empty());
}
