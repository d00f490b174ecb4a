// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace encoder {

using examples::Checks;
using examples::Table;
using examples::text_of;
using examples::text_of_bytes;

const std::vector<std::string> known_sentences{
    "The cat sits outside.",
    "A kitten is sitting in the garden.",
    "A man is playing the guitar.",
    "Someone plays an instrument on a stage.",
    "The new movie is awesome!",
    "It's a great film; I loved it.",
    "Weights stream to the GPU while it computes.",
    "Café Müller serves crème brûlée in Zürich.",
};

namespace {

// Of the known sentences, made by reference/make.py: what the published model gives, and the generated one.
constexpr float reference_published[] = {
#include "reference/published.txt"
};
constexpr float reference_generated[] = {
#include "reference/generated.txt"
};
constexpr float tolerance = 2e-5F;

template <std::size_t n>
float difference(const std::vector<float>& embeddings, const float (&reference)[n]) {
    if (embeddings.size() != n) { return INFINITY; }
    float largest = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float each = std::abs(embeddings[i] - reference[i]);
        largest = each > largest || std::isnan(each) ? each : largest;
    }
    return largest;
}

}  // namespace

void print_similarities(const std::vector<std::string>& sentences, const std::vector<float>& embeddings) {
    const std::size_t width = embeddings.size() / sentences.size();
    Table table;
    std::vector<std::string> head{"which sentences are alike"};
    for (std::size_t i = 0; i < sentences.size(); ++i) { head.push_back(std::to_string(i + 1)); }
    table.row(head);
    for (std::size_t a = 0; a < sentences.size(); ++a) {
        std::vector<std::string> cells{std::to_string(a + 1) + "  " + sentences[a]};
        for (std::size_t b = 0; b <= a; ++b) {
            double product = 0;
            for (std::size_t i = 0; i < width; ++i) {
                product += double(embeddings[a * width + i]) * double(embeddings[b * width + i]);
            }
            cells.push_back(a == b ? "·" : text_of(product, "%.2f"));
        }
        table.row(std::move(cells));
    }
    table.print();
}

bool equal_bits(const std::vector<std::vector<float>>& passes, const std::vector<float>& expected) {
    return std::all_of(passes.begin(), passes.end(), [&](const std::vector<float>& pass) {
        return pass.size() == expected.size() &&
               std::memcmp(pass.data(), expected.data(), expected.size() * sizeof(float)) == 0;
    });
}

void check_reference(const std::vector<float>& embeddings, const Source& source, bool is_own, Checks& checks) {
    const float published = difference(embeddings, reference_published),
                generated = difference(embeddings, reference_generated);
    if (is_own && !((std::min)(published, generated) <= tolerance)) {
        std::printf("  - no reference for a model of your own\n");
    } else {
        const float apart = source.generated ? generated : !is_own ? published : (std::min)(published, generated);
        checks.check(apart <= tolerance, "they equal those of the reference implementation within " +
                                             text_of(double(tolerance), "%.0e") + " (largest difference " +
                                             text_of(double(apart), "%.1e") + ")");
    }
}

void print_presets(const Results& results, Checks& checks) {
    std::printf("\n");
    Table table;
    table.row({"through every preset", "budget", "held", "copied a pass", "hits", "prefetched", "missed",
               "a pass takes", "of the bound"});
    bool raised = false;
    for (const auto& [name, outcome] : results.presets) {
        const auto& statistics = outcome.statistics;
        const auto& pass = statistics.last_pass;
        raised = raised || outcome.is_raised;
        const bool has_times = statistics.pass_time && statistics.bound && statistics.bound->count() > 0;
        table.row({name, text_of_bytes(outcome.budget.bytes) + (outcome.is_raised ? "*" : " "),
                   text_of_bytes(statistics.held_bytes), text_of_bytes(pass.fetched_bytes), std::to_string(pass.hits),
                   std::to_string(pass.prefetch_hits), std::to_string(pass.demand_misses),
                   statistics.pass_time ? text_of(*statistics.pass_time) : "–",
                   has_times
                       ? text_of(double(statistics.pass_time->count()) / double(statistics.bound->count()), "%.2f ×")
                       : "–"});
    }
    table.print();
    if (raised) { std::printf("  * the smallest that this pool works with\n"); }
    const auto& expected = results.resident.passes.front();
    checks.check(std::all_of(results.presets.begin(), results.presets.end(),
                             [&](const auto& preset) { return equal_bits(preset.second.passes, expected); }),
                 "the embeddings of every preset equal those of the resident run bit for bit");
}

void print_packed(const Results& results, Checks& checks) {
    const PackedResults& all = results.packed;
    std::printf("\npacked    %s instead of %s (%.3f)\n\n", text_of_bytes(all.packed_bytes).c_str(),
                text_of_bytes(all.raw_bytes).c_str(), double(all.packed_bytes) / double(all.raw_bytes));
    Table table;
    table.row({"in turns", "budget", "held", "copied a pass", "unpacked", "a pass takes"});
    const auto add = [&](const char* name, const Outcome& outcome) {
        const auto& statistics = outcome.statistics;
        table.row({name, text_of_bytes(outcome.budget.bytes) + (outcome.is_raised ? "*" : " "),
                   text_of_bytes(statistics.held_bytes), text_of_bytes(statistics.last_pass.fetched_bytes),
                   text_of_bytes(statistics.last_pass.unpacked_bytes),
                   statistics.pass_time ? text_of(*statistics.pass_time) : "–"});
    };
    for (std::size_t turn = 0; turn < all.raw.size(); ++turn) {
        add("Planned", all.raw[turn]);
        add("Packed", all.packed[turn]);
    }
    table.print();
    bool equal = true, fits = true;
    for (const auto* each : {&all.raw, &all.packed}) {
        for (const Outcome& outcome : *each) {
            equal = equal && equal_bits(outcome.passes, results.resident.passes.front());
            fits = fits && outcome.statistics.held_bytes <= outcome.budget.bytes;
        }
    }
    checks.check(equal, "with packed weights the embeddings of " + std::to_string(all.packed.front().passes.size()) +
                            " passes a turn equal those of the resident run bit for bit");
    checks.check(fits, "each turn kept its budget");
}

}  // namespace encoder
