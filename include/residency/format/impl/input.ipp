// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "residency/config.hpp"
#include "residency/format/input.hpp"
#include "residency/model/quoted.hpp"
#include "residency/model/stat_identity.hpp"

namespace residency { inline namespace RESIDENCY_ABI { namespace format {

namespace detail {

/// What to do about a path that does not exist, where that can be told from its text; else empty.
[[nodiscard]] inline std::string advice_for(const std::string& path) {
    if (path.find("://") != std::string::npos) { return " (this is an address: download the file, and give its path)"; }
    if (path.starts_with("~")) { return " (only a shell replaces ~: give the whole path)"; }
    const std::size_t slash = path.find('/');
    const bool is_hub_name = slash != 0 && slash != std::string::npos &&
                             path.find('/', slash + 1) == std::string::npos && !path.starts_with('.') &&
                             path.find('.', slash) == std::string::npos;
    if (is_hub_name && ::access(path.substr(0, slash).c_str(), F_OK) != 0) {
        return " (if this is the name of a model on a hub: download it, and give its folder)";
    }
    return {};
}

}  // namespace detail

RESIDENCY_INLINE bool Input::exists(const std::string& path) noexcept {
    return ::access(path.c_str(), F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

RESIDENCY_INLINE Result<Input> Input::try_open(const std::string& path) {
    if (Status valid = detail::check_path(path); !valid) { return valid.error(); }
    // O_NONBLOCK: opening a named pipe must not hang.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) { return detail::system_error(path, 0, "cannot be opened" + detail::advice_for(path)); }
    Input input{fd, path};
    struct stat status = {};
    if (::fstat(fd, &status) != 0) { return detail::system_error(path, 0, "cannot be examined"); }
    if (!S_ISREG(status.st_mode)) {
        return Error{ErrorKind::io,
                     detail::shown(path) + (S_ISDIR(status.st_mode) ? ": a folder and not a file; give the file in it"
                                                                    : ": not a regular file"),
                     FileLocation{path, 0, {}, "a regular file"}};
    }
    input.bytes_ = static_cast<std::uint64_t>(status.st_size);
    input.identity_ = residency::detail::identity_of(status);
    return input;
}

RESIDENCY_INLINE Result<Input> Input::try_open_pieces(const std::vector<std::string>& paths) {
    if (paths.empty()) { return Error{ErrorKind::invalid_argument, "no files are given; give at least one"}; }
    Input whole{-1, paths.front()};
    for (const std::string& path : paths) {
        auto piece = try_open(path);
        if (!piece) { return piece.error(); }
        const auto bytes = residency::detail::checked_add(whole.bytes_, piece->bytes());
        if (!bytes) { return Error{ErrorKind::invalid_argument, "the files together do not fit in 64 bits"}; }
        whole.bytes_ = *bytes;
        whole.pieces_.push_back(std::move(*piece));
    }
    return whole;
}

RESIDENCY_INLINE Result<Input> Input::try_open(const SourceFile& source) {
    if (source.pieces.empty()) { return try_open(source.path); }
    std::vector<std::string> paths;
    paths.reserve(source.pieces.size());
    for (const SourceFile& piece : source.pieces) { paths.push_back(piece.path); }
    return try_open_pieces(paths);
}

RESIDENCY_INLINE SourceFile Input::source() const {
    SourceFile source{path_, bytes_, identity_, {}};
    for (const Input& piece : pieces_) { source.pieces.push_back(piece.source()); }
    return source;
}

RESIDENCY_INLINE Status Input::check() const {
    for (const Input& piece : pieces_) {
        if (Status same = piece.check(); !same) { return same; }
    }
    struct stat status = {};
    if (fd_.get() < 0) { return {}; }
    if (::fstat(fd_.get(), &status) != 0) { return detail::system_error(path_, 0, "cannot be examined"); }
    const FileIdentity now = residency::detail::identity_of(status);
    return now == *identity_ ? Status{} : Status{changed(*identity_, now, "while it was read")};
}

RESIDENCY_INLINE Status Input::check(const SourceFile& source) const {
    for (std::size_t i = 0; i < (std::min)(pieces_.size(), source.pieces.size()); ++i) {
        if (Status same = pieces_[i].check(source.pieces[i]); !same) { return same; }
    }
    if (!source.identity || !identity_ || *source.identity == *identity_) { return {}; }
    return changed(*source.identity, *identity_, "since its header was read");
}

RESIDENCY_INLINE Status Input::try_read(std::uint64_t offset, std::span<std::byte> out) const {
    if (!residency::detail::lies_inside(offset, out.size(), bytes_)) { return ends_before(offset, out.size()); }
    for (const Input& piece : pieces_) {
        if (out.empty()) { break; }
        if (offset >= piece.bytes()) {
            offset -= piece.bytes();
            continue;
        }
        const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), piece.bytes() - offset));
        if (Status read = piece.try_read(offset, out.first(here)); !read) { return read; }
        out = out.subspan(here);
        offset = 0;
    }
    if (!pieces_.empty()) { return {}; }
    if (fd_.get() < 0) {
        if (!out.empty()) { std::memcpy(out.data(), memory_.data() + offset, out.size()); }
        return {};
    }
    while (!out.empty()) {
        const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
        if (got < 0) {
            if (errno == EINTR) { continue; }
            return detail::system_error(path_, offset, "cannot be read");
        }
        if (got == 0) {
            return Error{ErrorKind::io,
                         detail::shown(path_) + ": byte " + std::to_string(offset) +
                             ": the file became shorter while it was read: it had " +
                             residency::detail::in_bytes(bytes_),
                         FileLocation{path_, offset, "its end", residency::detail::in_bytes(bytes_)}};
        }
        out = out.subspan(static_cast<std::size_t>(got));
        offset += static_cast<std::uint64_t>(got);
    }
    return {};
}

RESIDENCY_INLINE Result<std::string> Input::try_text(std::uint64_t offset, std::uint64_t count) const {
    std::string text;
    if (residency::detail::lies_inside(offset, count, bytes_)) { text.resize(static_cast<std::size_t>(count)); }
    if (text.size() != count) { return ends_before(offset, count); }
    if (Status read = try_read(offset, std::as_writable_bytes(std::span{text})); !read) { return read.error(); }
    return text;
}

RESIDENCY_INLINE Error Input::ends_before(std::uint64_t offset, std::uint64_t count) const {
    const auto end = residency::detail::checked_add(offset, count);
    return detail::malformed(path_, offset, detail::cut_off, residency::detail::in_bytes(bytes_),
                             detail::at_least(end));
}

RESIDENCY_INLINE Error Input::changed(const FileIdentity& before, const FileIdentity& now, const char* when) const {
    const std::string how = residency::detail::difference(before, now);
    return {ErrorKind::mismatch, detail::shown(path_) + ": the file was changed " + when + ": " + how,
            FileLocation{path_, 0, how, residency::detail::in_bytes(before.bytes)}};
}

}}}  // namespace residency::RESIDENCY_ABI::format

