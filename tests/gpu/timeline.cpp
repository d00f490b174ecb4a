// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The timeline of real passes: the checks are those of tests/timeline/timeline_recorder.cpp on the simulated device.
#include "residency/timeline/timeline_recorder.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/device/cuda.hpp"
#include "residency/evict/known_order.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/planned.hpp"
#include "residency/pool/stream_ordered.hpp"
#include "residency/prefetch/scheduled.hpp"
#include "tests/gpu/support.hpp"
#include "tests/support/recorded_passes.hpp"

namespace timeline_on_gpu {

using namespace std::chrono_literals;
using gpu::MiB;
using gpu::must;
using gpu::must_cuda;
using residency::Budget;
using residency::CudaDevice;
using residency::PassTimeline;
using residency::WeightId;
using Recorder = residency::TimelineRecorder<CudaDevice>;

namespace {

constexpr std::uint32_t weights_count = 24;
constexpr std::uint64_t weight_bytes = 6 * MiB;
/// What the driver's events resolve, and a float of milliseconds.
constexpr auto resolution = 2us;

struct Bench {
    CudaDevice device{0};
    CudaDevice::Stream stream = must(device.create_stream());
    residency::Catalog catalog;
    residency::Schedule schedule;

    Bench() {
        constexpr std::uint64_t bytes = weights_count * weight_bytes;
        auto* const at = static_cast<std::byte*>(must(device.allocate_host(bytes)));
        gpu::fill_pattern({at, bytes}, 1);
        const auto host = residency::HostBytes::adopt(at, bytes, residency::HostMemory::pinned, [this](std::byte* p) {
            static_cast<void>(device.deallocate_host(p).has_value());
        });
        residency::CatalogBuilder builder;
        for (std::uint32_t i = 0; i < weights_count; ++i) {
            builder.add("w" + std::to_string(i), residency::dtype::u8, {weight_bytes},
                        residency::HostSource{host, i * weight_bytes});
        }
        catalog = must(builder.try_build());
        residency::ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < weights_count; i += 2) {
            steps.step({WeightId{i}, WeightId{i + 1}}, 50us, i % 4 == 0 ? "layer " + std::to_string(i) : std::string{});
        }
        schedule = must(steps.try_build());
    }
    ~Bench() {
        schedule = {};
        catalog = {};
        static_cast<void>(device.destroy_stream(stream).has_value());
    }

    /// A kernel that reads the weight, and some time.
    auto launch() {
        return [this](WeightId, std::span<const std::byte> bytes) {
            must_cuda(gpu::launch_checksum({bytes.data(), bytes.size()}, sum.at(), stream.get()));
            must_cuda(gpu::launch_spin(20us, stream.get()));
        };
    }
    gpu::Sum sum{device};
};

template <class Weights>
void check_composition() {
    Bench bench;
    Recorder recorder{bench.device, {.passes = 4}};
    typename Weights::Options options;
    options.budget = Budget::bytes(weights_count * weight_bytes / 2);
    options.schedule = bench.schedule;
    Weights weights = must(Weights::try_create(bench.device, bench.catalog, std::move(options)));
    must(weights.try_observe(&recorder));
    recorded::run_passes(weights, bench.stream, 3, bench.launch());
    const auto copied = recorded::run_passes(weights, bench.stream, 4, bench.launch());
    const PassTimeline timeline = recorder.timeline();
    if (recorder.failure()) { FAIL(recorder.failure()->message()); }
    CHECK(recorder.gaps().text() == "");
    CHECK(recorder.gaps().forgotten_passes == 3);
    recorded::check_passes(timeline, bench.catalog, weights.schedule(), copied, resolution);
    CHECK(copied.back() > 0);
    // Each step spins for 40 µs.
    for (const auto& kernel : timeline.kernels()) { CHECK(kernel.end - kernel.start >= 40us - resolution); }
    must(weights.try_observe(nullptr));
}

}  // namespace

TEST_CASE("timeline: a planned composition") { check_composition<residency::Planned<CudaDevice>>(); }

TEST_CASE("timeline: an online composition") { check_composition<residency::Scheduled<CudaDevice>>(); }

TEST_CASE("timeline: captured passes, kernel by kernel") {
    Bench bench;
    using Weights = residency::Planned<CudaDevice>;
    Recorder recorder{bench.device, {.passes = 4}};
    Weights::Options options;
    options.budget = Budget::bytes(weights_count * weight_bytes / 2);
    options.schedule = bench.schedule;
    Weights weights = must(Weights::try_create(bench.device, bench.catalog, std::move(options)));
    must(weights.try_observe(&recorder));
    {
        const auto launch = bench.launch();
        auto graph = must(weights.try_capture(bench.stream, [&](auto& pass) {
            for (const auto& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                for (const auto id : step.weights) {
                    recorder.kernel(bench.catalog.weight(id).name, bench.stream, [&] { launch(id, lease.bytes(id)); });
                }
            }
        }));
        for (int i = 0; i < 5; ++i) {
            must(graph.try_launch(bench.stream));
            must(bench.device.synchronize(bench.stream));
        }
        const std::uint64_t copied = weights.statistics().last_pass.fetched_bytes;
        const PassTimeline timeline = recorder.timeline();
        if (recorder.failure()) { FAIL(recorder.failure()->message()); }
        CHECK(recorder.gaps().unseen_steps == 0);
        REQUIRE(timeline.passes().size() == 4);
        REQUIRE(timeline.kernels().size() == 4 * weights_count);
        for (std::size_t i = 0; i < timeline.kernels().size(); ++i) {
            const auto& kernel = timeline.kernels()[i];
            const auto& pass = timeline.passes()[i / weights_count];
            CAPTURE(kernel.name);
            CHECK(kernel.name == "w" + std::to_string(i % weights_count));
            CHECK(kernel.end - kernel.start >= 20us - resolution);
            CHECK(pass.start <= kernel.start + resolution);
            CHECK(kernel.end <= pass.end + resolution);
            CHECK(pass.copied_bytes == copied);
            if (i > 0) { CHECK(timeline.kernels()[i - 1].end <= kernel.start); }
            for (const auto& copy : timeline.copies()) {
                bool is_read = false;
                for (const auto& piece : copy.pieces) { is_read = is_read || piece.weight == kernel.name; }
                if (is_read) {
                    CHECK((copy.end <= kernel.start + resolution || copy.start + resolution >= kernel.end));
                }
            }
        }
    }
    must(weights.try_observe(nullptr));
}

}  // namespace timeline_on_gpu
