// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Three models of Llama-3-8B's shapes in bf16 that take turns in memory for 1.3 of them (ModelGroup): what a switch takes, from the request
// to the end of the first pass, over the bytes that it brings at the rate of bare copies; eager and as graphs, with each model's budget at
// all and at 60 % of its weights. What preparing the next model costs the one that runs. Then random switches of small models, every byte
// checked.
//
//   bench_switch [layers] [rounds] [random switches]        by default all layers, 4 rounds of three switches, 1,000
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/llama.hpp"
#include "benchmarks/gpu/record.hpp"
#include "benchmarks/gpu/turns.hpp"
#include "residency/broker/model_group.hpp"
#include "residency/device/cuda.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using bench::Llama;
using residency::Budget;
using residency::BudgetBroker;
using residency::CudaDevice;
using residency::Schedule;
using Group = residency::ModelGroup<CudaDevice>;
using Weights = residency::Planned<CudaDevice>;
using Stream = CudaDevice::Stream;
using Graph = decltype(std::declval<Weights&>().capture(Stream{}, std::declval<void (&)(Weights::Pass&)>()));

constexpr std::size_t models = 3;

/// What kernels must find, by weight, from copies that the library has no part in.
std::vector<std::uint64_t> sums_of(const Llama& model, std::uint64_t* sums, Stream stream) {
    void* room = nullptr;
    BENCH_CUDA(cudaMalloc(&room, *std::max_element(model.sizes.begin(), model.sizes.end())));
    BENCH_CUDA(cudaMemset(sums, 0, model.sizes.size() * 8));
    for (std::size_t i = 0; i < model.sizes.size(); ++i) {
        BENCH_CUDA(cudaMemcpyAsync(room, model.bytes_of(i).data(), model.sizes[i], cudaMemcpyHostToDevice, stream));
        BENCH_CUDA(gpu::launch_checksum({static_cast<const std::byte*>(room), model.sizes[i]}, sums + i, stream));
    }
    std::vector<std::uint64_t> result(model.sizes.size());
    BENCH_CUDA(cudaStreamSynchronize(stream));
    BENCH_CUDA(cudaMemcpy(result.data(), sums, result.size() * 8, cudaMemcpyDeviceToHost));
    BENCH_CUDA(cudaFree(room));
    return result;
}

/// A model, and a group's member.
struct Sleeper {
    const Llama* model;
    std::vector<std::uint64_t> expected;
    std::optional<Weights> weights{};
    Group::Member member{};
    std::optional<Graph> graph{}, checking{};
};

/// Models that share memory for 1.3 of them.
class Sleepers {
public:
    Sleepers(CudaDevice& device, const std::vector<std::unique_ptr<Llama>>& of, double share,
             const residency::plan::Link& link, std::uint64_t* sums, Stream stream)
        : stream_{stream}, sums_{sums}, broker_{{.total_bytes = of.front()->bytes / 10 * 13}}, group_{device, broker_} {
        for (const auto& model : of) {
            all_.push_back(std::make_unique<Sleeper>(Sleeper{model.get(), sums_of(*model, sums, stream)}));
            Sleeper& each = *all_.back();
            Weights::Options options;
            // The image ends in a chunk of 2 MiB.
            const auto budget = static_cast<std::uint64_t>(static_cast<double>(model->bytes) * share) + (4U << 20U);
            options.budget = Budget::bytes(budget);
            options.schedule = model->schedule;
            options.learn = false;
            options.policies.link = link;
            options.policies.pool.stock = &group_.stock();
            BENCH_RESULT(group_.try_make_room(budget));
            each.weights.emplace(BENCH_RESULT(Weights::try_create(device, model->catalog, std::move(options))));
            each.member = BENCH_RESULT(group_.try_add(*each.weights, {.name = "model " + std::to_string(all_.size())}));
            const auto use = BENCH_RESULT(group_.try_activate(each.member));
            for (auto* graph : {&each.graph, &each.checking}) {
                graph->emplace(BENCH_RESULT(each.weights->try_capture(stream, [&](auto& pass) {
                    bench::run_steps(pass, *model, model->schedule, sums, graph == &each.checking, stream);
                })));
            }
        }
    }
    Sleepers(const Sleepers&) = delete;
    Sleepers& operator=(const Sleepers&) = delete;
    ~Sleepers() {
        for (auto& each : all_) {
            each->graph.reset();
            each->checking.reset();
            each->member = {};
        }
    }

