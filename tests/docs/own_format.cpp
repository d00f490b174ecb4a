// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/integrate.md quotes of formats that the library does not know.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "../support/files.hpp"
#include "residency/host/loading.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace docs_own_format {

using namespace residency;

TEST_CASE("docs/integrate.md: the file format is yours") {
    const support::TemporaryFolder folder;
    const std::uint64_t words = 8, width = 4, words_at = 16, scales_at = words_at + words * width * 2;
    std::string content(scales_at + 2 * width * 4, '\0');
    for (std::size_t at = 0; at < content.size(); ++at) { content[at] = static_cast<char>(at * 7); }
    const std::string path = folder.write("model.ours", content);
    SimulatedDevice gpu;

    CatalogBuilder builder;
    builder.add("embedding", dtype::bf16, {words, width}, path, words_at);
    builder.tie("head", "embedding");  // another name for the same bytes

    // Small weights that are neighbours in the file: one storage, so that one copy brings all of them.
    const auto file =
        std::make_shared<const SourceFile>(SourceFile{.path = path, .bytes = std::filesystem::file_size(path)});
    const StorageId scales = builder.add_storage(2 * width * 4, {.source = FileSource{file, scales_at}});
    builder.add_weight("norm1.scale", dtype::f32, {width}, scales);
    builder.add_weight("norm2.scale", dtype::f32, {width}, scales, width * 4);  // at this offset of the storage

    const Result<Catalog> catalog = builder.try_build();  // the first error of the calls above, if there was one
    if (!catalog) { FAIL(catalog.error().message()); }

    const Catalog loaded = host::load(gpu, *catalog).catalog;
    const auto byte_at = [&](const char* name) {
        const WeightId id = unwrap(loaded.try_find(name));
        const std::byte* const storage = loaded.host_bytes(loaded.storage_of(id));
        return static_cast<char>(storage[loaded.weight(id).offset_bytes]);
    };
    CHECK(byte_at("embedding") == content[words_at]);
    CHECK(byte_at("head") == content[words_at]);
    CHECK(byte_at("norm1.scale") == content[scales_at]);
    CHECK(byte_at("norm2.scale") == content[scales_at + width * 4]);
    CHECK(loaded.storages().size() == 2);
}

TEST_CASE("docs/integrate.md: one set of bytes, read on the host and streamed") {
    const support::TemporaryFolder folder;
    const std::uint64_t words = 512, width = 8, at = 100;
    std::string content(at + words * width * 2, '\0');
    for (std::size_t i = 0; i < content.size(); ++i) { content[i] = static_cast<char>(i * 7); }
    const std::string path = folder.write("model.ours", content);
    SimulatedDevice gpu;

    CatalogBuilder builder;
    const WeightId embedding = builder.add("embedding", dtype::bf16, {words, width}, path, at);
    const WeightId head = builder.add("head", dtype::bf16, {words, width}, path, at);  // not tied: a storage of its own
    const Catalog placed = builder.build().with_placement({embedding}, Placement::host);
    const Catalog catalog = host::load(gpu, placed).catalog;  // the bytes are read once, and lie in host memory once

    CHECK(catalog.host_bytes(catalog.storage_of(embedding)) == catalog.host_bytes(catalog.storage_of(head)));
    Planned<SimulatedDevice> weights{
        gpu,
        catalog,
        {.budget = Budget::bytes(0), .schedule = ScheduleBuilder{catalog}.step({embedding, head}).build()}};
    const auto stream = unwrap(gpu.create_stream());
    {
        auto pass = weights.begin(stream);
        const auto lease = pass.acquire({embedding, head});
        CHECK(lease.data(embedding) == catalog.host_bytes(catalog.storage_of(embedding)));
        CHECK(lease.data(head) != lease.data(embedding));
    }
    weights.drain();
    CHECK(weights.statistics().total.fetched_bytes == words * width * 2);
    unwrap(gpu.destroy_stream(stream));
}

}  // namespace docs_own_format
