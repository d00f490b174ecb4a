// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

/// What the benchmarks share that measure by themselves: timing, and the records that they leave in benchmarks/results.
namespace bench {

/// The value of a Result, or the end of the program with its error.
template <class R>
decltype(auto) require(R&& result, const char* call) {
    if (!result) {
        std::fprintf(stderr, "%s: %s\n", call, result.error().message().c_str());
        std::exit(1);
    }
    if constexpr (requires { *result; }) { return *std::forward<R>(result); }
}
#define BENCH_RESULT(call) ::bench::require((call), #call)

/// Of two in the middle, their mean.
[[nodiscard]] inline double median(std::vector<double> values) {
    std::ranges::sort(values);
    return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

/// The value at or above which 1 − q of the sorted values lie; 0 for none.
[[nodiscard]] inline double quantile(const std::vector<double>& sorted, double q) {
    if (sorted.empty()) { return 0.0; }
    return sorted[(std::min)(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
}

/// Seconds on the host.
template <class Work>
[[nodiscard]] double host_seconds(Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Collects records and writes them as <RESIDENCY_RESULTS or benchmarks/results>/<file>.json at its end. The commit comes
/// from RESIDENCY_COMMIT.
class HostRecords {
public:
    HostRecords(std::string file, int argc, char** argv) : file_{std::move(file)} {
        for (int i = 0; i < argc; ++i) {
            if (i > 0) { command_ += ' '; }
            command_ += argv[i];
        }
        if (const char* command = std::getenv("RESIDENCY_COMMAND")) { command_ = command; }
        if (const char* commit = std::getenv("RESIDENCY_COMMIT")) { commit_ = commit; }
        const std::time_t now = std::time(nullptr);
        std::tm utc{};
        char text[32];
        gmtime_r(&now, &utc);
        std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
        date_ = text;
    }
    HostRecords(const HostRecords&) = delete;
    HostRecords& operator=(const HostRecords&) = delete;
    ~HostRecords() { write(); }

    /// `target`: as ">= 40", or empty for a figure that nothing is asked of.
    void add(const std::string& name, double value, const std::string& unit, const std::string& target = "") {
        bool met = true;
        double wanted = 0;
        if (std::sscanf(target.c_str(), ">= %lf", &wanted) == 1) { met = value >= wanted; }
        if (std::sscanf(target.c_str(), "<= %lf", &wanted) == 1) { met = value <= wanted; }
        std::printf("%-52s %12.4g %-10s %s%s\n", name.c_str(), value, unit.c_str(), target.c_str(),
                    target.empty() ? "" : (met ? "  met" : "  MISSED"));
        std::fflush(stdout);
        char number[32];
        std::snprintf(number, sizeof number, "%.6g", value);
        entries_.push_back("  {\"name\": " + quoted(name) + ", \"value\": " + number + ", \"unit\": " + quoted(unit) +
                           ", \"target\": " + quoted(target) + ", \"command\": " + quoted(command_) + ", \"commit\": " +
                           quoted(commit_) + ", \"gpu\": " + quoted(gpu_) + ", \"date\": " + quoted(date_) + "}");
    }
    void write() {
        if (entries_.empty()) { return; }
        const char* folder = std::getenv("RESIDENCY_RESULTS");
        const std::string path = std::string{folder != nullptr ? folder : "benchmarks/results"} + "/" + file_ + ".json";
        std::FILE* out = std::fopen(path.c_str(), "w");
        if (out == nullptr) {
            std::fprintf(stderr, "cannot write %s: make its folder, or name one in RESIDENCY_RESULTS\n", path.c_str());
            return;
        }
        std::fputs("[\n", out);
        for (std::size_t i = 0; i < entries_.size(); ++i) {
            std::fprintf(out, "%s%s\n", entries_[i].c_str(), i + 1 < entries_.size() ? "," : "");
        }
        std::fputs("]\n", out);
        std::fclose(out);
    }

protected:
    std::string gpu_ = "none";

private:
    static std::string quoted(const std::string& text) {
        std::string out = "\"";
        for (const char c : text) {
            if (c == '"' || c == '\\') { out += '\\'; }
            if (static_cast<unsigned char>(c) >= 0x20) { out += c; }
        }
        return out + "\"";
    }
    std::string file_, command_, commit_ = "unknown", date_;
    std::vector<std::string> entries_;
};

}  // namespace bench
