// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/config.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// Where the bytes of one storage lie: in memory, or in a file.
struct WeightSource {
    static constexpr std::uint32_t no_file = UINT32_MAX;

    const std::byte* memory = nullptr;  ///< null: in a file
    const HostBytes* host = nullptr;    ///< owner of `memory`
    bool is_pinned = false;
    std::uint32_t file = no_file;   ///< number of the file
    std::uint64_t file_offset = 0;  ///< bytes; of the storage in the file
    bool is_direct = false;         ///< the file is read past the page cache: in whole pages only
};

/// Bytes [offset_bytes, offset_bytes + bytes) of a storage.
struct StoragePart {
    StorageId storage = no_storage;
    std::uint64_t offset_bytes = 0, bytes = 0;
};

/// Bytes that one read brings into a slot.
struct SlotRead {
    const std::byte* memory = nullptr;           ///< of the storage; null: a file
    std::uint32_t file = WeightSource::no_file;  ///< number of the file
    std::uint64_t from_bytes = 0;                ///< offset in the storage's memory, or in the file
    std::uint64_t bytes = 0;                     ///< needed, from there
    std::uint64_t window_bytes = 0;              ///< read, from there: more than `bytes` where reads are of whole pages
    std::uint64_t at_bytes = 0;                  ///< offset in the slot
    std::size_t parts = 0;  ///< how many of ReadCoalescer::parts() it brings; those of earlier reads come first
};

/// Gathers the reads that fill one slot. The reads are in the order of their places in the slot, none overlaps another, and none
/// reaches further than one page beyond the slot's size. A part that follows the part before in its source, with at most a small gap
/// between them, is brought by the same read.
class ReadCoalescer {
public:
    static constexpr std::uint64_t page_bytes = 4096;   ///< direct reads are of whole pages
    static constexpr std::uint64_t padding_bytes = 64;  ///< between weights, at most, in the formats that align them

    /// Where a part lies in the slot.
    struct Placed {
        std::uint64_t at_bytes = 0;
        std::uint64_t bytes = 0;  ///< of the part; 0: the slot is full
    };

    explicit ReadCoalescer(std::uint64_t slot_bytes) noexcept : slot_bytes_{slot_bytes} {}

    void clear() noexcept {
        reads_.clear();
        parts_.clear();
        end_bytes_ = 0;
    }
    /// Adds as much of the beginning of `part` as still fits.
    [[nodiscard]] Placed add(const WeightSource& source, const StoragePart& part);
    [[nodiscard]] std::span<const SlotRead> reads() const noexcept { return reads_; }
    /// What the reads bring, in their order.
    [[nodiscard]] std::span<const StoragePart> parts() const noexcept { return parts_; }

private:
    std::uint64_t slot_bytes_;
    std::uint64_t end_bytes_ = 0;  // of what parts may use, in the slot: slot_bytes_ after the first part begins
    std::vector<SlotRead> reads_;
    std::vector<StoragePart> parts_;
};

}}}  // namespace residency::RESIDENCY_ABI::transport

#if RESIDENCY_HEADER_ONLY
#include "residency/transport/impl/read_coalescer.ipp"
#endif
