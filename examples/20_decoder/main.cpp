// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// A Llama-style decoder whose weights and KV cache share a byte budget: decoder [--model DIR] [--tokens 1,2,3] [--budget 50%] [--help].
// Token ids in, token ids out. Exits with 0 if every check holds, 1 if one does not, 2 for bad input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint.hpp"
#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "generate.hpp"
#include "job.hpp"
#include "report.hpp"
#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace decoder { namespace {

using examples::Checks;
using examples::text_of;
using examples::text_of_bytes;

struct Settings : examples::CommonSettings {
    std::string model, generate, tokens, logits, expect, write, json;
    std::vector<std::string> budgets{"50%"};
    std::uint32_t layers = 0, prompt_length = 0, prompt_passes = 1, new_tokens = 16, kept_logits = UINT32_MAX,
                  link_every = 0, gpus = 1;
    bool no_graph = false, verify = false, load_first = false, packed = false, direct = false, also_eager = false,
         without_sums = false;
};

template <class T>
std::string joined(const std::vector<T>& values) {
    std::string text;
    for (const T& value : values) { text += (text.empty() ? "" : ",") + std::to_string(value); }
    return text;
}

/// The folder of the model; generated first where that was asked for and it is not there yet.
std::string obtain_model(const Settings& settings, const char* by_default) {
    if (settings.generate.empty() && !settings.model.empty()) { return settings.model; }
    const std::string name = settings.generate.empty() ? by_default : settings.generate;
    Config config = shape(name);
    if (settings.layers != 0) { config.layers = settings.layers; }
    const std::string folder =
        !settings.model.empty() ? settings.model
                                : settings.cache + "/" + name +
                                      (settings.layers != 0 ? "-" + std::to_string(settings.layers) + "-layers" : "");
    if (std::filesystem::exists(folder + "/config.json")) {
        bool is_other = false;
        try {
            is_other = Config::read(folder + "/config.json").text() != config.text();
            if (!is_other) {
                static_cast<void>(Checkpoint::read(folder));
                return folder;
            }
        } catch (const std::exception& problem) {
            // What lies in the cache is nobody's but this program's.
            if (!settings.model.empty()) {
                refuse(std::string{problem.what()} + ": remove " + folder +
                       ", and it is generated again, or name another folder with --model");
            }
            std::printf("damaged   %s; it is written again\n", problem.what());
        }
        if (is_other) {
            refuse(folder + " holds another model than --generate-model asks for: name another folder with --model");
        }
    }
    examples::Progress bar{"writing"};
    const auto begin = std::chrono::steady_clock::now();
    try {
        generate(folder, config, [&](std::uint64_t done, std::uint64_t total) { bar.show(done, total); });
        bar.clear();
        std::printf("written   %s in %.1f s\n", folder.c_str(),
                    std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count());
    } catch (const std::exception& problem) {
        residency::throw_error(
            {residency::ErrorKind::io,
             std::string{problem.what()} + ": make room, or name another folder with --model or --cache"});
    }
    return folder;
}

/// That of the reference, where there is one.
std::vector<std::uint64_t> prompt_of(const Settings& settings, std::vector<std::uint64_t> ids, const Config& config) {
    if (settings.prompt_length > config.places) {
        refuse("--prompt-length " + std::to_string(settings.prompt_length) +
               " is more than the model's max_position_embeddings, " + std::to_string(config.places) + ": give less");
    }
    for (const std::uint64_t id : ids) {
        if (id >= config.words) {
            refuse(settings.expect + ": its prompt has the token " + std::to_string(id) +
                   ", and the model's vocab_size is " + std::to_string(config.words) +
                   ": give the one that reference.py wrote for this model");
        }
    }
    if (settings.prompt_length != 0) {
        for (std::uint64_t i = 0; i < settings.prompt_length; ++i) { ids.push_back((i * 7919 + 13) % config.words); }
    }
    if (ids.empty()) {
        std::istringstream list{settings.tokens};
        for (std::string each; std::getline(list, each, ',');) {
            const bool is_number =
                !each.empty() && each.size() < 10 && each.find_first_not_of("0123456789") == std::string::npos;
            if (!is_number || std::stoull(each) >= config.words) {
                refuse("--tokens: \"" + each + "\" is no token of this model: give numbers below its vocab_size, " +
                       std::to_string(config.words) + ", with commas between them");
            }
            ids.push_back(std::stoull(each));
        }
        if (ids.empty()) { refuse("--tokens: there is no token: give one at least"); }
    }
    if (ids.size() + settings.new_tokens > config.places) {
        refuse(std::to_string(ids.size()) + " tokens and " + std::to_string(settings.new_tokens) +
               " new ones are more than the model's max_position_embeddings, " + std::to_string(config.places) +
               ": give fewer, or a smaller --new");
    }
    return ids;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
bool equal_bits(const Outcome& a, const Outcome& b) {
    return a.tokens == b.tokens && std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), b.logits.end(),
                                              [](const auto& x, const auto& y) { return equal_bits(x, y); });
}

