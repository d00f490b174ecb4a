// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>
#include <algorithm>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/packed.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/simulation/simulated_unpacker.hpp"

namespace packed_tests {

using residency::Catalog;
using residency::Schedule;
using residency::StorageId;
using residency::WeightId;
using Device = residency::SimulatedDevice;
using Stream = Device::Stream;
using Weights = residency::Packed<Device>;

template <class T>
T must(residency::Result<T> result) {
    if (!result) { FAIL(result.error().message()); }
    return std::move(*result);
}
inline void must(const residency::Status& status) {
    if (!status) { FAIL(status.error().message()); }
}

inline Device::Config device_config() {
    Device::Config config;
    config.memory_bytes = std::uint64_t{64} << 20U;
    config.allocation_granularity = 4096;
    config.pool_granularity = 16384;
    config.chunk_granularity = 4096;
    return config;
}

/// Pinned host bytes of a test; given back with the object.
class Pinned {
public:
    Pinned(Device& device, std::uint64_t bytes)
        : device_{device}, at_{must(device.allocate_host(bytes))}, bytes_{bytes} {}
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    ~Pinned() { must(device_.deallocate_host(at_)); }
    [[nodiscard]] std::span<std::byte> bytes() const {
        return {static_cast<std::byte*>(at_), static_cast<std::size_t>(bytes_)};
    }

private:
    Device& device_;
    void* at_;
    std::uint64_t bytes_;
};

/// A value of a normal distribution, as trained weights have them: any of 65,536 that are drawn once, for drawing takes long.
inline float normal(std::mt19937_64& random) {
    static const std::vector<float> drawn = [] {
        std::mt19937_64 own{1};
        std::normal_distribution<float> distribution{0.0F, 0.02F};
        std::vector<float> values(65536);
        for (float& value : values) { value = distribution(own); }
        return values;
    }();
    return drawn.data()[random() % 65536];
}

/// The first 64 KiB are what `draw` makes of them, the rest pieces of these.
template <class Draw>
void fill(std::mt19937_64& random, std::span<std::byte> bytes, const Draw& draw) {
    constexpr std::size_t drawn = 65536, unit = 8;
    draw(bytes.first((std::min)(bytes.size(), drawn)));
    for (std::size_t at = drawn; at < bytes.size();) {
        const std::size_t from = random() % (drawn / unit / 2) * unit;
        const std::size_t count = (std::min)(drawn - from, bytes.size() - at);
        std::memcpy(bytes.data() + at, bytes.data() + from, count);
        at += count;
    }
}

/// The bytes of bf16 values of a normal distribution.
inline void draw_normal(std::mt19937_64& random, std::span<std::byte> bytes) {
    for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
        const float value = normal(random);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        const auto high = static_cast<std::uint16_t>(bits >> 16U);
        std::memcpy(bytes.data() + i, &high, 2);
    }
}

/// The same of another type; of fp8, bytes with few exponents.
inline void draw_normal(std::mt19937_64& random, std::span<std::byte> bytes, const residency::DType& type) {
    if (type == residency::dtype::f32) {
        for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
            const float value = normal(random);
            std::memcpy(bytes.data() + i, &value, 4);
        }
    } else if (type == residency::dtype::f8_e4m3fn) {
        for (std::byte& byte : bytes) {
            std::uint64_t exponent = 13;
            while (random() % 2 == 0 && exponent > 0) { --exponent; }
            byte = static_cast<std::byte>(exponent << 3U | (random() & 0x87U));
        }
    } else {
        draw_normal(random, bytes);
    }
}
inline void fill_normal(std::mt19937_64& random, std::span<std::byte> bytes,
                        const residency::DType& type = residency::dtype::bf16) {
    fill(random, bytes, [&](std::span<std::byte> first) { draw_normal(random, first, type); });
}

/// Weights of bf16, one a storage. Some are noise, which does not get smaller, and some are of another type.
struct Model {
    struct Spec {
        std::uint64_t elements = 0;  ///< of 16 bits, whatever the type
        bool is_noise = false;
        residency::DType type = residency::dtype::bf16;
        residency::Placement placement = residency::Placement::streamed;
        std::uint64_t rows = 1;
        bool is_written = false;  ///< by kernels
    };

