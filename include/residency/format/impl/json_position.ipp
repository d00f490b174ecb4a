// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/format/json_position.hpp"
#include "residency/format/text.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE bool JsonHandler::parse_error(std::size_t, const std::string& last, const Json::exception& why) {
    // The library's text: "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …".
    std::string_view text = why.what();
    if (const std::size_t at = text.find("syntax error"); at != std::string_view::npos) { text.remove_prefix(at); }
    if (const std::size_t at = text.find("; last read"); at != std::string_view::npos) { text = text.substr(0, at); }
    const auto says = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
    if (says("unexpected end of input") || says("missing closing quote")) {
        return fail(std::string{"not valid JSON, it has no end: "} + cut_off, std::to_string(place()) + " bytes",
                    "at least " + std::to_string(place() + 1));
    }
    return fail("not valid JSON: " + residency::detail::shortened(text, 200),
                last.empty() ? std::string{} : shown(last));
}

RESIDENCY_INLINE bool JsonHandler::fail(const std::string& what, std::string found, std::string expected) {
    if (status_) { status_ = malformed(source_, place(), what, std::move(found), std::move(expected)); }
    return false;
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
