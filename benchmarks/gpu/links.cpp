// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// One GPU fed through its own link and through that of a neighbour: bare copies of all sizes, and decoding at the shapes of Llama-3-8B in
// bf16, one kernel a matrix, the host waiting once a pass. By budget, in turns: one link, both, both as a graph, and both with packed
// weights. Every weight is checked first. And what the neighbour's own kernels lose meanwhile. Then a model of 1.5 budgets, of which the
// neighbour's memory holds what it makes faster: its rate over NVLink's, measured by bare copies. And the model on both GPUs, in step, each
// with half of its bytes as budget: what a pass of both takes over one of each alone. Needs two GPUs of one host.
//
//   gpu_links [layers] [passes] [memory]     by default all layers, 20 passes; with `memory` only the last two of these
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "benchmarks/gpu/llama.hpp"
#include "benchmarks/gpu/record.hpp"
#include "benchmarks/gpu/trained.hpp"
#include "benchmarks/gpu/turns.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed.hpp"
#include "residency/packed/pack.hpp"
#include "residency/planned.hpp"
#include "residency/transport/links.hpp"
#include "residency/transport/replicas.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/gpu/unpacker.hpp"

namespace {

using bench::run_pass;
using bench::run_steps;
using residency::Budget;
using residency::Catalog;
using residency::CudaDevice;
using residency::Schedule;
using Model = bench::Llama;
using Links = residency::transport::Links<CudaDevice>;
using One = residency::Planned<CudaDevice>;
using Two = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                 residency::pool::Virtual<CudaDevice>, Links>;
using TwoPacked = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                       residency::pool::Packed<CudaDevice>, Links>;
using Member = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                    residency::pool::Virtual<CudaDevice>, residency::transport::Replicas<CudaDevice>>;
using Stream = CudaDevice::Stream;

template <class Weights>
Weights make(CudaDevice& device, CudaDevice& neighbour, const Catalog& catalog, const Schedule& schedule,
             std::uint64_t budget) {
    typename Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = schedule;
    options.learn = false;
    if constexpr (requires { options.policies.unpacker; }) { options.policies.unpacker = &gpu::unpacker(); }
    if constexpr (requires { options.transport.neighbours; }) { options.transport.neighbours = {&neighbour}; }
    return BENCH_RESULT(Weights::try_create(device, catalog, std::move(options)));
}

/// The rate of bare copies out of the neighbour's memory, in bytes per second: calls of 64 MiB in a row.
double nvlink_rate(CudaDevice& device, CudaDevice& neighbour, Stream stream) {
    constexpr std::uint64_t bytes = std::uint64_t{4} << 30, call = std::uint64_t{64} << 20;
    BENCH_RESULT(device.enable_peer(neighbour));
    auto* const from = static_cast<std::byte*>(BENCH_RESULT(neighbour.allocate(bytes)));
    auto* const to = static_cast<std::byte*>(BENCH_RESULT(device.allocate(bytes)));
    bench::StreamTimer timer{stream};
    const double seconds = timer.median_seconds(5, [&] {
        for (std::uint64_t done = 0; done < bytes; done += call) {
            const residency::Copy copy{to + done, from + done, call};
            BENCH_RESULT(device.copy({&copy, 1}, stream));
        }
    });
    BENCH_CUDA(cudaStreamSynchronize(stream));
    BENCH_RESULT(device.deallocate(to));
    BENCH_RESULT(neighbour.deallocate(from));
    return static_cast<double>(bytes) / seconds;
}

std::size_t wrong_sums(const std::vector<std::uint64_t>& expected, std::uint64_t* sums) {
    std::vector<std::uint64_t> got(expected.size());
    BENCH_CUDA(cudaDeviceSynchronize());
    BENCH_CUDA(cudaMemcpy(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost));
    BENCH_CUDA(cudaMemset(sums, 0, got.size() * 8));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) { wrong += got[i] != expected[i] ? 1U : 0U; }
    return wrong;
}

