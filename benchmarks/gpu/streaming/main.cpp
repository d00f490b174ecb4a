// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A whole Residency against what the same GPU does without one: streaming, small weights, everything resident, host cost.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/device/cuda.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/evict/queues.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using residency::Budget;
using residency::Catalog;
using residency::Copy;
using residency::CudaDevice;
using residency::Schedule;
using residency::StorageId;
using residency::WeightId;

constexpr std::uint64_t KiB = 1024, MiB = KiB * 1024;

using Slab = residency::pool::Slab<CudaDevice>;
/// Everything is streamed, in order.
using Streamed = residency::Residency<residency::evict::Fifo, residency::prefetch::Lookahead<4>, Slab>;
/// The schedule decides at run time who leaves and what comes.
using Scheduled = residency::Residency<residency::evict::Scheduled, residency::prefetch::Scheduled, Slab>;
/// A plan decides beforehand.
using Planned =
    residency::Residency<residency::evict::Planned, residency::prefetch::Planned, residency::pool::Virtual<CudaDevice>>;

/// Weights of one size over pinned bytes, each step reading the next `per_step` of them.
struct Model {
    std::byte* host;
    std::uint64_t weight_bytes;
    std::size_t weights;
    std::size_t per_step;
    Catalog catalog;
    Schedule schedule;

