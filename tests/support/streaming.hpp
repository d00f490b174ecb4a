// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small model on a simulated device, and kernels that compare every byte that they are given with the host's.

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace streaming {

using Device = residency::SimulatedDevice;
using Stream = Device::Stream;

inline std::string message_of(const residency::Status& status) {
    return status ? std::string{} : status.error().message();
}
/// The value, or the end of the test case.
template <class T>
T must(residency::Result<T> result) {
    const std::string message = result ? std::string{} : result.error().message();
    REQUIRE_MESSAGE(result.has_value(), message);
    if constexpr (!std::is_void_v<T>) { return std::move(result).value(); }
}

/// Whether a call gives back what another one created, on the device.
inline bool gives_back(Device::CallKind kind) {
    using CallKind = Device::CallKind;
    switch (kind) {
        case CallKind::destroy_stream:
        case CallKind::destroy_event:
        case CallKind::deallocate:
        case CallKind::destroy_pool:
        case CallKind::pool_deallocate:
        case CallKind::release:
        case CallKind::destroy_chunk:
        case CallKind::unmap: return true;
        default: return false;
    }
}

/// From the nth call of that kind on (1: the next one) sixty fail in a row, or fewer: until clear_failures().
inline void fail_from(Device& device, Device::CallKind kind, std::uint64_t nth) {
    for (int i = 0; i < 60; ++i) { device.fail(kind, nth); }
}

/// Small granularities, so that small storages fill a budget.
inline Device::Config small_config() {
    Device::Config config;
    config.memory_bytes = std::uint64_t{64} << 20U;
    config.allocation_granularity = 4096;
    config.pool_granularity = 4096;
    config.chunk_granularity = 4096;
    return config;
}

/// Reports and leaks fail the test, unless they were taken note of.
class CheckedDevice : public Device {
public:
    explicit CheckedDevice(Config config = small_config()) : Device{std::move(config)} {}
    CheckedDevice(const CheckedDevice&) = delete;
    CheckedDevice& operator=(const CheckedDevice&) = delete;
    ~CheckedDevice() {
        for (const Report& report : reports()) { FAIL_CHECK(report.text); }
        if (!leaks_expected) {
            for (const Leak& leak : leaks()) { FAIL_CHECK("left: " << leak.what); }
        }
    }
    bool leaks_expected = false;
};

struct Spec {
    std::uint64_t bytes = 0;
    residency::Placement placement = residency::Placement::streamed;
    bool is_mutable = false;
};

/// One weight for each storage, wI, and where asked for a second one on its later half, tI.
struct Model {
    residency::Catalog catalog;
    std::shared_ptr<std::uint64_t> wrong = std::make_shared<std::uint64_t>(0);     // bytes that kernels found to differ
    std::shared_ptr<std::uint64_t> verified = std::make_shared<std::uint64_t>(0);  // bytes that kernels compared
};

inline Model make_model(Device& device, std::span<const Spec> specs, bool tied = false) {
    std::uint64_t total = 1;
    for (const Spec& spec : specs) { total += (spec.bytes + 255) / 256 * 256; }
    auto* const at = static_cast<std::byte*>(must(device.allocate_host(total)));
    std::uint64_t state = total;
    for (std::uint64_t i = 0; i < total; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        at[i] = static_cast<std::byte>(state >> 56U);
    }
    const auto host = residency::HostBytes::adopt(
        at, total, residency::HostMemory::pinned,
        [&device](std::byte* bytes) { static_cast<void>(device.deallocate_host(bytes).has_value()); });
    residency::CatalogBuilder builder;
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        residency::StorageOptions options;
        options.placement = specs[i].placement;
        options.is_mutable = specs[i].is_mutable;
        options.source = residency::HostSource{host, offset};
        const auto storage = builder.add_storage(specs[i].bytes, options);
        builder.add_weight("w" + std::to_string(i), residency::dtype::u8, {specs[i].bytes}, storage);
        offset += (specs[i].bytes + 255) / 256 * 256;
    }
    for (std::size_t i = 0; tied && i < specs.size(); ++i) {
        const std::uint64_t half = specs[i].bytes / 2;
        builder.add_weight("t" + std::to_string(i), residency::dtype::u8, {specs[i].bytes - half},
                           residency::StorageId{static_cast<std::uint32_t>(i)}, half);
    }
    Model model;
    model.catalog = must(builder.try_build());
    return model;
}
inline Model make_model(Device& device, std::initializer_list<Spec> specs, bool tied = false) {
    return make_model(device, std::span<const Spec>{specs.begin(), specs.size()}, tied);
}
/// `count` streamed storages of `bytes` bytes.
inline Model uniform_model(Device& device, std::size_t count, std::uint64_t bytes) {
    return make_model(device, std::vector<Spec>(count, Spec{bytes}));
}

inline residency::WeightId weight(std::uint32_t i) { return residency::WeightId{i}; }

/// Step i reads weight i.
inline residency::Schedule in_order(const Model& model, residency::Cycle cycle = residency::Cycle::cyclic) {
    residency::ScheduleBuilder builder{model.catalog};
    for (std::uint32_t i = 0; i < model.catalog.storages().size(); ++i) { builder.step({weight(i)}); }
    return must(builder.try_build(cycle));
}

/// A kernel that reads a leased weight and compares it with the host's bytes.
template <class Lease>
void verify(Device& device, const Model& model, const Lease& lease, residency::WeightId id, Stream stream,
            std::chrono::nanoseconds duration = std::chrono::microseconds{2}) {
    const std::span<const std::byte> bytes = lease.bytes(id);
    if (bytes.empty()) { return; }
    REQUIRE(bytes.data() != nullptr);
    const residency::Weight& weight = model.catalog.weight(id);
    const std::byte* host = model.catalog.host_bytes(weight.storage) + weight.offset_bytes;
    Device::Kernel kernel;
    kernel.name = weight.name;
    kernel.duration = duration;
    kernel.reads = {{bytes.data(), bytes.size()}};
    kernel.body = [at = bytes.data(), count = bytes.size(), host, wrong = model.wrong.get(),
                   verified = model.verified.get()] {
        if (std::memcmp(at, host, count) != 0) { *wrong += count; }
        *verified += count;
    };
    must(device.launch(stream, std::move(kernel)));
}

/// One pass: every step of the schedule is leased, read and let go.
template <class Weights>
void run_pass(Weights& weights, const Model& model, Stream stream) {
    auto pass = must(weights.try_begin(stream));
    for (const residency::Schedule::Step& step : weights.schedule()) {
        auto lease = must(pass.try_acquire(step));
        for (const auto id : step.weights) { verify(weights.device(), model, lease, id, stream); }
    }
    must(pass.try_end());
}

}  // namespace streaming
