// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A generated model that does not fit, streamed through a ring by direct calls of the simulated device: the waits that
// the engine later places by itself are all in sight here. Every step's bytes are verified, and the device's
// happens-before checker watches every access. Exits with 0 only if all bytes were right and nothing was reported.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "residency/device/simulated.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"

namespace {

using namespace residency;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr double kernel_bytes_per_second = 70e9;  // what a step's kernel takes for its weights

struct Options {
    std::uint32_t layers = 24;
    std::uint64_t layer_mib = 4;
    std::uint32_t slots = 4;
    std::uint32_t passes = 6;
};

/// Order matters in it, so that swapped words are noticed.
std::uint64_t checksum(const std::byte* data, std::uint64_t bytes) {
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at + sizeof sum <= bytes; at += sizeof sum) {
        std::uint64_t word = 0;
        std::memcpy(&word, data + at, sizeof word);
        sum = (sum ^ word) * 0x9E3779B97F4A7C15U;
        sum ^= sum >> 29U;
    }
    return sum;
}

std::string bar(double share, std::size_t width, const char* full, const char* empty) {
    std::string text;
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(width) + 0.5);
    for (std::size_t i = 0; i < width; ++i) { text += i < filled ? full : empty; }
    return text;
}

double milliseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::milli>{time}.count(); }

/// What the copy engine and the kernels did between two points of the virtual clock, one row each.
void print_timeline(const std::vector<SimulatedDevice::ExecutedOperation>& operations, std::int64_t begin,
                    std::int64_t end) {
    constexpr std::size_t width = 88;
    const auto row = [&](const char* name, simulation::OperationKind kind) {
        std::vector<double> busy(width, 0.0);
        double total = 0;
        const double column = static_cast<double>(end - begin) / width;
        for (const auto& operation : operations) {
            if (operation.kind != kind) { continue; }
            const double from = static_cast<double>(operation.start_ns - begin);
            const double to = static_cast<double>(operation.end_ns - begin);
            for (std::size_t i = 0; i < width; ++i) {
                const double left = column * static_cast<double>(i);
                const double both = (std::min)(to, left + column) - (std::max)(from, left);
                if (both > 0) {
                    busy[i] += both / column;
                    total += both;
                }
            }
        }
        std::string line;
        for (const double share : busy) { line += share > 0.95 ? "█" : share > 0.6 ? "▓" : share > 0.05 ? "░" : " "; }
        std::printf("  %-8s│%s│ %3.0f %% busy\n", name, line.c_str(), 100 * total / static_cast<double>(end - begin));
    };
    row("copies", simulation::OperationKind::copy_to_device);
    row("kernels", simulation::OperationKind::kernel);
    std::printf("  %-8s0%*.3f ms\n", "", static_cast<int>(width), static_cast<double>(end - begin) / 1e6);
}

