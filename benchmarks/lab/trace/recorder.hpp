// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/trace.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/schedule.hpp"

namespace lab::trace {

using namespace residency;

/// Keeps what a run uses, step by step:
///
///     trace::Recorder recorder{catalog};
///     for (const auto& step : schedule) { recorder.step(step); … }
///     trace::save(recorder.take(), "run.trace");
class Recorder {
public:
    explicit Recorder(Catalog catalog) : catalog_{std::move(catalog)} { start(); }

    /// What a step of a schedule of this catalog reads.
    void step(const Schedule::Step& step) {
        trace_.add_step(step.storages, step.compute ? step.compute->count() : Trace::unknown);
    }
    /// The storages of some weights, each once. Precondition: the ids are the catalog's.
    void step(std::span<const WeightId> weights, std::optional<std::chrono::nanoseconds> compute = std::nullopt) {
        ++steps_;
        storages_.clear();
        for (const WeightId weight : weights) {
            const StorageId storage = catalog_.storage_of(weight);
            if (std::exchange(seen_in_[index(storage)], steps_) != steps_) { storages_.push_back(storage); }
        }
        trace_.add_step(storages_, compute ? compute->count() : Trace::unknown);
    }
    [[nodiscard]] const Trace& trace() const noexcept { return trace_; }
    /// Gives the trace away and starts over.
    [[nodiscard]] Trace take() {
        Trace taken = std::move(trace_);
        trace_ = {};
        start();
        return taken;
    }

private:
    void start() {
        trace_.catalog_hash = catalog_.hash();
        for (const Storage& storage : catalog_.storages()) { trace_.bytes.push_back(storage.bytes); }
        seen_in_.assign(trace_.bytes.size(), 0);
        steps_ = 0;
    }

    Catalog catalog_;
    Trace trace_;
    std::vector<StorageId> storages_;
    std::vector<std::uint64_t> seen_in_;  // by storage: the number of the step
    std::uint64_t steps_ = 0;
};

}  // namespace lab::trace
