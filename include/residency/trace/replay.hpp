// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"

namespace residency::inline RESIDENCY_ABI::trace {

/// What demand caching alone makes of a sequence of accesses. Each access is one request.
struct CacheCounts {
    std::uint64_t requests = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t misses = 0;
    std::uint64_t missed_bytes = 0;
    friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
};

/// Replays accesses through an evictor: what is missing comes, and as much leaves as that needs. A storage that is larger than
/// the capacity is a miss that is not kept. The moment of an access is its number. `ticks` is called with the number of accesses
/// done, now and then. Fails where the evictor refuses the context. Precondition: the ids are those of context.bytes.
template <evict::EvictionPolicy E, class Ticks>
[[nodiscard]] Result<CacheCounts> replay_cache(std::span<const StorageId> accesses, const evict::Context& context,
                                               E& evictor, Ticks ticks) {
    constexpr std::size_t block = std::size_t{1} << 16;
    if (auto attached = evictor.attach(context); !attached) { return attached.error(); }
    const std::span<const std::uint64_t> bytes = context.bytes;
    std::vector<std::uint8_t> is_here(bytes.size(), 0);
    CacheCounts counts;
    std::uint64_t held = 0;
    for (std::size_t now = 0; now < accesses.size(); ++now) {
        const StorageId id = accesses[now];
        if (is_here[index(id)] == 0) {
            const std::uint64_t own = bytes[index(id)];
            ++counts.misses;
            counts.missed_bytes += own;
            if (own <= context.capacity_bytes) {
                while (held > context.capacity_bytes - own) {
                    const auto victim = evictor.victim(now, evict::AnyMayLeave{});
                    RESIDENCY_ASSERT(victim.has_value(), "an evictor names a victim while anything may leave");
                    evictor.removed(*victim);
                    is_here[index(*victim)] = 0;
                    held -= bytes[index(*victim)];
                }
                is_here[index(id)] = 1;
                held += own;
                evictor.inserted(id, now);
                evictor.used(id, now);
            }
        } else {
            evictor.used(id, now);
        }
        if (now % block == block - 1) { ticks(now + 1); }
    }
    counts.requests = accesses.size();
    for (const StorageId id : accesses) { counts.requested_bytes += bytes[index(id)]; }
    return counts;
}
template <evict::EvictionPolicy E>
[[nodiscard]] Result<CacheCounts> replay_cache(std::span<const StorageId> accesses, const evict::Context& context,
                                               E& evictor) {
    return replay_cache(accesses, context, evictor, [](std::size_t) {});
}

}  // namespace residency::inline RESIDENCY_ABI::trace
