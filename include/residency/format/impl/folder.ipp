// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
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

RESIDENCY_INLINE Result<std::vector<std::string>> try_find_model_in(
    const std::string& folder, const std::function<bool(const std::vector<std::string>&)>& are_parts) {
    const auto names = try_list_folder(folder);
    if (!names) { return names.error(); }
    const std::string prefix = folder.ends_with('/') ? folder : folder + '/';
    const auto refused = [&](const std::string& what, const std::vector<std::string>& found) {
        return unsupported(folder, 0, what, found.empty() ? std::string{} : some_of(found));
    };
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
    for (const auto& is_of_kind : kinds) {
        std::vector<std::string> found;
        for (const std::string& name : *names) {
            if (is_of_kind(name) && !is_folder(prefix + name)) { found.push_back(name); }
        }
        if (found.empty()) { continue; }
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
    return refused(
        "a folder without a model file (.safetensors, .gguf, or what PyTorch or ExecuTorch saved); give the file, or "
        "the "
        "folder that holds it",
        *names);
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
