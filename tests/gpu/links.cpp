// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Two GPUs of one host: the rules of peers, one GPU that is fed by both links and by the other one's memory, and replicas, for which one GPU may play both.
#include "residency/transport/links.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/device.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/planned.hpp"
#include "residency/transport/replicas.hpp"
#include "tests/gpu/cuda_harness.hpp"
#include "tests/gpu/support.hpp"

namespace links_on_gpu {

using gpu::must;
using gpu::must_cuda;
using residency::CudaDevice;
using residency::Schedule;

namespace {

using Links = residency::transport::Links<CudaDevice>;
using Weights = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                     residency::pool::Virtual<CudaDevice>, Links>;

using Replicas = residency::Residency<residency::evict::Planned, residency::prefetch::Planned,
                                      residency::pool::Virtual<CudaDevice>, residency::transport::Replicas<CudaDevice>>;

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

/// Layers in pinned memory, and what their checksums are.
struct Model {
    static constexpr std::uint32_t layers = 24;
    static constexpr std::uint64_t layer_bytes = 12 * gpu::MiB + 1024;

    explicit Model(CudaDevice& on) : device{on} {
        gpu::fill_pattern({at, layers * layer_bytes}, 11);
        const auto host = residency::HostBytes::borrow({at, layers * layer_bytes}, residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        for (std::uint32_t i = 0; i < layers; ++i) {
            const auto storage =
                builder.add_storage(layer_bytes, {.source = residency::HostSource{host, i * layer_bytes}});
            builder.add_weight("layer." + std::to_string(i), residency::dtype::u8, {layer_bytes}, storage);
            expected.push_back(gpu::checksum({at + i * layer_bytes, layer_bytes}));
        }
        catalog = builder.build();
        residency::ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < layers; ++i) { steps.step({residency::WeightId{i}}); }
        schedule = steps.build();
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() { must(device.deallocate_host(at)); }

    CudaDevice& device;
    std::byte* const at = static_cast<std::byte*>(must(device.allocate_host(layers * layer_bytes)));
    std::vector<std::uint64_t> expected;
    residency::Catalog catalog;
    Schedule schedule;
};

/// What passes on one GPU compute: a checksum of each layer.
struct Sums {
    explicit Sums(CudaDevice& on, int number) : device{on}, ordinal{number} {}
    Sums(const Sums&) = delete;
    Sums& operator=(const Sums&) = delete;
    ~Sums() {
        must(device.deallocate(sums));
        must(device.destroy_stream(stream));
    }
    void clear() const {
        must(device.fill(sums, std::byte{0}, Model::layers * 8, stream));
        must(device.synchronize(stream));
    }
    template <class Pass>
    void run(Pass& pass, const Schedule::Step& step) const {
        const auto lease = must(pass.try_acquire(step));
        const auto id = step.weights.front();
        must_cuda(cudaSetDevice(ordinal));
        must_cuda(gpu::launch_checksum({lease.data(id), Model::layer_bytes}, sums + index(id), stream.get()));
        must_cuda(cudaSetDevice(0));
    }
    [[nodiscard]] std::vector<std::uint64_t> all() const {
        std::vector<std::uint64_t> got(Model::layers);
        must_cuda(cudaMemcpy(got.data(), sums, Model::layers * 8, cudaMemcpyDeviceToHost));
        return got;
    }