Results run(const Job& job, const Checkpoint& model, [[maybe_unused]] bool on_gpu) {
#ifdef WITH_CUDA
    if (on_gpu) { return job.gpus > 1 ? run_split_cuda(job, model) : run_cuda(job, model); }
#endif
    return job.gpus > 1 ? run_split_simulated(job, model) : run_simulated(job, model);
}

/// A file that is to be written, before any time is spent. What is no file, such as a device, would be replaced by one.
void require_place_for(const char* option, const std::string& path) {
    if (path.empty()) { return; }
    const std::filesystem::path folder = std::filesystem::path{path}.parent_path();
    std::error_code unknown;
    if (!folder.empty() && !std::filesystem::is_directory(folder, unknown)) {
        refuse(std::string{option} + " " + path + ": there is no folder " + folder.string() +
               ": make it, or name another file");
    }
    if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)) {
        refuse(std::string{option} + " " + path + ": this is no file: name another one");
    }
}

/// What runs of one GPU are compared with is the first; what those of several are, the first of theirs, and the first of one GPU.
void check_outcomes(const Job& job, const std::vector<Outcome>& outcomes, Checks& checks) {
    const Outcome* several = nullptr;  // the first of more than one GPU
    const Outcome& first = outcomes.front();
    for (const Outcome& outcome : outcomes) {
        const bool is_split = outcome.gpus > 1;
        if (is_split && outcome.is_comparable) {
            checks.check(outcome.gpus_agree, outcome.asked + ": every GPU has the same tokens and logits bit for bit");
            if (job.with_resident) { check_split(outcome, first, checks); }
        }
        const Outcome* const same = is_split ? several : job.with_resident && &outcome != &first ? &first : nullptr;
        if (same != nullptr && outcome.is_comparable) {
            const std::size_t passes = outcome.tokens.size(), kept = outcome.logits.size();
            checks.check(equal_bits(outcome, *same),
                         outcome.asked + ": tokens" +
                             (kept == passes ? " and logits of all " + std::to_string(passes) + " passes"
                                             : " of all " + std::to_string(passes) +
                                                   " passes and logits of the first " + std::to_string(kept)) +
                             " equal those of " + (is_split ? same->asked : "the resident run") + " bit for bit; " +
                             std::to_string(outcome.graph_steps) + " were launched as a graph");
        }
        if (several == nullptr && is_split && outcome.is_comparable) { several = &outcome; }
        checks.check(outcome.is_within_budget,
                     outcome.asked + ": the budget was kept: " + text_of_bytes(outcome.statistics.held_bytes) +
                         " of weights and " + text_of_bytes(outcome.cache_bytes) + " of KV cache in " +
                         text_of_bytes(outcome.budget.bytes));
    }
}

