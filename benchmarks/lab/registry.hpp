// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/any_policy.hpp"
#include "benchmarks/lab/run_job.hpp"
#include "benchmarks/lab/trace/replay.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/model/use_order.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"

namespace lab {

/// One evictor on one trace with one budget, demand caching alone.
struct CacheJob {
    const lab::trace::Trace& trace;
    const residency::UseOrder& future;  ///< the whole trace; given to those that may know it
    std::uint64_t capacity_bytes;
    std::function<void(std::size_t accesses_done)> tick;
};

/// One evictor on one trace by steps, as the core acquires; see lab::trace::replay_steps.
struct StepsJob {
    const lab::trace::Trace& trace;
    const residency::UseOrder& future;  ///< by steps; given to those that may know it
    std::uint64_t capacity_bytes;
    std::size_t first_counted;
};

struct Evictor {
    std::string name;
    bool knows_future = false;  ///< sees the whole trace: an oracle, for comparison
    std::function<residency::Result<lab::trace::CacheCounts>(const CacheJob&)> cache;
    std::function<residency::Result<lab::trace::CacheCounts>(const StepsJob&)> steps;
};

/// Policies that run on the simulated device.
struct Composition {
    std::string name;
    bool knows_future = false;
    bool needs_order = false;    ///< makes no sense where the order of the steps is not known
    bool needs_guesses = false;  ///< makes no sense where it is
    bool is_default = false;     ///< part of the default comparison
    std::function<residency::Result<RunCounts>(const RunJob&)> run;
    bool packs = false;  ///< weights are packed: it has a bound of its own
};

/// The evictors of this program by name, in the order in which they were added.
inline std::vector<Evictor>& evictors() {
    static std::vector<Evictor> all;
    return all;
}
inline std::vector<Composition>& compositions() {
    static std::vector<Composition> all;
    return all;
}

enum class Knows { past, future };
enum class In { default_comparison, when_named };

/// Adds an evictor to every comparison: `cache`, `router`, and `run` with prefetch::Lookahead<4> and pool::StreamOrdered. One line in a
/// source file of your own that is linked into the laboratory, such as one in its folder:
///
///     static const lab::AddEvictor<MyEvictor> mine{"mine"};
///
/// `make` gives it as you would configure it.
template <residency::evict::EvictionPolicy E>
struct AddEvictor {
    using Make = std::function<E(const Setting&)>;

    explicit AddEvictor(
        std::string name, In in = In::default_comparison, Knows knows = Knows::past,
        Make make = [](const Setting&) { return E{}; }) {
        const bool knows_future = knows == Knows::future;
        evictors().push_back(
            {name, knows_future,
             [knows_future, make](const CacheJob& job) {
                 E evictor = make({job.trace.groups, &job.future});
                 const residency::evict::Context context{job.trace.bytes, job.capacity_bytes,
                                                         knows_future ? &job.future : nullptr, job.trace.groups};
                 return lab::trace::replay_cache(job.trace.accesses, context, evictor, job.tick);
             },
             [knows_future, make](const StepsJob& job) {
                 E evictor = make({job.trace.groups, &job.future});
                 const residency::evict::Context context{job.trace.bytes, job.capacity_bytes,
                                                         knows_future ? &job.future : nullptr, job.trace.groups};
                 return lab::trace::replay_steps(job.trace, context, evictor, job.first_counted);
             }});
        compositions().push_back({std::move(name), knows_future, false, false, in == In::default_comparison,
                                  [make = std::move(make)](const RunJob& job) {
                                      return run_online(
                                          job, [&](const Setting& setting) { return AnyEvictor{make(setting)}; },
                                          [] { return AnyPrefetcher{residency::prefetch::Lookahead<4>{}}; });
                                  }});
    }
};

/// Adds an evictor together with a prefetcher to `run`.
template <residency::evict::EvictionPolicy E, residency::prefetch::PrefetchPolicy P>
struct AddComposition {
    explicit AddComposition(std::string name, In in = In::default_comparison, bool needs_order = false) {
        compositions().push_back(
            {std::move(name), false, needs_order, false, in == In::default_comparison, [](const RunJob& job) {
                 return run_online(
                     job, [](const Setting&) { return AnyEvictor{E{}}; }, [] { return AnyPrefetcher{P{}}; });
             }});
    }
};

/// Adds any other way to run.
struct AddRun {
    explicit AddRun(Composition composition) { compositions().push_back(std::move(composition)); }
};

}  // namespace lab
