// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/model/ids.hpp"
#include "residency/plan/plan.hpp"
#include "residency/transport/transport_policy.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// The bytes of an image that begins at a fixed device address: which storages lie on each chunk, and which parts of storages a range
/// of the image or a call of the plan consists of. Constant while a plan is in force.
class ChunkContents {
public:
    ChunkContents() = default;
    ChunkContents(const plan::Plan& plan, std::byte* base);

    /// The storages that lie on a chunk, in the order of the image.
    [[nodiscard]] std::span<const std::uint32_t> storages(std::uint32_t chunk) const noexcept {
        return std::span{storages_}.subspan(first_[chunk], first_[chunk + std::size_t{1}] - first_[chunk]);
    }
    /// The chunks that a storage lies on; none if it has no bytes.
    [[nodiscard]] plan::Chunks chunks(StorageId id) const noexcept { return chunks_[index(id)]; }
    /// The parts of storages that call `k` of the plan brings.
    [[nodiscard]] std::span<const transport::Fetch> call(std::uint32_t k) const noexcept {
        return std::span{call_pieces_}.subspan(first_piece_[k], first_piece_[k + std::size_t{1}] - first_piece_[k]);
    }
    /// Appends the parts of storages that lie in bytes [begin, end) of the image: one piece per storage, in the order of the image.
    void append_pieces(const plan::Plan& plan, std::uint64_t begin, std::uint64_t end,
                       std::vector<transport::Fetch>& pieces) const;

private:
    std::byte* base_ = nullptr;       // device address of the image
    std::vector<std::size_t> first_;  // by chunk: where its storages begin in storages_; one more entry at the end
    std::vector<std::uint32_t> storages_;
    std::vector<plan::Chunks> chunks_;  // by storage
    std::vector<std::size_t>
        first_piece_;  // by call: where its pieces begin in call_pieces_; one more entry at the end
    std::vector<transport::Fetch> call_pieces_;
};

}}}  // namespace residency::RESIDENCY_ABI::core

#if RESIDENCY_HEADER_ONLY
#include "residency/core/impl/chunk_contents.ipp"
#endif