int decode(const Settings& settings) {
    require_place_for("--logits", settings.logits);
    require_place_for("--write-reference", settings.write);
    require_place_for("--json", settings.json);
    Job job;
    for (const std::string& budget : settings.budgets) { job.budgets.push_back(residency::Budget::parse(budget)); }
    job.new_tokens = settings.new_tokens;
    job.prompt_passes = settings.prompt_passes;
    job.link_every = settings.link_every;
    job.graphs = !settings.no_graph;
    job.load_first = settings.load_first;
    job.also_eager = settings.also_eager;
    job.packed = settings.packed;
    job.direct = settings.direct || settings.packed;
    job.timeline = settings.timeline;
    job.report = settings.report;
    job.gpus = settings.gpus;
    job.without_sums = settings.without_sums;
    if (job.gpus > 1) {
        // A kernel that is loaded when it is first launched waits for its GPU, and so for those of the others.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        // NCCL connects before the first pass: in one, the host would wait for the others, even for one that has failed.
        setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    }
    std::string why_not;
    const bool on_gpu = settings.use_gpu(why_not);
    // A GPU maps memory in pieces of 2 MiB: there, the tiny one would be all floor.
    const std::string folder = obtain_model(settings, on_gpu ? "small" : "tiny");
    const Checkpoint model = Checkpoint::read(folder, job.packed);
    const Reference reference = settings.expect.empty() ? Reference{} : Reference::read(settings.expect);
    job.folder = folder;
    job.prompt = prompt_of(settings, reference.prompt, model.config);
    constexpr std::uint64_t small = std::uint64_t{1}
                                    << 30U;  // bytes of weights that are run once more without being asked
    job.with_resident = settings.verify || model.catalog.streamed_bytes() <= small;
    job.kept_logits = !settings.logits.empty() || !settings.write.empty() ? UINT32_MAX
                      : job.with_resident                                 ? settings.kept_logits
                                                                          : 1;

    std::error_code ignored;  // the timeline cannot be written then, which says so
    std::filesystem::create_directories(std::filesystem::path{settings.timeline}.parent_path(), ignored);
    const Results results = run(job, model, on_gpu);
    const Outcome& first = results.outcomes.front();
    const Outcome& last = results.outcomes.back();

    std::printf("model     %s: %s, %u layers\n", folder.c_str(), model.config.family.c_str(), model.config.layers);
    std::printf("          %s of embeddings on the host, read a row at a time%s, %s that stream\n",
                text_of_bytes(model.words().bytes).c_str(),
                model.config.tied ? " (and streamed for the last matrix)" : "",
                text_of_bytes(model.catalog.streamed_bytes()).c_str());
    if (results.packed) {
        const PackedSizes& packed = *results.packed;
        std::printf("packed    %s in %s, %s in %.1f s; %zu weights stay raw\n", text_of_bytes(packed.raw_bytes).c_str(),
                    text_of_bytes(packed.packed_bytes).c_str(), packed.is_file ? "loaded" : "packed", packed.seconds,
                    packed.kept_raw);
    }
    std::printf("device    %s%s; %s of activations and tables beside the budget\n", results.device.c_str(),
                why_not.empty() ? "" : (" (" + why_not + ")").c_str(), text_of_bytes(results.workspace_bytes).c_str());
    if (job.gpus > 1) {
        std::printf("split     %s of pinned memory for each of %u GPUs, read in %.1f s\n",
                    text_of_bytes(results.share_bytes).c_str(), job.gpus, results.split_seconds);
    }
    std::printf("budget    of weights and KV cache: %s; the smallest that works is %s\n", last.budget.text.c_str(),
                text_of_bytes(last.budget.floor_bytes).c_str());
    const bool is_long = job.prompt.size() > 32;
    std::printf("prompt    %s\n",
                is_long ? (std::to_string(job.prompt.size()) + " tokens").c_str() : joined(job.prompt).c_str());
    std::printf("tokens    %s\n", joined(first.tokens).c_str());
    if (!results.cold.logits.empty()) {
        std::printf("start     the first token came %.3f s after the file was opened, %s; all was loaded at %.3f s\n",
                    results.cold.token_seconds,
                    job.load_first || job.gpus > 1 ? "when everything was loaded" : "while it was loading",
                    results.cold.load_seconds);
    }
    std::printf("\n");
    print_table(results);

    std::printf("\n");
    Checks checks;
    if (!results.cold.logits.empty()) {
        checks.check(
            results.cold.token == first.tokens.front() && equal_bits(results.cold.logits, first.logits.front()),
            "the first token of all, and its logits, equal those of the run afterwards bit for bit");
    }
    check_outcomes(job, results.outcomes, checks);
    if (!job.with_resident) { std::printf("  - not compared with a resident run: --verify does that\n"); }
    if (!settings.expect.empty()) { check_reference(first, reference, checks); }
    if (!on_gpu) { checks.check_reports(results.reports); }
    if (!settings.json.empty()) { write_json(settings.json, job, results); }
    if (!settings.write.empty()) { write_reference(settings.write, job, first); }
    if (!settings.logits.empty()) {
        std::vector<float> all;
        for (const auto& each : first.logits) { all.insert(all.end(), each.begin(), each.end()); }
        residency::unwrap(residency::detail::write_file(settings.logits, std::as_bytes(std::span{all})));
        std::printf("\nlogits    %s: float32, %zu passes of %u, each of its last position\n", settings.logits.c_str(),
                    first.logits.size(), model.config.words);
    }
    std::printf("\ntimeline  %s (%s; open it at ui.perfetto.dev)\n", settings.timeline.c_str(),
                results.timeline.c_str());
    if (!settings.report.empty()) { std::printf("report    %s (for a browser)\n", settings.report.c_str()); }
    return checks.failed() == 0 ? 0 : 1;
}

}}  // namespace decoder

