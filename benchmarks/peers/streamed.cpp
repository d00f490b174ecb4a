// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The preset Planned behind a C interface, for programs that launch their kernels from elsewhere, such as PyTorch. Functions
// that return an int return 0, or 1 with the reason in streamed_error(); those that return a pointer return null instead. A
// stream is a cudaStream_t; on the simulated device it is ignored, and a step's bytes are there when streamed_acquire returns.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "residency/core/measure/measure_link.hpp"
#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/fwd.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#ifdef WITH_CUDA
#include <cuda_runtime_api.h>

#include "residency/device/cuda.hpp"
#else
#include "residency/simulation/simulated_device.hpp"
#endif

namespace {

using residency::Catalog;
using residency::Schedule;
using residency::Status;
using residency::WeightId;
#ifdef WITH_CUDA
using Device = residency::CudaDevice;
#else
using Device = residency::SimulatedDevice;
#endif
using Planned = residency::Planned<Device>;
using Graph = std::remove_reference_t<decltype(*std::declval<Planned&>().try_capture({}, [](Planned::Pass&) {}))>;

thread_local std::string last_error;

int failed(const residency::Error& error) {
    last_error = error.message();
    return 1;
}
int done(const Status& status) { return status ? 0 : failed(status.error()); }

/// What a call of this interface works on: one device, one range of pinned host bytes with the weights in it, their schedule.
struct Model {
#ifdef WITH_CUDA
    Device device{0};
#else
    Device device;
#endif
    residency::plan::Link link;
    Catalog catalog;
    std::vector<std::vector<WeightId>> steps;
    [[nodiscard]] Device::Stream stream([[maybe_unused]] void* handle) {
#ifdef WITH_CUDA
        return static_cast<cudaStream_t>(handle);
#else
        if (!own) { own = residency::unwrap(device.create_stream()); }
        return *own;
    }
    std::optional<Device::Stream> own;
    [[nodiscard]] Status wait() {
        return own ? device.synchronize(*own) : Status{};
#endif
    }
};

struct Weights {
    Model& model;
    Planned planned;
    std::optional<Planned::Pass> begun;  // by streamed_begin
    Planned::Pass* pass = nullptr;       // that one, or the one that is captured
    Planned::Lease lease;
    std::optional<Graph> graph;
};

template <class Work>
int guarded(Work&& work) {
    try {
        return work();
    } catch (const std::exception& error) {
        last_error = error.what();
        return 1;
    }
}

}  // namespace

