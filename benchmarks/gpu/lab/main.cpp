// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The laboratory's comparison with real copies: compositions by budget on a decode at the shapes of Llama-3-8B (half of its layers),
// timed by events, the host waiting once a pass. Takes Google Benchmark's options.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/lab/streamed.hpp"
#include "benchmarks/gpu/pinned_weights.hpp"
#include "residency/core/measure/measure_link.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/use_order.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using residency::CudaDevice;
using residency::WeightId;
using streamed::Model;
using streamed::Runner;
using streamed::Setting;

constexpr int passes = 10, layers = 16;
constexpr std::uint64_t hidden = 4096, inner = 14336, key_value = 1024, vocabulary = 128256;

std::vector<std::vector<std::uint64_t>> steps_of_elements() {
    std::vector<std::vector<std::uint64_t>> steps;
    for (int i = 0; i < layers; ++i) {
        steps.push_back({hidden, hidden * hidden, key_value * hidden, key_value * hidden});
        steps.push_back({hidden * hidden});
        steps.push_back({hidden, inner * hidden, inner * hidden});
        steps.push_back({inner * hidden});
    }
    steps.push_back({hidden, vocabulary * hidden});
    return steps;
}

struct Bench {
    CudaDevice device;
    bench::Records records;
    bench::PinnedWeights weights;
    Model model;
    residency::UseOrder order;
    Setting setting;
    std::uint64_t expected = 0;  // the checksum of a pass
    double resident_seconds = 0;
    std::map<int, double> bounds;  // by percent

    Bench(CudaDevice opened, int argc, char** argv)
        : device{std::move(opened)}, records{"gpu-lab", argc, argv}, setting{device, model} {
        make_model();
        setting.stream = BENCH_RESULT(device.create_stream());
        setting.sum = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(8)));
        BENCH_CUDA(cudaMemset(setting.sum, 0, 8));
        setting.link = BENCH_RESULT(residency::try_measure_link(device));
        records.add("lab.weights", static_cast<double>(weights.bytes) / 1e9, "GB");
        records.add("lab.link.rate", setting.link.bytes_per_second / 1e9, "GB/s");
        records.add("lab.link.latency", setting.link.latency_seconds * 1e6, "us");
        // Everything resident: the steps' times, for the bounds.
        Setting all = setting;
        all.budget_bytes = 2 * weights.bytes;
        all.learn = true;
        const auto resident = streamed::make_planned(all);
        for (int i = 0; i < 4; ++i) { static_cast<void>(seconds(*resident)); }
        std::vector<double> times;
        for (int i = 0; i < passes; ++i) { times.push_back(seconds(*resident)); }
        resident_seconds = bench::median(times);
        records.add("lab.resident.time", resident_seconds * 1e3, "ms");
        model.schedule = resident->schedule();
    }
    ~Bench() {
        BENCH_RESULT(device.deallocate(setting.sum));
        BENCH_RESULT(device.destroy_stream(setting.stream));
        model = {};
        BENCH_RESULT(device.deallocate_host(weights.host));
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    /// Of one pass, by events on its stream, waited for.
    [[nodiscard]] double seconds(Runner& runner) const {
        return bench::StreamTimer{setting.stream}.seconds([&] { runner.pass(); });
    }
    [[nodiscard]] std::uint64_t take_sum() const {
        std::uint64_t sum = 0;
        BENCH_CUDA(cudaStreamSynchronize(setting.stream));
        BENCH_CUDA(cudaMemcpy(&sum, setting.sum, 8, cudaMemcpyDeviceToHost));
        BENCH_CUDA(cudaMemset(setting.sum, 0, 8));
        return sum;
    }

private:
    void make_model() {
        std::vector<std::vector<WeightId>> ids;
        for (const auto& step : steps_of_elements()) {
            ids.emplace_back();
            for (const std::uint64_t elements : step) {
                ids.back().push_back(weights.add("w" + std::to_string(weights.names.size()), elements));
            }
        }
        weights.build(device, ids);
        for (std::size_t i = 0; i < weights.names.size(); ++i) { expected += gpu::checksum(weights.bytes_of(i)); }
        model.catalog = weights.catalog;
        model.schedule = weights.schedule;
        std::vector<std::uint64_t> ends{0};
        std::vector<residency::StorageId> used;
        for (const auto& step : ids) {
            for (const WeightId id : step) { used.push_back(model.catalog.storage_of(id)); }
            ends.push_back(used.size());
        }
        order = BENCH_RESULT(residency::UseOrder::try_from(
            ends, used, static_cast<std::uint32_t>(model.catalog.storages().size()), residency::Cycle::cyclic));
    }
};

