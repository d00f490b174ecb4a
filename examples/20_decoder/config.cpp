// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <numbers>
#include <string_view>

#include <nlohmann/json.hpp>

#include "examples/support/advice.hpp"
#include "examples/support/json.hpp"
#include "operations.hpp"
#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace decoder {
namespace {

using nlohmann::json;
using residency::ErrorKind;

/// The fields of config.json, each refused with its name, what it is and what this engine takes.
class Reader {
public:
    Reader(std::string path, const json& object) : path_{std::move(path)}, object_{object} {}

    [[noreturn]] void refuse(const std::string& what) const {
        residency::throw_error({ErrorKind::malformed,
                                path_ + ": " + what + ": give the config.json that was published with the checkpoint"});
    }
    [[noreturn]] void refuse_value(const std::string& key, const json& value, const std::string& known) const {
        residency::throw_error(
            {ErrorKind::unsupported, path_ + ": \"" + key + "\" is " + examples::shown_json(value) +
                                         ", and this engine knows " + known +
                                         " only: give a Llama-, Qwen2- or Qwen3-style checkpoint that has it so"});
    }
    /// Null where it is absent or null.
    [[nodiscard]] const json* find(const char* key) const {
        const auto found = object_.find(key);
        return found == object_.end() || found->is_null() ? nullptr : &*found;
    }
    [[nodiscard]] std::uint32_t count(const char* key, std::optional<std::uint32_t> otherwise = std::nullopt) const {
        const json* value = find(key);
        if (value == nullptr && otherwise) { return *otherwise; }
        if (value == nullptr || !value->is_number_unsigned() || *value == 0U || *value > 10'000'000U) {
            refuse("\"" + std::string{key} + "\" is not a number from 1 to 10000000");
        }
        return value->get<std::uint32_t>();
    }
    [[nodiscard]] double real(const char* key, std::optional<double> otherwise = std::nullopt) const {
        const json* value = find(key);
        if (value == nullptr && otherwise) { return *otherwise; }
        if (value == nullptr || !value->is_number() || !(value->get<double>() > 0) ||
            !std::isfinite(value->get<double>())) {
            refuse("\"" + std::string{key} + "\" is not a positive number");
        }
        return value->get<double>();
    }
    [[nodiscard]] bool flag(const char* key, bool otherwise) const {
        const json* value = find(key);
        if (value == nullptr) { return otherwise; }
        if (!value->is_boolean()) { refuse("\"" + std::string{key} + "\" is neither true nor false"); }
        return value->get<bool>();
    }
    /// Absent, or this.
    void expect(const char* key, const json& known) const {
        const json* value = find(key);
        if (value != nullptr && *value != known) { refuse_value(key, *value, known.dump()); }
    }
    /// Frequencies and their scaling: in "rope_parameters", or in "rope_scaling" beside "rope_theta", as older files have it.
    void read_rotary(Config& config) const {
        config.theta = real("rope_theta", 10000.0);
        for (const char* key : {"rope_scaling", "rope_parameters"}) {
            const json* value = find(key);
            if (value == nullptr) { continue; }
            if (!value->is_object()) { refuse("\"" + std::string{key} + "\" is not an object"); }
            const Reader inside{path_ + ": " + key, *value};
            config.theta = inside.real("rope_theta", config.theta);
            inside.expect("partial_rotary_factor", 1.0);
            const json* type = inside.find("rope_type");
            if (type == nullptr) { type = inside.find("type"); }
            if (type == nullptr) { inside.refuse_settings_without_type(); }
            if (type == nullptr || *type == "default") { continue; }
            if (*type != "llama3") { inside.refuse_value("rope_type", *type, "\"default\" and \"llama3\""); }
            const Llama3Scaling scaling{
                .factor = inside.real("factor"),
                .low_frequency = inside.real("low_freq_factor"),
                .high_frequency = inside.real("high_freq_factor"),
                .original_places = inside.real("original_max_position_embeddings"),
            };
            if (scaling.high_frequency <= scaling.low_frequency) {
                inside.refuse("\"high_freq_factor\" is not above \"low_freq_factor\"");
            }
            config.scaling = scaling;
        }
        expect("partial_rotary_factor", 1.0);
    }

private:
    /// Without "rope_type", only what is no scaling is unambiguous.
    void refuse_settings_without_type() const {
        for (const auto& [key, value] : object_.items()) {
            if (key != "rope_theta" && key != "partial_rotary_factor" && !value.is_null()) {
                refuse("\"" + key + "\" is there without a \"rope_type\"");
            }
        }
    }

    std::string path_;
    const json& object_;
};

}  // namespace