    /// `packs`: whether it is packed at once, which takes long; otherwise by pack().
    Model(Device& device, const std::vector<Spec>& specs, std::uint64_t seed = 1, bool packs = true) {
        std::mt19937_64 random{seed};
        std::uint64_t bytes = 0;
        for (const Spec& spec : specs) { bytes += (spec.elements * 2 + 255) / 256 * 256; }
        memory = std::make_unique<Pinned>(device, bytes + 256);
        const auto host = residency::HostBytes::borrow(memory->bytes(), residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        std::uint64_t at = 0;
        for (std::size_t i = 0; i < specs.size(); ++i) {
            const std::uint64_t size = specs[i].elements * 2;
            const auto own = memory->bytes().subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
            if (specs[i].is_noise) {
                fill(random, own, [&](std::span<std::byte> first) {
                    for (std::byte& byte : first) { byte = static_cast<std::byte>(random()); }
                });
            } else {
                fill_normal(random, own, specs[i].type);
            }
            contents.push_back(own);
            residency::StorageOptions options;
            options.placement = specs[i].placement;
            options.is_mutable = specs[i].is_written;
            options.source = residency::HostSource{host, at};
            const StorageId storage = builder.add_storage(size, options);
            builder.add_weight("w" + std::to_string(i), specs[i].type,
                               {specs[i].rows, size * 8 / specs[i].type.block_bits() / specs[i].rows}, storage);
            at += (size + 255) / 256 * 256;
        }
        raw = must(builder.try_build());
        if (packs) { pack(device); }
    }
    void pack(Device& device) { packed = must(residency::packed::try_pack(device, raw, {{}, 1})); }
    [[nodiscard]] std::uint64_t raw_bytes() const { return raw.streamed_bytes() + raw.resident_bytes(); }

    std::unique_ptr<Pinned> memory;
    std::vector<std::span<const std::byte>> contents;  ///< by weight
    Catalog raw;
    residency::packed::PackedModel packed;
};

/// Any of the types that are packed, which have no form in common, or one that is not. `elements`: of 16 bits, as Spec has them.
inline residency::DType other_type(std::mt19937_64& random, std::uint64_t elements) {
    const std::uint64_t kind = random() % 4;
    return kind == 0                        ? residency::dtype::u8
           : kind == 1 && elements % 2 == 0 ? residency::dtype::f32
                                            : residency::dtype::f8_e4m3fn;
}

using Steps = std::vector<std::vector<std::uint32_t>>;

inline Schedule schedule_of(const Catalog& catalog, const Steps& steps,
                            std::chrono::nanoseconds compute = std::chrono::microseconds{5}) {
    residency::ScheduleBuilder builder{catalog};
    for (const auto& step : steps) {
        std::vector<WeightId> ids;
        for (const auto weight : step) { ids.push_back(WeightId{weight}); }
        builder.step(std::span<const WeightId>{ids}, compute);
    }
    return must(builder.try_build());
}

inline Weights::Options options(const residency::Unpacker<Device>& unpacker, std::uint64_t budget, Schedule schedule) {
    Weights::Options result;
    result.budget = residency::Budget::bytes(budget);
    result.schedule = std::move(schedule);
    result.learn = false;
    result.policies.unpacker = &unpacker;
    result.policies.options.effort = residency::plan::Effort::quick;  // any plan will do
    result.policies.pool.chunk_bytes = 4096;
    return result;
}

/// A kernel that reads leased weights and compares them with what the model has.
inline void verify(Device& device, const Model& model, const residency::Lease<Device>& lease,
                   std::span<const WeightId> weights, Stream stream, std::uint64_t& wrong,
                   std::chrono::nanoseconds duration = std::chrono::microseconds{5}) {
    Device::Kernel kernel;
    kernel.name = "reader";
    kernel.duration = duration;
    std::vector<residency::simulation::ByteRange> reads;
    std::vector<std::pair<const std::byte*, std::span<const std::byte>>> pairs;
    for (const WeightId id : weights) {
        const auto expected = model.contents[residency::index(id)];
        const auto* const at = lease.data(id);
        reads.push_back({at, expected.size()});
        pairs.emplace_back(at, expected);
    }
    kernel.reads = reads;
    kernel.body = [pairs, &wrong] {
        for (const auto& [at, expected] : pairs) {
            if (!expected.empty() && std::memcmp(at, expected.data(), expected.size()) != 0) { ++wrong; }
        }
    };
    must(device.launch(stream, std::move(kernel)));
}

/// One pass, or its first steps; every step verified.
inline void run_pass(Device& device, const Model& model, Weights& weights, Stream stream, std::uint64_t& wrong,
                     std::uint32_t steps = UINT32_MAX) {
    auto pass = must(weights.try_begin(stream));
    for (std::uint32_t i = 0; i < weights.schedule().size() && i < steps; ++i) {
        const Schedule::Step& step = weights.schedule()[i];
        const auto lease = must(pass.try_acquire(step));
        verify(device, model, lease, step.weights, stream, wrong);
    }
    must(pass.try_end());
}

/// A model of which each step reads one weight.
struct Layers {
    /// Equal matrices.
    explicit Layers(Device& device, std::uint32_t count = 10)
        : Layers{device, std::vector<Model::Spec>(count, {12'000})} {}
    Layers(Device& device, const std::vector<Model::Spec>& specs) : model{device, specs} {
        for (std::uint32_t i = 0; i < specs.size(); ++i) { steps.push_back({i}); }
    }
    /// Equal matrices, and one that is much wider.
    [[nodiscard]] static Layers with_wide_one(Device& device) {
        std::vector<Model::Spec> specs(12, {24'000});
        specs.push_back({72'000});
        return {device, specs};
    }
    [[nodiscard]] Schedule schedule() const { return schedule_of(model.packed.catalog, steps); }
    [[nodiscard]] std::uint64_t share(std::uint64_t percent) const { return model.raw_bytes() * percent / 100; }

    Model model;
    Steps steps;
};

inline std::uint64_t used_bytes(Device& device) {
    const auto memory = must(device.memory());
    return memory.total_bytes - memory.free_bytes;
}

/// Calls after whose failure something may still be held.
inline bool gives_back(Device::CallKind kind) {
    using CallKind = Device::CallKind;
    switch (kind) {
        case CallKind::destroy_stream:
        case CallKind::destroy_event:
        case CallKind::destroy_graph:
        case CallKind::deallocate:
        case CallKind::deallocate_host:
        case CallKind::destroy_pool:
        case CallKind::pool_deallocate:
        case CallKind::trim:
        case CallKind::release:
        case CallKind::destroy_chunk:
        case CallKind::unmap: return true;
        default: return false;
    }
}

/// Makes calls of a device fail at random, and knows what may come of it.
class Faults {
public:
    /// One or two calls of kinds that were made before fail, soon.
    void inject(Device& device, std::mt19937_64& random) {
        using CallKind = Device::CallKind;
        for (std::uint64_t count = 1 + random() % 2; count > 0; --count) {
            auto kind = CallKind::host_access;
            while (kind == CallKind::host_access || device.statistics().of(kind) == 0) {
                kind = static_cast<CallKind>(random() % residency::simulation::call_kinds);
            }
            may_hold_ = may_hold_ || gives_back(kind);
            const std::uint64_t most = random() % 3 == 0 ? 20 : 3;
            device.fail(kind, 1 + random() % most);
        }
    }
    /// Nothing was reported but misuse that follows from what could not be given back.
    void expect_few_reports(Device& device) const {
        for (const auto& report : device.reports()) {
            const bool follows = may_hold_ && report.kind == residency::simulation::ReportKind::misuse;
            CHECK_MESSAGE(follows, report.text);
        }
        device.clear_reports();
    }
    /// A call that gives back was to fail.
    [[nodiscard]] bool may_hold() const noexcept { return may_hold_; }

private:
    bool may_hold_ = false;
};

inline bool says(const residency::Error& error, std::string_view text) {
    return error.message().find(text) != std::string::npos;
}

inline void expect_no_reports(const Device& device) {
    const auto reports = device.reports();
    if (!reports.empty()) { FAIL(reports.front().text); }
}

}  // namespace packed_tests
