// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "residency/format/folder.hpp"
#include "residency/format/json_tree.hpp"
#include "residency/format/other_kinds.hpp"
#include "residency/model/natural_order.hpp"
#include "residency/model/number.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE bool is_folder(const std::string& path) noexcept {
    struct stat status = {};
    return path.find('\0') == std::string::npos && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

RESIDENCY_INLINE Result<std::vector<std::string>> try_list_folder(const std::string& path) {
    constexpr std::size_t most_entries = 100'000;
    struct Close {
        void operator()(DIR* folder) const noexcept { ::closedir(folder); }
    };
    const std::unique_ptr<DIR, Close> folder{::opendir(path.c_str())};
    const auto failed = [&](const std::string& why) {
        return Error{ErrorKind::io, shown(path) + ": the folder cannot be read: " + why,
                     FileLocation{path, 0, why, {}}};
    };
    if (!folder) { return failed(std::generic_category().message(errno)); }
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(folder.get())) {
        std::string name = entry->d_name;
        if (name.starts_with('.')) { continue; }
        if (names.size() == most_entries) {
            return failed("more than " + std::to_string(most_entries) + " entries; give the file of the model");
        }
        names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end(),
              [](const std::string& a, const std::string& b) { return residency::detail::compare_natural(a, b) < 0; });
    return names;
}

/// The first of the names, for a message.
[[nodiscard]] inline std::string some_of(const std::vector<std::string>& names) {
    constexpr std::size_t most = 6;
    std::string text;
    for (std::size_t i = 0; i < (std::min)(names.size(), most); ++i) { text += (i == 0 ? "" : ", ") + shown(names[i]); }
    return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

/// What of `name` is the same in all files of a split model, NAME-00001-of-0000N.EXTENSION; empty where it is no such name.
[[nodiscard]] inline std::string split_stem(std::string_view name) {
    constexpr std::size_t digits = 5;
    const std::size_t of = name.rfind("-of-");
    const std::size_t dot = name.rfind('.');
    if (of == std::string_view::npos || dot != of + 4 + digits || of < digits + 1 || name[of - digits - 1] != '-') {
        return {};
    }
    return std::string{name.substr(0, of - digits)} + std::string{name.substr(of)};
}

/// Whether a folder is that of a model in the cache of Hugging Face's hub.
[[nodiscard]] inline bool is_in_hub_cache(const std::string& prefix) {
    return is_folder(prefix + "snapshots") && (is_folder(prefix + "refs") || is_folder(prefix + "blobs"));
}

[[nodiscard]] inline std::string with_slash(const std::string& folder) {
    return folder.ends_with('/') ? folder : folder + '/';
}

RESIDENCY_INLINE Result<std::string> try_folder_of_model(const std::string& folder) {
    const std::string prefix = with_slash(folder);
    if (!is_in_hub_cache(prefix)) { return folder; }
    const auto names = try_list_folder(prefix + "snapshots");
    if (!names) { return names.error(); }
    std::string main;
    if (const auto input = Input::try_open(prefix + "refs/main")) {
        constexpr std::uint64_t most_bytes = 256;
        auto text = input->try_text(0, (std::min)(input->bytes(), most_bytes));
        if (text) { main = text->substr(0, text->find_last_not_of(" \r\n") + 1); }
    }
    if (names->size() == 1 && main.empty()) { main = names->front(); }
    if (std::find(names->begin(), names->end(), main) != names->end()) { return prefix + "snapshots/" + main; }
    const std::string why = main.empty() ? "whose refs/main names none" : "whose refs/main names " + shown(main);
    if (names->empty()) {
        return unsupported(folder, 0,
                           "a model in the cache of Hugging Face's hub without a snapshot: download the model again");
    }
    std::vector<std::string> paths;
    for (const std::string& name : *names) { paths.push_back(prefix + "snapshots/" + name); }
    return unsupported(folder, 0,
                       "a model in the cache of Hugging Face's hub, " + why + ": give the path of a snapshot",
                       some_of(paths));
}

/// Those of the names in a folder that are files of a model, of the first kind that is there.
[[nodiscard]] inline std::vector<std::string> model_files_among(const std::vector<std::string>& names,
                                                                const std::string& prefix) {
    const auto is_torch_index = [](std::string_view name) {
        return name.ends_with(".json") && name.find(".bin.index.") != std::string_view::npos;
    };
    const std::vector<std::function<bool(std::string_view)>> kinds{
        [](std::string_view name) { return name == "model.safetensors.index.json"; },
        [](std::string_view name) { return name == "model.safetensors"; },
        [](std::string_view name) { return name.ends_with(".gguf"); },
        [&](std::string_view name) { return name.starts_with("pytorch_model") && is_torch_index(name); },
        [](std::string_view name) { return name.starts_with("pytorch_model") && name.ends_with(".bin"); },
        [](std::string_view name) { return name.ends_with(".safetensors.index.json"); },
        [](std::string_view name) { return name.ends_with(".safetensors"); },
        is_torch_index,
        [](std::string_view name) {
            return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".ckpt");
        },
        [](std::string_view name) { return name.ends_with(".pte"); },
        [](std::string_view name) { return name.ends_with(".ptd"); },
    };
    std::vector<std::string> found;
    for (const auto& is_of_kind : kinds) {
        for (const std::string& name : names) {
            if (is_of_kind(name) && !is_folder(prefix + name)) { found.push_back(name); }
        }
        if (!found.empty()) { break; }
    }
    return found;
}