int stream(const Options& options) {
    const std::uint64_t layer_bytes = options.layer_mib * mib;

    SimulatedDevice device;
    std::vector<SimulatedDevice::ExecutedOperation> operations;
    device.observe([&](const auto& operation) { operations.push_back(operation); });

    // The model: its bytes in pinned host memory, a catalog that names them, a schedule that reads them in order.
    auto* const host = static_cast<std::byte*>(unwrap(device.allocate_host(options.layers * layer_bytes)));
    unwrap(device.host_write(host, options.layers * layer_bytes));
    std::mt19937_64 random{20260801};
    for (std::uint64_t at = 0; at < options.layers * layer_bytes; at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(host + at, &word, sizeof word);
    }
    CatalogBuilder builder;
    for (std::uint32_t layer = 0; layer < options.layers; ++layer) {
        builder.add("layer." + std::to_string(layer) + ".weight", dtype::bf16, {layer_bytes / 2},
                    std::span{host + layer * layer_bytes, layer_bytes}, HostMemory::pinned);
    }
    const Catalog catalog = builder.build();
    const std::chrono::nanoseconds kernel_time{
        static_cast<std::int64_t>(1e9 * static_cast<double>(layer_bytes) / kernel_bytes_per_second)};
    ScheduleBuilder steps{catalog};
    for (std::uint32_t layer = 0; layer < options.layers; ++layer) { steps.step({WeightId{layer}}, kernel_time); }
    const Schedule schedule = steps.build();

    // The ring: slots that layers share, each with the event of its last arrival and of its last use.
    struct Slot {
        std::byte* at = nullptr;
        SimulatedDevice::Event arrival, last_use;
    };
    std::vector<Slot> ring(options.slots);
    for (Slot& slot : ring) {
        slot = {static_cast<std::byte*>(unwrap(device.allocate(layer_bytes))), unwrap(device.create_event(Timing::off)),
                unwrap(device.create_event(Timing::off))};
    }
    const auto copies = unwrap(device.create_stream("copies"));
    const auto kernels = unwrap(device.create_stream("kernels"));

    const std::uint64_t total = catalog.total_bytes();
    const double bound = static_cast<double>(total) / SimulatedDevice::Config{}.link.to_device_bytes_per_second;
    std::printf("%u layers of %llu MiB = %llu MiB, through a ring of %u slots = %llu MiB (%.0f %%), on the %s\n\n",
                options.layers, static_cast<unsigned long long>(options.layer_mib),
                static_cast<unsigned long long>(total / mib), options.slots,
                static_cast<unsigned long long>(options.slots * options.layer_mib),
                100.0 * options.slots / options.layers, std::string{device.name()}.c_str());
    std::printf("  pass   streamed   virtual time     of the link   verified\n");

    std::uint64_t used = 0;  // steps so far: names the slot
    std::uint64_t wrong = 0;
    std::uint64_t verified = 0;
    std::int64_t last_begin = 0;
    std::int64_t last_end = 0;
    for (std::uint32_t pass = 0; pass < options.passes; ++pass) {
        operations.clear();
        const auto begin = device.host_time();
        for (const auto& step : schedule) {
            Slot& slot = ring[used++ % ring.size()];
            const StorageId storage = step.storages.front();
            const std::byte* const source = catalog.host_bytes(storage);
            // The copy waits for the last kernel that read the slot, the kernel for the copy.
            unwrap(device.wait(copies, slot.last_use));
            const Copy copy{slot.at, source, layer_bytes};
            unwrap(device.copy({&copy, 1}, copies));
            unwrap(device.record(slot.arrival, copies));
            unwrap(device.wait(kernels, slot.arrival));
            unwrap(device.launch(kernels, {.name = catalog.weight(step.weights.front()).name,
                                           .duration = *step.compute,
                                           .reads = {{slot.at, layer_bytes}},
                                           .writes = {},
                                           .body = [&, at = slot.at, source] {
                                               ++verified;
                                               if (checksum(at, layer_bytes) != checksum(source, layer_bytes)) {
                                                   ++wrong;
                                               }
                                           }}));
            unwrap(device.record(slot.last_use, kernels));
            if (isatty(STDOUT_FILENO) != 0) {
                std::printf("\r  %4u   %s", pass + 1,
                            bar(double(step.position + 1) / options.layers, 40, "━", "╌").c_str());
                std::fflush(stdout);
            }
        }
        unwrap(device.synchronize());
        const auto end = device.host_time();
        last_begin = begin.count();
        last_end = end.count();
        const double seconds = std::chrono::duration<double>{end - begin}.count();
        std::printf("%s  %4u   %4llu MiB   %9.3f ms   %s %3.0f %%   %llu of %llu steps\n",
                    isatty(STDOUT_FILENO) != 0 ? "\r\033[K" : "", pass + 1,
                    static_cast<unsigned long long>(total / mib), milliseconds(end - begin),
                    bar(bound / seconds, 10, "█", "░").c_str(), 100 * bound / seconds,
                    static_cast<unsigned long long>(verified - wrong),
                    static_cast<unsigned long long>(std::uint64_t{pass + 1} * options.layers));
    }
    std::printf("\n  the last pass on the virtual clock\n");
    print_timeline(operations, last_begin, last_end);

    for (const Slot& slot : ring) {
        unwrap(device.deallocate(slot.at));
        unwrap(device.destroy_event(slot.arrival));
        unwrap(device.destroy_event(slot.last_use));
    }
    unwrap(device.destroy_stream(copies));
    unwrap(device.destroy_stream(kernels));
    unwrap(device.deallocate_host(host));

    const std::uint64_t steps_run = std::uint64_t{options.passes} * options.layers;
    const std::uint64_t leaks = device.leaks().size();
    std::printf("\n  peak device memory %llu MiB · wrong steps %llu · reports of the checker %llu · leaks %llu\n",
                static_cast<unsigned long long>(device.peak_used_bytes() / mib), static_cast<unsigned long long>(wrong),
                static_cast<unsigned long long>(device.report_count()), static_cast<unsigned long long>(leaks));
    for (const auto& report : device.reports()) { std::printf("  %s\n", report.text.c_str()); }
    return verified == steps_run && wrong == 0 && device.report_count() == 0 && leaks == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Streams a generated model through the simulated device and verifies every step"};
    app.add_option("--layers", options.layers, "steps of a pass")->check(CLI::Range(1, 4096));
    app.add_option("--layer-mib", options.layer_mib, "MiB of a layer")->check(CLI::Range(1, 1024));
    app.add_option("--slots", options.slots, "layers that fit on the device")->check(CLI::Range(1, 4096));
    app.add_option("--passes", options.passes, "how often the model is run")->check(CLI::Range(1, 1000));
    CLI11_PARSE(app, argc, argv);
    try {
        return stream(options);
    } catch (const residency::Exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
