// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/schedule.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE Result<Schedule> Schedule::try_with_compute(std::span<const std::chrono::nanoseconds> compute) const {
    if (compute.size() != size()) {
        return Error{ErrorKind::invalid_argument, std::to_string(compute.size()) + " durations for a schedule of " +
                                                      std::to_string(size()) + " steps"};
    }
    if (!data_) { return *this; }
    Content content = content_of(*data_);
    for (std::size_t i = 0; i < compute.size(); ++i) {
        if (compute[i].count() < 0) {
            return Error{ErrorKind::invalid_argument, "step " + std::to_string(i) + ": a negative duration"};
        }
        content.compute_ns[i] = compute[i].count();
    }
    return Schedule{data_->catalog_hash, data_->storage_count, data_->storage_offsets, data_->storages,
                    std::move(content)};
}

RESIDENCY_INLINE Status Schedule::try_save_file(const std::string& path) const {
    return detail::write_file(path, save());
}

RESIDENCY_INLINE Schedule::Schedule(std::uint64_t catalog_hash, std::uint32_t storage_count,
                                    std::vector<std::uint64_t> storage_offsets, std::vector<StorageId> storages,
                                    Content content) {
    auto data = std::make_shared<Data>();
    static_cast<Content&>(*data) = std::move(content);
    data->catalog_hash = catalog_hash;
    data->storage_count = storage_count;
    data->storage_offsets = std::move(storage_offsets);
    data->storages = std::move(storages);
    data->steps.resize(data->compute_ns.size());
    for (std::size_t i = 0; i < data->steps.size(); ++i) {
        Step& step = data->steps[i];
        step.weights = slice(data->weights, data->weight_offsets, i);
        step.storages = slice(data->storages, data->storage_offsets, i);
        if (data->compute_ns[i] >= 0) { step.compute = std::chrono::nanoseconds{data->compute_ns[i]}; }
        const std::span<const char> name = slice(data->names, data->name_offsets, i);
        step.name = {name.data(), name.size()};
        step.position = static_cast<std::uint32_t>(i);
    }
    data_ = std::move(data);
}

RESIDENCY_INLINE Schedule Schedule::make(const Catalog& catalog, Content content) {
    std::vector<std::uint64_t> offsets{0};
    offsets.reserve(content.weight_offsets.size());
    std::vector<StorageId> storages;
    storages.reserve(content.weights.size());
    std::vector<std::uint32_t> seen_in(catalog.storages().size(), UINT32_MAX);
    for (std::size_t i = 0; i + 1 < content.weight_offsets.size(); ++i) {
        for (const WeightId id : slice(content.weights, content.weight_offsets, i)) {
            const StorageId storage = catalog.storage_of(id);
            if (std::exchange(seen_in[index(storage)], static_cast<std::uint32_t>(i)) != i) {
                storages.push_back(storage);
            }
        }
        offsets.push_back(storages.size());
    }
    return {catalog.hash(), static_cast<std::uint32_t>(catalog.storages().size()), std::move(offsets),
            std::move(storages), std::move(content)};
}

RESIDENCY_INLINE std::vector<std::byte> Schedule::save() const {
    RESIDENCY_ASSERT(!empty(), "save a schedule that has steps");
    // HEAD: u32 cycle, u32 steps. WGTS: array of u64 offsets (steps + 1), array of u32 weight ids. TIME: array of i64
    // nanoseconds (steps; -1: unknown). NAME: array of u64 offsets (steps + 1), text.
    ContainerWriter writer{ContainerKind::schedule, version, catalog_hash()};
    SectionWriter& head = writer.section(section_tag("HEAD"));
    head.u32(static_cast<std::uint32_t>(data_->cycle));
    head.u32(size());
    SectionWriter& weights = writer.section(section_tag("WGTS"));
    weights.array(data_->weight_offsets);
    weights.array(data_->weights);
    writer.section(section_tag("TIME")).array(data_->compute_ns);
    SectionWriter& names = writer.section(section_tag("NAME"));
    names.array(data_->name_offsets);
    names.array(data_->names);
    return writer.finish();
}

