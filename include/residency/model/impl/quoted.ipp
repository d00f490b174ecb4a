// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

RESIDENCY_INLINE std::size_t utf8_bytes(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
    const unsigned lead = at(0);
    if (text.empty() || lead < 0x80) { return text.empty() ? 0 : 1; }
    std::size_t bytes = 0;
    if (lead >= 0xc2 && lead <= 0xdf) { bytes = 2; }
    if (lead >= 0xe0 && lead <= 0xef) { bytes = 3; }
    if (lead >= 0xf0 && lead <= 0xf4) { bytes = 4; }
    if (bytes == 0) { return 0; }
    unsigned lowest = 0x80;
    unsigned highest = 0xbf;
    if (lead == 0xe0) { lowest = 0xa0; }
    if (lead == 0xed) { highest = 0x9f; }
    if (lead == 0xf0) { lowest = 0x90; }
    if (lead == 0xf4) { highest = 0x8f; }
    if (at(1) < lowest || at(1) > highest) { return 0; }
    for (std::size_t k = 2; k < bytes; ++k) {
        if (at(k) < 0x80 || at(k) > 0xbf) { return 0; }
    }
    return bytes;
}

/// Appends `text` as escaped() has it; `in_quotes` puts \ before quotes and backslashes.
inline void append_escaped(std::string& out, std::string_view text, bool in_quotes) {
    constexpr char digits[] = "0123456789abcdef";
    while (!text.empty()) {
        const std::size_t bytes = utf8_bytes(text);
        const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
        bool is_obeyed = bytes == 1 && (at(0) < 0x20 || at(0) == 0x7f);
        if (bytes == 2) { is_obeyed = (at(0) == 0xc2 && at(1) < 0xa0) || (at(0) == 0xd8 && at(1) == 0x9c); }
        if (bytes == 3 && at(0) == 0xe2) {  // U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069
            is_obeyed = at(1) == 0x80 ? at(2) == 0x8e || at(2) == 0x8f || (at(2) >= 0xa8 && at(2) <= 0xae)
                                      : at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9;
        }
        const std::size_t taken = bytes == 0 ? 1 : bytes;
        if (bytes != 0 && !is_obeyed) {
            if (in_quotes && (text[0] == '"' || text[0] == '\\')) { out += '\\'; }
            out += text.substr(0, taken);
        } else {
            for (std::size_t i = 0; i < taken; ++i) {
                out += "\\x";
                out += digits[at(i) >> 4];
                out += digits[at(i) & 15];
            }
        }
        text.remove_prefix(taken);
    }
}

/// Appends at most `longest` bytes of `text`, escaped, without the middle of a longer one.
inline void append_shortened(std::string& out, std::string_view text, std::size_t longest, bool in_quotes) {
    if (text.size() <= longest) { return append_escaped(out, text, in_quotes); }
    // A character is not cut: of valid text none has more than three bytes after its first.
    const auto is_inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U; };
    std::size_t front = longest - longest / 2;
    std::size_t back = text.size() - longest / 2;
    for (int i = 0; i < 3 && front > 0 && is_inside(front); ++i) { --front; }
    for (int i = 0; i < 3 && back < text.size() && is_inside(back); ++i) { ++back; }
    append_escaped(out, text.substr(0, front), in_quotes);
    out += "…";
    append_escaped(out, text.substr(back), in_quotes);
}

RESIDENCY_INLINE std::string escaped(std::string_view text) {
    std::string out;
    append_escaped(out, text, false);
    return out;
}

RESIDENCY_INLINE std::string shortened(std::string_view text, std::size_t longest) {
    std::string out;
    append_shortened(out, text, longest, false);
    return out;
}

RESIDENCY_INLINE std::string quoted(std::string_view text) {
    std::string out = "\"";
    append_shortened(out, text, 160, true);
    return out + '"';
}

}}}  // namespace residency::RESIDENCY_ABI::detail
