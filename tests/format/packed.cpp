// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "residency/format/packed.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/stable_hash.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "expected.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/conformance/codec.hpp"
#include "residency/format/open.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/host/loading.hpp"
#include "residency/model/number.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace packed_test {

using namespace residency;
using support::refused;
using Bytes = std::vector<std::byte>;

namespace {

struct Tensor {
    std::string name;
    DType type;
    Shape shape;
    Bytes bytes;
};

Bytes weights(std::size_t bytes, std::uint32_t seed) {
    std::mt19937 random{seed};
    return conformance::detail::normal_weights(random, bytes, 0.02F);
}

std::vector<Tensor> small_model() {
    std::mt19937 random{9};
    Bytes noise(3000);
    for (std::byte& byte : noise) { byte = static_cast<std::byte>(random()); }
    return {{"layer.weight", dtype::bf16, {300, 5000}, weights(3000000, 1)},  // two chunks
            {"head.weight", dtype::bf16, {64, 512}, weights(65536, 2)},
            {"noise", dtype::bf16, {1500}, noise},
            {"norm", dtype::f32, {16}, Bytes(64, std::byte{3})},
            {"empty", dtype::bf16, {0, 4}, {}},
            {"scalar", dtype::bf16, {}, Bytes(2, std::byte{1})}};
}

std::string write_model(const support::TemporaryFolder& folder, const std::vector<Tensor>& tensors) {
    const std::string path = folder.path("model.safetensors");
    std::vector<format::SafetensorsTensor> list;
    for (const Tensor& tensor : tensors) { list.push_back({tensor.name, tensor.type, tensor.shape}); }
    const std::vector<format::ModelFile::Metadata> metadata{{"license", "none"}};
    auto writer = format::SafetensorsWriter::create(path, list, metadata);
    for (const Tensor& tensor : tensors) { writer.append(tensor.bytes); }
    writer.finish();
    return path;
}

PackedForm tiles_where_possible(const format::ModelFile::WeightEntry& weight) {
    if (weight.type != dtype::bf16) { return PackedForm::raw; }
    return weight.name == "head.weight" ? PackedForm::bf16_tiles : PackedForm::bf16_tiers;
}

/// Whether it failed in that way, with that text.
template <class R>
bool fails(const R& result, ErrorKind kind, const std::string& text) {
    if (result) { return false; }
    INFO(result.error().message());
    CHECK(result.error().kind() == kind);
    return result.error().message().find(text) != std::string::npos;
}

/// The bytes of all storages, unpacked from an input.
Result<std::vector<Bytes>> unpack_all(const format::Input& input, const format::ModelFile& model) {
    std::vector<Bytes> all;
    for (const auto& storage : model.storages) {
        Bytes raw(static_cast<std::size_t>(storage.bytes));
        std::size_t at = 0;
        for (const PackedPart& part : *storage.parts) {
            Bytes packed(static_cast<std::size_t>(part.packed_bytes));
            if (Status read = input.try_read(part.offset_bytes, packed); !read) { return read.error(); }
            const auto target = std::span{raw}.subspan(at, static_cast<std::size_t>(part.raw_bytes));
            if (Status unpacked = codec::unpack_part(part, packed, target); !unpacked) { return unpacked.error(); }
            at += target.size();
        }
        all.push_back(std::move(raw));
    }
    return all;
}

}  // namespace

