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
#include "residency/packed_experts.hpp"
#include "tests/gpu/support.hpp"
#include "tests/gpu/unpacker.hpp"

namespace packed_on_gpu {

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
using gpu::must_cuda;

/// Ten matrices as trained weights are, most of them in bf16, one of noise, and one that is wider. Two steps read two types each.
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
            const residency::DType type = type_of(i);
            const std::uint64_t value_bytes = type.block_bits() / 8;
            const std::uint64_t more = 2 * static_cast<std::uint64_t>(i) / value_bytes * value_bytes;
            const std::span bytes{host_ + offset, (i == 11 ? 24 : 8) * MiB + more};
            for (std::size_t at = 0; at < bytes.size(); at += value_bytes) {
                const float value = normal(random);
                auto bits = static_cast<std::uint32_t>(i == 5 ? random() : 0);
                if (i != 5) { std::memcpy(&bits, &value, 4); }
                if (type == residency::dtype::f32) {
                    std::memcpy(bytes.data() + at, &bits, 4);
                } else if (type == residency::dtype::bf16) {
                    const auto high = static_cast<std::uint16_t>(bits >> 16U);
                    std::memcpy(bytes.data() + at, &high, 2);
                } else {  // the lowest bits of the exponent
                    bytes[at] = static_cast<std::byte>((bits >> 20U & 0x7fU) | (bits >> 24U & 0x80U));
                }
            }
            sums.push_back(gpu::checksum(bytes));
            sizes.push_back(bytes.size());
            raw_bytes += bytes.size();
            builder.add("w" + std::to_string(i), type, {bytes.size() / value_bytes},
                        residency::HostSource{held, offset});
        }
        const Catalog raw = must(builder.try_build());
        packed = must(residency::packed::try_pack(device, raw));
        residency::ScheduleBuilder steps{packed.catalog};
        for (std::uint32_t i = 0; i < 12; ++i) {
            const WeightId ids[]{WeightId{i}, WeightId{i + 1}};
            const std::size_t count = i == 2 || i == 6 ? 2 : 1;
            steps.step(std::span{ids}.first(count));
            i += count == 2 ? 1 : 0;
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

    static residency::DType type_of(int i) {
        return i == 2 || i == 7 ? residency::dtype::f32 : i == 6 ? residency::dtype::f8_e4m3fn : residency::dtype::bf16;
    }

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
    CHECK(model.packed.packed_bytes < model.packed.raw_bytes * 3 / 4);
    CHECK(model.packed.kept_raw.size() == 1);
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

namespace {

/// Random leases of two weights on two streams: as many of each weight as it is leased have its checksum.
template <class Online>
void run_online(unsigned seed) {
    CudaDevice device{0};
    const Model model{device};
    const Stream streams[2]{must(device.create_stream()), must(device.create_stream())};
    auto* const at = static_cast<std::uint64_t*>(must(device.allocate(model.sums.size() * 8)));
    const std::uint64_t before = must(device.memory()).free_bytes;
    {
        typename Online::Options options;
        options.budget = Budget::bytes(0);
        options.poison = true;
        options.policies.unpacker = &gpu::unpacker();
        options.policies.storages_at_once = 2;
        const auto floor = must(Online::try_resolve_budget(device, model.packed.catalog, options)).floor_bytes;
        auto weights = must(Online::try_create(device, model.packed.catalog, std::move(options)));
        std::mt19937 random{seed};
        for (const std::uint64_t more : {std::uint64_t{0}, 24 * MiB, 64 * MiB, 400 * MiB}) {
            CAPTURE(more);
            must(weights.try_set_budget(Budget::bytes(floor + more)));
            must_cuda(cudaMemset(at, 0, model.sums.size() * 8));
            std::vector<std::uint64_t> times(model.sums.size());
            for (int turn = 0; turn < 6; ++turn) {
                auto pass = must(weights.try_begin(streams[turn % 2]));
                for (int access = 0; access < 10; ++access) {
                    const auto first = static_cast<std::uint32_t>(random() % 12);
                    const WeightId ids[2]{WeightId{first},
                                          WeightId{(first + 1 + static_cast<std::uint32_t>(random() % 11)) % 12}};
                    const Stream stream = streams[random() % 2];
                    const auto lease = must(pass.try_acquire(std::span<const WeightId>{ids}, stream));
                    for (const WeightId id : ids) {
                        must_cuda(
                            gpu::launch_checksum({lease.data(id), model.sizes[index(id)]}, at + index(id), stream));
                        ++times[index(id)];
                    }
                }
                must(pass.try_end());
            }
            must(weights.try_drain());
            must(device.synchronize());
            std::vector<std::uint64_t> got(model.sums.size());
            must_cuda(cudaMemcpy(got.data(), at, got.size() * 8, cudaMemcpyDeviceToHost));
            for (std::size_t i = 0; i < got.size(); ++i) {
                CAPTURE(i);
                CHECK(got[i] == times[i] * model.sums[i]);
            }
            CHECK(weights.statistics().held_bytes <= weights.budget().bytes);
            CHECK(before - must(device.memory()).free_bytes <= weights.budget().bytes + gpu::driver_own_bytes);
        }
        CHECK(!weights.failure());
        CHECK(weights.statistics().total.unpacked_bytes > 0);
    }
    CHECK(before - must(device.memory()).free_bytes <= gpu::driver_own_bytes);
    must(device.deallocate(at));
    for (const Stream stream : streams) { must(device.destroy_stream(stream)); }
}

}  // namespace

TEST_CASE("PackedExperts: random leases on two streams give the raw bytes, at every budget, inside it") {
    gpu::for_seeds(38, run_online<residency::PackedExperts<CudaDevice>>);
}

TEST_CASE("a stream-ordered pool of packed storages: the same") {
    using Online = residency::Residency<residency::evict::Lru, residency::prefetch::Lookahead<4>,
                                        residency::pool::PackedStorages<residency::pool::StreamOrdered<CudaDevice>>>;
    gpu::for_seeds(38, run_online<Online>);
}

}  // namespace packed_on_gpu
