// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// What docs/integrate.md, docs/graphs.md and docs/reference.md quote of errors, with and without exceptions.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "../support/files.hpp"
#include "residency/host/loading.hpp"
#include "residency/planned.hpp"
#include "residency/simulation/simulated_device.hpp"
#include "tests/docs/model.hpp"

namespace docs_no_exceptions {

using namespace residency;
using docs::Model;
using Gpu = SimulatedDevice;
using Weights = Planned<Gpu>;

namespace {

constexpr std::uint64_t bytes_each = std::uint64_t{2} << 20;
std::uint64_t launched_bytes = 0;

void launch(Gpu& gpu, Gpu::Stream stream, std::span<const std::byte> weight) {
    unwrap(gpu.launch(stream, {.reads = {{weight.data(), weight.size()}}, .writes = {}, .body = [weight] {
                                   launched_bytes += weight.size();
                               }}));
}

Status run(Gpu& gpu, Gpu::Stream stream, const std::string& path, std::uint32_t layers, std::string_view text) {
    const auto budget = Budget::try_parse(text);
    if (!budget) { return budget.error(); }
    CatalogBuilder builder;
    for (std::uint32_t i = 0; i < layers; ++i) {
        builder.add("layers." + std::to_string(i), path, i * bytes_each, bytes_each);
    }
    const auto catalog = builder.try_build();  // the first error of all calls of add
    if (!catalog) { return catalog.error(); }
    const auto loaded = host::try_load(gpu, *catalog);
    if (!loaded) { return loaded.error(); }
    ScheduleBuilder steps{loaded->catalog};
    for (std::uint32_t i = 0; i < layers; ++i) { steps.step({WeightId{i}}); }
    const auto schedule = steps.try_build();
    if (!schedule) { return schedule.error(); }

    auto weights = Weights::try_create(gpu, loaded->catalog, {.budget = *budget, .schedule = *schedule});
    if (!weights) { return weights.error(); }
    for (int token = 0; token < 3; ++token) {
        auto pass = weights->try_begin(stream);
        if (!pass) { return pass.error(); }
        for (const auto& step : weights->schedule()) {
            const auto lease = pass->try_acquire(step);
            if (!lease) { return lease.error(); }  // the pass ends with its object, and can be begun again
            for (const WeightId weight : step.weights) { launch(gpu, stream, lease->bytes(weight)); }
        }
        if (const Status ended = pass->try_end(); !ended) { return ended.error(); }
    }
    if (const auto& failure = weights->failure()) { return *failure; }  // what the end of a lease could not do
    return weights->try_drain();                                        // success is an empty Status: return {};
}

}  // namespace

TEST_CASE("docs/integrate.md: without exceptions") {
    const support::TemporaryFolder folder;
    constexpr std::uint32_t layers = 4;
    const std::string path = folder.write("model.ours", std::string(layers * bytes_each, 'w'));
    Gpu gpu;
    const Gpu::Stream stream = unwrap(gpu.create_stream());
    launched_bytes = 0;
    unwrap(run(gpu, stream, path, layers, "50%"));
    CHECK(launched_bytes == 3 * layers * bytes_each);
    CHECK(gpu.report_count() == 0);

    const Status longer = run(gpu, stream, path, layers + 1, "50%");  // than the file
    REQUIRE(!longer);
    CHECK(longer.error().kind() == ErrorKind::malformed);
    const Status tight = run(gpu, stream, path, layers, "1MiB");
    REQUIRE(!tight);
    CHECK(tight.error().detail<BudgetNumbers>() != nullptr);
    CHECK(gpu.report_count() == 0);
    unwrap(gpu.destroy_stream(stream));
}

TEST_CASE("docs/reference.md: the numbers of an error that is caught") {
    Model model;
    Gpu& gpu = model.gpu;
    std::uint64_t needed = 0;
    const auto use = [&](std::uint64_t bytes) { needed = bytes; };

    try {
        const Weights weights{gpu, model.catalog, {.budget = Budget::parse("1MiB"), .schedule = model.schedule}};
    } catch (const Exception& caught) {
        const Error& error = caught.error();
        if (error.kind() != ErrorKind::budget) { throw; }
        if (const auto* numbers = error.detail<BudgetNumbers>()) { use(numbers->floor_bytes); }
    }

    CHECK(needed ==
          Weights::resolve_budget(gpu, model.catalog, {.budget = Budget::bytes(0), .schedule = model.schedule}).bytes);
}

TEST_CASE("docs/graphs.md: a capture without exceptions") {
    Model model;
    const auto stream = model.stream;
    Weights weights{model.gpu, model.catalog, {.budget = Budget::parse("50%"), .schedule = model.schedule}};

    const auto replay = [&]() -> Status {
        auto graph = weights.try_capture(stream, [&](auto& pass) -> Status {
            for (const auto& step : weights.schedule()) {
                const auto lease = pass.try_acquire(step);
                if (!lease) { return lease.error(); }  // try_capture returns it; there is no graph
                model.launch(step.weights.front(), lease->data(step.weights.front()));
            }
            return {};  // recorded
        });
        if (!graph) { return graph.error(); }
        for (int token = 0; token < 4; ++token) {
            if (const Status launched = graph->try_launch(stream); !launched) { return launched.error(); }
        }
        return {};
    };

    unwrap(replay());
    CHECK(model.is_right());
    const auto refused = weights.try_capture(
        stream, [](auto&) -> Status { return Error{ErrorKind::cancelled, "the body's own error"}; });
    REQUIRE(!refused);
    CHECK(refused.error().message().find("the body's own error") != std::string::npos);
    unwrap(replay());
    CHECK(model.is_right());
}

}  // namespace docs_no_exceptions
