// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Decoding at the shapes of Llama-3-8B or 70B in bf16, one kernel a matrix that reads it at the speed of the memory, the host waiting
// once a pass as an engine that samples a token does: time against the exact bound, by budget. For 8B as a graph too, and against
// the layer-wise double buffer with the best resident prefix, which is what serving engines do.
//
//   bench_decode [llama-3-8b | llama-3-70b] [layers] [passes]        by default llama-3-8b, all its layers, 20 passes
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/llama.hpp"
#include "benchmarks/gpu/record.hpp"
#include "benchmarks/gpu/turns.hpp"
#include "residency/device/cuda.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/harness.hpp"

namespace {

using bench::run_pass;
using bench::run_steps;
using bench::Shape;
using residency::Budget;
using residency::CudaDevice;
using residency::Schedule;
using residency::WeightId;
using Model = bench::Llama;
using Weights = residency::Planned<CudaDevice>;
using Stream = CudaDevice::Stream;
using Graph = decltype(std::declval<Weights&>().capture(Stream{}, std::declval<void (&)(Weights::Pass&)>()));

/// Whole layers: a resident prefix as large as the budget allows beside two buffers of a layer, the rest streamed through these.
class LayerWise {
public:
    LayerWise(CudaDevice& device, const Model& model, std::uint64_t budget) : device_{device}, model_{model} {
        for (std::uint32_t i = 0; i < model.layers; ++i) { slot_ = std::max(slot_, bytes_of(i)); }
        head_ = bytes_of(model.layers);
        // The head first where it fits, since it is read every pass too; then whole layers.
        std::uint64_t left = budget - 2 * std::max(slot_, std::uint64_t{0});
        head_resident_ = head_ <= left;
        if (head_resident_) { left -= head_; }
        while (resident_ < model.layers && bytes_of(resident_) <= left) { left -= bytes_of(resident_++); }
        const std::uint64_t buffer = head_resident_ ? slot_ : std::max(slot_, head_);
        at_ = static_cast<std::byte*>(
            BENCH_RESULT(device.allocate(resident_ * slot_ + (head_resident_ ? head_ : 0) + 2 * buffer)));
        std::byte* next = at_;
        for (std::uint32_t i = 0; i < resident_; ++i, next += slot_) { place(i, next); }
        if (head_resident_) {
            place(model.layers, next);
            next += head_;
        }
        buffers_[0] = next;
        buffers_[1] = next + buffer;
        copies_ = BENCH_RESULT(device.create_stream());
        for (auto* event : {&arrived_[0], &arrived_[1], &free_[0], &free_[1]}) {
            BENCH_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
        }
        for (std::uint32_t i = resident_; i < model.layers + (head_resident_ ? 0U : 1U); ++i) {
            streamed_.push_back(i);
        }
    }
    ~LayerWise() {
        static_cast<void>(cudaDeviceSynchronize());
        for (const auto event : {arrived_[0], arrived_[1], free_[0], free_[1]}) {
            static_cast<void>(cudaEventDestroy(event));
        }
        static_cast<void>(device_.destroy_stream(copies_).has_value());
        static_cast<void>(device_.deallocate(at_).has_value());
    }
    /// The next pass's first layers are fetched while this one ends.
    void run(std::uint64_t* sums, Stream stream) {
        for (std::uint32_t i = 0; i < model_.layers + 1; ++i) {
            const bool resident = i < resident_ || (i == model_.layers && head_resident_);
            if (resident) {
                launch(i, places_.at(i), sums, stream);
                continue;
            }
            while (fetched_ < used_ + 2) { fetch(); }
            const std::size_t buffer = used_ % 2;
            BENCH_CUDA(cudaStreamWaitEvent(stream, arrived_[buffer], 0));
            launch(i, buffers_[buffer], sums, stream);
            BENCH_CUDA(cudaEventRecord(free_[buffer], stream));
            ++used_;
            if (fetched_ < used_ + 2) { fetch(); }
        }
    }

private:
    [[nodiscard]] std::size_t end_of(std::uint32_t layer) const {
        return layer < model_.layers ? model_.layer_begin[layer + 1] : model_.sizes.size();
    }
    [[nodiscard]] std::uint64_t bytes_of(std::uint32_t layer) const {
        const std::size_t last = end_of(layer) - 1;
        return model_.offsets[last] + model_.sizes[last] - model_.offsets[model_.layer_begin[layer]];
    }
    void place(std::uint32_t layer, std::byte* at) {
        places_.resize(std::max<std::size_t>(places_.size(), layer + 1), nullptr);
        places_[layer] = at;
        BENCH_CUDA(cudaMemcpy(at, model_.host + model_.offsets[model_.layer_begin[layer]], bytes_of(layer),
                              cudaMemcpyHostToDevice));
    }
    void fetch() {
        const std::uint32_t layer = streamed_[fetched_ % streamed_.size()];
        const std::size_t buffer = fetched_ % 2;
        if (fetched_ >= 2) { BENCH_CUDA(cudaStreamWaitEvent(copies_, free_[buffer], 0)); }
        BENCH_CUDA(cudaMemcpyAsync(buffers_[buffer], model_.host + model_.offsets[model_.layer_begin[layer]],
                                   bytes_of(layer), cudaMemcpyHostToDevice, copies_));
        BENCH_CUDA(cudaEventRecord(arrived_[buffer], copies_));
        ++fetched_;
    }
    void launch(std::uint32_t layer, const std::byte* at, std::uint64_t* sums, Stream stream) {
        const std::size_t begin = model_.layer_begin[layer];
        for (std::size_t w = begin; w < end_of(layer); ++w) {
            gpu::Range ranges[2];
            std::size_t count = 0;
            ranges[count++] = {at + model_.offsets[w] - model_.offsets[begin], model_.sizes[w]};
            if (model_.sizes[w] == model_.norm_bytes) {
                ++w;
                ranges[count++] = {at + model_.offsets[w] - model_.offsets[begin], model_.sizes[w]};
            }
            BENCH_CUDA(count == 1 ? gpu::launch_checksum(ranges[0], sums, stream)
                                  : gpu::launch_checksum(std::span<const gpu::Range>{ranges, count}, sums, stream));
        }
    }

