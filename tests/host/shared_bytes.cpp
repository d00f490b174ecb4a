// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
// Processes that share host bytes. Children are forked; sockets order what they do.
#include "residency/host/shared_bytes.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../support/files.hpp"
#include "../support/processes.hpp"
#include "residency/device/cuda_host_memory.hpp"
#include "residency/simulation/simulated_device.hpp"

namespace shared_bytes_test {

using namespace residency;
using host::SharedHostBytes;
using support::Line;
using support::MemoryFolder;
using support::Process;

namespace {

constexpr host::SharedContents contents{.bytes = 10000, .model = 7};

/// Fills bytes with a letter.
SharedHostBytes::Fill letters(char letter) {
    return [letter](std::span<std::byte> to) {
        std::memset(to.data(), letter, to.size());
        return Status{};
    };
}
bool is_all(const SharedHostBytes& shared, char letter) {
    const auto bytes = shared.bytes()->span();
    return std::all_of(bytes.begin(), bytes.end(), [letter](std::byte b) { return b == std::byte(letter); });
}
/// Bytes that are there, made by this process.
SharedHostBytes make(const MemoryFolder& folder, char letter = 'a') {
    auto made = SharedHostBytes::try_open("x", contents, letters(letter), {.folder = folder.folder()});
    REQUIRE(made);
    CHECK(made->is_maker());
    return std::move(*made);
}
void check_refused(const Result<SharedHostBytes>& result, ErrorKind kind, std::string_view text) {
    REQUIRE_FALSE(result);
    CHECK(result.error().kind() == kind);
    CAPTURE(result.error().message());
    CHECK(result.error().message().find(text) != std::string::npos);
}
/// Writes over the file of the bytes.
void overwrite(const MemoryFolder& folder, std::uint64_t at, std::string_view bytes) {
    std::FILE* const file = std::fopen(folder.file("residency-x").c_str(), "r+");
    REQUIRE(file != nullptr);
    std::fseek(file, static_cast<long>(at), SEEK_SET);
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
}
constexpr std::uint64_t bytes_at = std::uint64_t{2} << 20;  // where they begin in the file

}  // namespace

TEST_SUITE_BEGIN("shared host bytes" * doctest::skip(support::lacks_shared_memory()));

TEST_CASE("shared bytes: the first process writes them, others map the same, and they outlive all of them") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    CHECK_FALSE(SharedHostBytes::find("x", options));
    Process maker{[&](Line) {
        const auto made = SharedHostBytes::try_open("x", contents, letters('a'), options);
        return made && made->is_maker() && is_all(*made, 'a');
    }};
    CHECK(maker.succeeded());
    for (int i = 0; i < 2; ++i) {
        Process user{[&](Line) {
            const auto found = SharedHostBytes::try_open("x", contents, letters('b'), options);
            return found && !found->is_maker() && is_all(*found, 'a') && found->state().maker == maker.id() &&
                   found->try_verify();
        }};
        CHECK(user.succeeded());
    }
    const auto opened = SharedHostBytes::open("x", contents, nullptr, options);  // nothing to write them with
    CHECK(is_all(opened, 'a'));
    CHECK(opened.bytes()->kind() == HostMemory::pageable);
    CHECK(opened.bytes()->bytes() == contents.bytes);
    const auto state = SharedHostBytes::find("x", options);
    REQUIRE(state);
    CHECK(state->is_whole);
    CHECK(state->contents == contents);
    CHECK(state->maker == maker.id());
    CHECK(state->users == std::vector<std::int64_t>{::getpid()});
    struct stat status = {};
    REQUIRE(::stat(state->path.c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600);
}

TEST_CASE("shared bytes: who comes while they are written is told by whom, or waits for them") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    Process maker{[&](Line line) {
        const auto made = SharedHostBytes::try_open(
            "x", contents,
            [&](std::span<std::byte> to) {
                line.say();
                line.hear();
                return letters('a')(to);
            },
            options);
        return made && made->is_maker();
    }};
    maker.line().hear();  // it writes
    check_refused(SharedHostBytes::try_open("x", contents, letters('b'), {.folder = folder.folder(), .wait = false}),
                  ErrorKind::wrong_state, "being written by process " + std::to_string(maker.id()));
    CHECK_FALSE(SharedHostBytes::find("x", options)->is_whole);
    Process waiting{[&](Line line) {
        line.say();
        const auto found = SharedHostBytes::try_open("x", contents, letters('b'), options);
        return found && !found->is_maker() && is_all(*found, 'a');
    }};
    waiting.line().hear();
    maker.line().say();
    CHECK(maker.succeeded());
    CHECK(waiting.succeeded());
}

