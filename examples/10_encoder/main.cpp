// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Sentence embeddings with all-MiniLM-L6-v2 while a quarter of its weights fits: encoder [--model DIR] [--budget 25%] [--help].
// Exits with 0 if every check holds, 1 if one does not, 2 for bad input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint.hpp"
#include "examples/support/advice.hpp"
#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "fetch.hpp"
#include "job.hpp"
#include "report.hpp"
#include "residency/error.hpp"
#include "tokenizer.hpp"

namespace encoder { namespace {

using examples::Checks;
using examples::Table;
using examples::text_of;
using examples::text_of_bytes;

constexpr std::string_view advice =
    "give the folder of a BERT encoder as it was published (model.safetensors or pytorch_model.bin, config.json, "
    "vocab.txt), or leave --model out";

struct Settings : examples::CommonSettings {
    std::string model, budget = "25%";
    std::vector<std::string> sentences;
    bool offline = false, presets = true, packed = false;
};

Results run(const Job& job, const Checkpoint& model, [[maybe_unused]] bool on_gpu) {
#ifdef WITH_CUDA
    if (on_gpu) { return run_cuda(job, model); }
#endif
    return run_simulated(job, model);
}

Tokenizer read_tokenizer(const std::string& folder) {
    return examples::with_advice(advice, [&] { return Tokenizer::read(folder + "/vocab.txt"); });
}

/// Refuses tokens that the model's tables have no row for.
void require_rows(const std::vector<std::vector<std::int32_t>>& ids, const Config& config, const std::string& folder) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i].size() > config.places) {
            residency::throw_error({residency::ErrorKind::invalid_argument,
                                    "sentence " + std::to_string(i + 1) + " has " + std::to_string(ids[i].size()) +
                                        " tokens, and the model's max_position_embeddings is " +
                                        std::to_string(config.places) + ": give shorter ones with --text"});
        }
        const auto largest = *std::max_element(ids[i].begin(), ids[i].end());
        if (std::uint32_t(largest) >= config.words) {
            residency::throw_error({residency::ErrorKind::mismatch,
                                    folder + "/vocab.txt: it has a token " + std::to_string(largest) +
                                        ", and config.json's vocab_size is " + std::to_string(config.words) +
                                        ": give the two that belong together"});
        }
    }
}

/// The model to encode with: the one that was named, or the published one, or one of its shapes.
Source source_of(const Settings& settings) {
    return settings.model.empty() ? obtain_model(published_model(), settings.cache, !settings.offline, known_sentences)
                                  : Source{settings.model, false, settings.model};
}

