// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Two GPUs of one host: the rules of peers, and one GPU that is fed by both links.
#include "residency/transport/links.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/device.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/planned.hpp"
#include "tests/gpu/cuda_harness.hpp"
#include "tests/gpu/support.hpp"

using gpu::must;
using gpu::must_cuda;
using residency::CudaDevice;
using residency::Schedule;

namespace {

using Links = residency::transport::Links<CudaDevice>;
using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                     residency::pool::Virtual<CudaDevice>, Links>;

/// Whether there are two GPUs that have access to each other. Says so where there are not.
bool has_pair() {
    int count = 0, can = 0;
    must_cuda(cudaGetDeviceCount(&count));
    if (count >= 2) { must_cuda(cudaDeviceCanAccessPeer(&can, 0, 1)); }
    if (can == 0) { MESSAGE("skipped: it takes two GPUs with peer access, here are " << count << " GPUs"); }
    return can != 0;
}

class CudaPair : public gpu::CudaHarness {
public:
    [[nodiscard]] CudaDevice& peer() noexcept { return peer_; }
    void launch_peer_spin(std::chrono::nanoseconds duration, CudaDevice::Stream stream) {
        must_cuda(cudaSetDevice(1));
        must_cuda(gpu::launch_spin(duration, stream));
        must_cuda(cudaSetDevice(0));
    }

private:
    CudaDevice peer_{1};
};

}  // namespace

TEST_CASE("conformance: peers") {
    if (has_pair()) { residency::conformance::peer_conformance<CudaPair>(); }
}
TEST_CASE("conformance: captures across peers") {
    if (has_pair()) { residency::conformance::peer_capture_conformance<CudaPair>(); }
}

TEST_CASE("a planned model streams by two links, eager passes and graphs in turns") {
    if (!has_pair()) { return; }
    CudaDevice device{0}, neighbour{1};
    constexpr std::uint32_t layers = 24;
    constexpr std::uint64_t layer_bytes = 12 * gpu::MiB + 1024;
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(layers * layer_bytes)));
    gpu::fill_pattern({at, layers * layer_bytes}, 11);
    const auto host = residency::HostBytes::borrow({at, layers * layer_bytes}, residency::HostMemory::pinned);
    residency::CatalogBuilder builder;
    std::vector<std::uint64_t> expected;
    for (std::uint32_t i = 0; i < layers; ++i) {
        const auto storage = builder.add_storage(layer_bytes, {.source = residency::HostSource{host, i * layer_bytes}});
        builder.add_weight("layer." + std::to_string(i), residency::dtype::u8, {layer_bytes}, storage);
        expected.push_back(gpu::checksum({at + i * layer_bytes, layer_bytes}));
    }
    const residency::Catalog catalog = builder.build();
    residency::ScheduleBuilder steps{catalog};
    for (std::uint32_t i = 0; i < layers; ++i) { steps.step({residency::WeightId{i}}); }
    auto* const sums = static_cast<std::uint64_t*>(must(device.allocate(layers * 8)));
    const auto stream = must(device.create_stream());
    {
        Weights::Options options;
        options.schedule = steps.build();
        options.budget = residency::Budget::bytes(80 * gpu::MiB);
        options.transport.neighbours = {&neighbour};
        options.transport.bounce_bytes = 8 * gpu::MiB;
        auto weights = must(Weights::try_create(device, catalog, std::move(options)));
        const auto run = [&](auto& pass) {
            for (const Schedule::Step& step : weights.schedule()) {
                const auto lease = must(pass.try_acquire(step));
                const auto id = step.weights.front();
                must_cuda(gpu::launch_checksum({lease.data(id), layer_bytes}, sums + index(id), stream.get()));
            }
        };
        auto graph = must(weights.try_capture(stream, [&](Weights::Pass& pass) { run(pass); }));
        for (int turn = 0; turn < 12; ++turn) {
            CAPTURE(turn);
            must_cuda(cudaMemset(sums, 0, layers * 8));
            if (turn % 4 < 2) {
                auto pass = must(weights.try_begin(stream));
                run(pass);
                must(pass.try_end());
            } else {
                must(graph.try_launch(stream));
            }
            must(weights.try_drain());
            std::vector<std::uint64_t> got(layers);
            must_cuda(cudaMemcpy(got.data(), sums, layers * 8, cudaMemcpyDeviceToHost));
            CHECK(got == expected);
        }
        const auto links = weights.statistics().links;
        REQUIRE(links.size() == 2);
        CHECK_MESSAGE(links[1].reason.empty(), links[1].reason);
        CHECK(links[1].bytes > 0);
    }
    must(device.deallocate(sums));
    must(device.destroy_stream(stream));
    must(device.deallocate_host(at));
}
