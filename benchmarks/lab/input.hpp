// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/lab/trace/csv.hpp"
#include "benchmarks/lab/trace/trace.hpp"
#include "residency/error.hpp"

namespace lab {

/// More than any published trace has.
inline constexpr std::uint64_t most_input_bytes = std::uint64_t{16} << 30;
/// All bytes of a regular file or of a pipe. A file that gzip, zstd, xz or bzip2 compressed is decompressed by that program.
/// Errors: io, where that program is not there too; malformed where there are more bytes than `most_bytes`, also after
/// decompression; unsupported where they are an archive, a web page, a Git LFS pointer, or compressed in a pipe.
residency::Result<std::vector<std::byte>> read_input(const std::string& path,
                                                     std::uint64_t most_bytes = most_input_bytes);

/// The value of digits, and a point with more of them; nothing for any other text.
inline std::optional<double> decimal(const std::string& text) {
    if (text.empty() || text.find_first_not_of("0123456789.") != std::string::npos) { return std::nullopt; }
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return *end == '\0' ? std::optional{value} : std::nullopt;
}

/// The formats of traces, for --help.
inline constexpr const char* trace_formats =
    R"(Formats of traces (a file that gzip, zstd, xz or bzip2 compressed is decompressed by that program; a pipe will do):
  route      the experts that a router chose, as text: lines "# layer=K expert_bytes=N", one a layer, and perhaps
             "n_expert=N"; a heading that names the columns turn, phase (0: prompt), step, layer and expert; then a
             line for each chosen expert, with commas
  oracle     libCacheSim's oracleGeneral: records of 24 bytes, little-endian: u32 time, u64 object, u32 bytes,
             i64 number of the next request
  csv        a request a line: an object in column 2 and its bytes in column 3. Between columns are commas, tabs or
             semicolons, as in the first line, or blanks in a file without these. A heading and lines that begin with #
             are passed over. `cache` takes --object-column, --bytes-column and --separator
  npy        the experts that a router chose, as a NumPy array [tokens, layers, chosen] of integers, such as vLLM's
             routed_experts, saved by numpy.save; for cache and router. Each expert has one byte: give budgets in
             percent. Each token is one for itself: leave out those of a prompt before you save it
  residency  what residency::TraceWriter (residency/model/trace_writer.hpp) wrote while a program ran)";

/// A trace in one of the formats route, oracle, csv (object in column 2, bytes in column 3), npy or residency.
residency::Result<lab::trace::Trace> read_trace(const std::string& path, const std::string& format,
                                                const lab::trace::CsvColumns& columns = {});

/// A budget in bytes, or as a share of `total_bytes`, which may be more than all.
struct AskedBudget {
    std::string text;
    std::uint64_t bytes = 0;
    bool is_zero = false;  ///< zero was asked: the floor
    bool is_share = false;
};
/// Of texts such as "128MiB" and "25%".
residency::Result<std::vector<AskedBudget>> parse_budgets(const std::vector<std::string>& texts,
                                                          std::uint64_t total_bytes);

}  // namespace lab