RESIDENCY_INLINE Result<std::vector<std::string>> try_find_model_in(
    const std::string& folder, const std::function<bool(const std::vector<std::string>&)>& are_parts) {
    const auto names = try_list_folder(folder);
    if (!names) { return names.error(); }
    const std::string prefix = with_slash(folder);
    const auto refused = [&](const std::string& what, const std::vector<std::string>& found) {
        return unsupported(folder, 0, what, found.empty() ? std::string{} : some_of(found));
    };
    if (const std::vector<std::string> found = model_files_among(*names, prefix); !found.empty()) {
        std::vector<std::string> paths;
        paths.reserve(found.size());
        for (const std::string& name : found) { paths.push_back(prefix + name); }
        const std::string stem = split_stem(found.front());
        const bool is_one = found.size() == 1 ||
                            (!stem.empty() && std::all_of(found.begin(), found.end(),
                                                          [&](auto& name) { return split_stem(name) == stem; })) ||
                            are_parts(paths);
        if (is_one) { return paths; }
        return refused(
            "a folder with several models, or parts of one: give one of its files, or all parts of one in "
            "order as a list",
            found);
    }
    if (names->empty()) { return refused("an empty folder; give a model file, or the folder that holds one", {}); }
    std::vector<std::string> folders;  // with a model
    for (const std::string& name : *names) {
        const std::string inner = prefix + name;
        const auto in_it = is_folder(inner) ? try_list_folder(inner) : std::vector<std::string>{};
        if (in_it && (!model_files_among(*in_it, inner + '/').empty() || is_in_hub_cache(inner + '/'))) {
            folders.push_back(inner);
        }
    }
    if (!folders.empty()) {
        const bool is_pipeline = std::find(names->begin(), names->end(), "model_index.json") != names->end();
        return refused(
            std::string{is_pipeline ? "a pipeline (model_index.json)" : "a folder without a model file"} +
                ", whose models are in folders in it: give the path of one, or a list of several, each as PREFIX=PATH",
            folders);
    }
    return refused(
        "a folder without a model file (.safetensors, .gguf, or what PyTorch or ExecuTorch saved); give the file, or "
        "the folder that holds it",
        *names);
}

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

/// The index in `input`. Error malformed.
[[nodiscard]] inline Result<ShardIndex> read_shard_index(const Input& input) {
    constexpr std::uint64_t most_bytes = 100'000'000;
    if (input.bytes() > most_bytes) {
        return malformed(input.path(), 0, "the index is too large", residency::detail::in_bytes(input.bytes()),
                         "at most " + residency::detail::in_bytes(most_bytes));
    }
    if (Status known = refuse_other_kinds(input, true); !known) { return known.error(); }
    const auto text = input.try_text(0, input.bytes());
    if (!text) { return text.error(); }
    ShardIndex index{input.path(), 0};
    if (Status parsed = JsonHandler::try_parse(index, *text); !parsed) { return parsed.error(); }
    if (!index.has_map) { return malformed(input.path(), 0, "the index has no \"weight_map\""); }
    return index;
}