TEST_CASE("packed: what was packed is read back, with its names, and each weight in its form") {
    const support::TemporaryFolder folder;
    const std::vector<Tensor> tensors = small_model();
    const auto model = format::read_model(write_model(folder, tensors));
    const std::string path = folder.path("model.packed");
    for (const unsigned threads : {1U, 3U}) {
        const auto report = format::try_write_packed(model, path, {.form = tiles_where_possible, .threads = threads});
        REQUIRE(report);
        CHECK(report->raw_bytes == model.total_bytes());
        CHECK(static_cast<double>(report->packed_bytes) < 0.69 * static_cast<double>(report->raw_bytes));
        CHECK(report->forms.at(PackedForm::bf16_tiers).parts == 2);
        CHECK(report->forms.at(PackedForm::bf16_tiles).parts == 1);
        CHECK(report->forms.at(PackedForm::raw).parts == 3);  // noise, norm, scalar
        CHECK(report->file_bytes == support::read_all(path).size());
        CHECK(!std::filesystem::exists(path + ".partial"));
    }
    const auto input = format::Input::try_open(path);
    const auto packed = format::try_read_model(path);
    REQUIRE(packed);
    CHECK(packed->format == "packed");
    CHECK(packed->metadata[0].value == "safetensors");
    CHECK(packed->metadata[1].key == "license");
    const auto all = unpack_all(*input, *packed);
    REQUIRE(all);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto& weight = packed->weights[i];
        CHECK(weight.name == tensors[i].name);
        CHECK(weight.type == tensors[i].type);
        CHECK(weight.dtype == model.weights[i].dtype);
        CHECK(weight.shape == tensors[i].shape);
        CHECK((*all)[weight.storage] == tensors[i].bytes);
    }
    const std::string first = support::read_all(path);
    REQUIRE(format::try_write_packed(model, path, {.form = tiles_where_possible, .threads = 2}));
    CHECK_MESSAGE(support::read_all(path) == first, "the same model gives the same file");
}

TEST_CASE("packed: a catalog of it has the hash of the model, and is loaded into host memory") {
    const support::TemporaryFolder folder;
    const std::vector<Tensor> tensors = small_model();
    const auto model = format::read_model(write_model(folder, tensors));
    const std::string path = folder.path("model.packed");
    REQUIRE(format::try_write_packed(model, path, {.form = tiles_where_possible}));
    const Catalog catalog = format::read_model(path).catalog();
    CHECK(catalog.hash() == model.catalog().hash());
    SimulatedDevice device;
    for (const unsigned threads : {1U, 4U}) {
        std::uint64_t last = 0, total = 0;
        host::LoadOptions options;
        options.threads = threads;
        options.progress = [&](const host::LoadProgress& progress) {
            last = progress.loaded_bytes;
            total = progress.total_bytes;
            return true;
        };
        const auto loaded = host::try_load(device, catalog, options);
        REQUIRE(loaded);
        CHECK(last == total);
        for (const Tensor& tensor : tensors) {
            const WeightId id = *loaded->catalog.find(tensor.name);
            const Storage& storage = loaded->catalog.storage(loaded->catalog.storage_of(id));
            const auto* source = std::get_if<HostSource>(&storage.source);
            REQUIRE(source != nullptr);
            CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), source->host->data() + source->offset_bytes));
        }
    }
}

