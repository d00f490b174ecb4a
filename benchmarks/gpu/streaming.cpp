// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A whole Residency against what the same GPU does without one: streaming, small weights, everything resident, host cost.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/core/residency.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/slab.hpp"
#include "residency/pool/stream_ordered.hpp"
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

/// First come, first to leave: with a small budget on a cycle, everything is streamed.
struct Oldest {
    std::vector<StorageId> ring;
    std::size_t first = 0, count = 0;

    residency::Status attach(const residency::evict::Context& context) {
        ring.assign(context.bytes.size() + 1, StorageId{});
        first = count = 0;
        return {};
    }
    void inserted(StorageId id, residency::evict::Moment) noexcept { ring[(first + count++) % ring.size()] = id; }
    void used(StorageId, residency::evict::Moment) noexcept {}
    void removed(StorageId id) noexcept {
        std::size_t at = 0;
        while (ring[(first + at) % ring.size()] != id) { ++at; }
        for (; at > 0; --at) { ring[(first + at) % ring.size()] = ring[(first + at - 1) % ring.size()]; }
        first = (first + 1) % ring.size();
        --count;
    }
    template <class MayLeave>
    std::optional<StorageId> victim(residency::evict::Moment, MayLeave&& may_leave) noexcept {
        for (std::size_t i = 0; i < count; ++i) {
            const StorageId id = ring[(first + i) % ring.size()];
            if (may_leave(id)) { return id; }
        }
        return std::nullopt;
    }
};

/// The next steps of the schedule.
struct Ahead {
    static constexpr bool interruptible = false;
    std::uint32_t depth = 2;
    const residency::UseOrder* order = nullptr;

    residency::Status attach(const residency::prefetch::Context& context) {
        order = context.order;
        return {};
    }
    template <class Sink>
    void propose(residency::prefetch::Moment now, Sink&& sink) noexcept {
        for (std::uint32_t i = 1; i <= depth; ++i) {
            for (const StorageId id : order->storages_at(now + i)) {
                if (!sink(id, now + i)) { return; }
            }
        }
    }
};

using Slab = residency::pool::Slab<CudaDevice>;
using Streamed = residency::Residency<Oldest, Ahead, Slab>;

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
          weight_bytes{bytes}, weights{count}, per_step{each} {
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
        for (const WeightId id : step.weights) { ranges[count++] = {lease.data(id), weights.catalog().weight(id).bytes}; }
        if (count == 1) {
            BENCH_CUDA(gpu::launch_checksum(ranges[0], sum, stream));
        } else {
            BENCH_CUDA(gpu::launch_checksum(std::span<const gpu::Range>{ranges, count}, sum, stream));
        }
    }
    BENCH_RESULT(pass.try_end());
}

template <class Weights>
Weights make(CudaDevice& device, const Model& model, std::uint64_t budget, std::uint32_t depth) {
    typename Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = model.schedule;
    options.prefetcher.depth = depth;
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
    for (int i = 0; i < 2; ++i) { run_pass(weights, sum, stream); }
    BENCH_CUDA(cudaStreamSynchronize(stream));
    const std::uint64_t before = weights.statistics().total.fetched_bytes;
    const double seconds = timer.seconds([&] {
        for (int i = 0; i < passes; ++i) { run_pass(weights, sum, stream); }
    });
    const std::uint64_t fetched = weights.statistics().total.fetched_bytes - before;
    if (weights.failure()) { std::fprintf(stderr, "failed: %s\n", weights.failure()->message().c_str()); }
    return {seconds / passes, fetched / static_cast<std::uint64_t>(passes)};
}

