// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "examples/support/standard_output.hpp"
#include "residency/error.hpp"
#include "residency/model/quoted.hpp"
#ifdef WITH_CUDA
#include "residency/device/cuda.hpp"
#endif

namespace examples {

/// What every example with models takes.
struct CommonSettings {
    std::string device = "auto";
    std::string cache;  ///< by default a folder beside that of the program
    std::string timeline;
    std::string report;

    void add_to(CLI::App& app) {
        std::error_code error;
        const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
        cache = error ? "models" : (program.parent_path().parent_path() / "models").string();
        add_device_to(app);
        app.add_option("--cache", cache, "where fetched or generated models are kept")
            ->check([](const std::string& folder) { return folder.empty() ? "name a folder" : ""; })
            ->capture_default_str();
        app.add_option("--timeline", timeline, "the file for the timeline; by default in the cache");
        app.add_option("--report", report, "a file for a page with the timeline and the figures");
    }
    void add_device_to(CLI::App& app) {
        app.add_option("--device", device, "auto, simulated or cuda")
            ->check(CLI::IsMember({"auto", "simulated", "cuda"}))
            ->capture_default_str();
    }
    /// Whether to run on a GPU: there is one, a driver for it, and this program was built for one; otherwise why not. Throws where
    /// cuda was asked for and there is none.
    [[nodiscard]] bool use_gpu(std::string& why_not) const {
        if (device == "simulated") { return false; }
#ifdef WITH_CUDA
        const auto opened = residency::CudaDevice::try_open(0);
        if (opened) { return true; }
        why_not = opened.error().message();
#else
        why_not = "this program was built without CUDA";
#endif
        if (device == "cuda") {
            residency::throw_error(
                {residency::ErrorKind::unsupported, why_not + ": leave --device out to run on the simulated device"});
        }
        return false;
    }
};

/// Reads the command line, then calls `run`, which returns what the program exits with; bad input is a line of message and 2, and
/// results that cannot be written are one and 1.
template <class Run>
int run_program(CLI::App& app, int argc, char** argv, Run&& run) {
    const std::string name = app.get_name();
    const auto refuse = [&](const std::exception& problem) {
        std::fprintf(stderr, "%s: %s\n", name.c_str(), residency::detail::escaped(problem.what()).c_str());
        return 2;
    };
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& wrong) {
        return wrong.get_exit_code() == 0 ? finish_output(name.c_str(), app.exit(wrong)) : refuse(wrong);
    }
    try {
        return finish_output(name.c_str(), run());
    } catch (const std::exception& problem) { return refuse(problem); }
}

}  // namespace examples
