// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/folder.hpp"
#include "residency/format/input.hpp"
#include "residency/format/text.hpp"
#include "residency/model/natural_order.hpp"

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

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
