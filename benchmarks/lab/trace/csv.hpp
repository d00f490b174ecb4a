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
    std::size_t object = 2;  ///< text or a number
    std::size_t bytes = 3;   ///< 0: every object has one byte
    char separator = ',';
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

}  // namespace detail

/// A trace of requests as comma-separated values, as libCacheSim reads them: one request a line, each a step. A heading is a first
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
    while (const auto line = lines.next()) {
        if (line->starts_with('#')) { continue; }
        TextLines::split(*line, columns.separator, parts);
        if (columns.object == 0 || parts.size() < columns.object || parts.size() < columns.bytes) {
            return lines.wrong(std::to_string(parts.size()) + " columns",
                               "an object in column " + std::to_string(columns.object) + " and bytes in column " +
                                   std::to_string(columns.bytes));
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
