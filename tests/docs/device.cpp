// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/device.md quotes.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "residency/device/link.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_device {

using namespace residency;
using docs::Model;
using Gpu = SimulatedDevice;
using Weights = Planned<Gpu>;

namespace {

void run_pass(Model& model, Weights& weights, Gpu::Stream stream) {
    auto pass = weights.begin(stream);
    for (const auto& step : weights.schedule()) {
        const auto lease = pass.acquire(step);
        model.launch(step.weights.front(), lease.data(step.weights.front()), stream);
    }
}

}  // namespace

TEST_CASE("docs/device.md: memory of your own, copies and waits") {
    Model model;
    Gpu& gpu = model.gpu;
    Weights weights{gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    constexpr std::uint64_t bytes = 4096;

    const Gpu::Stream stream = unwrap(gpu.create_stream());            // on a GPU: or a cudaStream_t of yours
    auto* const x = static_cast<float*>(unwrap(gpu.allocate(bytes)));  // or cudaMalloc; not part of the budget
    auto* const host =
        static_cast<float*>(unwrap(gpu.allocate_host(bytes)));  // pinned: the host does not wait for copies
    host[0] = 1;
    unwrap(gpu.copy({{x, host, bytes}}, stream));  // to, from, bytes; the addresses say in which direction
    for (int token = 0; token < 10; ++token) { run_pass(model, weights, stream); }
    unwrap(gpu.copy({{host, x, bytes}}, stream));
    unwrap(gpu.synchronize(stream));  // now the host may read what came back
    const float result = host[0];

    weights.drain();  // nothing of the Residency runs any more
    unwrap(gpu.deallocate_host(host));
    unwrap(gpu.deallocate(x));
    unwrap(gpu.destroy_stream(stream));

    CHECK(result == 1);
    CHECK(gpu.report_count() == 0);
}

TEST_CASE("docs/device.md: events") {
    Model model;
    Gpu& gpu = model.gpu;
    const Gpu::Stream stream = model.stream, side = unwrap(gpu.create_stream());
    Weights weights{gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};

    const Gpu::Event from = unwrap(gpu.create_event(Timing::on)), to = unwrap(gpu.create_event(Timing::on));
    unwrap(gpu.record(from, stream));
    run_pass(model, weights, stream);
    unwrap(gpu.record(to, stream));  // `to` stands for all that was enqueued on the stream so far
    unwrap(gpu.wait(side, to));      // what is enqueued on `side` from now on starts after it; the host does not wait
    unwrap(gpu.synchronize(to));     // the host waits
    const std::chrono::nanoseconds taken = unwrap(gpu.elapsed(from, to));
    unwrap(gpu.destroy_event(from));
    unwrap(gpu.destroy_event(to));

    CHECK(taken > std::chrono::microseconds{8 * 20});
    unwrap(gpu.destroy_stream(side));
}

TEST_CASE("docs/device.md: a kernel that reads several weights") {
    Model model;
    Gpu& gpu = model.gpu;
    const Gpu::Stream stream = model.stream;
    ScheduleBuilder steps{model.catalog};
    steps.step({WeightId{0}, WeightId{1}, WeightId{2}});
    Weights weights{gpu, model.catalog, {.budget = Budget::bytes(0), .schedule = steps.build()}};
    auto* const y = static_cast<float*>(unwrap(gpu.allocate(4096)));

    auto pass = weights.begin(stream);
    for (const auto& step : weights.schedule()) {
        const auto lease = pass.acquire(step);
        simulation::ByteRanges reads;  // as many ranges as there are weights
        for (const WeightId weight : step.weights) {
            reads.push_back({lease.data(weight), weights.catalog().weight(weight).bytes});
        }
        unwrap(gpu.launch(stream, {.name = "fused", .reads = reads, .writes = {{y, 4096}}, .body = {}}));
    }
    pass.end();

    unwrap(gpu.synchronize());
    CHECK(gpu.report_count() == 0);
    unwrap(gpu.deallocate(y));
}

TEST_CASE("docs/device.md: another machine") {
    SimulatedDevice gpu{{.memory_bytes = std::uint64_t{8} << 30, .link = links::pcie4, .name = "an old card"}};
    CHECK(unwrap(gpu.memory()).total_bytes == std::uint64_t{8} << 30);
    CHECK(gpu.name() == "an old card");
}

TEST_CASE("docs/device.md: what the simulated device finds") {
    Model model;
    Gpu& gpu = model.gpu;
    const Gpu::Stream stream = model.stream, side = unwrap(gpu.create_stream("side"));
    Weights weights{gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    std::string found;
    const auto print = [&](const std::string& line) { found += line + "\n"; };

    auto pass = weights.begin(stream);
    const auto lease = pass.acquire(weights.schedule()[0]);
    model.launch(WeightId{0}, lease.data(WeightId{0}), side);  // wrong: the lease knows nothing of this stream
    for (const auto& report : gpu.reports()) { print(report.text); }

    CHECK(gpu.report_count() == 1);
    CHECK(found.find("kernel 'layer'") != std::string::npos);
    CHECK(found.find("nothing orders them: stream 'side' has to wait for an event recorded on") != std::string::npos);
    unwrap(gpu.destroy_stream(side));
}

}  // namespace docs_device
