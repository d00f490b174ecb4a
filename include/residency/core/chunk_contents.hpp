// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Which storages lie on which chunks of an image at `base`, in copies of ranges of it, and in the calls of a plan.
class ChunkContents {
public:
    ChunkContents() = default;
    ChunkContents(const plan::Plan& plan, std::byte* base);

    /// In ascending order.
    [[nodiscard]] std::span<const std::uint32_t> storages(std::uint32_t chunk) const noexcept {
        return std::span{storages_}.subspan(first_[chunk], first_[chunk + std::size_t{1}] - first_[chunk]);
    }
    /// No chunks where it has no bytes.
    [[nodiscard]] plan::Chunks chunks(StorageId id) const noexcept { return chunks_[index(id)]; }
    /// What a call of the plan brings.
    [[nodiscard]] std::span<const transport::Fetch> call(std::uint32_t k) const noexcept {
        return std::span{call_pieces_}.subspan(first_piece_[k], first_piece_[k + std::size_t{1}] - first_piece_[k]);
    }
    /// Appends the parts of storages that lie in image bytes [begin, end) of the plan.
    void append_pieces(const plan::Plan& plan, std::uint64_t begin, std::uint64_t end,
                       std::vector<transport::Fetch>& pieces) const;

private:
    std::byte* base_ = nullptr;
    std::vector<std::size_t> first_;  // CSR, by chunk
    std::vector<std::uint32_t> storages_;
    std::vector<plan::Chunks> chunks_;      // by storage
    std::vector<std::size_t> first_piece_;  // CSR, by call
    std::vector<transport::Fetch> call_pieces_;
};

inline ChunkContents::ChunkContents(const plan::Plan& plan, std::byte* base) : base_{base} {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> on_chunk;
    for (std::uint32_t s = 0; s < plan.storages(); ++s) {
        chunks_.push_back(plan.chunks_of_storage(s));
        for (const std::uint32_t chunk : chunks_.back()) { on_chunk.emplace_back(chunk, s); }
    }
    std::ranges::sort(on_chunk);
    first_.assign(plan.chunks() + std::size_t{1}, 0);
    for (const auto& [chunk, storage] : on_chunk) {
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

inline void ChunkContents::append_pieces(const plan::Plan& plan, std::uint64_t begin, std::uint64_t end,
                                         std::vector<transport::Fetch>& pieces) const {
    const std::uint64_t chunk_bytes = plan.chunk_bytes();
    std::uint32_t last = plan::none;
    for (const std::uint32_t chunk : plan::chunks_of(begin, end, chunk_bytes)) {
        for (const std::uint32_t s : storages(chunk)) {
            const std::uint64_t offset = plan.storage_offset(s);
            const std::uint64_t from = (std::max)(begin, offset);
            const std::uint64_t to = (std::min)(end, offset + plan.storage_bytes(s));
            if (from >= to || s == last) { continue; }
            // A storage goes on over the chunks of the range; it is named at the first.
            if (chunk * chunk_bytes > from) { continue; }
            last = s;
            pieces.push_back({StorageId{s}, from - offset, to - from, base_ + from});
        }
    }
}

}}}  // namespace residency::RESIDENCY_ABI::core
