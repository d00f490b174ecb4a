// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "residency/config.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

RESIDENCY_INLINE std::string quoted(std::string_view text) {
    constexpr std::size_t longest = 160;
    constexpr std::size_t kept = 70;
    constexpr char digits[] = "0123456789abcdef";
    std::string out = "\"";
    const auto append = [&](std::string_view part) {
        for (const char c : part) {
            const auto byte = static_cast<unsigned char>(c);
            if (byte < 0x20 || byte == 0x7f) {
                out += "\\x";
                out += digits[byte >> 4];
                out += digits[byte & 15];
            } else {
                if (c == '"' || c == '\\') { out += '\\'; }
                out += c;
            }
        }
    };
    if (text.size() <= longest) {
        append(text);
    } else {
        append(text.substr(0, kept));
        out += "…";
        append(text.substr(text.size() - kept));
    }
    out += '"';
    return out;
}

}}}  // namespace residency::RESIDENCY_ABI::detail
