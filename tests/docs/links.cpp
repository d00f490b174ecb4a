// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/composition.md quotes of neighbours: their links, their memory, and replicas.
#include "residency/transport/links.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/transport/replicas.hpp"
#include "tests/docs/model.hpp"

namespace docs_links {

using namespace residency;
using Gpu = SimulatedDevice;  // on a GPU: CudaDevice

using ByTwoLinks = Residency<evict::Planned, prefetch::Planned, pool::Virtual<Gpu>, transport::Links<Gpu>>;

TEST_CASE("docs/composition.md: a neighbour's link") {
    docs::Model model;
    Gpu& gpu = model.gpu;
    Gpu neighbour{Gpu::Config{}, gpu};

    ByTwoLinks::Options options{.budget = Budget::parse("25%"), .schedule = model.schedule};
    options.transport.neighbours = {&neighbour};  // on a GPU: CudaDevice neighbour{1};
    ByTwoLinks weights{gpu, model.catalog, std::move(options)};

    const auto pass = weights.begin(model.stream);
    CHECK(weights.statistics().links.size() == 2);
}

TEST_CASE("docs/composition.md: a neighbour's memory") {
    docs::Model model;
    Gpu& gpu = model.gpu;
    Gpu neighbour{Gpu::Config{}, gpu};

    ByTwoLinks::Options options{.budget = Budget::parse("66%"), .schedule = model.schedule};
    options.transport.neighbours = {&neighbour};
    options.transport.memory_bytes = {std::uint64_t{16} << 20};  // 16 MiB of the neighbour's memory
    ByTwoLinks weights{gpu, model.catalog, std::move(options)};

    const LinkUse use = weights.statistics().links[1];
    CHECK(use.held_bytes > 0);
    CHECK(use.held_reason.empty());
}

using Member = Residency<evict::Planned, prefetch::Planned, pool::Virtual<Gpu>, transport::Replicas<Gpu>>;

TEST_CASE("docs/composition.md: replicas of one model") {
    docs::Model model;
    Gpu& first = model.gpu;
    Gpu second{Gpu::Config{}, first};
    const auto first_stream = model.stream, second_stream = unwrap(second.create_stream());

    const auto group = std::make_shared<transport::ReplicaGroup<Gpu>>();
    Member::Options options{.budget = Budget::parse("50%"), .schedule = model.schedule};
    options.transport.group = group;
    Member one{first, model.catalog, options}, two{second, model.catalog, options};
    {
        auto pass = one.begin(first_stream), other = two.begin(second_stream);
        for (const Schedule::Step& step : model.schedule) {  // in step: what one brings, the other takes from its ring
            const auto lease = pass.acquire(step);
            const auto its_lease = other.acquire(step);
        }
    }
    one.drain();
    two.drain();
    std::uint64_t shared_bytes = 0;
    for (const transport::ReplicaUse& use : group->members()) { shared_bytes += use.shared_bytes; }
    CHECK(shared_bytes > 0);
}

}  // namespace docs_links
