// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/model/container.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/file.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/schedule_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::vector<std::byte> save(const Schedule& schedule) {
    RESIDENCY_ASSERT(!schedule.empty(), "save a schedule that has steps");
    // HEAD: u32 cycle, u32 steps. WGTS: array of u64 offsets (steps + 1), array of u32 weight ids. TIME: array of i64
    // nanoseconds (steps; -1: unknown). NAME: array of u64 offsets (steps + 1), text. CTLG: arrays of u64, the catalog's outline.
    std::vector<std::uint64_t> weight_offsets{0}, name_offsets{0};
    std::vector<WeightId> ids;
    std::vector<std::int64_t> compute_ns;
    std::vector<char> characters;
    for (const Schedule::Step& step : schedule) {
        ids.insert(ids.end(), step.weights.begin(), step.weights.end());
        weight_offsets.push_back(ids.size());
        compute_ns.push_back(step.compute ? step.compute->count() : -1);
        characters.insert(characters.end(), step.name.begin(), step.name.end());
        name_offsets.push_back(characters.size());
    }
    ContainerWriter writer{ContainerKind::schedule, schedule_file_version, schedule.catalog_hash()};
    SectionWriter& head = writer.section(section_tag("HEAD"));
    head.u32(static_cast<std::uint32_t>(schedule.cycle()));
    head.u32(schedule.size());
    SectionWriter& weights = writer.section(section_tag("WGTS"));
    weights.array(weight_offsets);
    weights.array(ids);
    writer.section(section_tag("TIME")).array(compute_ns);
    SectionWriter& names = writer.section(section_tag("NAME"));
    names.array(name_offsets);
    names.array(characters);
    const CatalogOutline none, *outline = schedule.catalog_outline();
    SectionWriter& catalog = writer.section(section_tag("CTLG"));
    catalog.array((outline != nullptr ? *outline : none).names);
    catalog.array((outline != nullptr ? *outline : none).rest);
    return writer.finish();
}