/// Drops the weights from the one numbered `first` on for which `keep` is false, and the storages that no weight needs then.
inline void keep_weights(ModelFile& model, std::size_t first, std::size_t first_storage,
                         const std::vector<bool>& keep) {
    std::vector<bool> needed(model.storages.size() - first_storage, false);
    std::size_t next = first;
    for (std::size_t i = first; i < model.weights.size(); ++i) {
        if (!keep[i - first]) { continue; }
        needed[model.weights[i].storage - first_storage] = true;
        if (next != i) { model.weights[next] = std::move(model.weights[i]); }
        ++next;
    }
    model.weights.resize(next);
    std::vector<std::uint32_t> numbers(needed.size(), 0);
    std::size_t storage = first_storage;
    for (std::size_t i = 0; i < needed.size(); ++i) {
        if (!needed[i]) { continue; }
        numbers[i] = static_cast<std::uint32_t>(storage);
        model.storages[storage++] = model.storages[first_storage + i];
    }
    model.storages.resize(storage);
    for (std::size_t i = first; i < next; ++i) {
        model.weights[i].storage = numbers[model.weights[i].storage - first_storage];
    }
}

RESIDENCY_INLINE Status append_shards(ModelFile& model, const Input& input, const ReadOptions& options,
                                      const std::function<Status(const Input&)>& append) {
    const auto index = read_shard_index(input);
    if (!index) { return index.error(); }
    if (index->entries.empty()) {
        return malformed(input.path(), 0, "the index lists no tensor; give a file of tensors, or save the model again",
                         {}, "\"weight_map\" with an entry for each tensor");
    }
    std::unordered_map<std::string_view, std::size_t> listed;
    listed.reserve(index->entries.size());
    for (std::size_t i = 0; i < index->entries.size(); ++i) {
        if (!listed.try_emplace(index->entries[i].tensor, i).second) {
            return malformed(input.path(), index->entries[i].place,
                             "tensor " + shown(index->entries[i].tensor) + " is given twice");
        }
    }
    std::unordered_map<std::string, std::uint32_t> elsewhere;  // the file that holds what the index gives to another
    const std::string folder = folder_of(input.path());
    for (std::uint32_t file = 0; file < index->files.size(); ++file) {
        const auto shard = Input::try_open(folder + index->files[file]);
        if (!shard) {
            const std::string whole = whole_file_beside(input.path());
            return shard.error().in(shown(input.path()) +
                                    (whole.empty() ? " lists a file that does not open (download it; where the index "
                                                     "is out of date, give a file of weights)"
                                                   : " is out of date: give " + shown(whole) + " in its place"));
        }
        const std::size_t first = model.weights.size();
        const std::size_t first_storage = model.storages.size();
        if (Status appended = append(*shard); !appended) { return appended.error().in(shown(input.path())); }
        const auto view_of = [&](std::size_t i) {
            const auto& weight = model.weights[i];
            return std::tuple{weight.storage, weight.offset_bytes, weight.shape, weight.strides};
        };
        std::vector<bool> keep(model.weights.size() - first, false);
        std::set<decltype(view_of(0))> views;  // of what the index gives to this file
        bool all = true;
        for (std::size_t i = first; i < model.weights.size(); ++i) {
            const auto entry = listed.find(model.weights[i].name);
            keep[i - first] = entry != listed.end() && index->entries[entry->second].file == file;
            all = all && keep[i - first];
        }
        if (all) { continue; }
        for (std::size_t i = first; i < model.weights.size(); ++i) {
            if (keep[i - first]) { views.insert(view_of(i)); }
        }
        for (std::size_t i = first; i < model.weights.size(); ++i) {
            if (keep[i - first]) { continue; }
            const std::string& name = model.weights[i].name;
            const auto entry = listed.find(name);
            if (entry == listed.end() && views.contains(view_of(i))) {
                keep[i - first] = true;
                continue;
            }
            if (options.strict && entry == listed.end()) {
                return malformed(shard->path(), 0,
                                 "tensor " + shown(name) + " is not in the index " + shown(input.path()));
            }
            if (options.strict) {
                return malformed(input.path(), index->entries[entry->second].place,
                                 "tensor " + shown(name) + " is in another file", shown(index->files[file]),
                                 shown(index->files[index->entries[entry->second].file]));
            }
            if (entry != listed.end()) { elsewhere.try_emplace(name, file); }
            model.passed_over.push_back(
                {name, entry == listed.end() ? "the index does not list it" : "the index gives it to another file"});
        }
        keep_weights(model, first, first_storage, keep);
    }
    if (Status unique = refuse_duplicates(model, input.path()); !unique) { return unique; }
    if (options.ties_from_metadata) { tie_by_metadata(model); }
    std::unordered_set<std::string_view> have;
    have.reserve(model.weights.size());
    for (const auto& weight : model.weights) { have.insert(weight.name); }
    for (const auto& entry : index->entries) {
        if (have.contains(entry.tensor)) { continue; }
        const auto other = elsewhere.find(entry.tensor);
        return malformed(input.path(), entry.place, "tensor " + shown(entry.tensor) + " is not in its file",
                         other == elsewhere.end() ? std::string{} : "it in " + shown(index->files[other->second]),
                         "it in " + shown(index->files[entry.file]));
    }
    return {};
}

