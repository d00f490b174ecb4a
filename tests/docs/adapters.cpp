// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/integrate.md quotes of adapters.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "residency/broker/broker.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_adapters {

using namespace residency;
using docs::Model;
using Gpu = SimulatedDevice;

namespace {

constexpr std::uint32_t adapter_count = 12, layers = 8, at_once = 3;
constexpr std::uint64_t mib = Model::mib, adapter_bytes = 2 * mib;

}  // namespace

TEST_CASE("docs/integrate.md: adapters come and go beside a base model whose graph stays") {
    Model model{layers};
    auto& gpu = model.gpu;
    const auto stream = model.stream;
    const Schedule& schedule = model.schedule;
    auto* const memory = static_cast<std::byte*>(unwrap(gpu.allocate_host(adapter_count * adapter_bytes)));
    for (std::uint32_t i = 0; i < adapter_count; ++i) {
        std::memset(memory + i * adapter_bytes, static_cast<int>(i + 1), adapter_bytes);
    }
    {
        const auto held = HostBytes::borrow({memory, adapter_count * adapter_bytes}, HostMemory::pinned);

        // One catalog of all adapters. The matrices of an adapter are one storage, so that one copy brings them.
        CatalogBuilder builder;
        std::vector<std::vector<WeightId>> matrices(adapter_count);  // by adapter
        for (std::uint32_t i = 0; i < adapter_count; ++i) {
            const StorageId all = builder.add_storage(adapter_bytes, {.source = HostSource{held, i * adapter_bytes}});
            for (std::uint32_t layer = 0; layer < layers; ++layer) {
                const std::string name = "adapters." + std::to_string(i) + "." + std::to_string(layer);
                const std::uint64_t each = adapter_bytes / layers;
                matrices[i].push_back(builder.add_weight(name, dtype::u8, {each}, all, layer * each));
            }
        }
        const Catalog catalog = builder.build();

        // Equal slots, and who was used last stays. The budget is that of the adapters that are there at once.
        using Adapters = Residency<evict::Lru, prefetch::None, pool::Slab<Gpu>>;
        using Base = Planned<Gpu>;
        Adapters::Options options;
        options.budget = Budget::bytes(0);
        options.policies.storages_at_once = at_once;
        const ResolvedBudget slots = Adapters::resolve_budget(gpu, catalog, options);
        const ResolvedBudget sizes =
            Base::resolve_budget(gpu, model.catalog, {.budget = Budget::bytes(0), .schedule = schedule});

        // One total. Adapters get their slots, the base model the rest, and neither changes while requests come and go.
        auto broker = BudgetBroker::create(gpu, "24MiB");
        auto adapters_client = broker.add_model(
            {.name = "adapters", .priority = 1, .floor_bytes = slots.floor_bytes, .wanted_bytes = slots.floor_bytes});
        auto base_client = broker.add_model(
            {.name = "base", .floor_bytes = sizes.floor_bytes, .wanted_bytes = sizes.resident_from_bytes});
        options.budget = adapters_client.budget();
        Adapters adapters{gpu, catalog, options};
        Base base{gpu, model.catalog, {.budget = base_client.budget(), .schedule = schedule}};

        auto graph = base.capture(stream, [&](auto& pass) {
            for (const auto& step : base.schedule()) {
                const auto lease = pass.acquire(step);
                model.launch(step.weights.front(), lease.data(step.weights.front()));
            }
        });
        CHECK(base.budget().is_streaming());
        CHECK(adapters.budget().bytes == at_once * adapter_bytes);

        std::mt19937 random{1};
        std::vector<std::uint32_t> requests(60);
        for (std::uint32_t& request : requests) {
            request = (std::min)(static_cast<std::uint32_t>(random() % adapter_count),
                                 static_cast<std::uint32_t>(random() % adapter_count));  // some are wanted more often
        }
        constexpr int tokens = 2;
        std::uint64_t right = 0, asked = 0;
        auto pass = adapters.begin(stream);  // one for all requests
        auto ticket = pass.request(matrices[requests.front()]);
        for (std::size_t request = 0; request < requests.size(); ++request) {
            const std::uint32_t mine = requests[request];
            const auto lease = ticket.lease();    // the stream waits for the copy, the host does not
            if (request + 1 < requests.size()) {  // the next one travels while this request computes
                ticket = pass.request(matrices[requests[request + 1]]);
            }
            for (int token = 0; token < tokens; ++token) {
                graph.launch(stream);
                for (const WeightId matrix : matrices[mine]) {
                    const auto bytes = lease.bytes(matrix);
                    unwrap(gpu.launch(stream, {.name = "adapter",
                                               .duration = std::chrono::microseconds{5},
                                               .reads = {{bytes.data(), bytes.size()}},
                                               .writes = {},
                                               .body = [&right, bytes, expected = static_cast<std::byte>(mine + 1)] {
                                                   right += std::all_of(bytes.begin(), bytes.end(),
                                                                        [&](std::byte b) { return b == expected; });
                                               }}));
                    ++asked;
                }
            }
            CHECK_FALSE(graph.is_stale());
            CHECK(adapters.statistics().held_bytes + base.statistics().held_bytes <= 24 * mib);
        }
        pass.end();
        adapters.drain();
        base.drain();

        const Statistics statistics = adapters.statistics();
        CHECK(right == asked);
        CHECK(statistics.peak_requested_bytes <= adapters.budget().bytes);
        CHECK(statistics.total.evictions > 0);  // more adapters than slots
        CHECK(statistics.total.hits > requests.size() / 4);
        CHECK(broker.statistics().granted_bytes <= 24 * mib);
        CHECK(model.is_right());
    }
    unwrap(gpu.deallocate_host(memory));
}

}  // namespace docs_adapters
