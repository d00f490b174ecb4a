// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/lab/input.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "benchmarks/lab/trace/npy.hpp"
#include "benchmarks/lab/trace/oracle_general.hpp"
#include "benchmarks/lab/trace/reader.hpp"
#include "benchmarks/lab/trace/route.hpp"
#include "residency/budget/budget.hpp"
#include "residency/model/file.hpp"
#include "residency/model/quoted.hpp"

namespace lab {

namespace {

bool is_regular(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
}

/// As many bytes as tell what a file is.
constexpr std::size_t begin_bytes = 512;

std::string_view begin_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), begin_bytes)};
}
/// Empty where the file cannot be read, which is said when all of it is.
std::string begin_of_file(const std::string& path) {
    const auto file = residency::detail::open_regular_file(path);
    std::string begin(begin_bytes, '\0');
    begin.resize(file ? std::fread(begin.data(), 1, begin.size(), file->get()) : 0);
    return begin;
}

/// The program that decompresses what begins so; empty where nothing is compressed.
std::string_view decompressor_of(std::string_view begin) {
    using namespace std::string_view_literals;
    if (begin.starts_with("\x1f\x8b"sv)) { return "gzip"; }
    if (begin.starts_with("\x28\xb5\x2f\xfd"sv)) { return "zstd"; }
    if (begin.starts_with("\xfd\x37zXZ\0"sv)) { return "xz"; }
    // A time may look like the first four bytes; the next six are those of a block, or of the end.
    if (begin.starts_with("BZh"sv) && begin.size() >= 10 &&
        (begin.substr(4, 6) == "\x31\x41\x59\x26\x53\x59"sv || begin.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"sv)) {
        return "bzip2";
    }
    return {};
}

/// What begins so and is no trace, and what to do; empty where it may be one.
std::string_view no_trace(std::string_view begin) {
    using namespace std::string_view_literals;
    if (begin.starts_with("version https://git-lfs.github.com/spec/"sv)) {
        return "a Git LFS pointer and not the trace that it stands for; git lfs pull in its repository";
    }
    constexpr std::string_view unpack = "an archive of files; unpack it and give a trace in it";
    if (begin.starts_with("PK\3\4"sv) && begin.size() > 5 && begin[5] == '\0') { return unpack; }
    if (begin.starts_with("7z\xbc\xaf\x27\x1c"sv) || begin.starts_with("Rar!\x1a\x07"sv)) { return unpack; }
    constexpr std::size_t tar_magic = 257;
    if (begin.size() > tar_magic && begin.substr(tar_magic).starts_with("ustar"sv)) { return unpack; }
    if (begin.starts_with("\x04\x22\x4d\x18"sv)) { return "compressed by lz4; decompress it first: lz4 -d"; }
    begin.remove_prefix(begin.starts_with("\xef\xbb\xbf"sv) ? 3 : 0);
    begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
    for (const std::string_view tag : {"<!doctype html"sv, "<html"sv, "<head"sv, "<?xml"sv}) {
        const auto is_same = [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b); };
        if (begin.size() >= tag.size() && std::equal(tag.begin(), tag.end(), begin.begin(),
                                                     [&](char wanted, char found) { return is_same(found, wanted); })) {
            return "a web page; download the trace again, and log in first if its page asks for that";
        }
    }
    return {};
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
    if (!bytes) { return bytes; }
    const std::string name = residency::detail::quoted(path);
    const std::string program{decompressor_of(begin_of(*bytes))};
    if (!program.empty()) {
        if (!is_regular(path)) {  // a pipe gives its bytes once
            return residency::Error{residency::ErrorKind::unsupported,
                                    name + ": compressed; put " + program + " -dc before the pipe"};
        }
        std::string word = "'";
        for (const char c : path) { word += c == '\'' ? std::string{"'\\''"} : std::string{c}; }
        word += "'";
        std::FILE* pipe = popen((program + " -dc 2>/dev/null < " + word).c_str(), "r");
        if (pipe == nullptr) {
            return residency::Error{residency::ErrorKind::io, name + ": the program " + program + " cannot be started"};
        }
        bytes = residency::detail::read_all(*pipe, path, most_bytes);
        const int status = pclose(pipe);
        constexpr int not_found = 127;  // of a shell
        if (WIFEXITED(status) && WEXITSTATUS(status) == not_found) {
            return residency::Error{residency::ErrorKind::io, name + ": compressed by " + program +
                                                                  ", and there is no such program here; install it, or "
                                                                  "decompress the file elsewhere: " +
                                                                  program + " -d"};
        }
        if (status != 0 && bytes) {
            return residency::Error{residency::ErrorKind::malformed,
                                    name + ": " + program + " could not decompress it"};
        }
        if (!bytes) { return bytes; }
        if (const auto again = decompressor_of(begin_of(*bytes)); !again.empty()) {
            return residency::Error{residency::ErrorKind::unsupported,
                                    name + ": compressed twice; decompress it first: " + program + " -d"};
        }
    }
    if (const auto other = no_trace(begin_of(*bytes)); !other.empty()) {
        return residency::Error{residency::ErrorKind::unsupported, name + ": " + std::string{other}};
    }
    return bytes;
}

residency::Result<lab::trace::Trace> read_trace(const std::string& path, const std::string& format,
                                                const lab::trace::CsvColumns& columns) {
    if (format == "residency" && is_regular(path)) {
        const std::string begin = begin_of_file(path);
        if (decompressor_of(begin).empty() && no_trace(begin).empty()) { return lab::trace::try_load(path); }
    }
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
    if (format == "npy") { return lab::trace::try_parse_npy(*bytes, path); }
    if (text.starts_with(lab::trace::npy_magic)) {
        return residency::Error{residency::ErrorKind::unsupported,
                                residency::detail::quoted(path) + ": a NumPy array; give --format npy"};
    }
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
