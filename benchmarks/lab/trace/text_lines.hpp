// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/quoted.hpp"

namespace lab::trace {

using namespace residency;

/// The lines of a text, with what a reader of comma-separated values needs to say where one is wrong.
class TextLines {
public:
    TextLines(std::string_view text, std::string source) : rest_{text}, source_{std::move(source)} {}

    /// The next line that is not empty, without its end; nothing at the end of the text.
    [[nodiscard]] std::optional<std::string_view> next() {
        while (!rest_.empty()) {
            offset_ += consumed_;
            const std::size_t end = rest_.find('\n');
            std::string_view line = rest_.substr(0, end);
            consumed_ = end == std::string_view::npos ? rest_.size() : end + 1;
            rest_.remove_prefix(consumed_);
            ++number_;
            if (line.ends_with('\r')) { line.remove_suffix(1); }
            if (!line.empty()) { return line; }
        }
        return std::nullopt;
    }
    /// An error at the line that next() gave last.
    [[nodiscard]] Error wrong(std::string found, std::string expected) const {
        return {ErrorKind::malformed,
                residency::detail::quoted(source_) + ", line " + std::to_string(number_) + ": found " + found +
                    ", expected " + expected,
                FileLocation{source_, offset_, std::move(found), std::move(expected)}};
    }

    /// The parts of a line between separators. Blanks and tabs that follow each other are one separator where it is a blank.
    static void split(std::string_view line, char separator, std::vector<std::string_view>& parts) {
        parts.clear();
        if (separator == ' ') {
            for (line = trim(line); !line.empty(); line = trim(line)) {
                const std::size_t end = (std::min)(line.find_first_of(" \t"), line.size());
                parts.push_back(line.substr(0, end));
                line.remove_prefix(end);
            }
            return;
        }
        for (;;) {
            const std::size_t end = line.find(separator);
            parts.push_back(trim(line.substr(0, end)));
            if (end == std::string_view::npos) { return; }
            line.remove_prefix(end + 1);
        }
    }
    [[nodiscard]] static std::optional<std::uint64_t> number(std::string_view text) {
        std::uint64_t value = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (failure != std::errc{} || end != text.data() + text.size()) { return std::nullopt; }
        return value;
    }
    /// The number after `key` and "=" in a line of such pairs with spaces between.
    [[nodiscard]] static std::optional<std::uint64_t> number_of(std::string_view line, std::string_view key) {
        for (std::size_t at = 0; at < line.size();) {
            const std::size_t end = (std::min)(line.find(' ', at), line.size());
            const std::string_view pair = line.substr(at, end - at);
            if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=') {
                return number(pair.substr(key.size() + 1));
            }
            at = end + 1;
        }
        return std::nullopt;
    }

private:
    [[nodiscard]] static std::string_view trim(std::string_view text) noexcept {
        while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) { text.remove_prefix(1); }
        while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) { text.remove_suffix(1); }
        return text;
    }

    std::string_view rest_;
    std::string source_;
    std::size_t number_ = 0;
    std::size_t offset_ = 0;
    std::size_t consumed_ = 0;
};

}  // namespace lab::trace