    Model(CudaDevice& device, std::uint64_t bytes, std::size_t count, std::size_t each)
        : host{static_cast<std::byte*>(BENCH_RESULT(device.allocate_host(bytes * count)))},
          weight_bytes{bytes},
          weights{count},
          per_step{each} {
        const auto held = residency::HostBytes::borrow({host, bytes * count}, residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        for (std::size_t i = 0; i < count; ++i) {
            builder.add("w" + std::to_string(i), residency::dtype::u8, {bytes}, residency::HostSource{held, i * bytes});
        }
        catalog = BENCH_RESULT(builder.try_build());
        residency::ScheduleBuilder steps{catalog};
        for (std::size_t i = 0; i < count; i += each) {
            std::vector<WeightId> ids;
            for (std::size_t k = i; k < i + each; ++k) { ids.push_back(WeightId{static_cast<std::uint32_t>(k)}); }
            steps.step(std::span<const WeightId>{ids});
        }
        schedule = BENCH_RESULT(steps.try_build());
    }
    [[nodiscard]] std::uint64_t bytes() const noexcept { return weight_bytes * weights; }
};

/// One pass, one kernel a step that reads all of its weights.
template <class Weights>
void run_pass(Weights& weights, std::uint64_t* sum, cudaStream_t stream) {
    auto pass = BENCH_RESULT(weights.try_begin(stream));
    gpu::Range ranges[gpu::most_ranges];
    for (const Schedule::Step& step : weights.schedule()) {
        auto lease = BENCH_RESULT(pass.try_acquire(step));
        std::size_t count = 0;
        for (const WeightId id : step.weights) {
            ranges[count++] = {lease.data(id), weights.catalog().weight(id).bytes};
        }
        if (count == 1) {
            BENCH_CUDA(gpu::launch_checksum(ranges[0], sum, stream));
        } else {
            BENCH_CUDA(gpu::launch_checksum(std::span<const gpu::Range>{ranges, count}, sum, stream));
        }
    }
    BENCH_RESULT(pass.try_end());
}

template <class Weights>
Weights make(CudaDevice& device, const Model& model, std::uint64_t budget, bool learn = false) {
    typename Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = model.schedule;
    if constexpr (requires { options.learn; }) { options.learn = learn; }
    return BENCH_RESULT(Weights::try_create(device, model.catalog, std::move(options)));
}

struct Streaming {
    double seconds_a_pass;
    std::uint64_t fetched_a_pass;
};

/// Passes one after another, as a decode loop runs them; the first ones fill the ring.
template <class Weights>
Streaming measure(Weights& weights, std::uint64_t* sum, cudaStream_t stream, int passes) {
    bench::StreamTimer timer{stream};
    // The plan is made anew once the steps of three passes have been timed.
    for (int i = 0; i < 4; ++i) {
        run_pass(weights, sum, stream);
        BENCH_CUDA(cudaStreamSynchronize(stream));
    }
    const std::uint64_t before = weights.statistics().total.fetched_bytes;
    const double seconds = timer.seconds([&] {
        for (int i = 0; i < passes; ++i) { run_pass(weights, sum, stream); }
    });
    const std::uint64_t fetched = weights.statistics().total.fetched_bytes - before;
    if (weights.failure()) { std::fprintf(stderr, "failed: %s\n", weights.failure()->message().c_str()); }
    return {seconds / passes, fetched / static_cast<std::uint64_t>(passes)};
}

double rate(std::uint64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

/// Bytes fetched a second, over those of the bare copies, in alternation.
template <class Bare, class Weights>
void compare_with(const Bare& bare, Weights& weights, bench::Records& records, const Model& model, std::uint64_t* sum,
                  cudaStream_t stream, int passes, const std::string& name, double least_rate, double least_ratio) {
    bench::StreamTimer timer{stream};
    std::vector<double> ratios, rates, bare_rates;
    double streamed = 0;
    for (int round = 0; round < 3; ++round) {
        bare_rates.push_back(rate(model.bytes(), timer.median_seconds(2, bare)));
        const Streaming ours = measure(weights, sum, stream, passes);
        rates.push_back(rate(ours.fetched_a_pass, ours.seconds_a_pass));
        ratios.push_back(rates.back() / bare_rates.back());
        streamed = static_cast<double>(ours.fetched_a_pass) / static_cast<double>(model.bytes());
    }
    records.add(name + ".bare", bench::median(bare_rates), "GB/s");
    records.add(name + ".rate", bench::median(rates), "GB/s",
                least_rate > 0 ? ">= " + std::to_string(static_cast<int>(least_rate)) : "");
    char target[32];
    std::snprintf(target, sizeof target, ">= %.2f", least_ratio);
    records.add(name + ".over_bare", bench::median(ratios), "ratio", target);
    records.add(name + ".bytes_moved_of_all", streamed, "ratio");
}

void large_weights(CudaDevice& device, bench::Records& records, std::uint64_t* sum, cudaStream_t stream) {
    const Model model{device, 128 * MiB, 40, 1};
    auto* const ring = static_cast<std::byte*>(BENCH_RESULT(device.allocate(4 * model.weight_bytes)));
    const auto bare = [&] {
        for (std::size_t i = 0; i < model.weights; ++i) {
            BENCH_CUDA(cudaMemcpyAsync(ring + i % 4 * model.weight_bytes, model.host + i * model.weight_bytes,
                                       model.weight_bytes, cudaMemcpyHostToDevice, stream));
        }
    };
    const auto compare = [&]<class Weights>(const char* name) {
        auto weights = make<Weights>(device, model, 4 * model.weight_bytes, true);
        compare_with(bare, weights, records, model, sum, stream, 3, std::string{"streaming.40x128MiB."} + name, 0,
                     0.99);
    };
    compare.template operator()<Streamed>("streamed");
    compare.template operator()<Scheduled>("scheduled");
    compare.template operator()<Planned>("planned");
    BENCH_RESULT(device.deallocate(ring));
    BENCH_RESULT(device.deallocate_host(model.host));
}

void small_weights(CudaDevice& device, bench::Records& records, std::uint64_t* sum, cudaStream_t stream) {
    const Model model{device, 64 * KiB, 20000, 100};
    const std::uint64_t budget = 64 * MiB;
    auto* const ring = static_cast<std::byte*>(BENCH_RESULT(device.allocate(budget)));
    std::vector<void*> to;
    std::vector<const void*> from;
    std::vector<std::size_t> bytes(model.weights, model.weight_bytes);
    for (std::size_t i = 0; i < model.weights; ++i) {
        to.push_back(ring + i * model.weight_bytes % budget);
        from.push_back(model.host + i * model.weight_bytes);
    }
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t attributes_from = 0;
    const auto bare = [&] {
        for (std::size_t i = 0; i < model.weights; i += model.per_step) {
#if CUDART_VERSION >= 13000
            BENCH_CUDA(cudaMemcpyBatchAsync(&to[i], &from[i], &bytes[i], model.per_step, &attributes, &attributes_from,
                                            1, stream));
#else
            std::size_t failed = 0;
            BENCH_CUDA(cudaMemcpyBatchAsync(&to[i], const_cast<void**>(&from[i]), &bytes[i], model.per_step,
                                            &attributes, &attributes_from, 1, &failed, stream));
#endif
        }
    };
    const auto compare = [&]<class Weights>(const char* composition) {
        auto weights = make<Weights>(device, model, budget, true);
        const std::string name = std::string{"streaming.20000x64KiB."} + composition;
        compare_with(bare, weights, records, model, sum, stream, 4, name, 40, 0.95);
        const auto pass = weights.statistics().last_pass;
        records.add(name + ".copy_calls_a_pass", static_cast<double>(pass.calls), "calls");
        records.add(name + ".demand_misses_a_pass", static_cast<double>(pass.demand_misses), "accesses");
        // What the host spends on a step, the GPU not waited for.
        const double host = bench::host_seconds([&] { run_pass(weights, sum, stream); });
        records.add(name + ".host_a_step", host * 1e6 / static_cast<double>(model.weights / model.per_step), "us");
    };
    compare.template operator()<Streamed>("streamed");
    compare.template operator()<Scheduled>("scheduled");
    compare.template operator()<Planned>("planned");
    BENCH_RESULT(device.deallocate(ring));
    BENCH_RESULT(device.deallocate_host(model.host));
}

template <class Weights>
void all_resident(CudaDevice& device, bench::Records& records, std::uint64_t* sum, cudaStream_t stream,
                  const char* composition) {
    const Model model{device, 128 * MiB, 96, 1};
    auto* const raw = static_cast<std::byte*>(BENCH_RESULT(device.allocate(model.bytes())));
    BENCH_CUDA(cudaMemcpy(raw, model.host, model.bytes(), cudaMemcpyHostToDevice));
    auto weights = make<Weights>(device, model, 2 * model.bytes());
    run_pass(weights, sum, stream);
    BENCH_RESULT(weights.try_drain());
    const auto raw_pass = [&] {
        for (std::size_t i = 0; i < model.weights; ++i) {
            BENCH_CUDA(gpu::launch_checksum({raw + i * model.weight_bytes, model.weight_bytes}, sum, stream));
        }
    };
    const auto graph_of = [&](auto&& body) {
        BENCH_RESULT(device.begin_capture(stream));
        body();
        return BENCH_RESULT(device.end_capture(stream));
    };
    const auto raw_graph = graph_of(raw_pass);
    const auto our_graph = graph_of([&] { run_pass(weights, sum, stream); });
    bench::StreamTimer timer{stream};
    std::vector<double> eager, replayed, same;
    // In the order raw, ours, ours, raw: clocks that drift favour neither.
    const auto ratio = [&](auto&& theirs, auto&& ours) {
        const auto seconds = [&](auto&& pass) {
            return timer.seconds([&] {
                for (int i = 0; i < 10; ++i) { pass(); }
            });
        };
        const double first = seconds(theirs);
        const double between = seconds(ours) + seconds(ours);
        return between / (first + seconds(theirs));
    };
    for (int round = 0; round < 10; ++round) {
        eager.push_back(ratio(raw_pass, [&] { run_pass(weights, sum, stream); }));
        replayed.push_back(ratio([&] { BENCH_RESULT(device.launch(raw_graph, stream)); },
                                 [&] { BENCH_RESULT(device.launch(our_graph, stream)); }));
        same.push_back(ratio(raw_pass, raw_pass));
    }
    const std::string name = std::string{"resident.96x128MiB."} + composition;
    records.add(name + ".eager_over_raw_pointers", bench::median(eager), "ratio", "<= 1.005");
    records.add(name + ".graph_over_raw_pointers", bench::median(replayed), "ratio", "<= 1.005");
    records.add(name + ".raw_pointers_over_themselves", bench::median(same), "ratio");
    BENCH_RESULT(device.destroy_graph(raw_graph));
    BENCH_RESULT(device.destroy_graph(our_graph));
    BENCH_RESULT(device.deallocate(raw));
    BENCH_RESULT(weights.try_drain());
    BENCH_RESULT(device.deallocate_host(model.host));
}

/// Acquire and end of one step whose weight is there, no kernel.
template <class Weights>
void host_cost(CudaDevice& device, bench::Records& records, cudaStream_t stream, const char* composition) {
    const Model model{device, 64 * KiB, 200, 1};
    const auto cost = [&](std::uint64_t budget, bool by_weight) {
        auto weights = make<Weights>(device, model, budget);
        std::vector<double> rounds;
        for (int round = 0; round < 31; ++round) {
            auto pass = BENCH_RESULT(weights.try_begin(stream));
            const auto step = model.schedule[0];
            const WeightId weight{0};
            const auto once = [&] {
                if (by_weight) {
                    auto lease = BENCH_RESULT(pass.try_acquire(weight));
                } else {
                    auto lease = BENCH_RESULT(pass.try_acquire(step));
                }
            };
            once();
            BENCH_CUDA(cudaStreamSynchronize(stream));
            // Few enough for the driver's queue: a full one would measure the GPU.
            constexpr int times = 200;
            rounds.push_back(bench::host_seconds([&] {
                                 for (int i = 0; i < times; ++i) { once(); }
                             }) *
                             1e9 / times);
            BENCH_RESULT(pass.try_end());
            BENCH_CUDA(cudaStreamSynchronize(stream));
        }
        if (weights.failure()) { std::fprintf(stderr, "failed: %s\n", weights.failure()->message().c_str()); }
        return bench::median(rounds);
    };
    // What the driver takes for the same events, one after another on one stream: recording one event again and again is less.
    const auto raw = [&] {
        std::vector<cudaEvent_t> events(200);
        for (auto& event : events) { BENCH_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
        std::vector<double> rounds;
        for (int round = 0; round < 31; ++round) {
            BENCH_CUDA(cudaStreamSynchronize(stream));
            rounds.push_back(bench::host_seconds([&] {
                                 for (const auto event : events) {
                                     cudaStreamCaptureStatus status{};
                                     BENCH_CUDA(cudaStreamIsCapturing(stream, &status));
                                     BENCH_CUDA(cudaEventRecord(event, stream));
                                 }
                             }) *
                             1e9 / static_cast<double>(events.size()));
        }
        for (const auto event : events) { BENCH_CUDA(cudaEventDestroy(event)); }
        return bench::median(rounds);
    };
    const std::string name = std::string{"host.acquire_and_end."} + composition;
    const double driver = raw();
    records.add(name + ".driver_alone", driver, "ns");
    // A budget below the total: the weight may leave, so its uses are recorded.
    for (const bool by_weight : {false, true}) {
        const std::string what = name + ".with_events." + (by_weight ? "weight" : "step");
        const double ours = cost(model.bytes() / 2, by_weight);
        records.add(what, ours, "ns", "<= 1000");
        records.add(what + ".beside_the_driver", ours - driver, "ns");
    }
    records.add(name + ".everything_resident.step", cost(2 * model.bytes(), false), "ns", "<= 150");
    records.add(name + ".everything_resident.weight", cost(2 * model.bytes(), true), "ns", "<= 150");
    BENCH_RESULT(device.deallocate_host(model.host));
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Records records{"gpu-streaming", argc, argv};
    const auto stream = BENCH_RESULT(device.create_stream());
    auto* const sum = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(8)));
    BENCH_CUDA(cudaMemset(sum, 0, 8));
    large_weights(device, records, sum, stream);
    small_weights(device, records, sum, stream);
    all_resident<Scheduled>(device, records, sum, stream, "scheduled");
    all_resident<Planned>(device, records, sum, stream, "planned");
    host_cost<Scheduled>(device, records, stream, "scheduled");
    host_cost<Planned>(device, records, stream, "planned");
    BENCH_RESULT(device.deallocate(sum));
    BENCH_RESULT(device.destroy_stream(stream));
    return 0;
}
