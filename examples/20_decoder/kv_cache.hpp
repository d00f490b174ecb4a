// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "config.hpp"
#include "operations.hpp"
#include "residency/broker/memory_client.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/interop/memory_resource.hpp"

namespace decoder {

/// Keys and values of past tokens, in blocks that come as the text grows, out of the budget that the weights have too.
template <residency::Device D>
class KvCache {
public:
    /// As many positions a block as fit into a granule of the device's pools, so that blocks waste none of it.
    [[nodiscard]] static Cache shape(const D& device, const Config& c) {
        Cache cache{.layers = c.layers, .heads = c.cache_heads, .width = c.width, .block_shift = 4};
        while (cache.block_tokens() < 4096 && 2 * cache.block_elements() * sizeof(Bf16) <= device.pool_granularity()) {
            ++cache.block_shift;
        }
        return cache;
    }
    [[nodiscard]] static std::uint32_t blocks(const Cache& cache, std::uint64_t positions) {
        return static_cast<std::uint32_t>((positions + cache.block_tokens() - 1) / cache.block_tokens());
    }
    /// What so many positions take at most, as the driver counts it.
    [[nodiscard]] static std::uint64_t bytes(const D& device, const Cache& cache, std::uint64_t positions) {
        const std::uint64_t granule = device.pool_granularity();
        const std::uint64_t block = cache.block_elements() * sizeof(Bf16);
        return blocks(cache, positions) * ((block + granule - 1) / granule * granule);
    }

    /// `control`: where the addresses of the blocks go, in pinned memory.
    KvCache(D& device, residency::broker::MemoryClient client, const Cache& cache, const Control& control,
            std::uint64_t limit_bytes)
        : memory_{device, std::move(client), {.limit_bytes = limit_bytes}}, cache_{cache}, control_{control} {
        for (std::uint32_t i = 0; i < control_.blocks; ++i) { control_.block(i) = 0; }
    }
    ~KvCache() {
        for (void* block : blocks_) { memory_.deallocate(block, block_bytes()); }
    }
    KvCache(const KvCache&) = delete;
    KvCache& operator=(const KvCache&) = delete;

    /// Room for so many positions. Error budget: the weights have to give way first; what came already stays.
    [[nodiscard]] residency::Status try_grow(std::uint64_t positions, typename D::Stream stream) {
        while (blocks_.size() < blocks(cache_, positions)) {
            auto block = memory_.try_allocate(block_bytes(), memory_.largest_alignment, stream);
            if (!block) { return block.error(); }
            control_.block(blocks_.size()) = reinterpret_cast<std::uintptr_t>(*block);
            blocks_.push_back(*block);
        }
        return {};
    }
    [[nodiscard]] std::uint64_t held_bytes() const { return memory_.held_bytes(); }

private:
    [[nodiscard]] std::uint64_t block_bytes() const { return cache_.block_elements() * sizeof(Bf16); }

    residency::MemoryResource<D> memory_;
    Cache cache_;
    Control control_;
    std::vector<void*> blocks_;
};

}  // namespace decoder