double rate(std::uint64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

void large_weights(CudaDevice& device, bench::Records& records, std::uint64_t* sum, cudaStream_t stream) {
    const Model model{device, 128 * MiB, 40, 1};
    auto* const ring = static_cast<std::byte*>(BENCH_RESULT(device.allocate(4 * model.weight_bytes)));
    bench::StreamTimer timer{stream};
    const auto bare = [&] {
        for (std::size_t i = 0; i < model.weights; ++i) {
            BENCH_CUDA(cudaMemcpyAsync(ring + i % 4 * model.weight_bytes, model.host + i * model.weight_bytes, model.weight_bytes,
                                       cudaMemcpyHostToDevice, stream));
        }
    };
    auto weights = make<Streamed>(device, model, 4 * model.weight_bytes, 3);
    std::vector<double> ratios, rates, bare_rates;
    for (int round = 0; round < 3; ++round) {
        const double bare_rate = rate(model.bytes(), timer.median_seconds(2, bare));
        const Streaming ours = measure(weights, sum, stream, 3);
        rates.push_back(rate(ours.fetched_a_pass, ours.seconds_a_pass));
        bare_rates.push_back(bare_rate);
        ratios.push_back(rates.back() / bare_rate);
    }
    records.add("streaming.40x128MiB.bare", bench::median(bare_rates), "GB/s");
    records.add("streaming.40x128MiB", bench::median(rates), "GB/s");
    records.add("streaming.40x128MiB.over_bare", bench::median(ratios), "ratio", ">= 0.99");
    BENCH_RESULT(device.deallocate(ring));
    BENCH_RESULT(weights.try_drain());
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
    bench::StreamTimer timer{stream};
    const auto bare = [&] {
        for (std::size_t i = 0; i < model.weights; i += model.per_step) {
#if CUDART_VERSION >= 13000
            BENCH_CUDA(cudaMemcpyBatchAsync(&to[i], &from[i], &bytes[i], model.per_step, &attributes, &attributes_from, 1, stream));
#else
            std::size_t failed = 0;
            BENCH_CUDA(cudaMemcpyBatchAsync(&to[i], const_cast<void**>(&from[i]), &bytes[i], model.per_step, &attributes,
                                            &attributes_from, 1, &failed, stream));
#endif
        }
    };
    for (const std::uint32_t depth : {2U, 5U}) {
        auto weights = make<Streamed>(device, model, budget, depth);
        std::vector<double> ratios, rates, bare_rates;
        for (int round = 0; round < 3; ++round) {
            const double bare_rate = rate(model.bytes(), timer.median_seconds(2, bare));
            const Streaming ours = measure(weights, sum, stream, 4);
            rates.push_back(rate(ours.fetched_a_pass, ours.seconds_a_pass));
            bare_rates.push_back(bare_rate);
            ratios.push_back(rates.back() / bare_rate);
        }
        const std::string name = "streaming.20000x64KiB.ahead" + std::to_string(depth);
        const auto pass = weights.statistics().last_pass;
        records.add(name + ".bare_batches", bench::median(bare_rates), "GB/s");
        records.add(name, bench::median(rates), "GB/s", ">= 40");
        records.add(name + ".over_bare_batches", bench::median(ratios), "ratio", ">= 0.95");
        records.add(name + ".copy_calls_a_pass", static_cast<double>(pass.calls), "calls");
        records.add(name + ".demand_misses_a_pass", static_cast<double>(pass.demand_misses), "accesses");
        // What the host spends on a step, the GPU not waited for.
        const double host = bench::host_seconds([&] { run_pass(weights, sum, stream); });
        records.add(name + ".host_a_step", host * 1e6 / static_cast<double>(model.weights / model.per_step), "us");
    }
    BENCH_RESULT(device.deallocate(ring));
    BENCH_RESULT(device.deallocate_host(model.host));
}

void all_resident(CudaDevice& device, bench::Records& records, std::uint64_t* sum, cudaStream_t stream) {
    const Model model{device, 64 * MiB, 64, 1};
    auto* const raw = static_cast<std::byte*>(BENCH_RESULT(device.allocate(model.bytes())));
    BENCH_CUDA(cudaMemcpy(raw, model.host, model.bytes(), cudaMemcpyHostToDevice));
    auto weights = make<Streamed>(device, model, 2 * model.bytes(), 2);
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
    std::vector<double> eager, replayed;
    const auto repeat = [](int times, auto&& body) {
        for (int i = 0; i < times; ++i) { body(); }
    };
    for (int round = 0; round < 15; ++round) {
        const double a = timer.seconds([&] { repeat(10, raw_pass); });
        const double b = timer.seconds([&] { repeat(10, [&] { run_pass(weights, sum, stream); }); });
        const double c = timer.seconds([&] { repeat(10, [&] { BENCH_RESULT(device.launch(raw_graph, stream)); }); });
        const double d = timer.seconds([&] { repeat(10, [&] { BENCH_RESULT(device.launch(our_graph, stream)); }); });
        eager.push_back(b / a);
        replayed.push_back(d / c);
    }
    records.add("resident.64x64MiB.eager_over_raw_pointers", bench::median(eager), "ratio", "<= 1.005");
    records.add("resident.64x64MiB.graph_over_raw_pointers", bench::median(replayed), "ratio", "<= 1.005");
    BENCH_RESULT(device.destroy_graph(raw_graph));
    BENCH_RESULT(device.destroy_graph(our_graph));
    BENCH_RESULT(device.deallocate(raw));
    BENCH_RESULT(weights.try_drain());
    BENCH_RESULT(device.deallocate_host(model.host));
}

/// Acquire and end of one step whose weight is there, no kernel.
void host_cost(CudaDevice& device, bench::Records& records, cudaStream_t stream) {
    const Model model{device, 64 * KiB, 200, 1};
    const auto cost = [&](std::uint64_t budget, bool by_weight) {
        auto weights = make<Streamed>(device, model, budget, 0);
        std::vector<double> rounds;
        for (int round = 0; round < 12; ++round) {
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
            constexpr int times = 1000;
            rounds.push_back(bench::host_seconds([&] {
                for (int i = 0; i < times; ++i) { once(); }
            }) * 1e9 / times);
            BENCH_RESULT(pass.try_end());
            BENCH_CUDA(cudaStreamSynchronize(stream));
        }
        if (weights.failure()) { std::fprintf(stderr, "failed: %s\n", weights.failure()->message().c_str()); }
        return bench::median(rounds);
    };
    // A budget below the total: the weight may leave, so its uses are recorded.
    records.add("host.acquire_and_end.with_events.step", cost(model.bytes() / 2, false), "ns", "<= 1000");
    records.add("host.acquire_and_end.with_events.weight", cost(model.bytes() / 2, true), "ns", "<= 1000");
    records.add("host.acquire_and_end.everything_resident.step", cost(2 * model.bytes(), false), "ns", "<= 150");
    records.add("host.acquire_and_end.everything_resident.weight", cost(2 * model.bytes(), true), "ns", "<= 150");
    BENCH_RESULT(device.deallocate_host(model.host));
}

}  // namespace

int main(int argc, char** argv) {
    auto opened = CudaDevice::try_open(0);
    if (!opened) {
        std::fprintf(stderr, "skipped: %s\n", opened.error().message().c_str());
        return 77;
    }
    CudaDevice device = std::move(*opened);
    bench::Records records{"gpu-streaming", argc, argv};
    const auto stream = BENCH_RESULT(device.create_stream());
    auto* const sum = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(8)));
    BENCH_CUDA(cudaMemset(sum, 0, 8));
    large_weights(device, records, sum, stream);
    small_weights(device, records, sum, stream);
    all_resident(device, records, sum, stream);
    host_cost(device, records, stream);
    BENCH_RESULT(device.deallocate(sum));
    BENCH_RESULT(device.destroy_stream(stream));
    return 0;
}
