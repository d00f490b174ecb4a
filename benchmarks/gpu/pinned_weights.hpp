// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/record.hpp"
#include "residency/device/cuda.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/model/schedule_builder.hpp"
#include "tests/gpu/harness.hpp"

namespace bench {

/// Weights of bf16 in the order of use, each at a multiple of 256 bytes of one pinned range; who builds them gives `host` back.
struct PinnedWeights {
    std::byte* host = nullptr;
    std::uint64_t bytes = 0;
    std::vector<std::string> names;
    std::vector<residency::Shape> shapes;       ///< by weight
    std::vector<std::uint64_t> offsets, sizes;  ///< by weight, in bytes
    residency::Catalog catalog;
    residency::Schedule schedule;

    /// `columns`: of a matrix; 0: it is a vector.
    residency::WeightId add(std::string name, std::uint64_t elements, std::uint64_t columns = 0) {
        shapes.push_back(columns == 0 ? residency::Shape{elements} : residency::Shape{elements / columns, columns});
        names.push_back(std::move(name));
        offsets.push_back(bytes);
        sizes.push_back(elements * 2);
        bytes += (elements * 2 + 255) / 256 * 256;
        return residency::WeightId{static_cast<std::uint32_t>(names.size() - 1)};
    }
    [[nodiscard]] std::span<const std::byte> bytes_of(std::size_t weight) const {
        return {host + offsets[weight], static_cast<std::size_t>(sizes[weight])};
    }

    /// Each 8 bytes of the range become what `word` makes of their pattern.
    template <class Word>
    void build(residency::CudaDevice& device, std::span<const std::vector<residency::WeightId>> steps, Word word) {
        host = static_cast<std::byte*>(BENCH_RESULT(
            device.allocate_host(bytes, [word](std::byte* first, std::uint64_t offset, std::uint64_t count) {
                for (std::uint64_t i = 0; i * 8 < count; ++i) {
                    const std::uint64_t value = word(gpu::pattern_word(20261121, offset / 8 + i));
                    std::memcpy(first + i * 8, &value, std::min<std::uint64_t>(8, count - i * 8));
                }
            })));
        const auto held =
            residency::HostBytes::borrow({host, static_cast<std::size_t>(bytes)}, residency::HostMemory::pinned);
        residency::CatalogBuilder builder;
        for (std::size_t i = 0; i < names.size(); ++i) {
            builder.add(names[i], residency::dtype::bf16, shapes[i], residency::HostSource{held, offsets[i]});
        }
        catalog = BENCH_RESULT(builder.try_build());
        residency::ScheduleBuilder declared{catalog};
        for (const auto& step : steps) { declared.step(std::span<const residency::WeightId>{step}); }
        schedule = BENCH_RESULT(declared.try_build());
    }
    void build(residency::CudaDevice& device, std::span<const std::vector<residency::WeightId>> steps) {
        build(device, steps, [](std::uint64_t pattern) { return pattern; });
    }
};

}  // namespace bench
