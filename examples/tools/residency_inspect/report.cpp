// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "residency/format/text.hpp"

using residency::format::ModelFile;

namespace {

/// How many bytes a character at the front of UTF-8 has that a terminal might obey: control characters, ends of lines, changes of
/// the direction of writing. 0: none.
std::size_t obeyed_bytes(std::string_view text) {
    const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    if (at(0) < 0x20 || at(0) == 0x7f) { return 1; }
    if (at(0) == 0xc2 && at(1) < 0xa0) { return 2; }
    if (at(0) != 0xe2) { return 0; }
    const bool is_mark = at(1) == 0x80 && (at(2) == 0x8e || at(2) == 0x8f || (at(2) >= 0xa8 && at(2) <= 0xae));
    return is_mark || (at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9) ? 3 : 0;
}

std::string shape_of(const ModelFile::WeightEntry& weight) {
    std::string text = "[";
    for (std::size_t axis = 0; axis < weight.shape.size(); ++axis) {
        text += (axis ? ", " : "") + std::to_string(weight.shape[axis]);
    }
    return text + "]";
}

}  // namespace

std::string escaped(std::string_view text) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    const auto hex = [&](unsigned char byte) {
        out += "\\x";
        out += digits[byte >> 4];
        out += digits[byte & 15];
    };
    const bool utf8 = residency::format::detail::is_utf8(text);
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t obeyed = utf8 ? obeyed_bytes(text.substr(i)) : 1;
        const auto byte = static_cast<unsigned char>(text[i]);
        if (obeyed == 0 || (!utf8 && byte >= 0x20 && byte < 0x7f)) {
            out += text[i++];
            continue;
        }
        for (const std::size_t end = i + obeyed; i < end; ++i) { hex(static_cast<unsigned char>(text[i])); }
    }
    return out;
}

std::string human(std::uint64_t bytes) {
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(units); ++unit) { value /= 1024; }
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return text;
}

void print_json(const ModelFile& model) {
    using Json = nlohmann::ordered_json;
    Json out;
    out["format"] = model.format;
    out["total_bytes"] = model.total_bytes();
    out["floor_bytes"] = model.floor_bytes();
    auto& storages = out["storages"] = Json::array();
    for (const auto& storage : model.storages) {
        storages.push_back(
            {{"bytes", storage.bytes}, {"offset", storage.offset_bytes}, {"file", model.files[storage.file].path}});
    }
    auto& weights = out["weights"] = Json::array();
    for (const auto& weight : model.weights) {
        Json entry{{"name", weight.name}, {"dtype", weight.dtype}, {"shape", weight.shape}};
        if (!weight.strides.empty()) { entry["strides"] = weight.strides; }
        entry["storage"] = weight.storage;
        entry["offset_bytes"] = weight.offset_bytes;
        entry["bytes"] = weight.bytes;
        weights.push_back(std::move(entry));
    }
    // A path need not be UTF-8; everything else is.
    const std::string text = out.dump(2, ' ', false, Json::error_handler_t::replace);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
}

void print_table(const ModelFile& model) {
    std::printf("format    %s\n", model.format.c_str());
    for (const auto& file : model.files) {
        std::printf("file      %s, %s\n", escaped(file.path).c_str(), human(file.bytes).c_str());
    }
    for (const auto& [key, value] : model.metadata) {
        constexpr std::size_t longest = 120;
        const std::string text = escaped(value);
        std::printf("metadata  %s = %s\n", escaped(key).c_str(),
                    text.size() > longest ? (text.substr(0, longest) + "...").c_str() : text.c_str());
    }
    std::vector<std::vector<std::size_t>> users(model.storages.size());
    for (std::size_t i = 0; i < model.weights.size(); ++i) { users[model.weights[i].storage].push_back(i); }
    std::size_t widest = 4;
    for (const auto& weight : model.weights) { widest = std::max(widest, escaped(weight.name).size()); }
    std::printf("\n%-*s  %-11s %-24s %16s %9s %12s\n", static_cast<int>(widest), "name", "dtype", "shape", "bytes",
                "storage", "at");
    for (std::size_t i = 0; i < model.weights.size(); ++i) {
        const auto& weight = model.weights[i];
        const auto& sharing = users[weight.storage];
        std::printf(
            "%-*s  %-11s %-24s %16llu %9u %12llu%s\n", static_cast<int>(widest), escaped(weight.name).c_str(),
            weight.dtype.c_str(), shape_of(weight).c_str(), static_cast<unsigned long long>(weight.bytes),
            weight.storage, static_cast<unsigned long long>(weight.offset_bytes),
            sharing.front() == i ? "" : ("  shares with " + escaped(model.weights[sharing.front()].name)).c_str());
    }
    std::size_t shared = 0;
    for (const auto& sharing : users) { shared += sharing.size() > 1 ? 1 : 0; }
    std::printf("\nweights   %zu on %zu storages, %zu of them shared\n", model.weights.size(), model.storages.size(),
                shared);
    std::printf("total     %llu bytes (%s)\n", static_cast<unsigned long long>(model.total_bytes()),
                human(model.total_bytes()).c_str());
    std::printf("floor     %llu bytes (%s): the largest storage\n",
                static_cast<unsigned long long>(model.floor_bytes()), human(model.floor_bytes()).c_str());
}