RESIDENCY_INLINE Result<Schedule> Schedule::try_load(std::span<const std::byte> bytes, const Catalog& catalog,
                                                     std::string source) {
    const auto reader = ContainerReader::try_open(bytes, std::move(source));
    if (!reader) { return reader.error(); }
    if (const Status fits = reader->expect(ContainerKind::schedule, version, catalog.hash()); !fits) {
        return fits.error();
    }
    Content content;

    SectionReader head = reader->section(section_tag("HEAD"));
    const std::uint32_t cycle = head.u32();
    head.require(cycle <= 1, "cycle " + std::to_string(cycle), "0 (cyclic) or 1 (one-shot)");
    const std::uint32_t steps = head.u32();
    head.require(steps != 0 && steps <= max_steps, std::to_string(steps) + " steps",
                 "1 to " + std::to_string(max_steps));
    if (const Status read = head.finish(); !read) { return read.error(); }
    content.cycle = static_cast<Cycle>(cycle);

    /// Offsets into `count` elements, read just before: as many as steps + 1, from 0 to `count`, none smaller than the
    /// last.
    const auto check_offsets = [&](SectionReader& section, const std::vector<std::uint64_t>& offsets,
                                   std::uint64_t count) {
        if (section.require(offsets.size() == std::size_t{steps} + 1, std::to_string(offsets.size()) + " offsets",
                            "one more than the " + std::to_string(steps) + " steps")) {
            section.require(
                offsets.front() == 0 && offsets.back() == count && std::is_sorted(offsets.begin(), offsets.end()),
                "offsets out of order", "0 to " + std::to_string(count) + " in order");
        }
    };
    SectionReader weights = reader->section(section_tag("WGTS"));
    content.weight_offsets = weights.array<std::uint64_t>(std::uint64_t{max_steps} + 1);
    content.weights = weights.array<WeightId>(UINT32_MAX);
    check_offsets(weights, content.weight_offsets, content.weights.size());
    std::vector<std::uint32_t> seen_in(weights.ok() ? catalog.weights().size() : 0, UINT32_MAX);
    for (std::uint32_t i = 0; i < steps && weights.ok(); ++i) {
        for (const WeightId id : slice(content.weights, content.weight_offsets, i)) {
            if (catalog.contains(id) && std::exchange(seen_in[index(id)], i) != i) { continue; }
            weights.require(false, "weight " + std::to_string(index(id)) + " in step " + std::to_string(i),
                            "ids below " + std::to_string(catalog.weights().size()) + ", each once a step");
            break;
        }
    }
    if (const Status read = weights.finish(); !read) { return read.error(); }

    SectionReader time = reader->section(section_tag("TIME"));
    content.compute_ns = time.array<std::int64_t>(max_steps);
    time.require(content.compute_ns.size() == steps, std::to_string(content.compute_ns.size()) + " durations",
                 std::to_string(steps));
    time.require(
        std::all_of(content.compute_ns.begin(), content.compute_ns.end(), [](std::int64_t ns) { return ns >= -1; }),
        "a negative duration", "nanoseconds, or -1 for unknown");
    if (const Status read = time.finish(); !read) { return read.error(); }

    SectionReader names = reader->section(section_tag("NAME"));
    content.name_offsets = names.array<std::uint64_t>(std::uint64_t{max_steps} + 1);
    content.names = names.array<char>(UINT32_MAX);
    check_offsets(names, content.name_offsets, content.names.size());
    if (const Status read = names.finish(); !read) { return read.error(); }
    return make(catalog, std::move(content));
}

RESIDENCY_INLINE Result<Schedule> Schedule::try_load_file(const std::string& path, const Catalog& catalog) {
    constexpr std::uint64_t longest = std::uint64_t{1} << 34;
    const auto bytes = detail::read_file(path, longest);
    if (!bytes) { return bytes.error(); }
    return try_load(*bytes, catalog, detail::quoted(path));
}

}}  // namespace residency::RESIDENCY_ABI
