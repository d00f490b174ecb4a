// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A model whose host bytes several processes share.
#include "residency/host/share.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../support/files.hpp"
#include "../support/processes.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace share_test {

using namespace residency;
using host::SharedHostBytes;
using support::Line;
using support::MemoryFolder;
using support::Process;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// A model in a file on disk: layers, a small weight that lies unevenly, a tied one and one without bytes.
struct Model {
    explicit Model(std::uint32_t seed = 1) : bytes(9 * mib + 1001, '\0') {
        std::mt19937_64 random{seed};
        for (char& letter : bytes) { letter = static_cast<char>(random()); }
        path = folder.write("weights", bytes);
        for (std::uint32_t i = 0; i < 3; ++i) {
            add("layers." + std::to_string(i), {3 * mib}, std::uint64_t{1000} + i * 3 * mib);
        }
        add("small", {777}, 3);
        add("none", {0}, 0);
        builder.tie("small.again", "small");
        catalog = builder.build();
    }
    void add(const std::string& name, Shape shape, std::uint64_t offset) {
        builder.add(name, dtype::u8, std::move(shape), path, offset);
        offsets.push_back(offset);
    }
    /// Whether every weight of a catalog has its bytes.
    [[nodiscard]] bool is_right(const Catalog& now) const {
        bool right = now.hash() == catalog.hash();
        for (std::uint32_t i = 0; i < offsets.size(); ++i) {
            const auto size = static_cast<std::size_t>(now.storage(StorageId{i}).bytes);
            right = right && std::memcmp(now.host_bytes(StorageId{i}), bytes.data() + offsets[i], size) == 0;
        }
        return right;
    }

    support::TemporaryFolder folder;
    std::string bytes, path;
    std::vector<std::uint64_t> offsets;  // in the file, by storage
    CatalogBuilder builder;
    Catalog catalog;
};

/// Passes at half of the budget, whose kernels compare what they read with the file.
bool passes_read_it(SimulatedDevice& gpu, const Model& model, const Catalog& catalog) {
    ScheduleBuilder steps{catalog};
    for (std::uint32_t i = 0; i < 4; ++i) { steps.step({WeightId{i}}); }
    std::uint64_t right = 0;
    const auto stream = unwrap(gpu.create_stream());
    {
        Planned<SimulatedDevice> weights{gpu, catalog, {.budget = Budget::parse("60%"), .schedule = steps.build()}};
        if (!weights.budget().is_streaming()) { return false; }
        for (int token = 0; token < 2; ++token) {
            auto pass = weights.begin(stream);
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.acquire(step);
                const WeightId weight = step.weights.front();
                const void* const at = lease.data(weight);
                const std::uint64_t size = catalog.weight(weight).bytes;
                const char* const expected = model.bytes.data() + model.offsets[index(weight)];
                unwrap(gpu.launch(
                    stream, {.duration = std::chrono::microseconds{20},
                             .reads = {{at, size}},
                             .writes = {},
                             .body = [&right, at, size, expected] { right += std::memcmp(at, expected, size) == 0; }}));
            }
        }
        weights.drain();
    }
    unwrap(gpu.destroy_stream(stream));
    return right == 8 && gpu.report_count() == 0;
}

}  // namespace

TEST_SUITE_BEGIN("shared host bytes" * doctest::skip(support::lacks_shared_memory()));

TEST_CASE("share: the first process reads the weights, the next ones read no file, and passes run from them") {
    const MemoryFolder memory;
    const Model model;
    const host::SharedOptions options{.folder = memory.folder()};
    const auto run = [&](bool is_maker) {
        return Process{[&, is_maker](Line) {
            SimulatedDevice gpu;
            const auto shared = host::try_share(gpu, model.catalog, "model", options);
            return shared && shared->is_maker == is_maker && shared->tier == host::Tier::pinned &&
                   model.is_right(shared->catalog) && passes_read_it(gpu, model, shared->catalog);
        }};
    };
    CHECK(run(true).succeeded());
    std::filesystem::remove(model.path);  // no process reads it again
    auto one = run(false), two = run(false);
    CHECK(one.succeeded());
    CHECK(two.succeeded());

    SimulatedDevice gpu;
    {
        const auto shared = host::share(gpu, model.catalog, "model", {.folder = memory.folder(), .verify = true});
        CHECK(shared.reason.empty());
        CHECK(shared.memory_node == detail::memory_node_at(shared.catalog.host_bytes(StorageId{0})));
        CHECK(shared.state.users == std::vector<std::int64_t>{::getpid()});
        CHECK(std::get<HostSource>(shared.catalog.storage(StorageId{0}).source).host->kind() == HostMemory::pinned);
        CHECK(SharedHostBytes::remove("model", options));
        CHECK(model.is_right(shared.catalog));
        CHECK(passes_read_it(gpu, model, shared.catalog));
    }
    CHECK(gpu.statistics().of(simulation::CallKind::unpin) == 1);
}