TEST_CASE("shared bytes: of processes that begin at once, one writes and all have the bytes") {
    for (int round = 0; round < 10; ++round) {
        const MemoryFolder folder;
        const auto fill = [&](std::span<std::byte> to) {
            support::write_all(folder.file("writer " + std::to_string(::getpid())), "");
            return letters('a')(to);
        };
        std::vector<Process> all;
        for (int i = 0; i < 6; ++i) {
            all.emplace_back([&](Line line) {
                line.hear();
                const auto shared = SharedHostBytes::try_open("x", contents, fill, {.folder = folder.folder()});
                return shared && is_all(*shared, 'a');
            });
        }
        for (const Process& each : all) { each.line().say(); }
        for (Process& each : all) { CHECK(each.succeeded()); }
        const std::filesystem::directory_iterator files{folder.folder()};
        CHECK(std::distance(begin(files), end(files)) == 2);  // the bytes, and what one writer left
    }
}

TEST_CASE("shared bytes: a writer that is killed harms nobody, the next process writes anew, one that waits too") {
    for (const bool waits : {false, true}) {
        const MemoryFolder folder;
        Process maker{[&](Line line) {
            const auto made = SharedHostBytes::try_open("x", contents,
                                                        [&](std::span<std::byte> to) {
                                                            std::memset(to.data(), 'a', to.size() / 2);
                                                            line.say();
                                                            line.hear();  // for ever
                                                            return Status{};
                                                        },
                                                        {.folder = folder.folder()});
            return made.has_value();
        }};
        maker.line().hear();
        std::optional<Process> waiting;
        const auto take_over = [&](Line line) {
            line.say();
            const auto made = SharedHostBytes::try_open("x", contents, letters('b'), {.folder = folder.folder()});
            return made && made->is_maker() && is_all(*made, 'b');
        };
        if (waits) {
            waiting.emplace(take_over);
            waiting->line().hear();
        }
        maker.kill();
        if (waits) {
            CHECK(waiting->succeeded());
        } else {
            CHECK_FALSE(SharedHostBytes::find("x", {.folder = folder.folder()})->is_whole);
            check_refused(SharedHostBytes::try_open("x", contents, nullptr, {.folder = folder.folder()}),
                          ErrorKind::wrong_state, "was not written to its end");
            CHECK(Process{take_over}.succeeded());
        }
        const auto found = SharedHostBytes::open("x", contents, nullptr, {.folder = folder.folder(), .verify = true});
        CHECK(is_all(found, 'b'));
    }
}

TEST_CASE("shared bytes: a user that is killed is no user any more, and others read on") {
    const MemoryFolder folder;
    const auto mine = make(folder);
    Process user{[&](Line line) {
        const auto found = SharedHostBytes::try_open("x", contents, nullptr, {.folder = folder.folder()});
        line.say();
        line.hear();  // for ever
        return found.has_value();
    }};
    user.line().hear();
    auto both = std::vector<std::int64_t>{::getpid(), user.id()};
    std::sort(both.begin(), both.end());
    CHECK(mine.state().users == both);
    user.kill();
    CHECK(mine.state().users == std::vector<std::int64_t>{::getpid()});
    CHECK(is_all(mine, 'a'));
}