TEST_CASE("packed: each weight in the form of its type") {
    const support::TemporaryFolder folder;
    Bytes f32(4 * 700'000), fp8(2'500'001);  // two chunks each, the last with an odd number of bytes
    std::mt19937 random{4};
    std::normal_distribution<float> normal{0, 0.02F};
    for (std::size_t i = 0; i < f32.size() / 4; ++i) {
        const float value = normal(random);
        std::memcpy(f32.data() + 4 * i, &value, sizeof value);
    }
    for (std::byte& byte : fp8) {
        std::uint32_t exponent = 13;
        while (random() % 2 == 0 && exponent > 0) { --exponent; }
        byte = static_cast<std::byte>(exponent << 3 | (random() & 0x87U));
    }
    const std::vector<Tensor> tensors{{"a", dtype::f32, {700, 1000}, f32},
                                      {"b", dtype::f8_e4m3fn, {2'500'001}, fp8},
                                      {"c", dtype::bf16, {64, 512}, weights(65536, 2)},
                                      {"d", dtype::f32, {16}, Bytes(64, std::byte{3})},
                                      {"e", dtype::f8_e5m2, {50'000}, Bytes(50'000, std::byte{3})}};
    const auto model = format::read_model(write_model(folder, tensors));
    const std::string path = folder.path("model.packed");
    const auto report = format::try_write_packed(model, path);
    REQUIRE(report);
    CHECK(report->forms.at(PackedForm::bf16_tiers).parts == 1);
    CHECK(report->forms.at(PackedForm::raw).parts == 2);  // too small, and of another type
    for (const PackedForm form : {PackedForm::f32_tiers, PackedForm::f8_e4m3_tiers}) {
        const auto& sum = report->forms.at(form);
        CHECK(sum.parts == 2);
        CHECK(static_cast<double>(sum.packed_bytes) < 0.86 * static_cast<double>(sum.raw_bytes));
    }
    const auto packed = format::read_model(path);
    for (const auto& weight : packed.weights) {
        const PackedForm expected = weight.name == "d" ? PackedForm::raw : codec::chunk_form(weight.type);
        for (const PackedPart& part : *packed.storages[weight.storage].parts) { CHECK(part.form == expected); }
    }
    SimulatedDevice device;
    const auto loaded = host::try_load(device, packed.catalog());
    REQUIRE(loaded);
    for (const Tensor& tensor : tensors) {
        CAPTURE(tensor.name);
        const Weight& weight = loaded->catalog.weight(*loaded->catalog.find(tensor.name));
        const auto* source = std::get_if<HostSource>(&loaded->catalog.storage(weight.storage).source);
        REQUIRE(source != nullptr);
        CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), source->host->data() + source->offset_bytes));
    }
}

TEST_CASE("packed: forms that a weight cannot have") {
    const support::TemporaryFolder folder;
    const auto model = format::read_model(write_model(folder, small_model()));
    const std::string path = folder.path("out");
    const auto as = [&](PackedForm form) {
        return format::try_write_packed(model, path, {.form = [form](const auto&) { return form; }});
    };
    CHECK(fails(as(PackedForm::bf16_tiers), ErrorKind::invalid_argument,
                "weight \"norm\" cannot be packed as bf16_tiers"));
    CHECK(fails(as(PackedForm::bf16_tiles), ErrorKind::invalid_argument, "which the form does not take"));
    CHECK(fails(as(static_cast<PackedForm>(77)), ErrorKind::invalid_argument,
                "packed as form 77: this library does not know"));
    CHECK(as(PackedForm::raw));
    const auto packed = format::read_model(path);
    CHECK(fails(format::try_write_packed(packed, folder.path("again")), ErrorKind::invalid_argument, "packed already"));
    CHECK(fails(format::try_write_packed(model, model.files[0].path), ErrorKind::invalid_argument,
                "is the model that is read"));
    // Nor may the file be lost that is written first, or a piece of one that was cut.
    const std::string partial = folder.path("other.partial");
    std::filesystem::copy_file(model.files[0].path, partial);
    const auto bytes = support::read_all(partial);
    CHECK(fails(format::try_write_packed(format::read_model(partial), folder.path("other")),
                ErrorKind::invalid_argument, "is the model that is read"));
    CHECK(support::read_all(partial) == bytes);
    const std::string head = folder.write("piece.aa", std::string_view{bytes}.substr(0, 100));
    const std::string tail = folder.write("piece.ab", std::string_view{bytes}.substr(100));
    const auto cut = format::try_read_model_parts({head, tail});
    REQUIRE(cut);
    for (const std::string& piece : {head, tail}) {
        const auto whole = support::read_all(piece);
        CHECK(fails(format::try_write_packed(*cut, piece), ErrorKind::invalid_argument, "is the model that is read"));
        CHECK(support::read_all(piece) == whole);
    }
    const auto before = support::read_all(path);
    CHECK(!format::try_write_packed(model, folder.path("")));
    CHECK(support::read_all(path) == before);
}

