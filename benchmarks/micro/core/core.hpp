// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "residency/core/residency.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/support/archetypes.hpp"

namespace core {

using residency::WeightId;

inline constexpr std::uint64_t storage_bytes = 256;

/// Takes every call out of line, as a driver's are, and does nothing.
struct Device : archetype::MappingDevice {
    [[gnu::noinline]] residency::Status record(Event, Stream) { return done(); }
    [[gnu::noinline]] residency::Status wait(Stream, Event) { return done(); }
    [[gnu::noinline]] residency::Result<bool> is_capturing(Stream) {
        benchmark::ClobberMemory();
        return false;
    }
    [[gnu::noinline]] residency::Result<bool> is_complete(Event) {
        benchmark::ClobberMemory();
        return true;
    }
    [[gnu::noinline]] residency::Status copy(std::span<const residency::Copy>, Stream) { return done(); }

private:
    static residency::Status done() {
        benchmark::ClobberMemory();
        return {};
    }
};

inline residency::Catalog make_catalog(std::int64_t storages) {
    static std::vector<std::byte> bytes(storage_bytes);
    const auto host = residency::HostBytes::borrow(bytes, residency::HostMemory::pinned);
    residency::CatalogBuilder builder;
    for (std::int64_t i = 0; i < storages; ++i) {
        builder.add("w" + std::to_string(i), residency::dtype::u8, {storage_bytes}, residency::HostSource{host, 0});
    }
    return builder.build();
}
template <class Weights>
Weights make_weights(Device& device, std::int64_t storages, std::int64_t places, bool scheduled) {
    const residency::Catalog catalog = make_catalog(storages);
    typename Weights::Options options;
    options.budget = residency::Budget::bytes(static_cast<std::uint64_t>(places) * storage_bytes);
    if (scheduled) {
        residency::ScheduleBuilder builder{catalog};
        for (std::uint32_t i = 0; i < storages; ++i) { builder.step({WeightId{i}}); }
        options.schedule = builder.build();
    }
    return Weights{device, catalog, options};
}

}  // namespace core
