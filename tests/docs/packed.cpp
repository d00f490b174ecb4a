// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/packed.md quotes.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/codec/tiers.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/packed.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/simulation/simulated_unpacker.hpp"
#include "tests/docs/model.hpp"
#include "tests/support/files.hpp"

namespace docs_packed {

using namespace residency;

TEST_CASE("docs/packed.md: pack and unpack on the host") {
    const std::vector<std::byte> raw = docs::trained_weights(std::size_t{2} << 20, 1);
    std::vector<std::byte> packed(raw.size()), again(raw.size());

    const codec::Bf16Tiers tiers;
    const codec::Extents extents{.rows = 1, .columns = raw.size() / 2};
    const std::size_t bytes = tiers.pack(extents, raw, packed);  // 0: it does not pay, the weight stays raw
    if (bytes > 0) {
        unwrap(tiers.unpack(extents, std::span{packed}.first(bytes), again));  // or an error: never other bytes
    }

    CHECK(again == raw);
    CHECK(bytes > 0);
    CHECK(bytes < raw.size() * 7 / 10);
}

TEST_CASE("docs/packed.md: stream packed weights") {
    SimulatedDevice device;
    const SimulatedUnpacker unpacker;
    const std::vector<std::byte> bytes = docs::trained_weights(std::size_t{4} << 20, 2);
    CatalogBuilder builder;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) { builder.add(name, dtype::bf16, {1024, 2048}, bytes); }
    const Catalog raw = builder.build();
    const auto stream = unwrap(device.create_stream());
    std::size_t read = 0;

    // Once: the packed bytes lie in pinned memory, and the raw ones can go.
    const packed::PackedModel model = packed::pack(device, raw);

    Packed<SimulatedDevice>::Options options;
    options.budget = Budget::parse("75%");  // of the raw bytes
    options.policies.unpacker = &unpacker;  // on a GPU: a CudaUnpacker
    Packed<SimulatedDevice> weights{device, model.catalog, std::move(options)};
    auto pass = weights.begin(stream);
    for (const auto& step : weights.schedule()) {
        const auto lease = pass.acquire(step);
        for (const WeightId weight : step.weights) { read += lease.bytes(weight).size(); }  // your kernels: raw bf16
    }
    pass.end();

    CHECK(read == 6 * bytes.size());
    CHECK(model.packed_bytes < model.raw_bytes * 7 / 10);
    weights.drain();
    CHECK(device.reports().empty());
    unwrap(device.destroy_stream(stream));
}

TEST_CASE("docs/packed.md: pack while loading") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path("weights");
    const std::vector<std::byte> bytes = docs::trained_weights(std::size_t{1} << 20, 2);
    std::ofstream{path, std::ios::binary}.write(reinterpret_cast<const char*>(bytes.data()),
                                                static_cast<std::streamsize>(bytes.size()));
    CatalogBuilder builder;
    for (const std::uint64_t i : {0U, 1U}) {
        builder.add("w" + std::to_string(i), dtype::bf16, {512, 512}, path, i * (bytes.size() / 2));
    }
    const Catalog in_file = builder.build();
    SimulatedDevice device;

    // in_file: format::read_model(path).catalog()
    const SimulatedPacker packer;  // on a GPU: a CudaPacker
    const packed::PackedModel model = packed::pack(device, in_file, {}, &packer);

    CHECK(model.raw_bytes == bytes.size());
    CHECK(model.packed_bytes < model.raw_bytes * 7 / 10);
    CHECK(model.device_raw_bytes == bytes.size());
    CHECK(model.why_host.empty());
    CHECK(device.reports().empty());
}

}  // namespace docs_packed
