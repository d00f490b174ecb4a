// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/ids.hpp"

namespace lab::trace {

using namespace residency;

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
                    const auto victim = evictor.victim(now, evict::AllMayLeave{});
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

/// Replays a trace by steps, as the core acquires: what a step lacks comes together, and nothing leaves that the step names. What
/// of it finds no room is a miss that is not kept. The moment is the step's number. The steps before `first_counted` fill the cache
/// and are not counted. Fails where the evictor refuses the context. Precondition: the storages of a step are distinct.
template <evict::EvictionPolicy E>
[[nodiscard]] Result<CacheCounts> replay_steps(const Trace& trace, const evict::Context& context, E& evictor,
                                               std::size_t first_counted = 0) {
    if (auto attached = evictor.attach(context); !attached) { return attached.error(); }
    const std::span<const std::uint64_t> bytes = context.bytes;
    std::vector<std::uint8_t> is_here(bytes.size(), 0);
    std::vector<std::size_t> named_by(bytes.size(), trace.steps());  // the last step that did
    CacheCounts counts;
    std::uint64_t held = 0;
    for (std::size_t now = 0; now < trace.steps(); ++now) {
        const std::span<const StorageId> step = trace.step(now);
        for (const StorageId id : step) { named_by[index(id)] = now; }
        for (const StorageId id : step) {
            const std::uint64_t own = bytes[index(id)];
            const bool is_missed = is_here[index(id)] == 0;
            if (now >= first_counted) {
                ++counts.requests;
                counts.requested_bytes += own;
                counts.misses += is_missed ? 1U : 0U;
                counts.missed_bytes += is_missed ? own : 0U;
            }
            if (!is_missed || own > context.capacity_bytes) { continue; }
            std::optional<StorageId> victim = id;
            while (held > context.capacity_bytes - own && victim) {
                victim = evictor.victim(now, [&](StorageId other) { return named_by[index(other)] != now; });
                if (!victim) { break; }
                evictor.removed(*victim);
                is_here[index(*victim)] = 0;
                held -= bytes[index(*victim)];
            }
            if (!victim) { continue; }
            is_here[index(id)] = 1;
            held += own;
            evictor.inserted(id, now);
        }
        for (const StorageId id : step) {
            if (is_here[index(id)] != 0) { evictor.used(id, now); }
        }
    }
    return counts;
}

}  // namespace lab::trace
