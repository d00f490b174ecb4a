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
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/checksum.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/format/open.hpp"
#include "residency/format/packed.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/model/stable_hash.hpp"
#include "tests/packed/support.hpp"
#include "tests/support/files.hpp"

namespace load_test {

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
std::string write_packed(const test::TemporaryFolder& folder, const std::vector<Tensor>& model,
                         format::PackOptions options = {}) {
    const std::string plain = folder.path("model.safetensors"), packed = folder.path("model.packed");
    std::vector<format::SafetensorsTensor> described;
    for (const Tensor& tensor : model) { described.push_back({tensor.name, tensor.type, tensor.shape}); }
    auto writer = must(format::SafetensorsWriter::try_create(plain, described));
    for (const Tensor& tensor : model) { must(writer.try_append(tensor.bytes)); }
    must(writer.try_finish());
    options.threads = 1;
    static_cast<void>(must(format::try_write_packed(must(format::try_read_model(plain)), packed, options)));
    return packed;
}

/// A packed file whose bytes are changed, with the checksums of the parts, the index and the front made right if that is asked for.
class Mutant {
public:
    explicit Mutant(const std::string& path) : whole{support::read_all(path)}, bytes{whole} {
        for (const auto& storage : must(format::try_read_model(path)).storages) {
            for (const residency::PackedPart& part : *storage.parts) {
                parts.push_back(part);
                checksum_at.push_back(find(part.checksum));
            }
        }
    }
    [[nodiscard]] std::size_t index_at() const { return static_cast<std::size_t>(load(16)); }
    void change(std::size_t at, std::mt19937_64& random) {
        const auto byte = static_cast<unsigned char>(bytes[at]);
        bytes[at] = static_cast<char>(random() % 2 == 0 ? random() : byte ^ (1U << random() % 8));
    }
    void make_checksums_right() {
        for (std::size_t i = 0; i < parts.size(); ++i) {
            store(checksum_at[i], residency::codec::checksum(span(static_cast<std::size_t>(parts[i].offset_bytes),
                                                                  static_cast<std::size_t>(parts[i].packed_bytes))));
        }
        const std::size_t index = Mutant::index_at() < bytes.size() - 8 ? Mutant::index_at() : bytes.size() - 8;
        store(bytes.size() - 8, hash(index, bytes.size() - 8 - index));
        store(40, hash(0, 40));
    }

    std::string whole, bytes;
    std::vector<residency::PackedPart> parts;

private:
    [[nodiscard]] std::span<const std::byte> span(std::size_t at, std::size_t count) const {
        return std::as_bytes(std::span{bytes}).subspan(at, count);
    }
    [[nodiscard]] std::uint64_t hash(std::size_t at, std::size_t count) const {
        residency::StableHash hash;
        hash.bytes(span(at, count));
        return hash.value();
    }
    [[nodiscard]] std::uint64_t load(std::size_t at) const {
        std::uint64_t value = 0;
        std::memcpy(&value, bytes.data() + at, 8);
        return value;
    }
    void store(std::size_t at, std::uint64_t value) { std::memcpy(bytes.data() + at, &value, 8); }
    /// Where the index has a checksum.
    [[nodiscard]] std::size_t find(std::uint64_t checksum) const {
        std::string text(8, '\0');
        std::memcpy(text.data(), &checksum, 8);
        const std::size_t at = whole.find(text, index_at());
        REQUIRE(at != std::string::npos);
        return at;
    }

