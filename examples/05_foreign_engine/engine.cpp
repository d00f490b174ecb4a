// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// The engine: its file format, its table of addresses, its loop over tokens. It decodes the same text at several budgets; every logit
// has to be that of the run with everything resident. Exits with 0 if it was, with 77 without a GPU.
//
//   foreign_engine [MODEL]        makes MODEL if it is not there; without an argument, a file that is removed at the end
#include "engine.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace engine { namespace {

#ifdef ON_CUDA
constexpr std::uint32_t shape[] = {1536, 4096, 12, 24, 32000, 128};  // 1.46 GB
#else
constexpr std::uint32_t shape[] = {128, 384, 4, 12, 1024, 128};  // 5.6 MB
#endif
constexpr std::uint32_t prompt_tokens = 8, tokens = 96, timed_tokens = 32;

[[noreturn]] void stop(const std::string& why) {
    std::fprintf(stderr, "foreign_engine: %s\n", why.c_str());
    std::exit(2);
}

Config make_config() {
    Config config;
    config.dim = shape[0];
    config.hidden = shape[1];
    config.heads = shape[2];
    config.layers = shape[3];
    config.vocabulary = shape[4];
    config.positions = shape[5];
    return config;
}
std::uint32_t tensors_of(const Config& config) { return config.layers * per_layer + after_layers; }
std::uint64_t padded(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Random weights of the size that keeps activations near 1; norms are 1.
void write_model(const std::string& path) {
    const Config config = make_config();
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) { stop(path + " cannot be written"); }
    std::vector<char> header(256, 0);
    std::memcpy(header.data(), &config, sizeof config);
    bool is_written = std::fwrite(header.data(), 1, header.size(), file) == header.size();
    std::uint64_t random = 1;
    std::vector<Bf16> tensor;
    for (std::uint32_t i = 0; i < tensors_of(config); ++i) {
        const std::uint64_t elements = elements_of(config, i);
        tensor.assign(static_cast<std::size_t>(padded(elements * 2) / 2), 0);
        const bool is_norm = elements == config.dim;
        const std::uint32_t inputs =
            i % per_layer == down && i < config.layers * per_layer ? config.hidden : config.dim;
        const float scale = std::sqrt(3.0F / static_cast<float>(inputs));
        for (std::uint64_t k = 0; k < elements; ++k) {
            random = random * 6364136223846793005U + 1442695040888963407U;
            const float value = is_norm ? 1.0F : scale * (static_cast<float>(random >> 40U) / 8388608.0F - 1.0F);
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof bits);
            tensor[static_cast<std::size_t>(k)] = static_cast<Bf16>(bits >> 16U);
        }
        is_written = is_written && std::fwrite(tensor.data(), 2, tensor.size(), file) == tensor.size();
    }
    is_written = std::fclose(file) == 0 && is_written;
    if (!is_written) { stop(path + " cannot be written: make room"); }
}

Config read_config(const std::string& path) {
    Config config;
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    const bool is_read = file != nullptr && std::fread(&config, sizeof config, 1, file) == 1;
    if (file != nullptr) { std::fclose(file); }
    if (!is_read || std::memcmp(&config, std::vector<Config>{make_config()}.data(), sizeof config) != 0) {
        stop(path + " is no model of this engine: remove it, or name another");
    }
    return config;
}

/// Decodes one text after another.
class Engine {
public:
    explicit Engine(const std::string& path) : config_{read_config(path)}, tensors_{tensors_of(config_)} {
        std::vector<WeightPlace> places(tensors_);
        std::uint64_t offset = 256;
        for (std::uint32_t i = 0; i < tensors_; ++i) {
            WeightPlace& place = places[i];
            const std::uint32_t after = config_.layers * per_layer;
            place.bytes = elements_of(config_, i) * 2;
            place.offset = offset;
            place.step = i < after ? i / per_layer : config_.layers;
            place.on_host = i == after + embedding;
            if (place.on_host) { place.step = 0; }
            std::snprintf(place.name, sizeof place.name, "layer.%u.%u", i / per_layer, i % per_layer);
            offset += padded(place.bytes);
        }
        weights_open(path.c_str(), places.data(), tensors_, config_.layers + 1);
        const auto floats = [](std::uint64_t count) {
            return static_cast<float*>(gpu_allocate(static_cast<std::size_t>(count * sizeof(float))));
        };
        const std::uint64_t cache = std::uint64_t{config_.layers} * config_.positions * config_.dim;
        launch_.config = config_;
        launch_.state = {floats(config_.dim),    floats(3 * config_.dim),    floats(config_.dim),
                         floats(config_.hidden), floats(config_.vocabulary), floats(cache),
                         floats(cache)};
        table_ = static_cast<Bf16**>(gpu_allocate(tensors_ * sizeof(Bf16*)));
        pinned_table_ = static_cast<Bf16**>(gpu_allocate_pinned(tensors_ * sizeof(Bf16*)));
        launch_.table = table_;
        launch_.sampled = static_cast<Sampled*>(gpu_allocate_pinned(sizeof(Sampled)));
    }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() {
        gpu_wait();
        State& state = launch_.state;
        for (float* const at :
             {state.x, state.qkv, state.attended, state.activated, state.logits, state.keys, state.values}) {
            gpu_free(at);
        }
        gpu_free(table_);
        gpu_free_pinned(pinned_table_);
        gpu_free_pinned(launch_.sampled);
        weights_close();
    }