TEST_CASE("share: bytes of the caller, packed bytes in memory and in a file, one after another as they are raw") {
    const MemoryFolder memory;
    const support::TemporaryFolder folder;
    const std::vector<std::byte> raw(8192, std::byte{5});
    std::vector<std::byte> packed, all, scratch;
    std::vector<PackedPart> parts;
    for (int i = 0; i < 2; ++i) {
        auto part = codec::try_pack_part(PackedForm::bf16_tiers, {}, raw, packed, scratch);
        REQUIRE(part);
        REQUIRE(part->packed_bytes < raw.size());
        part->offset_bytes = all.size();
        parts.push_back(*part);
        all.insert(all.end(), packed.begin(), packed.end());
    }
    const auto held_parts = std::make_shared<const std::vector<PackedPart>>(parts);
    const std::string path = folder.write("packed", {reinterpret_cast<const char*>(all.data()), all.size()});
    const auto file = std::make_shared<const SourceFile>(SourceFile{.path = path, .bytes = all.size()});
    CatalogBuilder builder;
    builder.add("own", dtype::u8, {3}, HostSource{HostBytes::own({std::byte{1}, std::byte{2}, std::byte{3}}), 0});
    builder.add("in file", dtype::bf16, {8192}, PackedSource{file, held_parts});
    builder.add("in memory", dtype::bf16, {8192}, PackedHostSource{HostBytes::own(all), 0, all.size(), held_parts});
    const Catalog catalog = builder.build();
    SimulatedDevice gpu;
    for (const bool is_maker : {true, false}) {
        const auto shared = host::share(gpu, catalog, "packed", {.folder = memory.folder()});
        CHECK(shared.is_maker == is_maker);
        CHECK(std::memcmp(shared.catalog.host_bytes(StorageId{0}), "\1\2\3", 3) == 0);
        for (const std::uint32_t i : {1U, 2U}) {
            CHECK(std::memcmp(shared.catalog.host_bytes(StorageId{i}), raw.data(), raw.size()) == 0);
            CHECK(std::memcmp(shared.catalog.host_bytes(StorageId{i}) + raw.size(), raw.data(), raw.size()) == 0);
        }
    }
}

TEST_CASE("share: weights of a file that was changed, and those of another model, are refused") {
    const MemoryFolder memory;
    const Model model, other{2};
    SimulatedDevice gpu;
    const host::SharedOptions options{.folder = memory.folder()};
    CHECK(host::share(gpu, model.catalog, "model", options).is_maker);
    const auto refused = host::try_share(gpu, other.catalog, "model", options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind() == ErrorKind::mismatch);
    CHECK(refused.error().message().find("from other files") != std::string::npos);
    CatalogBuilder builder;
    builder.add("layers.0", dtype::u8, {3 * mib}, model.path, 0);
    CHECK(host::try_share(gpu, builder.build(), "model", options).error().message().find("another model") !=
          std::string::npos);
}

TEST_CASE("share: what cannot be read, and what has no source, leaves nothing behind") {
    const MemoryFolder memory;
    const Model model;
    SimulatedDevice gpu;
    const host::SharedOptions options{.folder = memory.folder()};
    std::filesystem::remove(model.path);
    const auto gone = host::try_share(gpu, model.catalog, "model", options);
    REQUIRE_FALSE(gone);
    CHECK(gone.error().kind() == ErrorKind::io);
    CatalogBuilder builder;
    builder.add("empty", dtype::u8, {5}, StorageSource{});
    const auto nothing = host::try_share(gpu, builder.build(), "model", options);
    REQUIRE_FALSE(nothing);
    CHECK(nothing.error().kind() == ErrorKind::unsupported);
    CHECK(nothing.error().message().find("\"empty\" has no source") != std::string::npos);
    CHECK(std::filesystem::is_empty(memory.folder()));
}

TEST_CASE("share: memory that cannot be pinned is pageable, or an error where pinned was asked for") {
    const MemoryFolder memory;
    const Model model;
    SimulatedDevice gpu;
    host::SharedOptions options{.folder = memory.folder()};
    gpu.fail(simulation::CallKind::pin, 1, ErrorKind::out_of_memory);
    const auto shared = host::share(gpu, model.catalog, "model", options);
    CHECK(shared.tier == host::Tier::pageable);
    CHECK(shared.reason.find("cannot be pinned") != std::string::npos);
    CHECK(model.is_right(shared.catalog));
    options.tier = host::Tier::pageable;
    CHECK(host::share(gpu, model.catalog, "model", options).reason.empty());
    options.tier = host::Tier::pinned;
    gpu.fail(simulation::CallKind::pin, 1, ErrorKind::out_of_memory);
    CHECK(host::try_share(gpu, model.catalog, "model", options).error().kind() == ErrorKind::out_of_memory);
    CHECK(host::share(gpu, model.catalog, "model", options).tier == host::Tier::pinned);
    options.tier = host::Tier::file;
    CHECK(host::try_share(gpu, model.catalog, "model", options).error().kind() == ErrorKind::invalid_argument);
}

TEST_SUITE_END();

}  // namespace share_test