int encode(const Settings& settings) {
    Job job;
    job.budget = residency::Budget::parse(settings.budget);
    job.presets = settings.presets;
    job.packed = settings.packed;
    job.timeline = settings.timeline;
    job.report = settings.report;
    std::string why_not;
    const bool on_gpu = settings.use_gpu(why_not);

    const bool is_known = settings.sentences.empty();
    const auto& sentences = is_known ? known_sentences : settings.sentences;
    const Source source = source_of(settings);
    const Checkpoint model = examples::with_advice(advice, [&] { return Checkpoint::read(source.folder); });
    const Tokenizer tokenizer = read_tokenizer(source.folder);
    constexpr std::size_t longest = 256;  // tokens; what the model was trained for
    std::size_t tokens = 0;
    for (const std::string& sentence : sentences) {
        tokens += job.ids.emplace_back(tokenizer.encode(sentence, longest)).size();
    }
    require_rows(job.ids, model.config, source.folder);

    std::error_code ignored;  // the timeline cannot be written then, which says so
    std::filesystem::create_directories(std::filesystem::path{settings.timeline}.parent_path(), ignored);
    const Results results = run(job, model, on_gpu);
    const auto& catalog = model.catalog;
    const auto& streamed = results.streamed;
    const auto& statistics = streamed.statistics;
    const auto& embeddings = results.resident.passes.front();

    std::printf("model     %s\n", source.text.c_str());
    std::printf("          %s: %s of tables on the host, read a row at a time, %s that stream; loaded in %.2f s\n",
                text_of_bytes(catalog.total_bytes()).c_str(),
                text_of_bytes(catalog.bytes_placed(residency::Placement::host)).c_str(),
                text_of_bytes(catalog.streamed_bytes()).c_str(), results.load_seconds);
    std::printf("device    %s%s\n", results.device.c_str(), why_not.empty() ? "" : (" (" + why_not + ")").c_str());
    std::printf("budget    %s\n", streamed.budget.text.c_str());
    std::printf("batch     %zu sentences, %zu tokens\n\n", sentences.size(), tokens);
    print_similarities(sentences, embeddings);

    std::printf("\n");
    Checks checks;
    checks.check(equal_bits(streamed.passes, embeddings),
                 "the embeddings of " + std::to_string(streamed.passes.size()) +
                     " streamed passes equal those of the resident run bit for bit");
    if (is_known) {
        check_reference(embeddings, source, !settings.model.empty(), checks);
    } else {
        std::printf("  - no reference for sentences of your own\n");
    }
    const bool fits =
        statistics.held_bytes <= streamed.budget.bytes && statistics.peak_requested_bytes <= streamed.budget.bytes;
    checks.check(fits, "the budget was kept: " + text_of_bytes(statistics.held_bytes) + " held of " +
                           text_of_bytes(streamed.budget.bytes));
    if (!on_gpu) { checks.check_reports(results.reports); }

    const auto& pass = statistics.last_pass;
    std::printf(
        "\nmoved     %s a pass in %llu copies%s; %llu of %llu storages were there, %llu on their way, %llu had to be "
        "waited for\n",
        text_of_bytes(pass.fetched_bytes).c_str(), static_cast<unsigned long long>(pass.calls),
        statistics.streaming ? "" : " (everything is resident)", static_cast<unsigned long long>(pass.hits),
        static_cast<unsigned long long>(pass.hits + pass.prefetch_hits + pass.demand_misses),
        static_cast<unsigned long long>(pass.prefetch_hits), static_cast<unsigned long long>(pass.demand_misses));
    if (statistics.pass_time && statistics.bound) {
        std::printf(
            "time      %.3f ms a pass; no plan of copies beats %.3f ms; resident %.3f ms\n",
            double(statistics.pass_time->count()) / 1e6, double(statistics.bound->count()) / 1e6,
            results.resident.statistics.pass_time ? double(results.resident.statistics.pass_time->count()) / 1e6 : 0.0);
    }
    std::printf("timeline  %s (%s; open it at ui.perfetto.dev)\n", settings.timeline.c_str(), results.timeline.c_str());
    if (!settings.report.empty()) { std::printf("report    %s (for a browser)\n", settings.report.c_str()); }
    if (settings.presets) { print_presets(results, checks); }
    if (settings.packed) { print_packed(results, checks); }
    return checks.failed() == 0 ? 0 : 1;
}

}}  // namespace encoder

int main(int argc, char** argv) {
    encoder::Settings settings;
    std::string tokens;
    bool no_presets = false;

    CLI::App app{"Sentence embeddings with all-MiniLM-L6-v2, its weights streamed inside a byte budget", "encoder"};
    app.add_option(
        "--model", settings.model,
        "folder with model.safetensors or pytorch_model.bin, config.json and vocab.txt; otherwise one is fetched");
    app.add_option("--budget", settings.budget,
                   "device bytes for weights: 12MiB, 25% (of what streams), 0 (the smallest)")
        ->capture_default_str();
    settings.add_to(app);
    app.add_option("--text", settings.sentences, "sentences of your own");
    app.add_option("--tokens", tokens, "only print the token ids of this text");
    app.add_flag("--offline", settings.offline, "fetch nothing: without a model, generate one");
    app.add_flag("--no-presets", no_presets, "leave out the table of presets");
    app.add_flag("--packed", settings.packed, "also with packed weights, in turns with raw ones");
    return examples::run_program(app, argc, argv, [&] {
        settings.presets = !no_presets;
        if (settings.timeline.empty()) { settings.timeline = settings.cache + "/encoder-timeline.json"; }
        if (tokens.empty()) { return encoder::encode(settings); }
        const std::string folder = encoder::source_of(settings).folder;
        for (const auto id : encoder::read_tokenizer(folder).encode(tokens, 512)) { std::printf("%d ", id); }
        std::printf("\n");
        return 0;
    });
}
