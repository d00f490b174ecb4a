// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "residency/error.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/memory_limits.hpp"
#include "residency/host/tier.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/model/ids.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace transport {

/// The knobs of transport::Staged.
struct StagedConfig {
    std::uint64_t ring_bytes = std::uint64_t{128} << 20;  ///< pinned, beside the weights; at least two slots
    std::uint64_t slot_bytes = std::uint64_t{4} << 20;    ///< of one copy, at most
    unsigned threads = 0;                                 ///< that fill slots; 0: as many as the machine has, at most 8
    /// How files are read. None: through the page cache if all of them fit into free memory, past it otherwise.
    std::optional<host::FileAccess> file_access{};
    /// What is still loading the catalog. Bytes that are not loaded yet are waited for; storages that it has pinned go straight.
    std::shared_ptr<host::Loading> loading{};
    /// Called before bytes [offset, offset + bytes) of a storage are brought into the ring, from any thread, from several at once.
    /// An error counts as the error of the read, and a read may bring neighbours too. Must not throw.
    std::function<Status(StorageId, std::uint64_t offset, std::uint64_t bytes)> before_read{};
    std::optional<host::MemoryLimits> limits{};  ///< instead of the limits of this process
};

/// What a transport::Staged has done since it was opened.
struct StagedStatistics {
    host::Tier tier = host::Tier::pinned;  ///< of the slowest source of the catalog
    bool direct_io = false;                ///< files are read past the page cache
    std::uint64_t straight_bytes = 0;      ///< copied from where they were pinned
    std::uint64_t staged_bytes = 0;        ///< copied through the ring
    std::uint64_t file_bytes = 0;          ///< of the staged bytes, those read from files
    std::uint64_t file_reads = 0;          ///< calls that read them; one call reads near neighbours of a slot
    std::uint64_t slots_filled = 0;        ///< by its threads
    std::uint64_t ahead_bytes =
        0;  ///< of the staged bytes, those handed to the threads before their copies were enqueued
    std::uint64_t withdrawn_bytes = 0;  ///< of the bytes ahead, those whose copies were never enqueued
};

}}}  // namespace residency::RESIDENCY_ABI::transport
