// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

// What the larger examples print.
namespace examples {

[[nodiscard]] inline std::string text_of(double value, const char* format) {
    char text[40];
    std::snprintf(text, sizeof text, format, value);
    return text;
}
[[nodiscard]] inline double mib(std::uint64_t bytes) { return double(bytes) / double(1U << 20U); }
[[nodiscard]] inline std::string text_of(std::chrono::nanoseconds time) {
    return text_of(double(time.count()) / 1e6, "%.3f ms");
}
[[nodiscard]] inline std::string text_of_bytes(double bytes) {
    return bytes < 1e6 ? text_of(bytes / 1e3, "%.1f kB") : text_of(bytes / 1e6, "%.1f MB");
}
[[nodiscard]] inline std::string text_of_bytes(std::uint64_t bytes) { return text_of_bytes(double(bytes)); }

/// A bar on a terminal; nothing where the output goes elsewhere.
class Progress {
public:
    explicit Progress(std::string what) : what_{std::move(what)} {}
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void show(std::uint64_t done, std::uint64_t total) {
        if (!is_terminal_) { return; }
        constexpr std::uint64_t width = 40;
        const std::uint64_t filled = total == 0 ? width : (std::min)(done, total) * width / total;
        std::string bar;
        for (std::uint64_t i = 0; i < width; ++i) { bar += i < filled ? "━" : "╌"; }
        std::printf("\r\033[K%-9s %s %s of %s", what_.c_str(), bar.c_str(),
                    text_of_bytes((std::min)(done, total)).c_str(), text_of_bytes(total).c_str());
        std::fflush(stdout);
    }
    void clear() {
        if (is_terminal_) { std::printf("\r\033[K"), std::fflush(stdout); }
    }

private:
    std::string what_;
    bool is_terminal_ = isatty(STDOUT_FILENO) != 0;
};

/// Columns as wide as what is in them; the first flush left, the others right.
class Table {
public:
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    void print() const {
        std::vector<std::size_t> widths;
        for (const auto& cells : rows_) {
            widths.resize((std::max)(widths.size(), cells.size()));
            for (std::size_t i = 0; i < cells.size(); ++i) { widths[i] = (std::max)(widths[i], width_of(cells[i])); }
        }
        for (const auto& cells : rows_) {
            std::string line = " ";
            for (std::size_t i = 0; i < cells.size(); ++i) {
                const std::string space(widths[i] - width_of(cells[i]), ' ');
                line += " " + (i == 0 ? cells[i] + space : space + cells[i]) + " ";
            }
            std::printf("%s\n", line.substr(0, line.find_last_not_of(' ') + 1).c_str());
        }
    }

private:
    [[nodiscard]] static std::size_t width_of(const std::string& text) {
        return static_cast<std::size_t>(std::count_if(
            text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    }
    std::vector<std::vector<std::string>> rows_;
};

/// What a run has to hold by, a line each.
class Checks {
public:
    void check(bool holds, const std::string& what) {
        std::printf("  %s %s\n", holds ? "✓" : "✗ FAILED:", what.c_str());
        failed_ += !holds;
    }
    /// What a checker of the device found.
    void check_reports(const std::vector<std::string>& reports) {
        check(reports.empty(),
              "the simulated device saw no access out of order" + (reports.empty() ? "" : ": " + reports.front()));
    }
    [[nodiscard]] int failed() const noexcept { return failed_; }

private:
    int failed_ = 0;
};

}  // namespace examples