    [[nodiscard]] Sleeper& at(std::size_t i) { return *all_[i]; }
    [[nodiscard]] Group& group() { return group_; }
    void run(Sleeper& each, bool as_graph) {
        if (as_graph) {
            BENCH_RESULT(each.graph->try_launch(stream_));
        } else {
            bench::run_pass(*each.weights, *each.model, sums_, false, stream_);
        }
    }
    /// Weights of which a pass read a wrong byte.
    [[nodiscard]] std::size_t check(Sleeper& each, bool as_graph) {
        BENCH_CUDA(cudaMemsetAsync(sums_, 0, each.expected.size() * 8, stream_));
        if (as_graph) {
            BENCH_RESULT(each.checking->try_launch(stream_));
        } else {
            bench::run_pass(*each.weights, *each.model, sums_, true, stream_);
        }
        BENCH_CUDA(cudaStreamSynchronize(stream_));
        std::vector<std::uint64_t> got(each.expected.size());
        BENCH_CUDA(cudaMemcpy(got.data(), sums_, got.size() * 8, cudaMemcpyDeviceToHost));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i) { wrong += got[i] != each.expected[i] ? 1U : 0U; }
        return wrong;
    }

private:
    Stream stream_;
    std::uint64_t* sums_;
    BudgetBroker broker_;
    Group group_;
    std::vector<std::unique_ptr<Sleeper>> all_;
};

/// The switches of a share: each wakes the model that was used least recently.
void measure_switches(Sleepers& sleepers, bench::BareCopies& bare, Stream stream, int rounds, const std::string& name,
                      bench::Records& records) {
    for (const bool as_graph : {false, true}) {
        std::vector<double> ratios, times, woken, bytes;
        double before = bare.rate();
        std::size_t wrong = 0;
        for (int i = 0; i < rounds * static_cast<int>(models); ++i) {
            Sleeper& each = sleepers.at(static_cast<std::size_t>(i) % models);
            const std::uint64_t had = each.weights->statistics().total.fetched_bytes;
            double wake = 0;
            std::optional<Group::Use> use;
            const double seconds = bench::host_seconds([&] {
                wake =
                    bench::host_seconds([&] { use.emplace(BENCH_RESULT(sleepers.group().try_activate(each.member))); });
                sleepers.run(each, as_graph);
                BENCH_CUDA(cudaStreamSynchronize(stream));
            });
            const double fetched = static_cast<double>(each.weights->statistics().total.fetched_bytes - had);
            const double after = bare.rate();
            if (i >= static_cast<int>(models)) {
                ratios.push_back(seconds / (fetched / ((before + after) / 2)));
                times.push_back(seconds);
                woken.push_back(wake);
                bytes.push_back(fetched);
            }
            before = after;
            wrong += sleepers.check(each, as_graph);
        }
        const std::string row = name + (as_graph ? "graph." : "eager.");
        records.add(row + "switch_and_first_pass", bench::median(times) * 1e3, "ms");
        records.add(row + "bytes", bench::median(bytes) / 1e9, "GB");
        records.add(row + "over_bytes_at_the_link", bench::median(ratios), "ratio", "<= 1.05");
        records.add(row + "sleep_and_wake", bench::median(woken) * 1e3, "ms", "<= 10");
        records.add(row + "wrong_weights", static_cast<double>(wrong), "weights", "<= 0");
    }
}

/// What the model that runs loses while the next one is prepared, and what the switch then brings.
void measure_prepare(Sleepers& sleepers, Stream stream, const std::string& name, bench::Records& records) {
    for (const bool as_graph : {false, true}) {
        Sleeper &runs = sleepers.at(0), &next = sleepers.at(1);
        std::vector<double> ratios;
        double prepared = 0;
        std::uint64_t left = 0;
        for (int round = 0; round < 5; ++round) {
            // Nothing of the next one is there: a third one was woken since.
            { const auto use = BENCH_RESULT(sleepers.group().try_activate(sleepers.at(2).member)); }
            {
                const auto use = BENCH_RESULT(sleepers.group().try_activate(runs.member));
                const auto passes = [&](bool prepares) {
                    constexpr int count = 10;
                    return bench::host_seconds([&] {
                        for (int i = 0; i < count; ++i) {
                            if (prepares) {
                                prepared +=
                                    static_cast<double>(BENCH_RESULT(sleepers.group().try_prepare(next.member)));
                            }
                            sleepers.run(runs, as_graph);
                            BENCH_CUDA(cudaStreamSynchronize(stream));
                        }
                    });
                };
                for (int i = 0; i < 3; ++i) { sleepers.run(runs, as_graph); }
                BENCH_CUDA(cudaDeviceSynchronize());
                const double alone = passes(false);
                ratios.push_back(passes(true) / alone);
                BENCH_CUDA(cudaDeviceSynchronize());
            }
            const std::uint64_t had = next.weights->statistics().total.fetched_bytes;
            const auto use = BENCH_RESULT(sleepers.group().try_activate(next.member));
            sleepers.run(next, as_graph);
            BENCH_CUDA(cudaStreamSynchronize(stream));
            left += next.weights->statistics().total.fetched_bytes - had;
        }
        const std::string row = name + (as_graph ? "graph." : "eager.");
        records.add(row + "prepared", prepared / 5e9, "GB");
        records.add(row + "left_to_bring", static_cast<double>(left) / 5e9, "GB");
        records.add(row + "pass_while_preparing_over_alone", bench::median(ratios), "ratio", "<= 1.02");
    }
}

