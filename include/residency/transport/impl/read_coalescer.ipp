// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "residency/transport/read_coalescer.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

RESIDENCY_INLINE ReadCoalescer::Placed ReadCoalescer::add(const WeightSource& source, const StoragePart& part) {
    const auto round_up = [](std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; };
    const bool is_file = source.memory == nullptr;
    const std::uint64_t from = source.file_offset + part.offset_bytes;
    const std::uint64_t widest_gap = source.is_direct ? page_bytes : is_file ? padding_bytes : 0;  // read, not copied
    const auto continues = [&](const SlotRead& last) {
        const std::uint64_t end = last.from_bytes + last.bytes;
        return last.memory == source.memory && last.file == source.file && from >= end && from - end <= widest_gap;
    };
    const bool is_new = reads_.empty() || !continues(reads_.back());
    SlotRead read;
    std::uint64_t slot_end = end_bytes_;
    if (is_new) {
        const std::uint64_t used = reads_.empty() ? 0 : reads_.back().at_bytes + reads_.back().window_bytes;
        read.memory = source.memory;
        read.file = source.file;
        read.from_bytes = source.is_direct ? from / page_bytes * page_bytes : from;
        read.at_bytes = round_up(used, source.is_direct ? page_bytes : padding_bytes);
        if (reads_.empty()) { slot_end = slot_bytes_ + (from - read.from_bytes); }
    } else {
        read = reads_.back();
    }
    const std::uint64_t at = read.at_bytes + (from - read.from_bytes);
    const Placed placed{at, (std::min)(part.bytes, slot_end - (std::min)(at, slot_end))};
    if (placed.bytes == 0) { return placed; }
    end_bytes_ = slot_end;
    read.bytes = from - read.from_bytes + placed.bytes;
    read.window_bytes = source.is_direct ? round_up(read.bytes, page_bytes) : read.bytes;
    ++read.parts;
    if (is_new) {
        reads_.push_back(read);
    } else {
        reads_.back() = read;
    }
    parts_.push_back({part.storage, part.offset_bytes, placed.bytes});
    return placed;
}

}}}  // namespace residency::RESIDENCY_ABI::transport
