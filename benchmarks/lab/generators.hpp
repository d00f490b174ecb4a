// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/workload.hpp"

namespace lab {

namespace generate {

using residency::StorageId;

/// A matrix of a step: its name and its two sides.
struct Matrix {
    const char* name;
    std::uint64_t rows, columns;
};

/// Adds matrices of one element size as one step: storages that a launch or a few of them need together.
inline void add_step(Workload& work, std::uint32_t layer, const std::string& prefix,
                     std::initializer_list<Matrix> matrices, std::uint64_t element_bytes, double tokens) {
    Workload::Step step;
    for (const Matrix& each : matrices) {
        step.storages.push_back(work.add(prefix + each.name, each.rows * each.columns * element_bytes, layer));
        step.flops += 2 * tokens * static_cast<double>(each.rows * each.columns);
    }
    work.steps.push_back(std::move(step));
}
inline void end_pass(Workload& work) { work.pass_ends.push_back(work.steps.size()); }
inline std::string layer_prefix(std::uint32_t layer) { return "layers." + std::to_string(layer) + "."; }

/// A decoder of the Llama family.
struct Decoder {
    std::uint32_t layers;
    std::uint64_t hidden, attention, key_value, feed_forward, vocabulary;
};
inline constexpr Decoder llama3_8b{32, 4096, 4096, 1024, 14336, 128256};
inline constexpr Decoder llama3_70b{80, 8192, 8192, 1024, 28672, 128256};
inline constexpr Decoder llama32_1b{16, 2048, 2048, 512, 8192, 128256};
inline constexpr Decoder llama32_3b{28, 3072, 3072, 1024, 8192, 128256};

/// The steps of one forward pass; embedding rows are read from host memory and not counted. `first` numbers its layers.
inline void add_decoder(Workload& work, const Decoder& model, const std::string& prefix, double tokens,
                        std::uint32_t first = 0) {
    for (std::uint32_t i = 0; i < model.layers; ++i) {
        const std::string name = prefix + layer_prefix(i);
        add_step(work, first + i, name,
                 {{"norm", 1, model.hidden},
                  {"q", model.attention, model.hidden},
                  {"k", model.key_value, model.hidden},
                  {"v", model.key_value, model.hidden}},
                 2, tokens);
        add_step(work, first + i, name, {{"o", model.hidden, model.attention}}, 2, tokens);
        add_step(work, first + i, name,
                 {{"ffn_norm", 1, model.hidden},
                  {"gate", model.feed_forward, model.hidden},
                  {"up", model.feed_forward, model.hidden}},
                 2, tokens);
        add_step(work, first + i, name, {{"down", model.hidden, model.feed_forward}}, 2, tokens);
    }
    add_step(work, first + model.layers, prefix, {{"lm_head", model.vocabulary, model.hidden}}, 2,
             std::min(tokens, 1.0));
}
inline Workload decoder(std::string name, const Decoder& model, double tokens) {
    Workload work;
    work.name = std::move(name);
    add_decoder(work, model, "", tokens);
    end_pass(work);
    return work;
}

/// A mixture of experts: attention matrices of a layer, then its experts.
struct Mixture {
    std::uint32_t layers, dense_layers;  ///< the first dense_layers have a plain feed-forward part
    std::uint64_t hidden;
    std::vector<Matrix> attention;  ///< of each layer, the router and shared experts included
    std::uint64_t dense_feed_forward, expert_feed_forward;
    std::uint32_t experts, used;
    std::uint64_t vocabulary, element_bytes;
    double reuse;  ///< of a token's experts, the share that the token before used in that layer
    double skew;   ///< Zipf exponent of what is drawn anew: the hottest tenth takes about a third
};
inline Mixture mixtral_8x7b() {
    return {32,    0,
            4096,  {{"q", 4096, 4096}, {"k", 1024, 4096}, {"v", 1024, 4096}, {"o", 4096, 4096}, {"router", 8, 4096}},
            0,     14336,
            8,     2,
            32000, 2,
            0.37,  0.15};
}
inline Mixture qwen3_30b() {
    return {48,     0,
            2048,   {{"q", 4096, 2048}, {"k", 512, 2048}, {"v", 512, 2048}, {"o", 2048, 4096}, {"router", 128, 2048}},
            0,      768,
            128,    8,
            151936, 2,
            0.38,   0.72};
}
inline Mixture deepseek_v3() {
    return {61,
            3,
            7168,
            {{"q_a", 1536, 7168},
             {"q_b", 24576, 1536},
             {"kv_a", 576, 7168},
             {"kv_b", 32768, 512},
             {"o", 7168, 16384},
             {"shared", 3 * 2048, 7168},
             {"router", 256, 7168}},
            18432,
            2048,
            256,
            8,
            129280,
            1,
            0.24,
            0.65};
}

/// Adds a mixture's storages: the dense ones and, by layer, the experts.
struct MixtureStorages {
    std::vector<std::vector<StorageId>> dense;    ///< by layer
    std::vector<std::vector<StorageId>> experts;  ///< by layer
    StorageId head;
};
inline MixtureStorages add_mixture(Workload& work, const Mixture& model, bool dense_stays) {
    MixtureStorages out;
    for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
        const std::string name = layer_prefix(layer);
        std::vector<StorageId>& dense = out.dense.emplace_back();
        for (const Matrix& each : model.attention) {
            dense.push_back(
                work.add(name + each.name, each.rows * each.columns * model.element_bytes, layer, dense_stays));
        }
        std::vector<StorageId>& experts = out.experts.emplace_back();
        if (layer < model.dense_layers) {
            dense.push_back(work.add(name + "feed_forward",
                                     3 * model.dense_feed_forward * model.hidden * model.element_bytes, layer,
                                     dense_stays));
            continue;
        }
        for (std::uint32_t i = 0; i < model.experts; ++i) {
            experts.push_back(work.add(name + "experts." + std::to_string(i),
                                       3 * model.expert_feed_forward * model.hidden * model.element_bytes, layer));
        }
    }
    out.head = work.add("lm_head", model.vocabulary * model.hidden * model.element_bytes, model.layers, dense_stays);
    return out;
}
inline double elements(const Workload& work, StorageId id, const Mixture& model) {
    return static_cast<double>(work.bytes[index(id)]) / static_cast<double>(model.element_bytes);
}

/// A prompt long enough to use every expert: a known order, one expert a step.
inline Workload mixture_prefill(std::string name, const Mixture& model, double tokens) {
    Workload work;
    work.name = std::move(name);
    const MixtureStorages storages = add_mixture(work, model, false);
    for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
        Workload::Step dense{storages.dense[layer], 0};
        for (const StorageId id : dense.storages) { dense.flops += 2 * tokens * elements(work, id, model); }
        work.steps.push_back(std::move(dense));
        const double share = tokens * model.used / std::max(model.experts, 1U);
        for (const StorageId id : storages.experts[layer]) {
            work.steps.push_back({{id}, 2 * share * elements(work, id, model)});
        }
    }
    work.steps.push_back({{storages.head}, 2 * elements(work, storages.head, model)});
    end_pass(work);
    return work;
}

