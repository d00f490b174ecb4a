// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/conformance/routed_policy.hpp"
#include "residency/model/catalog_builder.hpp"
#include "residency/routed/routed_experts.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/simulation/simulated_server.hpp"
#include "tests/support/simulated_harness.hpp"

namespace routed_test {

using namespace residency;
using conformance::detail::choose_experts;
using support::must;
using Gpu = SimulatedDevice;

/// A model of experts on a device, and memory for a router's choices.
struct Fixture {
    explicit Fixture(std::vector<std::uint32_t> experts_of_layer, std::uint64_t expert_bytes = 200'000,
                     Gpu::Config config = support::small_device())
        : bytes{expert_bytes}, harness{std::move(config)} {
        std::uint64_t count = 0;
        for (const std::uint32_t number : experts_of_layer) { count += number; }
        stride = (bytes + 255) / 256 * 256;
        host = static_cast<std::byte*>(must(gpu().allocate_host(count * stride)));
        held = HostBytes::borrow({host, static_cast<std::size_t>(count * stride)}, HostMemory::pinned);
        CatalogBuilder builder;
        std::uint64_t at = 0;
        for (std::size_t layer = 0; layer < experts_of_layer.size(); ++layer) {
            for (std::uint32_t i = 0; i < experts_of_layer[layer]; ++i, at += stride) {
                support::write_pattern({host + at, static_cast<std::size_t>(bytes)}, at + 7);
                builder.add(std::to_string(layer) + "." + std::to_string(i), dtype::u8, {bytes}, HostSource{held, at});
            }
        }
        raw = builder.build();
        catalog = raw;
        std::uint32_t id = 0;
        for (const std::uint32_t number : experts_of_layer) {
            experts.emplace_back();
            for (std::uint32_t i = 0; i < number; ++i) { experts.back().push_back(WeightId{id++}); }
        }
        stream = must(gpu().create_stream());
        choices = static_cast<std::int32_t*>(must(gpu().allocate(most * sizeof(std::int32_t))));
        staged = static_cast<std::int32_t*>(must(gpu().allocate_host(most * sizeof(std::int32_t))));
    }
    ~Fixture() {
        must(gpu().synchronize());
        must(gpu().deallocate(choices));
        must(gpu().deallocate_host(staged));
        must(gpu().destroy_stream(stream));
        catalog = Catalog{};
        raw = Catalog{};
        held.reset();
        must(gpu().deallocate_host(host));
    }
    Fixture(const Fixture&) = delete;
    Fixture& operator=(const Fixture&) = delete;

    [[nodiscard]] Gpu& gpu() noexcept { return harness.device(); }
    /// The router's choices are on the device when what follows runs.
    void choose(std::span<const std::int32_t> chosen) {
        must(gpu().synchronize(stream));
        std::memcpy(staged, chosen.data(), chosen.size_bytes());
        const Copy copy{choices, staged, chosen.size_bytes()};
        must(gpu().copy({&copy, 1}, stream));
    }
    [[nodiscard]] const std::byte* bytes_of(std::uint32_t layer, std::uint32_t expert) const {
        return raw.host_bytes(raw.storage_of(experts[layer][expert]));
    }
    /// Whether an expert's bytes are there, on the device or on the host.
    [[nodiscard]] bool is_at(const std::byte* at, std::uint32_t layer, std::uint32_t expert) const {
        const std::uint64_t size = raw.storage(raw.storage_of(experts[layer][expert])).bytes;
        return std::memcmp(at, bytes_of(layer, expert), static_cast<std::size_t>(size)) == 0;
    }
    /// Enqueues a kernel that reads every chosen expert where the call says, and counts those that are wrong.
    void read(std::uint32_t layer, const routed::Served& served, std::span<const std::int32_t> chosen) {
        Gpu::Kernel kernel;
        kernel.name = "products";
        kernel.body = [this, layer, served, wanted = std::vector<std::int32_t>(chosen.begin(), chosen.end())] {
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                const std::byte* const at = served.addresses[i];
                if (wanted[i] < 0) {
                    wrong += at != nullptr || served.slots[i] != -1 ? 1U : 0U;
                    continue;
                }
                const auto expert = static_cast<std::uint32_t>(wanted[i]);
                const std::byte* const right = bytes_of(layer, expert);
                in_place += at == right ? 1U : 0U;
                const bool is_at_slot =
                    served.slots[i] == -1
                        ? at == right
                        : at == served.base + static_cast<std::uint32_t>(served.slots[i]) * served.slot_bytes;
                wrong += !is_at_slot || !is_at(at, layer, expert) ? 1U : 0U;
            }
            ++reads;
        };
        must(gpu().launch(stream, std::move(kernel)));
    }

    static constexpr std::uint64_t most = 4096;
    std::uint64_t bytes, stride = 0;
    support::SimulatedHarness harness;
    std::byte* host = nullptr;
    std::shared_ptr<const HostBytes> held;
    Catalog raw, catalog;  // the raw bytes, and what a cache gets
    std::vector<std::vector<WeightId>> experts;
    Gpu::Stream stream{};
    std::int32_t* choices = nullptr;
    std::int32_t* staged = nullptr;
    std::uint64_t wrong = 0, in_place = 0, reads = 0;
};

/// On a device of which any call may fail: two of the experts of a layer are chosen, served and read, and guessed for the other one of two
/// layers. `read(expert, address)` looks at one, when the device is idle.
template <class Cache, class Read>
void serve_two(Fixture& f, Cache& cache, std::mt19937& random, std::uint32_t layer, const Read& read) {
    const auto wait = [&] {
        while (!f.gpu().synchronize(f.stream)) {}
    };
    wait();
    const auto chosen = choose_experts(random, static_cast<std::uint32_t>(f.experts[layer].size()), 2);
    std::memcpy(f.staged, chosen.data(), 8);
    const Copy copy{f.choices, f.staged, 8};
    while (!f.gpu().copy({&copy, 1}, f.stream)) {}
    if (auto served = cache.try_serve(layer, {f.choices, 2}, f.stream)) {
        wait();
        for (std::size_t i = 0; i < 2; ++i) { read(static_cast<std::uint32_t>(chosen[i]), served->addresses[i]); }
    }
    static_cast<void>(cache.try_guess((layer + 1) % 2, {f.choices, 2}, f.stream).has_value());
    static_cast<void>(cache.try_join(f.stream).has_value());
    wait();
}

}  // namespace routed_test
