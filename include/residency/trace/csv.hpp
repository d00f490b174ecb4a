// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "residency/error.hpp"
#include "residency/model/ids.hpp"
#include "residency/trace/object_table.hpp"
#include "residency/trace/text_lines.hpp"
#include "residency/trace/trace.hpp"

namespace residency::inline RESIDENCY_ABI::trace {

/// Which column holds what, counted from 1, as libCacheSim counts them.
struct CsvColumns {
    std::size_t object = 2;  ///< text or a number
    std::size_t bytes = 3;   ///< 0: every object has one byte
    char separator = ',';
};

/// A trace of requests as comma-separated values, as libCacheSim reads them: one request a line, each a step. A first line whose
/// bytes are not a number is a heading; lines that begin with # are passed over. `source` names the text in messages.
[[nodiscard]] inline Result<Trace> try_parse_csv(std::string_view text, const std::string& source,
                                                 const CsvColumns& columns = {}) {
    Trace trace;
    trace.name = source;
    ObjectTable<std::string> objects{trace};
    TextLines lines{text, source};
    std::vector<std::string_view> parts;
    bool is_first = true;
    while (const auto line = lines.next()) {
        if (line->starts_with('#')) { continue; }
        TextLines::split(*line, columns.separator, parts);
        if (columns.object == 0 || parts.size() < columns.object || parts.size() < columns.bytes) {
            return lines.wrong(std::to_string(parts.size()) + " columns",
                               "an object in column " + std::to_string(columns.object) + " and bytes in column " +
                                   std::to_string(columns.bytes));
        }
        const std::optional<std::uint64_t> bytes = columns.bytes == 0 ? 1 : TextLines::number(parts[columns.bytes - 1]);
        if (!bytes && !is_first) {
            return lines.wrong("'" + std::string{parts[columns.bytes - 1]} + "'", "a number of bytes");
        }
        is_first = false;
        if (!bytes) { continue; }
        const StorageId id = objects.id_of(std::string{parts[columns.object - 1]}, *bytes);
        trace.add_step({&id, 1});
    }
    return trace;
}

}  // namespace residency::inline RESIDENCY_ABI::trace