/// The experts that a router chooses, token by token: a share of them again what the token before used in that layer, the rest
/// by Zipf's law over a permutation of its own for each layer. Fixed by the seed.
class Router {
public:
    Router(std::uint32_t layers, std::uint32_t experts, std::uint32_t used, double reuse, double skew,
           std::uint32_t seed)
        : random_{seed}, experts_{experts}, used_{used}, previous_(layers), ranks_(layers) {
        double sum = 0;
        for (std::uint32_t i = 0; i < experts; ++i) { cumulated_.push_back(sum += std::pow(i + 1, -skew)); }
        for (auto& ranks : ranks_) {
            ranks.resize(experts);
            std::iota(ranks.begin(), ranks.end(), 0U);
            for (std::uint32_t i = experts; i > 1; --i) { std::swap(ranks[i - 1], ranks[random_() % i]); }
        }
        again_ = again_for(reuse);
    }

    /// In the order of the router's probabilities. Call for each layer of a token in turn.
    [[nodiscard]] std::vector<std::uint32_t> choose(std::uint32_t layer) {
        std::vector<std::uint32_t> chosen;
        const std::vector<std::uint32_t>& before = previous_[layer];
        while (chosen.size() < used_) {
            const std::uint32_t candidate =
                !before.empty() && uniform() < again_ ? before[random_() % before.size()] : ranks_[layer][draw()];
            if (std::find(chosen.begin(), chosen.end(), candidate) == chosen.end()) { chosen.push_back(candidate); }
        }
        previous_[layer] = chosen;
        return chosen;
    }

private:
    [[nodiscard]] double uniform() { return static_cast<double>(random_() >> 8U) * 0x1p-24; }
    [[nodiscard]] std::uint32_t draw() {
        const auto at =
            std::lower_bound(cumulated_.begin(), cumulated_.end(), uniform() * cumulated_.back()) - cumulated_.begin();
        return static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(at, experts_ - 1));
    }
    /// Draws from the law alone repeat some experts by chance, and draws of what is chosen already are repeated: the share of
    /// deliberate repetition that gives the wanted reuse is found by trial.
    [[nodiscard]] double again_for(double reuse) {
        const std::mt19937 saved = random_;
        double low = 0;
        double high = 1;
        for (int trial = 0; trial < 20; ++trial) {
            again_ = (low + high) / 2;
            random_ = std::mt19937{1};
            std::uint64_t repeated = 0;
            constexpr std::uint64_t tokens = 400;
            previous_[0] = {};
            for (std::uint64_t token = 0; token < tokens; ++token) {
                const std::vector<std::uint32_t> before = previous_[0];
                for (const std::uint32_t each : choose(0)) {
                    repeated += std::find(before.begin(), before.end(), each) != before.end() ? 1U : 0U;
                }
            }
            const double share = static_cast<double>(repeated) / static_cast<double>((tokens - 1) * used_);
            (share < reuse ? low : high) = again_;
        }
        previous_[0] = {};
        random_ = saved;
        return (low + high) / 2;
    }

    std::mt19937 random_;
    std::uint32_t experts_, used_;
    std::vector<std::vector<std::uint32_t>> previous_;  // by layer
    std::vector<std::vector<std::uint32_t>> ranks_;     // by layer: the expert of each rank
    std::vector<double> cumulated_;
    double again_ = 0;
};

