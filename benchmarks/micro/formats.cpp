// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Opening models of many tensors and of many files, to the catalog. Target: 100,000 tensors, or 1,000 files, in under 0.5 s.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "benchmarks/models.hpp"
#include "residency/format/gguf.hpp"
#include "residency/format/safetensors.hpp"

namespace {

using residency::format::ModelFile;

template <class Read>
void open_model(benchmark::State& state, std::size_t tensors, const Read& read) {
    for (auto _ : state) {
        const auto model = read();
        if (!model) {
            state.SkipWithError(model.error().message().c_str());
            return;
        }
        const auto catalog = model->try_catalog();
        if (!catalog || catalog->weights().size() != tensors) {
            state.SkipWithError("not the model that was written");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tensors));
}

void safetensors_100k_tensors(benchmark::State& state) {
    const bench::Models models;
    const auto path = models.one_file(100'000);
    open_model(state, 100'000, [&] { return residency::format::try_read_safetensors(path); });
}
void safetensors_1000_files(benchmark::State& state) {
    const bench::Models models;
    const auto path = models.sharded(1000, 20);
    open_model(state, 20'000, [&] { return residency::format::try_read_safetensors(path); });
}
void safetensors_1000_files_100k_tensors(benchmark::State& state) {
    const bench::Models models;
    const auto path = models.sharded(1000, 100);
    open_model(state, 100'000, [&] { return residency::format::try_read_safetensors(path); });
}
void gguf_100k_tensors(benchmark::State& state) {
    const bench::Models models;
    const auto path = models.gguf(100'000);
    open_model(state, 100'000, [&]() -> residency::Result<ModelFile> {
        auto file = residency::format::try_read_gguf(path);
        if (!file) { return file.error(); }
        return std::move(file->model);
    });
}

BENCHMARK(safetensors_100k_tensors)->Unit(benchmark::kMillisecond);
BENCHMARK(safetensors_1000_files)->Unit(benchmark::kMillisecond);
BENCHMARK(safetensors_1000_files_100k_tensors)->Unit(benchmark::kMillisecond);
BENCHMARK(gguf_100k_tensors)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
