// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "residency/model/quoted.hpp"

using residency::format::ModelFile;

namespace {

using residency::detail::escaped;

/// A name in a table. --json has all of it: a table of many long ones is no table, and a name may be said for each weight.
std::string shown_name(std::string_view name) {
    constexpr std::size_t longest = 96;
    return residency::detail::shortened(name, longest);
}

std::string shape_of(const ModelFile::WeightEntry& weight) {
    std::string text = "[";
    for (std::size_t axis = 0; axis < weight.shape.size(); ++axis) {
        text += (axis ? ", " : "") + std::to_string(weight.shape[axis]);
    }
    return text + "]";
}

}  // namespace

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
        const auto& file = model.files[storage.file];
        Json where = file.path;
        if (!file.pieces.empty()) { where = Json::array(); }
        for (const auto& piece : file.pieces) { where.push_back(piece.path); }
        storages.push_back({{"bytes", storage.bytes}, {"offset", storage.offset_bytes}, {"file", std::move(where)}});
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
    for (const auto& entry : model.passed_over) {
        out["passed_over"].push_back({{"name", entry.name}, {"why", entry.why}});
    }
    for (const auto& note : model.notes) { out["notes"].push_back(note); }
    // A path need not be UTF-8; everything else is.
    const std::string text = out.dump(2, ' ', false, Json::error_handler_t::replace);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
}

void print_table(const ModelFile& model) {
    std::printf("format    %s\n", model.format.c_str());
    for (const auto& file : model.files) {
        std::printf("file      %s, %s\n", escaped(file.path).c_str(), human(file.bytes).c_str());
        for (const auto& piece : file.pieces) {
            std::printf("  piece   %s, %s\n", escaped(piece.path).c_str(), human(piece.bytes).c_str());
        }
    }
    for (const auto& [key, value] : model.metadata) {
        std::printf("metadata  %s = %s\n", shown_name(key).c_str(), residency::detail::shortened(value, 120).c_str());
    }
    std::vector<std::vector<std::size_t>> users(model.storages.size());
    for (std::size_t i = 0; i < model.weights.size(); ++i) { users[model.weights[i].storage].push_back(i); }
    constexpr std::size_t widest_column = 60;  // a longer name moves its own line only
    std::size_t widest = 4;
    for (const auto& weight : model.weights) { widest = std::max(widest, shown_name(weight.name).size()); }
    widest = std::min(widest, widest_column);
    std::printf("\n%-*s  %-11s %-24s %16s %9s %12s\n", static_cast<int>(widest), "name", "dtype", "shape", "bytes",
                "storage", "at");
    for (std::size_t i = 0; i < model.weights.size(); ++i) {
        const auto& weight = model.weights[i];
        const auto& sharing = users[weight.storage];
        std::printf(
            "%-*s  %-11s %-24s %16llu %9u %12llu%s\n", static_cast<int>(widest), shown_name(weight.name).c_str(),
            weight.dtype.c_str(), shape_of(weight).c_str(), static_cast<unsigned long long>(weight.bytes),
            weight.storage, static_cast<unsigned long long>(weight.offset_bytes),
            sharing.front() == i ? "" : ("  shares with " + shown_name(model.weights[sharing.front()].name)).c_str());
    }
    std::map<std::string, std::size_t> reasons;
    for (const auto& entry : model.passed_over) { ++reasons[entry.why]; }
    for (const auto& entry : model.passed_over) {  // in the order of the first of each
        const auto count = reasons.extract(entry.why);
        if (count.empty()) { continue; }
        std::printf("\nleft out  %zu, such as %s: %s", count.mapped(), shown_name(entry.name).c_str(),
                    entry.why.c_str());
    }
    if (!model.passed_over.empty()) { std::printf("\n"); }
    for (const auto& note : model.notes) { std::printf("note      %s\n", escaped(note).c_str()); }
    std::size_t shared = 0;
    for (const auto& sharing : users) { shared += sharing.size() > 1 ? 1U : 0U; }
    std::printf("\nweights   %zu on %zu storages, %zu of them shared\n", model.weights.size(), model.storages.size(),
                shared);
    std::printf("total     %llu bytes (%s)\n", static_cast<unsigned long long>(model.total_bytes()),
                human(model.total_bytes()).c_str());
    std::printf("floor     %llu bytes (%s): the largest storage\n",
                static_cast<unsigned long long>(model.floor_bytes()), human(model.floor_bytes()).c_str());
}
