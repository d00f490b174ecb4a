// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "benchmarks/lab/trace/object_table.hpp"
#include "benchmarks/lab/trace/text_lines.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/model/quoted.hpp"

namespace lab::trace {

using namespace residency;

/// Which column holds what, counted from 1, as libCacheSim counts them.
struct CsvColumns {
    std::size_t object = 2;           ///< text or a number
    std::size_t bytes = 3;            ///< 0: every object has one byte
    std::optional<char> separator{};  ///< a blank: any run of blanks and tabs. None: as separator_of() finds
};

namespace detail {

/// Whether a part of a line begins as numbers do, of which a heading has none.
[[nodiscard]] inline bool begins_as_number(std::string_view part) noexcept {
    const std::size_t sign = part.starts_with('-') || part.starts_with('+') ? 1 : 0;
    return part.size() > sign && part[sign] >= '0' && part[sign] <= '9';
}
[[nodiscard]] inline bool has_number(const std::vector<std::string_view>& parts) noexcept {
    return std::any_of(parts.begin(), parts.end(), begins_as_number);
}

/// The separator of a text whose first line this is: of comma, tab and semicolon the first that gives two columns there and all
/// that are needed. A blank, where a column beyond the first is needed and no line but comments has any of the three: objects
/// may have blanks inside. Otherwise a comma.
[[nodiscard]] inline char separator_of(std::string_view first, std::string_view text, std::size_t columns) {
    std::vector<std::string_view> parts;
    for (const char separator : {',', '\t', ';'}) {
        TextLines::split(first, separator, parts);
        if (parts.size() >= (std::max)(columns, std::size_t{2})) { return separator; }
    }
    TextLines lines{text, {}};
    while (const auto line = columns > 1 ? lines.next() : std::nullopt) {
        if (!line->starts_with('#') && line->find_first_of(",\t;") != std::string_view::npos) { return ','; }
    }
    return columns > 1 ? ' ' : ',';
}

}  // namespace detail

/// A trace of requests in columns, as libCacheSim reads them: one request a line, each a step. A heading is a first
/// line whose bytes are not a number, or, where no column has bytes, one without numbers before a line that has some. Lines that
/// begin with # are passed over. A heading alone is an error. `source` names the text in messages.
[[nodiscard]] inline Result<Trace> try_parse_csv(std::string_view text, const std::string& source,
                                                 const CsvColumns& columns = {}) {
    Trace trace;
    trace.name = source;
    ObjectTable<std::string> objects{trace};
    TextLines lines{text, source};
    std::vector<std::string_view> parts;
    bool is_first = true;
    std::optional<std::string_view> unreadable;       // bytes of a first line, which may be a heading
    std::optional<std::string_view> without_numbers;  // a first line's object, where it may be a heading
    const auto request = [&](std::string_view object, std::uint64_t bytes) {
        const StorageId id = objects.id_of(std::string{object}, bytes);
        trace.add_step({&id, 1});
    };
    std::optional<char> separator = columns.separator;
    while (const auto line = lines.next()) {
        if (line->find('\0') != std::string_view::npos) { return lines.wrong("a byte that is zero", "text"); }
        if (line->starts_with('#')) { continue; }
        if (!separator) { separator = detail::separator_of(*line, text, (std::max)(columns.object, columns.bytes)); }
        TextLines::split(*line, *separator, parts);
        if (columns.object == 0 || parts.size() < columns.object || parts.size() < columns.bytes) {
            return lines.wrong(std::to_string(parts.size()) + " columns",
                               "an object in column " + std::to_string(columns.object) + " and bytes in column " +
                                   std::to_string(columns.bytes) +
                                   (columns.separator ? ""
                                                      : ", with commas, tabs or semicolons between, or blanks in a "
                                                        "text without these; residency-lab cache --separator says "
                                                        "which"));
        }
        const std::optional<std::uint64_t> bytes = columns.bytes == 0 ? 1 : TextLines::number(parts[columns.bytes - 1]);
        if (!bytes && is_first) { unreadable = parts[columns.bytes - 1]; }
        if (!bytes && !is_first) {
            return lines.wrong(residency::detail::quoted(parts[columns.bytes - 1]), "a number of bytes");
        }
        const std::string_view object = parts[columns.object - 1];
        if (std::exchange(is_first, false) && columns.bytes == 0 && !detail::has_number(parts)) {
            without_numbers = object;
            continue;
        }
        if (without_numbers && !detail::has_number(parts)) { request(*without_numbers, 1); }
        without_numbers.reset();
        if (bytes) { request(object, *bytes); }
    }
    if (without_numbers) { request(*without_numbers, 1); }
    if (unreadable && trace.accesses.empty()) {
        return lines.wrong(residency::detail::quoted(*unreadable),
                           "a number of bytes: this line is a heading only where a request follows");
    }
    if (auto fits = trace.try_check_sums(source); !fits) { return fits.error(); }
    return trace;
}

}  // namespace lab::trace
