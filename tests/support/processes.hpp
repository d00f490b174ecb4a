// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of several processes.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace support {

/// A fresh folder of a file system in memory, removed at the end.
class MemoryFolder {
public:
    MemoryFolder() {
        char path[] = "/dev/shm/residency-test-XXXXXX";
        REQUIRE(::mkdtemp(path) != nullptr);
        folder_ = path;
    }
    MemoryFolder(const MemoryFolder&) = delete;
    MemoryFolder& operator=(const MemoryFolder&) = delete;
    ~MemoryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    [[nodiscard]] const std::string& folder() const { return folder_; }
    [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }

private:
    std::string folder_;
};

/// One end of a line between two processes: hear() returns when the other has said.
struct Line {
    int in = -1, out = -1;
    void say() const { static_cast<void>(::write(out, "!", 1) == 1); }
    void hear() const {
        char letter = 0;
        static_cast<void>(::read(in, &letter, 1) == 1);
    }
};

/// A child that runs `body(line)`, and succeeds where that returns true. It is killed with this object, if it runs then.
class Process {
public:
    template <class Body>
    explicit Process(Body body) {
        int down[2], up[2];
        REQUIRE(::pipe(down) == 0);
        REQUIRE(::pipe(up) == 0);
        child_ = ::fork();
        REQUIRE(child_ >= 0);
        const Line theirs{down[0], up[1]};
        line_ = {up[0], down[1]};
        if (child_ == 0) {
            ::close(line_.in), ::close(line_.out);
            ::_exit(body(theirs) ? 0 : 1);
        }
        ::close(theirs.in), ::close(theirs.out);
    }
    Process(Process&& other) noexcept : child_{std::exchange(other.child_, -1)}, line_{other.line_} {}
    Process& operator=(Process&&) = delete;
    ~Process() {
        if (child_ < 0) { return; }
        if (!is_over_) { kill(); }
        ::close(line_.in), ::close(line_.out);
    }

    [[nodiscard]] std::int64_t id() const noexcept { return child_; }
    [[nodiscard]] const Line& line() const noexcept { return line_; }
    /// Waits for its end.
    bool succeeded() {
        int status = 0;
        const bool ended = ::waitpid(child_, &status, 0) == child_;
        is_over_ = true;
        return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    /// Ends it at once, as if the system did.
    void kill() {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
        is_over_ = true;
    }

private:
    pid_t child_ = -1;
    Line line_;
    bool is_over_ = false;
};

}  // namespace support
