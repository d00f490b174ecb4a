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
#include "residency/packed/pack.hpp"
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
    const bool has_times = below(2) == 0;
    ScheduleBuilder builder{catalog};
    const std::uint32_t steps = 1 + below(14);
    for (std::uint32_t step = 0; step < steps; ++step) {
        std::vector<WeightId> ids;
        const std::uint32_t count = below(5) == 0 ? 2 + below(3) : below(20) == 0 ? 0 : 1;
        for (std::uint32_t i = 0; i < count; ++i) {
            ids.push_back(WeightId{below(3) != 0 ? (step + i) % weights : below(weights)});
        }
        const bool is_timed = ids.empty() || has_times;
        builder.step(ids, is_timed ? ScheduleBuilder::Compute{std::chrono::nanoseconds{below(20000)}} : std::nullopt);
        if (!ids.empty() && below(8) == 0) { builder.live_until(ids.front(), step + below(steps - step)); }
    }
    auto schedule = builder.try_build(below(5) == 0 ? Cycle::one_shot : Cycle::cyclic);
    if (!schedule) { failed("a schedule", schedule.error().message()); }
    return std::move(*schedule);
}

/// The sizes of storages. Packed weights have two bytes a value.
std::vector<std::uint64_t> make_sizes(Random& random, Source source) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const std::uint64_t unit = source == Source::large ? 300 : source == Source::packed ? 2 : 1;
    const std::size_t storages = 1 + below(source == Source::large ? 5 : 12);
    const std::uint64_t usual = 1 + below(9000);
    const bool are_equal = below(3) == 0;
    std::vector<std::uint64_t> sizes;
    for (std::size_t i = 0; i < storages; ++i) {
        const std::uint64_t bytes = are_equal ? usual : below(9) == 0 ? 0 : 1 + below(below(3) == 0 ? 20000 : 3000);
        sizes.push_back(bytes * unit);
    }
    return sizes;
}

/// Any bytes; `is_smooth`: such as codecs make smaller.
void fill(Random& random, std::span<std::byte> bytes, bool is_smooth) {
    std::uint64_t draw = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i % 8 == 0) { draw = random(); }
        bytes[i] = static_cast<std::byte>(draw >> (i % 8 * 8));
        if (is_smooth && i % 2 == 1) { bytes[i] = std::byte{0x3c} | (bytes[i] & std::byte{0x81}); }
    }
}

}  // namespace

Model::~Model() {
    std::error_code ignored;
    if (!file.empty()) { std::filesystem::remove(file, ignored); }
}

void Model::set_content(StorageId storage, std::span<const std::byte> bytes) {
    for (const WeightId weight : catalog.weights_of(storage)) {
        const std::span own = bytes.subspan(static_cast<std::size_t>(catalog.weight(weight).offset_bytes));
        std::vector<std::byte>& expected = content[index(weight)];
        if (!expected.empty()) { std::memcpy(expected.data(), own.data(), expected.size()); }
    }
}

Status Model::replace(StorageId storage, Random& random) {
    std::vector<std::byte> bytes(at_source[index(storage)].size());
    if (bytes.empty()) { return {}; }
    fill(random, bytes, false);
    const std::uint64_t offset = offsets[index(storage)];
    if (host != nullptr) {
        auto* const at = const_cast<std::byte*>(host->data()) + offset;
        if (auto written = device.host_write(at, bytes.size()); !written) { return written; }
        std::memcpy(at, bytes.data(), bytes.size());
    } else {
        std::fstream out{file, std::ios::binary | std::ios::in | std::ios::out};
        out.seekp(static_cast<std::streamoff>(offset));
        out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    set_content(storage, bytes);
    at_source[index(storage)] = std::move(bytes);
    return {};
}

std::unique_ptr<Model> make_model(Device& device, Random& random, Source kind) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    auto model = std::make_unique<Model>(device);
    const bool in_file = kind == Source::file;
    const std::vector<std::uint64_t> sizes = make_sizes(random, kind);
    std::uint64_t total = 0;
    for (const std::uint64_t bytes : sizes) {
        const std::uint64_t alignment = in_file ? 64 : below(2) != 0 || kind == Source::packed ? 256 : 16;
        total = (total + alignment - 1) / alignment * alignment;
        model->offsets.push_back(total);
        total += bytes;
    }
    ++total;
    std::vector<std::byte> all(static_cast<std::size_t>(total));
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::span own =
            std::span{all}.subspan(static_cast<std::size_t>(model->offsets[i]), static_cast<std::size_t>(sizes[i]));
        fill(random, own, kind == Source::packed && below(4) != 0);
        model->at_source.emplace_back(own.begin(), own.end());
    }
    std::shared_ptr<const SourceFile> source;
    if (in_file) {
        model->file = new_file();
        std::ofstream out{model->file, std::ios::binary};
        out.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(total));
        source = std::make_shared<const SourceFile>(SourceFile{model->file.string(), total});
    } else {
        const auto memory = device.allocate_host(total);
        if (!memory) { failed("pinned memory", memory.error().message()); }
        std::memcpy(*memory, all.data(), all.size());
        model->host =
            HostBytes::adopt(static_cast<std::byte*>(*memory), total, HostMemory::pinned,
                             [&device](std::byte* at) { static_cast<void>(device.deallocate_host(at).has_value()); });
    }
    CatalogBuilder builder;
    const DType type = kind == Source::packed ? dtype::bf16 : dtype::u8;
    const std::uint64_t value_bytes = kind == Source::packed ? 2 : 1;
    const auto add = [&](std::string name, std::size_t storage, std::uint64_t from) {
        builder.add_weight(std::move(name), type, {(sizes[storage] - from) / value_bytes},
                           StorageId{static_cast<std::uint32_t>(storage)}, from);
    };
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        StorageOptions options;
        options.placement = below(8) == 0               ? Placement::resident
                            : !in_file && below(9) == 0 ? Placement::host
                                                        : Placement::streamed;
        options.is_mutable = options.placement == Placement::resident && below(2) == 0;
        if (in_file) {
            options.source = FileSource{source, model->offsets[i]};
        } else {
            options.source = HostSource{model->host, model->offsets[i]};
        }
        static_cast<void>(builder.add_storage(sizes[i], options));
        add("w" + std::to_string(i), i, 0);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {  // tied weights
        if (below(5) != 0) { continue; }
        add("t" + std::to_string(i), i, sizes[i] == 0 ? 0 : below(sizes[i] / value_bytes) * value_bytes);
    }
    auto catalog = builder.try_build();
    if (!catalog) { failed("a catalog", catalog.error().message()); }
    model->catalog = std::move(*catalog);
    if (kind == Source::packed) {
        auto packed = packed::try_pack(device, model->catalog, {{}, 1});
        if (!packed) { failed("a model that is packed", packed.error().message()); }
        model->catalog = std::move(packed->catalog);
    }
    for (const Weight& weight : model->catalog.weights()) {
        model->content.emplace_back(static_cast<std::size_t>(weight.bytes));
    }
    for (std::uint32_t i = 0; i < sizes.size(); ++i) { model->set_content(StorageId{i}, model->at_source[i]); }
    for (Schedule& schedule : model->schedules) {
        if (below(6) != 0) { schedule = make_schedule(model->catalog, random); }
    }
    return model;
}

}  // namespace attack
