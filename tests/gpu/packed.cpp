// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The preset Packed on a GPU: what tests/packed checks on the simulated device, with real kernels that unpack.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/packed.hpp"
#include "tests/gpu/support.hpp"
#include "tests/gpu/unpacker.hpp"

namespace {

using residency::Budget;
using residency::Catalog;
using residency::CudaDevice;
using residency::Schedule;
using residency::WeightId;
using Weights = residency::Packed<CudaDevice>;
using Stream = CudaDevice::Stream;

using gpu::MiB;
using gpu::must;

/// Ten matrices of bf16 as trained weights are, one of noise, and one that is wider.
class Model {
public:
    explicit Model(CudaDevice& device)
        : device_{device}, host_{static_cast<std::byte*>(must(device.allocate_host(host_bytes)))} {
        const auto held = residency::HostBytes::borrow({host_, host_bytes}, residency::HostMemory::pinned);
        std::mt19937 random{38};
        std::normal_distribution<float> normal{0.0F, 0.02F};
        residency::CatalogBuilder builder;
        for (int i = 0; i < 12; ++i) {
            const std::uint64_t offset = 9 * MiB * static_cast<std::uint64_t>(i);
            const std::span bytes{host_ + offset, (i == 11 ? 24 : 8) * MiB + 2 * static_cast<std::uint64_t>(i)};
            for (std::size_t at = 0; at < bytes.size(); at += 2) {
                const float value = normal(random);
                auto bits = static_cast<std::uint32_t>(i == 5 ? random() : 0);
                if (i != 5) { std::memcpy(&bits, &value, 4); }
                const auto high = static_cast<std::uint16_t>(bits >> 16U);
                std::memcpy(bytes.data() + at, &high, 2);
            }
            sums.push_back(gpu::checksum(bytes));
            sizes.push_back(bytes.size());
            raw_bytes += bytes.size();
            builder.add("w" + std::to_string(i), residency::dtype::bf16, {bytes.size() / 2},
                        residency::HostSource{held, offset});
        }
        const Catalog raw = must(builder.try_build());
        packed = must(residency::packed::try_pack(device, raw));
        residency::ScheduleBuilder steps{packed.catalog};
        for (std::uint32_t i = 0; i < 12; ++i) {
            const WeightId id{i};
            steps.step(std::span<const WeightId>{&id, 1});
        }
        schedule = must(steps.try_build());
    }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    ~Model() { must(device_.deallocate_host(host_)); }

    residency::packed::PackedModel packed;
    Schedule schedule;
    std::vector<std::uint64_t> sums, sizes;  ///< by weight
    std::uint64_t raw_bytes = 0;

private:
    static constexpr std::size_t host_bytes = 128 * MiB;

    CudaDevice& device_;
    std::byte* host_;
};

/// Checksums of leased weights, on the device.
class Sums {
public:
    Sums(CudaDevice& device, const Model& model)
        : device_{device},
          model_{model},
          at_{static_cast<std::uint64_t*>(must(device.allocate(model.sums.size() * 8)))} {
        clear();
    }
    Sums(const Sums&) = delete;
    Sums& operator=(const Sums&) = delete;
    ~Sums() { must(device_.deallocate(at_)); }

    template <class Pass>
    void run(Pass& pass, Stream stream) {
        for (const Schedule::Step& step : model_.schedule) {
            const auto lease = must(pass.try_acquire(step));
            for (const WeightId id : step.weights) {
                REQUIRE(gpu::launch_checksum({lease.data(id), model_.sizes[index(id)]}, at_ + index(id), stream) ==
                        cudaSuccess);
            }
        }
    }
    /// Blocks. Whether every weight was summed up `times` times, each time with the bytes of the model.
    void check(std::uint64_t times) {
        must(device_.synchronize());
        std::vector<std::uint64_t> got(model_.sums.size());
        REQUIRE(cudaMemcpy(got.data(), at_, got.size() * 8, cudaMemcpyDeviceToHost) == cudaSuccess);
        for (std::size_t i = 0; i < got.size(); ++i) {
            CAPTURE(i);
            CHECK(got[i] == times * model_.sums[i]);
        }
        clear();
    }

private:
    void clear() { REQUIRE(cudaMemset(at_, 0, model_.sums.size() * 8) == cudaSuccess); }

    CudaDevice& device_;
    const Model& model_;
    std::uint64_t* at_;
};

}  // namespace

TEST_CASE("packed weights: every lease gives the raw bytes, eagerly and in a graph, at every budget, inside it") {
    CudaDevice device{0};
    const Model model{device};
    CHECK(model.packed.packed_bytes < model.packed.raw_bytes * 7 / 10);
    const Stream stream = must(device.create_stream());
    {
        Sums sums{device, model};
        Weights::Options options;
        options.budget = Budget::bytes(model.raw_bytes / 2);
        options.schedule = model.schedule;
        options.learn = false;
        options.policies.unpacker = &gpu::unpacker();
        const std::uint64_t before = must(device.memory()).free_bytes;
        auto weights = must(Weights::try_create(device, model.packed.catalog, std::move(options)));
        for (const std::uint64_t percent : {50U, 60U, 75U, 90U, 120U, 55U}) {
            CAPTURE(percent);
            must(weights.try_set_budget(Budget::bytes(model.raw_bytes * percent / 100)));
            for (int i = 0; i < 2; ++i) {
                auto pass = must(weights.try_begin(stream));
                sums.run(pass, stream);
                must(pass.try_end());
            }
            sums.check(2);
            CHECK(before - must(device.memory()).free_bytes <=
                  weights.statistics().budget_bytes + gpu::driver_own_bytes);
            auto captured = must(weights.try_capture(stream, [&](auto& pass) { sums.run(pass, stream); }));
            for (int i = 0; i < 3; ++i) { must(captured.try_launch(stream)); }
            sums.check(3);
        }
        must(weights.try_suspend());
        CHECK(before - must(device.memory()).free_bytes <= gpu::driver_own_bytes);
        must(weights.try_resume());
        auto pass = must(weights.try_begin(stream));
        sums.run(pass, stream);
        must(pass.try_end());
        sums.check(1);
    }
    must(device.destroy_stream(stream));
}