/// Decoding token by token, one pass a token; what is not an expert stays on the device. A layer is its attention and router, then
/// the experts that were chosen.
inline Workload mixture_decode(std::string name, const Mixture& model, std::uint32_t tokens, std::uint32_t seed) {
    Workload work;
    work.name = std::move(name);
    work.is_known = false;
    const MixtureStorages storages = add_mixture(work, model, true);
    Router router{model.layers, model.experts, model.used, model.reuse, model.skew, seed};
    for (std::uint32_t token = 0; token < tokens; ++token) {
        for (std::uint32_t layer = 0; layer < model.layers; ++layer) {
            const auto add = [&](std::vector<StorageId> read, bool is_routed) {
                double flops = 0;
                for (const StorageId id : read) { flops += 2 * elements(work, id, model); }
                work.steps.push_back({std::move(read), flops, is_routed});
            };
            add(storages.dense[layer], false);
            if (layer < model.dense_layers) { continue; }
            std::vector<StorageId> experts;
            for (const std::uint32_t each : router.choose(layer)) { experts.push_back(storages.experts[layer][each]); }
            add(std::move(experts), true);
        }
        work.steps.push_back({{storages.head}, 2 * elements(work, storages.head, model)});
        end_pass(work);
    }
    return work;
}

/// A diffusion transformer with the shapes of FLUX.1: 19 double and 38 single blocks. Bound by arithmetic.
inline Workload flux_like(std::string name, double image_tokens, double text_tokens) {
    Workload work;
    work.name = std::move(name);
    constexpr std::uint64_t hidden = 3072;
    constexpr std::uint64_t wide = 4 * hidden;
    std::uint32_t layer = 0;
    for (std::uint32_t i = 0; i < 19; ++i, ++layer) {
        const std::string block = "double." + std::to_string(i) + ".";
        add_step(work, layer, block, {{"img_mod", 6 * hidden, hidden}, {"txt_mod", 6 * hidden, hidden}}, 2, 1);
        add_step(work, layer, block, {{"img_qkv", 3 * hidden, hidden}}, 2, image_tokens);
        add_step(work, layer, block, {{"txt_qkv", 3 * hidden, hidden}}, 2, text_tokens);
        add_step(work, layer, block,
                 {{"img_proj", hidden, hidden}, {"img_up", wide, hidden}, {"img_down", hidden, wide}}, 2, image_tokens);
        add_step(work, layer, block,
                 {{"txt_proj", hidden, hidden}, {"txt_up", wide, hidden}, {"txt_down", hidden, wide}}, 2, text_tokens);
    }
    for (std::uint32_t i = 0; i < 38; ++i, ++layer) {
        const std::string block = "single." + std::to_string(i) + ".";
        add_step(work, layer, block, {{"mod", 3 * hidden, hidden}}, 2, 1);
        add_step(work, layer, block, {{"linear1", 3 * hidden + wide, hidden}}, 2, image_tokens + text_tokens);
        add_step(work, layer, block, {{"linear2", hidden, hidden + wide}}, 2, image_tokens + text_tokens);
    }
    end_pass(work);
    return work;
}

