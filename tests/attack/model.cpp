// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/attack/model.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/attack/failed.hpp"

namespace attack {
namespace {

using namespace residency;

std::filesystem::path new_file() {
    static std::atomic<int> files = 0;
    return std::filesystem::temp_directory_path() /
           ("residency_attack_" + std::to_string(::getpid()) + "_" + std::to_string(files++));
}

Schedule make_schedule(const Catalog& catalog, Random& random) {
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    const auto weights = static_cast<std::uint32_t>(catalog.weights().size());
    ScheduleBuilder builder{catalog};
    const std::uint32_t steps = 1 + below(14);
    for (std::uint32_t step = 0; step < steps; ++step) {
        std::vector<WeightId> ids;
        const std::uint32_t count = below(5) == 0 ? 2 + below(3) : below(20) == 0 ? 0 : 1;
        for (std::uint32_t i = 0; i < count; ++i) {
            ids.push_back(WeightId{below(3) != 0 ? (step + i) % weights : below(weights)});
        }
        builder.step(ids, ids.empty() ? ScheduleBuilder::Compute{std::chrono::microseconds{1}} : std::nullopt);
    }
    auto schedule = builder.try_build(below(5) == 0 ? Cycle::one_shot : Cycle::cyclic);
    if (!schedule) { failed("a schedule", schedule.error().message()); }
    return std::move(*schedule);
}

}  // namespace

Model::~Model() {
    std::error_code ignored;
    if (!file.empty()) { std::filesystem::remove(file, ignored); }
}

std::unique_ptr<Model> make_model(Device& device, Random& random, bool in_file) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    auto model = std::make_unique<Model>();
    const std::size_t storages = 1 + below(12);
    const std::uint64_t usual = 1 + below(9000);
    const bool are_equal = below(3) == 0;
    std::vector<std::uint64_t> sizes, offsets;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < storages; ++i) {
        const std::uint64_t bytes = are_equal ? usual : below(9) == 0 ? 0 : 1 + below(below(3) == 0 ? 20000 : 3000);
        const std::uint64_t alignment = in_file ? 64 : below(2) != 0 ? 256 : 16;
        total = (total + alignment - 1) / alignment * alignment;
        offsets.push_back(total);
        sizes.push_back(bytes);
        total += bytes;
    }
    ++total;
    std::vector<std::byte> all(total);
    for (std::byte& byte : all) { byte = static_cast<std::byte>(random() >> 40U); }

    std::shared_ptr<const SourceFile> source;
    std::shared_ptr<const HostBytes> host;
    if (in_file) {
        model->file = new_file();
        std::ofstream out{model->file, std::ios::binary};
        out.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(total));
        source = std::make_shared<const SourceFile>(SourceFile{model->file.string(), total});
    } else {
        const auto memory = device.allocate_host(total);
        if (!memory) { failed("pinned memory", memory.error().message()); }
        std::memcpy(*memory, all.data(), total);
        host = HostBytes::adopt(static_cast<std::byte*>(*memory), total, HostMemory::pinned, [&device](std::byte* at) {
            static_cast<void>(device.deallocate_host(at).has_value());
        });
    }
    CatalogBuilder builder;
    std::vector<std::pair<std::size_t, std::uint64_t>>
        places;  // of each weight: its storage, and where it begins there
    for (std::size_t i = 0; i < storages; ++i) {
        StorageOptions options;
        options.placement = below(8) == 0               ? Placement::resident
                            : !in_file && below(9) == 0 ? Placement::host
                                                        : Placement::streamed;
        if (in_file) {
            options.source = FileSource{source, offsets[i]};
        } else {
            options.source = HostSource{host, offsets[i]};
        }
        builder.add_weight("w" + std::to_string(i), dtype::u8, {sizes[i]}, builder.add_storage(sizes[i], options));
        places.emplace_back(i, 0);
    }
    for (std::size_t i = 0; i < storages; ++i) {  // tied weights
        if (below(5) != 0) { continue; }
        const std::uint64_t from = sizes[i] == 0 ? 0 : below(sizes[i]);
        builder.add_weight("t" + std::to_string(i), dtype::u8, {sizes[i] - from},
                           StorageId{static_cast<std::uint32_t>(i)}, from);
        places.emplace_back(i, from);
    }
    auto catalog = builder.try_build();
    if (!catalog) { failed("a catalog", catalog.error().message()); }
    model->catalog = std::move(*catalog);
    for (const auto& [storage, from] : places) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offsets[storage]);
        model->content.emplace_back(begin + static_cast<std::ptrdiff_t>(from),
                                    begin + static_cast<std::ptrdiff_t>(sizes[storage]));
    }
    for (Schedule& schedule : model->schedules) {
        if (below(6) != 0) { schedule = make_schedule(model->catalog, random); }
    }
    return model;
}

}  // namespace attack