TEST_CASE("packed: cancelled, or on a full disk, nothing is left and what was there stays") {
    const support::TemporaryFolder folder;
    const auto model = format::read_model(write_model(folder, small_model()));
    const std::string path = folder.write("model.packed", "old");
    for (const std::uint32_t calls : {0U, 1U, 3U}) {
        std::uint32_t left = calls;
        const auto cancelled =
            format::try_write_packed(model, path, {.progress = [&](const auto&) { return left-- != 0; }});
        REQUIRE(!cancelled);
        CHECK(cancelled.error().kind() == ErrorKind::cancelled);
        CHECK(support::read_all(path) == "old");
        CHECK(!std::filesystem::exists(path + ".partial"));
    }
    CHECK(format::try_write_packed(model, folder.path("no/such/folder")).error().kind() == ErrorKind::io);
    if (std::filesystem::exists("/dev/full")) {
        CHECK(format::try_write_packed(model, "/dev/full").error().kind() == ErrorKind::io);
    }
}

TEST_CASE("packed: each kind of damage has its own message") {
    const support::TemporaryFolder folder;
    const std::vector<Tensor> tensors = small_model();
    const auto model = format::read_model(write_model(folder, tensors));
    const std::string path = folder.path("model.packed");
    REQUIRE(format::try_write_packed(model, path, {.form = tiles_where_possible}));
    const std::string whole = support::read_all(path);
    const auto read = [](const std::string& bytes) {
        return support::over(bytes, [](const format::Input& input) { return format::try_read_packed(input); });
    };
    REQUIRE(read(whole));
    CHECK(refused(read(whole.substr(0, 30)),
                  "the file ends inside its front: the file is cut off: download it again: found 30 bytes, expected at "
                  "least 48 bytes"));
    CHECK(refused(read(whole.substr(0, whole.size() - 1)), "the file is cut off: download it again: found " +
                                                               detail::in_bytes(whole.size() - 1) + ", expected " +
                                                               detail::in_bytes(whole.size())));
    CHECK(refused(read(whole + "x"), "longer than it says"));
    std::string changed = whole;
    changed[0] = 'x';
    CHECK(refused(read(changed), "not a packed model file"));
    changed = whole;
    changed[8] = 2;
    CHECK(fails(read(changed), ErrorKind::unsupported, "of version 2; this library reads version 1"));
    changed = whole;
    changed[16] ^= 1;
    CHECK(refused(read(changed), "the front was changed"));
    changed = whole;
    changed[whole.size() - 100] ^= 1;
    CHECK(refused(read(changed), "checksum"));

    const auto packed = read(whole);
    const PackedPart part = packed->storages[0].parts->front();
    Bytes bytes(static_cast<std::size_t>(part.packed_bytes)), raw(static_cast<std::size_t>(part.raw_bytes));
    std::memcpy(bytes.data(), whole.data() + part.offset_bytes, bytes.size());
    CHECK(codec::unpack_part(part, bytes, raw));
    PackedPart other = part;
    other.form = PackedForm::bf16_tiles;
    CHECK(fails(codec::unpack_part(other, bytes, raw), ErrorKind::unsupported, "packed as bf16_tiers"));
    other.form = static_cast<PackedForm>(9);
    CHECK(fails(codec::unpack_part(other, bytes, raw), ErrorKind::unsupported,
                "form 9 is no packed form that this program knows"));
    bytes[1000] ^= std::byte{1};
    CHECK(fails(codec::unpack_part(part, bytes, raw), ErrorKind::malformed, "the packed bytes were changed"));
    bytes.pop_back();
    CHECK(fails(codec::unpack_part(part, bytes, raw), ErrorKind::mismatch, "are given"));

    // In the file: a load says which file and storage.
    changed = whole;
    changed[static_cast<std::size_t>(part.offset_bytes) + 5000] ^= 1;
    const std::string damaged = folder.write("damaged.packed", changed);
    SimulatedDevice device;
    const auto loaded = host::try_load(device, format::read_model(damaged).catalog());
    CHECK(fails(loaded, ErrorKind::malformed, "damaged.packed"));
    CHECK(fails(loaded, ErrorKind::malformed, "the packed bytes were changed"));
}