    CudaDevice& device_;
    const Model& model_;
    std::uint64_t slot_ = 0, head_ = 0;
    std::uint32_t resident_ = 0;
    bool head_resident_ = false;
    std::byte* at_ = nullptr;
    std::byte* buffers_[2] = {};
    std::vector<std::byte*> places_;
    std::vector<std::uint32_t> streamed_;
    std::size_t fetched_ = 0, used_ = 0;
    Stream copies_{};
    cudaEvent_t arrived_[2] = {}, free_[2] = {};
};

Weights make(CudaDevice& device, const Model& model, const Schedule& schedule, std::uint64_t budget, bool learn,
             const residency::plan::Link& link) {
    Weights::Options options;
    options.budget = Budget::bytes(budget);
    options.schedule = schedule;
    options.learn = learn;
    options.policies.link = link;
    return BENCH_RESULT(Weights::try_create(device, model.catalog, std::move(options)));
}

void check_sums(const std::vector<std::uint64_t>& expected, std::uint64_t* sums, const std::string& what,
                bench::Records& records) {
    std::vector<std::uint64_t> got(expected.size());
    BENCH_CUDA(cudaMemcpy(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost));
    BENCH_CUDA(cudaMemset(sums, 0, got.size() * 8));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) { wrong += got[i] != expected[i] ? 1U : 0U; }
    records.add(what, static_cast<double>(wrong), "weights", "<= 0");
}

}  // namespace

