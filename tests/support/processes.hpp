// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests of several processes.

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "residency/device/cuda_host_memory.hpp"

namespace support {

/// Whether tests of shared host bytes have to be left out, since /dev/shm is no file system in memory with room for them; says so then.
inline bool lacks_shared_memory() {
    constexpr std::uint64_t needed = std::uint64_t{32} << 20;
    struct statfs system = {};
    const char* missing = nullptr;
    if (::statfs("/dev/shm", &system) != 0 || system.f_type != residency::detail::memory_file_system) {
        missing = "/dev/shm is no file system in memory: mount a tmpfs there";
    } else if (struct statvfs room = {}; ::statvfs("/dev/shm", &room) == 0 && room.f_blocks != 0 &&
                                         std::uint64_t{room.f_bavail} * std::uint64_t{room.f_frsize} < needed) {
        missing = "/dev/shm has less than 32 MiB left: mount it with a larger size=";
    }
    if (missing != nullptr) { std::printf("SKIPPED: tests of shared host bytes: %s\n", missing); }
    return missing != nullptr;
}

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

/// One end of a line between two processes: hear() returns when the other has said, or has ended.
struct Line {
    int end = -1;
    void say() const { static_cast<void>(::send(end, "!", 1, MSG_NOSIGNAL) == 1); }
    void hear() const {
        char letter = 0;
        static_cast<void>(::read(end, &letter, 1) == 1);
    }
};

/// A child that runs `body(line)`, and succeeds where that returns true. It is killed with this object, if it runs then.
class Process {
public:
    template <class Body>
    explicit Process(Body body) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        child_ = ::fork();
        REQUIRE(child_ >= 0);
        line_ = {ends[0]};
        if (child_ == 0) {
            ::close(ends[0]);
            ::_exit(body(Line{ends[1]}) ? 0 : 1);
        }
        ::close(ends[1]);
    }
    Process(Process&& other) noexcept : child_{std::exchange(other.child_, -1)}, line_{other.line_} {}
    Process& operator=(Process&&) = delete;
    ~Process() {
        if (child_ < 0) { return; }
        if (!is_over_) { kill(); }
        ::close(line_.end);
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