/// Calls of one size in a row, by both links and by one.
void measure_copies(CudaDevice& device, CudaDevice& neighbour, const Model& model, Stream stream,
                    bench::Records& records) {
    Links::Config config;
    config.neighbours = {&neighbour};
    Links links{config};
    BENCH_RESULT(links.open(device, model.catalog));
    residency::core::DeviceMemory<CudaDevice> memory{device};
    const auto link = BENCH_RESULT(residency::core::try_measure_links(device, std::uint64_t{32} << 20, memory, links));
    for (const auto& use : links.links()) {
        std::printf("link of %s: %.1f GB/s%s%s\n", use.device.c_str(), use.bytes_per_second / 1e9,
                    use.reason.empty() ? "" : ", not used: ", use.reason.c_str());
    }
    records.add("links.measured", link.bytes_per_second / 1e9, "GB/s");
    records.add("links.measured.latency", link.latency_seconds * 1e6, "us");
    constexpr std::uint64_t most = std::uint64_t{4} << 30;
    auto* const at = static_cast<std::byte*>(BENCH_RESULT(device.allocate(most)));
    bench::StreamTimer timer{stream};
    for (const std::uint64_t mib : {2U, 4U, 8U, 16U, 32U, 64U, 256U, 1024U}) {
        const std::uint64_t call = mib << 20;
        const auto rate = [&](auto&& send) {
            const double seconds = timer.median_seconds(3, [&] {
                for (std::uint64_t done = 0; done < most; done += call) {
                    const residency::Copy copy{at + done, model.host + done, call};
                    BENCH_RESULT(send(std::span{&copy, 1}));
                }
            });
            return static_cast<double>(most) / seconds;
        };
        const double one = rate([&](auto copies) { return device.copy(copies, stream); });
        const double both = rate([&](auto copies) { return links.copy(copies, stream); });
        const std::string name = "links.copies." + std::to_string(mib) + "MiB.";
        records.add(name + "one", one / 1e9, "GB/s");
        records.add(name + "both", both / 1e9, "GB/s");
        records.add(name + "both_over_one", both / one, "ratio", mib == 1024 ? ">= 1.95" : "");
    }
    BENCH_CUDA(cudaStreamSynchronize(stream));
    links.close();
    BENCH_RESULT(device.deallocate(at));
}