RESIDENCY_INLINE Result<Schedule> try_load_schedule(std::span<const std::byte> bytes, const Catalog& catalog,
                                                    std::string source) {
    const auto reader = ContainerReader::try_open(bytes, std::move(source));
    if (!reader) { return reader.error(); }
    if (const Status fits = reader->expect(ContainerKind::schedule, schedule_file_version, reader->catalog_hash());
        !fits) {
        return fits.error();
    }
    if (reader->kind_version() != schedule_file_version) {
        return Error{ErrorKind::unsupported,
                     reader->source() + ": a schedule that an earlier version of the library saved, in version " +
                         std::to_string(reader->kind_version()) + "; save it again"};
    }
    SectionReader outlines = reader->section(section_tag("CTLG"));
    CatalogOutline outline;
    outline.names = outlines.array<std::uint64_t>(UINT32_MAX);
    outline.rest = outlines.array<std::uint64_t>(UINT32_MAX);
    outlines.require(outline.names.size() == outline.rest.size(), std::to_string(outline.rest.size()) + " hashes",
                     "one for each of the " + std::to_string(outline.names.size()) + " weights");
    if (const Status read = outlines.finish(); !read) { return read.error(); }
    if (reader->catalog_hash() != catalog.hash()) {
        return Error{ErrorKind::mismatch, reader->source() + ": the schedule was saved for another catalog: " +
                                              catalog.difference(&outline)};
    }
    const auto own = catalog.outline();
    if (outline != (own ? *own : CatalogOutline{})) {
        return Error{ErrorKind::malformed,
                     reader->source() + ": its weights are not those of the catalog that it names",
                     FileLocation{reader->source(), 32, "the hash of another catalog", "that of its weights"}};
    }
    SectionReader head = reader->section(section_tag("HEAD"));
    const std::uint32_t cycle = head.u32();
    head.require(cycle <= 1, "cycle " + std::to_string(cycle), "0 (cyclic) or 1 (one-shot)");
    const std::uint32_t steps = head.u32();
    head.require(steps != 0 && steps <= Schedule::max_steps, std::to_string(steps) + " steps",
                 "1 to " + std::to_string(Schedule::max_steps));
    if (const Status read = head.finish(); !read) { return read.error(); }

    // Offsets into `count` elements that were read just before: steps + 1 of them, from 0 to `count`, ascending.
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
    const auto weight_offsets = weights.array<std::uint64_t>(std::uint64_t{Schedule::max_steps} + 1);
    const auto ids = weights.array<WeightId>(UINT32_MAX);
    check_offsets(weights, weight_offsets, ids.size());
    const auto weights_of = [&](std::uint32_t step) {
        const auto first = static_cast<std::size_t>(weight_offsets[step]);
        return std::span<const WeightId>{ids.data() + first,
                                         static_cast<std::size_t>(weight_offsets[step + 1]) - first};
    };
    std::vector<std::uint32_t> seen_in(weights.ok() ? catalog.weights().size() : 0, UINT32_MAX);
    for (std::uint32_t i = 0; i < steps && weights.ok(); ++i) {
        for (const WeightId id : weights_of(i)) {
            if (catalog.contains(id) && std::exchange(seen_in[index(id)], i) != i) { continue; }
            weights.require(false, "weight " + std::to_string(index(id)) + " in step " + std::to_string(i),
                            "ids below " + std::to_string(catalog.weights().size()) + ", each once a step");
            break;
        }
    }
    if (const Status read = weights.finish(); !read) { return read.error(); }

    SectionReader time = reader->section(section_tag("TIME"));
    const auto compute_ns = time.array<std::int64_t>(Schedule::max_steps);
    time.require(compute_ns.size() == steps, std::to_string(compute_ns.size()) + " durations", std::to_string(steps));
    time.require(std::all_of(compute_ns.begin(), compute_ns.end(), [](std::int64_t ns) { return ns >= -1; }),
                 "a negative duration", "nanoseconds, or -1 for unknown");
    if (const Status read = time.finish(); !read) { return read.error(); }

    SectionReader names = reader->section(section_tag("NAME"));
    const auto name_offsets = names.array<std::uint64_t>(std::uint64_t{Schedule::max_steps} + 1);
    const auto characters = names.array<char>(UINT32_MAX);
    check_offsets(names, name_offsets, characters.size());
    if (const Status read = names.finish(); !read) { return read.error(); }

    ScheduleBuilder builder{catalog};
    for (std::uint32_t i = 0; i < steps; ++i) {
        const auto first = static_cast<std::size_t>(name_offsets[i]);
        const std::string_view name{characters.data() + first, static_cast<std::size_t>(name_offsets[i + 1]) - first};
        ScheduleBuilder::Compute compute;
        if (compute_ns[i] >= 0) { compute = std::chrono::nanoseconds{compute_ns[i]}; }
        builder.step(weights_of(i), compute, name);
    }
    auto built = builder.try_build(static_cast<Cycle>(cycle));
    if (!built) {
        return Error{
            ErrorKind::malformed, reader->source() + ": " + built.error().message(),
            FileLocation{reader->source(), head.offset(), "steps that make no schedule", "those that were saved"}};
    }
    return built;
}

RESIDENCY_INLINE Status try_save_file(const Schedule& schedule, const std::string& path) {
    return detail::write_file(path, save(schedule));
}

RESIDENCY_INLINE Result<Schedule> try_load_schedule_file(const std::string& path, const Catalog& catalog) {
    constexpr std::uint64_t longest = std::uint64_t{1} << 34;
    const auto bytes = detail::read_file(path, longest);
    if (!bytes) { return bytes.error(); }
    return try_load_schedule(*bytes, catalog, detail::quoted(path));
}

}}  // namespace residency::RESIDENCY_ABI
