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
    while (!text.empty()) {
        const std::size_t bytes = residency::detail::utf8_bytes(text);
        if (bytes == 0) { return false; }
        text.remove_prefix(bytes);
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
