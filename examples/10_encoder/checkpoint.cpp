// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.hpp"

#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string_view>
#include <unordered_map>

#include "residency/format/open.hpp"
#include "residency/format/safetensors.hpp"
#include "residency/model/file.hpp"
#include "tokenizer.hpp"

namespace encoder {
namespace {

using residency::Error;
using residency::ErrorKind;
using residency::Placement;
using residency::Shape;
namespace format = residency::format;

struct Tensor {
    std::string name;
    Shape shape;
    Placement placement = Placement::streamed;
};

/// The tensors of a layer below its prefix.
std::vector<Tensor> layer_tensors(const Config& c, std::uint32_t layer) {
    const std::string prefix = "encoder.layer." + std::to_string(layer) + ".";
    const std::uint64_t hidden = c.hidden, inner = c.inner;
    std::vector<Tensor> tensors;
    const auto linear = [&](const char* name, std::uint64_t to, std::uint64_t from) {
        tensors.push_back({prefix + name + ".weight", {to, from}});
        tensors.push_back({prefix + name + ".bias", {to}});
    };
    const auto norm = [&](const char* name) {
        tensors.push_back({prefix + name + ".weight", {hidden}});
        tensors.push_back({prefix + name + ".bias", {hidden}});
    };
    linear("attention.self.query", hidden, hidden);
    linear("attention.self.key", hidden, hidden);
    linear("attention.self.value", hidden, hidden);
    linear("attention.output.dense", hidden, hidden);
    norm("attention.output.LayerNorm");
    linear("intermediate.dense", inner, hidden);
    linear("output.dense", hidden, inner);
    norm("output.LayerNorm");
    return tensors;
}

/// Everything that the encoder reads, in the order of the pass.
std::vector<Tensor> tensors_of(const Config& c) {
    std::vector<Tensor> tensors{
        {"embeddings.word_embeddings.weight", {c.words, c.hidden}, Placement::host},
        {"embeddings.position_embeddings.weight", {c.places, c.hidden}, Placement::host},
        {"embeddings.token_type_embeddings.weight", {c.segments, c.hidden}, Placement::host},
        {"embeddings.LayerNorm.weight", {c.hidden}},
        {"embeddings.LayerNorm.bias", {c.hidden}},
    };
    for (std::uint32_t layer = 0; layer < c.layers; ++layer) {
        for (Tensor& tensor : layer_tensors(c, layer)) { tensors.push_back(std::move(tensor)); }
    }
    return tensors;
}

/// What published checkpoints have and sentence embeddings do not need.
bool is_unused(std::string_view name) { return name == "embeddings.position_ids" || name.starts_with("pooler."); }

}  // namespace

Checkpoint Checkpoint::read(const std::string& folder) {
    Checkpoint result;
    result.config = Config::read(folder + "/config.json");
    const std::string saved = folder + "/pytorch_model.bin";
    std::string path = folder + "/model.safetensors";
    if (!std::filesystem::exists(path) && std::filesystem::exists(saved)) { path = saved; }
    const auto model = residency::unwrap(format::try_read_model(path));

    std::unordered_map<std::string_view, const format::ModelFile::WeightEntry*> found;
    for (const auto& weight : model.weights) { found.emplace(weight.name, &weight); }
    const auto expected = tensors_of(result.config);
    std::vector<std::string_view> on_host;
    for (const Tensor& tensor : expected) {
        const auto at = found.find(tensor.name);
        if (at == found.end()) { refuse(ErrorKind::mismatch, path, "the tensor \"" + tensor.name + "\" is missing"); }
        const auto& weight = *at->second;
        if (weight.shape != tensor.shape || weight.type != residency::dtype::f32) {
            refuse(ErrorKind::mismatch, path,
                   "the tensor \"" + tensor.name + "\" is " + weight.dtype + format::detail::shape_text(weight.shape) +
                       ", and config.json asks for F32" + format::detail::shape_text(tensor.shape));
        }
        if (!weight.strides.empty()) {
            refuse(ErrorKind::unsupported, path,
                   "the tensor \"" + tensor.name + "\" is not stored row by row: save it after contiguous()");
        }
        if (tensor.placement == Placement::host) { on_host.push_back(tensor.name); }
        found.erase(at);
    }
    for (const auto& weight : model.weights) {
        if (!found.contains(weight.name)) { continue; }
        if (!is_unused(weight.name)) {
            refuse(ErrorKind::mismatch, path,
                   "the tensor \"" + weight.name + "\" is not one of a BERT encoder with this config.json");
        }
        on_host.push_back(weight.name);
    }

    result.catalog = model.catalog().with_placement(on_host, Placement::host);
    std::size_t next = 0;
    const auto id = [&] { return residency::unwrap(result.catalog.try_find(expected[next++].name)); };
    const auto pair = [&] {
        const auto weight = id();
        return Pair{weight, id()};
    };
    result.words = id();
    result.places = id();
    result.segments = id();
    result.norm = pair();
    for (std::uint32_t i = 0; i < result.config.layers; ++i) {
        Layer layer;
        for (Pair* each : {&layer.query, &layer.key, &layer.value, &layer.mix, &layer.mix_norm, &layer.up, &layer.down,
                           &layer.down_norm}) {
            *each = pair();
        }
        result.layers.push_back(layer);
    }
    return result;
}

void generate(const std::string& folder, const std::vector<std::string>& sentences) {
    const Config config;
    std::filesystem::create_directories(folder);
    const auto write = [](const std::string& path, const std::string& text) {
        residency::unwrap(residency::detail::write_file(path, std::as_bytes(std::span{text})));
    };

    // The special tokens stand where the published vocabulary has them; then letters, their continuations, whole words.
    std::map<std::uint32_t, std::string> tokens{
        {0, "[PAD]"}, {100, "[UNK]"}, {101, "[CLS]"}, {102, "[SEP]"}, {103, "[MASK]"}};
    std::unordered_map<std::string, bool> known;
    std::uint32_t next = 999;
    const auto add = [&](const std::string& token) {
        if (next < config.words && known.emplace(token, true).second) { tokens[next++] = token; }
    };
    for (char c = '!'; c <= '~'; ++c) {
        if (c < 'A' || c > 'Z') { add(std::string{c}); }
    }
    for (const char c : std::string_view{"abcdefghijklmnopqrstuvwxyz0123456789"}) { add(std::string{"##"} + c); }
    for (const std::string& sentence : sentences) {
        for (const std::string& word : Tokenizer::words(sentence)) { add(word); }
    }
    std::string vocabulary;
    for (std::uint32_t i = 0; i < config.words; ++i) {
        const auto at = tokens.find(i);
        vocabulary += at != tokens.end() ? at->second : "[unused" + std::to_string(i) + "]";
        vocabulary += '\n';
    }
    write(folder + "/vocab.txt", vocabulary);

    write(folder + "/config.json", config.text());

    std::vector<format::SafetensorsTensor> tensors;
    for (const Tensor& tensor : tensors_of(config)) {
        tensors.push_back({tensor.name, residency::dtype::f32, tensor.shape});
    }
    const std::string path = folder + "/model.safetensors";
    auto writer = format::SafetensorsWriter::create(path + ".part", tensors);
    std::mt19937 random{20260801};
    std::vector<float> values;
    for (const auto& tensor : tensors) {
        std::uint64_t count = 1;
        for (const std::uint64_t extent : tensor.shape) { count *= extent; }
        const bool is_scale = tensor.name.ends_with("LayerNorm.weight");
        values.resize(count);
        for (float& value : values) {
            const float uniform = float(random() >> 8U) / 16777216.0F - 0.5F;
            value = uniform * (tensor.shape.size() == 2 ? 0.2F : 0.1F) + (is_scale ? 1.0F : 0.0F);
        }
        writer.append(std::as_bytes(std::span{values}));
    }
    writer.finish();
    std::filesystem::rename(path + ".part", path);
}

}  // namespace encoder
