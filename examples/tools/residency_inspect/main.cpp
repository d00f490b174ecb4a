// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0

// residency-inspect FILE [--json] [--content]: what is in a model file.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

#include "examples/support/standard_output.hpp"
#include "report.hpp"
#include "residency/format/aoti.hpp"
#include "residency/format/equal_storages.hpp"
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

int run(int argc, char** argv) {
    CLI::App app{"What is in a model file: safetensors (also sharded, by its .index.json), GGUF, AOTInductor"};
    app.set_version_flag("--version", std::to_string(RESIDENCY_VERSION_MAJOR) + '.' +
                                          std::to_string(RESIDENCY_VERSION_MINOR) + '.' +
                                          std::to_string(RESIDENCY_VERSION_PATCH));
    std::string path;
    bool json = false;
    bool content = false;
    app.add_option("FILE", path, "The model file")->required();
    app.add_flag("--json", json, "Print JSON");
    app.add_flag("--content", content, "Read the weights too, and show storages of equal content as one");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) { return app.exit(error); }
    auto model = residency::format::try_read_model_or_aoti(path);
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
