// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Two models and a growing KV cache under one total, with the driver's own count of free memory sampled all the while.
#include "residency/broker/broker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "residency/core/planned/planned_decider.hpp"
#include "residency/core/residency.hpp"
#include "residency/device/cuda.hpp"
#include "residency/evict/eviction_policy.hpp"
#include "residency/interop/memory_resource.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/pool/virtual.hpp"
#include "residency/prefetch/prefetch_policy.hpp"
#include "tests/gpu/support.hpp"

namespace broker_on_gpu {

using gpu::MiB;
using gpu::must;
using gpu::must_cuda;
using residency::Budget;
using residency::BudgetBroker;
using residency::CudaDevice;
using residency::WeightId;
using Weights = residency::Planned<CudaDevice>;

namespace {

/// The least free memory that the driver reported since the start.
class FreeMemory {
public:
    explicit FreeMemory(CudaDevice& device) : least_{must(device.memory()).free_bytes} {
        sampler_ = std::thread{[this, &device] {
            while (!stop_.load()) {
                const auto memory = device.memory();
                if (!memory) { continue; }
                least_.store((std::min)(least_.load(), memory->free_bytes));
                samples_.fetch_add(1);
            }
        }};
    }
    FreeMemory(const FreeMemory&) = delete;
    FreeMemory& operator=(const FreeMemory&) = delete;
    ~FreeMemory() { stop(); }

    void stop() {
        stop_.store(true);
        if (sampler_.joinable()) { sampler_.join(); }
    }
    [[nodiscard]] std::uint64_t least_bytes() const { return least_.load(); }
    [[nodiscard]] std::uint64_t samples() const { return samples_.load(); }

private:
    std::atomic<std::uint64_t> least_;
    std::atomic<std::uint64_t> samples_{0};
    std::atomic<bool> stop_{false};
    std::thread sampler_;
};

/// A model of equal weights, one a step, and its part of the total.
struct Tenant {
    residency::Catalog catalog;
    residency::Schedule schedule;
    std::vector<std::uint64_t> checksums;
    std::uint64_t* sums = nullptr;  // one a weight, zeroed by each pass
    residency::broker::ModelClient client;
    std::optional<Weights> weights;

    Tenant(const std::shared_ptr<CudaDevice>& device, std::size_t count, std::uint64_t bytes, std::uint64_t seed) {
        auto* const at = static_cast<std::byte*>(must(device->allocate_host(count * bytes)));
        gpu::fill_pattern({at, count * bytes}, seed);
        const auto host = residency::HostBytes::adopt(
            at, count * bytes, residency::HostMemory::pinned,
            [device](std::byte* p) { static_cast<void>(device->deallocate_host(p).has_value()); });
        residency::CatalogBuilder builder;
        for (std::size_t i = 0; i < count; ++i) {
            residency::StorageOptions options;
            options.source = residency::HostSource{host, i * bytes};
            builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {bytes},
                               builder.add_storage(bytes, options));
            checksums.push_back(gpu::checksum({at + i * bytes, bytes}));
        }
        catalog = must(builder.try_build());
        residency::ScheduleBuilder steps{catalog};
        for (std::uint32_t i = 0; i < count; ++i) { steps.step({WeightId{i}}); }
        schedule = must(steps.try_build());
        sums = static_cast<std::uint64_t*>(must(device->allocate(count * 8)));
    }
    [[nodiscard]] Weights::Options options(Budget budget) const {
        Weights::Options options;
        options.budget = budget;
        options.schedule = schedule;
        return options;
    }
    void join(CudaDevice& device, BudgetBroker& broker, std::string name) {
        const auto sizes = must(Weights::try_resolve_budget(device, catalog, options(Budget::bytes(0))));
        client = must(broker.try_add_model(
            {.name = std::move(name), .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes}));
        weights.emplace(must(Weights::try_create(device, catalog, options(must(client.try_budget())))));
    }
    /// How many weights a pass read wrongly.
    [[nodiscard]] std::size_t run(cudaStream_t stream) {
        must_cuda(cudaMemsetAsync(sums, 0, checksums.size() * 8, stream));
        auto pass = must(weights->try_begin(stream));
        for (const auto& step : weights->schedule()) {
            auto lease = must(pass.try_acquire(step));
            const auto bytes = lease.bytes(step.weights[0]);
            must_cuda(gpu::launch_checksum({bytes.data(), bytes.size()}, sums + index(step.weights[0]), stream));
        }
        must(pass.try_end());
        std::vector<std::uint64_t> got(checksums.size());
        must_cuda(cudaMemcpyAsync(got.data(), sums, got.size() * 8, cudaMemcpyDeviceToHost, stream));
        must_cuda(cudaStreamSynchronize(stream));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < got.size(); ++i) { wrong += got[i] != checksums[i] ? 1U : 0U; }
        return wrong;
    }
};

}  // namespace