    std::vector<std::size_t> checksum_at;
};

/// Streams every weight of a catalog once. `expected`: what each must be; empty: anything, read to its end.
void stream_all(Device& device, const Catalog& catalog, const std::vector<Tensor>& expected, std::size_t& wrong) {
    const residency::SimulatedUnpacker unpacker;
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{catalog};
    for (std::uint32_t i = 0; i < catalog.weights().size(); ++i) { builder.step({WeightId{i}}); }
    auto made = options(unpacker, 0, must(builder.try_build()));
    made.budget = residency::Budget::parse("0");
    made.policies.link = residency::plan::Link{5e10};
    made.policies.memory_bytes_per_second = 3e12;
    made.policies.unpack_rate = residency::packed::UnpackRate{};
    auto weights = Weights::try_create(device, catalog, std::move(made));
    if (weights) {
        auto pass = must(weights->try_begin(stream));
        for (const Schedule::Step& step : weights->schedule()) {
            auto lease = pass.try_acquire(step);
            if (!lease) { continue; }
            const WeightId id = step.weights.front();
            const residency::PackedWeight packed = lease->packed(id);
            const residency::simulation::ByteRange range =
                packed.data != nullptr ? residency::simulation::ByteRange{packed.data, packed.bytes}
                                       : residency::simulation::ByteRange{lease->data(id), catalog.weight(id).bytes};
            Device::Kernel kernel;
            kernel.reads = {range};
            kernel.body = [&, id, range, is_packed = packed.data != nullptr] {
                const auto* const at = static_cast<const std::byte*>(range.at);
                std::vector<std::byte> bytes(at, at + range.bytes);
                if (is_packed) {
                    const auto& source =
                        std::get<residency::PackedHostSource>(catalog.storage(catalog.weight(id).storage).source);
                    const residency::PackedPart& part = source.parts->front();
                    std::vector<std::byte> raw(static_cast<std::size_t>(part.raw_bytes));
                    if (!residency::codec::unpack_part(part, bytes, raw)) { ++wrong; }
                    bytes = std::move(raw);
                }
                if (!expected.empty() && bytes != expected[residency::index(id)].bytes) { ++wrong; }
            };
            must(device.launch(stream, std::move(kernel)));
        }
        must(pass.try_end());
        must(weights->try_drain());
    } else {
        CHECK(!weights.error().message().empty());
        wrong += expected.empty() ? 0 : 1;
    }
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

}  // namespace

TEST_CASE("a packed file is loaded packed, and streamed to the same bytes") {
    const test::TemporaryFolder folder;
    const std::vector<Tensor> model = tensors();
    const std::string path = write_packed(folder, model);
    Device device;
    {
        const Catalog file = must(must(format::try_read_model(path)).try_catalog());
        for (std::uint64_t nth = 1; nth <= 3; ++nth) {  // of more memories than that
            device.fail(Device::CallKind::pin, nth);
            device.fail(Device::CallKind::allocate_host, 1, ErrorKind::out_of_memory);  // what it does then
            const auto failed = residency::packed::try_load(device, file, {.threads = 2, .block_bytes = 1024});
            REQUIRE(!failed);
            CHECK(failed.error().kind() == ErrorKind::out_of_memory);
            CHECK(device.leaks().empty());
        }
        const auto loaded = must(residency::packed::try_load(device, file, {.threads = 2, .block_bytes = 1024}));
        CHECK(loaded.catalog.hash() == file.hash());
        CHECK(loaded.packed_bytes < loaded.raw_bytes * 7 / 10);
        CHECK(loaded.kept_raw.size() == 2);  // the noise and the norm
        for (const auto& kept : loaded.kept_raw) { CHECK(kept.why == "the file has it raw"); }
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

TEST_CASE("a packed file for which the limits leave no room is refused before anything is read") {
    const test::TemporaryFolder folder;
    const auto file = must(format::try_read_model(write_packed(folder, tensors())));
    const residency::Catalog catalog = must(file.try_catalog());
    residency::SimulatedDevice device;
    residency::packed::LoadOptions options;
    options.limits = residency::host::MemoryLimits{1000, 500, 100, "/some/group", std::nullopt};
    const auto refused = residency::packed::try_load(device, catalog, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::out_of_memory);
    CHECK(refused.error().message().find("/some/group has used 100 bytes of its limit of 500") != std::string::npos);
    CHECK(device.statistics().of(residency::simulation::CallKind::pin) == 0);
    options.limits->group_limit_bytes.reset();
    options.limits->available_bytes = std::uint64_t{1} << 30;
    must(residency::packed::try_load(device, catalog, options));
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
    CHECK(says(refused.error(), "offset"));
    CHECK(says(refused.error(), "their checksum is another"));
    CHECK(device.leaks().empty());

    // Cut after it was opened: another size than the catalog says.
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    CHECK(!residency::packed::try_load(device, changed));
    CHECK(device.leaks().empty());
}

TEST_CASE("10,000 mutations of a packed file: it is refused, or loaded, and then nothing reads outside of it") {
    std::mt19937_64 random{38};
    const test::TemporaryFolder folder;
    std::vector<Tensor> model{{"a", residency::dtype::bf16, {20, 300}, std::vector<std::byte>(12'000)},
                              {"b", residency::dtype::bf16, {64, 128}, std::vector<std::byte>(16'384)},
                              {"c", residency::dtype::f32, {4}, std::vector<std::byte>(16, std::byte{9})}};
    fill_normal(random, model[0].bytes);
    fill_normal(random, model[1].bytes);
    for (std::size_t at = 0; at < model[0].bytes.size(); at += 60) {  // some in each tier
        model[0].bytes[at + 1] = static_cast<std::byte>(random());
        model[1].bytes[at + 1] = static_cast<std::byte>(random());
    }
    format::PackOptions forms;
    forms.form = [](const format::ModelFile::WeightEntry& weight) {
        return weight.name == "c"   ? residency::PackedForm::raw
               : weight.name == "b" ? residency::PackedForm::bf16_tiles
                                    : residency::PackedForm::bf16_tiers;
    };
    const std::string path = write_packed(folder, model, forms), changed = folder.path("changed.packed");
    Mutant mutant{path};
    Device device{device_config()};
    std::size_t unreadable = 0, refused = 0, loaded = 0, streamed = 0, wrong = 0;
    for (int i = 0; i < 10'000; ++i) {
        CAPTURE(i);
        mutant.bytes = mutant.whole;
        const bool is_repaired = i % 3 != 0;  // so that what it says is read
        for (std::uint64_t flips = i < 4 ? 0 : 1 + random() % 3; flips > 0; --flips) {
            const residency::PackedPart& part = mutant.parts[random() % mutant.parts.size()];
            const auto first = static_cast<std::size_t>(part.offset_bytes), bytes = mutant.bytes.size();
            switch (random() % 4) {
                case 0: mutant.change(mutant.index_at() + random() % (bytes - mutant.index_at()), random); break;
                case 1:
                    mutant.change(first + random() % (std::min)(part.packed_bytes, std::uint64_t{80}), random);
                    break;
                case 2: mutant.change(first + random() % part.packed_bytes, random); break;
                default: mutant.change(random() % bytes, random); break;
            }
        }
        if (is_repaired) { mutant.make_checksums_right(); }
        std::filesystem::remove(changed);  // cut and written again, ext4 would flush it to the disk
        support::write_all(changed, mutant.bytes);
        const auto file = format::try_read_model(changed);
        const auto catalog = file ? file->try_catalog() : residency::Result<Catalog>{file.error()};
        if (!catalog) {
            CHECK(!catalog.error().message().empty());
            ++unreadable;
            continue;
        }
        const auto there = residency::packed::try_load(device, *catalog, {.threads = 1});
        if (!there) {
            CHECK(!there.error().message().empty());
            ++refused;
            continue;
        }
        ++loaded;
        // What is loaded is unpacked on the host from memory that ends where the part does.
        for (const residency::Storage& storage : there->catalog.storages()) {
            const auto* const source = std::get_if<residency::PackedHostSource>(&storage.source);
            if (source == nullptr) { continue; }
            for (const residency::PackedPart& part : *source->parts) {
                const std::byte* const from = source->host->data() + source->offset_bytes + part.offset_bytes;
                const std::vector<std::byte> bytes(from, from + part.packed_bytes);
                std::vector<std::byte> raw(static_cast<std::size_t>(part.raw_bytes));
                must(residency::codec::unpack_part(part, bytes, raw));
            }
        }
        if (is_repaired && loaded % 32 != 0) { continue; }
        stream_all(device, there->catalog, is_repaired ? std::vector<Tensor>{} : model, wrong);
        ++streamed;
    }
    MESSAGE(unreadable << " cannot be read, " << refused << " are refused when loaded, " << loaded << " are loaded, "
                       << streamed << " of these streamed");
    CHECK(wrong == 0);
    CHECK(refused > 1000);
    CHECK(loaded > 500);
    CHECK(device.leaks().empty());
}

}  // namespace load_test