int main(int argc, char** argv) {
    CudaDevice device = bench::open_gpu();
    const std::string title = argc > 1 ? argv[1] : "llama-3-8b";
    const bool large = title == "llama-3-70b";
    if (!large && title != "llama-3-8b") {
        std::fprintf(stderr, "no shape \"%s\": give llama-3-8b or llama-3-70b\n", title.c_str());
        return 2;
    }
    Shape shape = large ? Shape{"decode_70b", 8192, 28672, 80} : Shape{"decode", 4096, 14336, 32};
    if (argc > 2) { shape.layers = static_cast<std::uint32_t>(std::atoi(argv[2])); }
    const int passes = argc > 3 ? std::atoi(argv[3]) : 20;
    bench::Records records{large ? "gpu-decode-70b" : "gpu-decode", argc, argv};
    const Model model{device, shape};
    const Stream stream = BENCH_RESULT(device.create_stream());
    auto* const sums = static_cast<std::uint64_t*>(BENCH_RESULT(device.allocate(model.sizes.size() * 8)));
    BENCH_CUDA(cudaMemset(sums, 0, model.sizes.size() * 8));
    const auto link_at_start = BENCH_RESULT(residency::try_measure_link(device));
    records.add(shape.name + ".link.rate", link_at_start.bytes_per_second / 1e9, "GB/s");
    records.add(shape.name + ".link.latency", link_at_start.latency_seconds * 1e6, "us");
    records.add(shape.name + ".layers", shape.layers, "layers");
    records.add(shape.name + ".weights", static_cast<double>(model.bytes) / 1e9, "GB");

    bench::BareCopies bare{device, model, stream};

    // Everything resident: the ceiling, and what every weight's checksum is; and the steps' times.
    std::vector<std::uint64_t> expected(model.sizes.size());
    Schedule timed;
    {
        auto weights = make(device, model, model.schedule, 2 * model.bytes, false, link_at_start);
        bench::Turns turns{bare, stream, passes};
        const auto resident = turns.add(true, [&] { run_pass(weights, model, sums, false, stream); });
        turns.run();
        records.add(shape.name + ".resident.time", turns.seconds(resident) * 1e3, "ms");
        BENCH_RESULT(weights.try_suspend());  // of the larger model there is no room for both
        {
            auto learning = make(device, model, model.schedule, model.bytes / 2, true, link_at_start);
            timed = bench::timed_steps(
                learning, [&] { run_pass(learning, model, sums, false, stream); }, turns.seconds(resident));
        }
        BENCH_RESULT(weights.try_resume());
        records.add(shape.name + ".sum_of_steps", bench::seconds_of(timed) * 1e3, "ms");
        BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
        run_pass(weights, model, sums, true, stream);
        BENCH_CUDA(cudaStreamSynchronize(stream));
        BENCH_CUDA(cudaMemcpy(expected.data(), sums, expected.size() * 8, cudaMemcpyDeviceToHost));
        BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
        for (std::size_t i = 0; i < expected.size(); i += 37) {
            const std::uint64_t want = gpu::checksum(model.bytes_of(i));
            if (want != expected[i]) {
                std::fprintf(stderr, "weight %zu: the resident checksum is wrong\n", i);
                return 1;
            }
        }
    }

    struct Case {
        int percent;
        const char* graph_target;
        const char* layer_target;
    };
    for (const Case& each : {Case{10, "", ""}, Case{25, "", ""}, Case{50, "<= 1.015", ">= 1.1"},
                             Case{75, "<= 1.02", ""}, Case{90, "<= 1.035", ">= 1.6"}, Case{95, "<= 1.035", ">= 2"}}) {
        const std::uint64_t budget = model.bytes / 100 * static_cast<std::uint64_t>(each.percent);
        if (large && each.percent == 95) { continue; }
        const std::string name = shape.name + "." + std::to_string(each.percent) + "%.";
        auto link = link_at_start;
        link.bytes_per_second = bare.rate();
        BENCH_CUDA(cudaDeviceSynchronize());
        const std::uint64_t free_before = BENCH_RESULT(device.memory()).free_bytes;
        auto weights = make(device, model, timed, budget, false, link);
        BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
        for (int i = 0; i < 3; ++i) {
            run_pass(weights, model, sums, true, stream);
            BENCH_CUDA(cudaStreamSynchronize(stream));
            check_sums(expected, sums, name + "wrong_weights.pass" + std::to_string(i), records);
        }
        const std::uint64_t taken = free_before - BENCH_RESULT(device.memory()).free_bytes;
        const auto& plan = weights.plan();
        const double bound = plan.bound_seconds();
        const double floor = std::max(bound, plan.latency_floor_seconds());

        bench::Turns turns{bare, stream, passes};
        const auto pass = [&] { run_pass(weights, model, sums, false, stream); };
        const auto eager = turns.add(true, pass);
        std::optional<Weights> captured;
        std::optional<Graph> graph;
        std::optional<LayerWise> peer;
        std::size_t in_a_row = 0, replayed = 0, replayed_in_a_row = 0, layer_wise = 0;
        if (!large) {
            in_a_row = turns.add(false, pass);
            captured.emplace(make(device, model, timed, budget, false, link));
            const auto capture = [&](bool by_weight) {
                return BENCH_RESULT(captured->try_capture(stream, [&](auto& captured_pass) {
                    run_steps(captured_pass, model, timed, sums, by_weight, stream);
                }));
            };
            {
                auto verified = capture(true);
                BENCH_CUDA(cudaMemset(sums, 0, expected.size() * 8));
                for (int i = 0; i < 2; ++i) {
                    BENCH_RESULT(verified.try_launch(stream));
                    BENCH_CUDA(cudaStreamSynchronize(stream));
                    check_sums(expected, sums, name + "graph.wrong_weights.replay" + std::to_string(i), records);
                }
            }
            graph.emplace(capture(false));
            const auto replay = [&] { BENCH_RESULT(graph->try_launch(stream)); };
            replayed = turns.add(true, replay);
            replayed_in_a_row = turns.add(false, replay);
            peer.emplace(device, model, budget);
            layer_wise = turns.add(true, [&] { peer->run(sums, stream); });
        }
        turns.run();

        const double rate = link.bytes_per_second;
        records.add(name + "link.rate", turns.rate() / 1e9, "GB/s");
        records.add(name + "bound", bound * rate / turns.rate() * 1e3, "ms");
        records.add(name + "time", turns.seconds(eager) * 1e3, "ms");
        records.add(name + "time_over_bound", turns.ratio(eager, bound, rate), "ratio");
        records.add(name + "time_over_bound_or_latency_floor", turns.ratio(eager, floor, rate), "ratio",
                    large ? "<= 1.01" : "<= 1.008");
        records.add(name + "predicted_over_bound", plan.predicted_seconds() / bound, "ratio");
        records.add(name + "regret_in_statistics", weights.statistics().regret().value_or(-1), "ratio");
        records.add(name + "bytes_a_pass_over_deficit",
                    static_cast<double>(plan.bytes_per_pass()) / static_cast<double>(model.bytes - budget), "ratio");
        records.add(name + "device_bytes_over_budget", static_cast<double>(taken) / static_cast<double>(budget),
                    "ratio", "<= 1");
        if (large) { continue; }
        records.add(name + "waiting_over_not_waiting", turns.ratio(eager, in_a_row), "ratio", "<= 1.005");
        const auto& graph_plan = captured->plan();
        records.add(name + "graph.time_over_bound", turns.ratio(replayed, graph_plan.bound_seconds(), rate), "ratio",
                    each.graph_target);
        records.add(name + "graph.time_over_predicted", turns.ratio(replayed, graph_plan.predicted_seconds(), rate),
                    "ratio", "<= 1.01");
        records.add(name + "graph.in_a_row_over_eager_in_a_row", turns.ratio(replayed_in_a_row, in_a_row), "ratio",
                    each.percent == 50 ? "<= 1.01" : "");
        records.add(name + "graph.waiting_over_not_waiting", turns.ratio(replayed, replayed_in_a_row), "ratio",
                    each.percent == 50 ? "<= 1.005" : "");
        records.add(name + "layer_wise.time", turns.seconds(layer_wise) * 1e3, "ms");
        records.add(name + "layer_wise_over_ours", turns.ratio(layer_wise, eager), "ratio", each.layer_target);
    }
    BENCH_RESULT(device.deallocate(sums));
    BENCH_RESULT(device.destroy_stream(stream));
    BENCH_RESULT(device.deallocate_host(model.host));
    return 0;
}
