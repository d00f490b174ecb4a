// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A denoiser whose blocks differ in size, wide and shallow in the middle, narrow and long outside, run step after step, where compute
// and copies take about as long: streaming then costs little, as copies travel while kernels run. Exits with 0 if every budget's
// image equals that of the resident run bit for bit.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "residency/residency.hpp"

namespace {

using namespace residency;

constexpr std::uint32_t width = 64;      // channels of the image between the blocks
constexpr std::uint32_t pixels = 48;     // positions of it
constexpr std::uint32_t steps = 6;       // of denoising
constexpr double kernel_rate = 0.65e12;  // operations a second: what makes compute and copies alike
constexpr std::array<std::uint32_t, 13> inner{512,  1024, 2048, 3072, 6144, 8192, 12288,
                                              8192, 6144, 3072, 2048, 1024, 512};

double mib(std::uint64_t bytes) { return double(bytes) / double(1U << 20U); }

/// image += down · silu(up · image), at every position; up is inner × width, down too (transposed).
void block(float* image, const float* up, const float* down, std::uint32_t rows) {
    for (std::uint32_t p = 0; p < pixels; ++p) {
        float* const at = image + std::size_t{p} * width;
        std::array<float, width> in{};
        std::copy_n(at, width, in.begin());
        for (std::uint32_t i = 0; i < rows; ++i) {
            const float* u = up + std::size_t{i} * width;
            const float* d = down + std::size_t{i} * width;
            std::array<float, 8> lanes{};
            for (std::uint32_t k = 0; k < width; ++k) { lanes[k % 8] += u[k] * in[k]; }
            float sum = 0;
            for (const float lane : lanes) { sum += lane; }
            const float value = sum / (1 + std::exp(-sum)) / float(rows);
            for (std::uint32_t k = 0; k < width; ++k) { at[k] += value * d[k]; }
        }
    }
}

std::chrono::nanoseconds duration_of(std::uint32_t rows) {
    return std::chrono::nanoseconds{static_cast<std::int64_t>(4.0 * pixels * width * rows / kernel_rate * 1e9)};
}

/// What the copy engine and the kernels did between two moments, one row each.
void print_timeline(const std::vector<SimulatedDevice::ExecutedOperation>& operations, std::int64_t begin,
                    std::int64_t end) {
    constexpr std::size_t columns = 80;
    const auto row = [&](const char* name, simulation::OperationKind kind) {
        std::array<double, columns> busy{};
        double total = 0;
        const double column = double(end - begin) / columns;
        for (const auto& operation : operations) {
            if (operation.kind != kind) { continue; }
            for (std::size_t i = 0; i < columns; ++i) {
                const double left = double(begin) + column * double(i);
                const double both =
                    (std::min)(double(operation.end_ns), left + column) - (std::max)(double(operation.start_ns), left);
                busy[i] += both > 0 ? both / column : 0;
                total += both > 0 ? both : 0;
            }
        }
        std::string line;
        for (const double share : busy) { line += share > 0.9 ? "█" : share > 0.5 ? "▓" : share > 0.05 ? "░" : " "; }
        std::printf("  %-8s│%s│ %3.0f %% busy\n", name, line.c_str(), 100 * total / double(end - begin));
    };
    row("copies", simulation::OperationKind::copy_to_device);
    row("kernels", simulation::OperationKind::kernel);
}

}  // namespace