void measure_random(Sleepers& sleepers, CudaDevice& device, int switches, const std::string& name,
                    bench::Records& records) {
    std::mt19937 random{20261129};
    std::size_t wrong = 0;
    std::uint64_t free_at_start = 0, least_free = UINT64_MAX;
    for (int i = 0; i < switches; ++i) {
        Sleeper& each = sleepers.at(random() % models);
        const auto use = BENCH_RESULT(sleepers.group().try_activate(each.member));
        for (std::size_t other = 0; other < models && random() % 2 == 0; ++other) {
            static_cast<void>(BENCH_RESULT(sleepers.group().try_prepare(sleepers.at(other).member)));
        }
        wrong += sleepers.check(each, random() % 2 == 0);
        const std::uint64_t free = BENCH_RESULT(device.memory()).free_bytes;
        if (i == switches / 10) { free_at_start = free; }
        if (i >= switches / 10) { least_free = std::min(least_free, free); }
    }
    records.add(name + "random_switches", switches, "switches");
    records.add(name + "wrong_weights", static_cast<double>(wrong), "weights", "<= 0");
    records.add(name + "growth", static_cast<double>(free_at_start - least_free), "bytes", "<= 0");
}

std::vector<std::unique_ptr<Llama>> make_models(CudaDevice& device, const bench::Shape& shape) {
    std::vector<std::unique_ptr<Llama>> result;
    for (std::uint64_t i = 0; i < models; ++i) {
        result.push_back(std::make_unique<Llama>(
            device, shape, [i](std::uint64_t pattern) { return pattern ^ (i * 0x9e3779b97f4a7c15U); }));
    }
    return result;
}
void give_back(CudaDevice& device, std::vector<std::unique_ptr<Llama>>& all) {
    for (const auto& model : all) { BENCH_RESULT(device.deallocate_host(model->host)); }
    all.clear();
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Shape shape{"switch", 4096, 14336, 32};
    if (argc > 1) { shape.layers = static_cast<std::uint32_t>(std::atoi(argv[1])); }
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 4;
    const int switches = argc > 3 ? std::atoi(argv[3]) : 1000;
    bench::Records records{"gpu-switch", argc, argv};
    const Stream stream = BENCH_RESULT(device.create_stream());
    auto all = make_models(device, shape);
    auto* const sums = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(all.front()->sizes.size() * 8)));
    const auto link = BENCH_RESULT(residency::try_measure_link(device));
    records.add(shape.name + ".link.rate", link.bytes_per_second / 1e9, "GB/s");
    records.add(shape.name + ".weights", static_cast<double>(all.front()->bytes) / 1e9, "GB");
    {
        bench::BareCopies bare{device, *all.front(), stream};
        for (const double share : {1.0, 0.6}) {
            const std::string name = shape.name + "." + std::to_string(static_cast<int>(share * 100)) + "%.";
            Sleepers sleepers{device, all, share, link, sums, stream};
            measure_switches(sleepers, bare, stream, rounds, name, records);
            measure_prepare(sleepers, stream, name, records);
        }
    }
    give_back(device, all);
    all = make_models(device, {"small", 1024, 3584, 8, 256, 8192});
    for (const double share : {1.0, 0.6}) {
        Sleepers sleepers{device, all, share, link, sums, stream};
        measure_random(sleepers, device, switches,
                       shape.name + ".small." + std::to_string(static_cast<int>(share * 100)) + "%.", records);
    }
    give_back(device, all);
    BENCH_RESULT(device.deallocate(sums));
    BENCH_RESULT(device.destroy_stream(stream));
    return 0;
}