/// A model of 1.5 budgets from two cards' memory, eager and as a graph, in turns with one link and with both.
void measure_memory(CudaDevice& device, CudaDevice& neighbour, const Model& model, const Schedule& timed,
                    const std::vector<std::uint64_t>& expected, std::uint64_t* sums, int passes, Stream stream,
                    bench::BareCopies& bare, bench::Records& records) {
    const double nvlink = nvlink_rate(device, neighbour, stream);
    records.add("memory.nvlink", nvlink / 1e9, "GB/s");
    const std::uint64_t budget = model.bytes / 3 * 2, absent = model.bytes - budget;
    const auto make_holding = [&](std::uint64_t memory_bytes) {
        Two::Options options;
        options.budget = Budget::bytes(budget);
        options.schedule = timed;
        options.learn = false;
        options.transport.neighbours = {&neighbour};
        options.transport.memory_bytes = {memory_bytes};
        return BENCH_RESULT(Two::try_create(device, model.catalog, std::move(options)));
    };
    auto one = make<One>(device, neighbour, model.catalog, timed, budget);
    auto both = make<Two>(device, neighbour, model.catalog, timed, budget);
    auto half = make_holding(absent / 2), whole = make_holding(model.bytes), captured = make_holding(model.bytes);
    std::size_t wrong = 0;
    BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
    for (int i = 0; i < 2; ++i) {
        run_pass(whole, model, sums, true, stream);
        wrong += wrong_sums(expected, sums);
        run_pass(half, model, sums, true, stream);
        wrong += wrong_sums(expected, sums);
    }
    const auto capture = [&](bool by_weight) {
        return BENCH_RESULT(
            captured.try_capture(stream, [&](auto& pass) { run_steps(pass, model, timed, sums, by_weight, stream); }));
    };
    {
        auto verified = capture(true);
        for (int i = 0; i < 2; ++i) {
            BENCH_RESULT(verified.try_launch(stream));
            wrong += wrong_sums(expected, sums);
        }
    }
    records.add("memory.wrong_weights", static_cast<double>(wrong), "weights", "<= 0");
    auto graph = capture(false);
    bench::Turns turns{bare, stream, passes};
    const auto by_one = turns.add(true, [&] { run_pass(one, model, sums, false, stream); });
    const auto by_both = turns.add(true, [&] { run_pass(both, model, sums, false, stream); });
    const auto by_half = turns.add(true, [&] { run_pass(half, model, sums, false, stream); });
    const auto by_whole = turns.add(true, [&] { run_pass(whole, model, sums, false, stream); });
    const auto replayed = turns.add(true, [&] { BENCH_RESULT(graph.try_launch(stream)); });
    turns.run();
    for (const auto& [name, weights, row] :
         {std::tuple{"memory.half.", &half, by_half}, std::tuple{"memory.", &whole, by_whole}}) {
        const std::string of = name;
        const auto use = weights->statistics().links.at(1);
        std::printf("%s%s holds %.2f GB at %.1f GB/s%s%s\n", name, use.device.c_str(),
                    static_cast<double>(use.held_bytes) / 1e9, use.held_bytes_per_second / 1e9,
                    use.held_reason.empty() ? "" : ": ", use.held_reason.c_str());
        records.add(of + "planned_rate", weights->problem().link.bytes_per_second / 1e9, "GB/s");
        records.add(of + "planned_latency", weights->problem().link.latency_seconds * 1e6, "us");
        records.add(of + "time", turns.seconds(row) * 1e3, "ms");
        records.add(of + "over_one", turns.ratio(row, by_one), "ratio");
        records.add(of + "over_both", turns.ratio(row, by_both), "ratio");
        records.add(of + "time_over_bound", turns.seconds(row) / weights->plan().bound_seconds(), "ratio");
        records.add(of + "predicted_over_bound", weights->plan().predicted_seconds() / weights->plan().bound_seconds(),
                    "ratio");
    }
    // What the budget does not hold has to come in each pass; a plan brings more, since its ring is part of the budget.
    const double seconds = turns.seconds(by_whole), brought = static_cast<double>(whole.plan().bytes_per_pass());
    records.add("memory.brought_over_nvlink", brought / seconds / nvlink, "ratio", ">= 0.85");
    records.add("memory.absent_over_nvlink", static_cast<double>(absent) / seconds / nvlink, "ratio");
    records.add("memory.graph_brought_over_nvlink",
                static_cast<double>(captured.plan().bytes_per_pass()) / turns.seconds(replayed) / nvlink, "ratio");
}

