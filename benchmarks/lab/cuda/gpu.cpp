// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/lab/cuda/gpu.hpp"

#include "residency/core/measure/measure_link.hpp"

namespace lab {

namespace {

/// What a kernel takes beside the time for which it is told to spin. Where it cannot be measured: nothing.
std::chrono::nanoseconds kernel_cost(residency::CudaDevice& device) {
    constexpr int kernels = 200;
    constexpr std::chrono::nanoseconds each{20'000};
    const auto stream = device.create_stream();
    const auto begin = device.create_event(residency::Timing::on);
    const auto end = device.create_event(residency::Timing::on);
    std::chrono::nanoseconds cost{0};
    if (stream && begin && end) {
        for (int repeat = 0; repeat < 2; ++repeat) {
            bool is_done = device.record(*begin, *stream).has_value();
            for (int i = 0; i < kernels; ++i) { is_done = is_done && spin(each, *stream) == cudaSuccess; }
            is_done = is_done && device.record(*end, *stream) && device.synchronize(*stream);
            const auto elapsed = device.elapsed(*begin, *end);
            if (is_done && elapsed) { cost = std::max(*elapsed / kernels - each, std::chrono::nanoseconds{0}); }
        }
    }
    if (begin) { static_cast<void>(device.destroy_event(*begin).has_value()); }
    if (end) { static_cast<void>(device.destroy_event(*end).has_value()); }
    if (stream) { static_cast<void>(device.destroy_stream(*stream).has_value()); }
    return cost;
}

}  // namespace

residency::Result<std::shared_ptr<Gpu>> open_gpu() {
    auto device = residency::CudaDevice::try_open(0);
    if (!device) { return device.error(); }
    const auto cost = kernel_cost(*device);
    return std::make_shared<Gpu>(std::move(*device), cost);
}

residency::Result<residency::LinkModel> measured_link(Gpu& gpu) {
    const auto link = residency::try_measure_link(gpu.device());
    if (!link) { return link.error(); }
    residency::LinkModel model;
    model.name = "measured";
    model.to_device_bytes_per_second = model.to_host_bytes_per_second = link->bytes_per_second;
    model.call_latency = std::chrono::nanoseconds{static_cast<std::int64_t>(link->latency_seconds * 1e9)};
    model.node_latency = std::chrono::nanoseconds{static_cast<std::int64_t>(link->node_latency_seconds * 1e9)};
    return model;
}

}  // namespace lab
