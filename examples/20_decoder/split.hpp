// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "checkpoint.hpp"

namespace decoder {

/// A model for several GPUs, divided as Megatron does: each has some of the heads with their keys and values, and some columns of what lies
/// between gate, up and down. These matrices, and the last one, are cut by rows, which are what they give; the output of attention and down
/// by columns, so that every GPU has a part of each sum. Norms are everywhere, the embedding table stays on the host once.
class Split {
public:
    /// Error unsupported, thrown: `gpus` does not divide heads, columns or words; or the weights are packed.
    Split(const Checkpoint& on_disk, std::uint32_t gpus);

    /// What each GPU has. Weights have no bytes until they are loaded.
    [[nodiscard]] const std::vector<Checkpoint>& shares() const noexcept { return shares_; }
    /// Of the memory of a share.
    [[nodiscard]] std::uint64_t share_bytes() const noexcept { return share_bytes_; }

    /// Reads every byte once: of each GPU's share to `memory`, as many pinned bytes as share_bytes() each, where it lies as it travels,
    /// in one piece. `table`: the embedding table, loaded; a last matrix that is one with it is read from there. The memory outlives
    /// the shares. Blocks; in several threads. Throws residency::Exception.
    void load(std::span<std::byte* const> memory, const residency::Catalog& table);
    /// The catalog of the embedding table by itself, which lies in a file.
    [[nodiscard]] residency::Catalog table() const;

private:
    enum class Cut : std::uint8_t { none, rows, columns, table };
    struct Place {
        Cut cut = Cut::none;
        std::uint64_t offset = 0;  ///< in the memory of a share
        std::uint64_t bytes = 0;   ///< of a share
    };

    void build_catalogs(const std::function<residency::StorageSource(std::size_t share, std::size_t weight)>& source);
    void read(std::size_t weight, std::span<std::byte* const> memory) const;

    const Checkpoint& whole_;
    std::vector<Place> places_;  ///< by weight
    std::vector<Checkpoint> shares_;
    std::uint64_t share_bytes_ = 0;
};

}  // namespace decoder
