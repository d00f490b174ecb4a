// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/composition.md quotes of a neighbour's link.
#include "residency/transport/links.hpp"

#include <doctest/doctest.h>

#include <utility>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

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
