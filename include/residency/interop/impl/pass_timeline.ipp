// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "residency/config.hpp"
#include "residency/interop/pass_timeline.hpp"

namespace residency { inline namespace RESIDENCY_ABI {

RESIDENCY_INLINE std::string PassTimeline::name_of_row(std::size_t row) {
    return std::string{compute_row} + (row == 0 ? "" : " " + std::to_string(row + 1));
}

RESIDENCY_INLINE std::string PassTimeline::name_of(const Copy& copy) {
    if (copy.pieces.empty()) { return "copy"; }
    const std::string& first = copy.pieces.front().weight;
    const std::size_t more = copy.pieces.size() - 1;
    return more == 0 ? first : first + " and " + std::to_string(more) + " more";
}

RESIDENCY_INLINE std::string PassTimeline::name_of(const Catalog& catalog, StorageId storage) {
    const auto weights = catalog.weights_of(storage);
    if (weights.empty()) { return "storage " + std::to_string(index(storage)); }
    const std::string& first = catalog.weight(weights.front()).name;
    return weights.size() == 1 ? first : first + " (and " + std::to_string(weights.size() - 1) + " on the same bytes)";
}

RESIDENCY_INLINE std::optional<std::size_t> PassTimeline::kernel_after(const Stall& stall) const noexcept {
    for (std::size_t i = stall.next_kernel; i < kernels_.size(); ++i) {
        if (kernels_[i].row == stall.row) { return i; }
    }
    return std::nullopt;
}

RESIDENCY_INLINE PerfettoTrace PassTimeline::trace() const {
    PerfettoTrace trace;
    for (const Pass& pass : passes_) { trace.event(pass_row, pass.name, pass.start, pass.end, pass.copied_bytes); }
    std::size_t rows = 0;
    for (const Kernel& kernel : kernels_) { rows = (std::max)(rows, kernel.row + 1); }
    for (std::size_t row = 0; row < rows; ++row) {
        const std::string name = name_of_row(row);
        for (std::size_t i = 0; i < kernels_.size(); ++i) {
            const Kernel& first = kernels_[i];
            if (first.row != row || first.step.empty()) { continue; }
            // A step is the kernels of its name that follow each other.
            std::size_t last = i;
            for (std::size_t k = i + 1; k < kernels_.size(); ++k) {
                if (kernels_[k].row != row) { continue; }
                if (kernels_[k].step != first.step || kernels_[k].run != first.run) { break; }
                last = k;
            }
            trace.event(name, first.step, first.start, kernels_[last].end);
            i = last;
        }
        for (const Kernel& kernel : kernels_) {
            if (kernel.row == row) {
                trace.event(name, kernel.name, kernel.start, kernel.end, std::nullopt, kernel.step);
            }
        }
    }
    for (const Copy& copy : copies_) {
        std::uint64_t bytes = 0;
        for (const Piece& piece : copy.pieces) { bytes += piece.bytes; }
        trace.event(copy_row, name_of(copy), copy.start, copy.end, bytes);
        if (copy.pieces.size() < 2 || bytes == 0) { continue; }
        // Inside a call each weight takes the link for its share of the bytes.
        const double length = static_cast<double>((copy.end - copy.start).count()) / static_cast<double>(bytes);
        std::uint64_t before = 0;
        for (const Piece& piece : copy.pieces) {
            const auto at = [&](std::uint64_t sum) {
                return copy.start + Time{static_cast<Time::rep>(static_cast<double>(sum) * length)};
            };
            trace.event(copy_row, piece.weight, at(before), (std::min)(at(before + piece.bytes), copy.end),
                        piece.bytes);
            before += piece.bytes;
        }
    }
    for (const Copy& copy : copies_back_) {
        trace.event(copy_back_row, "copy", copy.start, copy.end, copy.pieces.front().bytes);
    }
    for (const Stall& stall : stalls_) {
        const std::string awaited = stall.copy ? name_of(copies_[*stall.copy]) : std::string{};
        trace.event(name_of_row(stall.row), awaited.empty() ? "stall" : "stall: waits for " + awaited, stall.start,
                    stall.end);
        const auto next = kernel_after(stall);
        if (!stall.copy || !next) { continue; }
        // An arrow begins and ends inside an operation.
        if (copies_[*stall.copy].start == copies_[*stall.copy].end || kernels_[*next].start == kernels_[*next].end) {
            continue;
        }
        trace.arrow(copy_row, copies_[*stall.copy].start, name_of_row(stall.row), kernels_[*next].start);
    }
    for (const Memory& memory : memory_) {
        trace.counter("held bytes", memory.at, memory.held_bytes);
        trace.counter("budget bytes", memory.at, memory.budget_bytes);
    }
    return trace;
}

}}  // namespace residency::RESIDENCY_ABI