namespace residency { inline namespace RESIDENCY_ABI { namespace format { namespace detail {

RESIDENCY_INLINE bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t bytes = residency::detail::utf8_bytes(text);
        if (bytes == 0) { return false; }
        text.remove_prefix(bytes);
    }
    return true;
}

RESIDENCY_INLINE std::string shown(std::string_view text) {
    if (is_utf8(text)) { return residency::detail::quoted(text); }
    constexpr std::size_t longest = 40;
    constexpr char digits[] = "0123456789abcdef";
    std::string out = "bytes";
    for (const char c : text.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        out += ' ';
        out += digits[byte >> 4];
        out += digits[byte & 15];
    }
    return text.size() > longest ? out + " …" : out;
}

RESIDENCY_INLINE Error system_error(const std::string& path, std::uint64_t offset, const std::string& what) {
    std::string why = std::generic_category().message(errno);
    std::string message = shown(path) + ": " + (offset == 0 ? "" : "byte " + std::to_string(offset) + ": ") + what;
    message += ": " + why;
    return {ErrorKind::io, std::move(message), FileLocation{path, offset, std::move(why), {}}};
}

RESIDENCY_INLINE Status check_path(const std::string& path) {
    if (path.find('\0') == std::string::npos) { return {}; }
    return Error{ErrorKind::io, shown(path) + ": a path cannot hold a zero byte", FileLocation{path, 0, {}, {}}};
}

RESIDENCY_INLINE Error error_at(ErrorKind kind, const std::string& source, std::uint64_t offset,
                                const std::string& what, std::string found, std::string expected) {
    std::string message = shown(source) + ": byte " + std::to_string(offset) + ": " + what;
    if (!found.empty()) { message += ": found " + found; }
    if (!expected.empty()) { message += (found.empty() ? ": expected " : ", expected ") + expected; }
    return {kind, std::move(message), FileLocation{source, offset, std::move(found), std::move(expected)}};
}

}}}}  // namespace residency::RESIDENCY_ABI::format::detail