TEST_CASE("shared bytes: removed while they are mapped, they go on, and the name is free") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    const auto before = make(folder, 'a');
    const auto removed = SharedHostBytes::remove("x", options);
    REQUIRE(removed);
    CHECK(removed->users == std::vector<std::int64_t>{::getpid()});
    CHECK_FALSE(SharedHostBytes::find("x", options));
    CHECK_FALSE(SharedHostBytes::remove("x", options));
    check_refused(SharedHostBytes::try_open("x", contents, nullptr, options), ErrorKind::wrong_state, "is not there");
    const auto after = make(folder, 'b');
    CHECK(is_all(before, 'a'));
    CHECK(before.try_verify());
    CHECK(is_all(after, 'b'));
}

TEST_CASE("shared bytes: removed while somebody waits for them, that process makes new ones") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    Process maker{[&](Line line) {
        const auto fill = [&](std::span<std::byte> to) {
            line.say();
            line.hear();
            return letters('a')(to);
        };
        const auto made = SharedHostBytes::try_open("x", contents, fill, options);
        return made && is_all(*made, 'a');
    }};
    maker.line().hear();
    Process next{[&](Line line) {
        line.say();
        const auto made = SharedHostBytes::try_open("x", contents, letters('b'), options);
        return made && made->is_maker() && is_all(*made, 'b');
    }};
    next.line().hear();
    const auto removed = SharedHostBytes::remove("x", options);
    maker.line().say();
    CHECK(maker.succeeded());
    CHECK(next.succeeded());
    CHECK(is_all(SharedHostBytes::open("x", contents, nullptr, options), 'b'));
}

TEST_CASE("shared bytes: what was cut is refused before a byte of it is read") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    for (const std::uint64_t bytes : {bytes_at + 4096, std::uint64_t{5000}, std::uint64_t{100}}) {
        make(folder);
        std::filesystem::resize_file(folder.file("residency-x"), bytes);
        const auto refused = SharedHostBytes::try_open("x", contents, letters('b'), options);
        check_refused(refused, ErrorKind::malformed, "remove(\"x\", {.folder = ");
        REQUIRE(refused.error().detail<FileLocation>() != nullptr);
        CHECK(refused.error().detail<FileLocation>()->source == folder.file("residency-x"));
        CHECK(SharedHostBytes::remove("x", options));
    }
    const auto mapped = make(folder);
    std::filesystem::resize_file(folder.file("residency-x"), 0);  // others would write into what is mapped
    check_refused(SharedHostBytes::try_open("x", contents, letters('b'), options), ErrorKind::malformed,
                  "it was emptied while processes map it");
    std::filesystem::resize_file(folder.file("residency-x"), bytes_at);
    CHECK(mapped.try_verify().error().kind() == ErrorKind::malformed);
}

TEST_CASE("shared bytes: bytes that were changed are found by their checksums") {
    const MemoryFolder folder;
    make(folder);
    overwrite(folder, bytes_at + 9999, "b");
    CHECK(SharedHostBytes::try_open("x", contents, nullptr, {.folder = folder.folder()}));
    const auto refused =
        SharedHostBytes::try_open("x", contents, letters('b'), {.folder = folder.folder(), .verify = true});
    check_refused(refused, ErrorKind::malformed, "changed since process " + std::to_string(::getpid()));
    overwrite(folder, bytes_at + 9999, "a");
    CHECK(SharedHostBytes::try_open("x", contents, nullptr, {.folder = folder.folder(), .verify = true}));
    overwrite(folder, 40, "?");
    check_refused(SharedHostBytes::try_open("x", contents, letters('b'), {.folder = folder.folder()}),
                  ErrorKind::malformed, "its header was changed");
}