extern "C" {

const char* streamed_error() { return last_error.c_str(); }

/// The device, without weights yet; null where there is none.
Model* streamed_open() {
    Model* model = nullptr;
    static_cast<void>(guarded([&] {
        model = new Model;
        return 0;
    }));
    return model;
}
void streamed_close(Model* model) { delete model; }

/// Pinned host memory.
void* streamed_pinned(Model* model, std::uint64_t bytes) {
    auto at = model->device.allocate_host(bytes);
    if (!at) { static_cast<void>(failed(at.error())); }
    return at ? *at : nullptr;
}
/// The address under which kernels read it.
const void* streamed_device_view(Model* model, const void* at) {
    auto view = model->device.device_view(at);
    if (!view) { static_cast<void>(failed(view.error())); }
    return view ? *view : nullptr;
}
int streamed_unpin(Model* model, void* at) { return done(model->device.deallocate_host(at)); }

/// Bytes per second, seconds a call, seconds a copy node of a graph.
int streamed_measure_link(Model* model, double* figures) {
    const auto link = residency::try_measure_link(model->device);
    if (!link) { return failed(link.error()); }
    model->link = *link;
    figures[0] = link->bytes_per_second;
    figures[1] = link->latency_seconds;
    figures[2] = link->node_latency_seconds;
    return 0;
}

/// What is created from now on is planned for so many bytes per second.
void streamed_set_rate(Model* model, double bytes_per_second) { model->link.bytes_per_second = bytes_per_second; }

/// The weights: `count` of them at `offsets` of `host`, which is pinned and outlives the model; and the steps, step i reading
/// weights [ends[i − 1], ends[i]).
int streamed_describe(Model* model, const void* host, std::uint64_t host_bytes, std::uint32_t count,
                      const std::uint64_t* offsets, const std::uint64_t* bytes, std::uint32_t steps,
                      const std::uint32_t* ends) {
    return guarded([&] {
        const auto held = residency::HostBytes::borrow(
            {static_cast<const std::byte*>(host), static_cast<std::size_t>(host_bytes)}, residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        for (std::uint32_t i = 0; i < count; ++i) {
            builder.add("weight." + std::to_string(i), residency::dtype::bf16, {bytes[i] / 2},
                        residency::HostSource{held, offsets[i]});
        }
        model->catalog = residency::unwrap(builder.try_build());
        model->steps.clear();
        std::uint32_t next = 0;
        for (std::uint32_t i = 0; i < steps; ++i) {
            auto& step = model->steps.emplace_back();
            while (next < ends[i]) { step.push_back(WeightId{next++}); }
        }
        return 0;
    });
}

/// The weights on the device inside a budget of bytes; `seconds`: how long each step runs; `captured`: planned for graphs.
Weights* streamed_create(Model* model, std::uint64_t budget_bytes, const double* seconds, int captured) {
    Weights* weights = nullptr;
    static_cast<void>(guarded([&] {
        residency::ScheduleBuilder schedule{model->catalog};
        for (std::size_t i = 0; i < model->steps.size(); ++i) {
            schedule.step(std::span<const WeightId>{model->steps[i]},
                          std::chrono::nanoseconds{static_cast<std::int64_t>(seconds[i] * 1e9)});
        }
        Planned::Options options;
        options.budget = residency::Budget::bytes(budget_bytes);
        options.schedule = residency::unwrap(schedule.try_build());
        options.policies.link = model->link;
        options.policies.options.captured = captured != 0;
        auto planned = Planned::try_create(model->device, model->catalog, std::move(options));
        if (!planned) { return failed(planned.error()); }
        weights = new Weights{*model, std::move(*planned), {}, nullptr, {}, {}};
        return 0;
    }));
    return weights;
}
void streamed_destroy(Weights* weights) { delete weights; }

int streamed_begin(Weights* weights, void* stream) {
    auto pass = weights->planned.try_begin(weights->model.stream(stream));
    if (!pass) { return failed(pass.error()); }
    weights->begun = std::move(*pass);
    weights->pass = &*weights->begun;
    return 0;
}
int streamed_end(Weights* weights) {
    const Status ended = weights->begun->try_end();
    weights->begun.reset();
    weights->pass = nullptr;
    return done(ended);
}
/// Work enqueued on the pass's stream between these two may read the step's weights.
int streamed_acquire(Weights* weights, std::uint32_t step) {
    auto lease = weights->pass->try_acquire(weights->planned.schedule()[step]);
    if (!lease) { return failed(lease.error()); }
    weights->lease = std::move(*lease);
#ifndef WITH_CUDA
    return done(weights->model.wait());
#else
    return 0;
#endif
}
void streamed_release(Weights* weights) { weights->lease.end(); }

/// Where each weight lies in every pass, as long as the plan was made for the passes that run. Runs one.
int streamed_addresses(Weights* weights, void* stream, void** addresses) {
    if (streamed_begin(weights, stream) != 0) { return 1; }
    for (std::uint32_t step = 0; step < weights->model.steps.size(); ++step) {
        if (streamed_acquire(weights, step) != 0) { return 1; }
        for (const WeightId id : weights->model.steps[step]) {
            addresses[index(id)] = const_cast<std::byte*>(weights->lease.data(id));
        }
        streamed_release(weights);
    }
    return streamed_end(weights);
}

/// Records a pass as a graph: `body` acquires and releases every step in order and launches its work on the stream; where it
/// returns anything but 0, nothing is recorded.
int streamed_capture(Weights* weights, void* stream, int (*body)()) {
    auto graph = weights->planned.try_capture(weights->model.stream(stream), [&](Planned::Pass& pass) -> Status {
        weights->pass = &pass;
        const int code = body();
        weights->lease.end();
        weights->pass = nullptr;
        if (code == 0) { return {}; }
        return residency::Error{residency::ErrorKind::cancelled, "the body of the captured pass failed"};
    });
    if (!graph) { return failed(graph.error()); }
    weights->graph.reset();
    weights->graph = std::move(*graph);
    return 0;
}
int streamed_launch(Weights* weights, void* stream) {
    return done(weights->graph->try_launch(weights->model.stream(stream)));
}

/// Blocks until everything is complete; also reports what went wrong where it could not be said.
int streamed_drain(Weights* weights) {
    if (const auto drained = weights->planned.try_drain(); !drained) { return failed(drained.error()); }
    return weights->planned.failure() ? failed(*weights->planned.failure()) : 0;
}

/// Of the plan in force: the exact bound, the latency floor, the predicted time and the sum of the steps in seconds; bytes moved a
/// pass; bytes held now.
void streamed_figures(const Weights* weights, double* figures) {
    const auto& plan = weights->planned.plan();
    figures[0] = plan.bound_seconds();
    figures[1] = plan.latency_floor_seconds();
    figures[2] = plan.predicted_seconds();
    figures[3] = plan.compute_seconds();
    figures[4] = static_cast<double>(plan.bytes_per_pass());
    figures[5] = static_cast<double>(weights->planned.statistics().held_bytes);
}

}  // extern "C"
