// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/trace/replay.hpp"
#include "residency/trace/trace.hpp"

namespace lab {

/// One evictor on one trace with one budget, demand caching alone.
struct CacheJob {
    const residency::trace::Trace& trace;
    const residency::UseOrder& future;  ///< the whole trace; given to those that may know it
    std::uint64_t capacity_bytes;
    std::function<void(std::size_t accesses_done)> tick;
};

struct Evictor {
    std::string name;
    bool knows_future = false;  ///< sees the whole trace: an oracle, for comparison
    std::function<residency::Result<residency::trace::CacheCounts>(const CacheJob&)> cache;
};

/// The evictors of this program by name, in the order in which they were added.
inline std::vector<Evictor>& evictors() {
    static std::vector<Evictor> all;
    return all;
}

enum class Knows { past, future };

/// Adds an evictor to the comparison. One line in a source file of your own that is linked into the laboratory:
///
///     static const lab::AddEvictor<MyEvictor> mine{"mine"};
///
/// `make` gives it as you would configure it.
template <residency::evict::EvictionPolicy E>
struct AddEvictor {
    explicit AddEvictor(std::string name, Knows knows = Knows::past, std::function<E()> make = [] { return E{}; }) {
        const bool knows_future = knows == Knows::future;
        evictors().push_back(
            {std::move(name), knows_future, [knows_future, make = std::move(make)](const CacheJob& job) {
                 E evictor = make();
                 const residency::evict::Context context{job.trace.bytes, job.capacity_bytes,
                                                         knows_future ? &job.future : nullptr, job.trace.groups};
                 return residency::trace::replay_cache(job.trace.accesses, context, evictor, job.tick);
             }});
    }
};

}  // namespace lab