    CudaDevice& device;
    int ordinal;
    std::uint64_t* const sums = static_cast<std::uint64_t*>(must(device.allocate(Model::layers * 8)));
    CudaDevice::Stream stream = must(device.create_stream());
};

/// A pass of all steps, or the graph of one, until it has ended.
template <class Weights, class Graph, class Run>
void one_pass(Weights& weights, Graph& graph, const Sums& sums, const Run& run, bool is_eager) {
    sums.clear();
    if (is_eager) {
        auto pass = must(weights.try_begin(sums.stream));
        run(pass);
        must(pass.try_end());
    } else {
        must(graph.try_launch(sums.stream));
    }
    must(weights.try_drain());
}

}  // namespace

TEST_CASE("conformance: peers") {
    if (gpu::has_pair()) { residency::conformance::peer_conformance<CudaPair>(); }
}
TEST_CASE("conformance: captures across peers") {
    if (gpu::has_pair()) { residency::conformance::peer_capture_conformance<CudaPair>(); }
}

TEST_CASE("a planned model streams by two links, eager passes and graphs in turns") {
    if (!gpu::has_pair()) { return; }
    CudaDevice device{0}, neighbour{1};
    const Model model{device};
    const Sums sums{device, 0};
    Weights::Options options;
    options.schedule = model.schedule;
    options.budget = residency::Budget::bytes(80 * gpu::MiB);
    options.transport.neighbours = {&neighbour};
    options.transport.bounce_bytes = 8 * gpu::MiB;
    auto weights = must(Weights::try_create(device, model.catalog, std::move(options)));
    const auto run = [&](Weights::Pass& pass) {
        for (const Schedule::Step& step : weights.schedule()) { sums.run(pass, step); }
    };
    auto graph = must(weights.try_capture(sums.stream, run));
    for (int turn = 0; turn < 12; ++turn) {
        CAPTURE(turn);
        one_pass(weights, graph, sums, run, turn % 4 < 2);
        CHECK(sums.all() == model.expected);
    }
    const auto links = weights.statistics().links;
    REQUIRE(links.size() == 2);
    CHECK_MESSAGE(links[1].reason.empty(), links[1].reason);
    CHECK(links[1].bytes > 0);
}

TEST_CASE(
    "a model of 1.5 budgets comes from two GPUs' memory, eager passes and graphs in turns, refreshed and suspended") {
    if (!gpu::has_pair()) { return; }
    CudaDevice device{0}, neighbour{1};
    const Model model{device};
    const Sums sums{device, 0};
    Weights::Options options;
    options.schedule = model.schedule;
    options.budget = residency::Budget::bytes(Model::layers * Model::layer_bytes * 2 / 3);
    options.transport.neighbours = {&neighbour};
    options.transport.bounce_bytes = 8 * gpu::MiB;
    options.transport.memory_bytes = {200 * gpu::MiB};
    auto weights = must(Weights::try_create(device, model.catalog, std::move(options)));
    const auto use = [&] { return weights.statistics().links.at(1); };
    CHECK_MESSAGE(use().held_reason.empty(), use().held_reason);
    CHECK(use().held_bytes > 0);
    CHECK(use().held_bytes <= 200 * gpu::MiB);
    const auto run = [&](Weights::Pass& pass) {
        for (const Schedule::Step& step : weights.schedule()) { sums.run(pass, step); }
    };
    auto expected = model.expected;
    auto graph = must(weights.try_capture(sums.stream, run));
    for (int turn = 0; turn < 12; ++turn) {
        CAPTURE(turn);
        if (turn == 4) {
            must(weights.try_refresh_all([&] {
                gpu::fill_pattern({model.at, Model::layers * Model::layer_bytes}, 12);
                for (std::uint32_t i = 0; i < Model::layers; ++i) {
                    expected[i] = gpu::checksum({model.at + i * Model::layer_bytes, Model::layer_bytes});
                }
            }));
        }
        if (turn == 8) {
            must(weights.try_suspend());
            CHECK(use().held_bytes == 0);
            must(weights.try_resume());
            CHECK(graph.is_stale());
            graph = must(weights.try_capture(sums.stream, run));
        }
        one_pass(weights, graph, sums, run, turn % 2 == 0);
        CHECK(sums.all() == expected);
    }
    CHECK(use().bytes_from_held > 0);
}

TEST_CASE("replicas in step and apart, on two GPUs or on one that plays both") {
    int count = 0, can = 0;
    must_cuda(cudaGetDeviceCount(&count));
    if (count >= 2) { must_cuda(cudaDeviceCanAccessPeer(&can, 0, 1)); }
    const int second = can != 0 ? 1 : 0;
    if (second == 0) { MESSAGE("one GPU plays both members: there are no two with peer access"); }
    CudaDevice device{0}, other{second};
    const Model model{device};
    const Sums sums{device, 0}, other_sums{other, second};
    const auto group = std::make_shared<residency::transport::ReplicaGroup<CudaDevice>>();
    const auto make = [&](CudaDevice& on, std::uint64_t budget) {
        Replicas::Options options;
        options.schedule = model.schedule;
        options.budget = residency::Budget::bytes(budget);
        options.transport.group = group;
        options.transport.lent_bytes = 16 * gpu::MiB;
        return must(Replicas::try_create(on, model.catalog, std::move(options)));
    };
    for (const std::uint64_t budget : {80 * gpu::MiB, 140 * gpu::MiB}) {
        CAPTURE(budget);
        auto one = make(device, 80 * gpu::MiB);
        {
            auto two = make(other, budget);
            for (int turn = 0; turn < 6; ++turn) {
                CAPTURE(turn);
                sums.clear();
                other_sums.clear();
                auto pass = must(one.try_begin(sums.stream));
                auto other_pass = must(two.try_begin(other_sums.stream));
                for (std::uint32_t i = 0; i < Model::layers; ++i) {
                    if (turn != 3) { sums.run(pass, one.schedule()[i]); }  // then one after the other
                    other_sums.run(other_pass, two.schedule()[i]);
                }
                for (std::uint32_t i = 0; turn == 3 && i < Model::layers; ++i) { sums.run(pass, one.schedule()[i]); }
                must(pass.try_end());
                must(other_pass.try_end());
                must(one.try_drain());
                must(two.try_drain());
                CHECK(sums.all() == model.expected);
                CHECK(other_sums.all() == model.expected);
            }
            const auto members = group->members();
            REQUIRE(members.size() == 2);
            for (const auto& member : members) {
                CHECK_MESSAGE(member.reason.empty(), member.reason);
                CHECK(member.brought_bytes > 0);
            }
            CHECK(members[0].shared_bytes + members[1].shared_bytes > 0);
        }
        sums.clear();
        auto pass = must(one.try_begin(sums.stream));
        for (const Schedule::Step& step : one.schedule()) { sums.run(pass, step); }
        must(pass.try_end());
        must(one.try_drain());
        CHECK(sums.all() == model.expected);
    }
}

}  // namespace links_on_gpu