using Make = std::function<std::unique_ptr<Runner>(const Setting&)>;

void run(benchmark::State& state, Bench& all, const std::string& name, int percent, const Make& make) {
    Setting setting = all.setting;
    setting.budget_bytes = all.weights.bytes / 100 * static_cast<std::uint64_t>(percent);
    if (!all.bounds.contains(percent)) { all.bounds[percent] = streamed::make_planned(setting)->bound_seconds(); }
    const double bound = all.bounds.at(percent);
    const auto runner = make(setting);
    static_cast<void>(all.take_sum());
    int done = 0;
    for (; done < 3; ++done) { static_cast<void>(all.seconds(*runner)); }
    const std::uint64_t before = runner->statistics().total.fetched_bytes;
    std::vector<double> times;
    for (auto iteration : state) {
        static_cast<void>(iteration);
        times.push_back(all.seconds(*runner));
        state.SetIterationTime(times.back());
        ++done;
    }
    if (times.empty()) { return; }
    const residency::Statistics statistics = runner->statistics();
    const double fetched =
        static_cast<double>(statistics.total.fetched_bytes - before) / static_cast<double>(times.size());
    const bool is_right = all.take_sum() == all.expected * static_cast<std::uint64_t>(done);
    // The mean: what one pass leaves on its way shortens the next.
    const double time = std::reduce(times.begin(), times.end()) / static_cast<double>(times.size());
    state.counters["copied_a_second"] = fetched / time;
    state.counters["stall_ms"] = std::max(0.0, time - all.resident_seconds) * 1e3;
    state.counters["over_bound"] = time / bound;
    const std::string cell = "lab." + name + "." + std::to_string(percent) + "%.";
    all.records.add(cell + "time", time * 1e3, "ms");
    all.records.add(cell + "rate", fetched / time / 1e9, "GB/s");
    all.records.add(cell + "stall", std::max(0.0, time - all.resident_seconds) * 1e3, "ms");
    all.records.add(cell + "time_over_bound", time / bound, "ratio");
    all.records.add(cell + "wrong_checksums", is_right ? 0 : 1, "", "<= 0");
    if (!is_right) { state.SkipWithError("the weights that were read are not those of the model"); }
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 2; }
    Bench all{std::move(device), argc, argv};
    const std::vector<std::pair<std::string, Make>> compositions{
        {"planned", streamed::make_planned},
        {"belady+lookahead",
         [&](const Setting& setting) {
             return streamed::make_online(setting, lab::AnyEvictor{residency::evict::Belady{{.recorded = all.order}}},
                                          lab::AnyPrefetcher{residency::prefetch::Lookahead<4>{}});
         }},
        {"scheduled+scheduled",
         [](const Setting& setting) {
             return streamed::make_online(setting, lab::AnyEvictor{residency::evict::Scheduled{}},
                                          lab::AnyPrefetcher{residency::prefetch::Scheduled{}});
         }},
        {"lru+lookahead",
         [](const Setting& setting) {
             return streamed::make_online(setting, lab::AnyEvictor{residency::evict::Lru{}},
                                          lab::AnyPrefetcher{residency::prefetch::Lookahead<4>{}});
         }},
    };
    for (const auto& [name, make] : compositions) {
        for (const int percent : {25, 50, 75, 90}) {
            benchmark::RegisterBenchmark((name + "/" + std::to_string(percent) + "%").c_str(),
                                         [&all, &name = name, &make = make, percent](benchmark::State& state) {
                                             run(state, all, name, percent, make);
                                         })
                ->UseManualTime()
                ->Iterations(passes)
                ->Unit(benchmark::kMillisecond);
        }
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
