// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/lab/input.hpp"

#include <array>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "benchmarks/lab/trace/oracle_general.hpp"
#include "benchmarks/lab/trace/reader.hpp"
#include "benchmarks/lab/trace/route.hpp"
#include "residency/budget/budget.hpp"
#include "residency/model/file.hpp"
#include "residency/model/quoted.hpp"

namespace lab {

bool is_gzip(std::span<const std::byte> bytes) {
    return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

namespace {

bool is_regular(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}
bool begins_as_gzip(const std::string& path) {
    const auto file = residency::detail::open_regular_file(path);
    std::array<std::byte, 2> begin{};
    return file && std::fread(begin.data(), 1, begin.size(), file->get()) == begin.size() && is_gzip(begin);
}

/// All bytes of a regular file, or of a pipe: a trace may come from another program. Nothing else ends for sure.
residency::Result<std::vector<std::byte>> read_file_or_pipe(const std::string& path, std::uint64_t most_bytes) {
    std::error_code ignored;
    if (!std::filesystem::is_fifo(path, ignored)) { return residency::detail::read_file(path, most_bytes); }
    const residency::detail::FileHandle pipe{std::fopen(path.c_str(), "rb")};
    if (!pipe) {
        return residency::Error{residency::ErrorKind::io, residency::detail::quoted(path) + ": cannot be opened"};
    }
    return residency::detail::read_all(*pipe, path, most_bytes);
}

}  // namespace

residency::Result<std::vector<std::byte>> read_input(const std::string& path, std::uint64_t most_bytes) {
    auto bytes = read_file_or_pipe(path, most_bytes);
    if (!bytes || !is_gzip(*bytes)) { return bytes; }
    std::string word = "'";
    for (const char c : path) { word += c == '\'' ? std::string{"'\\''"} : std::string{c}; }
    word += "'";
    std::FILE* pipe = popen(("gzip -dc 2>/dev/null < " + word).c_str(), "r");
    if (pipe == nullptr) {
        return residency::Error{residency::ErrorKind::io,
                                residency::detail::quoted(path) + ": the program gzip cannot be started"};
    }
    auto out = residency::detail::read_all(*pipe, path, most_bytes);
    if (pclose(pipe) != 0 && out) {
        return residency::Error{residency::ErrorKind::malformed,
                                residency::detail::quoted(path) + ": gzip could not decompress it"};
    }
    return out;
}

residency::Result<lab::trace::Trace> read_trace(const std::string& path, const std::string& format,
                                                const lab::trace::CsvColumns& columns) {
    if (format == "residency" && is_regular(path) && !begins_as_gzip(path)) { return lab::trace::try_load(path); }
    auto bytes = read_input(path);
    if (!bytes) { return bytes.error(); }
    if (format == "residency") {
        residency::detail::FileHandle file{bytes->empty() ? std::tmpfile()
                                                          : fmemopen(bytes->data(), bytes->size(), "rb")};
        if (!file) {
            return residency::Error{residency::ErrorKind::io,
                                    residency::detail::quoted(path) + ": cannot be read in memory"};
        }
        auto reader = lab::trace::Reader::try_from(std::move(file), path);
        if (!reader) { return reader.error(); }
        return lab::trace::try_load(std::move(*reader), path);
    }
    const std::string_view text{reinterpret_cast<const char*>(bytes->data()), bytes->size()};
    if (format == "route") { return lab::trace::try_parse_route(text, path); }
    if (format == "csv") { return lab::trace::try_parse_csv(text, path, columns); }
    return lab::trace::try_parse_oracle_general(*bytes, path);
}

residency::Result<std::vector<AskedBudget>> parse_budgets(const std::vector<std::string>& texts,
                                                          std::uint64_t total_bytes) {
    std::vector<AskedBudget> budgets;
    residency::BudgetContext weights;
    weights.streamed_bytes = total_bytes;
    for (const std::string& text : texts) {
        const auto budget = residency::Budget::try_parse(text);
        if (!budget) { return budget.error(); }
        if (budget->kind() != residency::BudgetKind::bytes &&
            budget->kind() != residency::BudgetKind::percent_of_weights) {
            return residency::Error{residency::ErrorKind::invalid_argument,
                                    "budget " + residency::detail::quoted(text) +
                                        ": there is no device here, give bytes or a percentage of the weights"};
        }
        const auto resolved = budget->try_resolve(weights);
        if (!resolved) { return resolved.error(); }
        budgets.push_back({text, resolved->asked_bytes, budget->is_zero(),
                           budget->kind() == residency::BudgetKind::percent_of_weights});
    }
    return budgets;
}

}  // namespace lab