RESIDENCY_INLINE std::string whole_file_beside(const std::string& index_path) {
    constexpr std::string_view ending = ".index.json";
    if (!index_path.ends_with(ending)) { return {}; }
    std::string whole = index_path.substr(0, index_path.size() - ending.size());
    if (!Input::try_open(whole)) { return {}; }
    const auto input = Input::try_open(index_path);
    const auto index = input ? read_shard_index(*input) : Result<ShardIndex>{input.error()};
    const std::string name = whole.substr(folder_of(whole).size());
    const bool is_listed = index && std::find(index->files.begin(), index->files.end(), name) != index->files.end();
    return is_listed ? std::string{} : whole;
}

RESIDENCY_INLINE void tie_by_metadata(ModelFile& model) {
    // Keys that metadata have by convention: of transformers, of image models, of their training.
    constexpr std::array<std::string_view, 2> names{"format", "total_size"};
    constexpr std::array<std::string_view, 4> beginnings{"modelspec.", "ss_", "sshs_", "general."};
    if (model.metadata.empty()) { return; }
    std::unordered_map<std::string, std::size_t> by_name;
    by_name.reserve(model.weights.size());
    for (std::size_t i = 0; i < model.weights.size(); ++i) { by_name.emplace(model.weights[i].name, i); }
    for (const auto& [key, value] : model.metadata) {
        const auto kept = by_name.find(value);
        if (kept == by_name.end() || by_name.contains(key)) { continue; }
        if (std::find(names.begin(), names.end(), key) != names.end() ||
            std::any_of(beginnings.begin(), beginnings.end(),
                        [&name = key](auto text) { return name.starts_with(text); })) {
            continue;
        }
        ModelFile::WeightEntry tied = model.weights[kept->second];
        tied.name = key;
        by_name.emplace(key, model.weights.size());
        model.weights.push_back(std::move(tied));
    }
}

RESIDENCY_INLINE void note_index_beside(ModelFile& model, const std::string& path) {
    constexpr std::size_t most_indices = 16;
    const std::string folder = folder_of(path);
    const std::string name = path.substr(folder.size());
    const auto names = try_list_folder(folder.empty() ? "." : folder);
    if (!names) { return; }
    std::size_t tried = 0;
    for (const std::string& beside : *names) {
        if (!beside.ends_with(".json") || beside.find(".index.") == std::string::npos) { continue; }
        if (++tried > most_indices) { return; }
        const auto input = Input::try_open(folder + beside);
        if (!input) { continue; }
        const auto index = read_shard_index(*input);
        if (!index || index->files.size() < 2 ||
            std::find(index->files.begin(), index->files.end(), name) == index->files.end()) {
            continue;
        }
        model.notes.push_back("one of the " + std::to_string(index->files.size()) + " files of a model: " +
                              shown(folder + beside) + " lists it; give that index to open the whole model");
        return;
    }
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
