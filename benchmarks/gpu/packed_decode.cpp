// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Packed weights against raw ones: decoding at the shapes of Llama-3-8B in bf16 whose exponents are distributed as those of trained
// weights, one kernel a matrix that reads raw bytes at the speed of the memory, the host waiting once a pass. By budget, in turns:
// Planned (raw), Packed, Packed as a graph, and everything resident and raw. The bytes of every weight are checked first. Then with matrix ×
// vector kernels that read packed weights as they are, from the same budgets: their results must be those of everything resident.
//
//   bench_packed_decode [layers] [passes]        by default all layers, 20 passes
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "benchmarks/gpu/llama.hpp"
#include "benchmarks/gpu/products.hpp"
#include "benchmarks/gpu/record.hpp"
#include "benchmarks/gpu/trained.hpp"
#include "benchmarks/gpu/turns.hpp"
#include "residency/device/cuda.hpp"
#include "residency/packed.hpp"
#include "residency/packed/pack.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/gpu/unpacker.hpp"

namespace {

using bench::run_pass;
using bench::run_steps;
using bench::trained;
using residency::Budget;
using residency::Catalog;
using residency::CudaDevice;
using residency::Schedule;
using residency::WeightId;
using Model = bench::Llama;
using Raw = residency::Planned<CudaDevice>;
using Packed = residency::Packed<CudaDevice>;
using Stream = CudaDevice::Stream;

template <class Weights>
Weights make(CudaDevice& device, const Catalog& catalog, const Schedule& schedule, std::uint64_t budget, bool learn,
             const residency::plan::Link& link) {
    typename Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = schedule;
    options.learn = learn;
    options.policies.link = link;
    if constexpr (requires { options.policies.unpacker; }) { options.policies.unpacker = &gpu::unpacker(); }
    return BENCH_RESULT(Weights::try_create(device, catalog, std::move(options)));
}

/// Passes that must give what the host's bytes give.
template <class Run>
void check(const Model& model, const std::vector<std::uint64_t>& expected, std::uint64_t* sums, Run&& run,
           const std::string& what, bench::Records& records) {
    BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
    run();
    BENCH_CUDA(cudaDeviceSynchronize());
    std::vector<std::uint64_t> got(model.sizes.size());
    BENCH_CUDA(cudaMemcpy(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost));
    BENCH_CUDA(cudaMemset(sums, 0, got.size() * 8));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) { wrong += got[i] != expected[i] ? 1U : 0U; }
    records.add(what, static_cast<double>(wrong), "weights", "<= 0");
}

/// A pass of matrix × vector kernels that read packed matrices. With `results`, what each gives.
template <class Pass>
void multiply(Pass& pass, const Catalog& catalog, const Schedule& schedule, bench::Products& products, Stream stream,
              std::vector<std::vector<float>>* results) {
    for (const Schedule::Step& step : schedule) {
        const auto lease = BENCH_RESULT(pass.try_acquire(step));
        for (const WeightId id : step.weights) {
            const residency::PackedWeight packed = lease.packed(id);
            if (packed.data == nullptr) { continue; }  // a vector
            const auto& source =
                std::get<residency::PackedHostSource>(catalog.storage(catalog.weight(id).storage).source);
            products.multiply(source.host->data() + source.offset_bytes, packed.data, stream);
            if (results != nullptr) {
                results->push_back(products.result(static_cast<std::size_t>(catalog.weight(id).shape[0]), stream));
            }
        }
    }
}

