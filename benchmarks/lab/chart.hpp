// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/table.hpp"

namespace lab {

/// Lines over a common horizontal axis, as an SVG picture. The vertical axis is logarithmic.
class Chart {
public:
    Chart(std::string title, std::string horizontal, std::string vertical)
        : title_{std::move(title)}, horizontal_{std::move(horizontal)}, vertical_{std::move(vertical)} {}

    /// Points by x. What is not positive in y has no place on the axis and is left out. A dashed line is a bound.
    void add(std::string name, std::vector<std::pair<double, double>> points, bool dashed = false) {
        std::erase_if(points, [](const auto& point) {
            return !std::isfinite(point.first) || !std::isfinite(point.second) || point.second <= 0;
        });
        if (!points.empty()) { lines_.push_back({std::move(name), std::move(points), dashed}); }
    }
    [[nodiscard]] std::string svg() const {
        double left = 1e300;
        double right = -1e300;
        double low = 1e300;
        double high = 0;
        for (const Line& line : lines_) {
            for (const auto& [x, y] : line.points) {
                left = std::min(left, x);
                right = std::max(right, x);
                low = std::min(low, y);
                high = std::max(high, y);
            }
        }
        if (lines_.empty()) { left = 0, right = 1, low = 1, high = 10; }
        if (right <= left) { right = left + 1; }
        low *= 0.9;
        high *= 1.1;
        const auto at_x = [&](double x) { return margin + (x - left) / (right - left) * plot_width; };
        const auto at_y = [&](double y) {
            return top + (std::log(high) - std::log(y)) / (std::log(high) - std::log(low)) * plot_height;
        };
        std::string out =
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 520\" font-family=\"sans-serif\" "
            "font-size=\"13\">\n"
            "<rect width=\"900\" height=\"520\" fill=\"white\"/>\n";
        text(out, margin, 26, "start", title_, 17);
        text(out, margin + plot_width / 2, 508, "middle", horizontal_);
        text(out, margin, top - 8, "start", vertical_);
        for (double tick = std::pow(10, std::floor(std::log10(low))); tick <= high; tick *= 10) {
            for (const double step : {1.0, 2.0, 5.0}) {
                const double y = tick * step;
                if (y < low || y > high) { continue; }
                line(out, margin, at_y(y), margin + plot_width, at_y(y), "#dddddd");
                text(out, margin - 6, at_y(y) + 4, "end", fixed(y, y < 1 ? 2 : y < 10 ? 1 : 0));
            }
        }
        for (const auto& [x, unused] :
             lines_.empty() ? std::vector<std::pair<double, double>>{} : lines_.front().points) {
            line(out, at_x(x), top, at_x(x), top + plot_height, "#eeeeee");
            text(out, at_x(x), top + plot_height + 18, "middle", fixed(x, 0));
        }
        constexpr std::array colours{"#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#7d4e9e", "#00798c",
                                     "#8c5e58", "#5f5f5f", "#c26dbc", "#77a400", "#e4572e", "#3a3a9e"};
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            const char* colour = lines_[i].dashed ? "#000000" : colours[i % colours.size()];
            const std::string dash = lines_[i].dashed ? " stroke-dasharray=\"6 4\"" : "";
            out += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string{colour} + "\"" + dash +
                   " points=\"";
            for (const auto& [x, y] : lines_[i].points) { out += fixed(at_x(x), 1) + "," + fixed(at_y(y), 1) + " "; }
            out += "\"/>\n";
            const double y = top + 14 + 20 * static_cast<double>(i);
            out += "<line x1=\"700\" x2=\"724\" y1=\"" + fixed(y, 1) + "\" y2=\"" + fixed(y, 1) +
                   "\" stroke-width=\"2\" stroke=\"" + colour + "\"" + dash + "/>\n";
            text(out, 730, y + 4, "start", lines_[i].name);
        }
        return out + "</svg>\n";
    }

private:
    static constexpr double margin = 70;
    static constexpr double top = 60;
    static constexpr double plot_width = 610;
    static constexpr double plot_height = 410;
    struct Line {
        std::string name;
        std::vector<std::pair<double, double>> points;
        bool dashed = false;
    };

    static void text(std::string& out, double x, double y, const char* anchor, const std::string& content,
                     int points = 13) {
        out += "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + anchor + "\" font-size=\"" +
               std::to_string(points) + "\">";
        for (const char c : content) {
            out += c == '<' ? std::string{"&lt;"} : c == '&' ? std::string{"&amp;"} : std::string{c};
        }
        out += "</text>\n";
    }
    static void line(std::string& out, double x1, double y1, double x2, double y2, const char* colour) {
        out += "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" + fixed(x2, 1) + "\" y2=\"" +
               fixed(y2, 1) + "\" stroke=\"" + colour + "\"/>\n";
    }

    std::string title_, horizontal_, vertical_;
    std::vector<Line> lines_;
};

}  // namespace lab
