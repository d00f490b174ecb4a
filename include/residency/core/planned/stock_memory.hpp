// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "residency/core/measure/measure_link.hpp"
#include "residency/device/device.hpp"
#include "residency/error.hpp"
#include "residency/pool/chunk_stock.hpp"
#include "residency/pool/virtual.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace core {

/// Free chunks of a stock: what is measured in them takes no memory beside the stock's.
template <VirtualMemoryDevice D>
class StockMemory final : public MemorySource {
public:
    /// Keeps the references.
    StockMemory(D& device, pool::ChunkStock<D>& stock) noexcept : device_{&device}, stock_{&stock} {}

    [[nodiscard]] Result<void*> allocate(std::uint64_t bytes) override {
        auto range = std::make_unique<pool::Virtual<D>>(typename pool::Virtual<D>::Config{.stock = stock_});
        if (auto opened = range->open(*device_, bytes); !opened) { return opened.error(); }
        auto held = range->hold(static_cast<std::uint32_t>((bytes - 1) / stock_->chunk_bytes() + 1));
        if (!held) {
            range->close();
            return held.error();
        }
        ranges_.push_back(std::move(range));
        return static_cast<void*>(ranges_.back()->base());
    }
    [[nodiscard]] Status deallocate(void* memory) override {
        Status closed;
        std::erase_if(ranges_, [&](const auto& range) {
            if (range->base() != memory) { return false; }
            closed = range->try_close();
            if (!closed) { range->close(); }
            return true;
        });
        return closed;
    }

private:
    D* device_;
    pool::ChunkStock<D>* stock_;
    std::vector<std::unique_ptr<pool::Virtual<D>>> ranges_;
};

}}}  // namespace residency::RESIDENCY_ABI::core
