// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "residency/config.hpp"
#include "residency/model/file.hpp"
#include "residency/model/number.hpp"
#include "residency/model/quoted.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace detail {

RESIDENCY_INLINE Result<FileHandle> open_regular_file(const std::string& path) {
    const auto refused = [&](const std::string& what) {
        return Error{ErrorKind::io, detail::quoted(path) + ": " + what, FileLocation{path, 0, {}, "a regular file"}};
    };
    if (path.find('\0') != std::string::npos) { return refused("a path cannot hold a zero byte"); }
    // O_NONBLOCK: to open a named pipe must not wait for its other end.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) { return refused("cannot be opened: " + std::generic_category().message(errno)); }
    FileHandle file{::fdopen(fd, "rb")};
    if (!file) {
        static_cast<void>(::close(fd));
        return refused("cannot be opened: there is no memory for it");
    }
    struct stat status{};
    if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) { return refused("it is a folder: give the file in it"); }
    if (!S_ISREG(status.st_mode)) { return refused("it is not a regular file"); }
    return file;
}

RESIDENCY_INLINE Result<std::vector<std::byte>> read_all(std::FILE& file, const std::string& source,
                                                         std::uint64_t max_bytes) {
    std::vector<std::byte> bytes;
    std::vector<std::byte> block(std::size_t{1} << 16);
    while (const std::size_t got = std::fread(block.data(), 1, block.size(), &file)) {
        if (got > max_bytes - bytes.size()) {
            return Error{
                ErrorKind::malformed,
                detail::quoted(source) + ": is longer than the " + residency::detail::in_bytes(max_bytes) + " allowed",
                FileLocation{source, max_bytes, "more bytes", "the end"}};
        }
        bytes.insert(bytes.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(got));
    }
    if (std::ferror(&file) != 0) {
        return Error{ErrorKind::io,
                     detail::quoted(source) + ": cannot be read: " + std::generic_category().message(errno),
                     FileLocation{source, bytes.size(), {}, {}}};
    }
    return bytes;
}

RESIDENCY_INLINE Result<std::vector<std::byte>> read_file(const std::string& path, std::uint64_t max_bytes) {
    const auto file = open_regular_file(path);
    if (!file) { return file.error(); }
    return read_all(**file, path, max_bytes);
}

RESIDENCY_INLINE Status write_file(const std::string& path, std::span<const std::byte> bytes) {
    struct stat there{};
    const bool in_place = ::lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode);
    const std::string fresh = in_place ? path : path + ".partial";
    bool is_made = false;
    const auto refused = [&](const std::string& name, const char* what) {
        const std::string why = std::generic_category().message(errno);
        if (is_made) { static_cast<void>(std::remove(fresh.c_str())); }
        return Error{ErrorKind::io, detail::quoted(name) + ": " + what + ": " + why, FileLocation{name, 0, {}, {}}};
    };
    FileHandle file{std::fopen(fresh.c_str(), "wb")};
    if (!file) { return refused(fresh, "cannot be opened for writing"); }
    is_made = !in_place;
    const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
    if (std::fclose(file.release()) != 0 || !written) { return refused(fresh, "cannot be written"); }
    if (!in_place && std::rename(fresh.c_str(), path.c_str()) != 0) { return refused(path, "cannot be replaced"); }
    return {};
}

}}}  // namespace residency::RESIDENCY_ABI::detail