Config Config::read(const std::string& path) {
    const auto bytes = examples::unwrap_with("give a folder as Hugging Face publishes it, or --generate-model",
                                             residency::detail::read_file(path, 1U << 20U));
    const auto text = std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    json object;
    const Reader reader{path, object};
    try {
        object = examples::parse_json<json>(text);
    } catch (const examples::BadJson& wrong) { reader.refuse(wrong.what()); }
    if (!object.is_object()) { reader.refuse("it is not a JSON object"); }

    Config config;
    const json* family = reader.find("model_type");
    if (family == nullptr || !family->is_string()) { reader.refuse("\"model_type\" is not a text"); }
    config.family = family->get<std::string>();
    if (config.family != "llama" && config.family != "qwen2" && config.family != "qwen3") {
        reader.refuse_value("model_type", *family, "\"llama\", \"qwen2\" and \"qwen3\"");
    }
    config.layers = reader.count("num_hidden_layers");
    config.hidden = reader.count("hidden_size");
    config.inner = reader.count("intermediate_size");
    config.words = reader.count("vocab_size");
    config.places = reader.count("max_position_embeddings");
    config.heads = reader.count("num_attention_heads");
    config.cache_heads = reader.count("num_key_value_heads", config.heads);
    config.width =
        reader.count("head_dim", config.family == "qwen3" ? 128U : (std::max)(config.hidden / config.heads, 1U));
    config.epsilon = reader.real("rms_norm_eps", 1e-6);
    config.tied = reader.flag("tie_word_embeddings", false);
    const bool biases = reader.flag("attention_bias", false);
    config.input_biases = biases || config.family == "qwen2";
    config.output_bias = biases && config.family != "qwen2";
    config.head_norms = config.family == "qwen3";
    reader.read_rotary(config);

    reader.expect("hidden_act", "silu");
    reader.expect("mlp_bias", false);
    reader.expect("use_sliding_window", false);
    if (const json* value = reader.find("quantization_config")) {
        reader.refuse_value("quantization_config", *value, "bf16 weights");
    }
    if (const json* types = reader.find("layer_types")) {
        for (const json& type : *types) {
            if (type != "full_attention") { reader.refuse_value("layer_types", *types, "\"full_attention\""); }
        }
    }
    if (const json* end = reader.find("eos_token_id")) {
        for (const json& each : end->is_array() ? *end : json::array({*end})) {
            if (!each.is_number_unsigned()) { reader.refuse("\"eos_token_id\" is no token, nor a list of tokens"); }
            config.ends.push_back(each.get<std::uint32_t>());
        }
    }
    if (config.heads % config.cache_heads != 0) {
        reader.refuse("\"num_attention_heads\" is not a multiple of \"num_key_value_heads\"");
    }
    const auto expect_multiple = [&](const char* key, std::uint32_t value, std::uint32_t of, std::uint32_t most) {
        if (value % of != 0 || value > most) {
            reader.refuse_value(key, value, "multiples of " + std::to_string(of) + " up to " + std::to_string(most));
        }
    };
    if (std::ranges::find(head_widths, config.width) == std::end(head_widths)) {
        std::string widths;
        for (const std::uint32_t width : head_widths) {
            widths += (widths.empty() ? "" : ", ") + std::to_string(width);
        }
        reader.refuse_value("head_dim", config.width, widths);
    }
    expect_multiple("hidden_size", config.hidden, 8, 1U << 20U);
    expect_multiple("intermediate_size", config.inner, 8, 1U << 20U);
    return config;
}

std::string Config::text() const {
    nlohmann::ordered_json object{{"architectures",
                                   {family == "llama"   ? "LlamaForCausalLM"
                                    : family == "qwen2" ? "Qwen2ForCausalLM"
                                                        : "Qwen3ForCausalLM"}},
                                  {"model_type", family},
                                  {"torch_dtype", "bfloat16"},
                                  {"hidden_act", "silu"},
                                  {"vocab_size", words},
                                  {"hidden_size", hidden},
                                  {"intermediate_size", inner},
                                  {"num_hidden_layers", layers},
                                  {"num_attention_heads", heads},
                                  {"num_key_value_heads", cache_heads},
                                  {"head_dim", width},
                                  {"max_position_embeddings", places},
                                  {"rms_norm_eps", epsilon},
                                  {"rope_theta", theta},
                                  {"rope_scaling", nullptr},
                                  {"tie_word_embeddings", tied},
                                  {"attention_bias", output_bias},
                                  {"bos_token_id", nullptr},
                                  {"eos_token_id", nullptr}};
    if (scaling) {
        object["rope_scaling"] = {{"rope_type", "llama3"},
                                  {"factor", scaling->factor},
                                  {"low_freq_factor", scaling->low_frequency},
                                  {"high_freq_factor", scaling->high_frequency},
                                  {"original_max_position_embeddings", std::uint64_t(scaling->original_places)}};
    }
    return object.dump(2) + "\n";
}

std::vector<float> Config::frequencies() const {
    std::vector<float> result(width / 2);
    for (std::size_t i = 0; i < result.size(); ++i) {
        float frequency = 1 / std::pow(float(theta), float(2 * i) / float(width));
        if (scaling) {
            const double wavelength = 2 * std::numbers::pi / double(frequency);
            const double turns = scaling->original_places / wavelength;  // within the length of the training
            if (turns < scaling->low_frequency) {
                frequency = float(double(frequency) / scaling->factor);
            } else if (turns <= scaling->high_frequency) {
                const double smooth =
                    (turns - scaling->low_frequency) / (scaling->high_frequency - scaling->low_frequency);
                frequency = float((1 - smooth) * double(frequency) / scaling->factor + smooth * double(frequency));
            }
        }
        result[i] = frequency;
    }
    return result;
}

}  // namespace decoder
