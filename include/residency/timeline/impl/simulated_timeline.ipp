// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>

#include "residency/config.hpp"
#include "residency/timeline/simulated_timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE void SimulatedTimeline::name_weights(const Catalog& catalog) {
    for (std::size_t i = 0; i < catalog.storages().size(); ++i) {
        const StorageId id{static_cast<std::uint32_t>(i)};
        const std::byte* const at = catalog.host_bytes(id);
        if (at == nullptr || catalog.storage(id).bytes == 0) { continue; }
        const auto begin = reinterpret_cast<std::uintptr_t>(at);
        names_.insert_or_assign(begin, Named{begin + catalog.storage(id).bytes, PassTimeline::name_of(catalog, id)});
    }
}

RESIDENCY_INLINE std::vector<PassTimeline::Piece> SimulatedTimeline::pieces_of(
    const simulation::ExecutedOperation& operation) const {
    std::vector<PassTimeline::Piece> pieces;
    const auto add = [&](const std::string& name, std::uint64_t bytes) {
        if (!pieces.empty() && pieces.back().weight == name) {
            pieces.back().bytes += bytes;
        } else {
            pieces.push_back({name, bytes});
        }
    };
    for (const auto& copy : operation.copies) {
        const auto begin = reinterpret_cast<std::uintptr_t>(copy.from);
        const std::uintptr_t end = begin + copy.bytes;
        std::uint64_t named = 0;
        auto at = names_.upper_bound(begin);
        if (at != names_.begin()) { --at; }
        for (; at != names_.end() && at->first < end; ++at) {
            const std::uintptr_t from = (std::max)(at->first, begin);
            const std::uintptr_t to = (std::min)(at->second.end, end);
            if (from >= to) { continue; }
            add(at->second.name, to - from);
            named += to - from;
        }
        if (named == 0) { add("bytes of no weight here", copy.bytes); }
    }
    return pieces;
}

RESIDENCY_INLINE void SimulatedTimeline::add(const simulation::ExecutedOperation& operation) {
    using Kind = simulation::OperationKind;
    using Time = PassTimeline::Time;
    const Time start{operation.start_ns};
    const Time end{operation.end_ns};
    if (operation.kind == Kind::copy_to_device) {
        timeline_.add_copy({pieces_of(operation), start, end});
        copies_.push_back({operation.stream, operation.sequence});
    }
    if (operation.kind == Kind::copy_to_host) { timeline_.add_copy_back(operation.bytes, start, end); }
    if (operation.kind == Kind::wait && start < end) {
        rows_[operation.stream].waits.push_back(
            {operation.start_ns, operation.end_ns, operation.awaited_stream, operation.awaited_sequence});
    }
    if (operation.kind != Kind::kernel) { return; }
    Row& row = rows_[operation.stream];
    if (row.number == SIZE_MAX) { row.number = kernel_rows_++; }
    for (const Wait& wait : row.waits) {
        std::optional<std::size_t> awaited;
        for (std::size_t i = 0; i < copies_.size(); ++i) {
            if (copies_[i].stream == wait.stream && copies_[i].sequence <= wait.sequence) { awaited = i; }
        }
        const std::int64_t from = (std::max)(wait.start_ns, row.end_ns);
        if (from < wait.end_ns) { timeline_.add_stall(Time{from}, Time{wait.end_ns}, awaited, row.number); }
        row.end_ns = (std::max)(row.end_ns, wait.end_ns);
    }
    row.waits.clear();
    row.end_ns = operation.end_ns;
    timeline_.add_kernel({std::string{operation.group}, std::string{operation.name}, start, end, row.number});
}

}}  // namespace residency::RESIDENCY_ABI
