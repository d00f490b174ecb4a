// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "residency/simulation/operation.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace simulation {

/// The memory of a capped, stream-ordered pool. Its segments never exceed the cap together, and the blocks of a segment cover it
/// without overlap. Allocates by best fit. Blocks do not move and segments do not join, so that a pool fragments as the driver's does.
class MemoryPool {
public:
    struct Block {
        std::uint64_t offset = 0, bytes = 0;  ///< in the segment
        bool used = false;
        Marker* freed = nullptr;  ///< its deallocation, until that has been executed; a reference
    };
    /// Memory that the pool holds of the device.
    struct Segment {
        std::byte* at = nullptr;
        std::uint64_t bytes = 0;
        std::uint32_t region = 0;   ///< number of the physical memory
        std::vector<Block> blocks;  ///< by offset
    };
    /// Where an allocation can go.
    struct Fit {
        Segment* segment = nullptr;  ///< null: nothing fits
        std::size_t first = 0;       ///< index of the first block that is taken
    };

    std::uint64_t cap_bytes = 0;
    std::uint64_t held_bytes = 0;  ///< of all segments
    std::uint64_t peak_bytes = 0;  ///< the most that held_bytes ever was
    bool destroyed = false;        ///< lives on until its deallocations have been executed
    std::vector<Segment> segments;

    /// Makes blocks free whose deallocations have been executed, and joins free neighbours. `release` takes over their markers.
    template <class F>
    void collect_freed(F&& release) {
        for (Segment& segment : segments) {
            std::size_t to = 0;
            for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
                Block block = segment.blocks[i];
                if (block.freed != nullptr && block.freed->done) {
                    release(block.freed);
                    block.freed = nullptr;
                }
                if (to > 0 && is_free(block) && is_free(segment.blocks[to - 1])) {
                    segment.blocks[to - 1].bytes += block.bytes;
                } else {
                    segment.blocks[to++] = block;
                }
            }
            segment.blocks.resize(to);
        }
    }
    /// The smallest run of unused blocks that holds `bytes`. A block whose deallocation is pending counts if `usable` accepts that.
    template <class F>
    [[nodiscard]] Fit find(std::uint64_t bytes, F&& usable) {
        Fit best;
        std::uint64_t best_bytes = UINT64_MAX;
        for (Segment& segment : segments) {
            for (std::size_t i = 0; i < segment.blocks.size();) {
                std::uint64_t run = 0;
                const std::size_t first = i;
                for (; i < segment.blocks.size(); ++i) {
                    const Block& block = segment.blocks[i];
                    if (block.used || (block.freed != nullptr && !usable(*block.freed))) { break; }
                    run += block.bytes;
                }
                if (run >= bytes && run < best_bytes) {
                    best = {&segment, first};
                    best_bytes = run;
                }
                if (i == first) { ++i; }
            }
        }
        return best;
    }
    /// Marks the first `bytes` of a fit as used. Calls pending(marker, whole) for each pending deallocation there; `whole`: the block is
    /// used up, and its marker is the callee's.
    template <class F>
    std::byte* take(Fit fit, std::uint64_t bytes, F&& pending) {
        std::vector<Block>& blocks = fit.segment->blocks;
        const std::uint64_t offset = blocks[fit.first].offset;
        std::uint64_t covered = 0;
        std::size_t last = fit.first;
        while (true) {
            Block& block = blocks[last];
            if (block.freed != nullptr) { pending(block.freed, covered + block.bytes <= bytes); }
            covered += block.bytes;
            if (covered >= bytes) { break; }
            ++last;
        }
        const Block rest{offset + bytes, covered - bytes, false, blocks[last].freed};
        blocks[fit.first] = {offset, bytes, true, nullptr};
        const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(fit.first) + 1;
        const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(last) + 1;
        if (rest.bytes == 0) {
            blocks.erase(begin, end);
        } else if (begin == end) {
            blocks.insert(begin, rest);
        } else {
            *begin = rest;
            blocks.erase(begin + 1, end);
        }
        return fit.segment->at + offset;
    }
    /// The segment that holds an address; null: none.
    [[nodiscard]] Segment* segment_of(const void* at) noexcept {
        for (Segment& segment : segments) {
            if (reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(segment.at) < segment.bytes) {
                return &segment;
            }
        }
        return nullptr;
    }
    /// The block that begins at an address; null: none.
    [[nodiscard]] static Block* block_of(Segment& segment, const void* at) noexcept {
        const std::uint64_t offset =
            reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(segment.at);
        const auto found =
            std::lower_bound(segment.blocks.begin(), segment.blocks.end(), offset,
                             [](const Block& block, std::uint64_t value) { return block.offset < value; });
        return found != segment.blocks.end() && found->offset == offset ? &*found : nullptr;
    }
    [[nodiscard]] static bool is_free(const Block& block) noexcept { return !block.used && block.freed == nullptr; }
    [[nodiscard]] static bool is_unused(const Segment& segment) noexcept {
        return std::all_of(segment.blocks.begin(), segment.blocks.end(), is_free);
    }
    [[nodiscard]] std::uint64_t used_bytes() const noexcept {
        std::uint64_t total = 0;
        for (const Segment& segment : segments) {
            for (const Block& block : segment.blocks) { total += block.used ? block.bytes : 0; }
        }
        return total;
    }
};

}}}  // namespace residency::RESIDENCY_ABI::simulation