/// The second half: kernels that read packed weights.
void measure_products(CudaDevice& device, const Model& model, const std::string& title, int passes,
                      const residency::plan::Link& link, bench::BareCopies& bare, Stream stream, std::uint64_t* sums,
                      const Schedule& raw_times, bench::Records& records) {
    residency::packed::PackOptions form;
    form.form = [](const residency::Weight& weight) {
        return weight.shape.size() == 2 ? residency::PackedForm::bf16_tiles : residency::PackedForm::raw;
    };
    const auto packed = BENCH_RESULT(residency::packed::try_pack(device, model.catalog, form));
    records.add(title + ".tiles.packed_over_raw",
                static_cast<double>(packed.packed_bytes) / static_cast<double>(packed.raw_bytes), "ratio", "<= 0.753");
    bench::Products products{128256, 14336};
    auto resident = make<Packed>(device, packed.catalog, model.schedule, 2 * model.bytes, true, link);
    std::vector<std::vector<float>> expected;
    {
        auto pass = BENCH_RESULT(resident.try_begin(stream));
        multiply(pass, packed.catalog, model.schedule, products, stream, &expected);
        BENCH_RESULT(pass.try_end());
    }
    const auto run = [&](Packed& weights) {
        auto pass = BENCH_RESULT(weights.try_begin(stream));
        multiply(pass, packed.catalog, weights.schedule(), products, stream, nullptr);
        BENCH_RESULT(pass.try_end());
    };
    struct Case {
        int percent;
        const char* of_raw;
    };
    for (const Case& each : {Case{75, "<= 0.08"}, Case{90, "<= 0.22"}}) {
        const std::uint64_t budget = model.bytes / 100 * static_cast<std::uint64_t>(each.percent);
        const std::string name = title + ".tiles." + std::to_string(each.percent) + "%.";
        auto weights = make<Packed>(device, packed.catalog, model.schedule, budget, true, link);
        std::vector<std::vector<float>> got;
        for (int i = 0; i < 6; ++i) {
            got.clear();
            auto pass = BENCH_RESULT(weights.try_begin(stream));
            multiply(pass, packed.catalog, weights.schedule(), products, stream, i < 5 ? nullptr : &got);
            BENCH_RESULT(pass.try_end());
            BENCH_RESULT(weights.try_drain());
        }
        std::size_t wrong = got.size() == expected.size() ? 0 : 1;
        for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
            wrong += std::memcmp(got[i].data(), expected[i].data(), got[i].size() * 4) == 0 ? 0U : 1U;
        }
        records.add(name + "wrong_products", static_cast<double>(wrong), "products", "<= 0");
        auto raw = make<Raw>(device, model.catalog, raw_times, budget, false, link);
        auto captured = make<Packed>(device, packed.catalog, weights.schedule(), budget, false, link);
        auto graph = BENCH_RESULT(captured.try_capture(stream, [&](auto& pass) {
            multiply(pass, packed.catalog, captured.schedule(), products, stream, nullptr);
        }));
        bench::Turns turns{bare, stream, passes};
        const auto packed_turn = turns.add(true, [&] { run(weights); });
        const auto graph_turn = turns.add(true, [&] { BENCH_RESULT(graph.try_launch(stream)); });
        const auto raw_turn = turns.add(true, [&] { run_pass(raw, model, sums, false, stream); });
        const auto resident_turn = turns.add(true, [&] { run(resident); });
        turns.run();
        records.add(name + "time", turns.seconds(packed_turn) * 1e3, "ms");
        records.add(name + "raw.time", turns.seconds(raw_turn) * 1e3, "ms");
        records.add(name + "resident_packed.time", turns.seconds(resident_turn) * 1e3, "ms");
        records.add(name + "over_raw", turns.ratio(packed_turn, raw_turn), "ratio", each.of_raw);
        records.add(name + "graph.time", turns.seconds(graph_turn) * 1e3, "ms");
        records.add(name + "graph.over_raw", turns.ratio(graph_turn, raw_turn), "ratio", each.of_raw);
        records.add(name + "link_bytes", static_cast<double>(weights.plan().bytes_per_pass()) / 1e9, "GB");
        records.add(name + "predicted", weights.plan().predicted_seconds() * 1e3, "ms");
    }
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    bench::Shape shape{"packed_decode", 4096, 14336, 32};
    if (argc > 1) { shape.layers = static_cast<std::uint32_t>(std::atoi(argv[1])); }
    const int passes = argc > 2 ? std::atoi(argv[2]) : 20;
    bench::Records records{"gpu-packed-decode", argc, argv};
    const Model model{device, shape, trained};
    const auto begun = std::chrono::steady_clock::now();
    const auto packed = BENCH_RESULT(residency::packed::try_pack(device, model.catalog));
    records.add(shape.name + ".pack_on_host",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(), "s");
    records.add(shape.name + ".weights", static_cast<double>(model.bytes) / 1e9, "GB");
    records.add(shape.name + ".packed_over_raw",
                static_cast<double>(packed.packed_bytes) / static_cast<double>(packed.raw_bytes), "ratio", "<= 0.675");
    const Stream stream = BENCH_RESULT(device.create_stream());
    auto* const sums = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(model.sizes.size() * 8)));
    const auto link = BENCH_RESULT(residency::try_measure_link(device));
    records.add(shape.name + ".link.rate", link.bytes_per_second / 1e9, "GB/s");
    bench::BareCopies bare{device, model, stream};

    std::vector<std::uint64_t> expected(model.sizes.size());
    for (std::size_t i = 0; i < expected.size(); ++i) { expected[i] = gpu::checksum(model.bytes_of(i)); }

    // Everything resident and raw: what to compare with.
    auto resident = make<Raw>(device, model.catalog, model.schedule, 2 * model.bytes, false, link);
    bench::Turns alone{bare, stream, passes};
    const auto alone_turn = alone.add(true, [&] { run_pass(resident, model, sums, false, stream); });
    alone.run();
    auto learning = make<Raw>(device, model.catalog, model.schedule, model.bytes / 100 * 90, true, link);
    const Schedule timed = bench::timed_steps(
        learning, [&] { run_pass(learning, model, sums, false, stream); }, alone.seconds(alone_turn));
    BENCH_RESULT(learning.try_suspend());
    records.add(shape.name + ".sum_of_steps", bench::seconds_of(timed) * 1e3, "ms");

    struct Case {
        int percent;
        const char *of_raw, *of_bound;
    };
    for (const Case& each :
         {Case{10, "<= 0.70", "<= 1.02"}, Case{25, "<= 0.62", "<= 1.02"}, Case{50, "<= 0.40", "<= 1.03"},
          Case{75, "<= 0.24", "<= 1.10"}, Case{90, "<= 0.42", "<= 1.10"}}) {
        const std::uint64_t budget = model.bytes / 100 * static_cast<std::uint64_t>(each.percent);
        const std::string name = shape.name + "." + std::to_string(each.percent) + "%.";
        const std::uint64_t free_before = BENCH_RESULT(device.memory()).free_bytes;
        const auto planning = std::chrono::steady_clock::now();
        auto weights = make<Packed>(device, packed.catalog, timed, budget, false, link);
        records.add(name + "construction",
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - planning).count(), "s");
        for (int i = 0; i < 2; ++i) {
            check(
                model, expected, sums, [&] { run_pass(weights, model, sums, true, stream); },
                name + "wrong_weights.pass" + std::to_string(i), records);
        }
        const std::uint64_t taken = free_before - BENCH_RESULT(device.memory()).free_bytes;
        records.add(name + "device_bytes_over_budget", static_cast<double>(taken) / static_cast<double>(budget),
                    "ratio", "<= 1");
        auto raw = make<Raw>(device, model.catalog, timed, budget, false, link);
        auto captured = make<Packed>(device, packed.catalog, timed, budget, false, link);
        {
            auto verified = BENCH_RESULT(
                captured.try_capture(stream, [&](auto& pass) { run_steps(pass, model, timed, sums, true, stream); }));
            check(
                model, expected, sums, [&] { BENCH_RESULT(verified.try_launch(stream)); }, name + "graph.wrong_weights",
                records);
        }
        auto graph = BENCH_RESULT(
            captured.try_capture(stream, [&](auto& pass) { run_steps(pass, model, timed, sums, false, stream); }));

        bench::Turns turns{bare, stream, passes};
        const auto packed_turn = turns.add(true, [&] { run_pass(weights, model, sums, false, stream); });
        const auto graph_turn = turns.add(true, [&] { BENCH_RESULT(graph.try_launch(stream)); });
        const auto raw_turn = turns.add(true, [&] { run_pass(raw, model, sums, false, stream); });
        const auto resident_turn = turns.add(true, [&] { run_pass(resident, model, sums, false, stream); });
        turns.run();
        const auto& plan = weights.plan();
        records.add(name + "time", turns.seconds(packed_turn) * 1e3, "ms");
        records.add(name + "raw.time", turns.seconds(raw_turn) * 1e3, "ms");
        records.add(name + "resident.time", turns.seconds(resident_turn) * 1e3, "ms");
        records.add(name + "over_raw", turns.ratio(packed_turn, raw_turn), "ratio", each.of_raw);
        records.add(name + "over_resident", turns.ratio(packed_turn, resident_turn), "ratio");
        records.add(name + "graph_over_eager", turns.ratio(graph_turn, packed_turn), "ratio", "<= 1.02");
        records.add(name + "time_over_plan_bound",
                    turns.ratio(packed_turn, std::max(plan.bound_seconds(), plan.latency_floor_seconds()),
                                link.bytes_per_second),
                    "ratio", each.of_bound);
        records.add(name + "bound", plan.bound_seconds() * 1e3, "ms");
        const double exact = weights.exact_bound();
        records.add(name + "exact_bound", exact * 1e3, "ms");
        records.add(name + "time_over_exact_bound", turns.ratio(packed_turn, exact, link.bytes_per_second), "ratio",
                    each.of_bound);
        records.add(name + "time_over_predicted",
                    turns.ratio(packed_turn, plan.predicted_seconds(), link.bytes_per_second), "ratio");
        records.add(name + "link_bytes", static_cast<double>(plan.bytes_per_pass()) / 1e9, "GB");
    }
    measure_products(device, model, shape.name, passes, link, bare, stream, sums, timed, records);
    BENCH_RESULT(device.deallocate(sums));
    BENCH_RESULT(device.destroy_stream(stream));
    return 0;
}