/// The model on both GPUs, passes in step, in turns with each alone, at half of its bytes.
void measure_replicas(CudaDevice& device, CudaDevice& neighbour, const Model& model, const Schedule& timed,
                      const std::vector<std::uint64_t>& expected, std::uint64_t* sums, int passes, Stream stream,
                      bench::BareCopies& bare, bench::Records& records) {
    const auto on_neighbour = [](auto&& work) {
        BENCH_CUDA(cudaSetDevice(1));
        work();
        BENCH_CUDA(cudaSetDevice(0));
    };
    const Stream other_stream = BENCH_RESULT(neighbour.create_stream());
    const auto sums_bytes = expected.size() * 8;
    auto* const other_sums = static_cast<std::uint64_t*>(BENCH_RESULT(neighbour.allocate(sums_bytes)));
    BENCH_RESULT(neighbour.fill(other_sums, std::byte{0}, sums_bytes, other_stream));
    BENCH_CUDA(cudaMemset(sums, 0, sums_bytes));
    {
        const std::uint64_t budget = model.bytes / 2;
        auto one = make<One>(device, neighbour, model.catalog, timed, budget);
        auto other_one = make<One>(neighbour, device, model.catalog, timed, budget);
        const auto group = std::make_shared<residency::transport::ReplicaGroup<CudaDevice>>();
        const auto join = [&](CudaDevice& on) {
            Member::Options options;
            options.budget = Budget::bytes(budget);
            options.schedule = timed;
            options.transport.group = group;
            return BENCH_RESULT(Member::try_create(on, model.catalog, std::move(options)));
        };
        auto member = join(device), other = join(neighbour);
        const auto in_step = [&](bool by_weight) {
            auto pass = BENCH_RESULT(member.try_begin(stream));
            auto other_pass = BENCH_RESULT(other.try_begin(other_stream));
            for (std::uint32_t i = 0; i < timed.size(); ++i) {
                bench::run_step(pass, member.schedule()[i], model, sums, by_weight, stream);
                on_neighbour([&] {
                    bench::run_step(other_pass, other.schedule()[i], model, other_sums, by_weight, other_stream);
                });
            }
            BENCH_RESULT(pass.try_end());
            BENCH_RESULT(other_pass.try_end());
            BENCH_CUDA(cudaStreamSynchronize(other_stream));
        };
        std::size_t wrong = 0;
        for (int i = 0; i < 2; ++i) {
            in_step(true);
            wrong += wrong_sums(expected, sums);
            on_neighbour([&] { wrong += wrong_sums(expected, other_sums); });
        }
        records.add("replicas.50%.wrong_weights", static_cast<double>(wrong), "weights", "<= 0");
        bench::Turns turns{bare, stream, passes};
        const auto alone = turns.add(true, [&] { run_pass(one, model, sums, false, stream); });
        const auto other_alone = turns.add(true, [&] {
            on_neighbour([&] { run_pass(other_one, model, other_sums, false, other_stream); });
            BENCH_CUDA(cudaStreamSynchronize(other_stream));
        });
        const auto both = turns.add(true, [&] { in_step(false); });
        turns.run();
        for (const auto& use : group->members()) {
            std::printf("member on %s: brought %.2f GB, shared %.2f GB %s\n", use.device.c_str(),
                        static_cast<double>(use.brought_bytes) / 1e9, static_cast<double>(use.shared_bytes) / 1e9,
                        use.reason.c_str());
        }
        records.add("replicas.50%.alone", turns.seconds(alone) * 1e3, "ms");
        records.add("replicas.50%.in_step", turns.seconds(both) * 1e3, "ms");
        records.add("replicas.50%.in_step_over_alone", turns.ratio(both, alone), "ratio", "<= 0.55");
        records.add("replicas.50%.in_step_over_neighbour_alone", turns.ratio(both, other_alone), "ratio", "<= 0.55");
    }
    BENCH_RESULT(neighbour.deallocate(other_sums));
    BENCH_RESULT(neighbour.destroy_stream(other_stream));
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    auto second = CudaDevice::try_open(1);
    if (!second) {
        std::fprintf(stderr, "skipped: two GPUs are needed: %s\n", second.error().message().c_str());
        return 77;
    }
    CudaDevice& neighbour = *second;
    BENCH_CUDA(cudaSetDevice(0));
    bench::Shape shape{"links", 4096, 14336, 32};
    if (argc > 1) { shape.layers = static_cast<std::uint32_t>(std::atoi(argv[1])); }
    const int passes = argc > 2 ? std::atoi(argv[2]) : 20;
    const bool only_memory = argc > 3 && std::string{argv[3]} == "memory";
    bench::Records records{"gpu-links", argc, argv};
    const Model model{device, shape, bench::trained};
    const Stream stream = BENCH_RESULT(device.create_stream());
    if (!only_memory) { measure_copies(device, neighbour, model, stream, records); }

    auto* const sums = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(model.sizes.size() * 8)));
    BENCH_CUDA(cudaMemset(sums, 0, model.sizes.size() * 8));
    std::vector<std::uint64_t> expected(model.sizes.size());
    Schedule timed;
    double resident_seconds = 0;
    bench::BareCopies bare{device, model, stream};
    {
        auto weights = make<One>(device, neighbour, model.catalog, model.schedule, 2 * model.bytes);
        run_pass(weights, model, sums, true, stream);
        BENCH_CUDA(cudaStreamSynchronize(stream));
        BENCH_CUDA(cudaMemcpy(expected.data(), sums, expected.size() * 8, cudaMemcpyDeviceToHost));
        BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
        for (std::size_t i = 0; i < expected.size(); i += 37) {
            if (gpu::checksum(model.bytes_of(i)) != expected[i]) {
                std::fprintf(stderr, "weight %zu: the resident checksum is wrong\n", i);
                return 1;
            }
        }
        bench::Turns turns{bare, stream, passes};
        const auto resident = turns.add(true, [&] { run_pass(weights, model, sums, false, stream); });
        turns.run();
        resident_seconds = turns.seconds(resident);
        records.add("links.resident.time", resident_seconds * 1e3, "ms");
    }
    {
        One::Options options;
        options.budget = Budget::bytes(model.bytes / 2);
        options.schedule = model.schedule;
        auto learning = BENCH_RESULT(One::try_create(device, model.catalog, std::move(options)));
        timed = bench::timed_steps(learning, [&] { run_pass(learning, model, sums, false, stream); }, resident_seconds);
        BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
    }
    measure_memory(device, neighbour, model, timed, expected, sums, passes, stream, bare, records);
    measure_replicas(device, neighbour, model, timed, expected, sums, passes, stream, bare, records);
    if (only_memory) {
        BENCH_RESULT(device.deallocate(sums));
        BENCH_RESULT(device.destroy_stream(stream));
        BENCH_RESULT(device.deallocate_host(model.host));
        return 0;
    }
    const auto packed = BENCH_RESULT(residency::packed::try_pack(device, model.catalog));

    // The neighbour's own work: kernels that read its memory.
    constexpr std::uint64_t own_bytes = std::uint64_t{4} << 30;
    BENCH_CUDA(cudaSetDevice(1));
    auto* const own = static_cast<std::byte*>(BENCH_RESULT(neighbour.allocate(own_bytes)));
    auto* const own_sum = static_cast<std::uint64_t*>(BENCH_RESULT(neighbour.allocate(8)));
    const Stream own_stream = BENCH_RESULT(neighbour.create_stream());
    BENCH_RESULT(neighbour.fill(own, std::byte{1}, own_bytes, own_stream));
    const auto own_seconds = [&] {
        BENCH_CUDA(cudaSetDevice(1));
        bench::StreamTimer timer{own_stream};
        const double seconds = timer.median_seconds(5, [&] {
            for (int i = 0; i < 8; ++i) { BENCH_CUDA(gpu::launch_checksum({own, own_bytes}, own_sum, own_stream)); }
        });
        BENCH_CUDA(cudaSetDevice(0));
        return seconds;
    };
    BENCH_CUDA(cudaSetDevice(0));

    for (const std::uint64_t percent : {10U, 25U, 50U}) {
        const std::uint64_t budget = model.bytes / 100 * percent;
        const std::string name = "links." + std::to_string(percent) + "%.";
        auto one = make<One>(device, neighbour, model.catalog, timed, budget);
        auto two = make<Two>(device, neighbour, model.catalog, timed, budget);
        auto captured = make<Two>(device, neighbour, model.catalog, timed, budget);
        auto two_packed = make<TwoPacked>(device, neighbour, packed.catalog, timed, budget);
        std::size_t wrong = 0;
        BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));  // passes that were timed have added to it
        for (int i = 0; i < 2; ++i) {
            run_pass(two, model, sums, true, stream);
            wrong += wrong_sums(expected, sums);
            run_pass(two_packed, model, sums, true, stream);
            wrong += wrong_sums(expected, sums);
        }
        const auto capture = [&](bool by_weight) {
            return BENCH_RESULT(captured.try_capture(
                stream, [&](auto& pass) { run_steps(pass, model, timed, sums, by_weight, stream); }));
        };
        {
            auto verified = capture(true);
            for (int i = 0; i < 2; ++i) {
                BENCH_RESULT(verified.try_launch(stream));
                wrong += wrong_sums(expected, sums);
            }
        }
        records.add(name + "wrong_weights", static_cast<double>(wrong), "weights", "<= 0");
        auto graph = capture(false);
        bench::Turns turns{bare, stream, passes};
        const auto alone = turns.add(true, [&] { run_pass(one, model, sums, false, stream); });
        const auto both = turns.add(true, [&] { run_pass(two, model, sums, false, stream); });
        const auto replayed = turns.add(true, [&] { BENCH_RESULT(graph.try_launch(stream)); });
        const auto with_packed = turns.add(true, [&] { run_pass(two_packed, model, sums, false, stream); });
        turns.run();
        const auto statistics = two.statistics();
        for (const auto& use : statistics.links) {
            std::printf("%s: %.2f GB at %.1f GB/s %s\n", use.device.c_str(), static_cast<double>(use.bytes) / 1e9,
                        use.bytes_per_second / 1e9, use.reason.c_str());
        }
        records.add(name + "one.time", turns.seconds(alone) * 1e3, "ms");
        records.add(name + "both.time", turns.seconds(both) * 1e3, "ms");
        records.add(name + "both_over_one", turns.ratio(both, alone), "ratio", "<= 0.53");
        records.add(name + "both.time_over_bound", turns.seconds(both) / two.plan().bound_seconds(), "ratio",
                    "<= 1.03");
        records.add(name + "both.predicted_over_bound", two.plan().predicted_seconds() / two.plan().bound_seconds(),
                    "ratio");
        records.add(name + "one.time_over_bound", turns.seconds(alone) / one.plan().bound_seconds(), "ratio");
        records.add(name + "graph_over_one", turns.ratio(replayed, alone), "ratio", "<= 0.53");
        records.add(name + "packed_and_both_over_one", turns.ratio(with_packed, alone), "ratio",
                    percent == 25 ? "<= 0.33" : "");
    }
    {
        auto two = make<Two>(device, neighbour, model.catalog, timed, model.bytes / 10);
        const double before = own_seconds();
        for (int i = 0; i < 3; ++i) { run_pass(two, model, sums, false, stream); }
        BENCH_CUDA(cudaStreamSynchronize(stream));
        for (int i = 0; i < 12; ++i) { run_pass(two, model, sums, false, stream); }
        const double meanwhile = own_seconds();
        const bool still_runs = cudaStreamQuery(stream) == cudaErrorNotReady;
        BENCH_CUDA(cudaStreamSynchronize(stream));
        records.add("links.neighbour.kernels_over_alone", meanwhile / before, "ratio", "<= 1.02");
        records.add("links.neighbour.measured_meanwhile", still_runs ? 1 : 0, "", ">= 1");
    }
    BENCH_CUDA(cudaSetDevice(1));
    BENCH_RESULT(neighbour.destroy_stream(own_stream));
    BENCH_RESULT(neighbour.deallocate(own_sum));
    BENCH_RESULT(neighbour.deallocate(own));
    BENCH_CUDA(cudaSetDevice(0));
    BENCH_RESULT(device.deallocate(sums));
    BENCH_RESULT(device.destroy_stream(stream));
    BENCH_RESULT(device.deallocate_host(model.host));
    return 0;
}
