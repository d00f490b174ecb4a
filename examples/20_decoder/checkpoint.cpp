// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.hpp"

#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "examples/support/advice.hpp"
#include "residency/error.hpp"
#include "residency/format/open.hpp"

namespace decoder {
namespace {

using residency::ErrorKind;
using residency::Placement;
using residency::WeightId;
namespace format = residency::format;

constexpr const char* table_name = "model.embed_tokens.weight";

/// Goes through the names of a model in the order of a pass: `visit(name, shape)`, where the configuration asks for it.
template <class Visit>
void visit_tensors(const Config& c, Visit&& visit) {
    const std::uint64_t hidden = c.hidden, inner = c.inner, width = c.width;
    const std::uint64_t queries = width * c.heads, keys = width * c.cache_heads;
    visit(table_name, residency::Shape{c.words, hidden});
    for (std::uint32_t i = 0; i < c.layers; ++i) {
        const std::string layer = "model.layers." + std::to_string(i) + ".";
        const auto matrix = [&](const char* name, std::uint64_t to, std::uint64_t from, bool bias) {
            visit(layer + name + ".weight", residency::Shape{to, from});
            if (bias) { visit(layer + name + ".bias", residency::Shape{to}); }
        };
        const auto norm = [&](const char* name, std::uint64_t extent) {
            visit(layer + name + ".weight", residency::Shape{extent});
        };
        norm("input_layernorm", hidden);
        matrix("self_attn.q_proj", queries, hidden, c.input_biases);
        matrix("self_attn.k_proj", keys, hidden, c.input_biases);
        matrix("self_attn.v_proj", keys, hidden, c.input_biases);
        if (c.head_norms) {
            norm("self_attn.q_norm", width);
            norm("self_attn.k_norm", width);
        }
        matrix("self_attn.o_proj", hidden, queries, c.output_bias);
        norm("post_attention_layernorm", hidden);
        matrix("mlp.gate_proj", inner, hidden, false);
        matrix("mlp.up_proj", inner, hidden, false);
        matrix("mlp.down_proj", hidden, inner, false);
    }
    visit("model.norm.weight", residency::Shape{hidden});
    if (!c.tied) { visit("lm_head.weight", residency::Shape{c.words, hidden}); }
}

/// What some published checkpoints have and nobody reads.
bool is_unused(std::string_view name, const Config& config) {
    return name.ends_with(".rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight");
}

/// A catalog of some of a file's tensors: those that `take(name)`.
template <class Take>
residency::Catalog part_of(const format::ModelFile& all, const Take& take) {
    format::ModelFile part;
    part.files = all.files;
    for (const auto& weight : all.weights) {
        if (!take(weight.name)) { continue; }
        part.weights.push_back(weight);
        part.weights.back().storage = static_cast<std::uint32_t>(part.storages.size());
        part.storages.push_back(all.storages[weight.storage]);
    }
    return part.catalog();
}

[[noreturn]] void refuse_file(const std::string& where, const std::string& what, const std::string& advice) {
    residency::throw_error({ErrorKind::mismatch, where + ": " + what + ": " + advice});
}

std::string path_in(const std::string& folder, bool packed) {
    const auto is_there = [&](const char* name) {
        std::error_code ignored;
        return std::filesystem::exists(folder + name, ignored);
    };
    constexpr const char* packed_name = "/model.packed";
    if (packed && is_there(packed_name)) { return folder + packed_name; }
    for (const char* name : {"/model.safetensors", "/model.safetensors.index.json", packed_name}) {
        if (is_there(name)) { return folder + name; }
    }
    residency::throw_error(
        {ErrorKind::io,
         folder + ": neither model.safetensors nor model.safetensors.index.json is there: "
                  "give a folder as Hugging Face publishes it, one with the model.packed of residency-pack, or "
                  "--generate-model"});
}

}  // namespace

std::vector<Tensor> tensors_of(const Config& config) {
    std::vector<Tensor> tensors;
    visit_tensors(config, [&](std::string name, residency::Shape shape) {
        tensors.push_back({std::move(name), std::move(shape)});
    });
    return tensors;
}

Checkpoint Checkpoint::read(const std::string& folder, bool packed) {
    Checkpoint result;
    result.config = Config::read(folder + "/config.json");
    const Config& config = result.config;
    const std::string path = path_in(folder, packed);
    const auto model = examples::unwrap_with("give all files of the checkpoint, whole", format::try_read_model(path));

    std::unordered_map<std::string_view, const format::ModelFile::WeightEntry*> found;
    for (const auto& weight : model.weights) { found.emplace(weight.name, &weight); }
    for (const Tensor& tensor : tensors_of(config)) {
        const auto at = found.find(tensor.name);
        if (at == found.end()) {
            refuse_file(path, "the tensor \"" + tensor.name + "\" is missing",
                        "give all files of the checkpoint, and the config.json that belongs to them");
        }
        const auto& weight = *at->second;
        if (weight.shape != tensor.shape) {
            refuse_file(path,
                        "the tensor \"" + tensor.name + "\" has the shape " + format::detail::shape_text(weight.shape) +
                            ", and config.json asks for " + format::detail::shape_text(tensor.shape),
                        "give the config.json that belongs to the checkpoint");
        }
        if (weight.type != residency::dtype::bf16) {
            refuse_file(path,
                        "the tensor \"" + tensor.name + "\" is " + weight.dtype + ", and this engine reads BF16 only",
                        "convert the checkpoint, with .to(torch.bfloat16).save_pretrained(…)");
        }
        found.erase(at);
    }
    for (const auto& weight : model.weights) {
        if (found.contains(weight.name) && !is_unused(weight.name, config)) {
            refuse_file(
                path,
                "the tensor \"" + weight.name + "\" is not one of a " + config.family +
                    " decoder with this config.json",
                "the engine would leave it out and give other results; give the config.json that belongs to the "
                "checkpoint");
        }
    }
    const auto is_table = [&](std::string_view name) { return !config.tied && name == table_name; };
    result.table = part_of(model, is_table);
    result.catalog = part_of(model, [&](const std::string& name) { return !found.contains(name) && !is_table(name); });

    const auto id = [&](const std::string& name) { return residency::unwrap(result.catalog.try_find(name)); };
    result.norm = id("model.norm.weight");
    result.head = id(config.tied ? table_name : "lm_head.weight");
    for (std::uint32_t i = 0; i < config.layers; ++i) {
        const std::string name = "model.layers." + std::to_string(i) + ".";
        const auto matrix = [&](const char* part, bool bias) {
            Matrix made{id(name + part + ".weight"), std::nullopt};
            if (bias) { made.bias = id(name + part + ".bias"); }
            return made;
        };
        Layer layer;
        layer.input_norm = id(name + "input_layernorm.weight");
        layer.query = matrix("self_attn.q_proj", config.input_biases);
        layer.key = matrix("self_attn.k_proj", config.input_biases);
        layer.value = matrix("self_attn.v_proj", config.input_biases);
        if (config.head_norms) {
            layer.query_norm = id(name + "self_attn.q_norm.weight");
            layer.key_norm = id(name + "self_attn.k_norm.weight");
        }
        layer.output = matrix("self_attn.o_proj", config.output_bias);
        layer.inner_norm = id(name + "post_attention_layernorm.weight");
        layer.gate = matrix("mlp.gate_proj", false);
        layer.up = matrix("mlp.up_proj", false);
        layer.down = matrix("mlp.down_proj", false);
        result.layers.push_back(layer);
    }
    return result;
}

}  // namespace decoder
