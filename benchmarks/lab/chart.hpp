// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/lab/table.hpp"

namespace lab {

/// Lines over a common horizontal axis, as an SVG picture: a mark at each point, and the name of a line at its end. The vertical axis
/// is logarithmic.
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
    /// A level over the whole width, dotted.
    void add_level(std::string name, double y) {
        if (std::isfinite(y) && y > 0) { levels_.push_back({std::move(name), y}); }
    }
    [[nodiscard]] std::string svg() const {
        double left = 1e300;
        double right = -1e300;
        double low = 1e300;
        double high = 0;
        std::set<double> columns;
        for (const Line& line : lines_) {
            for (const auto& [x, y] : line.points) {
                columns.insert(x);
                left = std::min(left, x);
                right = std::max(right, x);
                low = std::min(low, y);
                high = std::max(high, y);
            }
        }
        for (const auto& [name, y] : levels_) {
            low = std::min(low, y);
            high = std::max(high, y);
        }
        if (lines_.empty()) { left = 0, right = 1; }
        if (high <= 0) { low = 1, high = 10; }
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
        text(out, margin, 26, "start", title_, "#000000", 17);
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
        double last = -1e300;
        for (const double x : columns) {
            line(out, at_x(x), top, at_x(x), top + plot_height, "#eeeeee");
            if (at_x(x) < last + 28) { continue; }  // no number over another
            last = at_x(x);
            text(out, last, top + plot_height + 18, "middle", fixed(x, 0));
        }
        constexpr std::array colours{"#1b6ca8", "#d1495b", "#2e933c", "#b07d10", "#7d4e9e", "#00798c",
                                     "#8c5e58", "#5f5f5f", "#c26dbc", "#5d7f00", "#e4572e", "#3a3a9e"};
        std::vector<Label> labels;
        for (const auto& [name, y] : levels_) {
            out += "<line stroke-width=\"1.5\" stroke=\"#000000\" stroke-dasharray=\"2 3\" x1=\"" + fixed(margin, 1) +
                   "\" x2=\"" + fixed(margin + plot_width, 1) + "\" y1=\"" + fixed(at_y(y), 1) + "\" y2=\"" +
                   fixed(at_y(y), 1) + "\"/>\n";
            labels.push_back({name, "#000000", at_y(y), margin + plot_width});
        }
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            const char* colour = lines_[i].dashed ? "#000000" : colours[i % colours.size()];
            out += "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string{colour} + "\"" +
                   (lines_[i].dashed ? " stroke-dasharray=\"6 4\"" : "") + " points=\"";
            for (const auto& [x, y] : lines_[i].points) { out += fixed(at_x(x), 1) + "," + fixed(at_y(y), 1) + " "; }
            out += "\"/>\n";
            for (const auto& [x, y] : lines_[i].points) {
                out += "<circle r=\"3\" fill=\"" + std::string{colour} + "\" cx=\"" + fixed(at_x(x), 1) + "\" cy=\"" +
                       fixed(at_y(y), 1) + "\"/>\n";
            }
            const auto& end = lines_[i].points.back();
            labels.push_back({lines_[i].name, colour, at_y(end.second), at_x(end.first)});
        }
        draw_labels(out, labels);
        return out + "</svg>\n";
    }

private:
    static constexpr double margin = 70;
    static constexpr double top = 60;
    static constexpr double plot_width = 600;
    static constexpr double plot_height = 410;
    struct Label {
        std::string name;
        const char* colour;
        double y, from_x;  ///< of the end that it names
    };
    struct Line {
        std::string name;
        std::vector<std::pair<double, double>> points;
        bool dashed = false;
    };

    /// Beside the ends that they name, moved apart where they would lie over each other.
    static void draw_labels(std::string& out, const std::vector<Label>& given) {
        constexpr double line_height = 16;
        std::vector<Label> labels;  // from top to bottom; those of one height in the order given
        for (const Label& label : given) {
            labels.insert(std::upper_bound(labels.begin(), labels.end(), label.y,
                                           [](double y, const Label& other) { return y < other.y; }),
                          label);
        }
        std::vector<double> places;
        for (const Label& label : labels) {
            places.push_back(places.empty() ? label.y : std::max(label.y, places.back() + line_height));
        }
        double limit = top + plot_height;
        for (std::size_t i = places.size(); i-- > 0; limit = places[i] - line_height) {
            places[i] = std::min(places[i], limit);
        }
        for (std::size_t i = 0; i < labels.size(); ++i) {
            const double x = margin + plot_width + 14;
            line(out, labels[i].from_x + 4, labels[i].y, x - 3, places[i], "#bbbbbb");
            text(out, x, places[i] + 4, "start", labels[i].name, labels[i].colour);
        }
    }
    static void text(std::string& out, double x, double y, const char* anchor, const std::string& content,
                     const char* colour = "#000000", int points = 13) {
        out += "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + anchor + "\" font-size=\"" +
               std::to_string(points) + "\" fill=\"" + colour + "\">";
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
    std::vector<std::pair<std::string, double>> levels_;
};

}  // namespace lab
