// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "residency/config.hpp"
#include "residency/core/chunk_contents.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/sort.hpp"
#include "residency/plan/plan.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

RESIDENCY_INLINE ChunkContents::ChunkContents(const plan::Plan& plan, std::byte* base) : base_{base} {
    // By chunk, in the order of the image, so that pieces that are neighbours there follow each other and may be joined.
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>> on_chunk;
    for (std::uint32_t s = 0; s < plan.storages(); ++s) {
        chunks_.push_back(plan.chunks_of_storage(s));
        for (const std::uint32_t chunk : chunks_.back()) { on_chunk.emplace_back(chunk, plan.storage_offset(s), s); }
    }
    residency::detail::sort(on_chunk);
    first_.assign(plan.chunks() + std::size_t{1}, 0);
    for (const auto& [chunk, offset, storage] : on_chunk) {
        ++first_[chunk + std::size_t{1}];
        storages_.push_back(storage);
    }
    for (std::size_t i = 1; i < first_.size(); ++i) { first_[i] += first_[i - 1]; }
    first_piece_.push_back(0);
    for (const plan::Call& call : plan.calls()) {
        for (const plan::Copy& copy : plan.copies(call)) {
            append_pieces(plan, copy.image_begin, copy.image_end, call_pieces_);
        }
        first_piece_.push_back(call_pieces_.size());
    }
}

RESIDENCY_INLINE void ChunkContents::append_pieces(const plan::Plan& plan, std::uint64_t begin, std::uint64_t end,
                                                   std::vector<transport::Fetch>& pieces) const {
    const std::uint64_t chunk_bytes = plan.chunk_bytes();
    std::uint32_t last = plan::none;
    for (const std::uint32_t chunk : plan::chunks_of(begin, end, chunk_bytes)) {
        for (const std::uint32_t s : storages(chunk)) {
            const std::uint64_t offset = plan.storage_offset(s);
            const std::uint64_t from = (std::max)(begin, offset);
            const std::uint64_t to = (std::min)(end, offset + plan.storage_bytes(s));
            if (from >= to || s == last) { continue; }
            // A storage that spans several chunks becomes one piece, at the first of them.
            if (chunk * chunk_bytes > from) { continue; }
            last = s;
            pieces.push_back({StorageId{s}, from - offset, to - from, base_ + from});
        }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::core
