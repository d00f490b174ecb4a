// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Packing while weights are read, on the device and by threads of the host: the same bytes, whatever fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "residency/codec/packed_part.hpp"
#include "residency/conformance/codec.hpp"
#include "residency/format/open.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/simulation/simulated_unpacker.hpp"
#include "tests/packed/support.hpp"
#include "tests/support/files.hpp"

namespace pack_test {

using namespace packed_tests;
using residency::ErrorKind;
using CallKind = Device::CallKind;
using residency::packed::PackedModel;
using residency::packed::PackOptions;
using Bytes = std::vector<std::byte>;
namespace format = residency::format;

namespace {

/// Where the raw bytes of a model lie.
enum class From : std::uint8_t { pageable, pinned, file };

/// A model of tensors as they are given.
class Source {
public:
    /// `mixes`: tensors of several types; else all but one are bf16.
    Source(Device& device, From from, const std::vector<Bytes>& tensors, bool mixes = false) : tensors_{tensors} {
        const auto type = [&](std::size_t i) {
            if (i == 1 || (mixes && i % 4 == 3 && tensors[i].size() % 4 == 0)) { return residency::dtype::f32; }
            return (mixes && i % 4 == 2) || tensors[i].size() % 2 != 0 ? residency::dtype::f8_e4m3fn
                                                                       : residency::dtype::bf16;
        };
        const auto shape = [&](std::size_t i) {
            return residency::Shape{tensors[i].size() * 8 / type(i).block_bits()};
        };
        if (from == From::file) {
            std::vector<format::SafetensorsTensor> described;
            for (std::size_t i = 0; i < tensors.size(); ++i) { described.push_back({name(i), type(i), shape(i)}); }
            auto writer = must(format::SafetensorsWriter::try_create(path(), described));
            for (const Bytes& bytes : tensors) { must(writer.try_append(bytes)); }
            must(writer.try_finish());
            catalog_ = must(must(format::try_read_model(path())).try_catalog());
            return;
        }
        residency::CatalogBuilder builder;
        if (from == From::pageable) {
            for (std::size_t i = 0; i < tensors.size(); ++i) { builder.add(name(i), type(i), shape(i), tensors_[i]); }
        } else {
            std::uint64_t total = 256;
            for (const Bytes& bytes : tensors) { total += (bytes.size() + 255) / 256 * 256; }
            memory_ = std::make_unique<Pinned>(device, total);
            const auto held = residency::HostBytes::borrow(memory_->bytes(), residency::HostMemory::pinned);
            std::uint64_t at = 0;
            for (std::size_t i = 0; i < tensors.size(); ++i) {
                std::copy(tensors[i].begin(), tensors[i].end(),
                          memory_->bytes().begin() + static_cast<std::ptrdiff_t>(at));
                builder.add(name(i), type(i), shape(i), residency::HostSource{held, at});
                at += (tensors[i].size() + 255) / 256 * 256;
            }
        }
        catalog_ = must(builder.try_build());
    }
    [[nodiscard]] const Catalog& catalog() const { return catalog_; }
    [[nodiscard]] std::string path() const { return folder_.path("model.safetensors"); }
    static std::string name(std::size_t i) { return "t" + std::to_string(10'000 + i); }

private:
    test::TemporaryFolder folder_;
    std::vector<Bytes> tensors_;
    std::unique_ptr<Pinned> memory_;
    Catalog catalog_;
};

/// Whether two packed models have the same bytes for each weight, and these are what their parts say.
void check_same(const PackedModel& model, const PackedModel& expected, const std::vector<Bytes>& tensors) {
    CHECK(model.raw_bytes == expected.raw_bytes);
    CHECK(model.packed_bytes == expected.packed_bytes);
    REQUIRE(model.kept_raw.size() == expected.kept_raw.size());
    for (std::size_t i = 0; i < model.kept_raw.size(); ++i) {
        CHECK(model.kept_raw[i].storage == expected.kept_raw[i].storage);
        CHECK(model.kept_raw[i].why == expected.kept_raw[i].why);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        CAPTURE(i);
        const auto place = [i](const PackedModel& one) {
            return one.catalog.weight(*one.catalog.find(Source::name(i))).storage;
        };
        const auto& ours = model.catalog.storage(place(model)).source;
        const auto& theirs = expected.catalog.storage(place(expected)).source;
        REQUIRE(std::holds_alternative<residency::PackedHostSource>(ours) ==
                std::holds_alternative<residency::PackedHostSource>(theirs));
        if (!std::holds_alternative<residency::PackedHostSource>(ours)) {
            if (tensors[i].empty()) { continue; }
            CHECK(std::memcmp(model.catalog.host_bytes(place(model)), tensors[i].data(), tensors[i].size()) == 0);
            continue;
        }
        const auto& a = std::get<residency::PackedHostSource>(ours);
        const auto& b = std::get<residency::PackedHostSource>(theirs);
        REQUIRE(a.bytes == b.bytes);
        CHECK(*a.parts == *b.parts);
        CHECK(std::memcmp(a.host->data() + a.offset_bytes, b.host->data() + b.offset_bytes,
                          static_cast<std::size_t>(a.bytes)) == 0);
        std::size_t at = 0;
        for (const residency::PackedPart& part : *a.parts) {
            Bytes raw(static_cast<std::size_t>(part.raw_bytes));
            must(residency::codec::unpack_part(
                part,
                {a.host->data() + a.offset_bytes + part.offset_bytes, static_cast<std::size_t>(part.packed_bytes)},
                raw));
            CHECK(std::equal(raw.begin(), raw.end(), tensors[i].begin() + static_cast<std::ptrdiff_t>(at)));
            at += raw.size();
        }
        CHECK(at == tensors[i].size());
    }
}

/// Tensors of all kinds of bytes and of sizes around lanes, groups and parts.
std::vector<Bytes> all_kinds() {
    std::mt19937 random{38};
    std::vector<Bytes> tensors;
    constexpr std::size_t part = std::size_t{2} << 20;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{64}, std::size_t{2}, std::size_t{32}, std::size_t{8190},
                                    std::size_t{8194}, part - 2, part, part + 2, 3 * part}) {
        tensors.push_back(residency::conformance::detail::codec_input(random, 0, bytes));
    }
    for (std::uint32_t kind = 0; kind < 32; ++kind) {
        const std::size_t bytes = kind % 8 == 6 ? std::size_t{1} << 17 : 2 * (1 + random() % 60'000);
        tensors.push_back(residency::conformance::detail::codec_input(random, kind, bytes));
    }
    // Parts that do not get smaller among those that do.
    Bytes mixed = residency::conformance::detail::codec_input(random, 0, 3 * part + 10);
    for (std::size_t i = part; i < 2 * part; ++i) { mixed[i] = static_cast<std::byte>(random()); }
    tensors.push_back(std::move(mixed));
    for (const std::size_t bytes : {4 * part, part + 1, 3 * part - 4}) {
        Bytes same(bytes);  // of few exponents, whatever the type
        for (std::byte& byte : same) { byte = static_cast<std::byte>(0x38 | (random() & 7U)); }
        tensors.push_back(std::move(same));
    }
    while (tensors.size() % 4 != 0) { tensors.push_back(residency::conformance::detail::codec_input(random, 0, part)); }
    return tensors;
}

/// Many small ones, so that batches, cells and pinned ranges are used again and again.
std::vector<Bytes> many(std::size_t count, std::size_t bytes) {
    std::mt19937 random{5};
    std::vector<Bytes> tensors;
    for (std::size_t i = 0; i < count; ++i) {
        tensors.push_back(
            residency::conformance::detail::codec_input(random, i % 11 == 3 ? 1 : 0, bytes - 2 * (random() % 100)));
    }
    return tensors;
}

}  // namespace

TEST_CASE("packed on the device: the bytes of the host, from every kind of memory and from a file") {
    const residency::SimulatedPacker packer;
    for (const bool is_large : {false, true}) {
        const std::vector<Bytes> tensors = is_large ? all_kinds() : many(900, 8192);
        for (const From from : {From::pageable, From::pinned, From::file}) {
            CAPTURE(is_large);
            CAPTURE(static_cast<int>(from));
            Device device;
            {
                const Source source{device, from, tensors, is_large};
                const PackedModel expected = must(residency::packed::try_pack(device, source.catalog(), {{}, 2}));
                CHECK(expected.device_raw_bytes == 0);
                const PackedModel model = must(residency::packed::try_pack(device, source.catalog(), {}, &packer));
                check_same(model, expected, tensors);
                CHECK(model.why_host.empty());
                CHECK(model.device_raw_bytes >= model.raw_bytes);
                CHECK(model.packed_bytes < model.raw_bytes * 9 / 10);
                expect_no_reports(device);
            }
            CHECK(device.leaks().empty());
        }
    }
}

TEST_CASE("packed on the device: both directions of the link are busy at once") {
    const residency::SimulatedPacker packer;
    const std::vector<Bytes> tensors = many(1600, 32'768);
    Device device;
    const Source source{device, From::pinned, tensors};
    std::int64_t busy[2] = {0, 0}, first = -1, last = 0;
    device.observe([&](const residency::simulation::ExecutedOperation& operation) {
        const bool goes_back = operation.kind == residency::simulation::OperationKind::copy_to_host;
        if (!goes_back && operation.kind != residency::simulation::OperationKind::copy_to_device) { return; }
        busy[goes_back ? 1 : 0] += operation.end_ns - operation.start_ns;
        if (first < 0) { first = operation.start_ns; }
        last = operation.end_ns;
    });
    const PackedModel model = must(residency::packed::try_pack(device, source.catalog(), {}, &packer));
    CHECK(model.why_host.empty());
    CHECK(busy[1] > busy[0] / 2);
    CHECK(last - first < (busy[0] + busy[1]) * 3 / 4);  // virtual time
    device.observe({});
}

TEST_CASE("packed on the device: whatever fails, nothing is lost, and the host goes on") {
    const residency::SimulatedPacker packer;
    std::mt19937 random{1};
    std::vector<Bytes> tensors = many(70, 8192);
    tensors.push_back(residency::conformance::detail::codec_input(random, 2, 50'000));
    Device plain;
    const Source reference{plain, From::pageable, tensors};
    const PackedModel expected = must(residency::packed::try_pack(plain, reference.catalog(), {{}, 1}));
    CHECK(expected.packed_bytes < expected.raw_bytes * 9 / 10);
    std::size_t on_host = 0, on_device = 0, refused = 0;
    for (const CallKind kind : {CallKind::allocate, CallKind::allocate_host, CallKind::create_stream,
                                CallKind::create_event, CallKind::create_flag, CallKind::record, CallKind::wait,
                                CallKind::wait_flag, CallKind::raise_flag, CallKind::copy, CallKind::launch_kernel,
                                CallKind::synchronize_event, CallKind::synchronize_stream, CallKind::host_access}) {
        for (std::uint64_t nth = 1; nth <= 8; ++nth) {
            CAPTURE(residency::simulation::name(kind));
            CAPTURE(nth);
            for (const From from : {From::file, From::pinned}) {
                Device device;
                {
                    const Source source{device, from, tensors};
                    device.fail(kind, nth, nth % 2 == 0 ? ErrorKind::out_of_memory : ErrorKind::device);
                    auto model = residency::packed::try_pack(device, source.catalog(), {{}, 2}, &packer);
                    device.clear_failures();
                    if (model) {
                        check_same(*model, expected, tensors);
                        (model->why_host.empty() ? on_device : on_host) += 1;
                        const std::uint64_t given = source.catalog().total_bytes() - tensors[1].size();
                        CHECK((model->device_raw_bytes < given) == !model->why_host.empty());
                    } else {
                        CHECK(kind == CallKind::allocate_host);  // the memory of the packed bytes itself
                        ++refused;
                    }
                    expect_no_reports(device);
                }
                CHECK(device.leaks().empty());
            }
        }
    }
    CHECK(on_host > 40);
    CHECK(on_device > 20);
    CHECK(refused < 10);
}

TEST_CASE("packed on the device: what is not unpacked to the same bytes is packed again, by the host") {
    /// Finds a difference in its sixth batch.
    class Unsure final : public residency::Packer<Device> {
    public:
        [[nodiscard]] bool takes(residency::PackedForm form) const noexcept override { return packer_.takes(form); }
        [[nodiscard]] std::uint64_t workspace_bytes(std::size_t tasks) const noexcept override {
            return packer_.workspace_bytes(tasks);
        }
        [[nodiscard]] residency::Status enqueue(Device& device, const residency::PackBatch& batch,
                                                Stream stream) const override {
            if (residency::Status packs = packer_.enqueue(device, batch, stream); !packs) { return packs; }
            if (++batches_ != 6) { return {}; }
            Device::Kernel kernel;
            kernel.writes = {{batch.differing, sizeof *batch.differing}};
            kernel.body = [differing = batch.differing] { *differing = 1; };
            return device.launch(stream, std::move(kernel));
        }

    private:
        residency::SimulatedPacker packer_;
        mutable int batches_ = 0;
    };
    const std::vector<Bytes> tensors = many(300, 8192);
    Device device;
    {
        const Source source{device, From::file, tensors};
        const PackedModel expected = must(residency::packed::try_pack(device, source.catalog(), {{}, 1}));
        const Unsure packer;
        const PackedModel model = must(residency::packed::try_pack(device, source.catalog(), {}, &packer));
        check_same(model, expected, tensors);
        CHECK(model.why_host.find("not what it packed") != std::string::npos);
        CHECK(model.device_raw_bytes > 0);
        CHECK(model.device_raw_bytes < model.raw_bytes / 2);
        expect_no_reports(device);
    }
    CHECK(device.leaks().empty());
}

TEST_CASE("packed on the device: too little device memory, fewer batches under way, then the host") {
    const residency::SimulatedPacker packer;
    const std::vector<Bytes> tensors = many(400, 65'536);
    Device plain;
    const Source reference{plain, From::pageable, tensors};
    const PackedModel expected = must(residency::packed::try_pack(plain, reference.catalog(), {{}, 1}));
    for (const std::uint64_t mib : {48U, 24U, 14U, 4U}) {
        CAPTURE(mib);
        Device::Config config;
        config.memory_bytes = mib << 20U;
        Device device{config};
        {
            const Source source{device, From::pageable, tensors};
            const PackedModel model = must(residency::packed::try_pack(device, source.catalog(), {}, &packer));
            check_same(model, expected, tensors);
            CHECK(model.why_host.empty() == (mib >= 14));
            CHECK((mib >= 14) == (model.device_raw_bytes > 0));
            expect_no_reports(device);
        }
        CHECK(device.leaks().empty());
    }
}

TEST_CASE("packing is cancelled, on the device and on the host; a file that is cut is an error") {
    const residency::SimulatedPacker packer;
    const std::vector<Bytes> tensors = many(400, 8192);
    for (const bool on_device : {true, false}) {
        CAPTURE(on_device);
        Device device;
        {
            const Source source{device, From::file, tensors};
            std::uint64_t total = 0;
            for (const Bytes& bytes : tensors) { total += bytes.size(); }
            std::uint64_t last = 0;
            PackOptions options;
            options.threads = 1;
            options.progress = [&](const residency::packed::PackProgress& progress) {
                CHECK(progress.total_bytes == total);
                CHECK(progress.raw_bytes > last);
                last = progress.raw_bytes;
                return true;
            };
            const auto* const by = on_device ? &packer : nullptr;
            CHECK(must(residency::packed::try_pack(device, source.catalog(), options, by)).packed_bytes > 0);
            CHECK(last == total);
            options.progress = [&](const residency::packed::PackProgress& progress) {
                return progress.raw_bytes < total / 3;
            };
            const auto cancelled = residency::packed::try_pack(device, source.catalog(), options, by);
            REQUIRE(!cancelled);
            CHECK(cancelled.error().kind() == ErrorKind::cancelled);

            std::filesystem::resize_file(source.path(), std::filesystem::file_size(source.path()) / 2);
            const auto cut = residency::packed::try_pack(device, source.catalog(), {{}, 2}, by);
            REQUIRE(!cut);
            CHECK(cut.error().kind() == ErrorKind::mismatch);
            expect_no_reports(device);
        }
        CHECK(device.leaks().empty());
    }
}

TEST_CASE("packed from a file on the device, and streamed to the same bytes") {
    const residency::SimulatedPacker packer;
    const residency::SimulatedUnpacker unpacker;
    const std::vector<Bytes> tensors = all_kinds();
    Device device;
    const Source source{device, From::file, tensors};
    const PackedModel model = must(residency::packed::try_pack(device, source.catalog(), {}, &packer));
    const Stream stream = must(device.create_stream());
    residency::ScheduleBuilder builder{model.catalog};
    for (std::size_t i = 0; i < tensors.size(); ++i) { builder.step({*model.catalog.find(Source::name(i))}); }
    auto made = options(unpacker, 0, must(builder.try_build()));
    made.budget = residency::Budget::parse("0");
    {
        auto weights = must(Weights::try_create(device, model.catalog, std::move(made)));
        std::size_t wrong = 0;
        auto pass = must(weights.try_begin(stream));
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto lease = must(pass.try_acquire(weights.schedule()[static_cast<std::uint32_t>(i)]));
            const std::byte* const at = lease.data(weights.schedule()[static_cast<std::uint32_t>(i)].weights.front());
            Device::Kernel kernel;
            kernel.reads = {{at, tensors[i].size()}};
            kernel.body = [at, &bytes = tensors[i], &wrong] {
                wrong += std::equal(bytes.begin(), bytes.end(), at) ? 0 : 1;
            };
            must(device.launch(stream, std::move(kernel)));
        }
        must(pass.try_end());
        must(weights.try_drain());
        CHECK(wrong == 0);
    }
    expect_no_reports(device);
    must(device.destroy_stream(stream));
}

}  // namespace pack_test
