// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

namespace lab {

/// Rows of text, printed as aligned columns or as comma-separated values.
class Table {
public:
    explicit Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }

    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    [[nodiscard]] std::string aligned() const {
        std::vector<std::size_t> widths;
        for (const auto& row : rows_) {
            widths.resize(std::max(widths.size(), row.size()));
            for (std::size_t i = 0; i < row.size(); ++i) { widths[i] = std::max(widths[i], row[i].size()); }
        }
        std::string text;
        for (const auto& row : rows_) {
            std::string line;
            for (std::size_t i = 0; i < row.size(); ++i) {
                const std::string fill(widths[i] - row[i].size(), ' ');
                line += i == 0 ? row[i] + fill : "  " + fill + row[i];
            }
            text += line + "\n";
        }
        return text;
    }
    [[nodiscard]] std::string comma_separated() const {
        std::string text;
        for (const auto& row : rows_) {
            for (std::size_t i = 0; i < row.size(); ++i) { text += (i == 0 ? "" : ",") + quoted(row[i]); }
            text += "\n";
        }
        return text;
    }

private:
    /// In quotes where it has to be.
    [[nodiscard]] static std::string quoted(const std::string& cell) {
        if (cell.find_first_of(",\"\n\r") == std::string::npos) { return cell; }
        std::string text = "\"";
        for (const char c : cell) { text += c == '"' ? std::string{"\"\""} : std::string{c}; }
        return text + "\"";
    }

    std::vector<std::vector<std::string>> rows_;  // the heading first
};

inline std::string fixed(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}
/// In the largest binary unit with at least one digit before the point.
inline std::string human_bytes(std::uint64_t bytes) {
    const char* unit = "B";
    double value = static_cast<double>(bytes);
    for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
        if (value < 1024) { break; }
        value /= 1024;
        unit = next;
    }
    return fixed(value, unit[0] == 'B' ? 0 : 1) + " " + unit;
}

}  // namespace lab