TEST_CASE("broker: two models and a growing KV cache under one total, by the driver's free memory") {
    constexpr std::uint64_t total = 768 * MiB, page_bytes = 4 * MiB;
    auto device = std::make_shared<CudaDevice>(0);
    const auto stream = must(device->create_stream());
    Tenant a{device, 64, 8 * MiB, 1};
    Tenant b{device, 96, 4 * MiB, 2};
    gpu::Sum sum{*device};
    // What the driver takes for itself with a first launch, stream or pool is not the library's.
    must_cuda(gpu::launch_checksum({sum.at(), 8}, sum.at(), stream));
    must_cuda(gpu::launch_pattern(sum.at(), 8, 0, stream));
    for (int i = 0; i < 2; ++i) {
        BudgetBroker broker{{.total_bytes = 2 * total}};
        a.join(*device, broker, "a");
        b.join(*device, broker, "b");
        auto cache = must(residency::MemoryResource<CudaDevice>::try_create(
            *device, must(broker.try_add_memory({.name = "KV cache"}))));
        CHECK(a.run(stream) + b.run(stream) == 0);
        must(cache.try_deallocate(must(cache.try_allocate(page_bytes, 256, stream)), page_bytes, stream));
        a.weights.reset();
        b.weights.reset();
        a.client = {};
        b.client = {};
    }
    must(device->synchronize());
    const std::uint64_t free_before = must(device->memory()).free_bytes;
    std::size_t wrong = 0, refused = 0, grown = 0;
    std::vector<void*> pages;
    {
        FreeMemory free{*device};
        BudgetBroker broker{{.total_bytes = total}};
        a.join(*device, broker, "a");
        CHECK(a.weights->budget().bytes == 512 * MiB);
        b.join(*device, broker, "b");
        auto cache = must(residency::MemoryResource<CudaDevice>::try_create(
            *device, must(broker.try_add_memory({.name = "KV cache", .priority = 1, .headroom_bytes = 32 * MiB}))));
        const auto phase = [&](const std::string& name) {
            for (int i = 0; i < 4; ++i) {
                wrong += a.run(stream) + b.run(stream);
                must(a.client.try_at_pass_end(*a.weights));
                must(b.client.try_at_pass_end(*b.weights));
            }
            wrong += a.run(stream) + b.run(stream);
            for (Tenant* tenant : {&a, &b}) {
                const auto statistics = tenant->weights->statistics();
                MESSAGE(name << ", model " << (tenant == &a ? "a" : "b") << ": budget " << statistics.budget_bytes / MiB
                             << " MiB, held " << statistics.held_bytes / MiB << " MiB, a pass "
                             << (statistics.pass_time ? static_cast<double>(statistics.pass_time->count()) / 1e6 : -1)
                             << " ms, bound "
                             << (statistics.bound ? static_cast<double>(statistics.bound->count()) / 1e6 : -1)
                             << " ms, planned " << tenant->weights->plan().predicted_seconds() * 1e3 << " ms");
                CHECK(statistics.held_bytes <= tenant->client.account().granted_bytes);
            }
            CHECK(broker.statistics().granted_bytes <= total);
        };
        phase("no cache");
        for (int i = 0; pages.size() < 80; ++i) {
            REQUIRE(i < 400);
            auto page = cache.try_allocate(page_bytes, 256, stream);
            if (page) {
                must_cuda(gpu::launch_pattern(*page, page_bytes, pages.size(), stream));
                pages.push_back(*page);
                ++grown;
            } else {
                CHECK(page.error().kind() == residency::ErrorKind::budget);
                ++refused;
                wrong += a.run(stream) + b.run(stream);
                must(a.client.try_at_pass_end(*a.weights));
                must(b.client.try_at_pass_end(*b.weights));
            }
        }
        phase("320 MiB of cache");
        CHECK(a.weights->statistics().streaming);
        for (std::size_t i = 0; i < pages.size(); ++i) {
            CHECK(sum.of(pages[i], page_bytes, stream) == gpu::checksum(gpu::pattern(page_bytes, i)));
            must(cache.try_deallocate(pages[i], page_bytes, stream));
        }
        must(device->synchronize(stream));
        must(cache.try_trim());
        CHECK(cache.held_bytes() == 0);
        phase("cache given back");
        CHECK(a.weights->budget().bytes > 400 * MiB);
        MESSAGE("changes " << broker.statistics().changes << ", moved " << broker.statistics().moved_bytes / MiB
                           << " MiB, refused allocations " << refused);
        a.weights.reset();
        b.weights.reset();
        free.stop();
        MESSAGE("least free " << free.least_bytes() / MiB << " MiB of " << free_before / MiB << " MiB in "
                              << free.samples() << " samples: " << (free_before - free.least_bytes()) / MiB
                              << " MiB of a total of " << total / MiB);
        CHECK(free.samples() > 10);
        CHECK(free_before - free.least_bytes() <= total + gpu::driver_own_bytes);
        CHECK(free_before - free.least_bytes() > total / 2);
    }
    CHECK(wrong == 0);
    CHECK(grown == 80);
    CHECK(must(device->memory()).free_bytes + gpu::driver_own_bytes >= free_before);
    must(device->deallocate(a.sums));
    must(device->deallocate(b.sums));
    must(device->destroy_stream(stream));
}

}  // namespace broker_on_gpu
