// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// residency-pack MODEL OUT: the weights of a model in fewer bytes, bit for bit.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "examples/support/command_line.hpp"
#include "examples/support/terminal.hpp"
#include "residency/codec/packed_header.hpp"
#include "residency/codec/packed_part.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/packed.hpp"
#include "residency/model/packed_form.hpp"
#include "residency/version.hpp"

namespace {

using residency::PackedForm;
using Weight = residency::format::ModelFile::WeightEntry;

constexpr int exit_interrupted = 130;

volatile std::sig_atomic_t interrupted = 0;

extern "C" void interrupt(int) { interrupted = 1; }

/// A form for the weights whose names match a pattern.
struct Rule {
    std::string pattern;
    PackedForm form = PackedForm::raw;
};

/// Whether a name is the pattern, in which * stands for any text. Goes back to the last * only, so that no pattern takes long.
bool matches(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < pattern.size() && pattern[p] == name[n]) {
            ++p;
            ++n;
        } else if (star != std::string_view::npos) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    return pattern.substr(p).find_first_not_of('*') == std::string_view::npos;
}

/// "PATTERN=FORM". Throws what CLI11 shows as bad input.
Rule parse_rule(const std::string& text) {
    const std::size_t equals = text.rfind('=');
    const std::string form = equals == std::string::npos ? "" : text.substr(equals + 1);
    for (const PackedForm known : {PackedForm::raw, PackedForm::bf16_tiers, PackedForm::bf16_tiles,
                                   PackedForm::f8_e4m3_tiers, PackedForm::f32_tiers}) {
        if (residency::codec::form_name(static_cast<std::uint32_t>(known)) == form) {
            return {text.substr(0, equals), known};
        }
    }
    throw CLI::ValidationError(
        "--weight",
        "'" + text + "' is not PATTERN=FORM with raw, bf16_tiers, bf16_tiles, f8_e4m3_tiers or f32_tiers as FORM");
}

/// The form where no rule says one.
PackedForm usual_form(const residency::format::ModelFile& model, const Weight& weight, bool for_kernels) {
    const bool is_matrix = weight.shape.size() >= 2 && weight.strides.empty() && weight.offset_bytes == 0 &&
                           weight.bytes == model.storages[weight.storage].bytes;
    return for_kernels && is_matrix && weight.type == residency::dtype::bf16
               ? PackedForm::bf16_tiles
               : residency::codec::chunk_form(weight.type);
}

int pack(const std::string& model_path, const std::string& out_path, bool for_kernels, const std::vector<Rule>& rules,
         unsigned threads) {
    const auto model = residency::unwrap(residency::format::try_read_model_or_aoti(model_path));
    std::vector<bool> is_used(rules.size());
    for (const Weight& weight : model.weights) {
        for (std::size_t i = 0; i < rules.size(); ++i) {
            is_used[i] = is_used[i] || matches(rules[i].pattern, weight.name);
        }
    }
    if (const auto unused = std::find(is_used.begin(), is_used.end(), false); unused != is_used.end()) {
        const std::string& pattern = rules[static_cast<std::size_t>(unused - is_used.begin())].pattern;
        residency::throw_error({residency::ErrorKind::invalid_argument,
                                "--weight: no weight of the model is named like '" + pattern + "'"});
    }
    std::signal(SIGINT, interrupt);
    std::signal(SIGTERM, interrupt);
    examples::Progress bar{"packing"};
    residency::format::PackOptions options;
    options.threads = threads;
    options.form = [&](const Weight& weight) {
        for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
            if (matches(rule->pattern, weight.name)) { return rule->form; }
        }
        return usual_form(model, weight, for_kernels);
    };
    options.progress = [&](const residency::format::PackProgress& progress) {
        bar.show(progress.raw_bytes, progress.total_bytes);
        return interrupted == 0;
    };
    const auto report = residency::format::try_write_packed(model, out_path, options);
    bar.clear();
    if (!report && report.error().kind() == residency::ErrorKind::cancelled) {
        std::fprintf(stderr, "residency-pack: %s\n", report.error().message().c_str());
        return exit_interrupted;
    }
    if (!report) { residency::throw_error(report.error()); }

    const auto share = [](std::uint64_t part, std::uint64_t whole) {
        return whole == 0 ? std::string{"-"}
                          : examples::text_of(static_cast<double>(part) / static_cast<double>(whole), "%.4f");
    };
    examples::Table table;
    table.row({"form", "parts", "raw", "packed", "share"});
    for (const auto& [form, sum] : report->forms) {
        table.row({residency::codec::form_name(static_cast<std::uint32_t>(form)), std::to_string(sum.parts),
                   examples::text_of_bytes(sum.raw_bytes), examples::text_of_bytes(sum.packed_bytes),
                   share(sum.packed_bytes, sum.raw_bytes)});
    }
    table.row({"all", "", examples::text_of_bytes(report->raw_bytes), examples::text_of_bytes(report->packed_bytes),
               share(report->packed_bytes, report->raw_bytes)});
    table.print();
    const double seconds = std::chrono::duration<double>(report->elapsed).count();
    std::printf("\n%s: %s, every part unpacked again and compared; %.1f s\n", out_path.c_str(),
                examples::text_of_bytes(report->file_bytes).c_str(), seconds);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "Packs the weights of a model into fewer bytes, bit for bit. OUT is read by residency-inspect and by every "
        "program "
        "that reads models with the library; each part is unpacked again and compared before it is written.",
        "residency-pack"};
    app.set_version_flag("--version", std::to_string(RESIDENCY_VERSION_MAJOR) + '.' +
                                          std::to_string(RESIDENCY_VERSION_MINOR) + '.' +
                                          std::to_string(RESIDENCY_VERSION_PATCH));
    std::string model, out, purpose = "link";
    std::vector<std::string> texts;
    unsigned threads = 0;
    app.add_option("MODEL", model, "The model: safetensors, GGUF, PyTorch, AOTInductor or a manifest")->required();
    app.add_option("OUT", out, "The packed file; what is there is replaced when the new file is whole")->required();
    app.add_option("--for", purpose,
                   "link: the fewest bytes (bf16_tiers, f8_e4m3_tiers, f32_tiers, by type); kernels: bf16 matrices in "
                   "tiles that "
                   "kernels read as they are (bf16_tiles), the rest as for link")
        ->check(CLI::IsMember({"link", "kernels"}))
        ->capture_default_str();
    app.add_option("--weight", texts,
                   "PATTERN=FORM: another form for the weights of that name, in which * stands for any text; raw, "
                   "bf16_tiers, "
                   "bf16_tiles, f8_e4m3_tiers or f32_tiers, where it takes the type. The last that matches counts")
        ->allow_extra_args(false);
    app.add_option("--threads", threads, "How many pack; 0: as many as the machine has")->capture_default_str();
    return examples::run_program(app, argc, argv, [&] {
        std::vector<Rule> rules;
        for (const std::string& text : texts) { rules.push_back(parse_rule(text)); }
        return pack(model, out, purpose == "kernels", rules, threads);
    });
}
