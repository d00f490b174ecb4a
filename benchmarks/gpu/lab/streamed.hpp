// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "benchmarks/lab/any_policy.hpp"
#include "residency/budget/budget.hpp"
#include "residency/core/measure/statistics.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog.hpp"
#include "residency/model/schedule.hpp"
#include "residency/plan/problem.hpp"
#include "tests/gpu/harness.hpp"

/// Compositions on a GPU, real copies and one kernel a step that reads its weights at the speed of the memory.
namespace streamed {

struct Model {
    residency::Catalog catalog;
    residency::Schedule schedule;
};

struct Setting {
    residency::CudaDevice& device;
    const Model& model;
    std::uint64_t budget_bytes = 0;
    residency::plan::Link link{};
    bool learn = false;
    std::uint64_t* sum = nullptr;  ///< on the device: checksums of what was read are added to it
    residency::CudaDevice::Stream stream{};
};

/// One composition, whichever.
class Runner {
public:
    Runner() = default;
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;
    virtual ~Runner() = default;
    /// Enqueues a pass.
    virtual void pass() = 0;
    [[nodiscard]] virtual residency::Statistics statistics() const = 0;
    [[nodiscard]] virtual residency::Schedule schedule() const = 0;
    [[nodiscard]] virtual double bound_seconds() const { return 0; }
};

template <class Weights>
class RunnerOf : public Runner {
public:
    RunnerOf(const Setting& setting, typename Weights::Options options)
        : setting_{setting},
          weights_{BENCH_RESULT(Weights::try_create(setting.device, setting.model.catalog, std::move(options)))} {}
    ~RunnerOf() override {
        if (weights_.failure()) { std::fprintf(stderr, "failed: %s\n", weights_.failure()->message().c_str()); }
    }
    void pass() override {
        auto pass = BENCH_RESULT(weights_.try_begin(setting_.stream));
        for (const residency::Schedule::Step& step : weights_.schedule()) {
            const auto lease = BENCH_RESULT(pass.try_acquire(step));
            ranges_.clear();
            for (const residency::WeightId id : step.weights) {
                ranges_.push_back({lease.data(id), setting_.model.catalog.weight(id).bytes});
            }
            BENCH_CUDA(gpu::launch_checksum(ranges_, setting_.sum, setting_.stream));
        }
        BENCH_RESULT(pass.try_end());
    }
    [[nodiscard]] residency::Statistics statistics() const override { return weights_.statistics(); }
    [[nodiscard]] residency::Schedule schedule() const override { return weights_.schedule(); }

protected:
    [[nodiscard]] const Weights& weights() const { return weights_; }

private:
    Setting setting_;
    Weights weights_;
    std::vector<gpu::Range> ranges_;
};

template <class Weights>
[[nodiscard]] typename Weights::Options options_of(const Setting& setting) {
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(setting.budget_bytes);
    options.schedule = setting.model.schedule;
    if constexpr (requires { options.learn; }) { options.learn = setting.learn; }
    return options;
}

[[nodiscard]] std::unique_ptr<Runner> make_online(const Setting& setting, lab::AnyEvictor evictor,
                                                  lab::AnyPrefetcher prefetcher);
[[nodiscard]] std::unique_ptr<Runner> make_planned(const Setting& setting);

}  // namespace streamed