TEST_CASE("shared bytes: checksums say which part was changed") {
    const MemoryFolder folder;
    const host::SharedContents large{.bytes = (std::uint64_t{16} << 20) + 5};
    const auto made = SharedHostBytes::open("x", large, letters('a'), {.folder = folder.folder(), .threads = 2});
    CHECK(made.try_verify());
    overwrite(folder, bytes_at + large.bytes - 1, "b");
    const Status changed = made.try_verify();
    REQUIRE_FALSE(changed);
    CHECK(changed.error().detail<FileLocation>()->offset == bytes_at + (std::uint64_t{16} << 20));
}

TEST_CASE("shared bytes: those of another model, of other files and of another version are refused") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    const auto open = [&](host::SharedContents of) {
        return SharedHostBytes::try_open("x", of, letters('b'), options);
    };
    host::SharedContents known = contents;
    known.sources = 1;
    REQUIRE(open(known));
    CHECK(open(contents));
    check_refused(open({.bytes = 10000, .model = 8}), ErrorKind::mismatch, "another model");
    check_refused(open({.bytes = 10001, .model = 7}), ErrorKind::mismatch, "10,001 bytes");
    known.sources = 2;
    check_refused(open(known), ErrorKind::mismatch, "from other files");
    overwrite(folder, 8, {"\2", 1});
    check_refused(open(contents), ErrorKind::mismatch, "version 2");
    CHECK(SharedHostBytes::remove("x", options));
    CHECK(open(contents));
}

TEST_CASE("shared bytes: a file that is none of them is neither written nor removed") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    for (const std::string& text : {std::string{"notes"}, std::string(5000, 'n')}) {
        support::write_all(folder.file("residency-x"), text);
        check_refused(SharedHostBytes::try_open("x", contents, letters('b'), options), ErrorKind::mismatch,
                      "is another file");
        CHECK(SharedHostBytes::try_remove("x", options).error().kind() == ErrorKind::mismatch);
        CHECK(SharedHostBytes::try_find("x", options).error().kind() == ErrorKind::mismatch);
        CHECK(support::read_all(folder.file("residency-x")) == text);
    }
    std::filesystem::rename(folder.file("residency-x"), folder.file("notes"));
    std::filesystem::create_symlink(folder.file("notes"), folder.file("residency-x"));
    CHECK(SharedHostBytes::try_open("x", contents, letters('b'), options).error().kind() == ErrorKind::io);
    CHECK(support::read_all(folder.file("notes")) == std::string(5000, 'n'));
}

TEST_CASE("shared bytes: those of another user are refused, unless they are trusted") {
    if (::geteuid() != 0) {
        MESSAGE("SKIPPED: who is no superuser gives no file away");
        return;
    }
    const MemoryFolder folder;
    make(folder);
    REQUIRE(::chown(folder.file("residency-x").c_str(), 1, 1) == 0);
    check_refused(SharedHostBytes::try_open("x", contents, letters('b'), {.folder = folder.folder()}),
                  ErrorKind::mismatch, "belongs to user 1");
    CHECK(SharedHostBytes::try_open("x", contents, nullptr, {.folder = folder.folder(), .any_owner = true}));
}

TEST_CASE("shared bytes: without room nothing is written, and the error has the numbers") {
    const MemoryFolder folder;
    struct statvfs system = {};
    REQUIRE(::statvfs(folder.folder().c_str(), &system) == 0);
    const std::uint64_t free_bytes = std::uint64_t{system.f_bavail} * std::uint64_t{system.f_frsize};
    bool is_called = false;
    const auto fill = [&](std::span<std::byte>) {
        is_called = true;
        return Status{};
    };
    const auto open = [&](std::uint64_t bytes, std::optional<host::MemoryLimits> limits) {
        return SharedHostBytes::try_open("x", {.bytes = bytes}, fill, {.folder = folder.folder(), .limits = limits});
    };
    check_refused(open(free_bytes + (std::uint64_t{1} << 30), std::nullopt), ErrorKind::out_of_memory, " left; ");
    check_refused(open(UINT64_MAX, std::nullopt), ErrorKind::out_of_memory, "no room");
    host::MemoryLimits limits;
    limits.available_bytes = 5000;
    check_refused(open(10000, limits), ErrorKind::out_of_memory, "10,000 bytes");
    CHECK_FALSE(is_called);
    CHECK(std::filesystem::is_empty(folder.folder()));
}

