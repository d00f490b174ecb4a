// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "residency/config.hpp"
#include "residency/error.hpp"
#include "residency/format/text.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE bool is_utf8(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    for (std::size_t i = 0; i < text.size();) {
        const unsigned char lead = at(i);
        if (lead < 0x80) {
            ++i;
            continue;
        }
        std::size_t more = 0;
        unsigned char lowest = 0x80;
        unsigned char highest = 0xbf;
        if (lead >= 0xc2 && lead <= 0xdf) {
            more = 1;
        } else if (lead >= 0xe0 && lead <= 0xef) {
            more = 2;
            if (lead == 0xe0) { lowest = 0xa0; }
            if (lead == 0xed) { highest = 0x9f; }
        } else if (lead >= 0xf0 && lead <= 0xf4) {
            more = 3;
            if (lead == 0xf0) { lowest = 0x90; }
            if (lead == 0xf4) { highest = 0x8f; }
        } else {
            return false;
        }
        if (text.size() - i <= more) { return false; }
        if (at(i + 1) < lowest || at(i + 1) > highest) { return false; }
        for (std::size_t k = 2; k <= more; ++k) {
            if (at(i + k) < 0x80 || at(i + k) > 0xbf) { return false; }
        }
        i += more + 1;
    }
    return true;
}

RESIDENCY_INLINE std::string shown(std::string_view text) {
    if (is_utf8(text)) { return residency::detail::quoted(text); }
    constexpr std::size_t longest = 40;
    constexpr char digits[] = "0123456789abcdef";
    std::string out = "bytes";
    for (const char c : text.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        out += ' ';
        out += digits[byte >> 4];
        out += digits[byte & 15];
    }
    return text.size() > longest ? out + " …" : out;
}

RESIDENCY_INLINE Error error_at(ErrorKind kind, const std::string& source, std::uint64_t offset,
                                const std::string& what, std::string found, std::string expected) {
    std::string message = shown(source) + ": byte " + std::to_string(offset) + ": " + what;
    if (!found.empty()) { message += ": found " + found; }
    if (!expected.empty()) { message += (found.empty() ? ": expected " : ", expected ") + expected; }
    return {kind, std::move(message), FileLocation{source, offset, std::move(found), std::move(expected)}};
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