    struct Run {
        std::vector<Sampled> sampled;  // of every token after the prompt
        double token_seconds = 0;
        std::uint32_t tables = 0;  // that were written
    };
    Run decode() {
        Run run;
        const std::uint32_t tables_before = tables_;
        std::uint32_t next = 1;
        double begin = 0;
        for (std::uint32_t position = 0; position < prompt_tokens + tokens; ++position) {
            const bool samples = position + 1 >= prompt_tokens;
            if (position == prompt_tokens + tokens - timed_tokens) { begin = gpu_seconds(); }
            launch_.token = position < prompt_tokens ? position * 7 + 1 : next;
            launch_.position = position;
            launch_.classify = samples;
            weights_pass(config_.layers + (samples ? 1 : 0), &run_range, this);
            if (!samples) { continue; }  // nobody needs what the classifier says of a prompt
            gpu_wait();
            next = launch_.sampled->token;
            run.sampled.push_back(*launch_.sampled);
        }
        run.token_seconds = (gpu_seconds() - begin) / timed_tokens;
        run.tables = tables_ - tables_before;
        return run;
    }

private:
    static void run_range(void* context, std::uint32_t first, std::uint32_t last) {
        static_cast<Engine*>(context)->run_range(first, last);
    }
    void run_range(std::uint32_t first, std::uint32_t last) {
        if (generation_ != weights_generation()) { write_table(); }
        launch_.first = first;
        launch_.last = last;
        gpu_run(launch_);
    }
    void write_table() {
        gpu_wait();  // the copy before has read the pinned table
        for (std::uint32_t i = 0; i < tensors_; ++i) { pinned_table_[i] = static_cast<Bf16*>(weights_address(i)); }
        gpu_copy(table_, pinned_table_, tensors_ * sizeof(Bf16*));
        generation_ = weights_generation();
        ++tables_;
    }

    Config config_;
    std::uint32_t tensors_;
    Launch launch_;
    Bf16** table_ = nullptr;
    Bf16** pinned_table_ = nullptr;
    std::uint64_t generation_ = UINT64_MAX;
    std::uint32_t tables_ = 0;
};

int run(const std::string& path) {
    bool is_right = true;
    Engine engine{path};
    std::vector<Sampled> resident;
    double resident_seconds = 0;
    std::printf(
        "%s, one token after another; the ratio is to the largest of the bound, the same with latencies, and "
        "resident\n",
        gpu_name());
    std::printf("%-7s %9s %9s %9s %9s %9s %7s %7s %7s\n", "budget", "held MiB", "copied", "bound ms", "latency",
                "ms/token", "ratio", "ranges", "tables");
    for (const char* const budget : {"100%", "90%", "75%", "50%", "25%", "0"}) {
        weights_set_budget(budget);
        const Engine::Run got = engine.decode();
        const BudgetFigures figures = weights_figures();
        if (resident.empty()) {
            resident = got.sampled;
            resident_seconds = got.token_seconds;
        }
        bool is_same = got.sampled.size() == resident.size();
        for (std::size_t i = 0; is_same && i < resident.size(); ++i) {
            is_same = got.sampled[i].token == resident[i].token && got.sampled[i].checksum == resident[i].checksum;
        }
        is_right = is_right && is_same && figures.held_bytes <= figures.bytes;
        const double least =
            std::fmax(std::fmax(figures.bound_seconds, figures.latency_floor_seconds), resident_seconds);
        std::printf("%-7s %9.1f %9.1f %9.3f %9.3f %9.3f %7.3f %7u %7u%s\n", budget,
                    static_cast<double>(figures.held_bytes) / 1048576,
                    static_cast<double>(figures.copied_bytes) / 1048576, figures.bound_seconds * 1e3,
                    figures.latency_floor_seconds * 1e3, got.token_seconds * 1e3, got.token_seconds / least,
                    figures.ranges, got.tables, is_same ? "" : "  WRONG");
    }
    return is_right ? 0 : 1;
}

}}  // namespace engine

int main(int argc, char** argv) {
    if (argc > 2) { engine::stop("usage: foreign_engine [MODEL]"); }
    if (!engine::gpu_open()) { return 77; }
    const bool is_named = argc == 2;
    const std::string path = is_named ? argv[1] : "foreign_engine." + std::string{engine::gpu_name()} + ".model";
    std::FILE* const there = std::fopen(path.c_str(), "rb");
    if (there != nullptr) {
        std::fclose(there);
    } else {
        engine::write_model(path);
    }
    const int status = engine::run(path);
    if (!is_named) { static_cast<void>(std::remove(path.c_str())); }
    engine::gpu_close();
    return status;
}