TEST_CASE("shared bytes: a name, a folder or a number of bytes that cannot be is an error that says what to give") {
    const MemoryFolder folder;
    for (const std::string& name : {std::string{}, std::string{"a/b"}, std::string(201, 'n'), std::string{"a\0b", 3}}) {
        check_refused(SharedHostBytes::try_open(name, contents, letters('a'), {.folder = folder.folder()}),
                      ErrorKind::invalid_argument, "cannot be a name");
    }
    check_refused(SharedHostBytes::try_open("x", {}, letters('a'), {.folder = folder.folder()}),
                  ErrorKind::invalid_argument, "0 bytes");
    check_refused(SharedHostBytes::try_open("x", contents, letters('a'), {.folder = folder.file("none")}),
                  ErrorKind::io, "No such file");
    check_refused(SharedHostBytes::try_open("x", contents, letters('a'), {.folder = "/proc"}), ErrorKind::unsupported,
                  "is not in memory");
    CHECK(std::filesystem::is_empty(folder.folder()));
}

TEST_CASE("shared bytes: a writer that fails leaves nothing behind, whether it returns an error or throws") {
    const MemoryFolder folder;
    const host::SharedOptions options{.folder = folder.folder()};
    const auto failed = SharedHostBytes::try_open(
        "x", contents, [](std::span<std::byte>) { return Status{Error{ErrorKind::cancelled, "no"}}; }, options);
    check_refused(failed, ErrorKind::cancelled, "no");
    CHECK(std::filesystem::is_empty(folder.folder()));
    const auto throws = [](std::span<std::byte>) -> Status { throw 5; };
    CHECK_THROWS_AS(static_cast<void>(SharedHostBytes::try_open("x", contents, throws, options)), int);
    CHECK(std::filesystem::is_empty(folder.folder()));
}

TEST_CASE("shared bytes: pinned once and unpinned with the last of them; no process writes them") {
    const MemoryFolder folder;
    SimulatedDevice device;
    {
        auto shared = make(folder);
        shared.pin(device);
        CHECK(shared.bytes()->kind() == HostMemory::pinned);
        CHECK(device.device_view(shared.bytes()->data()));
        CHECK(shared.try_pin(device).error().kind() == ErrorKind::wrong_state);
        Process writer{[&](Line) {
            std::signal(SIGSEGV, SIG_DFL);
            const_cast<std::byte&>(*shared.bytes()->data()) = std::byte{1};  // the mapping is read-only
            return true;
        }};
        CHECK_FALSE(writer.succeeded());
        CHECK(is_all(shared, 'a'));
    }
    CHECK(device.statistics().of(simulation::CallKind::unpin) == 1);
}

TEST_CASE("shared bytes: a CUDA device pins mappings of any file system in memory, and of none on a disk") {
    const MemoryFolder folder;
    const auto shared = make(folder);
    CHECK(detail::file_mapping_in(shared.bytes()->data(), contents.bytes).empty());
    SharedHostBytes::remove("x", {.folder = folder.folder()});
    CHECK(detail::file_mapping_in(shared.bytes()->data(), contents.bytes).empty());
    CHECK(detail::is_path_in_memory("/dev//shm/residency-x (deleted)"));  // told by its file system, not by its path
    CHECK(detail::is_path_in_memory(folder.folder()));
    CHECK_FALSE(detail::is_path_in_memory("/proc/self/exe"));
    CHECK_FALSE(detail::is_path_in_memory("/no folder/model.safetensors (deleted)"));
}

TEST_SUITE_END();

}  // namespace shared_bytes_test
