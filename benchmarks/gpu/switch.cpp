// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Three models of Llama-3-8B's shapes in bf16 that take turns in memory for 1.3 of them (ModelGroup): what a switch takes, from the request
// to the end of the first pass, over the bytes that it brings at the rate of bare copies; eager and as graphs, with each model's budget at
// all and at 60 % of its weights, raw and packed. What preparing the next model costs the one that runs. Then random switches of small models, every byte
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
#include "benchmarks/gpu/trained.hpp"
#include "benchmarks/gpu/turns.hpp"
#include "residency/broker/model_group.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed.hpp"
#include "residency/packed/pack.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/gpu/unpacker.hpp"

namespace {

using bench::Llama;
using residency::Budget;
using residency::BudgetBroker;
using residency::CudaDevice;
using residency::Schedule;
using Group = residency::ModelGroup<CudaDevice>;
using Raw = residency::Planned<CudaDevice>;
using Packed = residency::Packed<CudaDevice>;
using Stream = CudaDevice::Stream;
template <class Weights>
using GraphOf = decltype(std::declval<Weights&>().capture(Stream{}, std::declval<void (&)(typename Weights::Pass&)>()));

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

/// A model, and what it travels as.
struct Source {
    std::unique_ptr<Llama> model;
    std::vector<std::uint64_t> expected;
    residency::Catalog catalog;
};

/// A group's member.
template <class Weights>
struct Sleeper {
    const Llama* model;
    std::vector<std::uint64_t> expected;
    std::optional<Weights> weights{};
    Group::Member member{};
    std::optional<GraphOf<Weights>> graph{}, checking{};
};

/// Models that share memory for 1.3 of them.
template <class Weights>
class Sleepers {
public:
    using Sleeper = ::Sleeper<Weights>;
    Sleepers(CudaDevice& device, const std::vector<Source>& of, double share, const residency::plan::Link& link,
             std::uint64_t* sums, Stream stream)
        : stream_{stream},
          sums_{sums},
          broker_{{.total_bytes = of.front().model->bytes / 10 * 13}},
          group_{device, broker_} {
        for (const Source& source : of) {
            const Llama* const model = source.model.get();
            all_.push_back(std::make_unique<Sleeper>(Sleeper{model, source.expected}));
            Sleeper& each = *all_.back();
            typename Weights::Options options;
            // The image ends in a chunk of 2 MiB.
            const auto budget = static_cast<std::uint64_t>(static_cast<double>(model->bytes) * share) + (4U << 20U);
            options.budget = Budget::bytes(budget);
            options.schedule = model->schedule;
            options.learn = false;
            options.policies.link = link;
            options.policies.pool.stock = &group_.stock();
            if constexpr (requires { options.policies.unpacker; }) { options.policies.unpacker = &gpu::unpacker(); }
            BENCH_RESULT(group_.try_make_room(budget));
            each.weights.emplace(BENCH_RESULT(Weights::try_create(device, source.catalog, std::move(options))));
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
    [[nodiscard]] std::uint64_t total() const { return broker_.statistics().total_bytes / (2U << 20U) * (2U << 20U); }
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
template <class Weights>
void measure_switches(Sleepers<Weights>& sleepers, bench::BareCopies& bare, Stream stream, int rounds,
                      const std::string& name, bench::Records& records) {
    for (const bool as_graph : {false, true}) {
        std::vector<double> ratios, times, woken, bytes;
        double before = bare.rate();
        std::size_t wrong = 0;
        for (int i = 0; i < rounds * static_cast<int>(models); ++i) {
            auto& each = sleepers.at(static_cast<std::size_t>(i) % models);
            const std::uint64_t had = each.weights->statistics().total.fetched_bytes;
            const bool was_asleep = each.weights->is_suspended();
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
            if (i >= static_cast<int>(models) && was_asleep) {
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
        records.add(row + "sleep_and_wake", bench::median(woken) * 1e3, "ms");
        std::size_t awake = 0;
        for (const auto& account : sleepers.group().accounts()) { awake += account.is_awake ? 1U : 0U; }
        const double slept =
            bench::host_seconds([&] { BENCH_RESULT(sleepers.group().try_make_room(sleepers.total())); });
        records.add(row + "sleep", slept * 1e3 / static_cast<double>(awake), "ms", "<= 10");
        records.add(row + "wrong_weights", static_cast<double>(wrong), "weights", "<= 0");
    }
}

/// What the model that runs loses while the next one is prepared, and what the switch then brings.
template <class Weights>
void measure_prepare(Sleepers<Weights>& sleepers, Stream stream, const std::string& name, bench::Records& records) {
    for (const bool as_graph : {false, true}) {
        auto &runs = sleepers.at(0), &next = sleepers.at(2);
        std::vector<double> ratios;
        double prepared = 0;
        std::uint64_t left = 0;
        for (int round = 0; round < 5; ++round) {
            // Nothing of the next one is there.
            { const auto use = BENCH_RESULT(sleepers.group().try_activate(sleepers.at(1).member)); }
            {
                const auto use = BENCH_RESULT(sleepers.group().try_activate(runs.member));
                const auto passes = [&](bool prepares) {
                    constexpr int count = 10;
                    return bench::host_seconds([&] {
                        for (int i = 0; i < count; ++i) {
                            sleepers.run(runs, as_graph);
                            if (prepares) {
                                prepared +=
                                    static_cast<double>(BENCH_RESULT(sleepers.group().try_prepare(next.member)));
                            }
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

template <class Weights>
void measure_random(Sleepers<Weights>& sleepers, CudaDevice& device, int switches, const std::string& name,
                    bench::Records& records) {
    std::mt19937 random{20261129};
    std::size_t wrong = 0;
    std::uint64_t free_at_start = 0, least_free = UINT64_MAX;
    for (int i = 0; i < switches; ++i) {
        auto& each = sleepers.at(random() % models);
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

std::vector<Source> make_models(CudaDevice& device, const bench::Shape& shape, std::uint64_t* sums, Stream stream) {
    std::vector<Source> result(models);
    for (std::uint64_t i = 0; i < models; ++i) {
        result[i].model = std::make_unique<Llama>(
            device, shape, [i](std::uint64_t pattern) { return bench::trained(pattern ^ (i * 0x9e3779b97f4a7c15U)); });
        result[i].expected = sums_of(*result[i].model, sums, stream);
        result[i].catalog = result[i].model->catalog;
    }
    return result;
}
void give_back(CudaDevice& device, std::vector<Source>& all) {
    for (Source& each : all) {
        each.catalog = {};
        BENCH_RESULT(device.deallocate_host(each.model->host));
    }
}

template <class Weights>
void measure(CudaDevice& device, const std::vector<Source>& all, int rounds, const residency::plan::Link& link,
             std::uint64_t* sums, Stream stream, const std::string& title, bench::Records& records) {
    bench::BareCopies bare{device, *all.front().model, stream};
    for (const double share : {1.0, 0.6}) {
        const std::string name = title + std::to_string(static_cast<int>(share * 100)) + "%.";
        Sleepers<Weights> sleepers{device, all, share, link, sums, stream};
        measure_switches(sleepers, bare, stream, rounds, name, records);
        measure_prepare(sleepers, stream, name, records);
    }
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
    auto* const sums = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(4096 * 8)));
    const auto link = BENCH_RESULT(residency::try_measure_link(device));
    records.add(shape.name + ".link.rate", link.bytes_per_second / 1e9, "GB/s");
    for (const bool is_small : {false, true}) {
        auto all =
            make_models(device, is_small ? bench::Shape{"small", 1024, 3584, 8, 256, 8192} : shape, sums, stream);
        const auto each_way = [&]<class Weights>(std::optional<Weights>, const std::string& title) {
            if (!is_small) {
                measure<Weights>(device, all, rounds, link, sums, stream, title, records);
                return;
            }
            for (const double share : {1.0, 0.6}) {
                Sleepers<Weights> sleepers{device, all, share, link, sums, stream};
                measure_random(sleepers, device, switches,
                               title + "small." + std::to_string(static_cast<int>(share * 100)) + "%.", records);
            }
        };
        records.add(shape.name + (is_small ? ".small" : "") + ".weights",
                    static_cast<double>(all.front().model->bytes) / 1e9, "GB");
        each_way(std::optional<Raw>{}, shape.name + ".");
        for (Source& source : all) {
            source.catalog =
                BENCH_RESULT(residency::packed::try_pack(device, source.catalog, {}, &gpu::packer())).catalog;
        }
        each_way(std::optional<Packed>{}, shape.name + ".packed.");
        give_back(device, all);
    }
    BENCH_RESULT(device.deallocate(sums));
    BENCH_RESULT(device.destroy_stream(stream));
    return 0;
}