int main(int argc, char** argv) {
    decoder::Settings settings;
    settings.tokens = "1,17,200,3,44,90,128,5,77,31";

    CLI::App app{"A Llama-style decoder, its weights and its KV cache inside one byte budget", "decoder"};
    app.add_option("--model", settings.model,
                   "folder with config.json and model.safetensors, or its shards and their index, or model.packed; "
                   "otherwise a small "
                   "one is generated");
    std::string shapes;
    for (const std::string& each : decoder::shapes()) { shapes += (shapes.empty() ? "" : ", ") + each; }
    auto* const generate = app.add_option(
        "--generate-model", settings.generate,
        "write a model with random weights to --model, or into the cache, if it is not there: " + shapes);
    app.add_option("--layers", settings.layers, "of the generated model, instead of its shape's own")
        ->needs(generate)
        ->check(CLI::Range(1, 1000));
    app.add_option("--tokens", settings.tokens, "the prompt")->capture_default_str();
    app.add_option("--prompt-length", settings.prompt_length, "a prompt of so many tokens, instead of --tokens");
    app.add_option("--repeat-prompt", settings.prompt_passes, "read the prompt so often, to measure that")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    app.add_option("--new", settings.new_tokens, "tokens to write")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    app.add_option("--budget", settings.budgets,
                   "device bytes for weights and KV cache: 12MiB, 25% (of what streams), 0 (the smallest); several are "
                   "run one after another")
        ->capture_default_str();
    app.add_flag("--no-graph", settings.no_graph, "launch every kernel by itself");
    app.add_flag("--also-eager", settings.also_eager, "run each budget without graphs too, to compare the times");
    app.add_flag("--verify", settings.verify, "compare with everything resident; small models always are");
    app.add_option("--kept-logits", settings.kept_logits,
                   "compare the logits of so many passes only: reading them disturbs the times")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--link-every", settings.link_every,
                   "measure a GPU's link each time so many passes were measured, for ratios to what it does just then")
        ->check(CLI::Range(1, 1'000'000));
    app.add_flag(
        "--packed", settings.packed,
        "pack the weights, or take them from model.packed of residency-pack; budgets are of the raw bytes, which "
        "the resident run has");
    auto* const gpus =
        app.add_option("--gpus", settings.gpus,
                       "so many GPUs have a part of the model each, and a budget each, of their part; to compare with, "
                       "one runs it alone, in turns with them, as --verify says")
            ->check(CLI::Range(1, 64))
            ->capture_default_str();
    app.add_flag("--without-sums", settings.without_sums,
                 "run each budget without what GPUs tell each other too, to see what that takes")
        ->needs(gpus);
    for (const char* each : {"--packed", "--also-eager"}) { app.get_option(each)->excludes(gpus); }
    app.add_flag("--direct", settings.direct,
                 "multiply up to 8 tokens by the kernel that --packed uses on a GPU, instead of cuBLAS");
    app.add_flag("--load-first", settings.load_first, "load everything before the first token of all");
    app.add_option("--logits", settings.logits, "write the logits of every pass to this file, as float32");
    app.add_option("--expect", settings.expect, "a prompt, and what has to come of it, as reference.py writes it");
    app.add_option("--write-reference", settings.write, "write such a reference of this run");
    app.add_option("--json", settings.json, "write every figure to this file");
    settings.add_to(app);
    return examples::run_program(app, argc, argv, [&] {
        if (settings.timeline.empty()) { settings.timeline = settings.cache + "/decoder-timeline.json"; }
        return decoder::decode(settings);
    });
}
