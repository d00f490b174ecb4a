// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace decoder {

using examples::Checks;
using examples::text_of;
using examples::text_of_bytes;

void refuse(const std::string& what) { residency::throw_error({residency::ErrorKind::invalid_argument, what}); }

void print_table(const Results& results) {
    examples::Table table;
    table.row({"budget", "bytes", "of these KV cache", "weights gave way", "prompt", "a token", "bound", "regret",
               "with latency", "over that", "copied a token", "in copies"});
    for (const Outcome& outcome : results.outcomes) {
        const auto& statistics = outcome.statistics;
        const auto& pass = statistics.last_pass;
        const auto regret = statistics.regret();
        table.row({outcome.asked, text_of_bytes(outcome.budget.bytes), text_of_bytes(outcome.cache_bytes),
                   std::to_string(outcome.budget_changes) + " ×", text_of(outcome.prompt.time),
                   text_of(outcome.step.time), statistics.bound ? text_of(*statistics.bound) : "–",
                   regret ? text_of(100 * *regret, "%.1f %%") : "–", text_of(outcome.step.latency_floor),
                   text_of(outcome.step.over_floor(), "%.3f ×"), text_of_bytes(pass.fetched_bytes),
                   std::to_string(pass.calls)});
    }
    table.print();
}

namespace {

// 2⁻⁹ is half a unit in the last place of bf16; dozens of roundings follow one another.
constexpr double tolerance = 0.02;
// Of two runs that round at different places, each is as far as that from what is exact, independently of the other.
constexpr double tolerance_of_two = 0.028;
// Of the size of all logits: what is nearer to the best than this may be the best for bf16.
constexpr double tie = 0.05;

double size_of(const std::vector<float>& logits) {
    double square = 0;
    for (const float logit : logits) { square += double(logit) * double(logit); }
    return std::sqrt(square / double(logits.size()));
}

/// How far logits are from others: of the size of these, and at most.
struct Apart {
    double error = 0, square = 0, largest = 0;

    void add(const std::vector<float>& logits, const std::vector<float>& from) {
        for (std::size_t i = 0; i < logits.size(); ++i) {
            const double each = std::abs(double(logits[i]) - double(from[i]));
            largest = each > largest || std::isnan(each) ? each : largest;
            error += each * each;
            square += double(from[i]) * double(from[i]);
        }
    }
    [[nodiscard]] double relative() const { return std::sqrt(error / square); }
};

}  // namespace

Reference Reference::read(const std::string& path) {
    constexpr std::uint64_t most_bytes = std::uint64_t{256} << 20;
    const auto bytes = residency::detail::read_file(path, most_bytes);
    if (!bytes) {
        refuse("--expect " + bytes.error().message() + ": give a file that reference.py or --write-reference wrote");
    }
    std::istringstream file{std::string{reinterpret_cast<const char*>(bytes->data()), bytes->size()}};
    Reference reference;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#')) { continue; }
        std::istringstream values{line};
        auto& ids = reference.prompt.empty() ? reference.prompt : reference.tokens;
        if (reference.tokens.empty()) {
            for (std::uint64_t id = 0; values >> id;) { ids.push_back(id); }
        } else if (float value = 0; values >> value) {
            reference.logits.push_back(value);
        }
    }
    if (reference.logits.empty()) { refuse(path + ": it holds no reference: give a file that reference.py wrote"); }
    return reference;
}

void check_reference(const Outcome& outcome, const Reference& reference, Checks& checks) {
    const std::vector<float>& logits = outcome.logits.front();
    if (reference.logits.size() != logits.size()) {
        refuse("the reference has " + std::to_string(reference.logits.size()) + " logits, and the model " +
               std::to_string(logits.size()) + ": give the one that reference.py wrote for this model");
    }
    Apart apart;
    apart.add(logits, reference.logits);
    checks.check(apart.relative() <= tolerance, "the logits after the prompt are " +
                                                    text_of(100 * apart.relative(), "%.2f %%") +
                                                    " from those of the reference implementation (largest difference " +
                                                    text_of(apart.largest, "%.3f") + "; bf16 allows 2 %)");
    const std::size_t count = (std::min)(reference.tokens.size(), outcome.tokens.size());
    checks.check(
        std::equal(outcome.tokens.begin(), outcome.tokens.begin() + std::ptrdiff_t(count), reference.tokens.begin()),
        "the " + std::to_string(count) + " tokens equal those of the reference implementation");
}

