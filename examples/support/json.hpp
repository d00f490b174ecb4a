// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "residency/model/quoted.hpp"

// JSON documents of others, for the examples and tools.
namespace examples {

/// What is wrong with a document; says what and where.
struct BadJson : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// How deep a document may be nested. Functions that print, copy or compare one call themselves once for each level.
inline constexpr int deepest_json = 64;

/// A document from its text. Throws BadJson: it is not JSON, it is nested too deeply, or a key is there twice, of which the last would
/// win without a word.
template <class Json = nlohmann::ordered_json>
[[nodiscard]] Json parse_json(std::string_view text) {
    std::vector<std::set<std::string>> keys;
    const auto check = [&](int depth, typename Json::parse_event_t event, Json& parsed) {
        using Event = typename Json::parse_event_t;
        if ((event == Event::object_start || event == Event::array_start) && depth >= deepest_json) {
            throw BadJson{"not JSON that is read here: nested more than " + std::to_string(deepest_json) +
                          " levels deep"};
        }
        if (event == Event::object_start) { keys.emplace_back(); }
        if (event == Event::object_end) { keys.pop_back(); }
        if (event == Event::key) {
            const auto& key = parsed.template get_ref<const std::string&>();
            if (!keys.back().insert(key).second) { throw BadJson{residency::detail::quoted(key) + " is there twice"}; }
        }
        return true;
    };
    try {
        return Json::parse(text, check);
    } catch (const typename Json::exception& error) {
        const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, …"
        const std::size_t end = what.find("] ");
        throw BadJson{"not JSON: " + (end == std::string::npos ? what : what.substr(end + 2))};
    }
}

/// A value of a document for a message: the begin of its text.
template <class Json>
[[nodiscard]] std::string shown_json(const Json& value) {
    constexpr std::size_t longest = 60;
    return residency::detail::shortened(value.dump(), longest);
}

}  // namespace examples
