// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "benchmarks/lab/workload.hpp"
#include "residency/codec/packed_header_layout.hpp"
#include "residency/error.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/storage.hpp"
#include "residency/packed/layout.hpp"
#include "residency/pool/memory_pool.hpp"

namespace lab {

/// What is assumed of packed weights on the simulated device.
struct Packing {
    /// Trained weights of bf16, packed, over their raw bytes, as far as they were not measured in a file.
    static constexpr double usual_share = 0.67;
    /// Unpacking reaches about so much of the rate of the memory, and no more than was measured on an H100.
    static constexpr double rate_of_memory = 0.3;

    std::optional<double> share{};                    ///< of all weights; unset: as measured, or usual_share
    std::optional<double> unpack_bytes_per_second{};  ///< of raw bytes; unset: from the card's memory

    /// Packed bytes of a storage; its raw ones where it stays raw.
    [[nodiscard]] std::uint64_t packed_bytes(const Workload& work, std::size_t storage) const {
        if (work.resident[storage]) { return work.bytes[storage]; }
        const double measured = work.packed_shares.empty() ? usual_share : work.packed_shares[storage];
        const double part = share.value_or(measured);
        return std::min(work.bytes[storage],
                        static_cast<std::uint64_t>(part * static_cast<double>(work.bytes[storage])));
    }
    [[nodiscard]] double unpack_rate(const Card& card) const {
        return unpack_bytes_per_second.value_or(
            std::min(residency::packed::UnpackRate{}.bytes_per_second, rate_of_memory * card.memory_bytes_per_second));
    }
};

/// The bytes of a storage in host memory: at an offset, in parts; without parts: as they are.
struct StoredBytes {
    std::uint64_t offset_bytes = 0, bytes = 0;
    std::shared_ptr<const std::vector<residency::PackedPart>> parts{};
};

/// Where the next packed storage may begin.
[[nodiscard]] constexpr std::uint64_t aligned_packed(std::uint64_t bytes) {
    return residency::pool::round_up(bytes, residency::codec::packed_alignment_bytes);
}

/// The catalog of a workload over pinned host memory in which storages lie like this, one weight a storage.
inline residency::Result<residency::Catalog> catalog_of(const Workload& work,
                                                        const std::shared_ptr<const residency::HostBytes>& host,
                                                        const std::vector<StoredBytes>& stored) {
    residency::CatalogBuilder builder;
    for (std::size_t i = 0; i < work.bytes.size(); ++i) {
        residency::StorageOptions options;
        options.placement = work.resident[i] ? residency::Placement::resident : residency::Placement::streamed;
        if (stored[i].parts != nullptr) {
            options.source =
                residency::PackedHostSource{host, stored[i].offset_bytes, stored[i].bytes, stored[i].parts};
        } else {
            options.source = residency::HostSource{host, stored[i].offset_bytes};
        }
        builder.add_weight(work.names[i], residency::dtype::u8, {work.bytes[i]},
                           builder.add_storage(work.bytes[i], std::move(options)));
    }
    return builder.try_build();
}

}  // namespace lab
