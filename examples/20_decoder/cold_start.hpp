// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "checkpoint.hpp"
#include "engine.hpp"
#include "examples/support/load.hpp"
#include "job.hpp"
#include "residency/budget/budget.hpp"
#include "residency/host/loading.hpp"
#include "residency/host/weight_file.hpp"
#include "residency/transport/staged.hpp"
#include "workspace.hpp"

namespace decoder {

/// The rows of the embedding table that a prompt reads, in pinned memory, straight from the file: nobody waits for the table.
template <class Backend>
[[nodiscard]] const Bf16* read_rows(Backend& backend, const Checkpoint& model, std::span<const std::uint64_t> tokens) {
    const std::uint64_t row = model.config.hidden;
    const auto& source = std::get<residency::FileSource>(model.words_storage().source);
    const auto file =
        residency::unwrap(residency::host::WeightFile::try_open(*source.file, residency::host::FileAccess::cached));
    Bf16* const rows = backend.memory().template pinned<Bf16>(tokens.size() * row);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::span<Bf16> to{rows + i * row, row};
        residency::unwrap(file.try_read(source.offset_bytes + model.words().offset_bytes + tokens[i] * to.size_bytes(),
                                        std::as_writable_bytes(to)));
    }
    return rows;
}

/// Opens the folder's files, loads the weights and runs the prompt: while they load, in the order in which the pass reads them, each step as
/// soon as its own are there; or after it. The device, its libraries and the workspace are there already. Blocks until everything is
/// loaded.
template <class Backend>
ColdStart start_cold(Backend& backend, const ColdJob& job, Workspace<Backend>& work) {
    using Device = typename Backend::Device;
    using Staged = residency::transport::Staged<Device>;
    namespace host = residency::host;
    const auto begin = std::chrono::steady_clock::now();
    const auto seconds = [&] {
        return std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count();
    };
    const auto prompt = std::uint32_t(job.prompt.size());
    ColdStart result;
    result.model = Checkpoint::read(job.folder, job.packed);
    const auto run = [&](auto& engine, std::span<const std::uint64_t> tokens) {
        result.token = engine.step(tokens).token;
        result.token_seconds = seconds();
        engine.finish();
        result.logits = work.logits(result.model.config);
    };

    const auto load_table = [&] {
        result.model.table = examples::load_pinned(backend.device(), result.model.table);
        work.use_table(result.model);
        result.load_seconds = seconds();
    };

    examples::Progress bar{"loading"};
    host::LoadOptions options = examples::pinned_options(bar);
    options.schedule = make_schedule(result.model, {prompt, job.positions, work.cache}, work.activations);
    // Of a table that is packed, no rows can be read.
    if (job.load_first || !std::holds_alternative<residency::FileSource>(result.model.words_storage().source)) {
        result.model.catalog = host::load(backend.device(), result.model.catalog, std::move(options)).catalog;
        load_table();
        Engine<Backend> engine{backend, result.model, work, job.budget, prompt, job.positions, false};
        run(engine, job.prompt);
        return result;
    }
    options.pinning = host::Pinning::after_loading;
    const auto loading =
        residency::unwrap(host::Loading::try_start(backend.device(), result.model.catalog, std::move(options)));
    work.activations.table = read_rows(backend, result.model, job.prompt);
    std::vector<std::uint64_t> rows(prompt);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    result.model.catalog = loading->catalog();
    {
        typename Staged::Config transport;
        transport.loading = loading;
        Engine<Backend, Staged> engine{backend, result.model,  work,  job.budget,
                                       prompt,  job.positions, false, transport};
        run(engine, rows);
    }
    residency::unwrap(loading->wait());
    result.model.catalog = loading->catalog();
    load_table();
    return result;
}

}  // namespace decoder
