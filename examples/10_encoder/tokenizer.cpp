// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace encoder {
namespace {

using residency::Error;
using residency::ErrorKind;

bool is_control(utf8proc_int32_t c) {
    const auto category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO ||
           category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CN;
}
bool is_space(utf8proc_int32_t c) {
    const auto category = utf8proc_category(c);
    return c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}
/// Everything in ASCII that is neither a letter nor a digit, and what Unicode calls punctuation.
bool is_punctuation(utf8proc_int32_t c) {
    if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126)) { return true; }
    const auto category = utf8proc_category(c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}
bool is_chinese(utf8proc_int32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void append(std::string& text, utf8proc_int32_t c) {
    utf8proc_uint8_t bytes[4];
    const auto count = utf8proc_encode_char(c, bytes);
    text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t count_characters(std::string_view text) {
    std::size_t count = 0;
    for (const char c : text) { count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }
    return count;
}

}  // namespace

std::vector<std::string> Tokenizer::words(std::string_view text) {
    utf8proc_uint8_t* decomposed = nullptr;
    const auto bytes =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &decomposed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
    if (bytes < 0) {
        residency::throw_error({ErrorKind::malformed, std::string{"a sentence: "} + utf8proc_errmsg(bytes)});
    }
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner{decomposed, &std::free};

    std::vector<std::string> words;
    bool inside = false;
    const auto next = [&](utf8proc_int32_t c) {
        if (!inside) { words.emplace_back(); }
        append(words.back(), c);
    };
    for (utf8proc_ssize_t at = 0; at < bytes;) {
        utf8proc_int32_t c = 0;
        at += utf8proc_iterate(decomposed + at, bytes - at, &c);
        if (is_space(c)) {
            inside = false;
        } else if (c == 0xFFFD || is_control(c) || utf8proc_category(c) == UTF8PROC_CATEGORY_MN) {
            continue;
        } else if (is_punctuation(c) || is_chinese(c)) {
            inside = false;
            next(c);
        } else {
            next(utf8proc_tolower(c));
            inside = true;
        }
    }
    return words;
}

Tokenizer Tokenizer::read(const std::string& path) {
    constexpr std::uint64_t most_bytes = std::uint64_t{64} << 20;
    const auto bytes = residency::unwrap(residency::detail::read_file(path, most_bytes));
    std::string_view rest{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    Tokenizer tokenizer;
    for (std::int32_t id = 0; !rest.empty(); ++id) {
        const std::size_t end = rest.find('\n');
        std::string_view line = rest.substr(0, end);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
        if (line.ends_with('\r')) { line.remove_suffix(1); }
        tokenizer.ids_.emplace(line, id);
    }
    const auto need = [&](std::string_view token) {
        const auto found = tokenizer.ids_.find(std::string{token});
        if (found == tokenizer.ids_.end()) {
            residency::throw_error({ErrorKind::malformed, path + ": it lacks the token " + std::string{token}});
        }
        return found->second;
    };
    tokenizer.unknown_ = need(unknown);
    tokenizer.first_ = need(first);
    tokenizer.last_ = need(last);
    return tokenizer;
}

void Tokenizer::append_pieces(std::string_view word, std::vector<std::int32_t>& ids) const {
    constexpr std::size_t longest_word = 100;  // characters
    const std::size_t before = ids.size();
    std::string piece;
    for (std::size_t start = 0; start < word.size();) {
        std::size_t end = count_characters(word) > longest_word ? start : word.size();
        for (; end > start; --end) {
            if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0U) == 0x80U) { continue; }
            piece = start == 0 ? "" : "##";
            piece += word.substr(start, end - start);
            const auto found = ids_.find(piece);
            if (found == ids_.end()) { continue; }
            ids.push_back(found->second);
            break;
        }
        if (end == start) {
            ids.resize(before);
            ids.push_back(unknown_);
            return;
        }
        start = end;
    }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, std::size_t longest) const {
    std::vector<std::int32_t> ids{first_};
    for (const std::string& word : words(text)) { append_pieces(word, ids); }
    if (ids.size() + 1 > longest) { ids.resize(longest - 1); }
    ids.push_back(last_);
    return ids;
}

}  // namespace encoder
