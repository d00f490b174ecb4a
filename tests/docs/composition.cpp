// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/composition.md quotes.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "residency/host/loading.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "residency/transport/staged.hpp"
#include "tests/docs/model.hpp"

namespace docs_composition {

using namespace residency;
using docs::Model;
using Gpu = SimulatedDevice;  // on a GPU: CudaDevice

namespace {

// The presets. Each takes the device as its parameter.
using InOrder = Planned<Gpu>;
using InOrderWithoutPlan = Scheduled<Gpu>;
using AnyOrder = Cached<Gpu>;

// From pageable memory or a file instead of pinned memory: the same plan, another transport.
using FromFile = Residency<evict::Planned, prefetch::Planned, pool::Virtual<Gpu>, transport::Staged<Gpu>>;

// Nothing is known, sizes differ, nothing is brought ahead.
using OnDemand = Residency<evict::S3Fifo, prefetch::None, pool::StreamOrdered<Gpu>>;

template <class Weights>
Statistics run(Model& model, typename Weights::Options options, int passes = 4) {
    Weights weights{model.gpu, model.catalog, std::move(options)};
    for (int i = 0; i < passes; ++i) {
        auto pass = weights.begin(model.stream);
        for (const auto& step : model.schedule) {
            const auto lease = pass.acquire(step);
            model.launch(step.weights.front(), lease.data(step.weights.front()));
        }
    }
    weights.drain();
    return weights.statistics();
}

}  // namespace

TEST_CASE("docs/composition.md: the order decides") {
    Model model;
    const Budget budget = Budget::parse("50%");
    const Statistics planned = run<InOrder>(model, {.budget = budget, .schedule = model.schedule});
    const Statistics scheduled =
        run<InOrderWithoutPlan>(model, {.budget = Budget::parse("32MiB"), .schedule = model.schedule});
    const Statistics cached = run<AnyOrder>(model, {.budget = Budget::parse("32MiB")});
    const Statistics demanded = run<OnDemand>(model, {.budget = Budget::parse("32MiB")});
    CHECK(planned.last_pass.fetched_bytes < model.catalog.streamed_bytes());  // about the half that does not fit
    CHECK(scheduled.held_bytes <= scheduled.budget_bytes);
    CHECK(cached.held_bytes <= cached.budget_bytes);
    CHECK(demanded.total.demand_misses > 0);
    CHECK(model.is_right());
}

TEST_CASE("docs/composition.md: from a file") {
    Model model;
    const auto folder = std::filesystem::temp_directory_path();
    const std::string path = (folder / "residency_docs_composition.bin").string();
    {
        std::ofstream file{path, std::ios::binary};
        for (const Storage& storage : model.catalog.storages()) {
            const StorageId id{static_cast<std::uint32_t>(&storage - model.catalog.storages().data())};
            file.write(reinterpret_cast<const char*>(model.catalog.host_bytes(id)),
                       static_cast<std::streamsize>(storage.bytes));
        }
    }
    const std::uint64_t layer_bytes = model.catalog.weights().front().bytes;
    CatalogBuilder builder;
    for (std::uint32_t i = 0; i < model.catalog.weights().size(); ++i) {
        builder.add("layers." + std::to_string(i), path, i * layer_bytes, layer_bytes);
    }
    const Catalog catalog = builder.build();  // no bytes are read yet

    FromFile weights{model.gpu, catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};
    {
        auto pass = weights.begin(model.stream);
        for (const auto& step : weights.schedule()) {
            const auto lease = pass.acquire(step);
            model.launch(step.weights.front(), lease.data(step.weights.front()));
        }
    }
    weights.drain();
    CHECK(model.is_right());
    std::filesystem::remove(path);
}

TEST_CASE("docs/composition.md: whether it will help, before anything runs") {
    Model model;
    const InOrder weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};

    const plan::Plan& plan = weights.plan();
    const double least = plan.bound_seconds();          // no plan of copies is faster
    const double predicted = plan.predicted_seconds();  // what this one takes
    CHECK(least > 0);
    CHECK(predicted >= least);
}

}  // namespace docs_composition