TEST_CASE("packed: every truncation, and 10,000 mutations of the container: an error or the right bytes") {
    const support::TemporaryFolder folder;
    const std::vector<Tensor> tensors{{"a.weight", dtype::bf16, {20, 300}, weights(12000, 1)},
                                      {"b.weight", dtype::bf16, {64, 128}, weights(16384, 2)},
                                      {"c", dtype::f32, {4}, Bytes(16, std::byte{9})}};
    const auto model = format::read_model(write_model(folder, tensors));
    const std::string path = folder.path("model.packed");
    REQUIRE(format::try_write_packed(model, path, {.form = [](const auto& weight) {
                                         return weight.name == "c"          ? PackedForm::raw
                                                : weight.name == "b.weight" ? PackedForm::bf16_tiles
                                                                            : PackedForm::bf16_tiers;
                                     }}));
    const std::string whole = support::read_all(path);
    const auto right_or_refused = [&](const std::string& bytes) {
        return support::over(bytes, [&](const format::Input& input) {
            const auto packed = format::try_read_packed(input);
            if (!packed) { return !packed.error().message().empty(); }
            const auto all = unpack_all(input, *packed);
            if (!all) { return !all.error().message().empty(); }
            for (std::size_t i = 0; i < all->size(); ++i) {
                if (i >= tensors.size() || (*all)[i] != tensors[i].bytes) { return false; }
            }
            return true;
        });
    };
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 100 || bytes + 2000 > whole.size() ? 1U : 61U) {
        const auto cut = support::over(whole.substr(0, bytes), [](const format::Input& input) {
            return format::try_read_packed(input).has_value();
        });
        CHECK(!cut);
    }
    std::mt19937 random{4};
    std::size_t wrong = 0;
    const auto index_at = static_cast<std::size_t>(
        residency::detail::load_little_endian<std::uint64_t>(reinterpret_cast<const std::byte*>(whole.data()) + 16));
    for (int i = 0; i < 10000; ++i) {
        std::string changed = whole;
        for (auto flips = 1 + random() % 3; flips > 0; --flips) {
            const std::size_t at =
                random() % 3 == 0 ? index_at + random() % (whole.size() - index_at) : random() % whole.size();
            changed[at] = static_cast<char>(
                random() % 2 == 0 ? random() : static_cast<unsigned char>(changed[at]) ^ (1UL << random() % 8));
        }
        if (i % 2 == 0) {  // with right checksums of the index and the front, so that what they say is read
            const auto bytes = reinterpret_cast<std::byte*>(changed.data());
            StableHash index;
            index.bytes({bytes + index_at, whole.size() - index_at - 8});
            const std::uint64_t index_hash = index.value();
            std::memcpy(bytes + whole.size() - 8, &index_hash, 8);
            StableHash front;
            front.bytes({bytes, 40});
            const std::uint64_t front_hash = front.value();
            std::memcpy(bytes + 40, &front_hash, 8);
        }
        // An index with a right checksum may say other names, shapes or fewer storages; never bytes that are not there.
        if (i % 2 == 0) {
            support::over(changed, [&](const format::Input& input) {
                const auto packed = format::try_read_packed(input);
                if (packed) { static_cast<void>(unpack_all(input, *packed).has_value()); }
                if (packed) { static_cast<void>(packed->try_catalog().has_value()); }
                return 0;
            });
        } else {
            wrong += right_or_refused(changed) ? 0U : 1U;
        }
    }
    CHECK(wrong == 0);
}

}  // namespace packed_test