void check_split(const Outcome& several, const Outcome& one, Checks& checks) {
    Apart apart;
    std::size_t equal = 0, others = 0;
    const std::size_t passes = (std::min)(several.tokens.size(), one.tokens.size());
    for (std::size_t i = 0; i < passes; ++i) {
        const std::uint64_t best = one.tokens[i], chosen = several.tokens[i];
        equal += best == chosen ? 1U : 0U;
        if (i >= (std::min)(several.logits.size(), one.logits.size())) { continue; }
        const std::vector<float>& logits = one.logits[i];
        apart.add(several.logits[i], logits);
        others += double(logits[best] - logits[chosen]) > tie * size_of(logits) ? 1U : 0U;
    }
    checks.check(apart.relative() <= tolerance_of_two && others == 0 && several.tokens.size() == one.tokens.size(),
                 several.asked + ": the logits of all passes are " + text_of(100 * apart.relative(), "%.2f %%") +
                     " from those of one GPU (bf16 allows 2.8 %), and " + std::to_string(equal) + " of " +
                     std::to_string(passes) + " tokens are the same" +
                     (equal == passes ? "" : ", " + std::to_string(others) + " of the others worse ones"));
}

void write_reference(const std::string& path, const Job& job, const Outcome& outcome) {
    const auto line_of = [](const std::vector<std::uint64_t>& ids) {
        std::string line;
        for (const std::uint64_t id : ids) { line += (line.empty() ? "" : " ") + std::to_string(id); }
        return line + "\n";
    };
    std::size_t certain = 0;
    for (; certain < outcome.tokens.size(); ++certain) {
        std::vector<float> logits = outcome.logits[certain];
        const double size = size_of(logits);
        std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>{});
        if (double(logits[0] - logits[1]) < tie * size) { break; }
    }
    if (certain == 0) {
        refuse("--write-reference: the first token is not clear enough to compare with: give other --tokens");
    }
    std::string text = "# A prompt, its greedy tokens, and the logits after the prompt.\n" + line_of(job.prompt) +
                       line_of({outcome.tokens.begin(), outcome.tokens.begin() + std::ptrdiff_t(certain)});
    for (const float logit : outcome.logits.front()) { text += text_of(double(logit), "%.6g\n"); }
    residency::unwrap(residency::detail::write_file(path, std::as_bytes(std::span{text})));
}

void write_json(const std::string& path, const Job& job, const Results& results) {
    const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>{time}.count(); };
    const auto timing = [&](const Timing& of) {
        return nlohmann::ordered_json{{"seconds", seconds(of.time)},
                                      {"passes", of.passes},
                                      {"link_bytes", of.link_bytes},
                                      {"bound_seconds", seconds(of.bound)},
                                      {"latency_floor_seconds", seconds(of.latency_floor)},
                                      {"predicted_seconds", seconds(of.predicted)}};
    };
    nlohmann::ordered_json json{{"device", results.device},
                                {"streamed_bytes", results.cold.model.catalog.streamed_bytes()},
                                {"prompt_tokens", job.prompt.size()},
                                {"load_first", job.load_first},
                                {"first_token_seconds", results.cold.token_seconds},
                                {"load_seconds", results.cold.load_seconds}};
    if (results.packed) {
        json["packed"] = {{"raw_bytes", results.packed->raw_bytes},
                          {"packed_bytes", results.packed->packed_bytes},
                          {"seconds", results.packed->seconds},
                          {"is_file", results.packed->is_file}};
    }
    for (const Outcome& outcome : results.outcomes) {
        json["runs"].push_back({{"budget", outcome.asked},
                                {"gpus", outcome.gpus},
                                {"budget_bytes", outcome.budget.bytes},
                                {"tokens", outcome.tokens.size()},
                                {"graph_steps", outcome.graph_steps},
                                {"copied_bytes", outcome.statistics.last_pass.fetched_bytes},
                                {"link_bytes_per_second", outcome.link_rates},
                                {"prompt", timing(outcome.prompt)},
                                {"step", timing(outcome.step)}});
    }
    const std::string text = json.dump(2) + "\n";
    residency::unwrap(residency::detail::write_file(path, std::as_bytes(std::span{text})));
}

}  // namespace decoder