/// A U-Net with the shapes of SDXL's: residual blocks at 320, 640 and 1280 channels, transformers of depth 2 and 10. Steps of very
/// uneven bytes and times.
inline Workload unet_like(std::string name, double pixels, double batch) {
    Workload work;
    work.name = std::move(name);
    std::uint32_t layer = 0;
    const auto residual = [&](std::uint64_t in, std::uint64_t out, double area) {
        const std::string block = "block." + std::to_string(layer) + ".";
        add_step(work, layer, block, {{"time", out, 1280}, {"conv1", out, 9 * in}}, 2, area * batch);
        add_step(work, layer, block, {{"conv2", out, 9 * out}, {"skip", in == out ? 1 : out, in}}, 2, area * batch);
        ++layer;
    };
    const auto transformer = [&](std::uint64_t channels, std::uint32_t depth, double area) {
        for (std::uint32_t i = 0; i < depth; ++i, ++layer) {
            const std::string block = "transformer." + std::to_string(layer) + ".";
            add_step(work, layer, block, {{"self_qkv", 3 * channels, channels}, {"self_out", channels, channels}}, 2,
                     area * batch);
            add_step(work, layer, block, {{"cross_q", channels, channels}, {"cross_out", channels, channels}}, 2,
                     area * batch);
            add_step(work, layer, block, {{"cross_kv", 2 * channels, 2048}}, 2, 77 * batch);
            add_step(work, layer, block, {{"up", 8 * channels, channels}, {"down", channels, 4 * channels}}, 2,
                     area * batch);
        }
    };
    residual(320, 320, pixels);
    residual(320, 320, pixels);
    residual(320, 640, pixels / 4);
    transformer(640, 2, pixels / 4);
    residual(640, 640, pixels / 4);
    transformer(640, 2, pixels / 4);
    residual(640, 1280, pixels / 16);
    transformer(1280, 10, pixels / 16);
    residual(1280, 1280, pixels / 16);
    transformer(1280, 10, pixels / 16);
    residual(1280, 1280, pixels / 16);
    transformer(1280, 10, pixels / 16);
    residual(1280, 1280, pixels / 16);
    for (const std::uint64_t in : {2560U, 2560U, 1920U}) {
        residual(in, 1280, pixels / 16);
        transformer(1280, 10, pixels / 16);
    }
    for (const std::uint64_t in : {1920U, 1280U, 960U}) {
        residual(in, 640, pixels / 4);
        transformer(640, 2, pixels / 4);
    }
    for (const std::uint64_t in : {960U, 640U, 640U}) { residual(in, 320, pixels); }
    end_pass(work);
    return work;
}

/// Speculative decoding: four passes of a small model, then one of a large one over five tokens.
inline Workload draft_and_target(std::string name) {
    Workload work;
    work.name = std::move(name);
    add_decoder(work, llama32_1b, "draft.", 1);
    const std::vector<Workload::Step> draft = work.steps;
    for (int i = 0; i < 3; ++i) { work.steps.insert(work.steps.end(), draft.begin(), draft.end()); }
    add_decoder(work, llama3_8b, "target.", 5, llama32_1b.layers + 1);
    end_pass(work);
    return work;
}

/// Three models that take turns, each a short prompt.
inline Workload models_in_turn(std::string name) {
    Workload work;
    work.name = std::move(name);
    add_decoder(work, llama32_1b, "a.", 64, 0);
    add_decoder(work, llama32_3b, "b.", 64, llama32_1b.layers + 1);
    add_decoder(work, llama3_8b, "c.", 64, llama32_1b.layers + llama32_3b.layers + 2);
    end_pass(work);
    return work;
}

}  // namespace generate

/// A workload by name, made when it is asked for.
struct Generator {
    std::string name;
    bool is_default = false;  ///< part of the default comparison
    std::function<Workload(const std::string&)> make;
};

inline const std::vector<Generator>& generators() {
    using namespace generate;
    static const std::vector<Generator> all{
        {"llama3-8b-decode", true, [](const std::string& name) { return decoder(name, llama3_8b, 1); }},
        {"llama3-8b-prefill", true, [](const std::string& name) { return decoder(name, llama3_8b, 2048); }},
        {"llama3-70b-decode", false, [](const std::string& name) { return decoder(name, llama3_70b, 1); }},
        {"llama3-70b-prefill", false, [](const std::string& name) { return decoder(name, llama3_70b, 2048); }},
        {"mixtral-decode", true, [](const std::string& name) { return mixture_decode(name, mixtral_8x7b(), 60, 1); }},
        {"mixtral-prefill", false, [](const std::string& name) { return mixture_prefill(name, mixtral_8x7b(), 2048); }},
        {"qwen3-moe-decode", true, [](const std::string& name) { return mixture_decode(name, qwen3_30b(), 60, 2); }},
        {"qwen3-moe-prefill", false, [](const std::string& name) { return mixture_prefill(name, qwen3_30b(), 2048); }},
        {"deepseek-v3-decode", false,
         [](const std::string& name) { return mixture_decode(name, deepseek_v3(), 40, 3); }},
        {"deepseek-v3-prefill", false,
         [](const std::string& name) { return mixture_prefill(name, deepseek_v3(), 4096); }},
        {"flux-like", true, [](const std::string& name) { return flux_like(name, 4096, 512); }},
        {"unet-like", true, [](const std::string& name) { return unet_like(name, 128 * 128, 2); }},
        {"draft-and-target", true, [](const std::string& name) { return draft_and_target(name); }},
        {"models-in-turn", true, [](const std::string& name) { return models_in_turn(name); }},
    };
    return all;
}

}  // namespace lab