int main() try {
    SimulatedDevice device;
    std::vector<SimulatedDevice::ExecutedOperation> operations;
    device.observe([&](const auto& operation) { operations.push_back(operation); });

    // The model, in pinned memory, and its schedule.
    std::uint64_t floats = 0;
    for (const std::uint32_t rows : inner) { floats += std::uint64_t{2} * rows * width; }
    auto* const host = static_cast<float*>(unwrap(device.allocate_host(floats * sizeof(float))));
    auto* const image = static_cast<float*>(unwrap(device.allocate(pixels * width * sizeof(float))));
    auto* const noise = static_cast<float*>(unwrap(device.allocate_host(pixels * width * sizeof(float))));
    auto* const result = static_cast<float*>(unwrap(device.allocate_host(pixels * width * sizeof(float))));
    std::mt19937 random{3};
    const auto uniform = [&] { return float(random() >> 8U) / 16777216.0F - 0.5F; };
    std::generate_n(host, floats, uniform);
    std::generate_n(noise, pixels * width, uniform);
    bool right = true;
    {
        CatalogBuilder builder;
        const float* next = host;
        for (std::size_t i = 0; i < inner.size(); ++i) {
            for (const char* name : {".up", ".down"}) {
                const std::size_t count = std::size_t{inner[i]} * width;
                builder.add("block." + std::to_string(i) + name, dtype::f32, {inner[i], width},
                            std::as_bytes(std::span{next, count}), HostMemory::pinned);
                next += count;
            }
        }
        const Catalog catalog = builder.build();
        ScheduleBuilder blocks{catalog};
        for (std::uint32_t i = 0; i < inner.size(); ++i) {
            blocks.step({WeightId{2 * i}, WeightId{2 * i + 1}}, duration_of(inner[i]));
        }
        const Schedule schedule = blocks.build();
        const auto stream = unwrap(device.create_stream("compute"));

        std::printf("%zu blocks of %.2f to %.2f MiB, %.1f MiB together; %u steps\n\n", inner.size(),
                    mib(std::uint64_t{2} * inner.front() * width * sizeof(float)),
                    mib(std::uint64_t{2} * inner[6] * width * sizeof(float)), mib(catalog.total_bytes()), steps);
        std::printf("  budget      held   copied a step   a step takes   of resident   of the bound\n");
        std::vector<float> expected;
        double resident_ms = 0;
        for (const std::uint64_t percent : {1000U, 75U, 50U, 35U}) {
            Planned<SimulatedDevice> weights{
                device, catalog, {.budget = Budget::percent_of_weights(percent), .schedule = schedule}};
            const Copy in{image, noise, pixels * width * sizeof(float)},
                out{result, image, pixels * width * sizeof(float)};
            unwrap(device.copy({&in, 1}, stream));
            std::int64_t begin = 0;
            for (std::uint32_t step = 0; step < steps; ++step) {
                if (step + 2 == steps) { unwrap(device.synchronize(stream)); }
                if (step + 1 == steps) {
                    operations.clear();
                    begin = device.host_time().count();
                }
                auto pass = weights.begin(stream);
                for (const auto& each : schedule) {
                    const auto lease = pass.acquire(each);
                    const auto up = lease.span<float>(each.weights[0]), down = lease.span<float>(each.weights[1]);
                    unwrap(device.launch(
                        stream,
                        {.name = "block",
                         .duration = *each.compute,
                         .reads = {{up.data(), up.size_bytes()}, {down.data(), down.size_bytes()}, {image, in.bytes}},
                         .writes = {{image, in.bytes}},
                         .body = [image, up, down] {
                             block(image, up.data(), down.data(), std::uint32_t(up.size() / width));
                         }}));
                }
                pass.end();
                unwrap(device.synchronize(stream));
            }
            const std::int64_t end = device.host_time().count();
            unwrap(device.copy({&out, 1}, stream));
            unwrap(device.synchronize(stream));
            weights.drain();

            if (expected.empty()) { expected.assign(result, result + pixels * width); }
            const bool same = std::memcmp(expected.data(), result, expected.size() * sizeof(float)) == 0;
            right =
                right && same && std::all_of(result, result + pixels * width, [](float v) { return std::isfinite(v); });
            const Statistics statistics = weights.statistics();
            const double ms = double(statistics.pass_time->count()) / 1e6;
            if (resident_ms == 0) { resident_ms = ms; }
            const std::string budget = statistics.streaming ? std::to_string(percent) + " %" : "all";
            std::printf("  %-6s %5.1f MiB   %9.1f MiB   %9.3f ms   %11.2f   %12s%s\n", budget.c_str(),
                        mib(statistics.held_bytes), mib(statistics.last_pass.fetched_bytes), ms, ms / resident_ms,
                        statistics.bound
                            ? std::to_string(ms * 1e6 / double(statistics.bound->count())).substr(0, 4).c_str()
                            : "–",
                        same ? "" : "   DIFFERS");
            if (percent == 50) {
                std::printf("\n");
                print_timeline(operations, begin, end);
                std::printf("\n");
            }
        }
        unwrap(device.destroy_stream(stream));
    }
    unwrap(device.deallocate(image));
    for (void* at : {host, noise, result}) { unwrap(device.deallocate_host(at)); }
    std::printf("\nimages %s; reports of the checker: %llu\n",
                right ? "equal that of the resident run bit for bit" : "DIFFER",
                static_cast<unsigned long long>(device.report_count()));
    for (const auto& report : device.reports()) { std::printf("%s\n", report.text.c_str()); }
    return right && device.report_count() == 0 ? 0 : 1;
} catch (const residency::Exception& error) { return std::fprintf(stderr, "diffusion: %s\n", error.what()), 2; }
