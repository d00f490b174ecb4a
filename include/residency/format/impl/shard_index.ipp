// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/input.hpp"
#include "residency/format/json_position.hpp"
#include "residency/format/model_file.hpp"
#include "residency/format/shard_index.hpp"
#include "residency/format/text.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

/// Reads an index's events: {"metadata": anything, "weight_map": {tensor: file}}.
class ShardIndex : public JsonHandler {
public:
    struct Entry {
        std::string tensor;
        std::uint32_t file = 0;
        std::uint64_t place = 0;
    };

    using JsonHandler::JsonHandler;

    std::vector<std::string> files;  ///< in the order of their first mention
    std::vector<Entry> entries;
    bool has_map = false;

    bool null() { return scalar(); }
    bool boolean(bool) { return scalar(); }
    bool number_integer(number_integer_t) { return scalar(); }
    bool number_unsigned(number_unsigned_t) { return scalar(); }
    bool number_float(number_float_t, const string_t&) { return scalar(); }
    bool binary(binary_t&) { return scalar(); }
    bool string(string_t& value) {
        if (!in_map_ || depth_ != 2) { return scalar(); }
        if (value.empty() || value.front() == '/' || value.find('\0') != std::string::npos ||
            value.find('\\') != std::string::npos || ("/" + value + "/").find("/../") != std::string::npos) {
            return fail("tensor " + shown(entries.back().tensor) + ": a file name that leaves the index's folder",
                        shown(value));
        }
        const auto [known, fresh] = numbers_.try_emplace(value, static_cast<std::uint32_t>(files.size()));
        if (fresh) { files.push_back(value); }
        entries.back().file = known->second;
        return true;
    }
    bool key(string_t& name) {
        if (depth_ == 1) {
            in_map_ = name == "weight_map";
            if (in_map_ && std::exchange(has_map, true)) { return fail("\"weight_map\" is given twice"); }
        } else if (in_map_ && depth_ == 2) {
            entries.push_back({std::move(name), 0, place()});
        }
        return true;
    }
    bool start_object(std::size_t) { return start(false); }
    bool start_array(std::size_t) { return start(true); }
    bool end_object() { return end(); }
    bool end_array() { return end(); }

private:
    bool start(bool is_array) {
        if (depth_ == 0 && is_array) { return fail("the index is not an object", "an array"); }
        if (in_map_ && (depth_ > 1 || is_array)) {
            return fail("\"weight_map\" is not an object of strings", is_array ? "an array" : "an object");
        }
        ++depth_;
        return true;
    }
    bool end() {
        --depth_;
        return true;
    }
    bool scalar() {
        if (depth_ == 0) { return fail("the index is not an object"); }
        if (in_map_) { return fail("\"weight_map\" is not an object of strings"); }
        return true;
    }

    std::size_t depth_ = 0;
    bool in_map_ = false;
    std::unordered_map<std::string, std::uint32_t> numbers_;
};

RESIDENCY_INLINE Status append_shards(ModelFile& model, const Input& input,
                                      const std::function<Status(const Input&)>& append) {
    constexpr std::uint64_t most_bytes = 100'000'000;
    if (input.bytes() > most_bytes) {
        return malformed(input.path(), 0, "the index is too large", std::to_string(input.bytes()) + " bytes",
                         "at most " + std::to_string(most_bytes));
    }
    const auto text = input.try_text(0, input.bytes());
    if (!text) { return text.error(); }
    ShardIndex index{input.path(), 0};
    if (Status parsed = JsonHandler::try_parse(index, *text); !parsed) { return parsed.error(); }
    if (!index.has_map) { return malformed(input.path(), 0, "the index has no \"weight_map\""); }

    std::unordered_map<std::string_view, std::size_t> listed;
    listed.reserve(index.entries.size());
    for (std::size_t i = 0; i < index.entries.size(); ++i) {
        if (!listed.try_emplace(index.entries[i].tensor, i).second) {
            return malformed(input.path(), index.entries[i].place,
                             "tensor " + shown(index.entries[i].tensor) + " is given twice");
        }
    }
    std::vector<bool> seen(index.entries.size(), false);
    const std::string folder = folder_of(input.path());
    for (std::uint32_t file = 0; file < index.files.size(); ++file) {
        const auto shard = Input::try_open(folder + index.files[file]);
        if (!shard) { return shard.error().in(shown(input.path())); }
        const std::size_t first = model.weights.size();
        if (Status appended = append(*shard); !appended) { return appended.error(); }
        std::map<std::pair<std::uint32_t, std::uint64_t>, std::size_t> owners;  // the first weight in a place
        const auto is_tie = [&](std::size_t i) {
            if (owners.empty()) {
                for (std::size_t k = first; k < model.weights.size(); ++k) {
                    owners.try_emplace({model.weights[k].storage, model.weights[k].offset_bytes}, k);
                }
            }
            const auto& weight = model.weights[i];
            const std::size_t owner = owners.at({weight.storage, weight.offset_bytes});
            return owner < i && weight.shape == model.weights[owner].shape &&
                   weight.strides == model.weights[owner].strides;
        };
        for (std::size_t i = first; i < model.weights.size(); ++i) {
            const auto entry = listed.find(model.weights[i].name);
            if (entry == listed.end()) {
                if (is_tie(i)) { continue; }
                return malformed(
                    shard->path(), 0,
                    "tensor " + shown(model.weights[i].name) + " is not in the index " + shown(input.path()));
            }
            if (index.entries[entry->second].file != file) {
                return malformed(input.path(), index.entries[entry->second].place,
                                 "tensor " + shown(model.weights[i].name) + " is in another file",
                                 shown(index.files[file]), shown(index.files[index.entries[entry->second].file]));
            }
            seen[entry->second] = true;
        }
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
        if (!seen[i]) {
            return malformed(input.path(), index.entries[i].place,
                             "tensor " + shown(index.entries[i].tensor) + " is not in its file", {},
                             "it in " + shown(index.files[index.entries[i].file]));
        }
    }
    return refuse_duplicates(model, input.path());
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
