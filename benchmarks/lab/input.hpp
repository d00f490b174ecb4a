// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "residency/budget/budget.hpp"
#include "residency/error.hpp"
#include "residency/model/file.hpp"
#include "residency/trace/csv.hpp"
#include "residency/trace/oracle_general.hpp"
#include "residency/trace/reader.hpp"
#include "residency/trace/route.hpp"
#include "residency/trace/trace.hpp"

namespace lab {

/// All bytes of a file; one that gzip compressed is decompressed by the program gzip.
inline residency::Result<std::vector<std::byte>> read_input(const std::string& path) {
    auto bytes = residency::detail::read_file(path, UINT64_MAX / 2);
    if (!bytes || bytes->size() < 2 || (*bytes)[0] != std::byte{0x1f} || (*bytes)[1] != std::byte{0x8b}) {
        return bytes;
    }
    std::string quoted = "'";
    for (const char c : path) { quoted += c == '\'' ? std::string{"'\\''"} : std::string{c}; }
    quoted += "'";
    std::FILE* pipe = popen(("gzip -dc < " + quoted).c_str(), "r");
    if (pipe == nullptr) {
        return residency::Error{residency::ErrorKind::io, quoted + ": the program gzip cannot be started"};
    }
    std::vector<std::byte> out;
    std::vector<std::byte> block(std::size_t{1} << 16);
    while (const std::size_t got = std::fread(block.data(), 1, block.size(), pipe)) {
        out.insert(out.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(got));
    }
    if (pclose(pipe) != 0) {
        return residency::Error{residency::ErrorKind::malformed, quoted + ": gzip could not decompress it"};
    }
    return out;
}

/// A trace in one of the formats route, oracle, csv (object in column 2, bytes in column 3) or residency.
inline residency::Result<residency::trace::Trace> read_trace(const std::string& path, const std::string& format,
                                                             const residency::trace::CsvColumns& columns = {}) {
    if (format == "residency") { return residency::trace::try_load(path); }
    const auto bytes = read_input(path);
    if (!bytes) { return bytes.error(); }
    const std::string_view text{reinterpret_cast<const char*>(bytes->data()), bytes->size()};
    if (format == "route") { return residency::trace::try_parse_route(text, path); }
    if (format == "csv") { return residency::trace::try_parse_csv(text, path, columns); }
    return residency::trace::try_parse_oracle_general(*bytes, path);
}

/// "128MiB,25%": bytes, or shares of `total_bytes`, of which no more than all.
inline residency::Result<std::vector<std::uint64_t>> parse_budgets(const std::vector<std::string>& texts,
                                                                   std::uint64_t total_bytes) {
    std::vector<std::uint64_t> budgets;
    for (const std::string& text : texts) {
        const auto budget = residency::Budget::try_parse(text);
        if (!budget) { return budget.error(); }
        switch (budget->kind()) {
            case residency::BudgetKind::bytes: budgets.push_back(budget->amount()); break;
            case residency::BudgetKind::percent_of_weights:
                budgets.push_back(static_cast<std::uint64_t>(
                    static_cast<double>(total_bytes) *
                    static_cast<double>(std::min(budget->amount(), std::uint64_t{100})) / 100));
                break;
            default:
                return residency::Error{
                    residency::ErrorKind::invalid_argument,
                    "budget \"" + text + "\": there is no device here, give bytes or a percentage of the weights"};
        }
    }
    return budgets;
}

}  // namespace lab
