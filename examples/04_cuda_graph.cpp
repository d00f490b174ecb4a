// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A pass as one graph, copies included: recorded once, launched for every token, refused after the budget has changed. The kernels
// are copies on the device, so that the same source runs on a GPU and on the simulated device. Exits with 0 if every byte was right.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#ifdef WITH_CUDA
#include "residency/device/cuda.hpp"
#endif

namespace {

using namespace residency;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint32_t layers = 24;
constexpr std::uint64_t layer_bytes = 4 * mib;
constexpr int tokens = 20;

template <CapturingDevice Device>
int run(Device& device) {
    auto* const host = static_cast<std::byte*>(unwrap(device.allocate_host(layers * layer_bytes)));
    auto* const result = static_cast<std::byte*>(unwrap(device.allocate_host(layers * layer_bytes)));
    auto* const out = static_cast<std::byte*>(unwrap(device.allocate(layers * layer_bytes)));
    const auto stream = unwrap(device.create_stream());
    std::mt19937_64 random{1};
    for (std::uint64_t at = 0; at < layers * layer_bytes; at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(host + at, &word, sizeof word);
    }
    bool right = true, refused = false;
    {
        const auto held = HostBytes::borrow({host, layers * layer_bytes}, HostMemory::pinned);
        CatalogBuilder builder;
        for (std::uint32_t i = 0; i < layers; ++i) {
            builder.add("layer." + std::to_string(i), dtype::u8, {layer_bytes}, HostSource{held, i * layer_bytes});
        }
        const Catalog catalog = builder.build();
        ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}, std::chrono::microseconds{6}); }
        Planned<Device> weights{device, catalog, {.budget = Budget::parse("50%"), .schedule = steps.build()}};

        const auto body = [&](auto& pass) {
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.acquire(step);
                const Copy copy{out + step.position * layer_bytes, lease.data(step.weights.front()), layer_bytes};
                unwrap(device.copy({&copy, 1}, stream));
            }
        };
        const auto measure = [&](const char* what, auto&& one_pass) {
            unwrap(device.fill(out, std::byte{0}, layers * layer_bytes, stream));
            one_pass();  // the first has to bring what the budget keeps
            unwrap(device.synchronize(stream));
            const auto begin = device.host_time();
            for (int token = 0; token < tokens; ++token) { one_pass(); }
            const auto enqueued = device.host_time();
            unwrap(device.synchronize(stream));
            const auto end = device.host_time();
            const Copy copy{result, out, layers * layer_bytes};
            unwrap(device.copy({&copy, 1}, stream));
            unwrap(device.synchronize(stream));
            const bool same = std::memcmp(result, host, layers * layer_bytes) == 0;
            right = right && same;
            std::printf("%-12s %.3f ms a pass, of the host %.3f ms; bytes %s\n", what,
                        double((end - begin).count()) / 1e6 / tokens, double((enqueued - begin).count()) / 1e6 / tokens,
                        same ? "right" : "WRONG");
        };
        std::printf("%s: %u layers of %llu MiB, %s\n", std::string{device.name()}.c_str(), layers,
                    static_cast<unsigned long long>(layer_bytes / mib), weights.budget().text.c_str());
        measure("launch each", [&] {
            auto pass = weights.begin(stream);
            body(pass);
        });
        auto graph = weights.capture(stream, body);
        measure("one graph", [&] { graph.launch(stream); });

        weights.set_budget(Budget::parse("75%"));
        const Status stale = graph.try_launch(stream);
        refused = !stale && stale.error().kind() == ErrorKind::stale;
        std::printf("%-12s %s\n", "75 %:", stale ? "a stale graph was LAUNCHED" : stale.error().message().c_str());
        graph = weights.capture(stream, body);
        measure("a new graph", [&] { graph.launch(stream); });
    }
    unwrap(device.destroy_stream(stream));
    unwrap(device.deallocate(out));
    unwrap(device.deallocate_host(result));
    unwrap(device.deallocate_host(host));
    return right && refused ? 0 : 1;
}

}  // namespace

int main() try {
#ifdef WITH_CUDA
    if (auto gpu = CudaDevice::try_open(0)) { return run(*gpu); }
#endif
    SimulatedDevice device;
    const int status = run(device);
    for (const auto& report : device.reports()) { std::printf("%s\n", report.text.c_str()); }
    return device.report_count() == 0 ? status : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "cuda_graph: %s\n", error.what()), 2; }
