// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/lab/packing.hpp"
#include "benchmarks/lab/run_job.hpp"
#include "benchmarks/lab/workload.hpp"
#include "residency/core/residency.hpp"
#include "residency/model/host_bytes.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/model/use_order.hpp"
#include "residency/prefetch/hinted.hpp"

namespace lab {

/// The catalog of a workload over pinned host memory, one weight a storage. Of memory that is smaller than all weights together,
/// several lie at the same place: their contents do not matter here.
inline residency::Result<residency::Catalog> catalog_of(const Workload& work,
                                                        const std::shared_ptr<const residency::HostBytes>& host) {
    std::vector<StoredBytes> stored;
    stored.reserve(work.bytes.size());
    std::uint64_t at = 0;
    for (const std::uint64_t bytes : work.bytes) {
        if (at + bytes > host->span().size()) { at = 0; }
        stored.push_back({at, bytes});
        at += aligned(bytes);
    }
    return catalog_of(work, host, stored);
}

inline std::vector<residency::WeightId> weights_of(const Workload::Step& step) {
    std::vector<residency::WeightId> weights;
    for (const residency::StorageId id : step.storages) { weights.push_back(residency::WeightId{index(id)}); }
    return weights;
}

/// The schedule of a workload whose order is known; without steps otherwise.
inline residency::Result<residency::Schedule> schedule_of(const Workload& work, const residency::Catalog& catalog,
                                                          const Card& card) {
    if (!work.is_known) { return residency::Schedule{}; }
    residency::ScheduleBuilder builder{catalog};
    for (const Workload::Step& step : work.steps) {
        const std::vector<residency::WeightId> weights = weights_of(step);
        builder.step(std::span<const residency::WeightId>{weights}, work.compute(step, card));
    }
    return builder.try_build();
}

/// The run by moments. Where the order is not known the core counts acquisitions, from 1.
inline residency::Result<residency::UseOrder> future_of(const Workload& work) {
    std::vector<std::uint64_t> offsets{0};
    std::vector<residency::StorageId> storages;
    if (!work.is_known) { offsets.push_back(0); }
    for (const Workload::Step& step : work.steps) {
        storages.insert(storages.end(), step.storages.begin(), step.storages.end());
        offsets.push_back(storages.size());
    }
    return residency::UseOrder::try_from(offsets, storages, static_cast<std::uint32_t>(work.bytes.size()),
                                         work.is_known ? residency::Cycle::cyclic : residency::Cycle::one_shot);
}

/// A router's guess of a step's experts: each right one with probability `recall`, a wrong one in its place otherwise.
class Guesser {
public:
    Guesser(const Workload& work, double recall) : work_{work}, recall_{recall} {
        for (std::uint32_t i = 0; i < work.bytes.size(); ++i) {
            if (work.resident[i]) { continue; }
            if (work.layers[i] >= by_layer_.size()) { by_layer_.resize(work.layers[i] + 1); }
            by_layer_[work.layers[i]].push_back(residency::StorageId{i});
        }
    }
    [[nodiscard]] std::span<const residency::prefetch::Hint> guess(const Workload::Step& step) {
        hints_.clear();
        for (const residency::StorageId id : step.storages) {
            if (work_.resident[index(id)]) { continue; }
            const auto& layer = by_layer_[work_.layers[index(id)]];
            const bool is_right = static_cast<double>(random_() % 4096) / 4096 < recall_;
            const float probability = 1 - 0.05F * static_cast<float>(std::min<std::size_t>(hints_.size(), 15));
            hints_.push_back({is_right ? id : layer[random_() % layer.size()], probability});
        }
        return hints_;
    }

private:
    const Workload& work_;
    double recall_;
    std::mt19937 random_{1};
    std::vector<std::vector<residency::StorageId>> by_layer_;
    std::vector<residency::prefetch::Hint> hints_;
};

/// Runs a composition through the real core on a machine: warms up, then measures passes, the host waiting for the device after
/// each as a program waits for a token, and before each routed step as one waits for its router. `configure(setting, options)`
/// sets the policies' knobs.
///
/// A machine has `device()`; `host(bytes)`, pinned memory or some of it; `launch(stream, name, duration)`, a kernel; and, in a last
/// pass that is drawn, `observe(catalog)`, `begin_step(name, statistics)` and `end_observing()`, the trace.
template <class Weights, class Machine, class Configure>
residency::Result<RunCounts> measure(const RunJob& job, Machine& machine, const residency::Catalog& catalog,
                                     Configure configure) {
    const Workload& work = job.work;
    auto& device = machine.device();
    auto schedule = schedule_of(work, catalog, job.card);
    if (!schedule) { return schedule.error(); }
    const auto future = future_of(work);
    if (!future) { return future.error(); }
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(job.budget_bytes);
    options.schedule = *schedule;
    configure(Setting{work.layers, &*future}, options);
    const auto stream = device.create_stream();
    if (!stream) { return stream.error(); }
    struct Closing {
        decltype(device) of;
        typename Weights::Stream stream;
        ~Closing() { static_cast<void>(of.destroy_stream(stream).has_value()); }
    } const closing{device, *stream};
    auto weights = Weights::try_create(device, catalog, std::move(options));
    if (!weights) { return weights.error(); }

    std::vector<std::vector<residency::WeightId>> asked;
    std::vector<std::chrono::nanoseconds> times;
    for (const Workload::Step& step : work.steps) {
        asked.push_back(weights_of(step));
        times.push_back(work.compute(step, job.card));
    }
    std::vector<std::size_t> next_routed(work.steps.size(), work.steps.size());
    for (std::size_t i = work.steps.size(); i-- > 1;) {
        next_routed[i - 1] = work.steps[i].is_routed ? i : next_routed[i];
    }
    Guesser guesser{work, job.recall};
    bool is_observed = false;
    const auto run_pass = [&](std::size_t first, std::size_t last) -> residency::Status {
        auto pass = weights->try_begin(*stream);
        if (!pass) { return pass.error(); }
        for (std::size_t i = first; i < last; ++i) {
            if (work.steps[i].is_routed) {
                if (auto waited = pass->try_wait(); !waited) { return waited; }
            }
            if (is_observed) { machine.begin_step("step " + std::to_string(i - first), weights->statistics()); }
            auto lease = work.is_known ? pass->try_acquire((*schedule)[static_cast<std::uint32_t>(i)])
                                       : pass->try_acquire(std::span<const residency::WeightId>{asked[i]});
            if (!lease) { return lease.error(); }
            if constexpr (requires { weights->prefetcher().hint({}); }) {
                // After the acquisition, so that what is needed now travels first: the next layer's experts.
                if (const std::size_t next = next_routed[i];
                    work.steps[i].is_routed && job.recall > 0 && next < work.steps.size()) {
                    if (auto hinted = weights->prefetcher().hint(guesser.guess(work.steps[next])); !hinted) {
                        return hinted;
                    }
                }
            }
            const std::string_view name = work.steps[i].storages.empty()
                                              ? "kernel"
                                              : std::string_view{work.names[index(work.steps[i].storages.back())]};
            if (auto launched = machine.launch(*stream, name, times[i]); !launched) { return launched; }
        }
        if (auto ended = pass->try_end(); !ended) { return ended; }
        return device.synchronize(*stream);
    };

    const std::size_t passes = work.is_known ? 2 * std::size_t{job.passes} : work.pass_ends.size();
    const std::size_t warm = work.is_known ? job.passes : passes / 3;
    RunCounts counts;
    std::chrono::nanoseconds begin{};
    residency::Counters before;
    for (std::size_t pass = 0; pass < passes; ++pass) {
        if (pass == warm) {
            begin = device.host_time();
            before = weights->statistics().total;
        }
        is_observed = pass + 1 == passes && job.timeline != nullptr;
        if (is_observed) { machine.observe(catalog); }
        const std::size_t first = work.is_known || pass == 0 ? 0 : work.pass_ends[pass - 1];
        const std::size_t last = work.is_known ? work.steps.size() : work.pass_ends[pass];
        if (auto ran = run_pass(first, last); !ran) { return ran.error(); }
        if (is_observed) { *job.timeline = machine.end_observing(); }
        if (pass >= warm) {
            for (std::size_t i = first; i < last; ++i) {
                counts.compute_seconds += std::chrono::duration<double>(times[i]).count();
                for (const residency::StorageId id : work.steps[i].storages) {
                    counts.requested_bytes += work.resident[index(id)] ? 0 : static_cast<double>(work.bytes[index(id)]);
                }
            }
        }
    }
    const double measured = static_cast<double>(passes - warm);
    counts.pass_seconds = std::chrono::duration<double>(device.host_time() - begin).count() / measured;
    const residency::Statistics statistics = weights->statistics();
    const residency::Counters total = statistics.total - before;
    counts.compute_seconds /= measured;
    counts.requested_bytes /= measured;
    counts.fetched_bytes = static_cast<double>(total.fetched_bytes) / measured;
    counts.missed_bytes = static_cast<double>(total.missed_bytes) / measured;
    counts.ahead_bytes = static_cast<double>(total.prefetch_hit_bytes) / measured;
    counts.budget_bytes = statistics.budget_bytes;
    counts.is_streaming = statistics.streaming;
    counts.held_bytes = statistics.held_bytes;
    counts.host_waits = total.host_waits;
    if constexpr (requires { weights->exact_bound(); }) { counts.packed_bound_seconds = weights->exact_bound(); }
    return counts;
}
/// The same of raw weights.
template <class Weights, class Machine, class Configure>
residency::Result<RunCounts> measure(const RunJob& job, Machine& machine, Configure configure) {
    auto host = machine.host(job.work.host_bytes());
    if (!host) { return host.error(); }
    auto catalog = catalog_of(job.work, *host);
    if (!catalog) { return catalog.error(); }
    return measure<Weights>(job, machine, *catalog, std::move(configure));
}

}  // namespace lab
