// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Opening models of many tensors and of many files, to the catalog. Target: 100,000 tensors, or 1,000 files, in under 0.5 s.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "benchmarks/models.hpp"
#include "residency/format/open.hpp"

namespace {

void open_model(benchmark::State& state, const bench::OpenedModel& opened) {
    const bench::Models models;
    const std::string path = opened.make(models);
    for (auto _ : state) {
        const auto model = residency::format::try_read_model(path);
        if (!model) {
            state.SkipWithError(model.error().message().c_str());
            return;
        }
        const auto catalog = model->try_catalog();
        if (!catalog || catalog->weights().size() != opened.tensors) {
            state.SkipWithError("not the model that was written");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(opened.tensors));
}

}  // namespace

int main(int argc, char** argv) {
    for (const bench::OpenedModel& opened : bench::opened_models) {
        benchmark::RegisterBenchmark(opened.name, open_model, opened)->Unit(benchmark::kMillisecond);
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) { return 1; }
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
