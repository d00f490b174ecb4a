// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

#include "examples/support/json.hpp"
#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace encoder {

using residency::ErrorKind;

void refuse(ErrorKind kind, const std::string& where, const std::string& what) {
    residency::throw_error({kind, where + ": " + what});
}

Config Config::read(const std::string& path) {
    const auto bytes = residency::unwrap(residency::detail::read_file(path, 1U << 20U));
    const auto text = std::string_view{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    nlohmann::json json;
    try {
        json = examples::parse_json<nlohmann::json>(text);
    } catch (const examples::BadJson& wrong) { refuse(ErrorKind::malformed, path, wrong.what()); }
    if (!json.is_object()) { refuse(ErrorKind::malformed, path, "it is not a JSON object"); }
    const auto number = [&](const char* key) {
        const auto found = json.find(key);
        if (found == json.end() || !found->is_number_unsigned() || *found == 0U || *found > 1'000'000U) {
            refuse(ErrorKind::malformed, path, "\"" + std::string{key} + "\" is not a number from 1 to 1000000");
        }
        return found->get<std::uint32_t>();
    };
    const auto expect = [&](const char* key, std::string_view known) {
        const auto found = json.find(key);
        if (found != json.end() && *found != known) {
            refuse(ErrorKind::unsupported, path,
                   "\"" + std::string{key} + "\" is " + examples::shown_json(*found) + ", and this encoder knows \"" +
                       std::string{known} + "\" only");
        }
    };
    expect("model_type", "bert");
    expect("hidden_act", "gelu");
    expect("position_embedding_type", "absolute");
    Config config;
    config.layers = number("num_hidden_layers");
    config.hidden = number("hidden_size");
    config.heads = number("num_attention_heads");
    config.inner = number("intermediate_size");
    config.words = number("vocab_size");
    config.places = number("max_position_embeddings");
    config.segments = number("type_vocab_size");
    if (const auto found = json.find("layer_norm_eps"); found != json.end()) {
        const double epsilon = found->is_number() ? found->get<double>() : 0;
        if (!(epsilon > 0) || epsilon > double{std::numeric_limits<float>::max()}) {
            refuse(ErrorKind::malformed, path, "\"layer_norm_eps\" is not a positive number");
        }
        config.epsilon = float(epsilon);
    }
    if (config.hidden % config.heads != 0 || config.hidden / config.heads % 8 != 0 || config.inner % 8 != 0) {
        refuse(ErrorKind::unsupported, path, "heads and rows have to be multiples of 8 elements");
    }
    return config;
}

std::string Config::text() const {
    char shortest[32] = {};  // of its digits: those of the double that it becomes would be others
    std::to_chars(shortest, shortest + sizeof shortest - 1, epsilon);
    const nlohmann::ordered_json json{
        {"model_type", "bert"},         {"hidden_act", "gelu"},
        {"hidden_size", hidden},        {"num_hidden_layers", layers},
        {"num_attention_heads", heads}, {"intermediate_size", inner},
        {"vocab_size", words},          {"max_position_embeddings", places},
        {"type_vocab_size", segments},  {"layer_norm_eps", std::strtod(shortest, nullptr)}};
    return json.dump(2) + "\n";
}

}  // namespace encoder
