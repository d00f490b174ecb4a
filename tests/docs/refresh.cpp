// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/integrate.md quotes of weights that change.
#include <doctest/doctest.h>

#include <cstddef>
#include <span>

#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_refresh {

using namespace residency;
using docs::Model;
using Weights = Planned<SimulatedDevice>;

namespace {

void add(std::span<std::byte> bytes, unsigned value) {
    for (std::byte& byte : bytes) { byte = static_cast<std::byte>(std::to_integer<unsigned>(byte) + value); }
}

}  // namespace

TEST_CASE("docs/integrate.md: weights that change") {
    Model model;
    const Catalog& catalog = model.catalog;
    Weights weights{model.gpu, catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    const auto run_passes = [&] {
        for (int i = 0; i < 2; ++i) {
            auto pass = weights.begin(model.stream);
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.acquire(step);
                model.launch(step.weights.front(), lease.data(step.weights.front()));
            }
        }
    };
    run_passes();

    const WeightId query = unwrap(catalog.try_find("layers.2")), key = unwrap(catalog.try_find("layers.3"));
    weights.refresh({query, key}, [&] {
        add(model.bytes(query), 1);
        add(model.bytes(key), 1);
    });

    run_passes();
    CHECK(model.is_right());
}

}  // namespace docs_refresh
