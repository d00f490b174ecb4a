// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// residency-inspect FILE... [--json] [--content] [--strict] [--key KEY] [--ggml-type TYPE]: what is in a model file, or in files
// that are one model.

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "examples/support/standard_output.hpp"
#include "program_report.hpp"
#include "report.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/equal_storages.hpp"
#include "residency/format/input.hpp"
#include "residency/format/open.hpp"
#include "residency/model/quoted.hpp"
#include "residency/version.hpp"

namespace {

constexpr int exit_bad_file = 2;

/// Draws how far a read is on the terminal, or nothing where the errors go elsewhere.
bool draw_bar(std::uint64_t done, std::uint64_t total) {
    constexpr int width = 40;
    if (::isatty(STDERR_FILENO) == 0 || total == 0) { return true; }
    const int full = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * width);
    std::fprintf(stderr, "\r[%.*s%*s] %s of %s", full, "########################################", width - full, "",
                 human(done).c_str(), human(total).c_str());
    if (done == total) { std::fputc('\n', stderr); }
    return true;
}

int bad_file(const residency::Error& error) {
    std::fprintf(stderr, "residency-inspect: %s\n", residency::detail::escaped(error.message()).c_str());
    return exit_bad_file;
}

/// Types of ggml from the command line; their names are those of `texts`, which must outlive them.
residency::Result<std::vector<residency::format::GgmlType>> ggml_types_of(std::vector<std::string>& texts) {
    std::vector<residency::format::GgmlType> types;
    for (std::string& text : texts) {
        const auto refused = [&](const std::string& why) {
            return residency::Error{residency::ErrorKind::invalid_argument,
                                    "--ggml-type " + text + ": " + why +
                                        "; give NUMBER:NAME:ELEMENTS:BYTES of a block, such as 36:I2_S:4:1"};
        };
        std::vector<std::string> fields{{}};
        for (const char c : text) {
            if (c == ':') {
                fields.emplace_back();
            } else {
                fields.back() += c;
            }
        }
        if (fields.size() != 4) { return refused("not four fields"); }
        std::array<std::uint64_t, 3> numbers{};
        constexpr std::array<std::size_t, 3> places{0, 2, 3};
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const std::string& field = fields[places[i]];
            const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), numbers[i]);
            if (error != std::errc{} || end != field.data() + field.size() || numbers[i] > UINT32_MAX) {
                return refused("a field is no number");
            }
        }
        const auto type = residency::DType::try_block(fields[1], numbers[2], numbers[1]);
        if (!type) { return refused(type.error().message()); }
        text = fields[1];
        types.push_back({static_cast<std::uint32_t>(numbers[0]), *type, text.c_str()});
    }
    return types;
}

int run(int argc, char** argv) {
    CLI::App app{
        "What is in a model file: safetensors (also sharded, by its .index.json), GGUF, PyTorch, AOTInductor,\n"
        "ExecuTorch; in the folder that holds one model; or in the program of a compiled model, as residency_export\n"
        "writes it"};
    app.footer("Exits with 2 where an argument or a file is refused, with 1 where the output cannot be written.");
    app.set_version_flag("--version", std::to_string(RESIDENCY_VERSION_MAJOR) + '.' +
                                          std::to_string(RESIDENCY_VERSION_MINOR) + '.' +
                                          std::to_string(RESIDENCY_VERSION_PATCH));
    std::vector<std::string> paths;
    std::vector<std::string> types;
    residency::format::ReadOptions options;
    bool json = false;
    bool content = false;
    app.add_option("FILE", paths,
                   "The model file or folder; several: parts of one model, or in order pieces of one file, or models "
                   "under a prefix each, as target=PATH draft=PATH")
        ->required();
    app.add_flag("--strict", options.strict, "Whatever would be passed over is an error");
    app.add_option("--key", options.key,
                   "PyTorch: the part with the tensors, such as state_dict; several as model,generator; * for all, . "
                   "for the outermost alone");
    app.add_option("--ggml-type", types, "GGUF: one more type, as NUMBER:NAME:ELEMENTS:BYTES of a block")
        ->allow_extra_args(false);
    app.add_flag("--json", json, "Print JSON");
    app.add_flag("--content", content, "Read the weights too, and show storages of equal content as one");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return error.get_exit_code() == 0 ? app.exit(error)
                                          : bad_file({residency::ErrorKind::invalid_argument, error.what()});
    }
    const auto ggml_types = ggml_types_of(types);
    if (!ggml_types) { return bad_file(ggml_types.error()); }
    options.ggml_types = *ggml_types;
    if (const auto program = paths.size() == 1 ? find_program(paths[0]) : std::nullopt) {
        if (!*program) { return bad_file(program->error()); }
        if (!options.key.empty()) {
            return bad_file({residency::ErrorKind::invalid_argument,
                             residency::detail::quoted(paths[0]) + ": --key chooses a part of what PyTorch saved, and "
                                                                   "this is a compiled program: leave it out"});
        }
        json ? print_json(**program) : print_table(**program);
        return 0;
    }
    const bool is_one = paths.size() == 1 && residency::format::Input::exists(paths[0]);  // else it may have a prefix
    auto model = is_one ? residency::format::try_read_model_or_aoti(paths[0], options)
                        : residency::format::try_read_model_parts(paths, options);
    if (!model) { return bad_file(model.error()); }
    if (content) {
        const auto equal = residency::format::try_find_equal_storages(*model, {.threads = 0, .progress = draw_bar});
        if (!equal) { return bad_file(equal.error()); }
        *model = residency::format::merge_storages(*model, *equal);
    }
    json ? print_json(*model) : print_table(*model);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return examples::finish_output("residency-inspect", run(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "residency-inspect: %s\n", residency::detail::escaped(error.what()).c_str());
        return 1;
    }
}
