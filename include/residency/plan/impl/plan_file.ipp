// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "residency/model/container.hpp"
#include "residency/model/container_reader.hpp"
#include "residency/model/container_writer.hpp"
#include "residency/model/number.hpp"
#include "residency/model/stable_hash.hpp"
#include "residency/plan/check.hpp"
#include "residency/plan/plan_file.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace plan {

RESIDENCY_INLINE std::vector<std::byte> save(const Plan& plan) {
    const PlanData& d = plan.data();
    ContainerWriter writer{ContainerKind::plan, 1, d.catalog_hash};
    SectionWriter& head = writer.section(section_tag("HEAD"));
    head.u8(d.cyclic ? 1 : 0);
    head.u8(d.captured ? 1 : 0);
    for (const std::uint64_t x : {d.budget_bytes, d.chunk_bytes, d.image_bytes, d.held_bytes}) { head.u64(x); }
    head.u32(d.steps);
    head.u32(d.cut);
    for (const double x :
         {d.predicted_seconds, d.compute_seconds, d.bound_seconds, d.usual_bound_seconds, d.latency_floor_seconds}) {
        head.f64(x);
    }
    head.u64(d.floor_bytes);
    head.u64(d.bytes_per_pass);
    SectionWriter& storages = writer.section(section_tag("STOR"));
    storages.array(d.storage_offsets);
    storages.array(d.storage_bytes);
    const auto put_copies = [&](SectionWriter& to, const std::vector<Copy>& copies) {
        std::vector<std::uint64_t> begins, ends;
        std::vector<std::uint32_t> needed;
        for (const Copy& copy : copies) {
            begins.push_back(copy.image_begin);
            ends.push_back(copy.image_end);
            needed.push_back(copy.needed_by);
        }
        to.array(begins);
        to.array(ends);
        to.array(needed);
    };
    put_copies(writer.section(section_tag("RESI")), d.residents);
    put_copies(writer.section(section_tag("COPY")), d.copies);
    std::vector<std::uint32_t> ends, waits, before, needed;
    for (const Call& call : d.calls) {
        ends.push_back(call.copies_end);
        waits.push_back(call.wait.step);
        before.push_back(call.wait.pass < 0 ? 1U : 0U);
        needed.push_back(call.needed_by);
    }
    SectionWriter& calls = writer.section(section_tag("CALL"));
    for (const auto* values : {&ends, &waits, &before, &needed}) { calls.array(*values); }
    writer.section(section_tag("SLOT")).array(d.chunk_slot);
    writer.section(section_tag("STEP")).array(d.step_calls);
    return writer.finish();
}

RESIDENCY_INLINE std::uint64_t hash(const Plan& plan) {
    StableHash hash;
    hash.bytes(save(plan));
    return hash.value();
}

RESIDENCY_INLINE Result<Plan> load(std::span<const std::byte> bytes, const Expected& expected, std::string source) {
    const auto reader = ContainerReader::try_open(bytes, source);
    if (!reader) { return reader.error(); }
    if (Status fits = reader->expect(ContainerKind::plan, 1, expected.catalog_hash); !fits) { return fits.error(); }
    constexpr std::uint64_t most = std::uint64_t{1} << 31;
    PlanData d;
    d.catalog_hash = reader->catalog_hash();

    SectionReader head = reader->section(section_tag("HEAD"));
    const std::uint8_t cyclic = head.u8(), captured = head.u8();
    head.require(cyclic <= 1 && captured <= 1, "another value", "two flags");
    d.cyclic = cyclic != 0;
    d.captured = captured != 0;
    for (std::uint64_t* x : {&d.budget_bytes, &d.chunk_bytes, &d.image_bytes, &d.held_bytes}) { *x = head.u64(); }
    d.steps = head.u32();
    d.cut = head.u32();
    for (double* x : {&d.predicted_seconds, &d.compute_seconds, &d.bound_seconds, &d.usual_bound_seconds,
                      &d.latency_floor_seconds}) {
        *x = head.f64();
    }
    d.floor_bytes = head.u64();
    d.bytes_per_pass = head.u64();
    if (Status read = head.finish(); !read) { return read.error(); }

    SectionReader storages = reader->section(section_tag("STOR"));
    d.storage_offsets = storages.array<std::uint64_t>(most);
    d.storage_bytes = storages.array<std::uint64_t>(most);
    if (Status read = storages.finish(); !read) { return read.error(); }

    const auto get_copies = [&](std::uint32_t tag, std::vector<Copy>& copies) -> Status {
        SectionReader from = reader->section(tag);
        const auto begins = from.array<std::uint64_t>(most), ends = from.array<std::uint64_t>(most);
        const auto needed = from.array<std::uint32_t>(most);
        from.require(ends.size() == begins.size() && needed.size() == begins.size(), "lists of different lengths",
                     "one entry a copy");
        if (Status read = from.finish(); !read) { return read; }
        for (std::size_t k = 0; k < begins.size(); ++k) { copies.push_back({begins[k], ends[k], needed[k]}); }
        return {};
    };
    if (Status read = get_copies(section_tag("RESI"), d.residents); !read) { return read.error(); }
    if (Status read = get_copies(section_tag("COPY"), d.copies); !read) { return read.error(); }

    SectionReader calls = reader->section(section_tag("CALL"));
    const auto ends = calls.array<std::uint32_t>(most), waits = calls.array<std::uint32_t>(most);
    const auto before = calls.array<std::uint32_t>(most), needed = calls.array<std::uint32_t>(most);
    calls.require(waits.size() == ends.size() && before.size() == ends.size() && needed.size() == ends.size(),
                  "lists of different lengths", "one entry a call");
    if (Status read = calls.finish(); !read) { return read.error(); }
    for (std::size_t k = 0; k < ends.size(); ++k) {
        d.calls.push_back({k == 0 ? 0 : ends[k - 1], ends[k], {waits[k], before[k] == 0 ? 0 : -1}, needed[k]});
    }

    SectionReader slots = reader->section(section_tag("SLOT"));
    d.chunk_slot = slots.array<std::uint32_t>(most);
    if (Status read = slots.finish(); !read) { return read.error(); }
    SectionReader steps = reader->section(section_tag("STEP"));
    d.step_calls = steps.array<std::uint32_t>(most);
    if (Status read = steps.finish(); !read) { return read.error(); }

    Plan plan{std::move(d)};
    if (Status shape = check_shape(plan); !shape) {
        return Error{ErrorKind::malformed, source + ": " + shape.error().message(),
                     FileLocation{source, 0, shape.error().message(), "a plan"}};
    }
    const auto other = [&](const char* what, std::uint64_t found, std::uint64_t wanted) {
        return Error{ErrorKind::mismatch, source + ": the plan was made for a " + what + " of " +
                                              residency::detail::in_bytes(found) + ", not of " +
                                              residency::detail::in_bytes(wanted)};
    };
    if (plan.budget_bytes() != expected.budget_bytes) {
        return other("budget", plan.budget_bytes(), expected.budget_bytes);
    }
    if (plan.chunk_bytes() != expected.chunk_bytes) { return other("chunk", plan.chunk_bytes(), expected.chunk_bytes); }
    return plan;
}

}}}  // namespace residency::RESIDENCY_ABI::plan
